//! The configuration of `app-classifier`, checked while it is read.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use nf::{ConfigKey, Sizing};
use packet::Nanos;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use super::classifier::Classifier;
use super::signatures::Signatures;
use super::{ClassSet, UNKNOWN};
use crate::config::{Count, FlowCount, Timeout};

/// The configuration of [`AppClassifier`](super::AppClassifier). The classifier names the applications.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "C: Classifier")]
pub struct Config<C: Classifier = Signatures> {
    /// Applications to drop; `unknown` for sessions that could not be identified.
    drop: Vec<Named<C>>,
    /// Number of packets with payload after which an unknown session stays unknown.
    give_up: Count<1, 255>,
    /// Silence after which a session is forgotten.
    idle_timeout: Timeout,
    /// Maximum number of IPv4 sessions.
    flows: FlowCount,
    /// Maximum number of IPv6 sessions.
    flows_v6: FlowCount,
}

impl<C: Classifier> Default for Config<C> {
    fn default() -> Self {
        Self {
            drop: Vec::new(),
            give_up: Count::new(16),
            idle_timeout: Timeout::from_secs(300),
            flows: FlowCount::new(1_048_576),
            flows_v6: FlowCount::new(65_536),
        }
    }
}

impl<C: Classifier> Config<C> {
    pub(super) fn drops(&self) -> ClassSet {
        self.drop.iter().fold(ClassSet::default(), |set, named| set.with(named.class))
    }

    pub(super) const fn give_up(&self) -> u8 {
        self.give_up.get() as u8
    }

    pub(super) const fn idle(&self) -> Nanos {
        self.idle_timeout.nanos()
    }

    pub(super) const fn sizing(&self) -> Sizing {
        Sizing { flows: self.flows.get() as usize, flows_v6: self.flows_v6.get() as usize }
    }
}

/// An application by its classifier's name, or `unknown`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Named<C> {
    /// 0 for `unknown`.
    class: u8,
    of: PhantomData<fn() -> C>,
}

impl<'de, C: Classifier> Deserialize<'de> for Named<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name(PhantomData))
    }
}

/// Parses a name while it is being read, so that the error points at the name and not at the list.
struct Name<C>(PhantomData<fn() -> C>);

impl<C: Classifier> Visitor<'_> for Name<C> {
    type Value = Named<C>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an application's name")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Named<C>, E> {
        if text == UNKNOWN {
            return Ok(Named { class: 0, of: PhantomData });
        }
        let at = C::APPLICATIONS.iter().position(|label| label.name == text).ok_or_else(|| {
            let names: Vec<&str> = C::APPLICATIONS.iter().map(|label| label.name).collect();
            let names: String = names.join(", ");
            E::custom(format!("`{text}` is not a known application: {names}, {UNKNOWN}"))
        })?;
        Ok(Named { class: at as u8 + 1, of: PhantomData })
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key("drop", "[]", "names of the applications to drop; \"unknown\" for sessions that could not be identified"),
    key("give_up", "16", "number of packets with payload after which an unknown session stays unknown; 1 to 255"),
    key("idle_timeout", "300", "seconds of silence after which a session is forgotten"),
    key("flows", "1048576", "maximum number of IPv4 sessions"),
    key("flows_v6", "65536", "maximum number of IPv6 sessions"),
];

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_name_that_is_none_is_refused_where_it_stands() {
        for (text, at, says) in [
            ("drop = [\n  \"tls\",\n  \"htpt\",\n]", "line 3, column 3", "http"),
            ("drop = \"tls\"", "line 1, column 8", "sequence"),
            ("give_up = 0", "line 1, column 11", "from 1 to 255"),
            ("port = 80", "line 1, column 1", "unknown field"),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(error.contains(at) && error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_the_classifiers() {
        let config: Config = toml::from_str("drop = [\"unknown\", \"tls\", \"rtp\"]").unwrap();
        let drops = config.drops();
        let dropped: Vec<_> = (0..=u8::MAX).filter(|class| drops.has(*class)).collect();
        assert_eq!(dropped, [0, 1, Signatures::APPLICATIONS.len() as u8]);
    }
}
