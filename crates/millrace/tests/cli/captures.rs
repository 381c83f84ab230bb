//! What captures say beside their packets, and stamps that lie, through whole runs on one core and several.

use std::fs;

use super::folder::Folder;

/// UDP in IPv4 in Ethernet, 60 bytes.
fn frame(number: u8) -> Vec<u8> {
    let mut frame =
        [&[2; 12][..], &[8, 0, 0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, number, 198, 51, 100, 2]].concat();
    frame.extend([0x13, 0x88, 0x17, 0x70, 0, 26, 0, 0]);
    frame.resize(60, number);
    frame
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// One stamp an hour ahead changes nobody's time: a policer that each packet fits passes them all, under
/// every engine that keeps the packets' order.
#[test]
fn one_stamp_ahead_starves_no_policer() {
    let folder = Folder::empty();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]);
    for secs in 0..600 {
        let stamp = 1_700_000_000 + if secs == 100 { 3600 } else { secs };
        file.extend(words(&[stamp, 0, 60, 60]));
        file.extend(frame(1));
    }
    fs::write(folder.path("in.pcap"), &file).unwrap();
    for engine in ["sequential --cores 1", "rss --cores 2", "scr --cores 2"] {
        let line =
            format!("run policer --in in.pcap --out out.pcap --set rate=480bit --set burst=130 --engine {engine}");
        let seen = folder.json(&format!("{line} --json"));
        assert_eq!(seen["stamps_not_believed"], 1, "{engine}: {seen:#}");
        // Behind the header, whose snap length is the writer's own.
        assert!(folder.bytes("out.pcap")[24..] == file[24..], "{engine}");
        let (_, out, err) = folder.run(&line);
        assert!(
            format!("{}{err}", String::from_utf8_lossy(&out)).contains("1 time stamp lies far from the neighbours")
        );
    }
}

/// Comments, names and statistics come out where they went in, on one core and on several, plain and compressed.
#[test]
fn what_stands_beside_packets_comes_out() {
    let folder = Folder::empty();
    let block = |kind: u32, body: &[u8]| {
        let len = 12 + body.len() as u32;
        [words(&[kind, len]), body.to_vec(), words(&[len])].concat()
    };
    let comment = |text: &str| {
        let mut option = [&1u16.to_le_bytes()[..], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
        option.resize(option.len().next_multiple_of(4) + 4, 0);
        option
    };
    let mut file = block(0x0a0d_0d0a, &[words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]), comment("a section")].concat());
    file.extend(block(1, &[words(&[1, 0]), comment("an interface")].concat()));
    for number in 0..5_000u32 {
        let head = words(&[0, 0, number * 1_000, 60, 60]);
        file.extend(block(6, &[head, frame(number as u8), comment(&format!("packet {number}"))].concat()));
        if number % 100 == 0 {
            file.extend(block(5, &[words(&[0, 0, number * 1_000]), comment(&format!("after {number}"))].concat()));
        }
    }
    fs::write(folder.path("in.pcapng"), &file).unwrap();
    folder.run("run conntrack --in in.pcapng --out one.pcapng --engine sequential");
    let one = folder.bytes("one.pcapng");
    let text = String::from_utf8_lossy(&one).into_owned();
    for part in ["a section", "an interface"] {
        assert_eq!(text.matches(part).count(), 1, "{part}");
    }
    let mut at = 0;
    for number in 0..5_000 {
        let mut place = |part: String| at += text[at..].find(&part).unwrap_or_else(|| panic!("{part}"));
        place(format!("packet {number}\0"));
        if number % 100 == 0 {
            place(format!("after {number}\0"));
        }
    }
    for engine in ["rss --cores 2", "scr --cores 2", "shared --cores 3"] {
        let (code, _, error) = folder.run(&format!("run conntrack --in in.pcapng --out two.pcapng --engine {engine}"));
        assert_eq!(code, 0, "{error}");
        assert!(folder.bytes("two.pcapng") == one, "{engine}");
        folder.run(&format!("run conntrack --in in.pcapng --out two.pcapng.gz --engine {engine}"));
        folder.run("run conntrack --in two.pcapng.gz --out three.pcapng --engine sequential");
        assert!(folder.bytes("three.pcapng") == one, "{engine}, compressed");
    }
}
