//! The port: opens its interfaces for a number of cores, and tells about them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use port::{Opened, Order, Port, PortError, Queue, Sides, Stream};

use crate::clock::Clock;
use crate::core::Core;
use crate::device::{Device, InterfaceCounts};
use crate::error::XdpError;
use crate::filter::{Filter, LinkPolicy};
use crate::input::Input;
use crate::interface::Probe;
use crate::ledger::Balance;
use crate::options::{Copying, Mode, Options};
use crate::outlets::{Outlets, lock};
use crate::queue::{Output, XdpQueue};
use crate::umem::Umem;

/// A port on live interfaces. Everything is opened by [`Port::open`], in the network namespace of the calling thread, and closed when the
/// queues are dropped, or when the process ends, however it ends.
#[derive(Debug)]
pub struct XdpPort {
    options: Arc<Options>,
    monitor: Monitor,
}

/// Tells about a port while it runs, from any thread.
#[derive(Clone, Debug)]
pub struct Monitor {
    options: Arc<Options>,
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    devices: Vec<Arc<Device>>,
    cores: Vec<(Arc<Core>, Arc<Mutex<Outlets>>)>,
}

/// Takes the programs off once the last queue is dropped.
pub(crate) struct Attached(Vec<Arc<Device>>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.iter().for_each(|device| device.detach());
    }
}

/// How long a queue that another socket holds is tried for: its process may have ended a moment ago.
const PATIENCE: Duration = Duration::from_secs(2);

impl Options {
    /// Whether sockets copy; in generic mode they always do.
    pub(crate) fn copying(&self) -> Copying {
        if self.mode == Mode::Generic { Copying::Copy } else { self.copying }
    }
}

impl XdpPort {
    /// A port with these options.
    ///
    /// # Errors
    /// An option is out of range, or there is no such interface.
    pub fn new(options: Options) -> Result<Self, XdpError> {
        options.check()?;
        let probe = Probe::new().map_err(|error| XdpError::system(&options.interfaces[0], "make a socket", error))?;
        options.interfaces.iter().try_for_each(|name| probe.facts(name).map(drop))?;
        let options = Arc::new(options);
        let monitor = Monitor { options: Arc::clone(&options), running: Arc::default() };
        Ok(Self { options, monitor })
    }

    /// A handle that tells about the port while it runs.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// One line for each interface: where its program runs, whether packets are copied, its queues and frames, and the filter. Empty before
    /// the port was opened.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        self.monitor.describe()
    }

    /// Opens the sockets and attaches the programs.
    fn start(&self, cores: usize) -> Result<Vec<(Input, Output)>, XdpError> {
        let options = &self.options;
        let first = &options.interfaces[0];
        let probe = Probe::new().map_err(|error| XdpError::system(first, "make a socket", error))?;
        let queues = if options.single_queue { 1 } else { cores as u32 };
        let mut facts = Vec::new();
        let mut devices = Vec::new();
        for name in &options.interfaces {
            let found = probe.facts(name)?;
            found.queues.check(name, queues, options.single_queue)?;
            let device = Device::new(name, &found, queues, options.mode, &options.filter)?;
            device.is_vacant(found.index, PATIENCE)?;
            devices.push(Arc::new(device));
            facts.push(found);
        }
        let attached = Arc::new(Attached(devices.clone()));
        let clock = Clock::start();
        let mut halves = Vec::new();
        let mut running = Running { devices: devices.clone(), cores: Vec::new() };
        for queue in 0..queues {
            let frames = options.frames * devices.len() as u32;
            let umem = Umem::new(frames, options.frame_len)
                .map_err(|error| XdpError::system(first, "map packet memory", error))?;
            let core = Arc::new(Core::new(umem));
            let outlets = Arc::new(Mutex::new(Outlets::new(Arc::clone(&core), devices.len())));
            running.cores.push((Arc::clone(&core), Arc::clone(&outlets)));
            let output = Output(Arc::clone(&outlets));
            let (options, attached) = (Arc::clone(options), Arc::clone(&attached));
            let mut input = Input::new(core, outlets, &devices, options, attached, (queue, queues), clock)
                .map_err(|error| XdpError::system(first, "make a socket", error))?;
            for (interface, found) in facts.iter().enumerate() {
                input.open(interface, found.index, found.mtu, PATIENCE)?;
            }
            halves.push((input, output));
        }
        // The programs last: until then, packets go to the kernel as before.
        for (device, found) in devices.iter().zip(&facts) {
            device.attach(found.index)?;
        }
        *self.monitor.running() = running;
        Ok(halves)
    }
}

impl Port for XdpPort {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        assert!(cores > 0, "a port is opened for cores");
        let mut halves = self.start(cores)?;
        if self.options.single_queue {
            let (input, output) = halves.pop().expect("there is one queue");
            return Ok(Opened::Stream(Stream { input: Box::new(input), output: Box::new(output), order: Order::Sent }));
        }
        let queue = |(input, output)| Box::new(XdpQueue { input, output }) as Box<dyn Queue>;
        Ok(Opened::Queues(halves.into_iter().map(queue).collect()))
    }

    fn sides(&self) -> Sides {
        if self.options.interfaces.len().is_multiple_of(2) { Sides::Pairs } else { Sides::One }
    }
}

impl Monitor {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`XdpPort::describe`].
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let running = self.running();
        let frames = self.options.frames * running.devices.len() as u32;
        running.devices.iter().map(|device| device.describe(frames, &self.options)).collect()
    }

    /// For each core: how many frames are where.
    #[must_use]
    pub fn balances(&self) -> Vec<Balance> {
        self.running().cores.iter().map(|(core, outlets)| core.balance(lock(outlets).free_len())).collect()
    }

    /// For each interface: what its program and the port have counted.
    #[must_use]
    pub fn counts(&self) -> Vec<InterfaceCounts> {
        self.running().devices.iter().map(|device| device.counts()).collect()
    }

    /// Changes the filter of the running port. Packets that come meanwhile may meet a part of the old filter and a part of the new one.
    ///
    /// # Errors
    /// The filter has too many entries, or it lets link traffic go across where it didn't before or the other way round: for that the port
    /// is opened anew.
    pub fn set_filter(&self, filter: &Filter) -> Result<(), XdpError> {
        filter.check(self.options.interfaces.len())?;
        let goes_across = |filter: &Filter| filter.link == LinkPolicy::Across;
        if goes_across(filter) != goes_across(&self.options.filter) {
            return Err(XdpError::Option(
                "a running port can't begin or cease to send link traffic across; open it anew with that filter".into(),
            ));
        }
        self.running().devices.iter().try_for_each(|device| device.set_filter(filter))
    }

    /// Loads the programs again and exchanges them for the running ones, between two packets. Counts go on.
    ///
    /// # Errors
    /// The kernel refuses a program. Those exchanged before stay.
    pub fn exchange_programs(&self) -> Result<(), XdpError> {
        self.running().devices.iter().try_for_each(|device| device.exchange())
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("devices", &self.devices).field("cores", &self.cores.len()).finish()
    }
}
