//! Classifies requests and responses: what a shared cache may answer, and what it may store and for how long (RFC 9111).

use super::date;
use crate::http::messages::Body;
use crate::http::{self, Answered, Digest, Fields, Request, Response};

/// Why an exchange can't be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Uncacheable {
    Method,
    NoHost,
    RequestNoStore,
    Range,
    Authorization,
    /// A part of the head is missing.
    Incomplete,
    /// The head is longer than can be held.
    Long,
    /// The head is ambiguous or can't be read.
    Invalid,
    /// The response has no known request: none was seen, too many wait, or one was invalid.
    Unmatched,
    Status,
    NoStore,
    Private,
    NoCache,
    Vary,
    NoLifetime,
    Stale,
}

impl Uncacheable {
    pub(super) const ALL: [Self; 16] = [
        Self::Method,
        Self::NoHost,
        Self::RequestNoStore,
        Self::Range,
        Self::Authorization,
        Self::Incomplete,
        Self::Long,
        Self::Invalid,
        Self::Unmatched,
        Self::Status,
        Self::NoStore,
        Self::Private,
        Self::NoCache,
        Self::Vary,
        Self::NoLifetime,
        Self::Stale,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::NoHost => "no host",
            Self::RequestNoStore => "request: no-store",
            Self::Range => "range",
            Self::Authorization => "authorization",
            Self::Incomplete => "incomplete head",
            Self::Long => "long head",
            Self::Invalid => "invalid",
            Self::Unmatched => "no request",
            Self::Status => "status",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::NoCache => "no-cache",
            Self::Vary => "vary",
            Self::NoLifetime => "no lifetime",
            Self::Stale => "stale",
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// Key of the resource; zero if unknown.
    pub name: Digest,
    pub what: CacheAction,
    /// What its method makes of the response.
    pub answered: Answered,
}

/// What a cache does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheAction {
    /// Answer it if possible, and store the response.
    LookUp,
    /// Don't answer, but store the response.
    Reload,
    /// Store the response if that permits it.
    Authorized,
    /// Invalidate the stored response if the request succeeds.
    Unsafe,
    /// Nothing, for this reason.
    Bypass(Uncacheable),
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub keep: Keep,
    /// It may be stored even if the request was authorized.
    pub is_public: bool,
    /// It is a success or a redirection.
    pub succeeds: bool,
    /// `Content-Length`, or zero.
    pub length: u64,
}

/// Whether and how long a response may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// For so many seconds.
    For(u32),
    Not(Uncacheable),
}

/// Reads the head of a request, and says what is behind it.
pub(super) fn ask(head: &[u8]) -> Option<(Ask, Body)> {
    http::request(head, |request| {
        let resource = request.resource();
        let name = resource.map_or(Digest(0), |(host, path)| Digest::of(host, &[path.as_bytes()]));
        let (what, answered) = (what(&request, resource.is_some()), Answered::of(request.method));
        (Ask { name, what, answered }, request.body())
    })
}

fn what(request: &Request<'_>, has_host: bool) -> CacheAction {
    let fields = request.fields;
    if !request.is_valid() {
        return CacheAction::Bypass(Uncacheable::Invalid);
    }
    match request.method {
        "GET" => {}
        "HEAD" | "OPTIONS" | "TRACE" | "CONNECT" => return CacheAction::Bypass(Uncacheable::Method),
        _ if has_host => return CacheAction::Unsafe,
        _ => return CacheAction::Bypass(Uncacheable::Method),
    }
    if !has_host || request.lacks_host() {
        return CacheAction::Bypass(Uncacheable::NoHost);
    }
    let asks = Directives::of(fields);
    if asks.no_store {
        CacheAction::Bypass(Uncacheable::RequestNoStore)
    } else if fields.first("range").is_some() {
        CacheAction::Bypass(Uncacheable::Range)
    } else if fields.first("authorization").is_some() {
        CacheAction::Authorized
    } else if asks.no_cache || asks.max_age == Some(0) || (!asks.are_any && is_pragma(fields)) {
        CacheAction::Reload
    } else {
        CacheAction::LookUp
    }
}

fn is_pragma(fields: Fields<'_>) -> bool {
    fields.members("pragma").any(|member| member.eq_ignore_ascii_case(b"no-cache"))
}

/// Reads the head of a response, and says what is behind it. An interim response is none.
pub(super) fn reply(head: &[u8], answered: Answered) -> Option<(Option<Reply>, Body)> {
    http::response(head, |response| {
        let is_interim = (100..200).contains(&response.status) && response.status != 101;
        ((!is_interim).then(|| read(&response)), response.body(answered))
    })
}

fn read(response: &Response<'_>) -> Reply {
    let fields = response.fields;
    let says = Directives::of(fields);
    let length = fields.first("content-length").and_then(number).unwrap_or_default();
    Reply {
        keep: keep(response, &says),
        is_public: says.public || says.s_maxage.is_some() || says.must_revalidate,
        succeeds: (200..400).contains(&response.status),
        length,
    }
}

fn keep(response: &Response<'_>, says: &Directives) -> Keep {
    let fields = response.fields;
    let why = if !fields.frame_a_body() {
        Uncacheable::Invalid
    } else if matches!(response.status, 101 | 206 | 304) {
        Uncacheable::Status
    } else if says.no_store {
        Uncacheable::NoStore
    } else if says.private {
        Uncacheable::Private
    } else if says.no_cache {
        Uncacheable::NoCache
    } else if fields.first("vary").is_some() {
        Uncacheable::Vary
    } else {
        return match lifetime(fields, says) {
            None => Keep::Not(Uncacheable::NoLifetime),
            Some(0) => Keep::Not(Uncacheable::Stale),
            Some(secs) => Keep::For(u32::try_from(secs).unwrap_or(u32::MAX)),
        };
    };
    Keep::Not(why)
}

/// Returns the remaining lifetime of a response in seconds (RFC 9111, section 4.2.1); `None` without an explicit lifetime.
fn lifetime(fields: Fields<'_>, says: &Directives) -> Option<u64> {
    let lifetime = match (says.s_maxage, says.max_age, fields.first("expires")) {
        (Some(secs), ..) | (None, Some(secs), _) => secs,
        (None, None, Some(expires)) => {
            // An invalid date counts as past.
            let Some(expires) = date::seconds(expires) else { return Some(0) };
            expires.saturating_sub(fields.first("date").and_then(date::seconds)?)
        }
        (None, None, None) => return None,
    };
    let age = fields.first("age").and_then(number).unwrap_or_default();
    Some(lifetime.saturating_sub(age))
}

/// The directives of the `Cache-Control` fields.
#[derive(Clone, Copy, Debug, Default)]
struct Directives {
    are_any: bool,
    no_store: bool,
    no_cache: bool,
    private: bool,
    public: bool,
    must_revalidate: bool,
    /// Zero if the number is invalid: then the response is stale (RFC 9111, section 4.2.1).
    max_age: Option<u64>,
    s_maxage: Option<u64>,
}

impl Directives {
    fn of(fields: Fields<'_>) -> Self {
        let mut all = Self::default();
        for member in fields.members("cache-control") {
            all.are_any = true;
            let at = member.iter().position(|byte| *byte == b'=');
            let (name, value) = at.map_or((member, None), |at| (&member[..at], Some(&member[at + 1..])));
            let secs = value.and_then(number).unwrap_or_default();
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            all.no_store |= is("no-store");
            all.no_cache |= is("no-cache");
            all.private |= is("private");
            all.public |= is("public");
            all.must_revalidate |= is("must-revalidate");
            // The first of several counts.
            if is("max-age") {
                all.max_age = all.max_age.or(Some(secs));
            }
            if is("s-maxage") {
                all.s_maxage = all.s_maxage.or(Some(secs));
            }
        }
        all
    }
}

/// Parses a whole number, perhaps in quotes. Saturates.
fn number(value: &[u8]) -> Option<u64> {
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let add = |sum: u64, digit: &u8| {
        digit.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    };
    if value.is_empty() { None } else { value.iter().try_fold(0, add) }
}
