//! A tunnel's addresses, networks and security associations.

use alloc::vec::Vec;
use core::net::IpAddr;

use packet::{FiveTuple, protocol};

use super::config::{Key, Spi, Tunnel};
use super::esp::Association;
use crate::config::Prefix;

/// A tunnel's addresses, networks and security associations.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) local: IpAddr,
    pub(super) peer: IpAddr,
    inside: Vec<Prefix>,
    beyond: Vec<Prefix>,
    pub(super) out: Association,
    pub(super) into: Association,
}

impl Ends {
    pub(super) fn new(tunnel: &Tunnel) -> Self {
        let association = |spi: Spi, key: &Key| Association { spi: spi.get() as u32, salt: key.salt(), gcm: key.gcm() };
        Self {
            local: tunnel.local,
            peer: tunnel.peer,
            inside: tunnel.inside.clone(),
            beyond: tunnel.beyond.clone(),
            out: association(tunnel.spi_out, &tunnel.key_out),
            into: association(tunnel.spi_in, &tunnel.key_in),
        }
    }

    /// Returns true if the tunnel encrypts packets between these addresses.
    pub(super) fn takes(&self, source: IpAddr, destination: IpAddr) -> bool {
        has(&self.inside, source) && has(&self.beyond, destination)
    }

    /// Returns true if packets between these addresses may come out of the tunnel.
    pub(super) fn gives(&self, source: IpAddr, destination: IpAddr) -> bool {
        has(&self.beyond, source) && has(&self.inside, destination)
    }

    /// Returns the key of an association: the outer addresses, and its SPI in place of the ports.
    pub(super) fn key(&self, direction: TunnelDirection) -> FiveTuple {
        let (source, destination, spi) = match direction {
            TunnelDirection::Out => (self.local, self.peer, self.out.spi),
            TunnelDirection::In => (self.peer, self.local, self.into.spi),
        };
        let [high, low] = [(spi >> 16) as u16, spi as u16];
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                FiveTuple::v4(source, destination, high, low, protocol::ESP)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                FiveTuple::v6(source, destination, high, low, protocol::ESP)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                unreachable!("a tunnel's ends are of one family")
            }
        }
    }
}

fn has(prefixes: &[Prefix], address: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(address))
}

/// The direction of a packet: into the tunnel, or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelDirection {
    Out,
    In,
}
