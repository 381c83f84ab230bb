//! What is written is what was read, is whole or absent, and reads the same by tshark's own tools.

mod shared;

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use packet::{LinkType, Nanos, Seq};
use proptest::collection::vec;
use proptest::prelude::*;

use port::pcap::{Capture, Container, Error, Fault, Interface, Reader, Resolution, Writer, same_file};
use port::{Batch, Block, Fate, Opened, Packet, Port, PortError, Receive, Received, Transmit, TransmitCounts};
use shared::{Read, manifest, read_all};

/// An empty folder of this name.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("writer").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn packet(time: u64) -> Packet {
    let (seq, time, link, fate) = (Seq(0), Nanos(time), LinkType::Ethernet, Fate::Transmit(0));
    Packet { seq, time, offset: 0, len: 0, wire_len: 60, interface: 0, link, bucket: 0, fate }
}

/// Sends all of a capture to another.
fn copy(from: &Path, to: &Path) -> Result<(), PortError> {
    let reader = Reader::open(from)?;
    let writer = Writer::create(to, None, Some(&reader.format()))?;
    let mut capture = Capture::new(reader, Some(writer));
    let mut queue = capture.stream();
    let mut batch = Batch::default();
    while queue.receive(&mut batch)? != Received::End {
        batch.packets_mut().iter_mut().for_each(|packet| packet.fate = Fate::Transmit(0));
        queue.transmit(&mut batch)?;
    }
    queue.finish()
}

fn fault(result: Result<(), PortError>) -> Fault {
    match result {
        Err(PortError::Capture(error)) => error.fault,
        other => panic!("a fault of a capture: {other:?}"),
    }
}

/// Packets as far as a capture keeps them; times as they were raised.
fn kept(read: &Read) -> Vec<(u64, u32, LinkType, &[u8])> {
    read.packets.iter().map(|(packet, bytes)| (packet.time.0, packet.wire_len, packet.link, &bytes[..])).collect()
}

#[test]
fn captures_come_back() {
    let folder = folder("round");
    let mut rows = manifest();
    rows.retain(|row| !row.features.contains("file_damaged") && row.category != "mix");
    let step = if shared::deep() { 1 } else { 9 };
    for row in
        rows.iter().enumerate().filter(|(index, row)| index % step == 0 || row.category == "fmt").map(|(_, row)| row)
    {
        let original = read_all(Reader::open(&row.path).expect("a capture"));
        for name in ["a.pcap", "a.pcapng", "a.pcapng.zst", "a.pcap.gz", "a"] {
            let path = folder.join(name);
            match copy(&row.path, &path) {
                Ok(()) => {}
                Err(PortError::Capture(Error { fault: Fault::MixedLinks(..), .. }))
                    if name.starts_with("a.pcap.") || name == "a.pcap" =>
                {
                    assert!(original.packets.iter().any(|(packet, _)| packet.link != original.packets[0].0.link));
                    continue;
                }
                Err(error) => panic!("{}: {error}", row.name),
            }
            let again = read_all(Reader::open(&path).expect("a capture"));
            assert!(again.error.is_none(), "{} as {name}", row.name);
            assert!(kept(&again) == kept(&original), "{} as {name}", row.name);
            assert_eq!(again.steps_back, original.steps_back, "{}: time stamps are the file's", row.name);
            fs::remove_file(&path).expect("a file of ours");
        }
    }
}

#[test]
fn the_input_decides_what_the_name_does_not() {
    let folder = folder("like");
    let micros = folder.join("micros.pcap");
    fs::write(&micros, [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 12], &[113, 0, 0, 0]].concat()).expect("room");
    let format = |from: &Path, name: &str| {
        let to = folder.join(name);
        copy(from, &to).expect("a copy");
        let format = Reader::open(&to).expect("a capture").format();
        (format.container, format.interfaces.first().map(|interface| (interface.resolution, interface.link)))
    };
    let linux = LinkType::LinuxSll;
    assert_eq!(format(&micros, "x"), (Container::Pcap, Some((Resolution::MICROS, linux))));
    assert_eq!(format(&micros, "x.pcapng"), (Container::PcapNg, None));
    assert_eq!(format(&folder.join("x.pcapng"), "y"), (Container::PcapNg, None));
    assert_eq!(
        format(&folder.join("x.pcapng"), "y.pcap"),
        (Container::Pcap, Some((Resolution::NANOS, LinkType::Ethernet)))
    );
}

#[test]
fn empty_captures_are_whole() {
    let folder = folder("empty");
    for name in ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.zst"] {
        let path = folder.join(name);
        let mut writer = Writer::create(&path, None, None).expect("an output");
        writer.finish().and_then(|()| writer.finish()).expect("room, and twice does no harm");
        let read = read_all(Reader::open(&path).expect("a capture"));
        assert!(read.packets.is_empty() && read.error.is_none());
    }
}

#[test]
fn a_file_is_whole_or_absent() {
    let folder = folder("absent");
    let path = folder.join("out.pcap");
    fs::write(&path, "what was there").expect("room");
    let mut writer = Writer::create(&path, None, None).expect("an output");
    for number in 0..10_000 {
        writer.write(&packet(number), &[0; 60]).expect("room");
    }
    assert_eq!(names(&folder).len(), 2);
    drop(writer);
    assert_eq!(names(&folder), ["out.pcap"]);
    assert_eq!(fs::read_to_string(&path).expect("untouched"), "what was there");
    let target = folder.join("target.pcap");
    fs::write(&target, "").expect("room");
    let link = folder.join("link.pcap");
    symlink("target.pcap", &link).expect("a link");
    let mut writer = Writer::create(&link, None, None).expect("an output");
    writer.write(&packet(0), &[0; 60]).and_then(|()| writer.finish()).expect("room");
    assert!(link.is_symlink(), "a link stays one");
    assert_eq!(read_all(Reader::open(&target).expect("a capture")).packets.len(), 1);
    assert_eq!(names(&folder), ["link.pcap", "out.pcap", "target.pcap"]);
}

#[test]
fn packets_that_do_not_fit_leave_a_good_file() {
    let folder = folder("refused");
    let path = folder.join("out.pcap");
    let mut writer = Writer::create(&path, None, None).expect("an output");
    writer.write(&packet(7), &[1; 60]).expect("room");
    let other = Packet { link: LinkType::RawIp, ..packet(8) };
    let error = writer.write(&other, &[2; 60]).expect_err("another link type");
    assert!(error.to_string().contains(".pcapng"), "{error}");
    let late = writer.write(&packet(u64::MAX), &[3; 60]).expect_err("beyond 2106");
    assert!(matches!(late.fault, Fault::LateTime));
    writer.finish().expect("room");
    let read = read_all(Reader::open(&path).expect("a capture"));
    assert_eq!(kept(&read), [(7, 60, LinkType::Ethernet, &[1; 60][..])]);
    let path = folder.join("out.pcapng");
    let mut writer = Writer::create(&path, None, None).expect("an output");
    let packets = [packet(7), other, Packet { interface: 9, ..packet(9) }, packet(u64::MAX), other];
    packets.iter().for_each(|packet| writer.write(packet, &[4; 61]).expect("room"));
    writer.finish().expect("room");
    let read = read_all(Reader::open(&path).expect("a capture"));
    let have: Vec<_> = read.packets.iter().map(|(packet, _)| (packet.time.0, packet.interface, packet.link)).collect();
    let (ethernet, raw) = (LinkType::Ethernet, LinkType::RawIp);
    let last = (u64::MAX, 1, raw);
    assert_eq!(have, [(7, 0, ethernet), (8, 1, raw), (9, 2, ethernet), (u64::MAX, 0, ethernet), last]);
}

/// Whether packets of two link types come is known before any is written; interfaces that no packet comes from are no matter.
#[test]
fn mixed_links_are_refused_ahead_of_all() {
    let folder = folder("mixed");
    let input = folder.join("in.pcapng");
    let refused = |links: [LinkType; 2], interfaces: &[u16], output: &str| {
        let mut writer = Writer::create(&input, None, None).expect("an output");
        for (number, link) in (0..).zip(links) {
            writer.describe_as(number, Interface { link, ..described("one") });
        }
        for interface in interfaces {
            let packet = Packet { interface: *interface, link: links[usize::from(*interface)], ..packet(1) };
            writer.write(&packet, &[0; 60]).expect("room");
        }
        writer.finish().expect("room");
        let writer = Writer::create(folder.join(output), None, None).expect("an output");
        writer.refuse_mixed_links(&input).err().map(|error| error.to_string())
    };
    let (ethernet, raw) = (LinkType::Ethernet, LinkType::RawIp);
    let error = refused([ethernet, raw], &[&[0; 9_000][..], &[1]].concat(), "out.pcap").expect("two link types");
    assert!(error.contains("ends in .pcapng") && error.contains("byte 0, packet 1"), "{error}");
    assert_eq!(refused([ethernet, raw], &[0, 0, 1], "out.pcapng"), None);
    assert_eq!(refused([ethernet, raw], &[1, 1], "out.pcap"), None);
    assert_eq!(refused([ethernet, ethernet], &[0, 1], "out.pcap"), None);
    assert_eq!(names(&folder), ["in.pcapng"]);
}

#[test]
fn long_packets_are_written() {
    let path = folder("long").join("out.pcapng");
    let long = vec![5; 700_001];
    let mut writer = Writer::create(&path, None, None).expect("an output");
    for bytes in [&[1; 60][..], &long, &[2; 60]] {
        let wire_len = bytes.len() as u32;
        writer.write(&Packet { wire_len, ..packet(1) }, bytes).expect("room");
    }
    writer.finish().expect("room");
    let read = read_all(Reader::open(&path).expect("a capture"));
    assert!(read.packets[1].1 == long && read.packets.len() == 3);
}

#[test]
fn outputs_that_cannot_be_made() {
    let folder = folder("cannot");
    let fault = |path: &Path| Writer::create(path, None, None).expect_err("no output").fault;
    assert!(matches!(fault(&folder), Fault::Directory));
    assert!(matches!(fault(&folder.join("no/such.pcap")), Fault::Create(error) if error.kind() == ErrorKind::NotFound));
    assert!(names(&folder).is_empty());
}

#[test]
fn a_full_disk_is_told() {
    let mut writer = Writer::create("/dev/full", Some(Container::Pcap), None).expect("a device");
    let error = (0..10_000).find_map(|number| writer.write(&packet(number), &[0; 60]).err()).expect("no room");
    assert!(matches!(error.fault, Fault::DiskFull), "{error}");
    assert!(writer.write(&packet(0), &[0; 60]).is_ok(), "a packet may still lie in the buffer");
    writer.finish().expect("nothing is left to complete");
    let mut short = Writer::create("/dev/full", Some(Container::PcapNg), None).expect("a device");
    assert!(matches!(short.finish().expect_err("no room").fault, Fault::DiskFull));
}

#[test]
fn a_full_disk_leaves_nothing() {
    let folder = folder("full");
    let mount = |arguments: &[&str]| {
        let status =
            Command::new("mount").args(arguments).arg(&folder).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=256k", "none"]) {
        return;
    }
    let mut writer = Writer::create(folder.join("out.pcap"), None, None).expect("an output");
    let error = (0..10_000).find_map(|number| writer.write(&packet(number), &[0; 60]).err());
    let left = names(&folder);
    let unmounted = Command::new("umount").arg(&folder).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert!(matches!(error.expect("no room").fault, Fault::DiskFull));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_broken_pipe_is_told_apart() {
    let fifo = folder("pipe").join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()));
    let reading = fifo.clone();
    let reader = std::thread::spawn(move || {
        let mut first = [0; 10];
        fs::File::open(reading).and_then(|mut file| file.read_exact(&mut first)).expect("a writer");
    });
    let mut writer = Writer::create(&fifo, None, None).expect("a reader");
    let error = (0..100_000).find_map(|number| writer.write(&packet(number), &[0; 60]).err()).expect("nobody reads");
    assert!(error.is_broken_pipe(), "{error}");
    reader.join().expect("it read");
}

#[test]
fn equal_files_are_known_by_any_name() {
    let folder = folder("same");
    let [a, b, hard, soft] = ["a", "b", "hard", "soft"].map(|name| folder.join(name));
    fs::write(&a, "a").and_then(|()| fs::write(&b, "b")).expect("room");
    fs::hard_link(&a, &hard).and_then(|()| symlink(&a, &soft)).expect("links");
    for same in [&a, &hard, &soft, &folder.join("../same/a")] {
        assert!(same_file(&a, same) && same_file(same, &a));
        assert!(!same_file(&b, same));
    }
    assert!(!same_file(&a, &folder.join("none")) && !same_file(&folder.join("none"), &folder.join("none")));
    assert!(!same_file(Path::new("/dev/null"), Path::new("/dev/null")), "a device is no file");
}

#[test]
fn a_capture_is_one_stream_whatever_the_cores() {
    let path = folder("stream").join("a.pcap");
    Writer::create(&path, None, None).and_then(|mut writer| writer.finish()).expect("room");
    let mut port = Capture::new(Reader::open(&path).expect("a capture"), None);
    for cores in [1, 2, 16] {
        let Ok(Opened::Stream(mut stream)) = port.open(cores) else { panic!("{cores} cores have no stream") };
        assert!(!stream.ordered, "nobody asks for the order of what isn't written");
        assert_eq!(stream.receive(&mut Batch::default()).expect("a whole capture"), Received::End);
    }
}

#[test]
fn only_what_is_sent_is_written() {
    let folder = folder("sent");
    let (from, to) = (folder.join("from.pcap"), folder.join("to.pcap"));
    let mut writer = Writer::create(&from, None, None).expect("an output");
    // The clock steps back behind packet 2, which is not sent, and again.
    for time in [10, 20, 30, 15, 16, 40, 5, 50] {
        writer.write(&packet(time), &[time as u8; 60]).expect("room");
    }
    writer.finish().expect("room");
    let reader = Reader::open(&from).expect("a capture");
    let writer = Writer::create(&to, None, Some(&reader.format())).expect("an output");
    let mut capture = Capture::new(reader, Some(writer));
    let mut batch = Batch::default();
    let mut stream = capture.stream();
    while stream.receive(&mut batch).expect("a whole capture") == Received::Packets {
        let fates = [Fate::Transmit(0), Fate::Drop, Fate::Pending, Fate::Transmit(1)];
        for index in 0..batch.len() {
            batch.packets_mut()[index].fate = fates[index % 4];
            batch.bytes_mut(index)[0] = 0xff;
        }
        stream.transmit(&mut batch).expect("room");
    }
    stream.finish().expect("room");
    assert_eq!(stream.sent(), Some(TransmitCounts { sent: 4, lost: 0 }));
    let written = fs::read(&to).expect("a file");
    let stamps: Vec<u8> = written[24..].chunks(76).map(|record| record[4]).collect();
    assert_eq!(stamps, [10, 15, 16, 50]);
    assert!(written[24..].chunks(76).all(|record| record[16] == 0xff));
    assert_eq!(fault(copy(&folder, &to)).to_string(), "is a directory");
}

#[test]
#[allow(clippy::print_stderr)]
fn capinfos_agrees() {
    let folder = folder("capinfos");
    if Command::new("capinfos").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED (no capinfos)");
        return;
    }
    for name in ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.zst"] {
        let path = folder.join(name);
        let mut writer = Writer::create(&path, None, None).expect("an output");
        for number in 0..1_000 {
            writer.write(&packet(1_700_000_000_000_000_001 + number), &[0; 57]).expect("room");
        }
        writer.finish().expect("room");
        let output = Command::new("capinfos").args(["-TmrcdsSaeu"]).arg(&path).output().expect("capinfos runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let fields: Vec<&str> = text.trim().split([',', '\t']).collect();
        for want in ["1000", "60000", "1700000000.000000001", "1700000000.000001000"] {
            assert!(fields.iter().any(|field| field.trim_matches('"') == want), "{name}: no {want} in {text}");
        }
    }
}

fn described(name: &str) -> Interface {
    let (link, resolution) = (LinkType::Ethernet, Resolution::NANOS);
    Interface { name: Some(name.into()), link, snaplen: 96, resolution, time_offset_secs: 0, section: 0 }
}

/// Interfaces keep their numbers and names from capture to capture, also those that no packet comes from, and one that is described
/// behind the last packet.
#[test]
fn interfaces_keep_their_numbers() {
    let folder = folder("interfaces");
    let names = ["wan", "spare", "lan"];
    let (first, second) = (folder.join("first.pcapng"), folder.join("second.pcapng"));
    let mut writer = Writer::create(&first, None, None).expect("an output");
    for (number, name) in (0..).zip(names) {
        writer.describe_as(number, described(name));
    }
    for (time, interface) in [(1, 2), (2, 0), (3, 2)] {
        writer.write(&Packet { interface, ..packet(time) }, &[0; 57]).expect("room");
    }
    writer.describe_as(3, described("late"));
    writer.finish().expect("room");
    copy(&first, &second).expect("it can be copied");
    for path in [&first, &second] {
        let read = read_all(Reader::open(path).expect("a capture"));
        let numbers: Vec<u16> = read.packets.iter().map(|(packet, _)| packet.interface).collect();
        assert_eq!(numbers, [2, 0, 2], "{}", path.display());
        let named = read.format.interfaces.iter().map(|one| one.name.as_deref().unwrap_or_default());
        let named: Vec<_> = named.collect();
        assert_eq!(named, [&names[..], &["late"]].concat(), "{}", path.display());
    }
}

/// A packet that goes out by a port has that interface in the output, if there is one; others keep theirs.
#[test]
fn ports_are_interfaces_where_that_is_asked_for() {
    let folder = folder("ports");
    let from = folder.join("from.pcapng");
    let mut writer = Writer::create(&from, None, None).expect("an output");
    ["left", "right"].into_iter().zip(0..).for_each(|(name, number)| writer.describe_as(number, described(name)));
    for (time, interface) in [(1, 0), (2, 1), (3, 1), (4, 0), (5, 1)] {
        writer.write(&Packet { interface, ..packet(time) }, &[0; 57]).expect("room");
    }
    writer.finish().expect("room");
    for (name, by_ports, want) in
        [("as-asked.pcapng", true, [1, 0, 1, 0, 1]), ("as-it-was.pcapng", false, [0, 1, 1, 0, 1])]
    {
        let to = folder.join(name);
        let reader = Reader::open(&from).expect("a capture");
        let writer = Writer::create(&to, None, Some(&reader.format())).expect("an output");
        let mut capture = Capture::new(reader, Some(writer));
        if by_ports {
            capture.write_ports();
        }
        let mut batch = Batch::default();
        let mut stream = capture.stream();
        assert_eq!(stream.receive(&mut batch).expect("packets"), Received::Packets);
        for (packet, port) in batch.packets_mut().iter_mut().zip([1, 0, u16::MAX, 7, 1]) {
            packet.fate = Fate::Transmit(port);
        }
        stream.transmit(&mut batch).expect("room");
        stream.finish().expect("room");
        let read = read_all(Reader::open(&to).expect("a capture"));
        let have: Vec<u16> = read.packets.iter().map(|(packet, _)| packet.interface).collect();
        assert_eq!(have, want, "{name}");
        let named = read.format.interfaces.iter().map(|one| one.name.as_deref().unwrap_or_default());
        assert_eq!(named.collect::<Vec<_>>(), ["left", "right"]);
    }
}

/// Where packets have another link type than their interface had in the input, only theirs is described.
#[test]
fn interfaces_of_another_link_type_are_their_own() {
    let folder = folder("other-links");
    let to = folder.join("to.pcapng");
    let mut writer = Writer::create(&to, None, None).expect("an output");
    (0..3).for_each(|number| writer.describe_as(number, described("some")));
    for (interface, link) in [(1, LinkType::RawIp), (1, LinkType::Ethernet), (1, LinkType::RawIp)] {
        writer.write(&Packet { interface, link, ..packet(1) }, &[0; 57]).expect("room");
    }
    writer.finish().expect("room");
    let read = read_all(Reader::open(&to).expect("a capture"));
    let links: Vec<LinkType> = read.packets.iter().map(|(packet, _)| packet.link).collect();
    assert_eq!(links, [LinkType::RawIp, LinkType::Ethernet, LinkType::RawIp]);
    let numbers: Vec<u16> = read.packets.iter().map(|(packet, _)| packet.interface).collect();
    assert_eq!(numbers[0], numbers[2]);
}

/// Run by the test below in a process of its own: from standard input to standard output.
#[test]
#[ignore = "a part of from_standard_input_to_standard_output"]
fn child_between_standard_streams() {
    copy(Path::new("-"), Path::new("-")).expect("a capture on standard input");
}

#[test]
fn from_standard_input_to_standard_output() {
    let path = folder("standard").join("in.pcap.zst");
    let mut writer = Writer::create(&path, None, None).expect("an output");
    (0..5_000).for_each(|number| writer.write(&packet(number), &[7; 60]).expect("room"));
    writer.finish().expect("room");
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "child_between_standard_streams", "--ignored", "--nocapture"])
        .stdin(fs::File::open(&path).expect("a capture"))
        .output()
        .expect("this test runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The harness writes to the same stream, ahead and behind.
    let magic = 0xa1b2_3c4du32.to_le_bytes();
    let begin = output.stdout.windows(4).position(|bytes| bytes == magic).expect("a capture on standard output");
    let read =
        read_all(Reader::from_read(std::io::Cursor::new(output.stdout[begin..].to_vec()), "-").expect("a capture"));
    let mut whole = read.packets.iter().take_while(|(packet, _)| packet.len == 60);
    assert_eq!(whole.by_ref().count(), 5_000);
}

fn pcap_header(magic: u32) -> Vec<u8> {
    [magic, 0x0004_0002, 0, 0, 65_535, 1].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Drops, rewrites, lengthens or shortens a packet, or leaves it as it is, by `kind`; returns its fate.
fn change(batch: &mut Batch, index: usize, kind: u8) -> Fate {
    let bytes = batch.bytes(index).to_vec();
    match kind % 8 {
        0 => return Fate::Drop,
        1 => batch.bytes_mut(index).fill(kind),
        2 => batch.replace(index, &[&bytes[..], &[7; 30]].concat()),
        3 => batch.replace(index, &bytes[..bytes.len() / 2]),
        _ => {}
    }
    Fate::Transmit(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if shared::deep() { 20_000 } else { 300 }, ..ProptestConfig::default() })]

    /// Records that are written together as they lie are what packets written one by one are, whatever became of those between them.
    #[test]
    fn records_that_lie_together_are_written_as_one_by_one(
        frames in vec((0..3_000_000_000_u64, 0..400_usize, any::<u8>()), 0..300),
        block in prop_oneof![64..1000_usize, Just(128 << 10)],
        (is_lent, is_micros) in any::<(bool, bool)>(),
    ) {
        let folder = folder("together");
        let [input, together, apart] = ["in.pcap", "together.pcap", "apart.pcap"].map(|name| folder.join(name));
        // Many come ahead of their time, and keep it.
        let time = |at: usize| if is_micros { frames[at].0 / 1_000 * 1_000 } else { frames[at].0 };
        let mut bytes = pcap_header(if is_micros { 0xa1b2_c3d4 } else { 0xa1b2_3c4d });
        for (at, (_, len, kind)) in frames.iter().enumerate() {
            let (secs, nanos) = (time(at) / 1_000_000_000, time(at) % 1_000_000_000);
            let fraction = if is_micros { nanos / 1_000 } else { nanos };
            for word in [secs as u32, fraction as u32, *len as u32, *len as u32 + u32::from(*kind)] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.resize(bytes.len() + len, *kind);
        }
        fs::write(&input, bytes).expect("an input");
        let open = || Reader::open(&input).expect("a capture").with_block(block);
        let mut one_by_one = Writer::create(&apart, None, Some(&open().format())).expect("an output");
        let mut capture = Capture::new(open(), Some(Writer::create(&together, None, Some(&open().format())).expect("an output")));
        let mut stream = capture.stream();
        let (mut batch, mut memory) = (Batch::default(), Arc::new(Block::Filled(Vec::new())));
        while stream.receive(&mut batch).expect("packets") != Received::End {
            if is_lent {
                batch.share(&mut memory);
            }
            for index in 0..batch.len() {
                let seq = batch.packets()[index].seq.0 as usize;
                let fate = change(&mut batch, index, frames[seq].2);
                batch.packets_mut()[index].fate = fate;
                if let Fate::Transmit(_) = fate {
                    let (packet, bytes) = batch.packet(index);
                    let packet = Packet { time: Nanos(time(seq)), ..*packet };
                    one_by_one.write(&packet, bytes).expect("an output");
                }
            }
            stream.transmit(&mut batch).expect("an output");
            if is_lent {
                batch.unshare(&mut memory);
            }
        }
        stream.finish().expect("an output");
        one_by_one.finish().expect("an output");
        prop_assert!(fs::read(&together).expect("an output") == fs::read(&apart).expect("an output"));
    }
}
