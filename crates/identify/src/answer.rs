//! What callers hand in and get back.

/// Bytes of each side of a TCP stream that identification reads. Callers need not keep more.
pub const LIMIT: usize = 4096;

/// One of the two ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that opened the session.
    Initiator,
    /// The end that was called.
    Responder,
}

/// The beginnings of both sides of a TCP stream, in order and without gaps.
///
/// Longer beginnings of the same stream give the same answer or, after [`Answer::More`], a better one. So the answer does not depend on
/// how the stream was cut into segments. Bytes behind [`LIMIT`] are not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixes<'a> {
    /// The first bytes that the initiator sent.
    pub initiator: &'a [u8],
    /// The first bytes that the responder sent.
    pub responder: &'a [u8],
    /// True if the initiator sends no more bytes that follow these: it has finished, or a gap follows.
    pub initiator_ended: bool,
    /// True if the responder sends no more bytes that follow these.
    pub responder_ended: bool,
}

/// The number of a protocol. [`Signatures::name`](crate::Signatures::name) gives its name.
///
/// The numbers of the protocols in [`protocol`](crate::protocol) are constants. All others hold for one [`Signatures`](crate::Signatures).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u16);

/// How sure an identification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// Nothing speaks against it, and little for it.
    Guess,
    /// The bytes fit the protocol in several places.
    Likely,
    /// The bytes name the protocol, or fit it in so many places that chance is out of question.
    Certain,
}

impl Confidence {
    /// Returns the word for it in signature files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guess => "guess",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

/// What identified a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// A pattern of a signature file.
    Pattern,
    /// A decoder of the protocol's messages.
    Decoder,
    /// Several datagrams that fit each other.
    Datagrams,
}

impl How {
    /// Returns the word for it in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::Decoder => "decoder",
            Self::Datagrams => "several datagrams",
        }
    }
}

/// An identified protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identified {
    /// The protocol.
    pub protocol: Protocol,
    /// How sure it is.
    pub confidence: Confidence,
    /// What identified it.
    pub how: How,
}

/// What is known about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// More bytes or datagrams are needed.
    More,
    /// No protocol fits, whatever follows.
    Unknown,
    /// The protocol, whatever follows.
    Is(Identified),
}

impl Answer {
    /// Returns the protocol, if it is identified.
    #[must_use]
    pub const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Is(identified) => Some(identified.protocol),
            Self::More | Self::Unknown => None,
        }
    }

    /// Returns true if the answer is final.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        !matches!(self, Self::More)
    }
}

/// Where another protocol begins inside a stream: in a tunnel, or after STARTTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// More bytes are needed.
    More,
    /// No other protocol begins within [`LIMIT`].
    Never,
    /// Another protocol begins at these offsets. Identify it by the rest of both sides.
    At {
        /// Offset in the initiator's bytes.
        initiator: usize,
        /// Offset in the responder's bytes.
        responder: usize,
    },
}
