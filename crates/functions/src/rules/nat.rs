//! The choice of new addresses and ports for a connection, as Linux makes it (`nf_nat_core.c`): keep what is free, else the mapping that
//! the source has already, else another port.

use nf::Step;
use packet::protocol;

use memory::Memory;

use super::tuple::Tuple;

/// The new addresses and ports that a rule allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// First and last address; `None` keeps the packet's.
    pub(super) addresses: Option<(u128, u128)>,
    /// First and last port; `None` allows any.
    pub(super) ports: Option<(u16, u16)>,
    /// Ports keep their distance from this one.
    pub(super) base: Option<u16>,
    /// The port is never kept.
    pub(super) random: bool,
    /// The address depends on the source alone.
    pub(super) persistent: bool,
}

/// The side of a packet that is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

/// What the choice must know of other connections.
pub(super) trait Others<M: Memory> {
    /// True if another connection has packets with this tuple.
    fn is_used(&mut self, tuple: &Tuple) -> Step<bool, M>;

    /// The address and port that a connection of the same source has now, of those that `accepts` accepts the newest.
    fn source_of(&mut self, tuple: &Tuple, accepts: impl Fn(u128, u16) -> bool) -> Step<Option<(u128, u16)>, M>;
}

/// The most ports that are tried in the first round.
const TRIES_MAX: u32 = 128;
/// The fewest in a later round.
const TRIES_MIN: u32 = 16;

/// Chooses the tuple that packets with this one leave with. It may be used by another connection if no free one was found.
pub(super) fn choose<M: Memory>(
    tuple: Tuple,
    range: &Range,
    side: Side,
    is_v6: bool,
    random: u64,
    others: &mut impl Others<M>,
) -> Step<Tuple, M> {
    if side == Side::Source && !range.random {
        if range.has_source(&tuple) {
            if !others.is_used(&tuple.reversed())? {
                return Ok(tuple);
            }
        } else {
            let mapped = |src: u128, port: u16| Tuple { src, ports: [port, tuple.ports[1]], ..tuple };
            let known = others.source_of(&tuple, |src, port| range.has_source(&mapped(src, port)))?;
            if let Some((src, port)) = known
                && !others.is_used(&mapped(src, port).reversed())?
            {
                return Ok(mapped(src, port));
            }
        }
    }
    let mut new = range.with_address(tuple, side, is_v6);
    if !range.random {
        let is_kept = match range.ports {
            Some((first, last)) => {
                range.base.is_none()
                    && range.has_port(&new, side)
                    && (first == last || !others.is_used(&new.reversed())?)
            }
            None => !others.is_used(&new.reversed())?,
        };
        if is_kept {
            return Ok(new);
        }
    }
    let Some((first, count)) = range.ports_to_try(&new, side) else { return Ok(new) };
    // Two draws of sixteen bits, and more from the same number for later rounds.
    let mut drawn = random;
    let mut next = || {
        drawn = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        u32::from(drawn as u16)
    };
    let mut offset = match range.base {
        Some(base) => u32::from(new.port(side).wrapping_sub(base)),
        None if range.random || side == Side::Source => next(),
        None => 0,
    };
    let mut tries = count.min(TRIES_MAX);
    loop {
        for _ in 0..tries {
            new.set_port(side, (first + offset % count) as u16);
            if !others.is_used(&new.reversed())? {
                return Ok(new);
            }
            offset = offset.wrapping_add(1) & 0xffff;
        }
        if tries >= count || tries < TRIES_MIN {
            return Ok(new);
        }
        tries /= 2;
        offset = next();
    }
}

impl Range {
    /// The one address, and any port that is free.
    pub(super) const fn address(address: u128) -> Self {
        Self { addresses: Some((address, address)), ports: None, base: None, random: false, persistent: false }
    }

    fn has_source(&self, tuple: &Tuple) -> bool {
        self.addresses.is_none_or(|(first, last)| (first..=last).contains(&tuple.src))
            && self.has_port(tuple, Side::Source)
    }

    fn has_port(&self, tuple: &Tuple, side: Side) -> bool {
        match self.ports {
            Some((first, last)) if tuple.has_ports() || tuple.is_icmp() => (first..=last).contains(&tuple.port(side)),
            Some(_) | None => true,
        }
    }

    /// The tuple with an address of the range: of several, one by a hash of the source and, unless the range is persistent, of the
    /// destination.
    fn with_address(&self, mut tuple: Tuple, side: Side, is_v6: bool) -> Tuple {
        let Some((first, last)) = self.addresses else { return tuple };
        let address = match side {
            _ if first == last => first,
            _ => {
                let words = |address: u128| match is_v6 {
                    true => address.to_be_bytes(),
                    false => {
                        let mut bytes = [0; 16];
                        bytes[..4].copy_from_slice(&(address as u32).to_be_bytes());
                        bytes
                    }
                };
                let word = |bytes: [u8; 16], nth: usize| {
                    u32::from_ne_bytes([bytes[4 * nth], bytes[4 * nth + 1], bytes[4 * nth + 2], bytes[4 * nth + 3]])
                };
                let (src, dst, most) = (words(tuple.src), words(tuple.dst), if is_v6 { 3 } else { 0 });
                let seed = if self.persistent { 0 } else { word(dst, most) };
                let hash = jenkins([0, 1, 2, 3].map(|nth| word(src, nth)), seed);
                let mix = [0, 1, 2, 3].map(|nth| if self.persistent { 0 } else { word(dst, nth) });
                spread((first, last), most, hash, mix)
            }
        };
        match side {
            Side::Source => tuple.src = address,
            Side::Destination => tuple.dst = address,
        }
        tuple
    }

    /// The first port and the number of ports to try; `None` if the port stays.
    fn ports_to_try(&self, tuple: &Tuple, side: Side) -> Option<(u32, u32)> {
        let given = self.ports.map(|(first, last)| (u32::from(first), u32::from(last - first) + 1));
        if tuple.is_icmp() {
            return Some(given.unwrap_or((0, 65_536)));
        }
        if !tuple.has_ports() {
            return None;
        }
        match (given, side) {
            (Some(given), _) => Some(given),
            (None, Side::Destination) => None,
            (None, Side::Source) => Some(match tuple.port(side) {
                0..512 => (1, 511),
                512..1024 => (600, 424),
                1024.. => (1024, 64_512),
            }),
        }
    }
}

/// The address of a range by a hash: each word of 32 bits on its own. Once a word is below the last address's, the rest is free.
fn spread((first, last): (u128, u128), most: usize, mut hash: u32, mix: [u32; 4]) -> u128 {
    let scaled = |hash: u32, count: u32| ((u64::from(hash) * u64::from(count)) >> 32) as u32;
    if most == 0 {
        let (first, last) = (first as u32, last as u32);
        return first.wrapping_add(scaled(hash, last.wrapping_sub(first).wrapping_add(1))).into();
    }
    let word = |address: u128, nth: usize| (address >> (96 - 32 * nth)) as u32;
    let (mut address, mut is_free) = (0_u128, false);
    for (nth, mix) in mix.into_iter().enumerate() {
        let (low, count) = match is_free {
            true => (0, u32::MAX),
            false => (word(first, nth), word(last, nth).wrapping_sub(word(first, nth)).wrapping_add(1)),
        };
        let part = low.wrapping_add(scaled(hash, count));
        is_free |= part != word(last, nth);
        address = address << 32 | u128::from(part);
        hash ^= mix;
    }
    address
}

/// Bob Jenkins' hash of words (lookup3, `jhash2` of Linux).
const fn jenkins(words: [u32; 4], seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(4 << 2).wrapping_add(seed);
    let (mut a, mut b, mut c) =
        (start.wrapping_add(words[0]), start.wrapping_add(words[1]), start.wrapping_add(words[2]));
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    a = a.wrapping_add(words[3]);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

impl Tuple {
    /// True for protocols with ports that are rewritten.
    pub(super) const fn has_ports(&self) -> bool {
        /// Datagram congestion control, and UDP-Lite.
        const DCCP: u8 = 33;
        const UDP_LITE: u8 = 136;
        matches!(self.protocol, protocol::TCP | protocol::UDP | protocol::SCTP | DCCP | UDP_LITE)
    }

    /// The place of a side's port: an ICMP query has one identifier.
    const fn place(&self, side: Side) -> usize {
        if self.is_icmp() { 0 } else { side as usize }
    }

    const fn port(&self, side: Side) -> u16 {
        self.ports[self.place(side)]
    }

    const fn set_port(&mut self, side: Side, port: u16) {
        self.ports[self.place(side)] = port;
    }
}
