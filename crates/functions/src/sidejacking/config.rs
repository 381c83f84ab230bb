//! The detector's configuration file, and its keys as the catalogue prints them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};
use serde::Deserialize;

use crate::config::{Count, Flows, Timeout};

/// How the detector is set up. Defaults and meanings: `docs/sidejacking.md`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config(pub(super) Fields);

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    /// The names of session cookies; one that ends in `*` is a beginning.
    pub(super) cookies: Vec<String>,
    /// Values shorter than this name no session.
    pub(super) shortest: Count<1, 4096>,
    /// In what a client has to differ from the one that a session belongs to.
    pub(super) differs: Differs,
    /// Whether connections with somebody else's cookie are dropped.
    pub(super) block: bool,
    /// A session that its client hasn't used for so long is forgotten.
    pub(super) session_timeout: Timeout,
    pub(super) remember: Timeout,
    /// Seconds for which the use of a session by its client isn't noted again.
    pub(super) refresh_interval: Count<0, 86_400>,
    /// Sessions that are remembered.
    pub(super) sessions: Count<1, 1_048_576>,
    /// A connection that is silent for so long is forgotten.
    pub(super) idle_timeout: Timeout,
    /// IPv4 connections that are remembered.
    pub(super) flows: Flows,
    /// IPv6 connections that are remembered.
    pub(super) flows_v6: Flows,
    /// How many sessions the report lists.
    pub(super) top: Count<0, 10_000>,
}

/// What makes another client of a client.
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
        // Otherwise a session would be forgotten while its client uses it, and belong to whoever comes next.
        if refresh >= u64::from(timeout) {
            return Err(format!("`refresh_interval` ({refresh}) has to be less than `session_timeout` ({timeout})"));
        }
        let is_name = |cookie: &&String| {
            let name = cookie.strip_suffix('*').unwrap_or(cookie);
            !name.is_empty() && !name.contains(['*', '=', ';']) && name.trim() == name
        };
        match fields.cookies.iter().find(|cookie| !is_name(cookie)) {
            Some(cookie) => Err(format!(
                "`cookies` has {cookie:?}, which no cookie's name can be; a name, or a name's beginning and then one *"
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
            idle_timeout: Timeout::from_secs(300),
            flows: Count::new(65_536),
            flows_v6: Count::new(8_192),
            top: Count::new(10),
        }
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key(
        "cookies",
        "[\"PHPSESSID\", \"JSESSIONID\", \"ASP.NET_SessionId\", \"ASPSESSIONID*\", \"sessionid\", \"session_id\", \
         \"connect.sid\", \"sid\", \"CFTOKEN\"]",
        "the names of session cookies, in letters of either case; one that ends in * is a beginning",
    ),
    key("shortest", "8", "values shorter than this name no session; 1 to 4096"),
    key(
        "differs",
        "\"address\"",
        "what differs in a client that a session doesn't belong to: address, agent, either or both",
    ),
    key("block", "false", "whether connections with somebody else's cookie are dropped"),
    key("session_timeout", "1800", "seconds after which a session that its client hasn't used is forgotten"),
    key(
        "remember",
        "86400",
        "seconds for which a session that others have used is named after that or its client's use",
    ),
    key(
        "refresh_interval",
        "1",
        "seconds for which a session's use by its client isn't noted again; 0 to 86400, less than session_timeout",
    ),
    key("sessions", "16384", "sessions that are remembered; 1 to 1048576"),
    key("idle_timeout", "300", "seconds of silence after which a connection is forgotten"),
    key("flows", "65536", "IPv4 connections that are remembered"),
    key("flows_v6", "8192", "IPv6 connections that are remembered"),
    key("top", "10", "how many sessions the report lists, those with most foreign requests first; 0 to 10000"),
];

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        cause: Cause::SameElement,
        key: "refresh_interval",
        help: "longer: a session in use is written again only after so long, and forgotten by as much sooner",
    },
    Recipe { cause: Cause::SameIndex, key: "refresh_interval", help: "longer, as above" },
    Recipe { cause: Cause::SameBucket, key: "sessions", help: "more of them: the map has as many more buckets" },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "sessions",
        help: "more than there are, so that no core runs out of its share",
    },
];
