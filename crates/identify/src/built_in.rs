//! The built-in signature files, and the patterns that each automaton compiles. The build script reads this module too.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::answer::Side;
use crate::file::{Carrier, Error, Pattern, SignatureFile};

/// The built-in signature files with their names.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("decoders.sig", include_str!("../signatures/decoders.sig")),
    ("web.sig", include_str!("../signatures/web.sig")),
    ("mail.sig", include_str!("../signatures/mail.sig")),
    ("data.sig", include_str!("../signatures/data.sig")),
    ("industry.sig", include_str!("../signatures/industry.sig")),
    ("network.sig", include_str!("../signatures/network.sig")),
    ("media.sig", include_str!("../signatures/media.sig")),
    ("systems.sig", include_str!("../signatures/systems.sig")),
    ("games.sig", include_str!("../signatures/games.sig")),
];

/// Memory of the automaton of a direction, at most.
pub(crate) const SIZE_MAX: usize = 32 << 20;

/// What an automaton reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// What initiators of TCP sessions send.
    Initiator,
    /// What responders of TCP sessions send.
    Responder,
    /// Datagrams of either side.
    Datagrams,
}

impl Reads {
    /// All automata.
    #[allow(dead_code, reason = "the build script and a test ask")]
    pub(crate) const ALL: [Self; 3] = [Self::Initiator, Self::Responder, Self::Datagrams];

    /// Returns true if the automaton has this pattern.
    pub(crate) fn has(self, pattern: &Pattern) -> bool {
        let from = |side| pattern.side.is_none_or(|sent| sent == side);
        match self {
            Self::Initiator => pattern.carrier == Carrier::Tcp && from(Side::Initiator),
            Self::Responder => pattern.carrier == Carrier::Tcp && from(Side::Responder),
            Self::Datagrams => pattern.carrier == Carrier::Udp,
        }
    }
}

/// Reads the built-in files.
pub(crate) fn files() -> Result<Vec<(SignatureFile, &'static str)>, Error> {
    FILES.iter().map(|(name, text)| Ok((SignatureFile::parse(text, name)?, *name))).collect()
}

/// The patterns that an automaton compiles, in the order of their numbers: by priority, the first of equals first.
#[allow(dead_code, reason = "the build script and a test ask")]
pub(crate) fn regexes<'a>(files: &'a [(SignatureFile, &'static str)], reads: Reads) -> Vec<&'a str> {
    let mut patterns: Vec<&Pattern> =
        files.iter().flat_map(|(read, _)| &read.patterns).filter(|pattern| reads.has(pattern)).collect();
    patterns.sort_by_key(|pattern| Reverse(pattern.priority));
    patterns.into_iter().map(|pattern| pattern.regex.as_str()).collect()
}
