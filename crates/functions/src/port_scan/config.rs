//! The configuration of `port-scan`, checked while it is read.

use alloc::format;
use alloc::string::String;

use nf::{ConfigKey, Sizing};
use packet::Nanos;
use serde::Deserialize;

use super::doors::Limits;
use super::walk::Walk;
use crate::config::{Count, FlowCount, Share, Timeout};

/// The configuration of [`PortScan`](super::PortScan).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config(Fields);

/// The keys of the configuration file. Defaults and meanings: `docs/port-scan.md`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    theta0: Share,
    theta1: Share,
    alpha: Share,
    beta: Share,
    answer_timeout: Timeout,
    ports: Count<1, 65_535>,
    ports_within: Timeout,
    block: bool,
    idle_timeout: Timeout,
    remember: Timeout,
    flows: FlowCount,
    flows_v6: FlowCount,
    top: Count<0, 10_000>,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            theta0: Share::new(0.8),
            theta1: Share::new(0.2),
            alpha: Share::new(0.01),
            beta: Share::new(0.99),
            answer_timeout: Timeout::from_secs(3),
            ports: Count::new(15),
            ports_within: Timeout::from_secs(300),
            block: true,
            idle_timeout: Timeout::from_secs(1_800),
            remember: Timeout::from_secs(86_400),
            flows: FlowCount::new(131_072),
            flows_v6: FlowCount::new(16_384),
            top: Count::new(10),
        }
    }
}

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let Fields { theta0, theta1, alpha, beta, .. } = &fields;
        let [theta0, theta1, alpha, beta] = [theta0, theta1, alpha, beta].map(|share| share.get());
        // Otherwise the walk would go in the wrong direction, or end before it begins.
        if theta1 >= theta0 {
            return Err(format!("`theta1` ({theta1}) must be less than `theta0` ({theta0})"));
        }
        if alpha >= beta {
            return Err(format!("`alpha` ({alpha}) must be less than `beta` ({beta})"));
        }
        Ok(Self(fields))
    }
}

impl Config {
    /// The walk's parameters: the paper's equations 1, 4 and 5.
    pub(super) fn walk(&self) -> Walk {
        let Fields { theta0, theta1, alpha, beta, answer_timeout, ports, ports_within, .. } = &self.0;
        let [theta0, theta1, alpha, beta] = [theta0, theta1, alpha, beta].map(|share| share.get());
        Walk {
            success: theta1 / theta0,
            failure: (1.0 - theta1) / (1.0 - theta0),
            harmless: (1.0 - beta) / (1.0 - alpha),
            scans: beta / alpha,
            limits: Limits {
                ports: ports.get() as u16,
                within: ports_within.nanos(),
                answer_timeout: answer_timeout.nanos(),
            },
        }
    }

    pub(super) const fn sizing(&self) -> Sizing {
        Sizing { flows: self.0.flows.get() as usize, flows_v6: self.0.flows_v6.get() as usize }
    }

    pub(super) const fn idle(&self) -> Nanos {
        self.0.idle_timeout.nanos()
    }

    /// Time after its last packet for which a scanner stays in the report.
    pub(super) fn remembered(&self) -> Nanos {
        self.0.remember.nanos().max(self.idle())
    }

    pub(super) const fn blocks(&self) -> bool {
        self.0.block
    }

    pub(super) const fn top(&self) -> usize {
        self.0.top.get() as usize
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key("theta0", "0.8", "probability that a first contact of a harmless host succeeds; above 0, below 1"),
    key("theta1", "0.2", "probability that a first contact of a scanner succeeds; less than theta0"),
    key("alpha", "0.01", "accepted probability that a harmless host is taken for a scanner"),
    key("beta", "0.99", "wanted probability that a scanner is found; more than alpha"),
    key("answer_timeout", "3", "seconds after which an unanswered attempt has failed"),
    key("ports", "15", "number of failed ports of one host that make a port scan; 1 to 65535"),
    key("ports_within", "300", "seconds within which those ports must fail"),
    key("block", "true", "drop what a scanner sends; if false, scanners are only reported"),
    key("idle_timeout", "1800", "seconds of silence after which a host is forgotten"),
    key(
        "remember",
        "86400",
        "seconds of silence after which a scanner leaves the report; it is blocked for idle_timeout at most",
    ),
    key("flows", "131072", "maximum number of IPv4 hosts"),
    key("flows_v6", "16384", "maximum number of IPv6 hosts"),
    key("top", "10", "number of scanners in the report; 0 to 10000"),
];

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_walk_that_goes_nowhere_is_refused() {
        for (text, says) in [
            ("theta0 = 0.2", "`theta1` (0.2) must be less than `theta0` (0.2)"),
            ("alpha = 0.5\nbeta = 0.4", "`alpha` (0.5) must be less than `beta` (0.4)"),
            ("\nbeta = 1", "line 2, column 8"),
            ("theta1 = 0.0", "above 0 and below 1"),
            ("theta = 0.5", "unknown field"),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_defaults_are_the_papers() {
        let walk = Config::default().walk();
        let near = |got: f64, right: f64| assert!((got / right - 1.0).abs() < 1e-9, "{got} is not {right}");
        near(walk.success, 0.25);
        near(walk.failure, 4.0);
        near(walk.scans, 99.0);
        near(walk.harmless, 1.0 / 99.0);
    }
}
