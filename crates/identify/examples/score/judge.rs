//! Sessions out of captures, and the comparison with nDPI's labels.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use millrace_identify::{DatagramState, LIMIT, Prefixes, Side, Signatures};
use packet::{Fragment, Transport, protocol};
use port::Trace;
use port::pcap::Reader;

/// A protocol's number, and both ends, the lower one first.
pub(crate) type Key = (u8, (IpAddr, u16), (IpAddr, u16));

/// A session of a capture.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// True if the lower end opened it.
    opened_by_lower: bool,
    /// The first number of each side's stream.
    first: [Option<u32>; 2],
    /// Offset, bytes, and whether the capture cut some off.
    segments: [Vec<(u32, Vec<u8>, bool)>; 2],
    /// Datagrams in order.
    datagrams: Vec<(Side, Vec<u8>)>,
}

impl Session {
    /// The beginning of one side's stream, as far as it is without gaps.
    pub(crate) fn stream(&self, side: usize) -> Vec<u8> {
        let mut sorted: Vec<_> = self.segments[side].iter().collect();
        sorted.sort_by_key(|(offset, ..)| *offset);
        let mut joined = Vec::new();
        for (offset, bytes, cut) in sorted {
            let offset = *offset as usize;
            if offset > joined.len() || joined.len() >= LIMIT {
                break;
            }
            if offset + bytes.len() > joined.len() {
                joined.extend_from_slice(&bytes[joined.len() - offset..]);
            }
            if *cut {
                break;
            }
        }
        joined
    }

    /// The payload of the first datagram.
    pub(crate) fn first_datagram(&self) -> Option<Vec<u8>> {
        self.datagrams.first().map(|(_, payload)| payload.clone())
    }

    /// The first segment of one side's stream, if it was captured.
    pub(crate) fn first_segment(&self, side: usize) -> Vec<u8> {
        let first = self.segments[side].iter().find(|(offset, ..)| *offset == 0);
        first.map(|(_, bytes, _)| bytes.clone()).unwrap_or_default()
    }

    /// True if any payload was seen.
    pub(crate) fn speaks(&self) -> bool {
        !self.datagrams.is_empty() || self.segments.iter().any(|segments| !segments.is_empty())
    }

    /// The protocol's name by its payload.
    pub(crate) fn identify<'a>(&self, signatures: &'a Signatures) -> Option<&'a str> {
        let answer = if self.datagrams.is_empty() {
            let (initiator, responder) = (self.stream(0), self.stream(1));
            signatures.stream(&Prefixes {
                initiator: &initiator,
                responder: &responder,
                initiator_ended: true,
                responder_ended: true,
            })
        } else {
            let mut state = DatagramState::default();
            for (side, payload) in &self.datagrams {
                let _answer = signatures.datagram(&mut state, *side, payload);
            }
            signatures.datagrams_end(&state)
        };
        answer.protocol().map(|protocol| signatures.name(protocol))
    }
}

/// Reads the sessions of a capture.
pub(crate) fn sessions(path: &Path) -> Option<HashMap<Key, Session>> {
    let mut reader = Reader::open(path).ok()?;
    let mut trace = Trace::new();
    // Packets before a defect count.
    let _defect = trace.fill(&mut reader, usize::MAX);
    let mut sessions: HashMap<Key, Session> = HashMap::new();
    for (packet, bytes) in trace.iter() {
        let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
        let Some(headers) = parsed.ok().filter(|headers| headers.fragment != Fragment::Later) else { continue };
        let Some(tuple) = headers.five_tuple() else { continue };
        let end = |end: packet::Endpoint| (end.address, end.port);
        let (source, destination) = (end(tuple.source()), end(tuple.destination()));
        let key = (tuple.protocol(), source.min(destination), source.max(destination));
        let from_lower = source == key.1;
        let payload = headers.payload(bytes);
        let cut = (payload.len() as u32) < headers.payload_len;
        match headers.transport {
            Transport::Tcp(tcp) if tuple.protocol() == protocol::TCP => {
                let session = sessions.entry(key).or_insert_with(|| Session {
                    // An answer that comes first was called by the other end.
                    opened_by_lower: from_lower != (tcp.flags.0 & 0x12 == 0x12),
                    ..Session::default()
                });
                let side = usize::from(from_lower != session.opened_by_lower);
                if tcp.flags.0 & 2 != 0 && session.first[side].is_none_or(|_| session.segments[side].is_empty()) {
                    session.first[side] = Some(tcp.seq.wrapping_add(1));
                }
                if payload.is_empty() {
                    continue;
                }
                let seq = tcp.seq.wrapping_add(u32::from(tcp.flags.0 & 2 != 0));
                let first = *session.first[side].get_or_insert(seq);
                let offset = seq.wrapping_sub(first);
                if offset < 1 << 20 {
                    session.segments[side].push((offset, payload.to_vec(), cut));
                }
            }
            Transport::Udp { .. } if tuple.protocol() == protocol::UDP => {
                let session = sessions
                    .entry(key)
                    .or_insert_with(|| Session { opened_by_lower: from_lower, ..Session::default() });
                let side = if from_lower == session.opened_by_lower { Side::Initiator } else { Side::Responder };
                if !payload.is_empty() && session.datagrams.len() < 40 {
                    session.datagrams.push((side, payload.to_vec()));
                }
            }
            _ => {}
        }
    }
    Some(sessions)
}

/// nDPI's names of protocols, and ours that are as good.
const NAMES: &[(&str, &[&str])] = &include!("names.in");

/// What nDPI says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opinion {
    /// A protocol, by its place in [`NAMES`].
    Protocol(usize),
    /// A protocol that has no name here.
    Another,
    /// A service, found by an address or a name: no protocol.
    Service,
}

/// What nDPI names wrongly, by the captures' own names and by tshark: its label, and what the sessions are. Neither counts.
const ERRORS: &[(&str, &str)] = &[
    ("MQTT", "ldap"),
    ("Cassandra", "h323"),
    ("Cassandra", "radmin"),
    ("MDNS", "dnscrypt"),
    ("IMAPS", "imap"),
    ("Skype_Teams", "knxnet_ip"),
    ("NOE", "tftp"),
    ("TLS", "http2"),
];

/// Services in nDPI's list.
const SERVICES: &[&str] = &[
    "Google",
    "Facebook",
    "AmazonAWS",
    "Azure",
    "Apple",
    "Cloudflare",
    "Dropbox",
    "MS_OneDrive",
    "ApplePush",
    "Microsoft",
    "Twitter",
    "WhatsApp",
    "TLS_Service",
    "GMail",
    "YouTube",
    "Instagram",
    "Telegram_IP",
    "Unknown",
    "",
];

impl Opinion {
    fn of(label: &str) -> Self {
        let mut parts = label.split('.');
        let first = parts.next().unwrap_or_default();
        let second = parts.next();
        let find = |name: &str| NAMES.iter().position(|(theirs, _)| *theirs == name);
        match (find(first), second.and_then(find)) {
            (Some(number), _) | (None, Some(number)) => Self::Protocol(number),
            (None, None) if SERVICES.contains(&first) => Self::Service,
            (None, None) => Self::Another,
        }
    }
}

/// What two versions of nDPI call a flow: 4.2, and for its own captures a newer one, which knows more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Label {
    older: String,
    newer: String,
}

impl Label {
    /// True if one of the versions calls the flow so.
    fn agrees(&self, ours: &str) -> bool {
        let says = |label: &str| match Opinion::of(label) {
            Opinion::Protocol(number) => NAMES[number].1.contains(&ours),
            Opinion::Another | Opinion::Service => label.split('.').any(|part| part.eq_ignore_ascii_case(ours)),
        };
        says(&self.older) || says(&self.newer)
    }
}

/// True if nDPI's label is one of its known errors.
fn is_error(label: &str, ours: &str) -> bool {
    let first = label.split('.').next();
    ERRORS.iter().any(|(theirs, truth)| first == Some(theirs) && *truth == ours)
}

/// What ndpiReader prints of flows at its level of detail 2: the label, and whether the payload told it, and not ports or addresses.
fn listing(text: &str) -> HashMap<Key, (String, bool)> {
    let mut found = HashMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let _number = words.next();
        let number = match words.next() {
            Some("TCP") => protocol::TCP,
            Some("UDP") => protocol::UDP,
            _ => continue,
        };
        let (one, _arrow, other) = (words.next(), words.next(), words.next());
        let by_payload = line.contains("[Confidence: DPI]") || line.contains("[Confidence: DPI (");
        let ends = one.and_then(end_of).zip(other.and_then(end_of));
        let label =
            line.split_once("[proto: ").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(label, _)| label);
        let label = label.split_once('/').map_or("", |(_, label)| label).to_owned();
        if let Some((one, other)) = ends {
            found.insert((number, one.min(other), one.max(other)), (label, by_payload));
        }
    }
    found
}

/// The labels of a capture that ndpiReader has listed: those by payload.
pub(crate) fn listed(listing_of: &Path) -> std::io::Result<HashMap<Key, Label>> {
    let text = std::fs::read(listing_of)?;
    let by_payload = listing(&String::from_utf8_lossy(&text)).into_iter().filter(|(_, (_, by_payload))| *by_payload);
    Ok(by_payload.map(|(key, (older, _))| (key, Label { older, newer: String::new() })).collect())
}

/// What a newer nDPI says of its own captures: the label, and whether it found it by the payload, and not by ports or addresses.
fn newer(traces: &Path) -> HashMap<(String, Key), (String, bool)> {
    let mut found = HashMap::new();
    let Some(archive) = unpack(&traces.join("labels/ndpi.tar.zst")) else { return found };
    for (name, text) in files_of_tar(&archive) {
        let Some(capture) = name.strip_prefix("ndpi/").and_then(|name| name.strip_suffix(".out")) else { continue };
        let listed = listing(&String::from_utf8_lossy(text));
        found.extend(listed.into_iter().map(|(key, label)| ((format!("apps/{capture}"), key), label)));
    }
    found
}

/// Reads `10.0.0.1:80` or `[2001:db8::1]:80`.
fn end_of(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.rsplit_once(':')?;
    Some((address.trim_matches(['[', ']']).parse().ok()?, port.parse().ok()?))
}

fn unpack(path: &Path) -> Option<Vec<u8>> {
    let mut decoder = zstd::stream::read::Decoder::new(File::open(path).ok()?).ok()?;
    decoder.window_log_max(27).ok()?;
    let mut bytes = Vec::new();
    decoder.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The files of an archive in tar's oldest form: heads of 512 bytes with a name and a size in octal digits.
fn files_of_tar(archive: &[u8]) -> Vec<(String, &[u8])> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(head) = archive.get(at..at + 512).filter(|head| head[0] != 0) {
        let text = |range: std::ops::Range<usize>| {
            String::from_utf8_lossy(&head[range]).trim_end_matches(['\0', ' ']).to_owned()
        };
        let len = usize::from_str_radix(&text(124..136), 8).unwrap_or(0);
        if let Some(content) = archive.get(at + 512..at + 512 + len) {
            found.push((text(0..100), content));
        }
        at += 512 + len.next_multiple_of(512);
    }
    found
}

fn end_in(address: &str, port: &str) -> Option<(IpAddr, u16)> {
    Some((address.parse().ok()?, port.parse().ok()?))
}

/// Reads the labels of each file of a folder.
pub(crate) fn labels(traces: &Path, folder: &str) -> BTreeMap<String, HashMap<Key, Label>> {
    let file = File::open(traces.join("labels/flows_ndpi42.tsv.zst")).expect("the labels are there");
    let mut decoder = zstd::stream::read::Decoder::new(file).expect("they are compressed");
    decoder.window_log_max(27).expect("a window of 128 MiB is one");
    let mut found: BTreeMap<String, HashMap<Key, Label>> = BTreeMap::new();
    let newer = newer(traces);
    for line in BufReader::new(decoder).lines().skip(1) {
        let line = line.expect("they are text");
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, number, src, sport, dst, dport, label, ..] = fields[..] else { panic!("{line}") };
        if !file.starts_with(folder) || !matches!(number, "6" | "17") {
            continue;
        }
        let (Some(one), Some(other)) = (end_in(src, sport), end_in(dst, dport)) else { continue };
        let key = (number.parse().expect("6 or 17"), one.min(other), one.max(other));
        let label = match newer.get(&(file.to_owned(), key)) {
            Some((_, false)) => Label::default(),
            Some((newer, true)) => Label { older: label.to_owned(), newer: newer.clone() },
            None => Label { older: label.to_owned(), newer: String::new() },
        };
        found.entry(file.to_owned()).or_default().insert(key, label);
    }
    found
}

/// Returns the labelled captures of a folder, sorted.
pub(crate) fn files(traces: &Path, folder: &str) -> Vec<String> {
    labels(traces, folder).into_keys().collect()
}

/// The agreement on a protocol.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreement {
    /// Sessions that both name so.
    pub(crate) both: u32,
    /// Sessions that we name so, and nDPI otherwise.
    pub(crate) ours_alone: u32,
    /// Sessions that nDPI names so and we otherwise or not.
    pub(crate) theirs_alone: u32,
    /// Sessions that we name so, and for which nDPI names no protocol.
    pub(crate) unjudged: u32,
}

/// The comparison of a folder.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// By protocol, in our names where we have one.
    pub(crate) protocols: BTreeMap<String, Agreement>,
    /// One line each.
    pub(crate) disagreements: Vec<String>,
    /// What nDPI does not name and we do.
    pub(crate) unjudged: Vec<String>,
    /// Captures that were read.
    pub(crate) captures: u32,
}

impl Report {
    /// Agreements, our disagreements, theirs.
    pub(crate) fn totals(&self) -> (u32, u32, u32) {
        self.protocols.values().fold((0, 0, 0), |(both, ours, theirs), one| {
            (both + one.both, ours + one.ours_alone, theirs + one.theirs_alone)
        })
    }

    /// The share of sessions named by nDPI that we name alike.
    pub(crate) fn recall(&self) -> f64 {
        let (both, _, theirs) = self.totals();
        f64::from(both) / f64::from((both + theirs).max(1))
    }

    /// The share of sessions that both name which both name alike.
    pub(crate) fn precision(&self) -> f64 {
        let (both, ours, _) = self.totals();
        f64::from(both) / f64::from((both + ours).max(1))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| protocol | both | we alone | nDPI alone | unjudged |\n|---|---|---|---|---|")?;
        for (name, Agreement { both, ours_alone, theirs_alone, unjudged }) in &self.protocols {
            writeln!(f, "| {name} | {both} | {ours_alone} | {theirs_alone} | {unjudged} |")?;
        }
        let (recall, precision) = (self.recall(), self.precision());
        writeln!(f, "\n{} captures: recall {recall:.4}, precision {precision:.4}", self.captures)
    }
}

/// Compares all captures of a folder, or every second of them.
pub(crate) fn compare(traces: &Path, labelled: impl IntoIterator<Item = (String, HashMap<Key, Label>)>) -> Report {
    let signatures = Signatures::built_in();
    let mut report = Report::default();
    for (file, labels) in labelled {
        let Some(sessions) = sessions(&traces.join(&file)) else { continue };
        report.captures += 1;
        for (key, session) in &sessions {
            // nDPI guesses sessions without payload by the port.
            if !session.speaks() {
                continue;
            }
            let label = labels.get(key);
            let older = label.map_or("", |label| label.older.as_str());
            let theirs = Opinion::of(older);
            let ours = session.identify(&signatures);
            let entry = |report: &mut Report, name: &str, add: fn(&mut Agreement)| {
                add(report.protocols.entry(name.to_owned()).or_default());
            };
            let agrees = label.zip(ours).is_some_and(|(label, ours)| label.agrees(ours));
            match (theirs, ours) {
                (_, Some(ours)) if agrees => entry(&mut report, ours, |one| one.both += 1),
                (_, Some(ours)) if is_error(older, ours) => {
                    entry(&mut report, ours, |one| one.unjudged += 1);
                }
                (Opinion::Service, Some(ours)) => {
                    entry(&mut report, ours, |one| one.unjudged += 1);
                    report.unjudged.push(format!("{file}: {key:?}: {ours}, nDPI none {older}"));
                }
                (Opinion::Service, None) => {}
                (_, ours) => {
                    if let Some(ours) = ours {
                        entry(&mut report, ours, |one| one.ours_alone += 1);
                    }
                    let name = match theirs {
                        Opinion::Protocol(number) => NAMES[number].1[0].to_owned(),
                        _ => format!("({older})"),
                    };
                    entry(&mut report, &name, |one| one.theirs_alone += 1);
                    report.disagreements.push(format!("{file}: {key:?}: {ours:?}, nDPI {older}"));
                }
            }
        }
    }
    report
}
