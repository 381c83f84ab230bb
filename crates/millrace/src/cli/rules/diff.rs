//! `millrace rules diff`: the packets that two rule sets treat differently.

use std::collections::BTreeMap;
use std::path::PathBuf;

use functions::rules::Rules;
use lab::Driver;
use nf::{NetworkFunction, Reply, Verdict};
use packet::{FiveTuple, IcmpError, Rewrite};
use serde_json::{Value, json};

use super::machine::Machine;
use super::outcome::{forwarded, is_by_unknown_port, note_ports, verdict};
use crate::cli::defragment::DefragmentOption;
use crate::cli::failure::{Failed, OUTCOME};
use crate::cli::traffic::Source;
use crate::print::fragments::json as fragments_json;
use crate::print::number::{count, counted};
use crate::print::output::{print, print_json};
use crate::print::style::Style;

/// Compare two rule sets on the packets of a capture
///
/// Lists the packets that the new rules treat differently from the old ones: first how many of each kind, then by addresses and ports, in
/// the order of the capture. Exit code 1 if there are any.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace rules diff old.v4 new.v4 --in a.pcap
  millrace rules diff old.v4 new.v4 --router router.toml --in a.pcap --json")]
pub(super) struct Args {
    /// File with the old rules, as `iptables-save` or `ip6tables-save` prints them
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// File with the new rules
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    defragment: DefragmentOption,
    /// Maximum number of lines by addresses and ports
    #[arg(long, default_value = "20", value_name = "NUMBER")]
    most: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Packets with the same addresses and ports whose treatment changes in the same way.
struct Group {
    first: u64,
    packets: u64,
    tuple: Option<FiveTuple>,
    old: String,
    new: String,
}

pub(super) fn diff(args: &Args) -> Result<(), Failed> {
    let (old, new) = (args.machine.with(&args.old)?, args.machine.with(&args.new)?);
    let wants = old.wants_whole_datagrams() || new.wants_whole_datagrams();
    let traffic = args.defragment.gathered(wants, args.source.load_with_none(args.json)?, args.json);
    let (mut old, mut new) = (Driver::new(old), Driver::new(new));
    let mut groups: Vec<Group> = Vec::new();
    let mut known: BTreeMap<(Option<FiveTuple>, String, String), usize> = BTreeMap::new();
    let (mut packets, mut changed, mut unknown) = (0, 0, 0);
    for (packet, bytes) in traffic.trace.iter() {
        packets += 1;
        let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
        let number = parsed.as_ref().map_or(0, |headers| headers.protocol);
        let verdicts = [&mut old, &mut new].map(|driver| verdict(driver, packet, bytes));
        unknown += u64::from(is_by_unknown_port(&verdicts[0]));
        let [before, after] = verdicts.map(|verdict| told(&verdict, number));
        if before == after {
            continue;
        }
        changed += 1;
        let tuple = parsed.as_ref().ok().and_then(packet::Headers::five_tuple);
        let key = (tuple, before, after);
        match known.get(&key) {
            Some(nth) => groups[*nth].packets += 1,
            None => {
                known.insert(key.clone(), groups.len());
                let (tuple, old, new) = key;
                groups.push(Group { first: packet.seq.0 + 1, packets: 1, tuple, old, new });
            }
        }
    }
    note_ports(new.function(), &traffic, unknown);
    if args.json {
        let fragments = traffic.fragments.as_ref().map(|(policy, counts)| fragments_json(*policy, counts));
        let group = |group: &Group| {
            let Group { first, packets, tuple, old, new } = group;
            json!({
                "first_packet": first, "packets": packets, "tuple": tuple.map(|tuple| tuple.to_string()),
                "old": old, "new": new,
            })
        };
        let shown: Vec<Value> = groups.iter().take(args.most).map(group).collect();
        print_json(
            &json!({ "packets": packets, "fragments": fragments, "changed": changed, "kinds": kinds(&groups).map(|(old, new, packets)| json!({ "old": old, "new": new, "packets": packets })).collect::<Vec<_>>(), "groups": groups.len(), "changes": shown }),
        )?;
    } else {
        print(&text(&groups, args.most, packets, changed))?;
    }
    if changed == 0 { Ok(()) } else { Err(Failed::Said(OUTCOME)) }
}

fn text(groups: &[Group], most: usize, packets: u64, changed: u64) -> String {
    let style = Style::stdout();
    if changed == 0 {
        return format!(
            "{} of {} would be treated differently\n",
            style.good("none"),
            counted(packets, "packet", "packets")
        );
    }
    let mut out =
        format!("{} of {} would be treated differently\n", count(changed), counted(packets, "packet", "packets"));
    let kinds = kinds(groups).map(|(old, new, packets)| (count(packets), old, new)).collect::<Vec<_>>();
    let width = kinds.iter().map(|(packets, ..)| packets.len()).max().unwrap_or(0);
    for (packets, old, new) in kinds {
        out += &format!("  {packets:>width$}  {old} -> {new}\n");
    }
    out.push('\n');
    for Group { first, packets, tuple, old, new } in groups.iter().take(most) {
        let tuple = tuple.map_or_else(|| "not IP".to_owned(), |tuple| tuple.to_string());
        out += &format!(
            "  {tuple}: {old} -> {new} ({}, first {})\n",
            counted(*packets, "packet", "packets"),
            count(*first)
        );
    }
    if groups.len() > most {
        out += &format!("  {} more; --most shows more\n", count((groups.len() - most) as u64));
    }
    out
}

/// The kinds of changes, the most frequent one first: what became of packets, what becomes of them, and how many there are.
fn kinds(groups: &[Group]) -> impl Iterator<Item = (String, String, u64)> {
    let mut packets: BTreeMap<(String, String), u64> = BTreeMap::new();
    for group in groups {
        let kind = |outcome: &str| match outcome.split_once(',') {
            Some((way, _)) => format!("{way}, rewritten"),
            None => outcome.to_owned(),
        };
        *packets.entry((kind(&group.old), kind(&group.new))).or_default() += group.packets;
    }
    let mut kinds: Vec<_> = packets.into_iter().map(|((old, new), packets)| (old, new, packets)).collect();
    kinds.sort_by_key(|(.., packets)| std::cmp::Reverse(*packets));
    kinds.into_iter()
}

/// What becomes of a packet, in words.
fn told(verdict: &Verdict, number: u8) -> String {
    match verdict {
        Verdict::Forward(port) => forwarded(*port, &Rewrite::NONE, number),
        Verdict::Rewrite { port, rewrite } => forwarded(*port, rewrite, number),
        Verdict::Drop(reason) => match reason.name(<Rules>::DESCRIPTION.drop_reasons) {
            "rule" | "policy" | "unanswerable" => "dropped".to_owned(),
            "to-router" => "let in to the router".to_owned(),
            name => format!("dropped ({name})"),
        },
        Verdict::Reply(Reply::TcpReset) => "rejected by a reset".to_owned(),
        Verdict::Reply(Reply::IcmpError(IcmpError { kind, code, .. })) => format!("rejected by ICMP {kind}/{code}"),
        Verdict::Copy { .. } | Verdict::Transform { .. } => "forwarded".to_owned(),
    }
}
