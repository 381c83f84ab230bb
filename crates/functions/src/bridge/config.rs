//! The configuration of `bridge`, checked while it is read.

use alloc::format;
use alloc::string::String;

use serde::Deserialize;

use crate::config::{Count, Timeout};

/// The configuration of [`Bridge`](super::Bridge).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config(pub(super) Fields);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    pub(super) stations: Count<1, 16_777_216>,
    pub(super) ageing: Timeout,
    pub(super) refresh_interval: Count<0, 315_360_000>,
}

impl Default for Fields {
    fn default() -> Self {
        Self { stations: Count::new(16_384), ageing: Timeout::from_secs(300), refresh_interval: Count::new(0) }
    }
}

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let (refresh, ageing) = (fields.refresh_interval.get(), fields.ageing.secs());
        // Otherwise stations would be forgotten while they send.
        if refresh >= u64::from(ageing) {
            return Err(format!("`refresh_interval` ({refresh}) must be less than `ageing` ({ageing})"));
        }
        Ok(Self(fields))
    }
}
