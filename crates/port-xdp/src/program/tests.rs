#![allow(clippy::print_stderr)]

use std::sync::Once;

use interface::InterfaceError;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::bpf::test_run;
use crate::filter::{LinkPolicy, ManagementPort, Protocol, Verdict};

const PASS: u32 = 2;

/// A program for one queue without a socket; `None` if this process may not load one.
fn loaded(filter: &Filter) -> Option<Program> {
    match Program::load("none", 1, filter, None) {
        Ok(program) => Some(program),
        Err(XdpError::Interface(InterfaceError::Privilege { .. })) => {
            // Once for all tests.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| eprintln!("SKIPPED (needs root): the XDP program on frames"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Bytes that look like packets: interesting values at interesting places.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![0x0800_u16, 0x86dd, 0x8100, 0x88a8, 0x0806, 0x88cc, 100]);
    let kinds = prop::collection::vec(kind, 3);
    let first = prop::sample::select(vec![0x45_u8, 0x46, 0x44, 0x60, 0]);
    let protocol = prop::sample::select(vec![6_u8, 17, 58, 1, 44]);
    let fragment = prop::sample::select(vec![0_u16, 0x4000, 0x2000, 1]);
    let port = prop::sample::select(vec![22_u16, 161, 23, 0]);
    let icmp = prop::sample::select(vec![132_u8, 133, 137, 138, 128]);
    (kinds, first, protocol, fragment, port, icmp, 14..90_usize).prop_map(
        |(kinds, first, protocol, fragment, port, icmp, len)| {
            let mut frame = vec![0; 12];
            let mut last = 0;
            for kind in kinds {
                frame.extend(kind.to_be_bytes());
                last = kind;
                if kind != 0x8100 && kind != 0x88a8 {
                    break;
                }
                frame.extend([0, 5]);
            }
            let start = frame.len();
            frame.resize(start + 60, 0);
            let ip = &mut frame[start..];
            ip[0] = first;
            if last == 0x0800 {
                ip[6..8].copy_from_slice(&fragment.to_be_bytes());
                ip[9] = protocol;
                let transport = usize::from(first & 15) * 4;
                ip[transport + 2..transport + 4].copy_from_slice(&port.to_be_bytes());
            } else {
                ip[6] = protocol;
                ip[40] = icmp;
                ip[42..44].copy_from_slice(&port.to_be_bytes());
            }
            frame.truncate(len);
            frame
        },
    )
}

#[test]
fn the_program_decides_as_the_filter_in_rust() {
    let filter = Filter {
        link: LinkPolicy::Kernel,
        management: vec![
            ManagementPort { protocol: Protocol::Tcp, port: 22 },
            ManagementPort { protocol: Protocol::Udp, port: 161 },
        ],
    };
    let Some(program) = loaded(&filter) else { return };
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&frames(), |frame| {
        let before = program.counts();
        let action = test_run(program.file(), &frame).expect("it runs");
        let after = program.counts();
        let verdict = match (
            after.unclaimed - before.unclaimed,
            after.link_passed - before.link_passed,
            after.management_passed - before.management_passed,
        ) {
            (1, 0, 0) => Verdict::Function,
            (0, 1, 0) => Verdict::Link,
            (0, 0, 1) => Verdict::Management,
            other => return Err(TestCaseError::fail(format!("one count rises by one, not {other:?}"))),
        };
        prop_assert_eq!(action == PASS, verdict != Verdict::Function);
        prop_assert_eq!(verdict, filter.decide(&frame), "{:02x?}", frame);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let counts = program.counts();
    let seen = [counts.unclaimed, counts.link_passed, counts.management_passed];
    assert!(seen.iter().all(|count| *count > 5), "the frames reach every verdict: {seen:?}");
}

#[test]
fn a_new_filter_takes_over_in_the_running_program() {
    let mut filter = Filter { link: LinkPolicy::Kernel, management: Vec::new() };
    let Some(program) = loaded(&filter) else { return };
    let mut arp = [0; 42];
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(test_run(program.file(), &arp).expect("it runs"), PASS);
    filter.link = LinkPolicy::Across;
    program.set_filter(&filter).expect("the map is ours");
    assert_ne!(test_run(program.file(), &arp).expect("it runs"), PASS);
    assert_eq!(program.counts(), ProgramCounts { unclaimed: 1, link_passed: 1, ..ProgramCounts::default() });
}

#[test]
fn a_damaged_object_is_refused_in_words() {
    assert!(linked(&OBJECT[..100], BY_QUEUE, &HashMap::new()).is_err());
    let error = linked(OBJECT, BY_QUEUE, &HashMap::new()).expect_err("it has no maps");
    assert!(error.contains("which nobody makes"), "{error}");
}
