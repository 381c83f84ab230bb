//! An interface of a port, for all its cores: the program that is attached to it, and where that runs.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use interface::netlink;

use crate::bpf;
use crate::error::XdpError;
use crate::facts::Facts;
use crate::filter::Filter;
use crate::offload::takes_redirects;
use crate::options::{Mode, Options};
use crate::program::{Addition, Program, ProgramCounts};
use crate::socket::{Binding, Socket};

/// An interface and its program.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    mode: Mode,
    /// Number of the interface that the program is attached to.
    index: AtomicU32,
    state: Mutex<State>,
    sent_across: AtomicU64,
    lost_across: AtomicU64,
}

#[derive(Debug)]
struct State {
    program: Program,
    /// Counts of programs before this one.
    before: ProgramCounts,
    link: Option<bpf::Link>,
    /// The socket of each queue.
    sockets: Vec<Weak<Socket>>,
    /// Packets lost at sockets that were closed.
    lost_before: u64,
    /// Where the program runs, in words.
    place: String,
    binding: Option<Binding>,
    filter: Filter,
    /// Addition to the program, which hands packets to sockets.
    addition: Option<Addition>,
    /// Number of the interface that a program with a table of connections forwards to; 0 before it was set.
    outlet: u32,
    /// True if the program runs in the driver.
    is_native: bool,
    /// Reason why the interface can't be used at the moment.
    trouble: Option<String>,
}

/// Counters of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    /// Its name.
    pub interface: String,
    /// What its XDP program has counted.
    pub program: ProgramCounts,
    /// Packets for the function that were lost because a ring was full, that lay in one when its socket was closed, or that came out of
    /// one after their turn.
    pub ring_full: u64,
    /// Link traffic that the port has sent out of this interface itself.
    pub sent_across: u64,
    /// Link traffic for this interface that was lost because its transmit ring was full.
    pub lost_across: u64,
    /// Reason why the interface can't be used at the moment.
    pub trouble: Option<String>,
}

impl Device {
    /// Loads the program for so many sockets. Nothing is attached yet.
    pub(crate) fn new(
        name: &str,
        facts: &Facts,
        sockets: u32,
        mode: Mode,
        filter: &Filter,
        addition: Option<Addition>,
    ) -> Result<Self, XdpError> {
        let state = State {
            program: Program::load(name, sockets, filter, addition.as_ref())?,
            before: ProgramCounts::default(),
            link: None,
            sockets: (0..sockets).map(|_| Weak::new()).collect(),
            lost_before: 0,
            place: String::new(),
            binding: None,
            filter: filter.clone(),
            addition,
            outlet: 0,
            is_native: false,
            trouble: None,
        };
        Ok(Self {
            name: name.to_owned(),
            mode,
            index: AtomicU32::new(facts.index),
            state: Mutex::new(state),
            sent_across: AtomicU64::new(0),
            lost_across: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the interface, as far as is known.
    pub(crate) fn index(&self) -> u32 {
        // ORDERING: Relaxed. A number alone; pairs with `attach`.
        self.index.load(Ordering::Relaxed)
    }

    /// Attaches the program to the interface with this number, unless it is attached there.
    pub(crate) fn attach(&self, index: u32) -> Result<(), XdpError> {
        let mut state = self.state();
        if state.link.is_some() && self.index() == index {
            return Ok(());
        }
        // What was attached to an interface that is gone is of no use.
        state.link = None;
        let attempt = |state: &State, flags| bpf::Link::new(state.program.file(), index, flags);
        let generic = |place| (false, place);
        let native = || (true, "native XDP".to_owned());
        let (link, (is_native, place)) = match self.mode {
            Mode::Generic => {
                let link = attempt(&state, bpf::GENERIC).map_err(|error| self.refused(index, error))?;
                (link, generic("generic XDP".to_owned()))
            }
            Mode::Native => (attempt(&state, bpf::NATIVE).map_err(|error| self.refused(index, error))?, native()),
            Mode::Best => match attempt(&state, bpf::NATIVE) {
                Ok(link) => (link, native()),
                Err(error) => match self.refused(index, error) {
                    XdpError::NoNative { source, hint, .. } => {
                        let link = attempt(&state, bpf::GENERIC).map_err(|error| self.refused(index, error))?;
                        (link, generic(format!("generic XDP (native was refused: {source}{hint})")))
                    }
                    error => return Err(error),
                },
            },
        };
        state.link = Some(link);
        state.is_native = is_native;
        state.place = place;
        state.trouble = None;
        // ORDERING: Relaxed. As in `index`.
        self.index.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses an interface that has a program already. One of a process that has just ended may take a moment to go.
    pub(crate) fn is_vacant(&self, index: u32, patience: Duration) -> Result<(), XdpError> {
        let end = Instant::now() + patience;
        loop {
            let link =
                netlink::link(index).map_err(|error| XdpError::system(&self.name, "ask for the XDP program", error))?;
            match link.program {
                0 => return Ok(()),
                program if Instant::now() >= end => {
                    return Err(XdpError::Occupied { interface: self.name.clone(), program });
                }
                _ => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// What a refusal to attach means.
    fn refused(&self, index: u32, error: io::Error) -> XdpError {
        let interface = self.name.clone();
        match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {
                let program = netlink::link(index).map_or(0, |link| link.program);
                XdpError::Occupied { interface, program }
            }
            Some(libc::ERANGE) => XdpError::NoNative { interface, source: error, hint: ", or set a smaller MTU" },
            Some(libc::ENOSPC) => XdpError::NoNative {
                interface,
                source: error,
                hint: ", or give the other end of this veth pair no more transmit queues than this end has receive queues (ethtool -L)",
            },
            Some(libc::EOPNOTSUPP | libc::EINVAL) => XdpError::NoNative { interface, source: error, hint: "" },
            _ => XdpError::system(&self.name, "attach the XDP program", error),
        }
    }

    /// Sets the interface that a program with a table of connections forwards to.
    pub(crate) fn set_outlet(&self, index: u32) -> Result<(), XdpError> {
        let mut state = self.state();
        state.outlet = index;
        let set = state.program.set_outlet(index);
        set.map_err(|error| XdpError::system(&self.name, "set the interface that the XDP program forwards to", error))
    }

    /// Checks that the program can send packets out of another interface.
    pub(crate) fn check_outlet(&self, outlet: &Self) -> Result<(), XdpError> {
        // In the network stack it can send by every interface.
        if !self.state().is_native {
            return Ok(());
        }
        let refuse = |reason| Err(XdpError::NoRedirect { interface: outlet.name.clone(), reason });
        match takes_redirects(outlet.index()) {
            Ok(true) => Ok(()),
            Ok(false) => refuse(String::new()),
            Err(error) => {
                refuse(format!(", as the kernel doesn't say that it can (Linux 6.3 is the first to say): {error}"))
            }
        }
    }

    /// Takes the program off. Packets go to the kernel again.
    pub(crate) fn detach(&self) {
        self.state().link = None;
    }

    /// Loads the program again and puts it in the place of the running one, between two packets.
    pub(crate) fn exchange(&self) -> Result<(), XdpError> {
        let mut state = self.state();
        let program = Program::load(&self.name, state.sockets.len() as u32, &state.filter, state.addition.as_ref())?;
        let refused = |error| XdpError::system(&self.name, "exchange the XDP program", error);
        if state.outlet != 0 {
            program.set_outlet(state.outlet).map_err(refused)?;
        }
        for (number, socket) in state.sockets.iter().enumerate() {
            if let Some(socket) = socket.upgrade() {
                program.claim(number as u32, socket.as_raw_fd()).map_err(refused)?;
            }
        }
        if let Some(link) = &state.link {
            link.exchange(program.file()).map_err(refused)?;
        }
        let old = std::mem::replace(&mut state.program, program);
        // Packets that are still in the old program are few, and end within this call or are not counted.
        let counted = old.counts();
        state.before.add(&counted);
        Ok(())
    }

    /// Sends the queue's packets to a socket, or the core's.
    pub(crate) fn claim(&self, number: u32, socket: &Arc<Socket>, binding: &Binding) -> Result<(), XdpError> {
        let mut state = self.state();
        let claimed = state.program.claim(number, socket.as_raw_fd());
        state.binding = Some(binding.clone());
        state.sockets[number as usize] = Arc::downgrade(socket);
        claimed.map_err(|error| XdpError::system(&self.name, "give a queue to a socket", error))
    }

    pub(crate) fn set_filter(&self, filter: &Filter) -> Result<(), XdpError> {
        let mut state = self.state();
        state.filter = filter.clone();
        state.program.set_filter(filter).map_err(|error| XdpError::system(&self.name, "set the filter", error))
    }

    /// Notes why the interface can't be used at the moment.
    pub(crate) fn note(&self, trouble: Option<String>) {
        self.state().trouble = trouble;
    }

    /// Counts packets that were lost at a socket, which is closed now, also those that lay in its ring.
    pub(crate) fn count_lost(&self, lost: u64) {
        self.state().lost_before += lost;
    }

    /// Counts link traffic that was to go out of this interface.
    pub(crate) fn count_across(&self, sent: u64, lost: u64) {
        // ORDERING: Relaxed. Counts to look at; pairs with `counts`.
        self.sent_across.fetch_add(sent, Ordering::Relaxed);
        self.lost_across.fetch_add(lost, Ordering::Relaxed);
    }

    /// Counts link traffic as lost that was counted as sent and waited in a ring at its end.
    pub(crate) fn count_not_across(&self, lost: u64) {
        // ORDERING: Relaxed. As in `count_across`.
        self.sent_across.fetch_sub(lost, Ordering::Relaxed);
        self.lost_across.fetch_add(lost, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> InterfaceCounts {
        // ORDERING: Relaxed. Counts to look at.
        let (sent_across, lost_across) =
            (self.sent_across.load(Ordering::Relaxed), self.lost_across.load(Ordering::Relaxed));
        let state = self.state();
        let mut program = state.program.counts();
        program.add(&state.before);
        let sockets = state.sockets.iter().filter_map(Weak::upgrade);
        let ring_full = state.lost_before + sockets.map(|socket| socket.statistics().lost()).sum::<u64>();
        InterfaceCounts {
            interface: self.name.clone(),
            program,
            ring_full,
            sent_across,
            lost_across,
            trouble: state.trouble.clone(),
        }
    }

    /// One line: where the program runs, how packets come, and what the filter does.
    pub(crate) fn describe(&self, frames: u32, options: &Options) -> String {
        let state = self.state();
        let frame_len = options.frame_len;
        let polling =
            options.busy_poll.map(|poll| format!(", busy polling for {} us", poll.time_us)).unwrap_or_default();
        let copying = match &state.binding {
            Some(Binding { zero_copy: true, .. }) => "zero-copy".to_owned(),
            Some(Binding { refused: Some(reason), .. }) => format!("copy (zero-copy was refused: {reason})"),
            Some(_) => "copy".to_owned(),
            None => "no socket".to_owned(),
        };
        let place = if state.link.is_some() { state.place.as_str() } else { "not attached" };
        let spread = match (&state.binding, state.program.has_frags()) {
            (Some(Binding { scattered: true, .. }), _) => ", long packets in several",
            (_, false) => ", none longer than a page, as this kernel is older than 5.18",
            _ => "",
        };
        let sockets = state.sockets.len();
        let sockets = match (&state.addition, sockets) {
            (Some(Addition::Sequencer(..)), _) => format!("1 queue, sequenced for {sockets} cores"),
            (_, 1) => "1 queue".to_owned(),
            (_, _) => format!("{sockets} queues"),
        };
        let offload = match &state.addition {
            Some(Addition::Connections(connections)) => format!(", up to {} connections offloaded", connections.len()),
            Some(Addition::Sequencer(..)) | None => String::new(),
        };
        let trouble = state.trouble.as_ref().map(|trouble| format!("; now: {trouble}")).unwrap_or_default();
        format!(
            "{}: {place}, {copying}, {sockets}, {frames} frames of {frame_len} bytes a core{spread}{polling}{offload}; {}{trouble}",
            self.name, state.filter
        )
    }
}
