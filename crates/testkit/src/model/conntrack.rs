//! The model of `conntrack`.

use packet::{Headers, Nanos, Seq};
use serde::Deserialize;

use super::tracking::{Judgement, Settings, Tracked, Tracking};
use super::{Fate, Model};

/// The tracker of `tracking`, which drops invalid packets.
#[derive(Clone, Debug)]
pub struct ConntrackModel {
    forwards_invalid: bool,
    tracking: Tracking,
}

/// The keys of the configuration file that the tracker doesn't use.
#[derive(Deserialize)]
struct Own {
    #[serde(default)]
    invalid: Invalid,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Invalid {
    #[default]
    Drop,
    Forward,
}

impl ConntrackModel {
    /// Creates a model from the text of a configuration file.
    ///
    /// # Panics
    /// If the text is invalid.
    #[must_use]
    pub fn new(config: &str) -> Self {
        let Own { invalid } = toml::from_str(config).expect("a configuration of conntrack");
        let settings: Settings = toml::from_str(config).expect("a configuration of conntrack");
        Self { forwards_invalid: matches!(invalid, Invalid::Forward), tracking: Tracking::new(settings) }
    }

    /// Returns the live connections, sorted by key.
    #[must_use]
    pub fn connections(&self, now: Nanos) -> Vec<Tracked> {
        self.tracking.connections(now)
    }
}

impl Model for ConntrackModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        match self.tracking.packet(now, headers, true) {
            Judgement::NonIp | Judgement::Unreadable => Fate::FORWARD,
            Judgement::Exempt | Judgement::Passes | Judgement::Related => Fate::FORWARD,
            Judgement::Invalid { .. } if self.forwards_invalid => Fate::FORWARD,
            Judgement::Invalid { cause, known: _ } => Fate::Drop(cause),
            Judgement::Full => Fate::Drop("table-full"),
            Judgement::Refused => unreachable!("everybody may open"),
        }
    }
}
