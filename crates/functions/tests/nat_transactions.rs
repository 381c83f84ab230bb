//! `nat` under transactions: four threads share its state in transactional memory. A replay in commit order must give the same
//! verdicts.

use std::net::Ipv4Addr;
use std::sync::{Barrier, Mutex};

use memory::Transactional;
use memory::transactional::{CommitPosition, CoreHandle};
use millrace_functions::nat::{Config, Meta, Nat, State};
use nf::{Context, NetworkFunction, Verdict};
use packet::{
    Fragment, Headers, Ipv4, LinkType, Nanos, Network, Seq, Tcp, TcpFlags, TcpOptions, Transport, Vlans, protocol,
};

const SMALL: &str = "ports = \"5000-5015\"\nmappings = 24\nsessions = 32\nfiltering = \"address-dependent\"";

/// A seeded random number generator (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)) % bound
    }
}

/// A packet between few endpoints, so that threads conflict: outward, inward or hairpinned.
fn packet(draw: &mut Draw) -> Headers {
    let inside = (Ipv4Addr::new(10, 0, 0, 1 + draw.below(3) as u8), 5000 + draw.below(6) as u16);
    let external = (Ipv4Addr::new(203, 0, 113, 1), 5000 + draw.below(16) as u16);
    let remote = (Ipv4Addr::new(198, 51, 100, 1 + draw.below(2) as u8), 53 + draw.below(2) as u16);
    let ((src, src_port), (dst, dst_port)) = match draw.below(8) {
        0..=3 => (inside, remote),
        4..=6 => (remote, external),
        _ => (inside, external),
    };
    let flags = [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::FIN.with(TcpFlags::ACK), TcpFlags::RST];
    let flags = flags[draw.below(4) as usize];
    let options = TcpOptions::default();
    let (protocol, transport) = match draw.below(2) {
        0 => (protocol::UDP, Transport::Udp { src_port, dst_port }),
        _ => (protocol::TCP, Transport::Tcp(Tcp { src_port, dst_port, seq: 0, ack: 0, flags, window: 0, options })),
    };
    Headers {
        link: LinkType::RawIp,
        interface: 0,
        macs: None,
        vlans: Vlans::default(),
        ethertype: 0x0800,
        network: Network::V4(Ipv4 { src, dst, ttl: 64, tos: 0, id: 0, total_len: 40, header_len: 20 }),
        protocol,
        fragment: Fragment::Whole,
        transport,
        tunnel: None,
        network_offset: 0,
        transport_offset: 20,
        payload_offset: 40,
        payload_len: 0,
        wire_len: 40,
    }
}

/// Repeats a step until it commits.
fn step(
    nat: &Nat,
    handle: &mut CoreHandle,
    memory: &Transactional,
    state: &State<Transactional>,
    meta: &Meta,
    now: Nanos,
) -> (CommitPosition, Verdict) {
    for aborts in 0.. {
        let mut log = handle.log(memory);
        let mut cx = Context::<Nat, Transactional>::new(state, log.attempt(aborts), now, Seq(0));
        let verdict = nat.packet(&mut cx, &mut (), meta);
        // Lets other threads run, even on few cores.
        std::thread::yield_now();
        if let Ok(verdict) = verdict
            && let Ok(place) = cx.tx.commit()
        {
            return (place, verdict);
        }
    }
    unreachable!("an irrevocable transaction can't fail")
}

#[test]
fn four_threads_translate_as_one_would_have_in_the_order_of_commits() {
    let nat = Nat::new(toml::from_str::<Config>(SMALL).expect("the configuration is right"));
    let memory = Transactional::new(4, 3);
    let together = nat.shared(&memory);
    let (log, start) = (Mutex::new(Vec::new()), Barrier::new(4));
    std::thread::scope(|scope| {
        for mut handle in memory.core_handles() {
            let (nat, memory, together, log, start) = (&nat, &memory, &together, &log, &start);
            scope.spawn(move || {
                let mut draw = Draw(handle.core() as u64);
                start.wait();
                for n in 0..400 {
                    // Six seconds apart, so that sessions of all kinds expire while others live.
                    let now = Nanos::from_secs(1000 + 6 * n);
                    let Some(meta) = nat.meta(&packet(&mut draw), &[]) else { continue };
                    let (place, verdict) = step(nat, &mut handle, memory, together, &meta, now);
                    log.lock().expect("no thread panics").push(((place, handle.core(), n), meta, now, verdict));
                }
            });
        }
    });
    let mut log = log.into_inner().expect("no thread panics");
    log.sort_by_key(|&(order, ..)| order);
    let forwarded = log.iter().filter(|(.., verdict)| matches!(verdict, Verdict::Rewrite { .. })).count();
    assert!(forwarded > log.len() / 4 && forwarded < log.len(), "{forwarded} of {} forwarded", log.len());

    let fresh = Transactional::new(4, 3);
    let alone = nat.shared(&fresh);
    let mut handles = fresh.core_handles();
    for (order, meta, now, verdict) in log {
        let replayed = step(&nat, &mut handles[order.1], &fresh, &alone, &meta, now).1;
        assert_eq!(replayed, verdict, "{meta:?} at {order:?}");
    }
}
