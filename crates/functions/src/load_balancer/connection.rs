//! What a packet says of a connection, and how far one is.

use nf::{Flow, Meta, RecordReader, RecordWriter, TUPLE_BYTES};
use packet::{FiveTuple, Headers, Host, Nanos, TcpFlags, Transport, protocol};

/// What a packet contributes: whose connection it belongs to, which way it goes, and what it says of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// From the client to the service, whichever way the packet goes.
    pub(super) tuple: FiveTuple,
    pub(super) service: u16,
    pub(super) way: Way,
    pub(super) signal: Signal,
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Request,
    Answer { backend: u16 },
}

/// What a packet says of the connection; the first that is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    None,
    Rst,
    Syn,
    Fin,
}

impl Signal {
    /// What a packet says; `None` where it is neither TCP nor UDP.
    #[inline]
    pub(super) const fn of(headers: &Headers) -> Option<Self> {
        match headers.transport {
            Transport::Tcp(tcp) if tcp.flags.contains(TcpFlags::RST) => Some(Self::Rst),
            Transport::Tcp(tcp) if tcp.flags.contains(TcpFlags::SYN) => Some(Self::Syn),
            Transport::Tcp(tcp) if tcp.flags.contains(TcpFlags::FIN) => Some(Self::Fin),
            Transport::Tcp(_) | Transport::Udp { .. } => Some(Self::None),
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => None,
        }
    }
}

/// The bit of a record's first byte that is set for answers, behind the signal's.
const ANSWER: u8 = 4;

impl Meta for Passing {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = 1 + 2 + 2 + TUPLE_BYTES;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.tuple
    }

    /// The client, whose connection it is.
    fn source(&self) -> Option<Host> {
        Some(Host::from(self.tuple.source().address))
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let (answer, backend) = match self.way {
            Way::Request => (0, 0),
            Way::Answer { backend } => (ANSWER, backend),
        };
        let fields = RecordWriter::new(record).u8(self.signal as u8 | answer);
        fields.u16(self.service).u16(backend).tuple(&self.tuple).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let (bits, service, backend, tuple) = (fields.u8()?, fields.u16()?, fields.u16()?, fields.tuple()?);
        fields.end()?;
        let signal = match bits & !ANSWER {
            0 => Signal::None,
            1 => Signal::Rst,
            2 => Signal::Syn,
            3 => Signal::Fin,
            _ => return None,
        };
        let way = match (bits & ANSWER, backend) {
            (0, 0) => Way::Request,
            (0, _) => return None,
            (_, backend) => Way::Answer { backend },
        };
        let makes_sense = match tuple.protocol() {
            protocol::TCP => true,
            protocol::UDP => signal == Signal::None,
            _ => false,
        };
        makes_sense.then_some(Self { tuple, service, way, signal })
    }
}

/// What is remembered of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub(super) backend: u16,
    pub(super) phase: Phase,
    /// When it was opened, or opened again.
    pub(super) since: Nanos,
}

impl Flow for Connection {}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client has asked for it.
    Waiting,
    /// The backend has refused it.
    Refused,
    /// The backend has answered; the client has yet to say that it heard.
    Answered,
    /// Both have spoken, or nobody can tell.
    Open,
    /// One of them has said that it ends.
    Closing,
}

impl Phase {
    /// The phase behind a packet.
    pub(super) const fn after(self, signal: Signal, from_backend: bool) -> Self {
        match (self, signal, from_backend) {
            (Self::Waiting, Signal::Rst, true) => Self::Refused,
            (Self::Waiting, _, true) => Self::Answered,
            (Self::Waiting, Signal::Syn, false) => Self::Waiting,
            (Self::Waiting | Self::Answered | Self::Open, Signal::Rst | Signal::Fin, _) => Self::Closing,
            // An answer must have gone another way than this.
            (Self::Waiting, Signal::None, false) => Self::Open,
            (Self::Answered, Signal::None, false) => Self::Open,
            (Self::Answered, _, _) => Self::Answered,
            (phase, _, _) => phase,
        }
    }
}
