use super::*;

#[test]
fn a_side_keeps_its_first_bytes_up_to_a_gap() {
    let mut side = Side::default();
    assert!(side.add(b"abc", 5) && side.add(b"def", 5) && !side.add(b"g", 5));
    assert_eq!((side.head(), side.is_whole(5), side.is_early(0, 5)), (&b"abcde"[..], true, false));
    let mut cut = Side::default();
    cut.add(b"ab", 5);
    cut.skip(2);
    assert!(!cut.add(b"e", 5) && cut.is_early(0, 6) && !cut.is_early(1, 6));
    cut.end();
    assert_eq!((cut.head(), cut.is_whole(5)), (&b"ab"[..], false));
    let mut short = Side::default();
    short.add(b"ab", 5);
    short.end();
    assert!(short.is_whole(5));
}

#[test]
fn only_other_bytes_within_those_that_are_kept_contradict() {
    let mut side = Side::default();
    side.add(b"attack", HEAD_MAX);
    for (offset, bytes, expected) in [
        (0, &b"attack"[..], false),
        (2, b"tacked", false),
        (2, b"tacKed", true),
        (6, b"anything", false),
        (u64::MAX, b"anything", false),
        (5, b"", false),
        (5, b"K", true),
    ] {
        assert_eq!(side.contradicts(offset, bytes), expected, "{offset}, {bytes:?}");
    }
}

#[test]
fn digests_are_fnv_1a() {
    assert_eq!(FlowBuffer::digest(b"foobar"), "85944171f73967e8");
    assert_eq!((FlowBuffer::digest(b""), FlowBuffer::legible(b"a\r\n\xff~")), ("-".into(), "a...~".into()));
}
