//! The port: opens its interfaces for a number of cores, and tells about them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use interface::{Probe, Watched};
use port::{Halves, Opened, Port, PortError, Sequenced, Sides};

use crate::clock::Clock;
use crate::core::Core;
use crate::device::{Device, InterfaceCounts};
use crate::error::XdpError;
use crate::facts::Facts;
use crate::filter::{Filter, LinkPolicy};
use crate::input::ordered::OrderedInput;
use crate::input::{AheadOf, Input, Place};
use crate::ledger::Balance;
use crate::offload::Connections;
use crate::options::{Copying, Mode, Options, Spread};
use crate::outlets::{Outlets, lock};
use crate::output::Output;
use crate::program::Addition;
use crate::sequencer::{Reader, Sequencer};
use crate::umem::Umem;

/// A port on live interfaces. Everything is opened by [`Port::open`], in the network namespace of the calling thread, and closed when the
/// queues are dropped, or when the process ends, however it ends.
#[derive(Debug)]
pub struct XdpPort {
    options: Arc<Options>,
    monitor: Monitor,
}

/// A handle to a port that runs, for any thread: descriptions, counters and frames, its filter and its programs.
#[derive(Clone, Debug)]
pub struct Monitor {
    options: Arc<Options>,
    devices: Watched<Arc<Device>>,
    cores: Watched<OpenCore>,
}

/// The frames of a core, or of all that share a queue, and the halves that hold some of them.
type OpenCore = (Arc<Core>, Vec<Arc<Mutex<Outlets>>>);

/// The programs of a port. They are taken off with the first queue that is dropped, or if the port can't be opened.
pub(crate) struct Attached(Vec<Arc<Device>>);

impl Attached {
    /// Takes the programs off.
    pub(crate) fn detach(&self) {
        self.0.iter().for_each(|device| device.detach());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Time for which a queue that another socket holds is tried: its process may have ended a moment ago.
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
        options.interfaces.iter().try_for_each(|name| Facts::of(&probe, name).map(drop))?;
        let options = Arc::new(options);
        let monitor = Monitor { options: Arc::clone(&options), devices: Watched::default(), cores: Watched::default() };
        Ok(Self { options, monitor })
    }

    /// A handle to the port while it runs.
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
    fn start(&self, cores: usize) -> Result<Opened<'static>, XdpError> {
        let options = &self.options;
        let first = &options.interfaces[0];
        let system = |doing| move |error| XdpError::system(first, doing, error);
        let probe = Probe::new().map_err(system("make a socket"))?;
        let is_single = options.spread.is_single_queue();
        let queues = if is_single { 1 } else { cores as u32 };
        let members = if options.spread == Spread::Sequencer { cores as u32 } else { 1 };
        let sequencer = match options.spread {
            Spread::Sequencer => {
                let records = options.records(members);
                Some(Arc::new(Sequencer::new(cores, records).map_err(system("make the history of a sequencer"))?))
            }
            Spread::Queues | Spread::Stream => None,
        };
        // An entry for each core at least.
        let offload = if options.offload > 0 { options.offload.max(cores as u32) } else { 0 };
        let connections = match offload {
            0 => None,
            entries => {
                let made = Connections::new(entries).map_err(system("make the table of offloaded connections"))?;
                Some(Arc::new(made))
            }
        };
        let mut facts = Vec::new();
        let mut devices: Vec<Arc<Device>> = Vec::new();
        for (number, name) in options.interfaces.iter().enumerate() {
            let found = Facts::of(&probe, name)?;
            found.queues.check(name, queues, is_single)?;
            let addition = match (&sequencer, &connections) {
                (Some(sequencer), _) => Some(Addition::Sequencer(Arc::clone(sequencer), number as u32)),
                (None, Some(connections)) => Some(Addition::Connections(Arc::clone(connections))),
                (None, None) => None,
            };
            let device = Device::new(name, &found, queues * members, options.mode, &options.filter, addition)?;
            device.is_vacant(found.index, PATIENCE)?;
            devices.push(Arc::new(device));
            facts.push(found);
        }
        let attached = Arc::new(Attached(devices.clone()));
        let clock = Clock::start();
        let mut halves = Vec::new();
        let mut open_cores = Vec::new();
        for queue in 0..queues {
            let frames = options.frames_for(members)?;
            let umem = Umem::new(frames, options.frame_len).map_err(system("map packet memory"))?;
            let core = Arc::new(Core::new(umem, devices.len()));
            let mut all_outlets = Vec::new();
            for member in 0..members {
                let place = Place { queue, queues, member, members };
                let outlets = Arc::new(Mutex::new(Outlets::new(Arc::clone(&core), devices.len())));
                all_outlets.push(Arc::clone(&outlets));
                let output = Output::new(Arc::clone(&outlets));
                let (options, attached) = (Arc::clone(options), Arc::clone(&attached));
                let mut input = Input::new(Arc::clone(&core), outlets, &devices, options, attached, place, clock)
                    .map_err(system("make a socket"))?;
                if let Some(connections) = &connections {
                    let part = offload / queues;
                    input.put_behind(AheadOf::new(Arc::clone(connections), (queue * part, part)));
                }
                for (interface, found) in facts.iter().enumerate() {
                    input.open(interface, found.index, found.mtu, PATIENCE)?;
                }
                halves.push(Halves { input, output });
            }
            open_cores.push((core, all_outlets));
        }
        // The programs last: until then, packets go to the kernel as before.
        for (device, found) in devices.iter().zip(&facts) {
            device.attach(found.index)?;
        }
        if connections.is_some() {
            for (number, device) in devices.iter().enumerate() {
                device.check_outlet(&devices[number ^ 1])?;
                device.set_outlet(facts[number ^ 1].index)?;
            }
        }
        self.monitor.devices.set(devices);
        self.monitor.cores.set(open_cores);
        let Some(sequencer) = sequencer else { return Ok(Opened::from_halves(halves, is_single)) };
        let ordered = |(core, Halves { input, output })| {
            let input = OrderedInput::new(input, Arc::new(Mutex::new(Reader::new(Arc::clone(&sequencer), core))));
            let history = Box::new(input.history());
            Sequenced { queue: Box::new(Halves { input, output }), history }
        };
        Ok(Opened::Sequenced(halves.into_iter().enumerate().map(ordered).collect()))
    }
}

impl Port for XdpPort {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        assert!(cores > 0, "a port is opened for cores");
        Ok(self.start(cores)?)
    }

    fn sides(&self) -> Sides {
        Sides::of(self.options.interfaces.len())
    }
}

impl Monitor {
    /// As [`XdpPort::describe`].
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let frames = self.options.frames * self.devices.len() as u32;
        self.devices.map(|device| device.describe(frames, &self.options))
    }

    /// Frames of each core by place.
    #[must_use]
    pub fn balances(&self) -> Vec<Balance> {
        self.cores.map(|(core, all)| core.balance(all.iter().map(|outlets| lock(outlets).free_len()).sum()))
    }

    /// Counters of each interface, by its program and by the port.
    #[must_use]
    pub fn counts(&self) -> Vec<InterfaceCounts> {
        self.devices.map(|device| device.counts())
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
        self.devices.try_for_each(|device| device.set_filter(filter))
    }

    /// Loads the programs again and exchanges them for the running ones, between two packets. Counts go on.
    ///
    /// # Errors
    /// The kernel refuses a program. Those exchanged before stay.
    pub fn exchange_programs(&self) -> Result<(), XdpError> {
        self.devices.try_for_each(|device| device.exchange())
    }
}
