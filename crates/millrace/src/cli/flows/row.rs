//! Formats sessions.

use packet::{Endpoint, TcpFlags, protocol};
use serde_json::json;

use super::sessions::Session;
use crate::print::number::{bytes, count, iso};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Header line of CSV.
pub(super) const CSV_HEAD: &str = "first,last,duration_s,protocol,source,source_port,destination,destination_port,\
    packets,packets_back,bytes,bytes_back,flags,flags_back,state,application";

pub(super) fn csv(session: &Session) -> String {
    let Session { source, destination, packets, bytes, .. } = session;
    let [flags, back] = session.flags.map(letters);
    format!(
        "{},{},{:.6},{},{},{},{},{},{},{},{},{},{flags},{back},{},{}",
        iso(session.first),
        iso(session.last),
        duration(session),
        protocol_name(session.protocol),
        source.address,
        source.port,
        destination.address,
        destination.port,
        packets[0],
        packets[1],
        bytes[0],
        bytes[1],
        session.state(),
        session.application.as_deref().unwrap_or("")
    )
}

pub(super) fn jsonl(session: &Session) -> String {
    let Session { source, destination, packets, bytes, .. } = session;
    json!({
        "first": iso(session.first), "last": iso(session.last), "duration_s": duration(session),
        "protocol": protocol_name(session.protocol),
        "source": source.address.to_string(), "source_port": source.port,
        "destination": destination.address.to_string(), "destination_port": destination.port,
        "packets": packets, "bytes": bytes, "flags": session.flags.map(letters), "state": session.state(),
        "application": session.application,
    })
    .to_string()
}

/// Formats the first ones of `all` sessions as a table.
pub(super) fn text(sessions: &[Session], all: u64, style: Style) -> String {
    let columns = [
        ("first packet", Align::Left),
        ("seconds", Align::Right),
        ("protocol", Align::Left),
        ("source", Align::Left),
        ("destination", Align::Left),
        ("packets", Align::Right),
        ("back", Align::Right),
        ("bytes", Align::Right),
        ("back", Align::Right),
        ("flags", Align::Left),
        ("back", Align::Left),
        ("state", Align::Left),
        ("application", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    for session in sessions {
        let [flags, back] = session.flags.map(letters);
        let ends = [session.source, session.destination].map(|end| shown_end(end, session.protocol));
        let [source, destination] = ends;
        let cells = [
            iso(session.first),
            format!("{:.3}", duration(session)),
            protocol_name(session.protocol),
            source,
            destination,
            count(session.packets[0]),
            count(session.packets[1]),
            bytes(session.bytes[0]),
            bytes(session.bytes[1]),
            flags,
            back,
            session.state().to_owned(),
            session.application.as_deref().unwrap_or("-").to_owned(),
        ];
        sheet.toned(cells.map(|cell| (cell, Tone::Plain)));
    }
    let reported = match (all, sessions.len() as u64) {
        (0, _) => return "no sessions\n".to_owned(),
        (1, _) => "1 session\n".to_owned(),
        (all, shown) if shown < all => {
            let [shown, all] = [shown, all].map(count);
            format!("{shown} of {all} sessions shown; `--top 0` shows all, csv and jsonl list all\n")
        }
        (all, _) => format!("{} sessions\n", count(all)),
    };
    format!("{}\n{}", sheet.lines(0), style.dim(reported))
}

fn duration(session: &Session) -> f64 {
    session.last.0.saturating_sub(session.first.0) as f64 / 1e9
}

fn protocol_name(number: u8) -> String {
    protocol::name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// Formats an endpoint, with the port if the protocol has ports.
fn shown_end(end: Endpoint, number: u8) -> String {
    match number {
        protocol::TCP | protocol::UDP | protocol::SCTP => end.to_string(),
        _ => end.address.to_string(),
    }
}

/// Formats TCP flags as tcpdump does; a dot stands for ACK.
fn letters(flags: TcpFlags) -> String {
    const LETTERS: [(u8, char); 8] =
        [(1, 'F'), (2, 'S'), (4, 'R'), (8, 'P'), (16, '.'), (32, 'U'), (64, 'E'), (128, 'W')];
    LETTERS.iter().filter(|(bit, _)| flags.0 & bit != 0).map(|(_, letter)| letter).collect()
}
