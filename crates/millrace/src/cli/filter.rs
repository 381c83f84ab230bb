//! Packet filters in the syntax of tcpdump (pcap-filter(7)), for addresses, ports, protocols, VLAN tags and lengths. Packets in a VLAN or
//! after an IPv6 extension header match like other packets; tcpdump matches the former only with `vlan`, and the latter not at all.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use catalogue::FlowEnds;
use functions::config::Prefix;
use packet::{Headers, Network, Transport, protocol};
use port::Packet;

/// A filter expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filter {
    All(Box<Self>, Box<Self>),
    Either(Box<Self>, Box<Self>),
    Not(Box<Self>),
    /// A network layer.
    Ip,
    Ip6,
    Arp,
    /// A protocol in IP, by number.
    Protocol(u8),
    Net(Direction, Prefix),
    Port(Direction, PortProtocol, RangeInclusive<u16>),
    Vlan(Option<u16>),
    /// Bytes on the wire.
    Length(RangeInclusive<u32>),
}

/// The end of a packet that a primitive tests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Direction {
    #[default]
    Either,
    Source,
    Destination,
    Both,
}

/// The protocol of a port; any if `None`.
type PortProtocol = Option<u8>;

impl Direction {
    fn fits(self, source: bool, destination: bool) -> bool {
        match self {
            Self::Either => source || destination,
            Self::Source => source,
            Self::Destination => destination,
            Self::Both => source && destination,
        }
    }
}

impl Filter {
    /// Parses an expression.
    ///
    /// # Errors
    /// A sentence with the word that can't be parsed, and what is expected.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { words: words(text), at: 0, last: Qualifiers::default() };
        if parser.words.is_empty() {
            return Err("the filter is empty; write for example 'tcp port 443 and net 10.0.0.0/8'".to_owned());
        }
        if parser.words.len() > WORDS_MAX {
            return Err(format!("{} words are too many: the limit is {WORDS_MAX}", parser.words.len()));
        }
        let filter = parser.terms()?;
        match parser.peek() {
            None => Ok(filter),
            Some(word) => Err(format!("`{word}` isn't expected here; join expressions with and, or")),
        }
    }

    /// Returns true if the packet matches. Without headers only its length can match.
    pub(super) fn fits(&self, packet: &Packet, headers: Option<&Headers>) -> bool {
        let is_ip = |headers: &Headers| matches!(headers.network, Network::V4(_) | Network::V6(_));
        match self {
            Self::All(a, b) => a.fits(packet, headers) && b.fits(packet, headers),
            Self::Either(a, b) => a.fits(packet, headers) || b.fits(packet, headers),
            Self::Not(inner) => !inner.fits(packet, headers),
            Self::Ip => headers.is_some_and(|headers| matches!(headers.network, Network::V4(_))),
            Self::Ip6 => headers.is_some_and(|headers| matches!(headers.network, Network::V6(_))),
            Self::Arp => headers.is_some_and(|headers| headers.network == Network::Arp),
            Self::Protocol(number) => headers.is_some_and(|headers| is_ip(headers) && headers.protocol == *number),
            Self::Net(direction, prefix) => {
                headers.and_then(Headers::addresses).is_some_and(|(source, destination)| {
                    direction.fits(prefix.contains(source), prefix.contains(destination))
                })
            }
            Self::Port(direction, carrier, ports) => headers.is_some_and(|headers| {
                let has_ports =
                    matches!(headers.transport, Transport::Tcp(_) | Transport::Udp { .. } | Transport::Sctp { .. });
                let (source, destination) = headers.ports();
                has_ports
                    && carrier.is_none_or(|carrier| headers.protocol == carrier)
                    && direction.fits(ports.contains(&source), ports.contains(&destination))
            }),
            Self::Vlan(id) => headers.is_some_and(|headers| match id {
                None => headers.vlans.count > 0,
                Some(id) => headers.vlans.ids.iter().take(usize::from(headers.vlans.count)).any(|tag| tag == id),
            }),
            Self::Length(range) => range.contains(&packet.wire_len),
        }
    }
}

impl Filter {
    /// Returns true if a flow matches. What its key doesn't have doesn't match.
    pub(super) fn fits_flow(&self, ends: &FlowEnds) -> bool {
        match self {
            Self::All(a, b) => a.fits_flow(ends) && b.fits_flow(ends),
            Self::Either(a, b) => a.fits_flow(ends) || b.fits_flow(ends),
            Self::Not(inner) => !inner.fits_flow(ends),
            Self::Ip => ends.source.is_some_and(|address| address.is_ipv4()),
            Self::Ip6 => ends.source.is_some_and(|address| address.is_ipv6()),
            Self::Arp | Self::Vlan(_) | Self::Length(_) => false,
            Self::Protocol(number) => ends.protocol == Some(*number),
            Self::Net(direction, prefix) => {
                let has = |address: Option<IpAddr>| address.is_some_and(|address| prefix.contains(address));
                direction.fits(has(ends.source), has(ends.destination))
            }
            Self::Port(direction, carrier, ports) => ends.ports.is_some_and(|(source, destination)| {
                carrier.is_none_or(|carrier| ends.protocol == Some(carrier))
                    && direction.fits(ports.contains(&source), ports.contains(&destination))
            }),
        }
    }
}

/// Maximum number of words, which bounds the recursion.
const WORDS_MAX: usize = 1_000;

/// Splits an expression into words; parentheses and operators are words.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let sign = match letter {
            '(' | ')' | '!' => Some(letter.to_string()),
            '&' | '|' if letters.peek() == Some(&letter) => {
                letters.next();
                Some(if letter == '&' { "and" } else { "or" }.to_owned())
            }
            _ => None,
        };
        if (sign.is_some() || letter.is_whitespace()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        match sign {
            Some(sign) => words.push(sign),
            None if letter.is_whitespace() => {}
            None => word.push(letter),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Qualifiers before a value. A value without qualifiers takes those of the value before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Qualifiers {
    carrier: Option<Kind>,
    direction: Direction,
    what: Option<What>,
}

/// A protocol qualifier.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Ip,
    Ip6,
    Arp,
    Protocol(u8),
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

struct Parser {
    words: Vec<String>,
    at: usize,
    last: Qualifiers,
}

impl Parser {
    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let is_there = self.peek().is_some_and(|word| wanted.contains(&word));
        self.at += usize::from(is_there);
        is_there
    }

    /// Parses terms joined by `and` and `or`, which have the same precedence and associate left.
    fn terms(&mut self) -> Result<Filter, String> {
        let mut filter = self.term()?;
        loop {
            if self.take(&["and"]) {
                filter = Filter::All(Box::new(filter), Box::new(self.term()?));
            } else if self.take(&["or"]) {
                filter = Filter::Either(Box::new(filter), Box::new(self.term()?));
            } else {
                return Ok(filter);
            }
        }
    }

    fn term(&mut self) -> Result<Filter, String> {
        if self.take(&["not", "!"]) {
            return Ok(Filter::Not(Box::new(self.term()?)));
        }
        if self.take(&["("]) {
            let filter = self.terms()?;
            return if self.take(&[")"]) { Ok(filter) } else { Err("`)` is missing at the end".to_owned()) };
        }
        self.primitive()
    }

    fn primitive(&mut self) -> Result<Filter, String> {
        if self.take(&["vlan"]) {
            let id = self.peek().and_then(|word| word.parse::<u16>().ok()).filter(|id| *id < 4096);
            self.at += usize::from(id.is_some());
            return Ok(Filter::Vlan(id));
        }
        for (word, is_less) in [("less", true), ("greater", false)] {
            if self.take(&[word]) {
                let length = self.value(word, |text| text.parse::<u32>().ok(), "a number of bytes")?;
                return Ok(Filter::Length(if is_less { 0..=length } else { length..=u32::MAX }));
            }
        }
        let carrier = self.carrier();
        let direction = self.direction();
        let what = self.what();
        if direction.is_none() && what.is_none() {
            return match carrier {
                Some(kind) if self.is_at_end_of_primitive() => {
                    self.last = Qualifiers { carrier: Some(kind), ..Qualifiers::default() };
                    Ok(Self::alone(kind))
                }
                Some(kind) => self.of(Qualifiers { carrier: Some(kind), ..self.last }),
                None => self.of(self.last),
            };
        }
        self.of(Qualifiers { carrier, direction: direction.unwrap_or_default(), what })
    }

    fn is_at_end_of_primitive(&self) -> bool {
        self.peek().is_none_or(|word| ["and", "or", ")"].contains(&word))
    }

    const fn alone(kind: Kind) -> Filter {
        match kind {
            Kind::Ip => Filter::Ip,
            Kind::Ip6 => Filter::Ip6,
            Kind::Arp => Filter::Arp,
            Kind::Protocol(number) => Filter::Protocol(number),
        }
    }

    fn carrier(&mut self) -> Option<Kind> {
        let kind = match self.peek()? {
            "ip" => Kind::Ip,
            "ip6" => Kind::Ip6,
            "arp" => Kind::Arp,
            "tcp" => Kind::Protocol(protocol::TCP),
            "udp" => Kind::Protocol(protocol::UDP),
            "sctp" => Kind::Protocol(protocol::SCTP),
            "icmp" => Kind::Protocol(protocol::ICMP),
            "icmp6" => Kind::Protocol(protocol::ICMPV6),
            _ => return None,
        };
        self.at += 1;
        Some(kind)
    }

    fn direction(&mut self) -> Option<Direction> {
        let first = match self.peek()? {
            "src" => Direction::Source,
            "dst" => Direction::Destination,
            _ => return None,
        };
        self.at += 1;
        let other = if first == Direction::Source { "dst" } else { "src" };
        let next = |at: usize| self.words.get(self.at + at).map(String::as_str);
        let joined = match (next(0), next(1)) {
            (Some("or"), Some(word)) if word == other => Direction::Either,
            (Some("and"), Some(word)) if word == other => Direction::Both,
            _ => return Some(first),
        };
        self.at += 2;
        Some(joined)
    }

    fn what(&mut self) -> Option<What> {
        let what = match self.peek()? {
            "host" => What::Host,
            "net" => What::Net,
            "port" => What::Port,
            "portrange" => What::PortRange,
            "proto" => What::Protocol,
            _ => return None,
        };
        self.at += 1;
        Some(what)
    }

    /// Parses a value of these qualifiers.
    fn of(&mut self, qualifiers: Qualifiers) -> Result<Filter, String> {
        let Qualifiers { carrier, direction, what } = qualifiers;
        let filter = match what {
            Some(What::Host) => Filter::Net(direction, self.value("host", host, "an address (names aren't resolved)")?),
            Some(What::Net) => {
                Filter::Net(direction, self.value("net", net, "a network: 10.0.0.0/8, 10.1, 2001:db8::/32")?)
            }
            // A direction without a type means hosts, as does an address alone.
            None if direction != Direction::Either => Filter::Net(
                direction,
                self.value("src or dst", host, "an address (names aren't resolved), or host, net, port")?,
            ),
            None => match self.peek().and_then(|word| host(word).or_else(|| net_with_length(word))) {
                Some(prefix) => {
                    self.at += 1;
                    Filter::Net(direction, prefix)
                }
                None => return Err(self.not_understood()),
            },
            Some(What::Port | What::PortRange) => {
                let ports = match what {
                    Some(What::Port) => self.value("port", port, "a number up to 65535, or a service's name")?,
                    _ => self.value("portrange", ports, "ports: 8000-8080")?,
                };
                return match carrier {
                    None => Ok(self.keep(qualifiers, Filter::Port(direction, None, ports))),
                    Some(Kind::Protocol(number)) if number != protocol::ICMP && number != protocol::ICMPV6 => {
                        Ok(self.keep(qualifiers, Filter::Port(direction, Some(number), ports)))
                    }
                    Some(Kind::Ip | Kind::Ip6) => {
                        let port = Filter::Port(direction, None, ports);
                        let family = carrier.map_or(Filter::Ip, Self::alone);
                        Ok(self.keep(qualifiers, Filter::All(Box::new(family), Box::new(port))))
                    }
                    Some(Kind::Arp | Kind::Protocol(_)) => Err("only tcp, udp and sctp have ports".to_owned()),
                };
            }
            Some(What::Protocol) => Filter::Protocol(self.value("proto", number, "a protocol's number or name")?),
        };
        let filter = match carrier {
            None => filter,
            Some(kind) => Filter::All(Box::new(Self::alone(kind)), Box::new(filter)),
        };
        Ok(self.keep(qualifiers, filter))
    }

    fn keep(&mut self, qualifiers: Qualifiers, filter: Filter) -> Filter {
        self.last = qualifiers;
        filter
    }

    /// Parses the word after `behind`.
    fn value<T>(&mut self, behind: &str, read: impl Fn(&str) -> Option<T>, wanted: &str) -> Result<T, String> {
        let Some(word) = self.peek() else { return Err(format!("expected {wanted} after `{behind}`")) };
        let Some(value) = read(word) else { return Err(format!("`{word}` is not {wanted}")) };
        self.at += 1;
        Ok(value)
    }

    fn not_understood(&self) -> String {
        match self.peek() {
            Some(word) => format!(
                "`{word}` isn't known; the words are ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, src, dst, host, net, port, \
                 portrange, proto, vlan, less, greater, and, or, not and parentheses"
            ),
            None => "the filter is incomplete".to_owned(),
        }
    }
}

fn host(text: &str) -> Option<Prefix> {
    text.parse::<IpAddr>().ok()?;
    text.parse().ok()
}

fn net_with_length(text: &str) -> Option<Prefix> {
    text.contains('/').then(|| net(text)).flatten()
}

/// Parses a network with its prefix length, or the first bytes of an IPv4 network. Host bits must be zero, as in tcpdump.
fn net(text: &str) -> Option<Prefix> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    if address.parse::<IpAddr>().is_ok() {
        return text.parse().ok();
    }
    let bytes: Vec<u8> = address.split('.').map(|byte| byte.parse().ok()).collect::<Option<_>>()?;
    let known = u8::try_from(bytes.len()).ok().filter(|known| (1..4).contains(known))?;
    let whole: Vec<String> = bytes.iter().chain(&[0; 3]).take(4).map(ToString::to_string).collect();
    format!("{}/{}", whole.join("."), length.unwrap_or(known * 8)).parse().ok()
}

/// Names of common services.
const SERVICES: [(&str, u16); 22] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("submission", 587),
    ("imaps", 993),
    ("sip", 5060),
    ("mdns", 5353),
];

fn port(text: &str) -> Option<RangeInclusive<u16>> {
    let named = SERVICES.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
    let port = named.or_else(|| text.parse().ok())?;
    Some(port..=port)
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (*port(first)?.start(), *port(last)?.start());
    Some(first.min(last)..=first.max(last))
}

fn number(text: &str) -> Option<u8> {
    (0..=u8::MAX).find(|number| protocol::name(*number) == Some(text)).or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use packet::LinkType;
    use proptest::prelude::*;
    use synth::{Build, Frames};

    use super::*;

    /// The numbers of those of these packets that an expression fits.
    fn fitting(expression: &str) -> Vec<usize> {
        let filter = Filter::parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let mut frames = Frames::default();
        for build in [
            Build::tcp("10.0.0.1:5000", "192.0.2.1:443"),
            Build::tcp("192.0.2.1:443", "10.0.0.1:5000"),
            Build::udp("10.1.2.3:5353", "192.0.2.53:53"),
            Build::udp("[2001:db8::1]:443", "[2001:db8::2]:9"),
            Build::echo("10.0.0.1", "10.0.0.2", 7, 1),
            Build::tcp("10.0.0.9:22", "10.0.0.1:5000").vlan(7).payload(1_000),
        ] {
            frames.build(packet::Nanos(1), &build);
        }
        frames.push(packet::Nanos(1), &Build::arp());
        let trace = frames.trace();
        let fits = |(at, (packet, bytes)): (usize, (&Packet, &[u8]))| {
            let headers = packet::parse(LinkType::Ethernet, bytes, packet.wire_len, 0).ok();
            filter.fits(packet, headers.as_ref()).then_some(at)
        };
        trace.iter().enumerate().filter_map(fits).collect()
    }

    /// Expected matches by pcap-filter(7).
    #[test]
    fn expressions_are_tcpdumps() {
        for (expression, expected) in [
            ("tcp", vec![0, 1, 5]),
            ("udp or arp", vec![2, 3, 6]),
            ("ip6", vec![3]),
            ("ip", vec![0, 1, 2, 4, 5]),
            ("icmp", vec![4]),
            ("port 443", vec![0, 1, 3]),
            ("tcp port 443", vec![0, 1]),
            ("tcp dst port https", vec![0]),
            ("ip6 port 443", vec![3]),
            ("src port 443 or 22", vec![1, 3, 5]),
            ("host 10.0.0.1", vec![0, 1, 4, 5]),
            ("src host 10.0.0.1", vec![0, 4]),
            ("dst 10.0.0.1", vec![1, 5]),
            ("src and dst net 10.0.0.0/8", vec![4, 5]),
            ("src or dst host 192.0.2.1", vec![0, 1]),
            ("net 10.1", vec![2]),
            ("net 10", vec![0, 1, 2, 4, 5]),
            ("net 2001:db8::/32", vec![3]),
            ("10.0.0.9", vec![5]),
            ("10.0.0.8/30", vec![5]),
            ("tcp port 443 and net 10.0.0.0/8", vec![0, 1]),
            ("not tcp and not udp", vec![4, 6]),
            ("!(tcp || udp)", vec![4, 6]),
            // They bind alike, from the left.
            ("arp or tcp and dst port 443", vec![0]),
            ("arp or (tcp and dst port 443)", vec![0, 6]),
            ("portrange 50-60", vec![2]),
            ("udp portrange 440-450", vec![3]),
            ("proto 17", vec![2, 3]),
            ("ip proto udp", vec![2]),
            ("vlan", vec![5]),
            ("vlan 7 and tcp", vec![5]),
            ("vlan 8", vec![]),
            ("greater 1000", vec![5]),
            ("less 60 and tcp", vec![0, 1]),
        ] {
            assert_eq!(fitting(expression), expected, "{expression}");
        }
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(
            known in proptest::collection::vec(0..WORDS.len(), 0..30),
            other in "\\PC{0,20}",
            at in any::<prop::sample::Index>(),
        ) {
            let mut words: Vec<&str> = known.iter().map(|at| WORDS[*at]).collect();
            words.insert(at.index(words.len() + 1), &other);
            let _ = Filter::parse(&words.join(" "));
        }
    }

    const WORDS: [&str; 24] = [
        "(",
        ")",
        "not",
        "and",
        "or",
        "ip",
        "ip6",
        "tcp",
        "icmp",
        "src",
        "dst",
        "host",
        "net",
        "port",
        "portrange",
        "proto",
        "vlan",
        "less",
        "10.0.0.1",
        "10.0.0.0/8",
        "443",
        "1-9",
        "::1",
        "&&",
    ];

    #[test]
    fn what_nests_too_deeply_is_refused() {
        for text in ["(".repeat(100_000), "not ".repeat(100_000) + "tcp", "tcp".to_owned() + &" or tcp".repeat(100_000)]
        {
            assert!(Filter::parse(&text).unwrap_err().contains("words are too many"));
        }
        let most = "tcp".to_owned() + &" or tcp".repeat(499);
        assert!(Filter::parse(&most).is_ok() && Filter::parse(&("(".repeat(400) + "tcp" + &")".repeat(400))).is_ok());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (expression, says) in [
            ("", "the filter is empty"),
            ("tpc", "`tpc` isn't known"),
            ("tcp prot 80", "`prot` isn't known"),
            ("port", "expected"),
            ("port 65536", "`65536` is not a number"),
            ("port webservice", "`webservice` is not a number up to 65535"),
            ("host www.example.net", "names aren't resolved"),
            ("net 10.0.0.0/33", "`10.0.0.0/33` is not a network"),
            ("tcp and", "the filter is incomplete"),
            ("(tcp", "`)` is missing"),
            ("tcp)", "`)` isn't expected here"),
            ("tcp udp", "`udp` isn't known"),
            ("icmp port 80", "only tcp, udp and sctp have ports"),
            ("greater many", "`many` is not a number of bytes"),
            ("portrange 80", "`80` is not ports"),
        ] {
            let error = Filter::parse(expression).unwrap_err();
            assert!(error.contains(says), "{expression}: {error}");
        }
    }
}
