//! The port: opens its interfaces for a number of cores, and tells about them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::{Opened, Order, Port, PortError, Queue, Sides, Stream};

use crate::device::{Device, InterfaceCounts};
use crate::error::PacketError;
use crate::input::Input;
use crate::interface::Probe;
use crate::options::Options;
use crate::output::Output;
use crate::queue::PacketQueue;

/// A port on live interfaces. Everything is opened by [`Port::open`], in the network namespace of the calling thread, and closed when the
/// queues and the batches with their packets are dropped, or when the process ends.
#[derive(Debug)]
pub struct PacketPort {
    options: Arc<Options>,
    monitor: Monitor,
}

/// Tells about a port while it runs, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    devices: Arc<Mutex<Vec<Arc<Device>>>>,
}

impl PacketPort {
    /// A port with these options.
    ///
    /// # Errors
    /// An option is out of range, or there is no such interface.
    pub fn new(options: Options) -> Result<Self, PacketError> {
        options.check()?;
        let probe = probe(&options)?;
        options.interfaces.iter().try_for_each(|name| probe.facts(name).map(drop))?;
        Ok(Self { options: Arc::new(options), monitor: Monitor::default() })
    }

    /// A handle that tells about the port while it runs.
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
    fn start(&self, cores: usize) -> Result<Vec<(Input, Output)>, PacketError> {
        let options = &self.options;
        let cores = if options.single_queue { 1 } else { cores };
        let facts = probe(options)?;
        let mut devices = Vec::new();
        for name in &options.interfaces {
            let device = Device::new(name, options, cores);
            device.open(facts.facts(name)?, 0)?;
            devices.push(Arc::new(device));
        }
        let half = |core| {
            Ok((Input::new(&devices, options, probe(options)?, core, cores)?, Output::new(&devices, options, core)?))
        };
        let halves = (0..cores).map(half).collect::<Result<_, PacketError>>()?;
        *self.monitor.devices() = devices;
        Ok(halves)
    }
}

fn probe(options: &Options) -> Result<Probe, PacketError> {
    Probe::new().map_err(|error| PacketError::system(&options.interfaces[0], "make a socket", error))
}

impl Port for PacketPort {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        assert!(cores > 0, "a port is opened for cores");
        let mut halves = self.start(cores)?;
        if self.options.single_queue {
            let (input, output) = halves.pop().expect("there is one queue");
            return Ok(Opened::Stream(Stream { input: Box::new(input), output: Box::new(output), order: Order::Sent }));
        }
        let queue = |(input, output)| Box::new(PacketQueue { input, output }) as Box<dyn Queue>;
        Ok(Opened::Queues(halves.into_iter().map(queue).collect()))
    }

    fn sides(&self) -> Sides {
        if self.options.are_paired() { Sides::Pairs } else { Sides::One }
    }
}

impl Monitor {
    fn devices(&self) -> MutexGuard<'_, Vec<Arc<Device>>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`PacketPort::describe`].
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        self.devices().iter().map(|device| device.describe()).collect()
    }

    /// For each interface: what the kernel and the port have counted.
    #[must_use]
    pub fn counts(&self) -> Vec<InterfaceCounts> {
        self.devices().iter().map(|device| device.counts()).collect()
    }
}
