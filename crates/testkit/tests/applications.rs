//! Compares the application classifier with nDPI on each flow of the shared captures, protocol by protocol, and asserts minimum
//! agreement.
#![allow(clippy::print_stderr, clippy::print_stdout)]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;

use functions::app_classifier::{AppClassifier, Config, Session};
use memory::{Local, LocalTx};
use millrace_testkit::captures;
use nf::{Context, Meta, NetworkFunction};
use packet::{Endpoint, FiveTuple, Fragment, Seq, protocol};

/// Minimum precision and recall of each protocol with five flows or more, in percent. Precision: the share of our flows with this name
/// that have it in nDPI, too. Recall: the reverse. They are the measured values, rounded down.
const FLOORS: &[(&str, u32, u32)] = &[
    ("bgp", 100, 100),
    ("dce-rpc", 97, 98),
    ("dhcp", 100, 100),
    ("dhcpv6", 100, 100),
    ("dnp3", 100, 100),
    ("dns", 99, 99),
    ("dtls", 94, 89),
    ("ftp", 100, 100),
    ("http", 99, 98),
    ("ike", 100, 100),
    ("irc", 100, 100),
    ("kerberos", 100, 64),
    ("ldap", 85, 100),
    ("llmnr", 100, 97),
    ("mdns", 100, 92),
    ("mongodb", 100, 100),
    ("mqtt", 100, 61),
    ("mysql", 96, 96),
    ("netbios", 100, 92),
    ("ntp", 90, 90),
    ("postgresql", 100, 83),
    ("quic", 100, 100),
    ("rdp", 90, 66),
    ("sip", 95, 95),
    ("smb", 98, 92),
    ("smtp", 100, 100),
    ("snmp", 93, 100),
    ("socks", 100, 100),
    ("ssdp", 100, 100),
    ("ssh", 100, 92),
    ("stun", 93, 100),
    ("sun-rpc", 100, 97),
    ("tds", 100, 37),
    ("tftp", 100, 58),
    ("tls", 100, 91),
    ("vnc", 100, 100),
    ("wireguard", 100, 75),
    ("xmpp", 100, 100),
];

/// Our names of protocols, and the beginnings of nDPI's labels.
const NAMES: &[(&str, &[&str])] = &[
    ("bgp", &["BGP"]),
    ("bittorrent", &["BitTorrent"]),
    ("dce-rpc", &["DCE_RPC"]),
    ("dhcp", &["DHCP"]),
    ("dhcpv6", &["DHCPV6"]),
    ("dnp3", &["DNP3"]),
    ("dns", &["DNS"]),
    ("dtls", &["DTLS"]),
    ("ftp", &["FTP_CONTROL"]),
    ("http", &["HTTP", "HTTP_Proxy", "HTTP_Connect", "WebSocket", "SOAP"]),
    ("ike", &["IPsec"]),
    ("imap", &["IMAP"]),
    ("irc", &["IRC"]),
    ("kerberos", &["Kerberos"]),
    ("ldap", &["LDAP"]),
    ("llmnr", &["LLMNR"]),
    ("mdns", &["MDNS"]),
    ("memcached", &["Memcached"]),
    ("mongodb", &["MongoDB"]),
    ("mqtt", &["MQTT"]),
    ("mysql", &["MySQL"]),
    ("netbios", &["NetBIOS"]),
    ("ntp", &["NTP"]),
    ("openvpn", &["OpenVPN"]),
    ("pop3", &["POP3"]),
    ("postgresql", &["PostgreSQL"]),
    ("quic", &["QUIC"]),
    ("radius", &["Radius"]),
    ("rdp", &["RDP"]),
    ("redis", &["Redis"]),
    ("rtcp", &["RTCP"]),
    ("rtp", &["RTP"]),
    ("rtsp", &["RTSP"]),
    ("sip", &["SIP"]),
    ("smb", &["SMBv1", "SMBv23"]),
    ("smtp", &["SMTP"]),
    ("snmp", &["SNMP"]),
    ("socks", &["SOCKS"]),
    ("ssdp", &["SSDP"]),
    ("ssh", &["SSH"]),
    ("stun", &["STUN"]),
    ("sun-rpc", &["NFS"]),
    ("syslog", &["Syslog"]),
    ("tds", &["MsSQL-TDS"]),
    ("telnet", &["Telnet"]),
    ("tftp", &["TFTP"]),
    ("tls", &["TLS", "SMTPS", "IMAPS", "POPS", "FTPS"]),
    ("vnc", &["VNC"]),
    ("wireguard", &["WireGuard"]),
    ("xmpp", &["Jabber"]),
];

/// The protocol in nDPI's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opinion {
    Ours(&'static str),
    /// A protocol that we don't have.
    Another,
    /// A service and no protocol, found by an address or a name.
    NoProtocol,
}

impl Opinion {
    fn of(label: &str, protocol: u8) -> Self {
        let (first, rest) = label.split_once('.').unwrap_or((label, ""));
        // SMB in the NetBIOS session service counts as SMB; NetBIOS datagrams count as NetBIOS.
        let first =
            if first == "NetBIOS" && rest.starts_with("SMB") && protocol == protocol::TCP { rest } else { first };
        let ours = NAMES.iter().find(|(_, labels)| labels.contains(&first));
        match (ours, first) {
            (Some((name, _)), _) => Self::Ours(name),
            (None, "Google" | "Facebook" | "WhatsApp" | "AmazonAWS" | "Azure" | "Apple" | "Cloudflare" | "Dropbox") => {
                Self::NoProtocol
            }
            (None, "Spotify" | "Steam" | "TeamViewer" | "MS_OneDrive" | "ApplePush" | "Mining" | "Skype_Teams") => {
                Self::NoProtocol
            }
            (None, _) => Self::Another,
        }
    }
}

/// The key of a flow, lower endpoint first.
type Flow = (u8, (IpAddr, u16), (IpAddr, u16));

fn flow(protocol: u8, one: (IpAddr, u16), other: (IpAddr, u16)) -> Flow {
    (protocol, one.min(other), one.max(other))
}

/// Reads the labels of each file below a folder.
fn labels(traces: &Path, folder: &str) -> HashMap<String, HashMap<Flow, Opinion>> {
    let file = File::open(traces.join("labels/flows_ndpi42.tsv.zst")).expect("the labels are there");
    let mut decoder = zstd::stream::read::Decoder::new(file).expect("they are compressed");
    decoder.window_log_max(27).expect("a window of 128 MiB is one");
    let mut found: HashMap<String, HashMap<Flow, Opinion>> = HashMap::new();
    for line in BufReader::new(decoder).lines().skip(1) {
        let line = line.expect("they are text");
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, protocol, src, sport, dst, dport, label, ..] = fields[..] else { panic!("{line}") };
        if !file.starts_with(folder) || !matches!(protocol, "6" | "17") {
            continue;
        }
        let end = |address: &str, port: &str| Some((address.parse().ok()?, port.parse().ok()?));
        let (Some(one), Some(other)) = (end(src, sport), end(dst, dport)) else { continue };
        let protocol = protocol.parse().expect("6 or 17");
        found.entry(file.to_owned()).or_default().insert(flow(protocol, one, other), Opinion::of(label, protocol));
    }
    found
}

/// Classifies each flow with payload of a capture.
fn classified(path: &Path) -> Option<HashMap<Flow, Option<&'static str>>> {
    let function: AppClassifier = AppClassifier::new(&Config::default());
    let mut sessions: HashMap<FiveTuple, (Session, bool)> = HashMap::new();
    for (packet, bytes) in captures::read(path)?.iter() {
        let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
        let Some(headers) = parsed.ok().filter(|headers| headers.fragment != Fragment::Later) else { continue };
        let Some(meta) = function.meta(&headers, bytes) else { continue };
        let mut cx = Context::<AppClassifier, Local>::new(&(), LocalTx::default(), packet.time, Seq(0));
        let (session, speaks) = sessions.entry(meta.key()).or_default();
        *speaks |= !headers.payload(bytes).is_empty();
        let Ok(_) = function.packet(&mut cx, session, &meta);
    }
    let end = |end: Endpoint| (end.address, end.port);
    let name = |tuple: &FiveTuple| flow(tuple.protocol(), end(tuple.source()), end(tuple.destination()));
    // nDPI guesses sessions without payload by the port.
    let spoken = sessions.iter().filter(|(_, (_, speaks))| *speaks);
    Some(spoken.map(|(tuple, (session, _))| (name(tuple), function.application(session))).collect())
}

/// The agreement on a protocol.
#[derive(Clone, Copy, Debug, Default)]
struct Agreement {
    /// Flows that both name so.
    both: u32,
    /// Flows that only we name so, and nDPI otherwise.
    ours_alone: u32,
    /// Flows that only nDPI names so.
    theirs_alone: u32,
    /// Flows that we name so, and for which nDPI names no protocol.
    unjudged: u32,
}

impl Agreement {
    fn precision(&self) -> u32 {
        percent(self.both, self.both + self.ours_alone)
    }

    fn recall(&self) -> u32 {
        percent(self.both, self.both + self.theirs_alone)
    }
}

/// Returns a percentage, rounded down; 100 of nothing.
fn percent(part: u32, whole: u32) -> u32 {
    (100 * part).checked_div(whole).unwrap_or(100)
}

fn compare(traces: &Path, folder: &str, say: bool) -> BTreeMap<&'static str, Agreement> {
    let mut agreements: BTreeMap<&str, Agreement> = BTreeMap::new();
    for (file, labels) in labels(traces, folder) {
        let Some(classified) = classified(&traces.join(&file)) else { continue };
        for (flow, ours) in &classified {
            let theirs = labels.get(flow).copied().unwrap_or(Opinion::NoProtocol);
            if let Some(ours) = ours {
                let agreement = agreements.entry(ours).or_default();
                match theirs {
                    Opinion::Ours(name) if name == *ours => agreement.both += 1,
                    Opinion::NoProtocol => agreement.unjudged += 1,
                    Opinion::Ours(_) | Opinion::Another => agreement.ours_alone += 1,
                }
            }
            if let Opinion::Ours(name) = theirs
                && *ours != Some(name)
            {
                agreements.entry(name).or_default().theirs_alone += 1;
            }
            let differs = ours.is_some() && theirs != Opinion::NoProtocol || matches!(theirs, Opinion::Ours(_));
            if say && differs && theirs != ours.map_or(Opinion::Another, Opinion::Ours) {
                println!("{file}: {flow:?}: {ours:?}, nDPI {theirs:?}");
            }
        }
    }
    agreements
}

fn print(folder: &str, agreements: &BTreeMap<&str, Agreement>) {
    println!("| {folder} | both | we alone | nDPI alone | precision | recall | unjudged |");
    for (name, agreement) in agreements {
        let Agreement { both, ours_alone, theirs_alone, unjudged } = agreement;
        let (precision, recall) = (agreement.precision(), agreement.recall());
        println!("| {name} | {both} | {ours_alone} | {theirs_alone} | {precision} | {recall} | {unjudged} |");
    }
}

#[test]
fn agrees_with_ndpi_as_far_as_it_did() {
    let Some(traces) = captures::shared() else {
        eprintln!("SKIPPED (no ../shared/traces)");
        return;
    };
    let agreements = compare(&traces, "apps/", std::env::var_os("MILLRACE_SAY").is_some());
    print("apps/", &agreements);
    for (name, precision, recall) in FLOORS {
        let agreement = agreements.get(name).copied().unwrap_or_default();
        assert!(agreement.precision() >= *precision, "{name}: precision {}: {agreement:?}", agreement.precision());
        assert!(agreement.recall() >= *recall, "{name}: recall {}: {agreement:?}", agreement.recall());
    }
}
