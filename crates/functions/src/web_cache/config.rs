//! The configuration of `web-cache`, and its keys as the catalogue prints them.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};
use serde::Deserialize;

use crate::config::{Count, Timeout};
use crate::streams::{STREAM_KEYS, StreamConfig, StreamKeys};
use crate::tracking::rules::join_keys;

/// The configuration of [`WebCache`](super::WebCache). Defaults and meanings: `docs/web-cache.md`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Port of the store, by which requests go out that it can answer. 65535: such requests are only counted.
    pub store_port: Count<0, 65_535>,
    /// Maximum number of responses in the index.
    pub responses: Count<1, 16_777_216>,
    /// Maximum time that a response stays fresh, whatever it says.
    pub longest: Timeout,
    /// Reassembly and tracking.
    pub streams: StreamConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store_port: Count::new(65_535),
            responses: Count::new(65_536),
            longest: Timeout::from_secs(86_400),
            streams: StreamConfig::default(),
        }
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: [ConfigKey; 3 + size_of::<StreamKeys>() / size_of::<ConfigKey>()] = join_keys(
    &[
        key(
            "store_port",
            "65535",
            "port of the store, by which requests go out that it can answer; 65535: such requests are only counted",
        ),
        key("responses", "65536", "maximum number of responses in the index; 1 to 16777216"),
        key("longest", "86400", "maximum seconds that a response stays fresh, whatever it says"),
    ],
    &STREAM_KEYS,
);

pub(super) const RECIPES: &[Recipe] = &[
    Recipe { cause: Cause::SameBucket, key: "responses", help: "larger: the map has more buckets" },
    Recipe {
        cause: Cause::MapRoomExhausted,
        key: "responses",
        help: "larger than needed: a core then doesn't use up its share",
    },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "responses",
        help: "larger than needed: a core then doesn't use up its share",
    },
];
