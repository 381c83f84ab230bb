//! The transmitting half of a core as a port's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use port::{Batch, PortError, Transmit, TransmitCounts};

use crate::outlets::{Outlets, lock};

/// Transmits to all interfaces of one core.
pub(crate) struct Output(pub(crate) Arc<Mutex<Outlets>>);

/// Time that the end of a run waits for packets to go out.
const DRAIN: Duration = Duration::from_millis(500);

impl Transmit for Output {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        lock(&self.0).transmit(batch);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let mut outlets = lock(&self.0);
        outlets.push();
        outlets.reap();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        lock(&self.0).drain(DRAIN);
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        Some(lock(&self.0).counts())
    }
}
