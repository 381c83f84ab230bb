//! The syntax of packets in case files: `tcp 10.0.0.1:40000 > 198.51.100.1:80 S seq 7`. Fields that are left out have a default, or stay
//! unchanged in an outcome.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use packet::{Endpoint, Fragment, Headers, LinkType, Mac, Network, TcpFlags, Transport};

use super::tokens::{Token, Tokens, hex, show, split};
use synth::Build;

/// A packet as given in a case file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    macs: Option<(Mac, Mac)>,
    vlans: Option<Vec<u16>>,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    /// The one ARP request that [`Build::arp`] makes.
    Arp,
    /// A whole frame.
    Frame(Vec<u8>),
    Ip(Ip),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ip {
    src: Endpoint,
    dst: Endpoint,
    kind: Kind,
    ttl: Option<u8>,
    tos: Option<u8>,
    id: Option<u16>,
    /// Offset in bytes, and whether more follow.
    fragment: Option<(u16, bool)>,
    payload: Option<Payload>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Tcp {
        flags: Option<TcpFlags>,
        seq: Option<u32>,
        ack: Option<u32>,
        window: Option<u16>,
        mss: Option<u16>,
        wscale: Option<u8>,
        sack: bool,
    },
    Udp,
    Icmp {
        kind: u8,
        code: u8,
        id: Option<u16>,
        seq: Option<u16>,
    },
    Other(u8),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Payload {
    Bytes(Vec<u8>),
    /// The packet that an ICMP error is about.
    Quoted(Box<Ip>),
}

/// Letters of the TCP flags, as tcpdump has them.
const FLAGS: [(char, TcpFlags); 8] = [
    ('F', TcpFlags::FIN),
    ('S', TcpFlags::SYN),
    ('R', TcpFlags::RST),
    ('P', TcpFlags::PSH),
    ('.', TcpFlags::ACK),
    ('U', TcpFlags::URG),
    ('E', TcpFlags::ECE),
    ('W', TcpFlags::CWR),
];

/// ICMP queries by name: type over IPv4 and over IPv6.
const QUERIES: [(&str, u8, u8); 2] = [("echo-request", 8, 128), ("echo-reply", 0, 129)];

impl Spec {
    /// Reads a packet.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(&mut Tokens::new(&split(text)?))
    }

    /// Reads a packet up to the end of the words.
    pub(super) fn read(words: &mut Tokens<'_>) -> Result<Self, String> {
        let macs = match words.take("eth") {
            true => Some((mac(words)?, arrow(words, mac)?)),
            false => None,
        };
        let mut vlans = None;
        while words.take("vlan") {
            vlans.get_or_insert_with(Vec::new).push(words.number("a VLAN's number")?);
        }
        let body = if words.take("arp") {
            Body::Arp
        } else if words.take("hex") {
            if macs.is_some() || vlans.is_some() {
                return Err("`hex` gives a whole frame, including addresses and tags".to_owned());
            }
            Body::Frame(bytes(words)?)
        } else {
            Body::Ip(Ip::read(words)?)
        };
        match words.next() {
            None => Ok(Self { macs, vlans, body }),
            Some(Token::Plain(word)) if word.bytes().all(|letter| b"FSRPAUEW".contains(&letter)) => Err(format!(
                "`{word}` isn't allowed here: flags follow the addresses of a TCP segment, as in tcpdump: S, S., ., \
                 P., F., R"
            )),
            Some(more) => Err(format!("{} isn't allowed here", show(more))),
        }
    }

    /// True if all bytes follow from the incoming packet and from the fields given here.
    pub(super) fn changes(&self, before: &Self) -> bool {
        match (&self.body, &before.body) {
            (Body::Ip(one), Body::Ip(other)) => {
                std::mem::discriminant(&one.kind) == std::mem::discriminant(&other.kind)
                    && one.src.address.is_ipv4() == other.src.address.is_ipv4()
            }
            (Body::Frame(_), _) => true,
            (Body::Arp | Body::Ip(_), _) => false,
        }
    }

    /// The fields given here, and for all others those of the other spec.
    #[must_use]
    pub(super) fn over(&self, other: &Self) -> Self {
        let body = match (&self.body, &other.body) {
            (Body::Ip(one), Body::Ip(other)) => Body::Ip(one.over(other)),
            (body, _) => body.clone(),
        };
        Self { macs: self.macs.or(other.macs), vlans: self.vlans.clone().or_else(|| other.vlans.clone()), body }
    }

    /// The frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        match &self.body {
            Body::Frame(bytes) => bytes.clone(),
            Body::Arp => {
                let mut frame = Build::arp();
                if let Some((src, dst)) = self.macs {
                    frame[..6].copy_from_slice(&dst.0);
                    frame[6..12].copy_from_slice(&src.0);
                }
                let tags = self.vlans.iter().flatten().flat_map(|id| [0x81, 0, (id >> 8) as u8, *id as u8]);
                frame.splice(12..12, tags);
                frame
            }
            Body::Ip(ip) => {
                let mut build = ip.build();
                if let Some((src, dst)) = self.macs {
                    build = build.macs(src, dst);
                }
                self.vlans.iter().flatten().fold(build, |build, &id| build.vlan(id)).bytes()
            }
        }
    }

    /// A frame in words, as far as there are words for it.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        Self::dissected(frame).unwrap_or_else(|| Self { macs: None, vlans: None, body: Body::Frame(frame.to_vec()) })
    }

    fn dissected(frame: &[u8]) -> Option<Self> {
        let headers = packet::parse(LinkType::Ethernet, frame, frame.len() as u32, 0).ok()?;
        let vlans = &headers.vlans.ids[..usize::from(headers.vlans.count).min(2)];
        Some(Self {
            macs: headers.macs,
            vlans: (!vlans.is_empty()).then(|| vlans.to_vec()),
            body: Body::Ip(Ip::of(&headers, frame)?),
        })
    }
}

impl Ip {
    fn read(words: &mut Tokens<'_>) -> Result<Self, String> {
        let what = "the kind of packet (tcp, udp, icmp, ip, arp or hex)";
        let name = words.plain(what)?;
        let has_ports = matches!(name, "tcp" | "udp");
        if !has_ports && !matches!(name, "icmp" | "ip") {
            return Err(format!("found `{name}`, expected {what}"));
        }
        let end = if has_ports { socket } else { host };
        let (src, dst) = (end(words)?, arrow(words, end)?);
        if src.address.is_ipv4() != dst.address.is_ipv4() {
            return Err(format!("{src} and {dst} are not of the same family"));
        }
        let kind = match name {
            "tcp" => Kind::Tcp {
                flags: flags(words),
                seq: None,
                ack: None,
                window: None,
                mss: None,
                wscale: None,
                sack: false,
            },
            "udp" => Kind::Udp,
            "ip" if words.take("proto") => Kind::Other(words.number("a protocol's number")?),
            "ip" => return Err("`proto` and its number are missing after the addresses".to_owned()),
            _ => icmp(words, src.address.is_ipv4())?,
        };
        let mut ip = Self { src, dst, kind, ttl: None, tos: None, id: None, fragment: None, payload: None };
        while ip.detail(words)? {}
        if has_ports && ip.fragment.is_some_and(|(offset, _)| offset > 0) {
            return Err("a later fragment has no ports: write `ip ADDRESS > ADDRESS proto 17 fragment 1480`".to_owned());
        }
        Ok(ip)
    }

    /// Takes one detail, if the next word begins one.
    fn detail(&mut self, words: &mut Tokens<'_>) -> Result<bool, String> {
        let is_error = matches!(self.kind, Kind::Icmp { kind, .. } if is_error(kind, self.src.address));
        match words.peek() {
            Some(Token::Quoted(text)) => {
                words.next();
                self.payload = Some(Payload::Bytes(text.clone()));
                return Ok(true);
            }
            Some(Token::Plain(_)) => {}
            Some(Token::Group(_)) | None => return Ok(false),
        }
        let Some(Token::Plain(name)) = words.peek() else { return Ok(false) };
        match (name.as_str(), &mut self.kind) {
            ("ttl", _) => self.ttl = Some(detail(words)?),
            ("tos", _) => self.tos = Some(detail(words)?),
            ("ip-id", _) => self.id = Some(detail(words)?),
            ("fragment", _) => {
                words.next();
                let at = words.plain("a fragment's offset")?;
                let (digits, more) = at.strip_suffix('+').map_or((at, false), |digits| (digits, true));
                let offset = digits.parse().ok().filter(|offset: &u16| offset.is_multiple_of(8));
                let offset = offset.ok_or_else(|| {
                    format!(
                        "`{at}` is not a fragment offset: a multiple of 8 in bytes, with `+` if more fragments follow"
                    )
                })?;
                self.fragment = Some((offset, more));
            }
            ("len", _) => {
                let len: u16 = detail(words)?;
                if len > LEN_MAX {
                    return Err(format!("a payload has at most {LEN_MAX} bytes"));
                }
                self.payload = Some(Payload::Bytes(counting(usize::from(len))));
            }
            ("hex", _) => {
                words.next();
                self.payload = Some(Payload::Bytes(bytes(words)?));
            }
            ("quoting", _) if is_error => {
                words.next();
                let Some(Token::Group(quoted)) = words.next() else {
                    return Err("`quoting` must be followed by a packet in parentheses".to_owned());
                };
                let mut quoted = Tokens::new(quoted);
                let ip = Self::read(&mut quoted)?;
                if let Some(more) = quoted.next() {
                    return Err(format!("{} isn't allowed here", show(more)));
                }
                self.payload = Some(Payload::Quoted(Box::new(ip)));
            }
            ("seq", Kind::Tcp { seq, .. }) => *seq = Some(detail(words)?),
            ("ack", Kind::Tcp { ack, .. }) => *ack = Some(detail(words)?),
            ("window", Kind::Tcp { window, .. }) => *window = Some(detail(words)?),
            ("mss", Kind::Tcp { mss, .. }) => *mss = Some(detail(words)?),
            ("wscale", Kind::Tcp { wscale, .. }) => *wscale = Some(detail(words)?),
            ("sack", Kind::Tcp { sack, .. }) => {
                words.next();
                *sack = true;
            }
            ("id", Kind::Icmp { id, .. }) => *id = Some(detail(words)?),
            ("seq", Kind::Icmp { seq, .. }) => *seq = Some(detail(words)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn over(&self, other: &Self) -> Self {
        let payload = match (&self.payload, &other.payload) {
            (Some(Payload::Quoted(one)), Some(Payload::Quoted(other))) => {
                Some(Payload::Quoted(Box::new(one.over(other))))
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        Self {
            src: self.src,
            dst: self.dst,
            kind: self.kind.over(&other.kind),
            ttl: self.ttl.or(other.ttl),
            tos: self.tos.or(other.tos),
            id: self.id.or(other.id),
            fragment: self.fragment.or(other.fragment),
            payload,
        }
    }

    fn build(&self) -> Build {
        let (src, dst) = (self.src, self.dst);
        let mut build = match self.kind {
            Kind::Tcp { flags, seq, ack, window, mss, wscale, sack } => {
                let mut build = Build::tcp(src, dst).flags(flags.unwrap_or(TcpFlags::ACK)).seq(seq.unwrap_or(0));
                if let Some(ack) = ack {
                    build = build.ack(ack).flags(flags.unwrap_or(TcpFlags::ACK));
                }
                build = window.into_iter().fold(build, Build::window);
                build = mss.into_iter().fold(build, Build::mss);
                build = wscale.into_iter().fold(build, Build::window_scale);
                if sack { build.sack_permitted() } else { build }
            }
            Kind::Udp => Build::udp(src, dst),
            Kind::Icmp { kind, code, id, seq } => {
                let ([a, b], [c, d]) = (id.unwrap_or(0).to_be_bytes(), seq.unwrap_or(0).to_be_bytes());
                Build::icmp(src, dst, kind, code, [a, b, c, d])
            }
            Kind::Other(protocol) => Build::ip(src, dst, protocol),
        };
        build = self.ttl.into_iter().fold(build, Build::ttl);
        build = self.tos.into_iter().fold(build, Build::tos);
        build = self.id.into_iter().fold(build, Build::id);
        if let Some((offset, more)) = self.fragment {
            build = build.fragment(offset, more);
        }
        match &self.payload {
            Some(Payload::Bytes(bytes)) => build.data(bytes),
            Some(Payload::Quoted(ip)) => build.data(&ip.build().datagram()),
            None => build,
        }
    }

    fn of(headers: &Headers, frame: &[u8]) -> Option<Self> {
        let (src, dst) = headers.addresses()?;
        let (src_port, dst_port) = headers.ports();
        let (src, dst) = (Endpoint::new(src, src_port), Endpoint::new(dst, dst_port));
        let (ttl, tos, id) = match headers.network {
            Network::V4(ip) => (ip.ttl, ip.tos, ip.id),
            Network::V6(ip) => (ip.hop_limit, ip.traffic_class, 0),
            Network::None | Network::Unreadable | Network::Arp => return None,
        };
        let payload = headers.payload(frame);
        let kind = match headers.transport {
            Transport::Tcp(tcp) => Kind::Tcp {
                flags: Some(tcp.flags),
                seq: Some(tcp.seq),
                ack: Some(tcp.ack),
                window: Some(tcp.window),
                mss: tcp.options.mss,
                wscale: tcp.options.window_scale,
                sack: tcp.options.sack_permitted,
            },
            Transport::Udp { .. } => Kind::Udp,
            Transport::Icmp(icmp) => {
                let word = frame.get(usize::from(headers.transport_offset) + 4..)?.get(..4)?;
                let [id, seq] = [&word[..2], &word[2..]].map(|half| u16::from_be_bytes([half[0], half[1]]));
                Kind::Icmp { kind: icmp.kind, code: icmp.code, id: Some(id), seq: Some(seq) }
            }
            Transport::Sctp { .. } | Transport::None => Kind::Other(headers.protocol),
        };
        let is_error = matches!(headers.transport, Transport::Icmp(icmp) if icmp.embedded.is_some());
        let payload = match (is_error.then(|| Self::quoted(payload, src.address)).flatten(), kind.clone()) {
            (Some(quoted), _) => Payload::Quoted(Box::new(quoted)),
            (None, Kind::Other(_)) => Payload::Bytes(frame.get(usize::from(headers.transport_offset)..)?.to_vec()),
            (None, _) => Payload::Bytes(payload.to_vec()),
        };
        let fragment = match headers.fragment {
            Fragment::Whole => None,
            Fragment::First => Some((0, true)),
            // Where in the datagram isn't kept: such a packet is shown byte by byte.
            Fragment::Later => return None,
        };
        // ICMP has no ports, whatever stands for them elsewhere.
        let (src, dst) = match kind {
            Kind::Icmp { .. } | Kind::Other(_) => (Endpoint::new(src.address, 0), Endpoint::new(dst.address, 0)),
            Kind::Tcp { .. } | Kind::Udp => (src, dst),
        };
        let (ttl, tos, id) = (Some(ttl), Some(tos), Some(id));
        Some(Self { src, dst, kind, ttl, tos, id, fragment, payload: Some(payload) })
    }

    /// The packet that an error quotes, if all of it is there.
    fn quoted(datagram: &[u8], family: IpAddr) -> Option<Self> {
        let ethertype = if family.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
        let frame = [&[0; 12], ethertype.as_slice(), datagram].concat();
        let headers = packet::parse(LinkType::Ethernet, &frame, frame.len() as u32, 0).ok()?;
        Self::of(&headers, &frame)
    }
}

impl Kind {
    fn over(&self, other: &Self) -> Self {
        match (self, other) {
            (
                &Self::Tcp { flags, seq, ack, window, mss, wscale, sack },
                Self::Tcp {
                    flags: flags_,
                    seq: seq_,
                    ack: ack_,
                    window: window_,
                    mss: mss_,
                    wscale: wscale_,
                    sack: sack_,
                },
            ) => Self::Tcp {
                flags: flags.or(*flags_),
                seq: seq.or(*seq_),
                ack: ack.or(*ack_),
                window: window.or(*window_),
                mss: mss.or(*mss_),
                wscale: wscale.or(*wscale_),
                sack: sack || *sack_,
            },
            (&Self::Icmp { kind, code, id, seq }, Self::Icmp { id: id_, seq: seq_, .. }) => {
                Self::Icmp { kind, code, id: id.or(*id_), seq: seq.or(*seq_) }
            }
            (kind, _) => kind.clone(),
        }
    }
}

/// As it would be written, without what is by default.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((src, dst)) = self.macs
            && (src, dst) != (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]))
        {
            write!(f, "eth {src} > {dst} ")?;
        }
        self.vlans.iter().flatten().try_for_each(|id| write!(f, "vlan {id} "))?;
        match &self.body {
            Body::Arp => f.write_str("arp"),
            Body::Frame(bytes) => write!(f, "hex {}", Hex(bytes)),
            Body::Ip(ip) => ip.fmt(f),
        }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn some<T: fmt::Display + PartialEq>(
            f: &mut fmt::Formatter<'_>,
            name: &str,
            value: Option<T>,
            default: Option<T>,
        ) -> fmt::Result {
            match value {
                Some(value) if Some(&value) != default.as_ref() => write!(f, " {name} {value}"),
                Some(_) | None => Ok(()),
            }
        }
        let Self { src, dst, kind, ttl, tos, id, fragment, payload } = self;
        match kind {
            Kind::Tcp { flags, seq, ack, window, mss, wscale, sack } => {
                write!(f, "tcp {src} > {dst} ")?;
                let letters = FLAGS.iter().filter(|(_, flag)| flags.unwrap_or(TcpFlags::ACK).contains(*flag));
                letters.clone().try_for_each(|(letter, _)| write!(f, "{letter}"))?;
                if letters.count() == 0 {
                    f.write_str("none")?;
                }
                some(f, "seq", *seq, Some(0))?;
                some(f, "ack", *ack, Some(0))?;
                some(f, "window", *window, Some(0xffff))?;
                some(f, "mss", *mss, None)?;
                some(f, "wscale", *wscale, None)?;
                if *sack {
                    f.write_str(" sack")?;
                }
            }
            Kind::Udp => write!(f, "udp {src} > {dst}")?,
            Kind::Icmp { kind, code, id, seq } => {
                write!(f, "icmp {} > {}", src.address, dst.address)?;
                let of = |&&(_, v4, v6): &&(&str, u8, u8)| *kind == if src.address.is_ipv4() { v4 } else { v6 };
                match QUERIES.iter().find(of) {
                    Some((name, ..)) if *code == 0 => write!(f, " {name}")?,
                    Some(_) | None => write!(f, " type {kind} code {code}")?,
                }
                some(f, "id", *id, Some(0))?;
                some(f, "seq", *seq, Some(0))?;
            }
            Kind::Other(protocol) => write!(f, "ip {} > {} proto {protocol}", src.address, dst.address)?,
        }
        some(f, "ttl", *ttl, Some(64))?;
        some(f, "tos", *tos, Some(0))?;
        some(f, "ip-id", *id, Some(0))?;
        if let Some((offset, more)) = fragment {
            write!(f, " fragment {offset}{}", if *more { "+" } else { "" })?;
        }
        match payload {
            None => Ok(()),
            Some(Payload::Bytes(bytes)) if bytes.is_empty() => Ok(()),
            Some(Payload::Bytes(bytes)) if *bytes == counting(bytes.len()) => write!(f, " len {}", bytes.len()),
            Some(Payload::Bytes(bytes))
                if bytes.iter().all(|byte| byte.is_ascii_graphic() || b" \r\n\t".contains(byte)) =>
            {
                write!(f, " \"{}\"", bytes.escape_ascii().to_string().replace("\\'", "'"))
            }
            Some(Payload::Bytes(bytes)) => write!(f, " hex {}", Hex(bytes)),
            Some(Payload::Quoted(ip)) => write!(f, " quoting ({ip})"),
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// More don't fit a packet.
const LEN_MAX: u16 = 65_000;

fn counting(len: usize) -> Vec<u8> {
    (0..len).map(|index| index as u8).collect()
}

/// The number after the name of a field.
fn detail<T: std::str::FromStr>(words: &mut Tokens<'_>) -> Result<T, String> {
    let name = words.plain("a detail")?;
    words.number(&format!("the number of `{name}`"))
}

fn arrow<T>(words: &mut Tokens<'_>, end: impl Fn(&mut Tokens<'_>) -> Result<T, String>) -> Result<T, String> {
    let word = words.plain("`>`")?;
    if word == ">" { end(words) } else { Err(format!("found `{word}`, expected `>`")) }
}

fn socket(words: &mut Tokens<'_>) -> Result<Endpoint, String> {
    let word = words.plain("an address with a port")?;
    let socket = word
        .parse::<SocketAddr>()
        .map_err(|_| format!("`{word}` is not an address with a port: write 10.0.0.1:80, or [2001:db8::1]:80"))?;
    Ok(Endpoint::new(socket.ip(), socket.port()))
}

fn host(words: &mut Tokens<'_>) -> Result<Endpoint, String> {
    let word = words.plain("an address")?;
    let address = word.parse().map_err(|_| format!("`{word}` is not an address: write 10.0.0.1, or 2001:db8::1"))?;
    Ok(Endpoint::new(address, 0))
}

fn mac(words: &mut Tokens<'_>) -> Result<Mac, String> {
    let word = words.plain("an Ethernet address")?;
    let parts: Option<Vec<u8>> = word.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    let bytes = parts.and_then(|parts| <[u8; 6]>::try_from(parts).ok());
    bytes.map(Mac).ok_or_else(|| format!("`{word}` is not an Ethernet address: write 02:00:00:00:00:01"))
}

fn bytes(words: &mut Tokens<'_>) -> Result<Vec<u8>, String> {
    let word = words.plain("hexadecimal digits")?;
    hex(word).ok_or_else(|| format!("`{word}` is not a list of bytes: write an even number of hexadecimal digits"))
}

/// The flags, if the next word is made of their letters.
fn flags(words: &mut Tokens<'_>) -> Option<TcpFlags> {
    let Some(Token::Plain(word)) = words.peek() else { return None };
    let letters = word.chars().map(|letter| FLAGS.iter().find(|(of, _)| *of == letter).map(|(_, flag)| *flag));
    let flags = if word == "none" { Some(TcpFlags::default()) } else { letters.collect::<Option<Vec<_>>>().map(all) };
    if flags.is_some() {
        words.next();
    }
    flags
}

fn all(flags: Vec<TcpFlags>) -> TcpFlags {
    flags.into_iter().fold(TcpFlags::default(), TcpFlags::with)
}

fn icmp(words: &mut Tokens<'_>, is_v4: bool) -> Result<Kind, String> {
    let query = QUERIES.iter().find(|(name, ..)| words.take(name));
    let (kind, code) = match query {
        Some(&(_, v4, v6)) => (if is_v4 { v4 } else { v6 }, 0),
        None if words.take("type") => {
            let kind = words.number("a type's number")?;
            (kind, if words.take("code") { words.number("a code's number")? } else { 0 })
        }
        None => {
            return Err(
                "the addresses must be followed by `echo-request`, `echo-reply`, or `type` and a number".to_owned()
            );
        }
    };
    Ok(Kind::Icmp { kind, code, id: None, seq: None })
}

/// True if messages of this type quote a packet.
fn is_error(kind: u8, family: IpAddr) -> bool {
    if family.is_ipv4() { matches!(kind, 3 | 4 | 5 | 11 | 12) } else { kind < 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<Spec, String> {
        Spec::parse(text)
    }

    /// What is written is what a frame of it is read as.
    #[test]
    fn packets_go_to_frames_and_back() {
        for text in [
            "tcp 10.0.0.1:40000 > 198.51.100.1:80 S seq 7 window 1000 mss 1460 wscale 7 sack ttl 3",
            "tcp [2001:db8::1]:1 > [2001:db8::2]:2 FP.U ack 9 len 20",
            "tcp 10.0.0.1:1 > 10.0.0.2:2 none",
            "udp 10.0.0.1:53 > 10.0.0.2:53 tos 16 ip-id 5 \"GET / HTTP/1.1\\r\\n'\\\"\"",
            "udp 10.0.0.1:53 > 10.0.0.2:53 hex 00ff80",
            "eth 02:00:00:00:00:07 > ff:ff:ff:ff:ff:ff vlan 3 vlan 4 udp 10.0.0.1:53 > 10.0.0.2:53",
            "icmp 10.0.0.1 > 10.0.0.2 echo-request id 7 seq 1 len 8",
            "icmp 2001:db8::1 > 2001:db8::2 echo-reply id 7",
            "icmp 10.0.0.1 > 10.0.0.2 type 5 code 1",
            "icmp 10.0.0.9 > 10.0.0.2 type 3 code 3 quoting (udp 10.0.0.2:1000 > 10.0.0.1:53 len 4)",
            "ip 10.0.0.1 > 10.0.0.2 proto 89 hex 0201",
            "udp 10.0.0.1:1 > 10.0.0.2:2 fragment 0+ len 16",
        ] {
            let stated = spec(text).unwrap();
            let frame = stated.to_frame();
            let shown = Spec::of(&frame);
            assert_eq!(shown.to_string(), text);
            assert_eq!(shown.to_frame(), frame, "{text}");
            assert!(stated.changes(&shown) && stated.over(&shown) == shown, "{text}: {:?}", stated.over(&shown));
        }
        assert_eq!(spec("arp").unwrap().to_frame(), Build::arp());
        assert_eq!(spec("vlan 7 arp").unwrap().to_frame()[12..18], [0x81, 0, 0, 7, 8, 6]);
        assert_eq!(spec("hex 0102").unwrap().to_frame(), [1, 2]);
    }

    #[test]
    fn what_is_left_out_stays_as_it_was() {
        let before = spec("tcp 10.0.0.1:40000 > 198.51.100.1:80 S seq 7 ttl 3 len 4").unwrap();
        let stated = spec("tcp 203.0.113.1:40000 > 198.51.100.1:80 ttl 2").unwrap();
        let expected = "tcp 203.0.113.1:40000 > 198.51.100.1:80 S seq 7 ttl 2 len 4";
        assert_eq!(stated.over(&before).to_string(), expected);
        let other = spec("udp 10.0.0.1:1 > 10.0.0.2:2").unwrap();
        assert!(!stated.changes(&other));
    }

    #[test]
    fn slips_are_told() {
        for (text, says) in [
            ("", "the line ends, expected the kind of packet"),
            ("tpc 10.0.0.1:1 > 10.0.0.2:2", "found `tpc`, expected the kind of packet"),
            ("tcp 10.0.0.1 > 10.0.0.2:2", "`10.0.0.1` is not an address with a port"),
            ("tcp 10.0.0.1:1 10.0.0.2:2", "found `10.0.0.2:2`, expected `>`"),
            ("udp 10.0.0.1:1 > [::1]:2", "not of the same family"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 S", "`S` isn't allowed here"),
            ("tcp 10.0.0.1:1 > 10.0.0.2:2 SX", "`SX` isn't allowed here"),
            ("tcp 10.0.0.1:1 > 10.0.0.2:2 seq -1", "found `-1`, expected the number of `seq`"),
            ("tcp 10.0.0.1:1 > 10.0.0.2:2 ttl 256", "found `256`, expected the number of `ttl`"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 len", "the line ends, expected the number of `len`"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 len 65535", "at most 65000"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 hex 123", "`123` is not a list of bytes"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 fragment 7", "not a fragment offset"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 fragment 8", "a later fragment has no ports"),
            ("tcp 10.0.0.1:1 > 10.0.0.2:2 SA", "as in tcpdump: S, S., ., P., F., R"),
            ("icmp 10.0.0.1 > 10.0.0.2", "`echo-request`, `echo-reply`, or `type`"),
            ("icmp 10.0.0.1 > 10.0.0.2 type 3 quoting udp", "a packet in parentheses"),
            ("icmp 10.0.0.1 > 10.0.0.2 echo-request quoting (udp)", "`quoting` isn't allowed here"),
            ("ip 10.0.0.1 > 10.0.0.2", "`proto` and its number are missing"),
            ("eth 02:00 > 02:01 arp", "`02:00` is not an Ethernet address"),
            ("vlan 7 hex 00", "`hex` gives a whole frame"),
            ("arp 10.0.0.1", "`10.0.0.1` isn't allowed here"),
        ] {
            let error = spec(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
