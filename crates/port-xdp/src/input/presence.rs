//! Opens the sockets of a core's interfaces, closes those of an interface that is gone, and opens them again.

use std::sync::Arc;
use std::time::Duration;

use interface::Presence;
use packet::Nanos;

use super::{Inlet, Input, Interface};
use crate::common::Common;
use crate::core::Core;
use crate::error::XdpError;
use crate::facts::{Facts, Queues};
use crate::outlets::{Outlet, lock};
use crate::socket::{self, Opened, Wish};

impl Input {
    /// Opens the socket of an interface, tells the program of it, and fills its ring.
    pub(crate) fn open(&mut self, interface: usize, index: u32, mtu: u32, patience: Duration) -> Result<(), XdpError> {
        let device = Arc::clone(&self.interfaces[interface].device);
        let options = &self.options;
        let wish = Wish {
            interface: &device.name,
            index,
            mtu,
            queue: self.place.queue,
            ring_len: options.ring_len,
            sharing: self.place.members,
            copying: options.copying(),
            need_wakeup: options.need_wakeup,
            busy_poll: options.busy_poll,
            transmit_budget: options.transmit_budget,
            patience,
        };
        let (opened, common) = open_on(&self.core, interface, &wish)?;
        device.claim(self.place.socket(), &opened.socket, &opened.binding)?;
        let need_wakeup = options.need_wakeup;
        self.interfaces[interface].inlet = Some(Inlet {
            socket: Arc::clone(&opened.socket),
            received: opened.received,
            common: Arc::clone(&common),
            need_wakeup,
            popped: 0,
            before_mark: 0,
            pieces: Vec::new(),
            whole: Vec::new(),
            stamped: None,
            front: None,
        });
        let how = (opened.binding.scattered, need_wakeup);
        let outlet = Outlet::new(opened.socket, opened.transmit, common, how);
        lock(&self.outlets).set(interface, Some(outlet));
        self.refill(interface);
        Ok(())
    }

    /// Closes the socket of an interface. The frames in its rings are free once all sockets on the queue are closed.
    pub(super) fn close(&mut self, interface: usize) {
        let Self { core, outlets, interfaces, .. } = self;
        let Interface { inlet, lost_before, device, .. } = &mut interfaces[interface];
        let Some(mut inlet) = inlet.take() else { return };
        // Nobody will read what lies in the receive ring.
        let statistics = inlet.socket.statistics();
        let lost = statistics.lost() + u64::from(inlet.received.unread()) + u64::from(inlet.front.is_some());
        *lost_before += lost;
        device.count_lost(lost);
        core.ledger.count_faults(statistics.invalid_receive + statistics.invalid_transmit);
        drop(inlet);
        // Under the lock, as the other half must not use the rings any more when their frames are taken back.
        let mut outlets = lock(outlets);
        outlets.reap();
        let link = outlets.set(interface, None);
        device.count_not_across(link);
    }

    /// Looks at every interface: closes the sockets of one that is gone, and opens those of one that is there again.
    pub(super) fn check(&mut self, now: Nanos) {
        self.checked = now;
        self.check_each();
        if let Some(ahead) = &self.ahead {
            let is_usable = |(number, interface): (usize, &Interface)| {
                interface.presence == Presence::Up
                    && interface.device.check_outlet(&self.interfaces[number ^ 1].device).is_ok()
            };
            ahead.progress.set_usable(self.interfaces.iter().enumerate().all(is_usable));
        }
    }

    fn check_each(&mut self) {
        for interface in 0..self.interfaces.len() {
            let Interface { device, inlet, .. } = &self.interfaces[interface];
            let device = Arc::clone(device);
            let presence = match inlet {
                Some(inlet) if inlet.socket.is_bound() => self.probe.presence(&device.name, inlet.common.index),
                Some(_) | None => Presence::Gone,
            };
            let before = std::mem::replace(&mut self.interfaces[interface].presence, presence);
            match presence {
                Presence::Up if before == Presence::Up => self.check_queues(interface),
                Presence::Up => {
                    device.note(None);
                    self.interfaces[interface].has_wrong_queues = false;
                }
                Presence::Down => device.note(Some("it is down".into())),
                Presence::Gone => {
                    self.close(interface);
                    let opened = self.open_again(interface);
                    self.interfaces[interface].device.note(opened.err().map(|error| error.to_string()));
                }
            }
        }
    }

    /// Looks whether somebody has changed the number of queues. A driver may let the packets of new queues pass the program, so that it is
    /// set again; it then drops and counts them.
    fn check_queues(&mut self, interface: usize) {
        let Interface { device, has_wrong_queues, .. } = &mut self.interfaces[interface];
        if !self.place.is_first() {
            return;
        }
        let Ok(queues) = Queues::of(&self.probe, &device.name, device.index()) else { return };
        let checked = queues.check(&device.name, self.place.queues, self.options.spread.is_single_queue());
        if checked.is_err() && !*has_wrong_queues {
            let exchanged = device.exchange();
            device.note(exchanged.and(checked).err().map(|error| error.to_string()));
            *has_wrong_queues = true;
        } else if checked.is_ok() && *has_wrong_queues {
            device.note(None);
            *has_wrong_queues = false;
        }
    }

    fn open_again(&mut self, interface: usize) -> Result<(), XdpError> {
        let device = Arc::clone(&self.interfaces[interface].device);
        let facts = Facts::of(&self.probe, &device.name)?;
        facts.queues.check(&device.name, self.place.queues, self.options.spread.is_single_queue())?;
        self.open(interface, facts.index, facts.mtu, Duration::ZERO)?;
        if self.ahead.is_some() {
            self.interfaces[interface ^ 1].device.set_outlet(facts.index)?;
        }
        let attached = device.attach(facts.index);
        match &attached {
            Ok(()) => self.interfaces[interface].presence = self.probe.presence(&device.name, facts.index),
            Err(_) => self.close(interface),
        }
        attached
    }
}

/// Opens a socket on an interface: beside those that share the core's frames on it, or as the first.
fn open_on(core: &Arc<Core>, interface: usize, wish: &Wish<'_>) -> Result<(Opened, Arc<Common>), XdpError> {
    let mut place = core.common(interface);
    if let Some(common) = place.upgrade() {
        let opened = socket::open_beside(&core.umem, common.first(), wish)?;
        return Ok((opened, common));
    }
    let (opened, fill, completed) = socket::open(&core.umem, wish)?;
    let first = Arc::clone(&opened.socket);
    let common = Arc::new(Common::new(Arc::clone(core), interface, wish.index, first, fill, completed));
    *place = Arc::downgrade(&common);
    Ok((opened, common))
}
