//! The sequencer with the program that the kernel runs, on frames that a test hands to it.
#![allow(clippy::print_stderr)]

use std::sync::Once;
use std::thread;

use interface::InterfaceError;

use super::*;
use crate::bpf::test_run;
use crate::error::XdpError;
use crate::filter::Filter;
use crate::program::Addition;
use crate::program::{Program, ProgramCounts};

const CORES: usize = 3;
const RECORDS: u32 = 4096;
const DROP: u32 = 1;

/// A sequencer with the programs of two interfaces; `None` if this process may not load them.
fn loaded() -> Option<(Arc<Sequencer>, [Program; 2])> {
    let filter = Filter::for_interfaces(2);
    let Ok(sequencer) = Sequencer::new(CORES, RECORDS) else {
        // Once for all tests.
        static TOLD: Once = Once::new();
        TOLD.call_once(|| eprintln!("SKIPPED (needs root): the sequencer on frames"));
        return None;
    };
    let sequencer = Arc::new(sequencer);
    let program = |number| match Program::load(
        "none",
        CORES as u32,
        &filter,
        Some(&Addition::Sequencer(Arc::clone(&sequencer), number)),
    ) {
        Ok(program) => Some(program),
        Err(XdpError::Interface(InterfaceError::Privilege { .. })) => None,
        Err(error) => panic!("{error}"),
    };
    let programs = [program(0)?, program(1)?];
    Some((sequencer, programs))
}

/// A frame of this length that says which it is.
fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|at| (at as u64 + number) as u8).collect();
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A core that never gets a packet, but knows of each: as its own come by no interface, it passes them when they are numbered.
fn follow(reader: &mut Reader) {
    loop {
        match reader.own_entry().map(|entry| entry.what) {
            None => break,
            Some(What::Packet { .. }) => reader.pass_own(),
            Some(What::Mark { first, .. }) => {
                reader.read_to_mark(first);
                break;
            }
        }
    }
}

/// What a core reads: interfaces, lengths and first bytes of packets, and the numbers of marks.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Packet(u64, u16, u32, Vec<u8>),
    Mark(u64, bool),
}

fn read(reader: &mut Reader) -> Vec<Read> {
    let mut all = Vec::new();
    loop {
        follow(reader);
        let Some(entry) = reader.entry_to_read() else { break };
        match entry.what {
            What::Packet { wire_len, interface, head } => {
                all.push(Read::Packet(reader.place_of(reader.next()), interface, wire_len, head.to_vec()));
                reader.step();
            }
            What::Mark { first, stops } => {
                assert_eq!(first, reader.next(), "the marks behind the first are skipped");
                all.push(Read::Mark(reader.place_of(first), stops));
                reader.step_over_mark();
            }
        }
        reader.tell();
    }
    all
}

#[test]
fn every_core_reads_every_packet_with_its_number() {
    let Some((sequencer, programs)) = loaded() else { return };
    let mut readers = [0, 1, 2].map(|core| Reader::new(Arc::clone(&sequencer), core));
    let lens = [60, 90, 224, 225, 1500, 61, 3000];
    let mut expected = Vec::new();
    for (number, len) in (0_u64..).zip(lens) {
        let frame = frame(number, len);
        // No socket takes them, so that the program drops and counts them when it has told of them.
        assert_eq!(test_run(programs[number as usize & 1].file(), &frame).expect("it runs"), DROP);
        let head = frame[..len.min(HEAD_BYTES)].to_vec();
        expected.push(Read::Packet(number, (number & 1) as u16, len as u32, head));
        if number == 3 {
            readers[1].stop();
            readers[2].stop();
        }
    }
    // One stop for all behind the fourth packet, which doesn't change the numbers of packets.
    expected.insert(4, Read::Mark(4, true));
    for reader in &mut readers {
        assert_eq!(read(reader), expected);
        assert_eq!(read(reader), []);
    }
    let counts = programs.map(|program| program.counts());
    let unclaimed = |unclaimed| ProgramCounts { unclaimed, ..ProgramCounts::default() };
    assert_eq!(counts, [unclaimed(4), unclaimed(3)]);
}

#[test]
fn what_the_filter_passes_has_no_number() {
    let Some((sequencer, programs)) = loaded() else { return };
    let mut arp = frame(0, 60);
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(test_run(programs[1].file(), &arp).expect("it runs"), DROP, "it goes across, but there is no socket");
    programs[0].set_filter(&Filter::for_interfaces(1)).expect("it is set");
    assert_eq!(test_run(programs[0].file(), &arp).expect("it runs"), 2, "link traffic passes to the kernel");
    assert_eq!(test_run(programs[0].file(), &frame(1, 60)).expect("it runs"), DROP);
    let mut reader = Reader::new(sequencer, 0);
    assert_eq!(read(&mut reader), [Read::Packet(0, 0, 60, frame(1, 60))]);
}

#[test]
fn a_program_waits_for_the_slowest_core() {
    let Some((sequencer, programs)) = loaded() else { return };
    let mut readers = [0, 1, 2].map(|core| Reader::new(Arc::clone(&sequencer), core));
    let run = |program: &Program| test_run(program.file(), &frame(0, 60)).expect("it runs");
    let room = u64::from(RECORDS - SPARE);
    (0..room + 10).for_each(|_| assert_eq!(run(&programs[0]), DROP));
    let counted = |program: &Program| (program.counts().unclaimed, program.counts().history_full);
    assert_eq!(counted(&programs[0]), (room, 10));
    // Two cores have read all, and one nothing: nothing has room but a stop.
    (0..2).for_each(|core| assert_eq!(read(&mut readers[core]).len() as u64, room));
    run(&programs[1]);
    readers[0].quiet();
    readers[0].stop();
    assert_eq!(counted(&programs[1]), (0, 1));
    for (core, all) in [(0, 1), (1, 1), (2, room + 1)] {
        assert_eq!(read(&mut readers[core]).len() as u64, all);
    }
    run(&programs[1]);
    assert_eq!(counted(&programs[1]), (1, 1));
    assert_eq!(read(&mut readers[2]), [Read::Packet(room, 1, 60, frame(0, 60))]);
}

#[test]
fn programs_on_two_processors_and_cores_that_mark_agree_on_one_order() {
    let Some((sequencer, programs)) = loaded() else { return };
    let each = 3000_u64;
    let send = |side: usize, program: &Program| {
        let mut sent = 0;
        while sent < each {
            test_run(program.file(), &frame(sent << 1 | side as u64, 60)).expect("it runs");
            // What found the history full is sent again.
            sent = program.counts().unclaimed;
        }
    };
    let follow = |core: usize| {
        let mut reader = Reader::new(Arc::clone(&sequencer), core);
        let (mut all, mut packets) = (Vec::new(), 0);
        while packets < 2 * each {
            let come = read(&mut reader);
            packets += come.iter().filter(|read| matches!(read, Read::Packet(..))).count() as u64;
            if come.len() > 100 {
                reader.quiet();
            }
            all.extend(come);
            thread::yield_now();
        }
        all
    };
    let orders: Vec<Vec<Read>> = thread::scope(|scope| {
        let senders = [0, 1].map(|side| {
            scope.spawn({
                let program = &programs[side];
                move || send(side, program)
            })
        });
        let cores: Vec<_> = (0..CORES).map(|core| scope.spawn(move || follow(core))).collect();
        senders.into_iter().for_each(|sender| sender.join().expect("it doesn't panic"));
        cores.into_iter().map(|core| core.join().expect("it doesn't panic")).collect()
    });
    // The last marks may come after a core has its packets.
    let until_last =
        |order: &[Read]| order.iter().rposition(|read| matches!(read, Read::Packet(..))).expect("packets") + 1;
    let last = until_last(&orders[0]);
    assert!(orders.iter().all(|order| order[..until_last(order)] == orders[0][..last]));
    for side in 0..2_u16 {
        let numbers = orders[0].iter().filter_map(|read| match read {
            Read::Packet(_, interface, _, head) if *interface == side => {
                Some(u64::from_be_bytes(*head[14..].first_chunk().expect("a frame is longer")))
            }
            Read::Packet(..) | Read::Mark(..) => None,
        });
        assert!(
            numbers.eq((0..each).map(|number| number << 1 | u64::from(side))),
            "an interface's packets are in order"
        );
    }
}
