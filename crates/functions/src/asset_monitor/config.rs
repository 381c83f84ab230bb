//! The configuration of `asset-monitor`, checked while it is read, and its recipes.

use alloc::format;
use alloc::string::String;

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe, Sizing};
use packet::Nanos;
use serde::Deserialize;

use crate::config::{Count, FlowCount, Timeout};

/// The configuration of [`AssetMonitor`](super::AssetMonitor).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config(Fields);

/// The keys of the configuration file. Defaults and meanings: `docs/asset-monitor.md`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    hosts: Count<1, 16_777_216>,
    services: Count<1, 16_777_216>,
    asset_timeout: Timeout,
    refresh_interval: Timeout,
    idle_timeout: Timeout,
    flows: FlowCount,
    flows_v6: FlowCount,
    top: Count<0, 1_000_000>,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            hosts: Count::new(65_536),
            services: Count::new(65_536),
            asset_timeout: Timeout::from_secs(86_400),
            refresh_interval: Timeout::from_secs(60),
            idle_timeout: Timeout::from_secs(300),
            flows: FlowCount::new(262_144),
            flows_v6: FlowCount::new(32_768),
            top: Count::new(100),
        }
    }
}

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let (refresh, timeout) = (fields.refresh_interval.secs(), fields.asset_timeout.secs());
        // Otherwise hosts would be forgotten while they send.
        if refresh >= timeout {
            return Err(format!("`refresh_interval` ({refresh}) must be less than `asset_timeout` ({timeout})"));
        }
        Ok(Self(fields))
    }
}

impl Config {
    pub(super) const fn hosts(&self) -> usize {
        self.0.hosts.get() as usize
    }

    pub(super) const fn services(&self) -> usize {
        self.0.services.get() as usize
    }

    pub(super) const fn asset_timeout(&self) -> Nanos {
        self.0.asset_timeout.nanos()
    }

    pub(super) const fn refresh(&self) -> Nanos {
        self.0.refresh_interval.nanos()
    }

    pub(super) const fn idle(&self) -> Nanos {
        self.0.idle_timeout.nanos()
    }

    pub(super) const fn sizing(&self) -> Sizing {
        Sizing { flows: self.0.flows.get() as usize, flows_v6: self.0.flows_v6.get() as usize }
    }

    pub(super) const fn top(&self) -> usize {
        self.0.top.get() as usize
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key("hosts", "65536", "maximum number of hosts; 1 to 16777216"),
    key("services", "65536", "maximum number of services; 1 to 16777216"),
    key("asset_timeout", "86400", "seconds of silence after which a host or a service is forgotten"),
    key(
        "refresh_interval",
        "60",
        "seconds for which a session doesn't note its host again; 1 or more, less than asset_timeout",
    ),
    key("idle_timeout", "300", "seconds of silence after which a session is forgotten"),
    key("flows", "262144", "maximum number of IPv4 sessions"),
    key("flows_v6", "32768", "maximum number of IPv6 sessions"),
    key("top", "100", "number of hosts in the report; 0 to 1000000"),
];

pub(super) const RECIPES: &[Recipe] = &[
    Recipe { cause: Cause::SameKey, key: "refresh_interval", help: "longer: a session notes its hosts less often" },
    Recipe { cause: Cause::SameIndex, key: "refresh_interval", help: "longer: a session notes its hosts less often" },
    Recipe { cause: Cause::SameBucket, key: "hosts", help: "larger: the map has more buckets" },
    Recipe {
        cause: Cause::MapRoomExhausted,
        key: "hosts",
        help: "larger than needed: a core then doesn't use up its share",
    },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "hosts",
        help: "larger than needed: a core then doesn't use up its share",
    },
];

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn hosts_are_not_forgotten_while_they_talk() {
        for (text, says) in [
            (
                "refresh_interval = 60\nasset_timeout = 60",
                "`refresh_interval` (60) must be less than `asset_timeout` (60)",
            ),
            ("hosts = 0", "line 1, column 9"),
            ("host = 1", "unknown field"),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
