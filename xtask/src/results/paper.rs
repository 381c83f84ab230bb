//! Figures of the paper ("State-Compute Replication", NSDI '25) and our targets.

/// One of the paper's five programs.
pub(super) struct Program {
    /// Its name here.
    pub(super) name: &'static str,
    /// Bytes of a history record, table 1.
    pub(super) record_bytes: u64,
    /// Nanoseconds, table 4: a whole packet, dispatch, the program's own step, and the step for one record of the history.
    pub(super) t: f64,
    pub(super) d: f64,
    pub(super) c1: f64,
    pub(super) c2: f64,
    /// Our limit for a record's cost in nanoseconds, from cache, if there is one.
    pub(super) c2_target: Option<f64>,
}

const fn program(name: &'static str, record_bytes: u64, [t, d, c1, c2]: [f64; 4], c2_target: Option<f64>) -> Program {
    Program { name, record_bytes, t, d, c1, c2, c2_target }
}

/// In the order of the paper's table 4. The policer's record has no target.
pub(super) const PROGRAMS: [Program; 5] = [
    program("ddos", 4, [114.0, 104.0, 10.0, 15.0], Some(6.0)),
    program("heavy-hitter", 18, [145.0, 110.0, 35.0, 15.0], Some(6.0)),
    program("policer", 18, [156.0, 104.0, 53.0, 21.0], None),
    program("port-knock", 8, [107.0, 97.0, 11.0, 18.0], Some(6.0)),
    program("conntrack", 30, [152.0, 80.0, 73.0, 35.0], Some(15.0)),
];

/// The speed-up that two cores must have over one: on the memory port as it is, and with the paper's dispatch added.
pub(super) const GAIN: f64 = 1.5;
pub(super) const GAIN_WITH_DISPATCH: f64 = 1.8;
/// The least rate of `hybrid`, relative to the better of sharding and replication: 5 % less is a tie.
pub(super) const HYBRID: f64 = 0.95;
/// The most that loss recovery may cost without loss.
pub(super) const RECOVERY_COST: f64 = 0.10;
/// The rate in Mpps that a software sequencer with a shared log must reach.
pub(super) const SEQUENCED: f64 = 40.0;
