//! The transmitting half of a core as a port's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use port::{Batch, PortError, Transmit, TransmitCounts};

use crate::outlets::{Outlets, lock};

/// Transmits to all interfaces of one core.
pub(crate) struct Output {
    outlets: Arc<Mutex<Outlets>>,
    /// True if packets of the last burst wait in a ring.
    is_pending: bool,
}

/// Time that the end of a run waits for packets to go out.
const DRAIN: Duration = Duration::from_millis(500);

impl Output {
    pub(crate) const fn new(outlets: Arc<Mutex<Outlets>>) -> Self {
        Self { outlets, is_pending: false }
    }
}

impl Transmit for Output {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        // A burst that is dropped needs no ring, and no lock.
        if self.is_pending || batch.packets().iter().any(|packet| packet.fate.is_sent()) {
            let mut outlets = lock(&self.outlets);
            outlets.transmit(batch);
            self.is_pending = outlets.is_pending();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let mut outlets = lock(&self.outlets);
        outlets.push();
        outlets.reap();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        lock(&self.outlets).drain(DRAIN);
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        Some(lock(&self.outlets).counts())
    }
}
