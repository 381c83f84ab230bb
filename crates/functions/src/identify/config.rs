//! The configuration of `identify`, checked while it is read.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use identify::Signatures;
use nf::ConfigKey;
use serde::Deserialize;

use super::UNKNOWN;
use crate::streams::{STREAM_KEYS, StreamConfig, StreamKeys};
use crate::tracking::rules::join_keys;

/// The configuration of [`Identify`](super::Identify).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config(Fields);

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    /// Applications to drop.
    drop: Vec<String>,
    /// A text with further signatures.
    signatures: String,
    /// Reassembly and tracking.
    streams: StreamConfig,
}

/// The name of a user's signatures in errors.
const SIGNATURES: &str = "signatures";

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        if !fields.signatures.is_empty() {
            Signatures::check(&fields.signatures, SIGNATURES).map_err(|error| error.to_string())?;
        }
        let config = Self(fields);
        if !config.0.drop.is_empty() {
            let signatures = config.signatures();
            let is_known = |name: &&String| *name == UNKNOWN || signatures.find(name).is_some();
            if let Some(name) = config.0.drop.iter().find(|name| !is_known(name)) {
                return Err(format!(
                    "`{name}` in `drop` is not a known application; `millrace identify --list` prints them"
                ));
            }
        }
        Ok(config)
    }
}

impl Config {
    /// The configuration with a user's signatures besides.
    ///
    /// # Errors
    /// Where the text is wrong, with line and column; `file` names it.
    pub fn with_signatures(text: String, file: &str, streams: StreamConfig) -> Result<Self, identify::Error> {
        Signatures::check(&text, file)?;
        Ok(Self(Fields { drop: Vec::new(), signatures: text, streams }))
    }

    pub(super) fn drops(&self) -> &[String] {
        &self.0.drop
    }

    /// The built-in signatures with those of the user.
    #[must_use]
    pub fn signatures(&self) -> Arc<Signatures> {
        if self.0.signatures.is_empty() {
            return Signatures::shared();
        }
        // They were checked when they were read.
        Signatures::built_in_and(&self.0.signatures, SIGNATURES).map_or_else(|_| Signatures::shared(), Arc::new)
    }

    /// The settings of reassembly and tracking.
    #[must_use]
    pub const fn streams(&self) -> &StreamConfig {
        &self.0.streams
    }
}

pub(crate) const KEYS: [ConfigKey; 2 + size_of::<StreamKeys>() / size_of::<ConfigKey>()] = join_keys(
    &[
        ConfigKey {
            name: "drop",
            default: "[]",
            help: "applications whose sessions are dropped, by name; \"unknown\" for sessions that no signature fits",
        },
        ConfigKey {
            name: "signatures",
            default: "\"\"",
            help: "further signatures, as a text in the form of a signature file",
        },
    ],
    &STREAM_KEYS,
);
