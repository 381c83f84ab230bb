//! A network function of ours, as a router.

use std::collections::BTreeMap;

use millrace_testkit::Driver;
use nf::{Function, PortId, Verdict};
use packet::{LinkType, Nanos};

use crate::gather::Gatherer;
use crate::player::Router;
use crate::script::{Scenario, Side};

/// Runs a function that `build` makes from a scenario's settings.
pub(crate) struct Ours<N: Function, F: Fn(&Scenario) -> N> {
    build: F,
    driver: Option<Driver<N>>,
    fragments: Gatherer,
    packets: u64,
}

impl<N: Function, F: Fn(&Scenario) -> N> Ours<N, F> {
    pub(crate) fn new(build: F) -> Self {
        Self { build, driver: None, fragments: Gatherer::new(), packets: 0 }
    }
}

impl<N: Function, F: Fn(&Scenario) -> N> Router for Ours<N, F> {
    fn begin(&mut self, scenario: &Scenario) {
        self.driver = Some(Driver::new((self.build)(scenario)));
        self.fragments = Gatherer::new();
        self.packets = 0;
    }

    fn inject(&mut self, from: Side, packet: &[u8], at_ms: u64) -> Vec<(Side, Vec<u8>)> {
        let driver = self.driver.as_mut().expect("a scenario has begun");
        let mut frame = vec![2; 12];
        frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(packet);
        // Two packets never have the same time, even in the same millisecond.
        self.packets += 1;
        let time = Nanos::from_secs(1_000_000) + Nanos::from_millis(at_ms) + Nanos::from_micros(self.packets);
        let Some(mut whole) = self.fragments.take(time, frame) else { return vec![] };
        let frame = &mut whole.frame;
        let parsed = packet::parse(LinkType::Ethernet, frame, frame.len() as u32, from as u16);
        let port = match driver.packet(time, parsed.as_ref(), frame) {
            Verdict::Drop(_) => return vec![],
            verdict @ (Verdict::Reply(_) | Verdict::Transform { .. } | Verdict::Copy { .. }) => {
                panic!("a {verdict:?} was not asked for")
            }
            Verdict::Forward(port) => port,
            Verdict::Rewrite { port, rewrite } => {
                if let Ok(headers) = &parsed {
                    rewrite.apply(frame, headers);
                }
                port
            }
        };
        whole.leave().into_iter().map(|packet| (side(from, port), packet)).collect()
    }
}

/// Returns the side where a packet from `from` leaves by `port`.
fn side(from: Side, port: PortId) -> Side {
    if port == PortId::BACK { from } else { from.other() }
}

/// Builds a configuration in TOML: the base, then the scenario's settings under our names (`name`), then the settings for our function
/// alone.
pub(crate) fn configuration(
    anyway: &[(&str, &str)],
    scenario: &Scenario,
    name: impl Fn(&str) -> Option<&'static str>,
) -> String {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let mut keys: BTreeMap<String, String> = anyway.iter().map(owned).collect();
    for (key, value) in &scenario.settings {
        let Some(ours) = name(key) else { continue };
        let value = if ours.contains('.') { value.to_string() } else { (*value != 0).to_string() };
        keys.insert(ours.to_owned(), value);
    }
    keys.extend(scenario.ours.iter().cloned());
    keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}
