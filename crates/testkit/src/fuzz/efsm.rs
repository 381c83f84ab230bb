//! Check of programs of stages: any text gives a program or errors with places, its normal form says the same, and a program takes any
//! packets without a panic.

use efsm::{Layers, Machine, MemoryStore, Packet, parse, print};
use packet::Nanos;

/// Reads the input as a program, and what follows a zero byte as packets.
pub fn efsm(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (program, packets) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Ok(text) = str::from_utf8(program) else { return };
    let lines = match parse(text) {
        Ok(lines) => lines,
        Err(errors) => return assert!(errors.iter().all(|error| error.place.line > 0), "an error has a place"),
    };
    let printed = print(&lines);
    let again =
        parse(&printed).unwrap_or_else(|errors| panic!("the normal form doesn't parse: {}\n{printed}", errors[0]));
    assert_eq!(print(&again), printed, "the normal form is its own normal form");
    let machine = Machine::of_lines(&lines);
    let same = Machine::of_lines(&again);
    let Ok(machine) = machine else {
        return assert!(same.is_err(), "the normal form is a program, the text is none:\n{text}");
    };
    let same = same.unwrap_or_else(|errors| panic!("the normal form is no program: {}\n{printed}", errors[0]));
    assert_eq!(same.rows, machine.rows);
    let [mut one, mut other] = [MemoryStore::new(&machine), MemoryStore::new(&same)];
    let mut now = Nanos(0);
    for chunk in packets.chunks_exact(16).take(64) {
        let word = |at: usize| u16::from_be_bytes([chunk[at], chunk[at + 1]]);
        now = now + Nanos(u64::from(word(0)) << (chunk[2] % 32));
        let packet = Packet {
            src: u128::from(word(3)),
            dst: u128::from(word(5)),
            src_port: word(7),
            dst_port: word(9),
            port: word(11) % 4,
            proto: chunk[13],
            flags: chunk[14],
            layers: Layers(chunk[15] & Layers::ALL.0),
            ..Packet::default()
        };
        let (mut first, mut second) = (packet, packet);
        let Ok(outcome) = machine.run(&mut first, now, &mut one);
        let Ok(expected) = same.run(&mut second, now, &mut other);
        assert_eq!((outcome, first), (expected, second), "a program and its normal form");
    }
}
