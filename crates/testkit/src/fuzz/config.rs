//! Configuration files: any text is a configuration or an error, and a function that is so configured takes packets at
//! any time without panicking.

use functions::{
    anti_ddos, app_classifier, asset_monitor, bridge, conntrack, ddos, dns_tunnel, firewall, flow_buffer, heavy_hitter,
    ipsec, load_balancer, nat, policer, port_knock, port_scan, sidejacking, web_cache,
};
use nf::{Function, Sharing, Sizing};
use packet::{LinkType, Nanos, TcpFlags};
use serde::de::DeserializeOwned;

use crate::build::Build;
use crate::driver::Driver;

/// Reads the input as the configuration file of every function.
pub fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    check(text, firewall::Firewall::new);
    check(text, nat::Nat::new);
    check(text, conntrack::Conntrack::new);
    check(text, |config: policer::Config| policer::Policer::new(&config));
    check(text, |config: ddos::Config| ddos::Ddos::new(&config));
    check(text, |config: heavy_hitter::Config| heavy_hitter::HeavyHitter::new(&config));
    check(text, |config: port_knock::Config| port_knock::PortKnock::new(&config));
    check(text, load_balancer::LoadBalancer::new);
    check(text, port_scan::PortScan::new);
    check(text, |config: bridge::Config| bridge::Bridge::new(&config));
    check(text, ipsec::Ipsec::new);
    check(text, |config: anti_ddos::Config| anti_ddos::AntiDdos::new(&config));
    check(text, dns_tunnel::DnsTunnel::new);
    check(text, sidejacking::Sidejacking::new);
    check(text, web_cache::WebCache::new);
    check(text, |config: app_classifier::Config| app_classifier::AppClassifier::new(&config));
    check(text, flow_buffer::FlowBuffer::new);
    check(text, asset_monitor::AssetMonitor::new);
}

fn check<C: DeserializeOwned, N: Function>(text: &str, build: impl Fn(C) -> N) {
    let read = toml::from_str::<C>(text);
    // Values given on a command line come in by a table.
    if let Ok(table) = toml::from_str::<toml::Table>(text) {
        assert_eq!(table.try_into::<C>().is_ok(), read.is_ok(), "{}: a table and its text differ", N::DESCRIPTION.name);
    }
    let config = match read {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let function = build(config);
    let Sizing { flows, flows_v6 } = function.sizing();
    assert!(flows.max(flows_v6) > 0 || matches!(N::DESCRIPTION.sharing, Sharing::Shares(_)), "tables hold something");
    // What is shared takes its memory at the start, as much as the configuration says.
    if matches!(N::DESCRIPTION.sharing, Sharing::Nothing) {
        at_all_times(function);
    }
}

/// A few packets at the ends of time.
fn at_all_times<N: Function>(function: N) {
    let packets = [
        Build::tcp("10.0.0.1:40000", "192.0.2.1:7000").flags(TcpFlags::SYN),
        Build::tcp("192.0.2.1:7000", "10.0.0.1:40000").flags(TcpFlags::SYN.with(TcpFlags::ACK)),
        Build::udp("[2001:db8::1]:1", "[2001:db8::2]:53").payload(1400),
        Build::echo("10.0.0.1", "192.0.2.1", 1, 1),
    ];
    let packets = packets.map(|packet| packet.bytes());
    let mut driver = Driver::new(function);
    for time in [0, 1, 1_000_000_000, 86_400_000_000_000, u64::MAX - 1, u64::MAX] {
        for packet in &packets {
            let _ = driver.frame(Nanos(time), LinkType::Ethernet, packet);
        }
    }
    let _ = driver.report();
}
