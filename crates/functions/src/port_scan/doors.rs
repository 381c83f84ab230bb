//! Detects scans of many ports of one host.

use packet::Nanos;

/// The ports that a host tried and that have not opened, and the number of failed ports of each victim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Doors {
    /// The ports, oldest first; the first `tried` are valid.
    doors: [Door; DOORS],
    tried: u8,
    /// The first `victims_len` are valid.
    victims: [Victim; VICTIMS],
    victims_len: u8,
    /// The most ports of one host that failed within the time limit.
    most: u16,
}

/// Number of ports that are remembered.
pub(super) const DOORS: usize = 16;
/// Number of victims that are counted.
const VICTIMS: usize = 4;

/// A port that was tried and has not opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Door {
    host: u32,
    port: u16,
    state: State,
    since: Nanos,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No answer yet; silence counts as a failure.
    #[default]
    Open,
    /// No answer yet; only a reset counts as a failure.
    Probed,
    Failed,
}

/// A host with failed ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Victim {
    host: u32,
    failed: u16,
    /// Time of the first failure.
    since: Nanos,
}

/// The thresholds of a port scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Number of failed ports of one host that make a scan.
    pub(super) ports: u16,
    /// Time within which they must fail.
    pub(super) within: Nanos,
    /// Time after which an unanswered attempt has failed.
    pub(super) answer_timeout: Nanos,
}

impl Default for Doors {
    fn default() -> Self {
        Self {
            doors: [Door::default(); DOORS],
            tried: 0,
            victims: [Victim::default(); VICTIMS],
            victims_len: 0,
            most: 0,
        }
    }
}

impl Doors {
    /// The most ports of one host that failed.
    pub(super) const fn most(&self) -> u16 {
        self.most
    }

    /// Returns true if any attempt is unanswered.
    pub(super) fn has_open(&self) -> bool {
        self.tried().iter().any(|door| door.state == State::Open)
    }

    /// Time at which the next open attempt fails or the next probe ends.
    pub(super) fn due(&self, limits: &Limits) -> Nanos {
        let open = self.tried().iter().filter(|door| door.state != State::Failed);
        open.map(|door| door.since + limits.answer_timeout).min().unwrap_or(Nanos::NEVER)
    }

    fn tried(&self) -> &[Door] {
        &self.doors[..usize::from(self.tried)]
    }

    fn place(&self, host: u64, port: u16) -> Option<usize> {
        self.tried().iter().position(|door| door.port == port && door.host == host as u32)
    }

    fn remove(&mut self, at: usize) {
        self.doors.copy_within(at + 1..usize::from(self.tried), at);
        self.tried -= 1;
    }

    /// Notes that the host tries a port. If there is no room, the oldest failed port is evicted, or for an attempt the oldest probe;
    /// otherwise the port is not judged.
    #[inline]
    pub(super) fn knock(&mut self, host: u64, port: u16, is_attempt: bool, now: Nanos) {
        if let Some(at) = self.place(host, port) {
            if is_attempt && self.doors[at].state == State::Probed {
                self.doors[at].state = State::Open;
                self.doors[at].since = now;
            }
            return;
        }
        if usize::from(self.tried) == DOORS {
            let first = |state| self.doors.iter().position(|door| door.state == state);
            let spare = first(State::Failed).or_else(|| first(State::Probed).filter(|_| is_attempt));
            let Some(spare) = spare else { return };
            self.remove(spare);
        }
        let state = if is_attempt { State::Open } else { State::Probed };
        self.doors[usize::from(self.tried)] = Door { host: host as u32, port, state, since: now };
        self.tried += 1;
    }

    /// Notes the answer of a port that was tried. Returns true if it makes a scan.
    pub(super) fn answer(&mut self, limits: &Limits, host: u64, port: u16, granted: bool, now: Nanos) -> bool {
        let Some(at) = self.place(host, port) else { return false };
        if granted {
            self.remove(at);
            return false;
        }
        if self.doors[at].state == State::Failed {
            return false;
        }
        self.doors[at].state = State::Failed;
        self.fail(limits, host as u32, now)
    }

    /// Fails the attempts that have been open for too long. Returns true if one of them makes a scan.
    pub(super) fn miss(&mut self, limits: &Limits, now: Nanos) -> bool {
        let mut scans = false;
        let mut at = 0;
        while at < usize::from(self.tried) {
            let Door { host, state, since, .. } = self.doors[at];
            let is_late = since + limits.answer_timeout <= now;
            match state {
                State::Open if is_late => {
                    self.doors[at].state = State::Failed;
                    scans |= self.fail(limits, host, since + limits.answer_timeout);
                }
                State::Probed if is_late => {
                    self.remove(at);
                    continue;
                }
                State::Open | State::Probed | State::Failed => {}
            }
            at += 1;
        }
        scans
    }

    fn fail(&mut self, limits: &Limits, host: u32, now: Nanos) -> bool {
        let counted = usize::from(self.victims_len);
        let at = match self.victims[..counted].iter().position(|victim| victim.host == host) {
            Some(at) => at,
            None if counted < VICTIMS => {
                self.victims_len += 1;
                counted
            }
            // Evict the victim with the fewest failed ports.
            None => (1..VICTIMS)
                .fold(0, |least, at| if self.victims[at].failed < self.victims[least].failed { at } else { least }),
        };
        let victim = &mut self.victims[at];
        if victim.host != host || victim.failed == 0 || victim.since + limits.within <= now {
            *victim = Victim { host, failed: 0, since: now };
        }
        victim.failed = victim.failed.saturating_add(1);
        self.most = self.most.max(victim.failed);
        victim.failed >= limits.ports
    }
}
