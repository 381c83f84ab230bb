//! Allocation of external ports: one pool for each address, protocol and parity, so that any wanted port is found in one step.

use alloc::boxed::Box;

use memory::{Allocator, Memory};
use nf::Step;
use packet::Nanos;

use super::config::{Config, Pooling, PortRange};
use super::fixed::Fixed;
use super::state::{Endpoint4, Protocol};

/// The pools of external ports. TCP, UDP and ICMP queries use a port independently.
pub(super) struct Ports<M: Memory> {
    addresses: Box<[u32]>,
    range: PortRange,
    pooling: Pooling,
    parity: bool,
    preservation: bool,
    /// Fixed mappings. The pools must not give out their ports.
    fixed: Fixed,
    /// By address, then protocol, then parity.
    pools: Box<[M::Allocator]>,
}

impl<M: Memory> Ports<M> {
    pub(super) fn new(config: &Config, memory: &M) -> Self {
        let addresses = config.external();
        let settings = config.settings();
        let range = config.ports();
        let of_parity = |parity| (range.first..=range.last).filter(|port| port % 2 == parity).count();
        let sizes = [of_parity(0), of_parity(1)];
        let count = addresses.len() * Protocol::COUNT * 2;
        Self {
            addresses,
            range,
            pooling: settings.pooling,
            parity: settings.port_parity,
            preservation: settings.port_preservation,
            fixed: config.fixed().clone(),
            pools: (0..count).map(|pool| memory.allocator(sizes[pool % 2])).collect(),
        }
    }

    /// Takes a port for an inside endpoint: the inside port if it is free; else the port of the same parity that has been free for
    /// longest; else one of the other parity, unless parity must be kept. Returns `None` if no port is free.
    pub(super) fn take<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        protocol: Protocol,
        internal: Endpoint4,
    ) -> Step<Option<Endpoint4>, M> {
        // The external address depends on the host's own address only: "paired" pooling without a table of pairs.
        let spread = u64::from(internal.address.wrapping_mul(0x9e37_79b1));
        let home = ((spread * self.addresses.len() as u64) >> 32) as usize;
        let tried = match self.pooling {
            Pooling::Paired => 1,
            Pooling::Arbitrary => self.addresses.len(),
        };
        for address in (home..self.addresses.len()).chain(0..home).take(tried) {
            if let Some(port) = self.take_at(tx, address, protocol, internal.port)? {
                return Ok(Some(Endpoint4 { address: self.addresses[address], port }));
            }
        }
        Ok(None)
    }

    fn take_at<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        address: usize,
        protocol: Protocol,
        wanted: u16,
    ) -> Step<Option<u16>, M> {
        let is_fixed = |port| {
            let external = Endpoint4 { address: self.addresses[address], port };
            self.fixed.internal_of(protocol, external).is_some()
        };
        if self.preservation && (self.range.first..=self.range.last).contains(&wanted) && !is_fixed(wanted) {
            let (pool, index) = self.place(address, protocol, wanted);
            if pool.allocate_exact(tx, index, Nanos::NEVER)? {
                return Ok(Some(wanted));
            }
        }
        // Parity matters to pairs of UDP ports alone (RTP and RTCP, RFC 4787 section 4.2.2).
        let parities = if self.parity && protocol == Protocol::Udp { 1 } else { 2 };
        for parity in [wanted % 2, 1 - wanted % 2].into_iter().take(parities) {
            while let Some(index) = self.pool(address, protocol, parity).allocate(tx, Nanos::NEVER)? {
                let port = self.lowest(parity) + index as u16 * 2;
                if !is_fixed(port) {
                    return Ok(Some(port));
                }
                // It is never freed, so each fixed port is skipped once.
            }
        }
        Ok(None)
    }

    /// Frees a port.
    pub(super) fn free<'a>(&'a self, tx: &mut M::Tx<'a>, protocol: Protocol, external: Endpoint4) -> Step<(), M> {
        let address = self.addresses.binary_search(&external.address).expect("mappings are to external addresses");
        let (pool, index) = self.place(address, protocol, external.port);
        pool.free(tx, index)
    }

    fn place(&self, address: usize, protocol: Protocol, port: u16) -> (&M::Allocator, usize) {
        let parity = port % 2;
        (self.pool(address, protocol, parity), usize::from(port - self.lowest(parity)) / 2)
    }

    fn pool(&self, address: usize, protocol: Protocol, parity: u16) -> &M::Allocator {
        &self.pools[(address * Protocol::COUNT + protocol as usize) * 2 + usize::from(parity)]
    }

    /// The lowest port of this parity. It is above the end of the range only if the pool is empty.
    fn lowest(&self, parity: u16) -> u16 {
        self.range.first.saturating_add(u16::from(self.range.first % 2 != parity))
    }
}
