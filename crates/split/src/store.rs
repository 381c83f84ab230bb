//! Where parked payloads lie: in memory, or on store servers.

mod client;
mod protocol;
mod server;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::park::PAYLOAD_MAX;
use crate::ring::{Place, Ring};

use client::Servers;

pub use server::{Served, StoreServer};

/// Place of parked payloads.
#[derive(Debug)]
pub enum Store {
    /// In memory.
    Local(Local),
    /// On store servers: slot *n* lies on server *n* modulo their number.
    Remote(Box<Remote>),
}

/// Payloads in memory.
#[derive(Debug)]
pub struct Local {
    memory: Vec<u8>,
}

/// Payloads on store servers.
#[derive(Debug)]
pub struct Remote {
    servers: Servers,
    lost: u64,
}

impl Store {
    /// A store in memory for so many payloads. Memory is used as slots are.
    #[must_use]
    pub fn local(slots: u32) -> Self {
        Self::Local(Local { memory: vec![0; slots as usize * PAYLOAD_MAX] })
    }

    /// A store on these servers, for so many payloads in all. Servers that don't answer within `timeout` are left out until they do.
    ///
    /// # Errors
    /// A socket can't be opened; a server refuses; no server answers.
    pub fn remote(addresses: &[SocketAddr], slots: u32, session: u64, timeout: Duration) -> io::Result<Self> {
        let servers = Servers::open(addresses, slots, session, timeout)?;
        Ok(Self::Remote(Box::new(Remote { servers, lost: 0 })))
    }

    /// Takes a slot whose store answers.
    pub(crate) fn choose(&self, ring: &mut Ring, len: u32) -> Option<Place> {
        if let Self::Remote(remote) = self {
            let mut tries = remote.servers.len();
            while !remote.servers.answers(ring.next()) {
                tries = tries.checked_sub(1).filter(|tries| *tries > 0)?;
                ring.skip();
            }
        }
        ring.take(len)
    }

    /// Parks a payload.
    pub(crate) fn put(&mut self, slot: u32, generation: u16, payload: &[u8]) {
        match self {
            Self::Local(Local { memory }) => {
                memory[slot as usize * PAYLOAD_MAX..][..payload.len()].copy_from_slice(payload);
            }
            Self::Remote(remote) => remote.servers.put(slot, generation, payload),
        }
    }

    /// Asks a server for a payload, without waiting for it.
    pub(crate) fn ask(&mut self, slot: u32, generation: u16, len: u32) {
        if let Self::Remote(remote) = self
            && len > 0
        {
            remote.servers.ask(slot, generation);
        }
    }

    /// Appends a payload to `whole`. False if it is lost.
    pub(crate) fn get(&mut self, slot: u32, generation: u16, len: u32, whole: &mut Vec<u8>) -> bool {
        match self {
            _ if len == 0 => true,
            Self::Local(Local { memory }) => {
                whole.extend_from_slice(&memory[slot as usize * PAYLOAD_MAX..][..len as usize]);
                true
            }
            Self::Remote(remote) => {
                let is_there = remote.servers.get(slot, generation, len as usize, whole);
                remote.lost += u64::from(!is_there);
                is_there
            }
        }
    }

    pub(crate) const fn lost(&self) -> u64 {
        match self {
            Self::Local(_) => 0,
            Self::Remote(remote) => remote.lost,
        }
    }

    pub(crate) fn tend(&mut self) {
        if let Self::Remote(remote) = self {
            remote.servers.tend();
        }
    }

    /// The servers that don't answer now, by address.
    #[must_use]
    pub fn silent(&self) -> Vec<String> {
        match self {
            Self::Local(_) => Vec::new(),
            Self::Remote(remote) => remote.servers.silent(),
        }
    }
}
