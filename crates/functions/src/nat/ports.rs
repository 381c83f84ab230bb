//! Allocation of external ports: one pool for each address, protocol and parity, so that any wanted port is found in one step.

use alloc::vec::Vec;
use core::mem;

use memory::{Allocator, Map, Memory};
use nf::{Kept, Step};
use packet::{FiveTuple4, Nanos};

use super::config::{Config, Pooling, PortRange};
use super::fixed::Fixed;
use super::state::{Endpoint4, Protocol, external_key};

/// The pools of external ports. TCP, UDP and ICMP queries use a port independently.
pub(super) struct Ports<M: Memory> {
    /// In the order of the addresses.
    addresses: Vec<OfAddress<M>>,
    /// True if mappings may be older than pools: those have ports that the pools don't know to be in use.
    are_younger: bool,
    range: PortRange,
    pooling: Pooling,
    parity: bool,
    preservation: bool,
    /// Fixed mappings. The pools must not give out their ports.
    fixed: Fixed,
}

/// The pools of an external address.
struct OfAddress<M: Memory> {
    address: u32,
    /// By protocol, then parity.
    pools: [M::Allocator; Protocol::COUNT * 2],
}

impl<M: Memory> OfAddress<M> {
    fn new(address: u32, range: PortRange, memory: &M) -> Self {
        let of_parity = |parity| (range.first..=range.last).filter(|port| port % 2 == parity).count();
        let sizes = [of_parity(0), of_parity(1)];
        Self { address, pools: core::array::from_fn(|pool| memory.allocator(sizes[pool % 2])) }
    }
}

impl<M: Memory> Ports<M> {
    pub(super) fn new(config: &Config, is_successor: bool, memory: &M) -> Self {
        let (settings, range) = (config.settings(), config.ports());
        Self {
            addresses: config.external().iter().map(|&address| OfAddress::new(address, range, memory)).collect(),
            are_younger: is_successor,
            range,
            pooling: settings.pooling,
            parity: settings.port_parity,
            preservation: settings.port_preservation,
            fixed: config.fixed().clone(),
        }
    }

    /// Goes on with another configuration. An address with the same ports keeps its pools.
    pub(super) fn adopt(&mut self, config: &Config, memory: &M) {
        let (settings, range, fixed) = (config.settings(), config.ports(), config.fixed());
        let mut old = mem::take(&mut self.addresses);
        let of = |&address: &u32| {
            let known = old.iter().position(|of| of.address == address).map(|at| old.swap_remove(at));
            let is_same = range == self.range && fixed.forwards_of(address).eq(self.fixed.forwards_of(address));
            known.filter(|_| is_same).unwrap_or_else(|| OfAddress::new(address, range, memory))
        };
        self.addresses = config.external().iter().map(of).collect();
        (self.range, self.fixed, self.are_younger) = (range, fixed.clone(), true);
        (self.pooling, self.parity, self.preservation) =
            (settings.pooling, settings.port_parity, settings.port_preservation);
    }

    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        for pool in self.addresses.iter().flat_map(|of| &of.pools) {
            kept.pool::<M>(tx, pool)?;
        }
        Ok(())
    }

    /// Takes a port for an inside endpoint: the inside port if it is free; else the port of the same parity that has been free for
    /// longest; else one of the other parity, unless parity must be kept. Returns `None` if no port is free. `mapped` has the external
    /// endpoints that are in use.
    pub(super) fn take<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        mapped: &'a M::Map<FiveTuple4, u32>,
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
        for of in self.addresses[home..].iter().chain(&self.addresses[..home]).take(tried) {
            if let Some(port) = self.take_at(tx, mapped, of, protocol, internal.port)? {
                return Ok(Some(Endpoint4 { address: of.address, port }));
            }
        }
        Ok(None)
    }

    fn take_at<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        mapped: &'a M::Map<FiveTuple4, u32>,
        of: &'a OfAddress<M>,
        protocol: Protocol,
        wanted: u16,
    ) -> Step<Option<u16>, M> {
        let end = |port| Endpoint4 { address: of.address, port };
        let is_fixed = |port| self.fixed.internal_of(protocol, end(port)).is_some();
        // An older mapping frees it in the end, as if it had got it from this pool.
        let is_mapped = |tx: &mut M::Tx<'a>, port| match self.are_younger {
            true => Ok(mapped.get(tx, &external_key(end(port), protocol))?.is_some()),
            false => Ok(false),
        };
        if self.preservation && (self.range.first..=self.range.last).contains(&wanted) && !is_fixed(wanted) {
            let (pool, index) = self.place(of, protocol, wanted);
            if pool.allocate_exact(tx, index, Nanos::NEVER)? && !is_mapped(tx, wanted)? {
                return Ok(Some(wanted));
            }
        }
        // Parity matters to pairs of UDP ports alone (RTP and RTCP, RFC 4787 section 4.2.2).
        let parities = if self.parity && protocol == Protocol::Udp { 1 } else { 2 };
        for parity in [wanted % 2, 1 - wanted % 2].into_iter().take(parities) {
            while let Some(index) = pool(of, protocol, parity).allocate(tx, Nanos::NEVER)? {
                let port = self.lowest(parity) + index as u16 * 2;
                if !is_fixed(port) && !is_mapped(tx, port)? {
                    return Ok(Some(port));
                }
                // A fixed port is never freed, so each is skipped once.
            }
        }
        Ok(None)
    }

    /// Frees a port. One that this configuration has not stays as it is.
    pub(super) fn free<'a>(&'a self, tx: &mut M::Tx<'a>, protocol: Protocol, external: Endpoint4) -> Step<(), M> {
        let Ok(at) = self.addresses.binary_search_by_key(&external.address, |of| of.address) else { return Ok(()) };
        if !(self.range.first..=self.range.last).contains(&external.port) {
            return Ok(());
        }
        let (pool, index) = self.place(&self.addresses[at], protocol, external.port);
        pool.free(tx, index)
    }

    fn place<'a>(&self, of: &'a OfAddress<M>, protocol: Protocol, port: u16) -> (&'a M::Allocator, usize) {
        let parity = port % 2;
        (pool(of, protocol, parity), usize::from(port - self.lowest(parity)) / 2)
    }

    /// The lowest port of this parity. It is above the end of the range only if the pool is empty.
    fn lowest(&self, parity: u16) -> u16 {
        self.range.first.saturating_add(u16::from(self.range.first % 2 != parity))
    }
}

fn pool<M: Memory>(of: &OfAddress<M>, protocol: Protocol, parity: u16) -> &M::Allocator {
    &of.pools[protocol as usize * 2 + usize::from(parity)]
}
