//! Limits the packets of each source address in a time window (the DDoS mitigator of state-compute replication, table 1).
//! Behaviour and choices: `docs/ddos.md`.

use alloc::string::{String, ToString};
use alloc::vec;

use memory::Memory;
use nf::{
    ConfigKey, Context, Description, Flow, FlowList, HOST_BYTES, Meta, NetworkFunction, Opened, PacketSet, Reason,
    RecordReader, RecordWriter, Report, Sharing, Sizing, Speed, Step, Sum, Verdict,
};
use packet::{Headers, Host, Nanos};
use serde::Deserialize;

use crate::config::{Count, FlowCount, Timeout};
use crate::list::Catalogued;
use crate::top::heaviest;

/// The `ddos` function.
#[derive(Clone, Debug)]
pub struct Ddos {
    sizing: Sizing,
    threshold: u64,
    window: Nanos,
    idle: Nanos,
    remembered: Nanos,
    top: usize,
}

/// The configuration of [`Ddos`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Packets that a source may send in a window.
    pub threshold: Count<1, { u32::MAX as u64 }>,
    /// Length of the window in seconds; 0 for one that never ends.
    pub window: Count<0, 86_400>,
    /// Silence after which a source is forgotten, but not inside its window.
    pub idle_timeout: Timeout,
    /// Time after its last packet for which a source that exceeded the threshold stays in the report.
    pub remember: Timeout,
    /// Maximum number of IPv4 sources.
    pub flows: FlowCount,
    /// Maximum number of IPv6 sources.
    pub flows_v6: FlowCount,
    /// Number of sources in the report.
    pub top: Count<0, 10_000>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threshold: Count::new(100_000),
            window: Count::new(1),
            idle_timeout: Timeout::from_secs(60),
            remember: Timeout::from_secs(86_400),
            flows: Count::new(1_048_576),
            flows_v6: Count::new(65_536),
            top: Count::new(10),
        }
    }
}

/// The metadata of a packet: its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent(Host);

impl Meta for Sent {
    type Key = Host;

    const RECORD_BYTES: usize = HOST_BYTES;

    #[inline]
    fn key(&self) -> Host {
        self.0
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).host(&self.0).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let sent = Self(fields.host()?);
        fields.end().map(|()| sent)
    }
}

/// The state of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// End of the source's window: the first time outside it. If windows never end, the time from which the source starts from zero.
    window_end: Nanos,
    /// Packets in the window, dropped ones included.
    packets: u64,
    /// Packets dropped since the source became known.
    dropped: u64,
}

impl Flow for Source {
    nf::in_words!();
}

packet::words! {
    Source: [3], source => [source.window_end.0, source.packets, source.dropped], words => Self {
        window_end: Nanos(words[0]), packets: words[1], dropped: words[2]
    };
}

const OVER_THRESHOLD: Reason = Reason::own(0);

impl Ddos {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let window = match config.window.get() {
            0 => Nanos::NEVER,
            secs => Nanos::from_secs(secs),
        };
        let idle = config.idle_timeout.nanos();
        // A source that is forgotten inside its window would get a second allowance.
        let idle = if window == Nanos::NEVER { idle } else { idle.max(window) };
        Self {
            sizing: Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize },
            threshold: config.threshold.get(),
            window,
            idle,
            remembered: config.remember.nanos().max(idle),
            top: config.top.get() as usize,
        }
    }
}

impl Ddos {
    /// Returns the end of a window that a packet at `now` begins or extends.
    #[inline(always)]
    fn window_end(&self, now: Nanos) -> Nanos {
        now + if self.window == Nanos::NEVER { self.idle } else { self.window }
    }

    /// Sets the source's deadline: later if it is to stay in the report.
    #[inline(always)]
    fn keep<M: Memory>(&self, cx: &mut Context<'_, Self, M>, source: &Source) {
        if source.dropped == 0 {
            cx.expire_after(self.idle);
            return;
        }
        cx.expire_after(self.remembered);
        // A flood of spoofed sources must not evict known attackers.
        cx.assure();
    }
}

impl Catalogued for Ddos {
    type Config = Config;

    const CRAMPED: &'static str = "threshold = 2";

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl NetworkFunction for Ddos {
    type Meta = Sent;
    type Flow = Source;
    type Shared<M: Memory> = ();
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "ddos",
        summary: "drops the packets of a source that exceed a number of packets in a time window",
        state: "the source's number of packets in the window, and of dropped packets",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey {
                name: "threshold",
                default: "100000",
                help: "packets that a source may send in a window; 1 to 4294967295",
            },
            ConfigKey {
                name: "window",
                default: "1",
                help: "length of the window in seconds, 0 for one that never ends; 0 to 86400",
            },
            ConfigKey {
                name: "idle_timeout",
                default: "60",
                help: "seconds of silence after which a source is forgotten, but not inside its window",
            },
            ConfigKey {
                name: "remember",
                default: "86400",
                help: "seconds of silence after which a source that exceeded the threshold leaves the report",
            },
            ConfigKey { name: "flows", default: "1048576", help: "maximum number of IPv4 sources" },
            ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of IPv6 sources" },
            ConfigKey { name: "top", default: "10", help: "number of sources in the report; 0 to 10000" },
        ],
        drop_reasons: &["over-threshold"],
        recipes: &[],
    };
    /// Sources keep their counts and windows.
    fn succeed(self, _old: &Self) -> Result<Self, String> {
        Ok(self)
    }

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Sent> {
        headers.source().map(Sent)
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _meta: &Sent) -> Step<Opened<Source>, M> {
        Ok(Opened::Flow(Source { window_end: self.window_end(cx.now()), packets: 0, dropped: 0 }))
    }

    #[inline]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, source: &mut Source, _meta: &Sent) -> Step<Verdict, M> {
        let now = cx.now();
        if now >= source.window_end {
            source.window_end = self.window_end(now);
            source.packets = 0;
        } else if self.window == Nanos::NEVER {
            source.window_end = self.window_end(now);
        }
        source.packets += 1;
        let is_over = source.packets > self.threshold;
        source.dropped += u64::from(is_over);
        self.keep(cx, source);
        Ok(if is_over { Verdict::Drop(OVER_THRESHOLD) } else { Verdict::forward() })
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let row = |(host, source): (Host, Source)| {
            vec![host.to_string().into(), source.packets.into(), source.dropped.into()]
        };
        Ok(Some(Report {
            title: String::from("sources over the threshold"),
            columns: vec!["source", "packets in its window", "dropped"],
            rows: heaviest(&mut flows.alive(), self.top, |source| source.dropped).into_iter().map(row).collect(),
        }))
    }
}

impl Speed<Self> for Ddos {
    const FOLDS: bool = true;

    /// Counts equal packets inside a window.
    #[inline]
    fn fold<M: Memory>(
        nf: &Self,
        cx: &mut Context<'_, Self, M>,
        source: &mut Source,
        _meta: &Sent,
        count: u32,
        _first: Nanos,
    ) -> Step<bool, M> {
        if !Self::add(nf, source, &Sum { count, amount: 0, last: cx.now() }) {
            return Ok(false);
        }
        nf.keep(cx, source);
        Ok(true)
    }

    const ADDS: bool = true;

    #[inline]
    fn add(nf: &Self, source: &mut Source, sum: &Sum) -> bool {
        let is_inside = sum.last < source.window_end;
        if is_inside {
            let allowed = nf.threshold.saturating_sub(source.packets);
            if nf.window == Nanos::NEVER {
                source.window_end = nf.window_end(sum.last);
            }
            source.packets += u64::from(sum.count);
            source.dropped += u64::from(sum.count).saturating_sub(allowed);
        }
        is_inside
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use std::vec::Vec;

    use memory::{Local, LocalTx};
    use packet::Seq;

    use super::*;
    use crate::testing::report_of;

    const FROM: Sent = Sent(Host::v4(Ipv4Addr::new(192, 0, 2, 1)));

    fn configured(threshold: u64, window: u64) -> Ddos {
        Ddos::new(&Config { threshold: Count::new(threshold), window: Count::new(window), ..Config::default() })
    }

    /// Runs one source's packets at these times, in milliseconds. Returns the source and which packets were forwarded.
    fn run(ddos: &Ddos, times: &[u64]) -> (Source, Vec<bool>) {
        let window_end = ddos.window_end(Nanos::from_millis(times[0]));
        let mut source = Source { window_end, packets: 0, dropped: 0 };
        let mut step = |millis: &u64| {
            let mut cx = Context::<Ddos, Local>::new(&(), LocalTx::default(), Nanos::from_millis(*millis), Seq(0));
            let Ok(verdict) = ddos.packet(&mut cx, &mut source, &FROM);
            let effects = cx.effects();
            assert_eq!(effects.assured, source.dropped > 0, "a source that exceeded the threshold is not evicted");
            let idle = if source.dropped > 0 { ddos.remembered } else { ddos.idle };
            assert_eq!(effects.deadline, Some(Nanos::from_millis(*millis) + idle));
            verdict == Verdict::FORWARD
        };
        let out = times.iter().map(&mut step).collect();
        (source, out)
    }

    #[test]
    fn a_window_begins_with_the_first_packet_after_the_last_one() {
        let (source, out) = run(&configured(2, 1), &[500, 600, 700, 1499, 1500, 2499, 2500, 2501, 2502]);
        assert_eq!(out, [true, true, false, false, true, true, true, true, false]);
        assert_eq!(source, Source { window_end: Nanos::from_millis(3500), packets: 3, dropped: 3 });
    }

    #[test]
    fn window_zero_never_ends() {
        let (source, out) = run(&configured(2, 0), &[0, 1, 50_000, 109_999, 169_998]);
        assert_eq!(out, [true, true, false, false, false]);
        assert_eq!(source.dropped, 3);
    }

    /// After a silence a source starts from zero, but stays in the report.
    #[test]
    fn a_source_that_exceeded_the_threshold_stays_in_the_report() {
        for (window, times) in [(0, [0, 1, 2, 60_002, 60_003]), (1, [0, 1, 2, 60_002, 60_003])] {
            let ddos = configured(2, window);
            let (source, out) = run(&ddos, &times);
            assert_eq!(out, [true, true, false, true, true], "{window}");
            let report = report_of(&ddos, [(FROM.0, source)]).unwrap();
            assert_eq!(report.rows, [["192.0.2.1", "2", "1"]]);
        }
        assert_eq!(configured(1, 1).remembered, Nanos::from_secs(86_400));
    }

    #[test]
    fn a_source_is_not_forgotten_inside_its_window() {
        let config = Config { window: Count::new(600), ..Config::default() };
        assert_eq!(Ddos::new(&config).idle, Nanos::from_secs(600));
        assert_eq!(configured(1, 0).idle, Nanos::from_secs(60));
    }

    #[test]
    fn the_report_lists_only_attackers() {
        let host = |last| Host::v4(Ipv4Addr::new(10, 0, 0, last));
        let source = |dropped| Source { window_end: Nanos(0), packets: 5, dropped };
        let flows = [(host(1), source(3)), (host(2), source(0)), (host(3), source(9))].into_iter();
        let report = report_of(&configured(1, 1), flows).unwrap();
        assert_eq!(report.rows, [["10.0.0.3", "5", "9"], ["10.0.0.1", "5", "3"]]);
    }
}
