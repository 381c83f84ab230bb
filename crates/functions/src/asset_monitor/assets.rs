//! The shared state: hosts, services, and the sum of all traffic. A pool each ages hosts and services; its indices map back to their
//! keys.

use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv6Addr};

use memory::{Allocator, Map, Memory, Portion, Vector};
use nf::{Fingerprint, Kept, Step};
use packet::{Endpoint, Family, FiveTuple, FiveTuple6, FlowKey, Host, Host6, Nanos, Words};

use super::config::Config;
use super::systems::{System, Told};

/// A known host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asset {
    /// Its system.
    pub told: Told,
    /// Number of services found.
    pub services: u32,
    /// When it was noted first.
    pub first: Nanos,
    /// When it was noted last.
    pub last: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostEntry {
    asset: Asset,
    index: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServiceEntry {
    class: u16,
    index: u32,
    last: Nanos,
}

/// The services of a host: transport protocol and port, and application protocol.
pub(super) type Services = BTreeMap<(u8, u16), u16>;

/// Hosts with their services, by address.
pub(super) type Hosts = BTreeMap<IpAddr, (Asset, Services)>;

/// The sum of all TCP and UDP traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Traffic {
    pub(super) const fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

impl Portion for Traffic {
    fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

packet::words! {
    Traffic: [2], traffic => [traffic.packets, traffic.bytes], words => Self { packets: words[0], bytes: words[1] };
    Asset: [4], asset => {
        let Told { system, evidence } = asset.told;
        [u64::from(evidence) << 8 | system as u64, asset.services.into(), asset.first.0, asset.last.0]
    }, words => {
        let [small, services, first, last] = words;
        let system = System::from_number(small as u8).unwrap_or_default();
        let told = Told { system, evidence: (small >> 8) as u8 };
        Self { told, services: services as u32, first: Nanos(first), last: Nanos(last) }
    };
    HostEntry: [4], entry => {
        let [small, services, first, last] = entry.asset.to_words();
        [u64::from(entry.index) << 16 | small, services, first, last]
    }, words => Self { asset: Asset::from_words(words), index: (words[0] >> 16) as u32 };
    ServiceEntry: [2], entry => [u64::from(entry.index) << 16 | u64::from(entry.class), entry.last.0],
        words => Self { class: words[0] as u16, index: (words[0] >> 16) as u32, last: Nanos(words[1]) };
}

/// The shared state.
pub struct Assets<M: Memory> {
    /// All traffic.
    pub(super) traffic: M::Distributed<Traffic>,
    hosts: M::Map<Host6, HostEntry>,
    host_pool: M::Allocator,
    host_names: M::Vector<Host6>,
    services: M::Map<FiveTuple6, ServiceEntry>,
    service_pool: M::Allocator,
    service_names: M::Vector<FiveTuple6>,
    timeout: Nanos,
}

/// How many expired entries are reclaimed before a new one is added.
const RECLAIMED: usize = 2;

/// Returns an address as a key for both families.
fn host_name(address: IpAddr) -> Host6 {
    match Host::from(address).family() {
        Family::V4(host) => host.mapped(),
        Family::V6(host) => host,
    }
}

/// Returns the key of a service: a five-tuple with an unspecified destination.
fn service_name(place: Endpoint, protocol: u8) -> FiveTuple6 {
    let address = match place.address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    match FiveTuple::v6(address, Ipv6Addr::UNSPECIFIED, place.port, 0, protocol).family() {
        Family::V6(name) => name,
        Family::V4(_) => unreachable!("it was made of IPv6 addresses"),
    }
}

impl<M: Memory> Assets<M> {
    pub(super) fn new(memory: &M, config: &Config) -> Self {
        let nobody = Endpoint::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let (hosts, services) = (config.hosts(), config.services());
        Self {
            traffic: memory.distributed(Traffic::default(), Nanos(0)),
            hosts: memory.map(hosts),
            host_pool: memory.allocator(hosts),
            host_names: memory.vector(hosts, host_name(nobody.address)),
            services: memory.map(services),
            service_pool: memory.allocator(services),
            service_names: memory.vector(services, service_name(nobody, 0)),
            timeout: config.asset_timeout(),
        }
    }

    /// Notes a host and the guess of its system. Returns the host's entry; `None` if there is no room.
    pub(super) fn note_host<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        address: IpAddr,
        told: Told,
    ) -> Step<Option<Asset>, M> {
        let name = host_name(address);
        let fresh = Asset { told, services: 0, first: now, last: now };
        let (asset, index) = match self.hosts.get(tx, &name)? {
            Some(HostEntry { asset, index }) if asset.last + self.timeout > now => {
                // Of two equally good guesses the later one, because addresses change hands.
                let told = if told.evidence >= asset.told.evidence && told.evidence > 0 { told } else { asset.told };
                // Steps of sessions on other cores aren't in time order.
                (Asset { told, first: asset.first.min(now), last: asset.last.max(now), ..asset }, index)
            }
            Some(HostEntry { index, .. }) => (fresh, index),
            None => {
                self.reclaim_hosts(tx, now)?;
                let Some(index) = self.host_pool.allocate(tx, now + self.timeout)? else { return Ok(None) };
                self.host_names.write(tx, index, name)?;
                (fresh, index as u32)
            }
        };
        self.host_pool.refresh(tx, index as usize, now + self.timeout)?;
        // The map has as much room as the pool has indices.
        self.hosts.insert(tx, name, HostEntry { asset, index })?;
        Ok(Some(asset))
    }

    /// Counts a service found at a host. Returns the host's entry.
    pub(super) fn count_service<'a>(&'a self, tx: &mut M::Tx<'a>, address: IpAddr) -> Step<Option<Asset>, M> {
        let name = host_name(address);
        let Some(mut entry) = self.hosts.get(tx, &name)? else { return Ok(None) };
        entry.asset.services = entry.asset.services.saturating_add(1);
        self.hosts.insert(tx, name, entry)?;
        Ok(Some(entry.asset))
    }

    /// Notes a service, and its application protocol if known. Returns true if the service is new.
    pub(super) fn note_service<'a>(
        &'a self,
        tx: &mut M::Tx<'a>,
        now: Nanos,
        place: Endpoint,
        protocol: u8,
        class: u16,
    ) -> Step<bool, M> {
        let name = service_name(place, protocol);
        let (class, index, last, is_new) = match self.services.get(tx, &name)? {
            Some(known) if known.last + self.timeout > now => {
                (if class > 0 { class } else { known.class }, known.index, known.last.max(now), false)
            }
            Some(stale) => (class, stale.index, now, true),
            None => {
                self.reclaim_services(tx, now)?;
                let Some(index) = self.service_pool.allocate(tx, now + self.timeout)? else { return Ok(false) };
                self.service_names.write(tx, index, name)?;
                (class, index as u32, now, true)
            }
        };
        self.service_pool.refresh(tx, index as usize, now + self.timeout)?;
        self.services.insert(tx, name, ServiceEntry { class, index, last })?;
        Ok(is_new)
    }

    fn reclaim_hosts<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<(), M> {
        for _ in 0..RECLAIMED {
            let Some(index) = self.host_pool.expire(tx, now)? else { break };
            let name = self.host_names.read(tx, index)?;
            self.hosts.remove(tx, &name)?;
        }
        Ok(())
    }

    fn reclaim_services<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<(), M> {
        for _ in 0..RECLAIMED {
            let Some(index) = self.service_pool.expire(tx, now)? else { break };
            let name = self.service_names.read(tx, index)?;
            self.services.remove(tx, &name)?;
        }
        Ok(())
    }

    /// Keeps the traffic, and hosts and services with their pools.
    pub(super) fn keep<'a>(&'a self, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        kept.distributed::<M, _>(tx, &self.traffic)?;
        for place in kept.pool::<M>(tx, &self.host_pool)? {
            let Some(name) = kept.element::<M, _>(tx, &self.host_names, place)? else { return Ok(()) };
            let index = place as u32;
            let known = self.hosts.get(tx, &name)?.unwrap_or(HostEntry { asset: Asset::default(), index });
            let Some(asset) = kept.value(known.asset) else { return Ok(()) };
            if kept.reads() {
                self.hosts.insert(tx, name, HostEntry { asset, index })?;
            }
        }
        for place in kept.pool::<M>(tx, &self.service_pool)? {
            let Some(name) = kept.element::<M, _>(tx, &self.service_names, place)? else { return Ok(()) };
            let index = place as u32;
            let empty = ServiceEntry { class: 0, index, last: Nanos(0) };
            let known = self.services.get(tx, &name)?.unwrap_or(empty);
            let Some(entry) = kept.value(known) else { return Ok(()) };
            if kept.reads() {
                self.services.insert(tx, name, ServiceEntry { index, ..entry })?;
            }
        }
        Ok(())
    }

    /// Returns all hosts known at `now` with their services, by address, and the sum of all traffic.
    pub(super) fn known<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Step<(Hosts, Traffic), M> {
        let mut hosts = Hosts::new();
        for index in 0..self.host_pool.capacity() {
            if !self.host_pool.is_allocated(tx, index)? {
                continue;
            }
            let name = self.host_names.read(tx, index)?;
            let Some(HostEntry { asset, .. }) = self.hosts.get(tx, &name)? else { continue };
            if asset.last + self.timeout > now {
                hosts.insert(Host::from_v6(name).address().to_canonical(), (asset, Services::new()));
            }
        }
        for index in 0..self.service_pool.capacity() {
            if !self.service_pool.is_allocated(tx, index)? {
                continue;
            }
            let name = self.service_names.read(tx, index)?;
            let Some(ServiceEntry { class, last, .. }) = self.services.get(tx, &name)? else { continue };
            let place = FiveTuple::from_v6(name);
            let known = hosts.get_mut(&place.source().address.to_canonical());
            if let Some((_, services)) = known.filter(|_| last + self.timeout > now) {
                services.insert((place.protocol(), place.source().port), class);
            }
        }
        Ok((hosts, memory::Distributed::read(&self.traffic, tx, Nanos::NEVER)?))
    }

    /// Adds sums of digests to the fingerprint, because the index of an entry has no visible effect.
    pub(super) fn fingerprint<'a>(&'a self, tx: &mut M::Tx<'a>, fingerprint: &mut Fingerprint) -> Step<(), M> {
        let (mut hosts, mut services) = (0_u64, 0_u64);
        for index in 0..self.host_pool.capacity() {
            if !self.host_pool.is_allocated(tx, index)? {
                continue;
            }
            let name = self.host_names.read(tx, index)?;
            let Some(HostEntry { asset, .. }) = self.hosts.get(tx, &name)? else { continue };
            let [a, b] = Words::to_words(&name);
            let told = u64::from(asset.told.evidence) << 8 | asset.told.system as u64;
            hosts = hosts.wrapping_add(digest(&[a, b, told, asset.services.into(), asset.first.0, asset.last.0]));
        }
        for index in 0..self.service_pool.capacity() {
            if !self.service_pool.is_allocated(tx, index)? {
                continue;
            }
            let name = self.service_names.read(tx, index)?;
            let Some(ServiceEntry { class, last, .. }) = self.services.get(tx, &name)? else { continue };
            let [a, b, _, _, rest] = Words::to_words(&name);
            services = services.wrapping_add(digest(&[a, b, rest, class.into(), last.0]));
        }
        // `Nanos::NEVER` forces a merge.
        let Traffic { packets, bytes } = memory::Distributed::read(&self.traffic, tx, Nanos::NEVER)?;
        [hosts, services, packets, bytes].into_iter().for_each(|word| fingerprint.add(word));
        Ok(())
    }
}

fn digest(words: &[u64]) -> u64 {
    let mut digest = Fingerprint::default();
    words.iter().for_each(|word| digest.add(*word));
    digest.value()
}
