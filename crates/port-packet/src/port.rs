//! The port: opens its interfaces for a number of cores, and tells about them.

use std::sync::Arc;

use interface::{Probe, Watched};
use port::{Halves, Opened, Port, PortError, Sides};

use crate::device::{Device, InterfaceCounts};
use crate::error::PacketError;
use crate::facts::Facts;
use crate::input::Input;
use crate::options::Options;
use crate::output::Output;

/// A port on live interfaces. Everything is opened by [`Port::open`], in the network namespace of the calling thread, and closed when the
/// queues and the batches with their packets are dropped, or when the process ends.
#[derive(Debug)]
pub struct PacketPort {
    options: Arc<Options>,
    monitor: Monitor,
}

/// A handle to a port that runs, for any thread: descriptions and counters of its interfaces.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    devices: Watched<Arc<Device>>,
}

impl PacketPort {
    /// A port with these options.
    ///
    /// # Errors
    /// An option is out of range, or there is no such interface.
    pub fn new(options: Options) -> Result<Self, PacketError> {
        options.check()?;
        let probe = probe(&options)?;
        options.interfaces.iter().try_for_each(|name| Facts::of(&probe, name).map(drop))?;
        Ok(Self { options: Arc::new(options), monitor: Monitor::default() })
    }

    /// A handle to the port while it runs.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// One line for each interface: its sockets and blocks, what becomes of packets, and what an operator should change. Empty before the
    /// port was opened.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        self.monitor.describe()
    }

    /// Opens the sockets.
    fn start(&self, cores: usize) -> Result<Vec<Halves<Input, Output>>, PacketError> {
        let options = &self.options;
        let cores = if options.single_queue { 1 } else { cores };
        let asking = probe(options)?;
        let mut devices = Vec::new();
        for name in &options.interfaces {
            let device = Device::new(name, options, cores);
            device.open(Facts::of(&asking, name)?, 0)?;
            devices.push(Arc::new(device));
        }
        let half = |core| {
            let input = Input::new(&devices, options, probe(options)?, core, cores)?;
            Ok(Halves { input, output: Output::new(&devices, options, core)? })
        };
        let halves = (0..cores).map(half).collect::<Result<_, PacketError>>()?;
        self.monitor.devices.set(devices);
        Ok(halves)
    }
}

fn probe(options: &Options) -> Result<Probe, PacketError> {
    Probe::new().map_err(|error| PacketError::system(&options.interfaces[0], "make a socket", error))
}

impl Port for PacketPort {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        assert!(cores > 0, "a port is opened for cores");
        Ok(Opened::from_halves(self.start(cores)?, self.options.single_queue))
    }

    fn sides(&self) -> Sides {
        Sides::of(self.options.interfaces.len())
    }
}

impl Monitor {
    /// As [`PacketPort::describe`].
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        self.devices.map(|device| device.describe())
    }

    /// Counters of each interface, by the kernel and by the port.
    #[must_use]
    pub fn counts(&self) -> Vec<InterfaceCounts> {
        self.devices.map(|device| device.counts())
    }
}
