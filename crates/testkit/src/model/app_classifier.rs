//! The model of `app-classifier`, with any classifier.

use std::collections::{BTreeSet, HashMap};

use packet::{Headers, Nanos, Seq, TcpFlags, Transport, protocol};

use super::{Fate, Model, Tuple};

/// What a payload looks like: a name, and the number of consecutive packets that must look so.
pub type Told = Option<(&'static str, usize)>;

/// Stores what every packet of a session looked like and decides by the whole list.
#[derive(Clone, Debug)]
pub struct AppClassifierModel {
    tell: fn(&[u8]) -> Told,
    drop: BTreeSet<&'static str>,
    give_up: usize,
    idle_secs: u64,
    sessions: HashMap<Tuple, (u64, Vec<Told>)>,
}

impl AppClassifierModel {
    /// Creates a model with the classifier `tell` that drops the applications with these names.
    #[must_use]
    pub fn new(tell: fn(&[u8]) -> Told, drop: &[&'static str], give_up: usize, idle_secs: u64) -> Self {
        Self { tell, drop: drop.iter().copied().collect(), give_up, idle_secs, sessions: HashMap::new() }
    }

    /// Returns the application of a session with these packets, if it is identified.
    fn settled(&self, looks: &[Told]) -> Option<&'static str> {
        for end in 1..=looks.len().min(self.give_up) {
            let Some((name, needed)) = looks[end - 1] else { continue };
            if end >= needed && looks[end - needed..end].iter().all(|look| look.is_some_and(|(other, _)| other == name))
            {
                return Some(name);
            }
        }
        (looks.len() >= self.give_up).then_some("unknown")
    }
}

impl Model for AppClassifierModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, payload: &[u8]) -> Fate {
        let Some((src, dst)) = headers.addresses() else { return Fate::FORWARD };
        if !matches!(headers.protocol, protocol::TCP | protocol::UDP) {
            return Fate::FORWARD;
        }
        let (src_port, dst_port) = headers.ports();
        let (low, high) = if (src, src_port) <= (dst, dst_port) {
            ((src, src_port), (dst, dst_port))
        } else {
            ((dst, dst_port), (src, src_port))
        };
        let (tell, idle) = (self.tell, 1_000_000_000 * self.idle_secs);
        let name = (low.0, low.1, high.0, high.1, headers.protocol);
        let (heard, looks) = self.sessions.entry(name).or_default();
        let grants = matches!(headers.transport, Transport::Tcp(tcp) if tcp.flags.contains(TcpFlags(0x12)));
        if grants || *heard + idle <= now.0 {
            looks.clear();
        }
        *heard = now.0;
        if !payload.is_empty() && !grants {
            looks.push(tell(payload));
        }
        let looks = looks.clone();
        match self.settled(&looks) {
            Some(name) if self.drop.contains(name) => Fate::Drop("unwanted-application"),
            Some(_) | None => Fate::FORWARD,
        }
    }
}
