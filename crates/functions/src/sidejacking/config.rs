//! The configuration of `sidejacking`, and its keys as the catalogue prints them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};
use serde::Deserialize;

use crate::config::{Count, Timeout};
use crate::streams::{STREAM_KEYS, StreamConfig, StreamKeys};
use crate::tracking::rules::join_keys;

/// The configuration of [`Sidejacking`](super::Sidejacking). Defaults and meanings: `docs/sidejacking.md`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config(pub(super) Fields);

/// The keys of the configuration file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    /// Names of session cookies; a name that ends in `*` is a prefix.
    pub(super) cookies: Vec<String>,
    /// Minimum length of a session cookie's value.
    pub(super) shortest: Count<1, 4096>,
    /// What must differ for a client to be another one.
    pub(super) differs: Differs,
    /// Drop connections with another client's cookie.
    pub(super) block: bool,
    /// Time after which a session that its client hasn't used is forgotten.
    pub(super) session_timeout: Timeout,
    /// Time for which a session that others have used stays in the report after its last use.
    pub(super) remember: Timeout,
    /// Seconds for which a session's use by its client isn't noted again.
    pub(super) refresh_interval: Count<0, 86_400>,
    /// Maximum number of sessions.
    pub(super) sessions: Count<1, 1_048_576>,
    /// Number of sessions in the report.
    pub(super) top: Count<0, 10_000>,
    /// Reassembly and tracking.
    pub(super) streams: StreamConfig,
}

/// What must differ for a client to be another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Differs {
    /// Its address.
    Address,
    /// Its user agent.
    Agent,
    /// One of these.
    Either,
    /// Both of these.
    Both,
}

const COOKIES: [&str; 9] = [
    "PHPSESSID",
    "JSESSIONID",
    "ASP.NET_SessionId",
    "ASPSESSIONID*",
    "sessionid",
    "session_id",
    "connect.sid",
    "sid",
    "CFTOKEN",
];

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let (refresh, timeout) = (fields.refresh_interval.get(), fields.session_timeout.secs());
        // Otherwise a session would be forgotten while its client uses it, and the next client would own it.
        if refresh >= u64::from(timeout) {
            return Err(format!("`refresh_interval` ({refresh}) must be less than `session_timeout` ({timeout})"));
        }
        let is_name = |cookie: &&String| {
            let name = cookie.strip_suffix('*').unwrap_or(cookie);
            !name.is_empty() && !name.contains(['*', '=', ';']) && name.trim() == name
        };
        match fields.cookies.iter().find(|cookie| !is_name(cookie)) {
            Some(cookie) => Err(format!(
                "`cookies` has {cookie:?}, which can't be a cookie's name: write a name, or a prefix of one followed by *"
            )),
            None => Ok(Self(fields)),
        }
    }
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            cookies: COOKIES.map(String::from).into(),
            shortest: Count::new(8),
            differs: Differs::Address,
            block: false,
            session_timeout: Timeout::from_secs(1_800),
            remember: Timeout::from_secs(86_400),
            refresh_interval: Count::new(1),
            sessions: Count::new(16_384),
            top: Count::new(10),
            streams: StreamConfig::default(),
        }
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: [ConfigKey; 9 + size_of::<StreamKeys>() / size_of::<ConfigKey>()] = join_keys(
    &[
        key(
            "cookies",
            "[\"PHPSESSID\", \"JSESSIONID\", \"ASP.NET_SessionId\", \"ASPSESSIONID*\", \"sessionid\", \"session_id\", \
         \"connect.sid\", \"sid\", \"CFTOKEN\"]",
            "names of session cookies, case ignored; a name that ends in * is a prefix",
        ),
        key("shortest", "8", "minimum length of a session cookie's value; 1 to 4096"),
        key(
            "differs",
            "\"address\"",
            "what must differ for a client to be another one: address, agent, either or both",
        ),
        key("block", "false", "drop connections with another client's cookie"),
        key("session_timeout", "1800", "seconds after which a session that its client hasn't used is forgotten"),
        key(
            "remember",
            "86400",
            "seconds for which a session that others have used stays in the report after its last use",
        ),
        key(
            "refresh_interval",
            "1",
            "seconds for which a session's use by its client isn't noted again; 0 to 86400, less than session_timeout",
        ),
        key("sessions", "16384", "maximum number of sessions; 1 to 1048576"),
        key("top", "10", "number of sessions in the report, most requests by others first; 0 to 10000"),
    ],
    &STREAM_KEYS,
);

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        cause: Cause::SameElement,
        key: "refresh_interval",
        help: "longer: a session in use is rewritten less often, and forgotten that much earlier",
    },
    Recipe { cause: Cause::SameIndex, key: "refresh_interval", help: "longer, as above" },
    Recipe { cause: Cause::SameBucket, key: "sessions", help: "larger: the map has more buckets" },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "sessions",
        help: "larger than needed: a core then doesn't use up its share",
    },
];
