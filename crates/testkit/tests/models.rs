//! Compares functions with naive models over random traces with few hosts, few ports, and times around the timeouts.

use functions::{anti_ddos, ddos, heavy_hitter, policer, port_knock, syn_limit};
use millrace_testkit::model::{
    AntiDdosModel, BucketPer, DdosModel, HeavyHitterModel, Model, PolicerModel, PortKnockModel, SynLimitModel, compare,
};
use millrace_testkit::{Build, Driver, Frames};
use nf::Function;
use packet::{Nanos, TcpFlags, protocol};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::DeserializeOwned;

const SECOND: u64 = 1_000_000_000;
const KNOCKS: [u16; 4] = [7000, 8000, 9000, 22];

/// A random packet between few hosts and ports.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    (0..12_u8, any::<bool>(), 0..3_u8, 0..3_u8, 0..4_usize, 0..2_u16, 0..200_usize).prop_map(
        |(kind, v6, src, dst, dst_port, src_port, len)| {
            let host = |number: u8| if v6 { format!("[2001:db8::{number}]") } else { format!("10.0.0.{number}") };
            let (src, dst) = (host(src), host(dst));
            let (bare_src, bare_dst) = (src.trim_matches(['[', ']']), dst.trim_matches(['[', ']']));
            let from = format!("{src}:{}", 40_000 + src_port);
            let to = format!("{dst}:{}", KNOCKS[dst_port]);
            match kind {
                0..6 => Build::tcp(&*from, &*to).flags(TcpFlags::SYN).payload(len).bytes(),
                6 | 7 => Build::udp(&*from, &*to).payload(len).bytes(),
                8 => Build::echo(bare_src, bare_dst, src_port, 1).payload(len).bytes(),
                9 => Build::tcp(&*from, &*to).payload(len).fragment(64, len % 2 == 0).bytes(),
                10 => Build::ip(bare_src, bare_dst, protocol::ESP).payload(len).bytes(),
                _ => Build::arp(),
            }
        },
    )
}

/// A random time since the last packet: zero, quarters of a second, which add up to exact timeouts, or about a timeout.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(0),
        4 => (1..6_u64).prop_map(|quarters| quarters * SECOND / 4),
        1 => 0..3 * SECOND,
        1 => (1..5_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ]
}

fn trace() -> impl Strategy<Value = Frames> {
    vec((gap(), packet()), 1..120).prop_map(|packets| {
        let mut frames = Frames::default();
        let mut now = 17 * SECOND;
        for (gap, bytes) in packets {
            now += gap;
            frames.push(Nanos(now), &bytes);
        }
        frames
    })
}

/// Runs function and model over the trace. Returns the driver with its final state.
fn agree<N: Function>(function: N, model: &mut impl Model, frames: &Frames) -> Result<Driver<N>, TestCaseError> {
    let mut driver = Driver::new(function);
    compare(&mut driver, model, frames).map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
    Ok(driver)
}

fn config<C: DeserializeOwned>(text: &str) -> C {
    toml::from_str(text).expect("the test's own configuration")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn anti_ddos(frames in trace(), percent in 20..95_usize, minimum in 0..6_usize, idle in 1..4_u64) {
        let text = format!("threshold = 0.{percent}\nminimum = {minimum}\nidle_timeout = {idle}");
        let mut model = AntiDdosModel::new(percent, minimum, idle);
        agree(anti_ddos::AntiDdos::new(&config(&text)), &mut model, &frames)?;
    }

    #[test]
    fn ddos(frames in trace(), threshold in 1..8_usize, window in 0..4_u64, idle in 1..4_u64) {
        let text = format!("threshold = {threshold}\nwindow = {window}\nidle_timeout = {idle}");
        agree(ddos::Ddos::new(&config(&text)), &mut DdosModel::new(threshold, window, idle), &frames)?;
    }

    #[test]
    fn heavy_hitter(frames in trace(), idle in 1..4_u64) {
        let text = format!("idle_timeout = {idle}\ntop = 10000");
        let mut model = HeavyHitterModel::new(idle);
        let driver = agree(heavy_hitter::HeavyHitter::new(&config(&text)), &mut model, &frames)?;
        let report = driver.report().expect("it has a report");
        let got: Vec<(Option<u64>, Option<u64>)> = report.rows.iter().map(|row| (row[3].number(), row[4].number())).collect();
        let expected: Vec<(Option<u64>, Option<u64>)> =
            model.largest(driver.now()).iter().map(|(_, packets, bytes)| (Some(*packets), Some(*bytes))).collect();
        let bytes = |rows: &[(Option<u64>, Option<u64>)]| rows.iter().map(|row| row.1).collect::<Vec<_>>();
        prop_assert_eq!(bytes(&got), bytes(&expected));
        let sorted = |mut rows: Vec<(Option<u64>, Option<u64>)>| { rows.sort(); rows };
        prop_assert_eq!(sorted(got), sorted(expected));
    }

    #[test]
    fn policer(frames in trace(), per in 0..3_usize, rate in 8..4_000_u64, burst in 60..600_u64, idle in 1..4_u64) {
        let (name, per) = [
            ("five-tuple", BucketPer::FiveTuple),
            ("source", BucketPer::Source),
            ("destination", BucketPer::Destination),
        ][per];
        let text = format!("per = \"{name}\"\nrate = \"{rate}bit\"\nburst = {burst}\nidle_timeout = {idle}");
        agree(policer::Policer::new(&config(&text)), &mut PolicerModel::new(per, rate, burst), &frames)?;
    }

    #[test]
    fn syn_limit(frames in trace(), rate in 1..5_u64, burst in 1..5_u64, idle in 1..4_u64) {
        let allow = "[\"10.0.0.2/32\", \"2001:db8::2/128\"]";
        let text = format!("rate = {rate}\nburst = {burst}\nallow = {allow}\nidle_timeout = {idle}");
        let allowed = ["10.0.0.2", "2001:db8::2"].map(|address| address.parse().expect("an address"));
        agree(syn_limit::SynLimit::new(config(&text)), &mut SynLimitModel::new(rate, burst, &allowed), &frames)?;
    }

    #[test]
    fn port_knock(frames in trace(), ports in 1..4_usize, ipv6: bool, knock in 1..4_u64, idle in 1..5_u64) {
        let ports = &KNOCKS[..ports];
        let text = format!("ports = {ports:?}\nipv6 = {ipv6}\nknock_timeout = {knock}\nidle_timeout = {idle}");
        agree(port_knock::PortKnock::new(&config(&text)), &mut PortKnockModel::new(ports, ipv6, knock, idle), &frames)?;
    }
}
