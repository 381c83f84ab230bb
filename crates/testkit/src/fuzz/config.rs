//! Check of configuration files: any text gives a configuration or an error, and a function with that configuration takes packets at any
//! time without a panic.

use functions::{Catalogued, Visitor};
use nf::{Function, Sharing, Sizing};
use packet::{LinkType, Nanos, TcpFlags};
use serde::de::DeserializeOwned;

use crate::Build;
use crate::Driver;

/// Reads the input as the configuration file of every function.
pub fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    functions::each(&mut Reads(text));
}

struct Reads<'a>(&'a str);

impl Visitor for Reads<'_> {
    fn visit<N: Catalogued>(&mut self) {
        check(self.0, N::from_config);
    }
}

fn check<C: DeserializeOwned, N: Function>(text: &str, build: impl Fn(C) -> N) {
    let read = toml::from_str::<C>(text);
    // Values of a command line come as a table.
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
    assert!(flows.max(flows_v6) > 0 || N::DESCRIPTION.sharing.is_any(), "tables hold something");
    // Shared state allocates its memory at the start, as much as the configuration asks for.
    if matches!(N::DESCRIPTION.sharing, Sharing::Nothing) {
        at_all_times(function);
    }
}

/// Gives the function a few packets at extreme times.
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
