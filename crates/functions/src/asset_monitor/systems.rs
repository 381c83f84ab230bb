//! Guesses a host's operating system from its SYN or SYN+ACK. The rules are data, each with its source.

use packet::{Headers, Network, Tcp, TcpFlags};

/// The families of systems that the rules distinguish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum System {
    /// No rule matches.
    #[default]
    Unknown,
    /// Linux, including Android.
    Linux,
    /// Windows NT and its successors.
    Windows,
    /// macOS, iOS, FreeBSD, NetBSD: of common origin.
    AppleOrBsd,
    /// OpenBSD.
    OpenBsd,
    /// Solaris.
    Solaris,
    /// A switch, a router, a printer.
    Device,
    /// Packets that a scanner builds itself.
    Scanner,
}

impl System {
    const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Linux,
        Self::Windows,
        Self::AppleOrBsd,
        Self::OpenBsd,
        Self::Solaris,
        Self::Device,
        Self::Scanner,
    ];

    /// Returns the system with this number (`as u8`).
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The system's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Linux => "Linux",
            Self::Windows => "Windows",
            Self::AppleOrBsd => "macOS or BSD",
            Self::OpenBsd => "OpenBSD",
            Self::Solaris => "Solaris",
            Self::Device => "device",
            Self::Scanner => "scanner",
        }
    }
}

/// A guess and its evidence: 0 none, 1 a SYN-ACK, 2 a SYN. A higher number is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// The guess.
    pub system: System,
    /// The evidence.
    pub evidence: u8,
}

/// The condition on the window in a rule.
#[derive(Clone, Copy, Debug)]
enum Window {
    Any,
    Is(&'static [u16]),
    /// A multiple of the segment size: the announced one, or Ethernet's if a device on the path has lowered it.
    Times(&'static [u16]),
}

/// The condition on the window scale in a rule.
#[derive(Clone, Copy, Debug)]
enum Scale {
    Any,
    None,
    From(u8, u8),
}

/// The condition on selective acknowledgement in a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sack {
    Any,
    No,
    Yes,
    /// Offered, before the window scale if there is one.
    First,
    /// Offered, after the window scale if there is one.
    Last,
}

/// A rule: a system, and the properties of its SYN or SYN+ACK.
struct Rule {
    system: System,
    /// The initial time to live.
    ttl: u8,
    window: Window,
    scale: Scale,
    sack: Sack,
    /// Source of the rule.
    _source: &'static str,
}

const fn rule(system: System, ttl: u8, window: Window, scale: Scale, sack: Sack, source: &'static str) -> Rule {
    Rule { system, ttl, window, scale, sack, _source: source }
}

const MSS_ETHERNET: u32 = 1_460;

/// Rules for SYNs. The first match counts.
const ASKS: &[Rule] = &[
    rule(
        System::Scanner,
        64,
        Window::Is(&[1_024, 2_048, 3_072, 4_096]),
        Scale::None,
        Sack::No,
        "p0f 3 p0f.fp, nmap SYN scan",
    ),
    rule(
        System::Linux,
        64,
        Window::Times(&[2, 3, 4, 10, 20]),
        Scale::Any,
        Sack::Yes,
        "p0f 3 p0f.fp and PRADS tcp-syn.fp, Linux 2.4 to 3",
    ),
    rule(
        System::Linux,
        64,
        Window::Times(&[44, 45]),
        Scale::From(0, 14),
        Sack::Yes,
        "Linux 4.20 tcp_select_initial_window; p0f 3, Android",
    ),
    rule(
        System::Linux,
        64,
        Window::Is(&[32_767, 43_690, 65_495]),
        Scale::From(0, 14),
        Sack::Yes,
        "PRADS tcp-syn.fp, Linux over loopback",
    ),
    rule(
        System::AppleOrBsd,
        64,
        Window::Is(&[65_535]),
        Scale::From(0, 9),
        Sack::Last,
        "p0f 3 p0f.fp, Mac OS X and FreeBSD",
    ),
    rule(
        System::AppleOrBsd,
        64,
        Window::Is(&[32_768, 57_344]),
        Scale::From(0, 9),
        Sack::Any,
        "PRADS tcp-syn.fp, FreeBSD 4, NetBSD",
    ),
    rule(System::OpenBsd, 64, Window::Is(&[16_384]), Scale::From(0, 6), Sack::Yes, "p0f 3 p0f.fp, OpenBSD 3 to 5"),
    rule(
        System::Linux,
        64,
        Window::Any,
        Scale::From(0, 14),
        Sack::First,
        "p0f 3 p0f.fp, Linux in general: Android asks with windows of 65535",
    ),
    rule(System::Solaris, 64, Window::Is(&[32_850]), Scale::Any, Sack::Yes, "PRADS tcp-syn.fp, Solaris 9 and 10"),
    rule(System::Solaris, 64, Window::Times(&[17, 34]), Scale::Any, Sack::Yes, "PRADS tcp-syn.fp, Solaris 8 and 9"),
    rule(System::Windows, 128, Window::Any, Scale::Any, Sack::Yes, "p0f 3 p0f.fp, Windows, NT kernel"),
    rule(System::Device, 255, Window::Any, Scale::None, Sack::No, "PRADS tcp-syn.fp, Cisco IOS"),
];

/// Rules for SYN+ACKs. They tell less, because a SYN+ACK depends on what was offered.
const GRANTS: &[Rule] = &[
    rule(
        System::Linux,
        64,
        Window::Is(&[5_792, 14_480, 28_960, 65_160]),
        Scale::Any,
        Sack::Any,
        "p0f 3 p0f.fp, Linux with time stamps",
    ),
    rule(System::Linux, 64, Window::Times(&[2, 3, 4, 10, 20, 44, 45]), Scale::Any, Sack::Any, "p0f 3 p0f.fp, Linux"),
    rule(System::Linux, 64, Window::Is(&[65_535]), Scale::From(0, 14), Sack::First, "p0f 3 p0f.fp, Linux in general"),
    rule(System::AppleOrBsd, 64, Window::Is(&[65_535]), Scale::Any, Sack::Any, "p0f 3 p0f.fp, FreeBSD and Mac OS X"),
    rule(System::OpenBsd, 64, Window::Is(&[16_384]), Scale::Any, Sack::Any, "p0f 2 p0fa.fp, OpenBSD"),
    rule(System::Windows, 128, Window::Any, Scale::Any, Sack::Any, "p0f 3 p0f.fp, Windows"),
    rule(System::Device, 255, Window::Any, Scale::None, Sack::No, "p0f 2 p0fa.fp, Cisco IOS"),
];

impl Rule {
    fn fits(&self, ttl: u8, tcp: &Tcp) -> bool {
        let window = match self.window {
            Window::Any => true,
            Window::Is(windows) => windows.contains(&tcp.window),
            Window::Times(times) => {
                let is_times = |size: u32| times.iter().any(|times| size * u32::from(*times) == u32::from(tcp.window));
                let announced = tcp.options.mss.map_or(MSS_ETHERNET, u32::from);
                is_times(announced) || is_times(MSS_ETHERNET)
            }
        };
        let scale = match (self.scale, tcp.options.window_scale) {
            (Scale::Any, _) | (Scale::None, None) => true,
            (Scale::From(low, high), Some(scale)) => (low..=high).contains(&scale),
            (Scale::None, Some(_)) | (Scale::From(..), None) => false,
        };
        let (is_offered, is_first) = (tcp.options.sack_permitted, tcp.options.sack_first);
        let sack = match self.sack {
            Sack::Any => true,
            Sack::No => !is_offered,
            Sack::Yes => is_offered,
            Sack::First => is_offered && is_first,
            Sack::Last => is_offered && !is_first,
        };
        self.ttl == ttl && window && scale && sack
    }
}

/// Returns the system that sent a SYN (`false`) or a SYN+ACK (`true`); `None` for other segments.
#[must_use]
pub fn of(headers: &Headers, tcp: &Tcp) -> Option<(System, bool)> {
    let [syn, ack, rst] = [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::RST].map(|flag| tcp.flags.contains(flag));
    if !syn || rst {
        return None;
    }
    let hops_remaining = match headers.network {
        Network::V4(ip) => ip.ttl,
        Network::V6(ip) => ip.hop_limit,
        Network::None | Network::Unreadable | Network::Arp => return None,
    };
    // Each router takes one, so the initial value is the next common one.
    let ttl = [32, 64, 128].into_iter().find(|initial| hops_remaining <= *initial).unwrap_or(255);
    let rules = if ack { GRANTS } else { ASKS };
    let system = rules.iter().find(|rule| rule.fits(ttl, tcp)).map_or(System::Unknown, |rule| rule.system);
    Some((system, ack))
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use packet::{LinkType, TcpOptions};
    use std::vec::Vec;

    use super::*;

    /// A SYN in raw IP.
    fn headers(ttl: u8) -> Headers {
        let mut bytes = Vec::from([0x45, 0, 0, 40, 0, 0, 0x40, 0, ttl, 6, 0, 0]);
        bytes.extend(Ipv4Addr::new(10, 0, 0, 1).octets());
        bytes.extend(Ipv4Addr::new(10, 0, 0, 2).octets());
        bytes.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        packet::parse(LinkType::RawIp, &bytes, 40, 0).expect("it is whole")
    }

    fn told(ttl: u8, window: u16, mss: Option<u16>, window_scale: Option<u8>, sack: Sack, flags: u8) -> System {
        let (sack_permitted, sack_first) = (sack != Sack::No, sack == Sack::First);
        let options = TcpOptions { window_scale, mss, sack_permitted, sack_first, sack_edge: None };
        let tcp = Tcp { src_port: 1, dst_port: 2, seq: 0, ack: 0, flags: TcpFlags(flags), window, options };
        of(&headers(ttl), &tcp).expect("it is a SYN").0
    }

    /// Openings as the systems send them.
    #[test]
    fn systems_are_told_by_how_they_open() {
        let mss = Some(1_460);
        assert_eq!(told(57, 64_240, mss, Some(7), Sack::First, 2), System::Linux);
        assert_eq!(told(64, 29_200, mss, Some(7), Sack::First, 2), System::Linux);
        assert_eq!(
            told(60, 5_840, Some(1_400), Some(6), Sack::First, 2),
            System::Linux,
            "somebody has lowered the segment size"
        );
        assert_eq!(told(128, 64_240, mss, Some(8), Sack::Last, 2), System::Windows);
        assert_eq!(told(113, 8_192, mss, Some(2), Sack::Last, 2), System::Windows);
        assert_eq!(told(64, 65_535, mss, Some(6), Sack::Last, 2), System::AppleOrBsd);
        assert_eq!(told(64, 65_535, mss, Some(8), Sack::First, 2), System::Linux, "Android");
        assert_eq!(told(64, 16_384, mss, Some(3), Sack::First, 2), System::OpenBsd);
        assert_eq!(told(41, 1_024, mss, None, Sack::No, 2), System::Scanner);
        assert_eq!(told(255, 4_128, Some(536), None, Sack::No, 2), System::Device);
        assert_eq!(told(32, 8_192, Some(536), None, Sack::No, 2), System::Unknown);
    }

    #[test]
    fn systems_are_told_by_how_they_grant() {
        assert_eq!(told(64, 28_960, Some(1_460), Some(7), Sack::First, 0x12), System::Linux);
        assert_eq!(told(128, 8_192, Some(1_460), Some(8), Sack::First, 0x12), System::Windows);
        assert_eq!(told(64, 65_535, Some(1_460), None, Sack::Last, 0x12), System::AppleOrBsd);
        assert_eq!(told(64, 65_535, Some(1_460), Some(8), Sack::First, 0x12), System::Linux);
    }

    #[test]
    fn numbers_come_back() {
        for (number, system) in (0..).zip(System::ALL) {
            assert_eq!((system as u8, System::from_number(number)), (number, Some(system)));
        }
        assert_eq!(System::from_number(8), None);
    }
}
