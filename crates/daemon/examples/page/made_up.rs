//! A run that is made up.

use std::time::Duration;

use millrace_daemon::{Core, Dropped, Interface, Latency, Stats, TopFlow};

/// Counters that move as those of a firewall do whose traffic goes up and down.
#[derive(Default)]
pub(crate) struct MadeUp {
    stats: Stats,
    seconds: f64,
}

impl MadeUp {
    /// The counters after a time that only grows.
    pub(crate) fn next(&mut self, elapsed: Duration) -> Stats {
        let now = elapsed.as_secs_f64();
        let passed = now - self.seconds;
        self.seconds = now;
        let stats = &mut self.stats;
        (stats.function, stats.engine) = ("firewall".to_owned(), "transactional".to_owned());
        stats.uptime_ms = elapsed.as_millis() as u64;
        stats.cores.resize(4, Core::default());
        let wave = 1.0 + 0.35 * (now / 9.0).sin() + 0.15 * (now / 1.7).sin();
        let mut sent = 0;
        for (core, weight) in stats.cores.iter_mut().zip([1.0, 0.82, 1.13, 0.94]) {
            let received = (620e3 * wave * weight * passed) as u64;
            let dropped = (received as f64 * (0.03 + 0.025 * (now / 5.0).cos())) as u64;
            core.received += received;
            core.received_bytes += received * 512;
            core.dropped += dropped;
            core.replied += received / 500;
            core.forwarded += received - dropped - received / 500;
            core.idle_ns += ((1.0 - 0.55 * wave * weight).max(0.02) * passed * 1e9) as u64;
            sent += received - dropped;
        }
        let total = stats.total();
        let full = total.dropped / 7;
        stats.dropped = [
            ("no-rule", total.dropped - full - total.dropped / 40),
            ("table-full", full),
            ("malformed", total.dropped / 40),
        ]
        .map(|(reason, packets)| Dropped { reason: reason.to_owned(), packets })
        .to_vec();
        stats.flows_max = 262_144;
        stats.flows = (181_000.0 + 42_000.0 * (now / 14.0).sin()) as u64;
        stats.flows_opened += (21_400.0 * wave * passed) as u64;
        let mut transactions = stats.transactions.unwrap_or_default();
        transactions.committed += sent;
        transactions.aborted += (sent as f64 * 0.0041 * wave) as u64;
        stats.transactions = Some(transactions);
        stats.latency = Some(Latency {
            packets: total.received / 64,
            p50_ns: 4_300,
            p99_ns: 21_700 + (now * 10.0) as u64,
            p999_ns: 88_400,
            worst_ns: 2_310_000,
            sum_us: total.received / 64 * 5,
        });
        let flows = [
            ("10.1.7.23:51822 > 192.0.2.14:443 tcp", 91_200.0, 1_310.0),
            ("10.1.2.9:40112 > 198.51.100.7:443 tcp", 42_800.0, 1_420.0),
            ("[2001:db8:12::7]:60112 > [2001:db8:ffff:42::1:53]:443 udp", 30_100.0, 1_210.0),
            ("10.1.3.80:5004 > 203.0.113.200:5004 udp", 27_500.0, 214.0),
            ("10.1.9.4 > 192.0.2.77 icmp", 1_900.0, 98.0),
        ];
        stats.top_flows = flows
            .map(|(flow, rate, len)| TopFlow {
                flow: flow.to_owned(),
                packets_per_second: (rate * wave) as u64,
                bytes_per_second: (rate * wave * len) as u64,
            })
            .to_vec();
        let interface = |name: &str, received: u64, sent: u64| Interface {
            name: name.to_owned(),
            trouble: (name == "outside0").then(|| "it is down".to_owned()),
            counters: [("received", received), ("sent", sent), ("lost", received / 90_000), ("passed-to-kernel", 312)]
                .map(|(counter, packets)| (counter.to_owned(), packets))
                .to_vec(),
        };
        let inside = total.received / 5 * 3;
        stats.interfaces = vec![
            interface("inside0", inside, total.forwarded / 5 * 2 + total.replied),
            interface("outside0", total.received - inside, total.forwarded - total.forwarded / 5 * 2),
        ];
        stats.clone()
    }
}
