//! Builds frames for tests, layer by layer, with right lengths and checksums.
//!
//! ```
//! use packet::TcpFlags;
//! use millrace_synth::Build;
//!
//! let syn = Build::tcp("10.0.0.1:40000", "10.0.0.2:80").flags(TcpFlags::SYN).seq(7).mss(1460).vlan(12).bytes();
//! assert_eq!(syn.len(), 14 + 4 + 20 + 24);
//! ```

mod layout;

use std::net::{IpAddr, SocketAddr};

use packet::{Endpoint, Headers, LinkType, Mac, TcpFlags};

use layout::whole_words;
pub use layout::{folded, sum};

/// A frame builder. Every method sets one thing; [`Build::bytes`] returns the frame.
#[derive(Clone, Debug)]
pub struct Build {
    link: LinkType,
    macs: (Mac, Mac),
    vlans: Vec<(u16, u16)>,
    src: Endpoint,
    dst: Endpoint,
    ttl: u8,
    tos: u8,
    id: u16,
    ip_options: Vec<u8>,
    extensions: Vec<(u8, Vec<u8>)>,
    fragment: Option<(u16, bool)>,
    transport: Layer,
    payload: Vec<u8>,
    pad_to: usize,
    spoiled: bool,
}

/// The transport layer of a frame in the making.
#[derive(Clone, Debug)]
enum Layer {
    Tcp { seq: u32, ack: u32, flags: TcpFlags, window: u16, options: Vec<u8> },
    Udp { checksum: bool },
    Icmp { kind: u8, code: u8, rest: [u8; 4] },
    Other(u8),
}

/// An address with a port: `"10.0.0.1:80"`, `"[2001:db8::1]:80"`, a bare address (port 0), or typed forms.
pub trait At {
    /// The endpoint.
    ///
    /// # Panics
    /// A text is not an endpoint.
    fn endpoint(self) -> Endpoint;
}

impl At for Endpoint {
    fn endpoint(self) -> Endpoint {
        self
    }
}

impl At for SocketAddr {
    fn endpoint(self) -> Endpoint {
        Endpoint::new(self.ip(), self.port())
    }
}

impl At for IpAddr {
    fn endpoint(self) -> Endpoint {
        Endpoint::new(self, 0)
    }
}

impl At for &str {
    fn endpoint(self) -> Endpoint {
        match self.parse::<SocketAddr>() {
            Ok(socket) => socket.endpoint(),
            Err(_) => self.parse::<IpAddr>().unwrap_or_else(|_| panic!("{self:?} is no address")).endpoint(),
        }
    }
}

impl Build {
    fn new(src: impl At, dst: impl At, transport: Layer) -> Self {
        let (src, dst) = (src.endpoint(), dst.endpoint());
        assert_eq!(src.address.is_ipv4(), dst.address.is_ipv4(), "both addresses are of one family");
        Self {
            link: LinkType::Ethernet,
            macs: (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])),
            vlans: Vec::new(),
            src,
            dst,
            ttl: 64,
            tos: 0,
            id: 0,
            ip_options: Vec::new(),
            extensions: Vec::new(),
            fragment: None,
            transport,
            payload: Vec::new(),
            pad_to: 0,
            spoiled: false,
        }
    }

    /// A TCP segment; by default an acknowledgement with sequence number 0.
    #[must_use]
    pub fn tcp(src: impl At, dst: impl At) -> Self {
        let layer = Layer::Tcp { seq: 0, ack: 0, flags: TcpFlags::ACK, window: 0xffff, options: Vec::new() };
        Self::new(src, dst, layer)
    }

    /// A UDP datagram.
    #[must_use]
    pub fn udp(src: impl At, dst: impl At) -> Self {
        Self::new(src, dst, Layer::Udp { checksum: true })
    }

    /// An ICMP or ICMPv6 message, by the addresses' family. `rest` is the second word of its header.
    #[must_use]
    pub fn icmp(src: impl At, dst: impl At, kind: u8, code: u8, rest: [u8; 4]) -> Self {
        Self::new(src, dst, Layer::Icmp { kind, code, rest })
    }

    /// An echo request, ICMP or ICMPv6.
    #[must_use]
    pub fn echo(src: impl At, dst: impl At, identifier: u16, number: u16) -> Self {
        let src = src.endpoint();
        let kind = if src.address.is_ipv4() { 8 } else { 128 };
        Self::icmp(src, dst, kind, 0, echo_word(identifier, number))
    }

    /// An echo reply, ICMP or ICMPv6.
    #[must_use]
    pub fn echo_reply(src: impl At, dst: impl At, identifier: u16, number: u16) -> Self {
        let src = src.endpoint();
        let kind = if src.address.is_ipv4() { 0 } else { 129 };
        Self::icmp(src, dst, kind, 0, echo_word(identifier, number))
    }

    /// An ICMP error that quotes a packet: all bytes of `quoted`, an IP header and what follows.
    #[must_use]
    pub fn icmp_error(src: impl At, dst: impl At, kind: u8, code: u8, quoted: &[u8]) -> Self {
        Self::icmp(src, dst, kind, code, [0; 4]).data(quoted)
    }

    /// An IP packet of any protocol, which carries the payload alone.
    #[must_use]
    pub fn ip(src: impl At, dst: impl At, protocol: u8) -> Self {
        Self::new(src, dst, Layer::Other(protocol))
    }

    /// An ARP request, ready made: nothing of it can be set.
    #[must_use]
    pub fn arp() -> Vec<u8> {
        let mut bytes = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x06];
        bytes.extend([0, 1, 8, 0, 6, 4, 0, 1]);
        bytes.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        bytes.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        bytes
    }

    /// How the frame begins: Ethernet, raw IP, loopback or Linux cooked.
    #[must_use]
    pub const fn link(mut self, link: LinkType) -> Self {
        self.link = link;
        self
    }

    /// Source and destination Ethernet address.
    #[must_use]
    pub const fn macs(mut self, src: Mac, dst: Mac) -> Self {
        self.macs = (src, dst);
        self
    }

    /// One more 802.1Q tag, inside those there are.
    #[must_use]
    pub fn vlan(mut self, id: u16) -> Self {
        self.vlans.push((0x8100, id));
        self
    }

    /// One more 802.1ad service tag, inside those there are.
    #[must_use]
    pub fn service_vlan(mut self, id: u16) -> Self {
        self.vlans.push((0x88a8, id));
        self
    }

    /// Time to live, or hop limit.
    #[must_use]
    pub const fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Type of service, or traffic class.
    #[must_use]
    pub const fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// The identification that fragments share.
    #[must_use]
    pub const fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }

    /// IPv4 options, filled up to whole words.
    #[must_use]
    pub fn ip_options(mut self, options: &[u8]) -> Self {
        self.ip_options = whole_words(options);
        self
    }

    /// Adds an IPv6 extension header after the existing ones: its number, and its bytes without the first two, padded to a multiple of
    /// eight.
    #[must_use]
    pub fn extension(mut self, number: u8, body: &[u8]) -> Self {
        let mut body = body.to_vec();
        body.resize((body.len() + 2).next_multiple_of(8) - 2, 0);
        self.extensions.push((number, body));
        self
    }

    /// Makes it one fragment: `offset` bytes into the datagram, with or without more fragments after it. A fragment with an offset above
    /// 0 carries only the payload.
    #[must_use]
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        assert!(offset.is_multiple_of(8), "fragments begin at multiples of eight");
        self.fragment = Some((offset, more));
        self
    }

    /// The TCP flags.
    #[must_use]
    pub fn flags(mut self, new: TcpFlags) -> Self {
        if let Layer::Tcp { flags, .. } = &mut self.transport {
            *flags = new;
        }
        self
    }

    /// The TCP sequence number.
    #[must_use]
    pub fn seq(mut self, new: u32) -> Self {
        if let Layer::Tcp { seq, .. } = &mut self.transport {
            *seq = new;
        }
        self
    }

    /// The TCP acknowledgement number, and the flag that makes it count.
    #[must_use]
    pub fn ack(mut self, new: u32) -> Self {
        if let Layer::Tcp { ack, flags, .. } = &mut self.transport {
            *ack = new;
            *flags = flags.with(TcpFlags::ACK);
        }
        self
    }

    /// The TCP window, as sent.
    #[must_use]
    pub fn window(mut self, new: u16) -> Self {
        if let Layer::Tcp { window, .. } = &mut self.transport {
            *window = new;
        }
        self
    }

    /// Adds raw TCP options after the existing ones.
    #[must_use]
    pub fn options(mut self, more: &[u8]) -> Self {
        if let Layer::Tcp { options, .. } = &mut self.transport {
            options.extend_from_slice(more);
            assert!(options.len() <= 40, "TCP has room for 40 bytes of options");
        }
        self
    }

    /// The TCP option for the maximum segment size.
    #[must_use]
    pub fn mss(self, mss: u16) -> Self {
        let [high, low] = mss.to_be_bytes();
        self.options(&[2, 4, high, low])
    }

    /// The TCP option for the window scale.
    #[must_use]
    pub fn window_scale(self, shift: u8) -> Self {
        self.options(&[1, 3, 3, shift])
    }

    /// The TCP option that permits selective acknowledgements.
    #[must_use]
    pub fn sack_permitted(self) -> Self {
        self.options(&[1, 1, 4, 2])
    }

    /// The TCP option with selective acknowledgements: left and right edges.
    #[must_use]
    pub fn sack(self, blocks: &[(u32, u32)]) -> Self {
        let mut option = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
        for (left, right) in blocks {
            option.extend(left.to_be_bytes());
            option.extend(right.to_be_bytes());
        }
        self.options(&option)
    }

    /// Sets a UDP checksum of zero, which means none.
    #[must_use]
    pub fn without_checksum(mut self) -> Self {
        if let Layer::Udp { checksum } = &mut self.transport {
            *checksum = false;
        }
        self
    }

    /// Makes the transport checksum wrong.
    #[must_use]
    pub const fn spoiled(mut self) -> Self {
        self.spoiled = true;
        self
    }

    /// A payload of this many bytes, which count up from 0.
    #[must_use]
    pub fn payload(mut self, len: usize) -> Self {
        self.payload = (0..len).map(|index| index as u8).collect();
        self
    }

    /// This payload.
    #[must_use]
    pub fn data(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Extends the payload until the frame has this many bytes. Call it last.
    ///
    /// # Panics
    /// The frame is already longer.
    #[must_use]
    pub fn frame_len(mut self, len: usize) -> Self {
        let grow = len.checked_sub(self.bytes().len()).expect("the headers fit the frame");
        self.payload.resize(self.payload.len() + grow, 0);
        self
    }

    /// Pads the frame to this many bytes after the IP packet, as senders do with short frames.
    #[must_use]
    pub const fn pad_to(mut self, len: usize) -> Self {
        self.pad_to = len;
        self
    }

    /// The frame.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.frame(&self.datagram())
    }

    /// The IP packet alone, as an ICMP error quotes it.
    #[must_use]
    pub fn datagram(&self) -> Vec<u8> {
        match self.fragment {
            Some((offset, _)) if offset > 0 => self.network(&self.payload, self.fragment),
            _ => self.network(&self.segment(), self.fragment),
        }
    }

    /// Splits the datagram into fragments of at most `mtu` bytes, including the IP header; returns the frames in order.
    ///
    /// # Panics
    /// The headers leave no room for eight bytes in a fragment.
    #[must_use]
    pub fn fragments(&self, mtu: usize) -> Vec<Vec<u8>> {
        let segment = self.segment();
        let room = (mtu - self.network(&[], Some((0, true))).len()) & !7;
        assert!(room > 0, "a fragment has room for eight bytes");
        let last = segment.len().saturating_sub(1) / room;
        let cut = |(index, part): (usize, &[u8])| {
            self.frame(&self.network(part, Some(((index * room) as u16, index < last))))
        };
        segment.chunks(room).enumerate().map(cut).collect()
    }

    /// The frame, parsed.
    ///
    /// # Panics
    /// The frame is malformed.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let bytes = self.bytes();
        packet::parse(self.link, &bytes, bytes.len() as u32, 0).expect("well-formed frames are built")
    }
}

fn echo_word(identifier: u16, number: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (identifier.to_be_bytes(), number.to_be_bytes());
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use packet::protocol;

    use super::*;

    /// The example of an IPv4 header that everybody computes: checksum 0xb861.
    #[test]
    fn header_checksum() {
        let build = Build::ip("192.168.0.1", "192.168.0.199", protocol::UDP).data(&[0; 95]);
        let header = [&build.datagram()[..6], &[0x40, 0][..], &build.datagram()[8..20]].concat();
        let known = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(!folded(sum(0, &[&known[..10], &known[12..]].concat())), 0xb861);
        assert_eq!(header[12..], known[12..]);
        assert_eq!(folded(sum(0, &build.datagram()[..20])), 0xffff, "a header with its checksum sums to ones");
    }

    #[test]
    fn chosen_length() {
        assert_eq!(Build::tcp("10.0.0.1:1", "10.0.0.2:2").frame_len(64).bytes().len(), 64);
        assert_eq!(Build::udp("[::1]:1", "[::2]:2").vlan(3).frame_len(128).bytes().len(), 128);
        assert_eq!(Build::udp("10.0.0.1:1", "10.0.0.2:2").pad_to(60).bytes().len(), 60);
    }

    #[test]
    fn fragments_make_up_the_datagram() {
        for (src, dst) in [("10.0.0.1:1", "10.0.0.2:2"), ("[::1]:1", "[::2]:2")] {
            let whole = Build::udp(src, dst).id(9).payload(3001);
            let fragments = whole.fragments(576);
            let header = if src.starts_with('[') { 14 + 48 } else { 14 + 20 };
            let joined: Vec<u8> = fragments.iter().flat_map(|frame| frame[header..].to_vec()).collect();
            assert_eq!(joined, whole.segment());
            assert!(fragments.iter().all(|frame| frame.len() <= 14 + 576));
        }
    }
}
