//! Synthesised traces have the promised properties, according to our parser, a naive reader of TCP, and tshark.

use std::collections::{HashMap, HashSet};

use millrace_testkit::{Frames, Synth};
use packet::{FiveTuple, Headers, LinkType, Nanos, TcpFlags, Transport};
use synth::{FlowTransport, FrameLen, Params, Profile, SynthError};

use super::tshark::tshark;

fn synthesise(profile: Profile, params: &Params) -> Frames {
    let mut synth = Synth::new(profile, params).unwrap_or_else(|error| panic!("{profile}: {error}"));
    let mut frames = Frames::new(synth.link());
    while let Some((time, frame)) = synth.next_frame() {
        frames.push(time, frame);
    }
    frames
}

fn headers(bytes: &[u8]) -> Headers {
    packet::parse(LinkType::Ethernet, bytes, bytes.len() as u32, 0).expect("synthesised frames are well-formed")
}

/// A few sets of parameters that cover every branch.
fn variants() -> Vec<(Profile, Params)> {
    let base = Params { packets: 6_000, ..Params::default() };
    let mut variants: Vec<(Profile, Params)> = Profile::ALL.map(|profile| (profile, base.clone())).to_vec();
    for profile in [Profile::UniversityDc, Profile::Backbone, Profile::Hyperscaler, Profile::Uniform] {
        variants.push((profile, Params { flows: Some(100), burst: 4.0, ipv6_percent: 30, seed: 9, ..base.clone() }));
        variants.push((
            profile,
            Params { flows: Some(60), skew: Some(1.1), transport: Some(FlowTransport::Tcp), ..base.clone() },
        ));
        let fixed = Some(FrameLen::Fixed(192));
        variants.push((profile, Params { frame_len: fixed, transport: Some(FlowTransport::Udp), ..base.clone() }));
        let small = Some(FrameLen::Fixed(64));
        variants.push((
            profile,
            Params { frame_len: small, ipv6_percent: 50, transport: Some(FlowTransport::Tcp), ..base.clone() },
        ));
    }
    let turns = Params { turns: true, transport: Some(FlowTransport::Tcp), flows: Some(250), ..base };
    variants.push((Profile::Uniform, turns));
    variants
}

#[test]
fn packets_flows_and_times_are_as_asked() {
    for (profile, params) in variants() {
        let frames = synthesise(profile, &params);
        assert_eq!(frames.len() as u64, params.packets, "{profile} {params:?}");
        let times: Vec<Nanos> = frames.iter().map(|(time, _)| time).collect();
        assert!(times.is_sorted(), "{profile}");
        let conversations: HashSet<FiveTuple> =
            frames.iter().map(|(_, bytes)| headers(bytes).five_tuple().expect("all is IP").symmetric().0).collect();
        let synth = Synth::new(profile, &params).unwrap();
        assert_eq!(conversations.len() as u64, synth.flows(), "{profile} {params:?}");
        assert_eq!(params.flows.unwrap_or(synth.flows()), synth.flows());
        if let Some(FrameLen::Fixed(len)) = params.frame_len
            && params.ipv6_percent == 0
        {
            assert!(frames.iter().all(|(_, bytes)| bytes.len() == usize::from(len)));
        }
    }
}

/// The trace has about the requested rate.
#[test]
fn rate_is_as_asked() {
    for profile in [Profile::UniversityDc, Profile::Hyperscaler, Profile::Uniform, Profile::SingleFlow] {
        let params = Params { packets: 50_000, rate_pps: 250_000, ..Params::default() };
        let frames = synthesise(profile, &params);
        let times: Vec<Nanos> = frames.iter().map(|(time, _)| time).collect();
        let seconds = (times[times.len() - 1] - times[0]).as_secs_f64();
        assert!((0.15..0.27).contains(&seconds), "{profile}: {seconds} s for 0.2");
    }
}

#[test]
fn the_seed_decides() {
    for profile in Profile::ALL {
        let bytes = |seed| {
            let frames = synthesise(profile, &Params { seed, packets: 2_000, ..Params::default() });
            frames.iter().map(|(time, bytes)| (time, bytes.to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(bytes(5), bytes(5), "{profile}");
        assert_ne!(bytes(5), bytes(6), "{profile}");
    }
}

/// The state of one side of a TCP connection in a naive reader.
#[derive(Default)]
struct Side {
    next: Option<u32>,
    finished: bool,
}

#[test]
fn conversations_are_whole() {
    for (profile, params) in variants().into_iter().filter(|(profile, _)| *profile != Profile::SynFlood) {
        let mut sides: HashMap<FiveTuple, Side> = HashMap::new();
        for (_, bytes) in synthesise(profile, &params).iter() {
            let headers = headers(bytes);
            let Transport::Tcp(tcp) = headers.transport else { continue };
            let tuple = headers.five_tuple().expect("all is IP");
            let other = sides.entry(tuple.reversed()).or_default().next;
            let own = sides.entry(tuple).or_default();
            let syn = tcp.flags.contains(TcpFlags::SYN);
            assert!(!own.finished || headers.payload_len == 0, "{profile}: data behind a FIN");
            match own.next {
                None => assert!(syn, "{profile}: begins without SYN"),
                Some(next) => assert!(!syn && tcp.seq == next, "{profile}: a hole in the sequence"),
            }
            match other {
                None => assert!(!tcp.flags.contains(TcpFlags::ACK), "{profile}: acknowledges nothing"),
                Some(next) => assert_eq!(tcp.ack, next, "{profile}: acknowledges what was sent"),
            }
            let fin = tcp.flags.contains(TcpFlags::FIN);
            own.next = Some(tcp.seq.wrapping_add(headers.payload_len + u32::from(syn) + u32::from(fin)));
            own.finished |= fin;
        }
        assert!(sides.values().all(|side| side.finished), "{profile}: ends without FIN");
    }
}

#[test]
fn tshark_finds_nothing_to_complain_of() {
    let fields =
        ["tcp.analysis.flags", "_ws.malformed", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status"];
    // Every default profile, and the most different of the others, because tshark takes a second to start.
    let all = variants();
    for (profile, params) in all[..6].iter().chain([&all[6], &all[9], &all[22]]).cloned() {
        let params = Params { packets: 3_000, ..params };
        let frames = synthesise(profile, &params);
        let Some(rows) = tshark(&frames, &[], &fields) else { return };
        for (row, number) in rows.iter().zip(0..) {
            // In a flood a source may repeat a SYN, which tshark reports.
            let analysis = if profile == Profile::SynFlood { "" } else { row[0].as_str() };
            assert_eq!((analysis, row[1].as_str()), ("", ""), "{profile} {params:?}: frame {}", number + 1);
            assert!(!row[2..].concat().contains(['0', '2']) && row[2..].concat().contains('1'), "{profile}: {row:?}");
        }
    }
}

/// Wireshark's completeness of a connection from SYN to FIN: 1 SYN, 2 SYN-ACK, 4 ACK, 8 data, 16 FIN.
#[test]
fn tshark_finds_every_connection_complete() {
    for profile in [Profile::UniversityDc, Profile::Hyperscaler, Profile::SingleFlow] {
        let frames = synthesise(profile, &Params { packets: 20_000, ..Params::default() });
        let Some(rows) = tshark(&frames, &["-Y", "tcp"], &["tcp.stream", "tcp.completeness"]) else { return };
        // The last packet's value counts.
        let streams: HashMap<String, String> = rows.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
        assert!(!streams.is_empty());
        for (stream, completeness) in streams {
            // A conversation of six packets has no data.
            assert!(["31", "23"].contains(&completeness.as_str()), "{profile}: stream {stream}: {completeness}");
        }
    }
}

#[test]
fn floods_come_from_everywhere() {
    let params = Params { packets: 3_000, flows: Some(3_000), ..Params::default() };
    let frames = synthesise(Profile::SynFlood, &params);
    let sources: HashSet<_> = frames.iter().map(|(_, bytes)| headers(bytes).source()).collect();
    assert_eq!(sources.len(), 3_000);
    let by_default = |profile| Synth::new(profile, &Params { packets: 9_000, ..Params::default() }).unwrap().flows();
    assert_eq!((by_default(Profile::SynFlood), by_default(Profile::SingleFlow)), (9_000, 1));
    for (_, bytes) in frames.iter() {
        assert!(matches!(headers(bytes).transport, Transport::Tcp(tcp) if tcp.flags == TcpFlags::SYN));
    }
}

#[test]
fn impossible_traces_are_refused() {
    let refused = |profile, params: Params| Synth::new(profile, &params).err().expect("it is impossible").to_string();
    let small = Params { packets: 100, flows: Some(50), ..Params::default() };
    assert_eq!(refused(Profile::Hyperscaler, small), "50 flows need at least 300 packets, but only 100 are given");
    assert!(refused(Profile::Uniform, Params { skew: Some(f64::NAN), ..Params::default() }).contains("skew"));
    assert!(refused(Profile::Uniform, Params { burst: 0.5, ..Params::default() }).contains("burst"));
    assert!(
        refused(Profile::Uniform, Params { frame_len: Some(FrameLen::Fixed(63)), ..Params::default() }).contains("64")
    );
    let crowded = Params { packets: 100_000, flows: Some(100_000), hosts: Some(1), ..Params::default() };
    assert!(matches!(Synth::new(Profile::Uniform, &crowded), Err(SynthError::Range { name: "hosts", .. })));
    assert_eq!("university-dc".parse(), Ok(Profile::UniversityDc));
    assert!("university".parse::<Profile>().unwrap_err().contains("single-flow"));
}
