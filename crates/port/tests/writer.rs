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

use millrace_port::pcap::{
    Capture, Container, Error, Fault, Interface, Misplaced, Reader, Resolution, Writer, same_file,
};
use millrace_port::{Batch, Block, Fate, Opened, Packet, Port, PortError, Receive, Received, Transmit, TransmitCounts};
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

/// Packets as far as a capture keeps them, with the file's time stamps.
fn kept(read: &Read) -> Vec<(u64, u32, LinkType, &[u8])> {
    let packets = read.packets.iter().zip(&read.stamps);
    packets.map(|((packet, bytes), stamp)| (*stamp, packet.wire_len, packet.link, &bytes[..])).collect()
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
            let times = |read: &Read| read.packets.iter().map(|(packet, _)| packet.time).collect::<Vec<_>>();
            assert!(times(&again) == times(&original), "{} as {name}", row.name);
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
    let (target, link) = (folder.join("target.pcap"), folder.join("link.pcap"));
    symlink("target.pcap", &link).expect("a link");
    // First to nothing, then to a file.
    for packets in [1, 2] {
        let mut writer = Writer::create(&link, None, None).expect("an output");
        (0..packets).for_each(|number| writer.write(&packet(number), &[0; 60]).expect("room"));
        writer.finish().expect("room");
        assert!(link.is_symlink(), "a link stays one");
        assert_eq!(read_all(Reader::open(&target).expect("a capture")).packets.len() as u64, packets);
        assert_eq!(names(&folder), ["link.pcap", "out.pcap", "target.pcap"]);
    }
    symlink("round.pcap", folder.join("round.pcap")).expect("a link");
    assert!(Writer::create(folder.join("round.pcap"), None, None).is_err(), "it leads nowhere");
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
    let have = read.packets.iter().zip(&read.stamps);
    let have: Vec<_> = have.map(|((packet, _), stamp)| (*stamp, packet.interface, packet.link)).collect();
    let (ethernet, raw) = (LinkType::Ethernet, LinkType::RawIp);
    let last = (8, 1, raw);
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
        writer.refuse_mixed_links([input.as_path()]).err().map(|error| error.to_string())
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
        assert_eq!(stream.order, millrace_port::Order::Any, "nobody asks for the order of what isn't written");
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
        let fates = [Fate::Transmit(0), Fate::Drop(32), Fate::Pending, Fate::Transmit(1)];
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
    Interface {
        name: Some(name.into()),
        link,
        snaplen: 96,
        resolution,
        time_offset_secs: 0,
        section: 0,
        facts: Vec::new(),
    }
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
        for (packet, port) in batch.packets_mut().iter_mut().zip([1, 0, 9, 7, 1]) {
            packet.fate = Fate::Transmit(port);
        }
        stream.transmit(&mut batch).expect("room");
        stream.finish().expect("room");
        drop(stream);
        let misplaced = if by_ports { (2, 9, true) } else { (0, 0, false) };
        let Misplaced { packets, port, is_several } = *capture.misplaced();
        assert_eq!((packets, port, is_several), misplaced, "{name}");
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
        0 => return Fate::Drop(32),
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

/// A block of pcapng, its numbers in this byte order.
struct Order(bool);

impl Order {
    fn words(&self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| if self.0 { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
    }

    fn half(&self, number: u16) -> [u8; 2] {
        if self.0 { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn long(&self, number: u64) -> [u8; 8] {
        if self.0 { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.half(code), self.half(value.len() as u16)].concat();
        option.extend_from_slice(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn block(&self, kind: u32, body: &[Vec<u8>]) -> Vec<u8> {
        let body = body.concat();
        let len = 12 + body.len() as u32;
        [self.words(&[kind, len]), body, self.words(&[len])].concat()
    }

    /// A packet of 60 bytes; `wire_len` and options as given.
    fn packet(&self, micros: u64, wire_len: u32, options: &[Vec<u8>]) -> Vec<u8> {
        let head = self.words(&[0, (micros >> 32) as u32, micros as u32, 60, wire_len]);
        self.block(6, &[head, vec![7; 60], options.concat()])
    }

    /// A capture with all that may stand beside packets.
    fn capture(&self) -> Vec<u8> {
        let end = || vec![0; 4];
        let section = self.words(&[0x1a2b_3c4d]);
        let version = [self.half(1), self.half(0)].concat();
        let comment = |text: &str| self.option(1, text.as_bytes());
        let link = [self.half(1), self.half(0)].concat();
        let hour_back = self.long(-3600i64 as u64);
        let flags = self.words(&[0x81]);
        let micros = 5_000_000_000u64;
        let halves = self.words(&[(micros >> 32) as u32, micros as u32]);
        [
            self.block(
                0x0a0d_0d0a,
                &[section, version, vec![0xff; 8], comment("a section"), self.option(4, b"me"), end()],
            ),
            self.block(
                1,
                &[
                    link,
                    self.words(&[96]),
                    self.option(2, b"eth7"),
                    self.option(3, b"uplink"),
                    self.option(8, &self.long(10_000_000_000)),
                    self.option(13, &[4]),
                    self.option(14, &hour_back),
                    self.option(2989, &[self.words(&[32_473]), vec![1, 2, 3]].concat()),
                    comment("an interface"),
                    end(),
                ],
            ),
            self.block(4, &[self.option(1, &[&[10, 0, 0, 1][..], b"host\0"].concat()), end(), comment("names"), end()]),
            self.block(10, &[self.words(&[0x544c_534b, 5]), b"CLIEN\0\0\0".to_vec()]),
            self.packet(micros, 60, &[comment("look"), self.option(2, &flags), self.option(4, &self.long(3)), end()]),
            self.block(
                5,
                &[self.words(&[0]), halves.clone(), self.option(2, &halves), self.option(5, &self.long(2)), end()],
            ),
            self.block(0xbad, &[self.words(&[32_473]), b"data".to_vec()]),
            self.block(0x4000_0bad, &[self.words(&[32_473]), b"none".to_vec()]),
            // Before the epoch, with the offset; and shorter on the wire than here.
            self.packet(1_000_000, 60, &[]),
            self.packet(micros + 7, 20, &[comment("short"), end()]),
            self.block(5, &[self.words(&[0]), halves, self.option(4, &self.long(9)), end()]),
        ]
        .concat()
    }
}

/// The blocks of a little-endian capture, each with its type.
fn blocks(file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut blocks) = (0, Vec::new());
    while at < file.len() {
        let len = word(at + 4) as usize;
        blocks.push((word(at), file[at + 8..at + len - 4].to_vec()));
        at += len;
    }
    blocks
}

/// What stands beside packets comes out as it went in, but for the unit of time, in whichever order the numbers' bytes were; and comes
/// out of that again, byte for byte.
#[test]
fn what_stands_beside_packets_survives() {
    let folder = folder("beside");
    let [input, first, second, zipped, classic] =
        ["in.pcapng", "1.pcapng", "2.pcapng", "3.pcapng.gz", "4.pcap"].map(|name| folder.join(name));
    let mut outputs = Vec::new();
    for big in [false, true] {
        let order = Order(big);
        fs::write(&input, order.capture()).expect("room");
        copy(&input, &first).expect("a copy");
        copy(&first, &second).expect("a copy");
        copy(&second, &zipped).expect("a copy");
        let written = fs::read(&first).expect("a file");
        assert!(written == fs::read(&second).expect("a file"), "big {big}");
        outputs.push(written);
        // And as tshark has it.
        if let Ok(shown) = Command::new("tshark").args(["-r"]).arg(&zipped).args(TSHARK_FIELDS).output() {
            let shown = String::from_utf8_lossy(&shown.stdout);
            let lines: Vec<&str> = shown.lines().filter(|line| !line.starts_with('\t')).collect();
            assert_eq!(
                lines,
                ["1400.000000000\t60\tlook\t0x00000081", "-3599.000000000\t60\t\t", "1400.000007000\t20\tshort\t"]
            );
        }
    }
    assert!(outputs[0] == outputs[1], "the order of bytes is the output's own");
    let little = Order(false);
    let (was, is) = (blocks(&little.capture()), blocks(&outputs[0]));
    let kinds = |blocks: &[(u32, Vec<u8>)]| blocks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
    let mut expected = kinds(&was);
    expected.retain(|kind| *kind != 0x4000_0bad);
    assert_eq!(kinds(&is), [0x0a0d_0d0a, 4, 10, 1, 6, 5, 0xbad, 6, 6, 5]);
    expected.sort_unstable();
    let mut sorted = kinds(&is);
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    for kind in [0x0a0d_0d0a, 4, 10, 0xbad] {
        let of = |blocks: &[(u32, Vec<u8>)]| blocks.iter().find(|block| block.0 == kind).map(|block| block.1.clone());
        assert_eq!(of(&is), of(&was), "{kind:#x}");
    }
    let holds = |kind: u32, part: &[u8]| {
        is.iter().any(|block| block.0 == kind && block.1.windows(part.len()).any(|at| at == part))
    };
    for part in [little.option(3, b"uplink"), little.option(8, &little.long(10_000_000_000)), little.option(13, &[4])] {
        assert!(holds(1, &part), "{part:?}");
    }
    let nanos = 5_000_000_000_000u64;
    let halves = little.words(&[(nanos >> 32) as u32, nanos as u32]);
    assert!(holds(5, &[halves.clone(), little.option(2, &halves), little.option(5, &little.long(2))].concat()));
    // A classic pcap has room for the length of frame check sequences, and of the shorter length; not for stamps before the epoch.
    assert!(matches!(fault(copy(&input, &classic)), Fault::LateTime));
}

const TSHARK_FIELDS: [&str; 10] =
    ["-Tfields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.comment", "-e", "frame.packet_flags", "-n"];

/// The length on the wire that a record tells stays, also where it is less than what was captured.
#[test]
fn lengths_on_the_wire_stay_as_they_are() {
    let folder = folder("lengths");
    let (from, to) = (folder.join("from.pcap"), folder.join("to.pcap"));
    let mut writer = Writer::create(&from, None, None).expect("an output");
    for (time, wire_len) in [(1, 60), (2, 20), (3, 0), (4, 90)] {
        writer.write(&Packet { wire_len, ..packet(time) }, &[5; 60]).expect("room");
    }
    writer.finish().expect("room");
    // With frame check sequences of four bytes, as the link type's word tells.
    let mut file = fs::read(&from).expect("a file");
    file[23] = 0x24;
    fs::write(&from, &file).expect("room");
    copy(&from, &to).expect("a copy");
    assert_eq!(fs::read(&to).expect("a file")[20..], file[20..]);
    let (there, back) = (folder.join("there.pcapng"), folder.join("back.pcap"));
    copy(&from, &there).and_then(|()| copy(&there, &back)).expect("copies");
    assert_eq!(fs::read(&back).expect("a file")[20..], file[20..]);
    assert_eq!(read_all(Reader::open(&there).expect("a capture")).format.interfaces[0].facts, [(13, vec![4])]);
}
