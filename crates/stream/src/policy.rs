//! Which copy of a byte counts where two segments overlap: [`Policy`].

/// Which of two copies of bytes a receiver takes, if neither was handed to the application yet.
///
/// Source: Shankar and Paxson, "Active Mapping" (IEEE S&P 2003), extended by Novak and Sturges, "Target-Based TCP Stream Reassembly" (2007);
/// [`Linux`](Self::Linux) was also asked of the running kernel. It differs where a kernel merges a segment with the one directly before it, if
/// their memory allows it: both then count as one that begins earlier. Here segments count as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The copy of the segment that begins earlier; of two that begin together, that of the longer one; of equal ones, the first.
    #[default]
    Linux,
    /// As [`Linux`](Self::Linux), but of two equal segments the second (Linux 2.2 and before).
    OldLinux,
    /// The copy of the segment that begins earlier; of two that begin together, the first (BSD, macOS, AIX).
    Bsd,
    /// The first copy (Windows).
    First,
    /// The second copy.
    Last,
    /// The copy of the segment that ends later; of two that end together, that of the longer one; of equal ones, the second (Solaris).
    Solaris,
}

/// The sequence numbers of a segment's bytes: the first, and the one behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begin: u32,
    pub(crate) end: u32,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 6] = [Self::Linux, Self::OldLinux, Self::Bsd, Self::First, Self::Last, Self::Solaris];

    /// The policy's name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::OldLinux => "old-linux",
            Self::Bsd => "bsd",
            Self::First => "first",
            Self::Last => "last",
            Self::Solaris => "solaris",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// True if the bytes of `new` count where it overlaps `old`, which came before.
    pub(crate) const fn takes_new(self, old: Span, new: Span) -> bool {
        // Differences of sequence numbers: positive if the new one is behind.
        let begins = new.begin.wrapping_sub(old.begin) as i32;
        let ends = new.end.wrapping_sub(old.end) as i32;
        match self {
            Self::Linux => begins < 0 || begins == 0 && ends > 0,
            Self::OldLinux => begins < 0 || begins == 0 && ends >= 0,
            Self::Bsd => begins < 0,
            Self::First => false,
            Self::Last => true,
            Self::Solaris => ends > 0 || ends == 0 && begins <= 0,
        }
    }
}
