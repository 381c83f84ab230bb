//! Benchmark of a step of `nat`: `cargo bench -p millrace-functions --bench nat`. Prints the minimum of several runs in nanoseconds a
//! packet, without parsing and rewriting.
#![allow(clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use memory::{Local, LocalTx};
use millrace_functions::nat::{Config, Meta, Nat, State};
use nf::{Context, NetworkFunction, Verdict};
use packet::{
    Fragment, Headers, Ipv4, LinkType, Nanos, Network, Seq, Tcp, TcpFlags, TcpOptions, Transport, Vlans, protocol,
};

const PACKETS: u64 = 2_000_000;
const RUNS: usize = 7;
const BURST: usize = 32;

fn main() {
    let only: Option<u32> = std::env::args().nth(1).and_then(|text| text.parse().ok());
    for flows in [1_000u32, 10_000, 60_000].into_iter().filter(|flows| only.is_none_or(|only| only == *flows)) {
        for (name, transport) in [("udp", udp as fn(u16, u16) -> (u8, Transport)), ("tcp", tcp)] {
            let nat = Nat::new(Config::default());
            let state = nat.shared(&Local::default());
            let packets: Vec<Headers> = (0..flows).flat_map(|flow| pair(&nat, &state, flow, transport)).collect();
            // A coprime stride visits all packets in an unpredictable order.
            let order = (0..packets.len()).map(|n| &packets[n * 7919 % packets.len()]);
            let metas: Vec<Meta> = order.map(|headers| nat.meta(headers, &[]).expect("these are translated")).collect();
            let [mut alone, mut ahead] = [f64::INFINITY; 2];
            for _ in 0..RUNS {
                alone = alone.min(run(&nat, &state, &metas, false));
                ahead = ahead.min(run(&nat, &state, &metas, true));
            }
            println!("{name} {flows:>6} flows, both ways: {alone:5.1} ns a packet, {ahead:5.1} looking a burst ahead");
        }
    }
}

/// Opens a flow. Returns its next packet in each direction.
fn pair(nat: &Nat, state: &State<Local>, flow: u32, transport: fn(u16, u16) -> (u8, Transport)) -> [Headers; 2] {
    let inside = Ipv4Addr::from_bits(0x0a00_0001 + flow % 977);
    let remote = Ipv4Addr::from_bits(0xc633_0001 + flow / 977);
    let port = 1024 + (flow % 64_000) as u16;
    let out = headers(inside, remote, transport(port, 443));
    let meta = nat.meta(&out, &[]).expect("inside to outside is translated");
    let Verdict::Rewrite { rewrite, .. } = step(nat, state, &meta, Nanos::from_secs(1)) else {
        panic!("flow {flow} has no room")
    };
    let external = rewrite.src.expect("packets from inside get a source");
    let std::net::IpAddr::V4(address) = external.address else { panic!("external addresses are IPv4") };
    [out, headers(remote, address, transport(443, external.port))]
}

/// Nanoseconds a packet.
fn run(nat: &Nat, state: &State<Local>, metas: &[Meta], ahead: bool) -> f64 {
    let began = Instant::now();
    let mut steps = 0;
    while steps < PACKETS {
        for burst in metas.chunks(BURST) {
            if ahead {
                burst.iter().for_each(|meta| <Nat as nf::Speed<Nat>>::prefetch(nat, state, meta));
            }
            for meta in burst {
                steps += 1;
                black_box(step(nat, state, meta, Nanos::from_secs(2) + Nanos(steps)));
            }
        }
    }
    began.elapsed().as_nanos() as f64 / steps as f64
}

#[inline(always)]
fn step(nat: &Nat, state: &State<Local>, meta: &Meta, now: Nanos) -> Verdict {
    let mut cx = Context::<Nat, Local>::new(state, LocalTx::default(), now, Seq(0));
    let Ok(verdict) = nat.packet(&mut cx, &mut (), meta);
    verdict
}

fn udp(src_port: u16, dst_port: u16) -> (u8, Transport) {
    (protocol::UDP, Transport::Udp { src_port, dst_port })
}

fn tcp(src_port: u16, dst_port: u16) -> (u8, Transport) {
    let (flags, options) = (TcpFlags::ACK, TcpOptions::default());
    (protocol::TCP, Transport::Tcp(Tcp { src_port, dst_port, seq: 0, ack: 0, flags, window: 0, options }))
}

fn headers(src: Ipv4Addr, dst: Ipv4Addr, (protocol, transport): (u8, Transport)) -> Headers {
    Headers {
        link: LinkType::Ethernet,
        interface: 0,
        macs: None,
        vlans: Vlans::default(),
        ethertype: 0x0800,
        network: Network::V4(Ipv4 { src, dst, ttl: 64, tos: 0, id: 0, total_len: 46, header_len: 20 }),
        protocol,
        fragment: Fragment::Whole,
        transport,
        tunnel: None,
        network_offset: 14,
        transport_offset: 34,
        payload_offset: 42,
        payload_len: 4,
        wire_len: 60,
    }
}
