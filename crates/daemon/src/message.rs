//! Requests to a run, and its replies. Each is a line of JSON.

use serde::{Deserialize, Serialize};

/// A request to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The counters so far: [`Reply::Stats`].
    Stats {},
    /// The flows now: [`Reply::Flows`].
    Flows {
        /// A filter in the syntax of tcpdump; all flows if omitted.
        #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
        filter: Option<String>,
        /// Number of rows at most.
        rows_max: u32,
    },
    /// The function's report on the packets so far: [`Reply::Report`].
    Report {},
    /// Look for packets that fit, from now on: [`Reply::Done`]. Replaces an earlier trace; it ends by itself if nobody asks for
    /// [`Traced`](Self::Traced) for some seconds.
    Trace {
        /// A filter in the syntax of tcpdump; all packets if omitted.
        #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
        filter: Option<String>,
        /// Number of packets at most, between two requests for them.
        packets_max: u32,
    },
    /// The packets found since the last such request: [`Reply::Traced`].
    Traced {
        /// Also tell the states of each packet's flows, as they are at this request. All cores stop meanwhile.
        #[serde(default)]
        with_state: bool,
    },
    /// The flows in a file, for another run to begin with: [`Reply::Done`].
    Snapshot {
        /// Where the run writes it.
        path: std::path::PathBuf,
    },
    /// Another configuration: [`Reply::Done`].
    Reload {
        /// The name of the file, for errors; its ending tells what it holds.
        name: String,
        /// The text of the file.
        text: String,
    },
    /// The end of the run: packets received before are finished. [`Reply::Done`].
    Stop {},
}

/// The answer of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The counters so far.
    Stats(Stats),
    /// The flows.
    Flows(Flows),
    /// The function's report; none if it makes none.
    Report(Option<Table>),
    /// Packets of a trace.
    Traced(Traced),
    /// It is done; in a sentence.
    Done(String),
    /// It can't be done, and why; in a sentence.
    Error(String),
    /// The system refuses, as when a file can't be written; in a sentence.
    Failed(String),
}

/// Counters of a run. `received = forwarded + replied + dropped`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Name of the function.
    pub function: String,
    /// Name of the engine.
    pub engine: String,
    /// Milliseconds since the start of the run.
    pub uptime_ms: u64,
    /// Counters of each core.
    pub cores: Vec<Core>,
    /// Dropped packets by reason, of all cores; reasons that occurred.
    pub dropped: Vec<Dropped>,
    /// Flows that are in the tables now.
    pub flows: u64,
    /// Flows opened since the start.
    pub flows_opened: u64,
    /// Number of flows that the tables have room for; 0 for a function without flows.
    pub flows_max: u64,
    /// Transactions; none for an engine without them.
    pub transactions: Option<Transactions>,
    /// Counters of each interface; none for a run over a capture or a pipe.
    pub interfaces: Vec<Interface>,
    /// Time from receive to transmit; none if it isn't measured.
    pub latency: Option<Latency>,
    /// Flows with the most bytes in the last seconds, the largest first; an estimate from a sample of packets.
    pub top_flows: Vec<TopFlow>,
    /// The core that the others wait for.
    pub stalled: Option<u64>,
}

/// Counters of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Packets received.
    pub received: u64,
    /// Their bytes on the wire.
    pub received_bytes: u64,
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets answered.
    pub replied: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Nanoseconds without packets to work on, since the start.
    pub idle_ns: u64,
}

/// Transactions since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transactions {
    /// Transactions that committed.
    pub committed: u64,
    /// Attempts that were aborted and run again.
    pub aborted: u64,
}

/// An interface, and what happened there since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Reason why it can't be used at the moment; none if it can.
    pub trouble: Option<String>,
    /// Its counters: name in words of letters and `-`, such as `received` or `sent`, and packets.
    pub counters: Vec<(String, u64)>,
}

/// Times of packets from receive to transmit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of packets that were measured.
    pub packets: u64,
    /// Half of them took at most this long.
    pub p50_ns: u64,
    /// 99 % of them.
    pub p99_ns: u64,
    /// 99.9 % of them.
    pub p999_ns: u64,
    /// The slowest one.
    pub worst_ns: u64,
    /// All of them together, in microseconds: nanoseconds would not fit after some months.
    pub sum_us: u64,
}

/// A large flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopFlow {
    /// Addresses, ports and protocol.
    pub flow: String,
    /// Its packets per second.
    pub packets_per_second: u64,
    /// Its bytes per second on the wire.
    pub bytes_per_second: u64,
}

/// Packets dropped for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Name of the reason.
    pub reason: String,
    /// Number of packets.
    pub packets: u64,
}

/// Flows that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Some of them, in no particular order.
    pub rows: Vec<FlowLine>,
    /// Number of flows that fit.
    pub fit: u64,
    /// Number of all flows.
    pub all: u64,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowLine {
    /// Its key.
    pub key: String,
    /// Its state, for developers of the function.
    pub state: String,
    /// Milliseconds until it expires, unless another packet comes.
    pub expires_in_ms: u64,
}

/// Packets of a trace since the last request for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Packets that fit.
    pub packets: Vec<TracedPacket>,
    /// Number of further packets that fit, and were left out.
    pub left_out: u64,
}

/// A packet of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// Its number in the run.
    pub number: u64,
    /// Its arrival in nanoseconds since 1970.
    pub time_ns: u64,
    /// The interface that it came in by: its name, or its number in a capture.
    pub interface: String,
    /// Its headers as it came, in words.
    pub parsed: String,
    /// Interfaces that it was sent by, also as an answer; none if it was dropped.
    pub sent_by: Vec<String>,
    /// Why it was dropped.
    pub reason: Option<String>,
    /// Its flows, as they are now, if they were asked for.
    pub flows: Vec<FlowLine>,
}

/// A table with a title.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The title.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, as text.
    pub rows: Vec<Vec<String>>,
}

impl Stats {
    /// The counters of all cores together.
    #[must_use]
    pub fn total(&self) -> Core {
        self.cores.iter().fold(Core::default(), |sum, core| Core {
            received: sum.received + core.received,
            received_bytes: sum.received_bytes + core.received_bytes,
            forwarded: sum.forwarded + core.forwarded,
            replied: sum.replied + core.replied,
            dropped: sum.dropped + core.dropped,
            idle_ns: sum.idle_ns + core.idle_ns,
        })
    }
}
