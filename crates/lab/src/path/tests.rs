use super::*;

#[test]
fn a_stage_is_what_a_prefix_takes_more_than_the_one_before() {
    // Three rounds of three prefixes.
    let figures = [vec![10.0, 12.0, 11.0], vec![30.0, 29.0, 40.0], vec![29.0, 90.0, 31.0]];
    let stages = stages_of(&figures);
    let medians: Vec<f64> = stages.iter().map(|stage| stage.median).collect();
    // The medians are 11, 30 and 31.
    assert_eq!(medians, [11.0, 19.0, 1.0]);
    assert_eq!((stages[0].min, stages[0].max), (10.0, 12.0));
    assert_eq!((stages[1].min, stages[1].max), (17.0, 29.0));
    assert_eq!((stages[2].min, stages[2].max), (-9.0, 61.0));
    // A difference below 0 is noise.
    let none = difference(&[5.0, 5.0, 5.0], &[6.0, 7.0, 6.0]);
    assert_eq!((none.min, none.median, none.max), (-2.0, 0.0, 0.0));
}
