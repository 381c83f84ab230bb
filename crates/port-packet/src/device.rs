//! An interface of a port, for all its cores: its sockets, which are always opened together, so that their order is that of the cores.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use interface::{Probe, netlink};
use packet::LinkType;
use port::ReceiveLosses;

use crate::error::PacketError;
use crate::facts::{Facts, forwarding};
use crate::options::{LinkPolicy, Options, Role, Traffic};
use crate::ring::{Ring, Totals};

/// An interface and its rings.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    options: Arc<Options>,
    cores: usize,
    /// Number of the interface that the rings belong to.
    index: AtomicU32,
    /// Number of times that the rings were made.
    generation: AtomicU32,
    pub(crate) noted: Noted,
    state: Mutex<State>,
}

/// Packets that need an operator's attention.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) lack_checksum: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) lost_across: AtomicU64,
    pub(crate) too_long: AtomicU64,
    pub(crate) malformed: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// The rings that their cores have not fetched yet.
    made: Vec<Option<Arc<Ring>>>,
    /// All rings that are in use.
    rings: Vec<Weak<Ring>>,
    group: Option<u16>,
    link: LinkType,
    /// Packets of rings before these.
    before: Totals,
    /// Packets lost in rings that no core ever fetched.
    unfetched: ReceiveLosses,
    /// Reason why the interface can't be used at the moment.
    trouble: Option<String>,
    /// The setting by which the kernel forwards packets too.
    forwarding: Option<String>,
}

/// Counters of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    /// Its name.
    pub interface: String,
    /// Packets that the kernel had for the port, also those that were lost.
    pub offered: u64,
    /// Packets that the port has handed on.
    pub received: u64,
    /// Link traffic that the port has sent, or meant to send, to the paired interface itself.
    pub across: u64,
    /// Link traffic from here that the paired interface did not take.
    pub lost_across: u64,
    /// Packets lost because a ring was full.
    pub ring_full: u64,
    /// Packets that lie in a ring, or lay there when it was closed.
    pub unread: u64,
    /// Received packets whose checksum the sender has left to its card. It isn't in the packet.
    pub lack_checksum: u64,
    /// Received packets of which the end was cut off.
    pub cut: u64,
    /// Packets that were too long for the interface when they were to be sent, as senders and cards join segments.
    pub too_long: u64,
    /// Blocks of the kernel that contradicted themselves; always 0 unless the kernel is wrong.
    pub malformed: u64,
    /// Reason why the interface can't be used at the moment.
    pub trouble: Option<String>,
}

impl Device {
    /// An interface without rings.
    pub(crate) fn new(name: &str, options: &Arc<Options>, cores: usize) -> Self {
        let state = State {
            made: Vec::new(),
            rings: Vec::new(),
            group: None,
            link: LinkType::Ethernet,
            before: Totals::default(),
            unfetched: ReceiveLosses::default(),
            trouble: None,
            forwarding: None,
        };
        Self {
            name: name.to_owned(),
            options: Arc::clone(options),
            cores,
            index: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            noted: Noted::default(),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the interface, as far as is known.
    pub(crate) fn index(&self) -> u32 {
        // ORDERING: Relaxed. A number alone; pairs with `open`.
        self.index.load(Ordering::Relaxed)
    }

    /// Number of times that the rings were made.
    pub(crate) fn generation(&self) -> u32 {
        // ORDERING: Acquire pairs with Release in `open`. The rings themselves are behind a lock.
        self.generation.load(Ordering::Acquire)
    }

    /// Makes the rings of all cores, in place of those of generation `known`. Does nothing if another core has done so already.
    pub(crate) fn open(&self, facts: Facts, known: u32) -> Result<(), PacketError> {
        let mut state = self.state();
        if self.generation() != known {
            return Ok(());
        }
        if !facts.is_on {
            return Err(PacketError::Down { interface: self.name.clone() });
        }
        let Options { defragment, traffic, promiscuous, .. } = *self.options;
        // A group of one spreads nothing, but it may gather fragments.
        let is_group = self.cores > 1 || defragment;
        let arriving = traffic == Traffic::Arriving;
        let mut group = None;
        let mut rings = Vec::new();
        for core in 0..self.cores {
            rings.push(Ring::new(&self.name, (facts.index, core), &self.options, |socket| {
                if is_group {
                    let joined = socket.join(group, defragment, arriving);
                    let refused = |error| PacketError::system(&self.name, "join the sockets of the cores", error);
                    group = Some(joined.map_err(refused)?);
                } else if arriving {
                    // Spares the kernel a copy; the filter refuses those packets anyway.
                    let _ = socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1);
                }
                Ok(())
            })?);
        }
        if promiscuous {
            let set = rings[0].socket().be_promiscuous(facts.index);
            set.map_err(|error| PacketError::system(&self.name, "make it promiscuous", error))?;
        }
        rings.iter().try_for_each(|ring| ring.start(&self.name, &self.options))?;
        let unfetched: Vec<_> = state.made.drain(..).flatten().collect();
        for ring in unfetched {
            ring.stop();
            state.unfetched.add(&ring.losses());
            state.forget(&ring);
        }
        state.rings.extend(rings.iter().map(Arc::downgrade));
        state.made = rings.into_iter().map(Some).collect();
        (state.group, state.link, state.trouble) = (group, facts.link, None);
        state.forwarding = forwarding(&self.name);
        // ORDERING: Relaxed. As in `index`.
        self.index.store(facts.index, Ordering::Relaxed);
        // ORDERING: Release pairs with Acquire in `generation`.
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Looks for the interface under its name, and makes the rings if it is there.
    pub(crate) fn open_again(&self, probe: &Probe, known: u32) -> Result<(), PacketError> {
        self.open(Facts::of(probe, &self.name)?, known)
    }

    /// The ring of a core, once for each generation, with what frames begin with, and the generation.
    pub(crate) fn fetch(&self, core: usize) -> Option<(Arc<Ring>, LinkType, u32)> {
        // The generation changes under the lock.
        let mut state = self.state();
        let ring = state.made.get_mut(core)?.take()?;
        Some((ring, state.link, self.generation()))
    }

    /// Ends the rings of a core: they take no more packets, and nobody will read what lies in them.
    pub(crate) fn end(&self, core: usize) {
        let rings = self.state().rings.clone();
        rings.iter().filter_map(Weak::upgrade).filter(|ring| ring.core == core).for_each(|ring| ring.stop());
    }

    /// Closes a ring for good. Returns what it has lost.
    pub(crate) fn close(&self, ring: &Arc<Ring>) -> ReceiveLosses {
        ring.stop();
        let losses = ring.losses();
        self.state().forget(ring);
        losses
    }

    /// Packets lost in rings that no core has fetched.
    pub(crate) fn unfetched(&self) -> ReceiveLosses {
        self.state().unfetched
    }

    /// Notes why the interface can't be used at the moment.
    pub(crate) fn note(&self, trouble: Option<String>) {
        self.state().trouble = trouble;
    }

    pub(crate) fn counts(&self) -> InterfaceCounts {
        let state = self.state();
        let mut totals = state.before;
        state.rings.iter().filter_map(Weak::upgrade).for_each(|ring| totals.add(ring.totals()));
        // ORDERING: Relaxed. Counts to look at.
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Noted { lack_checksum, cut, lost_across, too_long, malformed } = &self.noted;
        InterfaceCounts {
            interface: self.name.clone(),
            offered: totals.offered,
            received: totals.received,
            across: totals.across,
            lost_across: count(lost_across),
            ring_full: totals.lost,
            unread: totals.unread(),
            lack_checksum: count(lack_checksum),
            cut: count(cut),
            too_long: count(too_long),
            malformed: count(malformed),
            trouble: state.trouble.clone(),
        }
    }

    /// One line: how packets come, what becomes of them, and what is the matter.
    pub(crate) fn describe(&self) -> String {
        let counts = self.counts();
        let state = self.state();
        let Options { blocks, block_len, block_timeout_ms, role, traffic, link, promiscuous, defragment, .. } =
            *self.options;
        let (name, cores) = (&self.name, self.cores);
        let plural = if cores == 1 { "" } else { "s" };
        let mut line = format!(
            "{name}: AF_PACKET, {cores} socket{plural}, {blocks} blocks of {block_len} bytes a core, handed over after {block_timeout_ms} ms"
        );
        if let Some(group) = state.group.filter(|_| cores > 1) {
            line += &format!(", spread by symmetric hash (fanout group {group})");
        }
        if defragment {
            line += ", fragments gathered by the kernel";
        }
        line += match traffic {
            Traffic::Arriving => ", arriving packets",
            Traffic::Both => ", packets of both directions",
        };
        if link == LinkPolicy::Across {
            line += ", link traffic to the other side";
        }
        if promiscuous {
            line += ", promiscuous";
        }
        if role == Role::Observe {
            line += "; nothing is sent";
        }
        if let (Role::Forward, Some(setting)) = (role, &state.forwarding) {
            line += &format!("; the kernel forwards its packets too: type `sysctl {setting}=0`");
        }
        let program = netlink::link(self.index()).map_or(0, |link| link.program);
        if program != 0 {
            line += &format!(
                "; XDP program {program} of another process has its packets first, and what it keeps is not seen here"
            );
        }
        if role == Role::Forward && counts.lack_checksum > 0 {
            line += &format!(
                "; {} packets came without a checksum: on the sending end of this wire type `ethtool -K IF tx off`",
                counts.lack_checksum
            );
        }
        if counts.too_long > 0 {
            line += &format!(
                "; {} packets were too long to send: type `ethtool -K IF gro off lro off` on the other interfaces, and `ethtool -K IF tso \
                 off gso off` on the sending ends of their wires",
                counts.too_long
            );
        }
        if let Some(trouble) = &state.trouble {
            line += &format!("; now: {trouble}");
        }
        line
    }
}

impl State {
    /// Takes a ring off the list, and keeps its counts.
    fn forget(&mut self, ring: &Arc<Ring>) {
        self.rings.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(ring)));
        self.before.add(ring.totals());
    }
}
