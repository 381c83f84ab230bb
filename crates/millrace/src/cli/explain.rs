//! `millrace explain`: what a function does with one packet, and why.

use std::sync::Arc;

use catalogue::chain::Way;
use catalogue::{Catalogue, Decided, Explained};
use clap::builder::ArgPredicate;
use packet::{Fragment, Headers, Malformed, Network, TcpFlags, Transport, parse, protocol};
use port::MemoryQueue;
use serde_json::{Value, json};

use super::failure::Failed;
use super::traffic::Source;
use super::{CHAIN, Configuration};
use crate::print::number::{count, counted, iso};
use crate::print::output::{print, print_json};
use crate::print::style::Style;

/// Explain what a function does with a packet of a capture
///
/// Runs the function over the packets before it. Then tells what the parser reads, the key of the packet's packet set, its state before and
/// after, the verdict with the reason of a drop, and what is rewritten; of a chain, each function's part. For rule sets, `millrace rules explain` tells the way rule by rule.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace explain firewall --in a.pcap --packet 1734
  millrace explain nat --config nat.toml --in a.pcap --packet 17 --json")]
pub(super) struct Args {
    /// Name of the function (`millrace functions` lists them)
    #[arg(
        value_name = "FUNCTION",
        required = false,
        required_unless_present = "chain",
        default_value_if("chain", ArgPredicate::IsPresent, "chain")
    )]
    function: String,
    #[command(flatten)]
    source: Source,
    /// Number of the packet, from 1, among those that are taken
    #[arg(long, value_name = "NUMBER")]
    packet: u64,
    #[command(flatten)]
    configuration: Configuration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Packets of a batch.
const BURST: usize = 256;

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = args.configuration.entry(catalogue, &args.function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    let traffic = args.source.load(args.json)?;
    let packets = traffic.trace.len() as u64;
    let number = args.packet;
    if number == 0 || number > packets {
        let (number, taken) = (count(number), counted(packets, "packet is", "packets are"));
        if let Some(option) = args.source.limit(packets) {
            return Err(Failed::usage(format_args!("--packet {number}: only the first {taken} taken; raise {option}")));
        }
        let packets = counted(packets, "packet", "packets");
        return Err(Failed::usage(format_args!("--packet {number}: {} has {packets}, from number 1", traffic.name)));
    }
    let mut queue = MemoryQueue::new(Arc::clone(&traffic.trace), BURST);
    let explained = Explained::of(&mut *program.stepper(), &mut queue, number - 1)?;
    let Some(explained) = explained else {
        return Err(Failed::usage(format_args!("--packet {}: there is no such packet", count(number))));
    };
    let settings = args.configuration.settings()?;
    let is_chain = args.function == CHAIN && catalogue::chain::parts(&settings)?.len() > 1;
    let way = if is_chain {
        let mut queue = MemoryQueue::new(Arc::clone(&traffic.trace), BURST);
        catalogue::chain::explain(&settings, &mut queue, number - 1)?.unwrap_or_default()
    } else {
        Way::new()
    };
    let told = Told { function: &args.function, number, explained: &explained };
    let parts: Vec<Told<'_>> = way.iter().map(|(function, explained)| Told { function, number, explained }).collect();
    if args.json {
        let mut all = told.json();
        if is_chain {
            all["functions"] = parts.iter().map(Told::json).collect();
        }
        return print_json(&all);
    }
    print(&(told.text() + &parts.iter().map(Told::part).collect::<String>()))
}

struct Told<'a> {
    function: &'a str,
    number: u64,
    explained: &'a Explained,
}

impl Told<'_> {
    fn text(&self) -> String {
        let style = Style::stdout();
        let Explained { packet, headers, key, state_before, state_after, .. } = self.explained;
        let mut out = format!(
            "{} {} at {}, {} bytes, by port {}\n",
            style.bold("packet"),
            count(self.number),
            iso(packet.time),
            count(self.explained.before.len() as u64),
            packet.interface
        );
        let mut line = |name: &str, text: &str| out += &format!("  {name:<8}{text}\n");
        line("parsed", &read(headers));
        match key {
            None => line("key", "none: this function keeps nothing about such packets"),
            Some(key) => {
                line("key", key);
                line("before", state_before.as_deref().unwrap_or("no flow"));
                line("after", state_after.as_deref().unwrap_or("no flow"));
            }
        }
        line("verdict", &self.verdict());
        self.changes().iter().for_each(|change| line("", change));
        out
    }

    /// The function's part in a chain.
    fn part(&self) -> String {
        let Explained { key, state_before, state_after, .. } = self.explained;
        let mut out = format!("  {}\n", Style::stdout().bold(self.function));
        let mut line = |name: &str, text: &str| out += &format!("    {name:<8}{text}\n");
        if let Some(key) = key {
            line("key", key);
        }
        if let Some(state) = state_before {
            line("before", state);
        }
        if let Some(state) = state_after {
            line("after", state);
        }
        line("verdict", &self.verdict());
        self.changes().iter().for_each(|change| line("", change));
        out
    }

    fn verdict(&self) -> String {
        match self.explained.decided {
            Decided::Forwarded => {
                let ports: Vec<String> = self.explained.packet.fate.ports().map(|port| port.to_string()).collect();
                format!("forwarded, by port {}", ports.join(" and a copy by port "))
            }
            Decided::Replied => "answered, by the port that it came in by".to_owned(),
            Decided::Dropped(reason) => {
                format!("dropped: {reason} (`millrace functions {}` names the reasons)", self.function)
            }
        }
    }

    /// The differences between the packet as it came and as it is sent.
    fn changes(&self) -> Vec<String> {
        let Explained { packet, before, after, headers, decided, .. } = self.explained;
        if matches!(decided, Decided::Dropped(_)) || before == after {
            return Vec::new();
        }
        let sent = parse(packet.link, after, after.len() as u32, packet.interface);
        if *decided == Decided::Replied {
            return vec![format!("the answer: {}", read(&sent))];
        }
        let (Ok(headers), Ok(sent)) = (headers, &sent) else { return vec!["its bytes are changed".to_owned()] };
        let mut changes = Vec::new();
        let mut change = |name: &str, old: Option<String>, new: Option<String>| {
            if old != new {
                let word = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
                changes.push(format!("{name}: {} is now {}", word(old), word(new)));
            }
        };
        let address = |headers: &Headers, is_source: bool| {
            headers.addresses().map(|(source, destination)| if is_source { source } else { destination }.to_string())
        };
        change("source", address(headers, true), address(sent, true));
        change("destination", address(headers, false), address(sent, false));
        change("source port", Some(headers.ports().0.to_string()), Some(sent.ports().0.to_string()));
        change("destination port", Some(headers.ports().1.to_string()), Some(sent.ports().1.to_string()));
        change("TTL", ttl(headers), ttl(sent));
        let macs = |headers: &Headers| headers.macs.map(|(source, destination)| format!("{source} > {destination}"));
        change("Ethernet", macs(headers), macs(sent));
        change("length", Some(before.len().to_string()), Some(after.len().to_string()));
        if changes.is_empty() { vec!["other bytes are changed".to_owned()] } else { changes }
    }

    fn json(&self) -> Value {
        let Explained { packet, before, after, headers, key, state_before, state_after, decided } = self.explained;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (verdict, reason) = match decided {
            Decided::Forwarded => ("forwarded", None),
            Decided::Replied => ("replied", None),
            Decided::Dropped(reason) => ("dropped", Some(*reason)),
        };
        json!({
            "packet": self.number,
            "function": self.function,
            "time": iso(packet.time),
            "port": packet.interface,
            "parsed": read(headers),
            "key": key,
            "state_before": state_before,
            "state_after": state_after,
            "verdict": verdict,
            "reason": reason,
            "ports": packet.fate.ports().collect::<Vec<_>>(),
            "changes": self.changes(),
            "bytes": hex(before),
            "bytes_sent": (!matches!(decided, Decided::Dropped(_))).then(|| hex(after)),
        })
    }
}

fn ttl(headers: &Headers) -> Option<String> {
    match headers.network {
        Network::V4(ip) => Some(ip.ttl.to_string()),
        Network::V6(ip) => Some(ip.hop_limit.to_string()),
        Network::None | Network::Unreadable | Network::Arp => None,
    }
}

/// The flags of a TCP segment by name.
fn flags(flags: TcpFlags) -> String {
    const NAMES: [(u8, &str); 6] =
        [(0x02, "SYN"), (0x10, "ACK"), (0x01, "FIN"), (0x04, "RST"), (0x08, "PSH"), (0x20, "URG")];
    let names: Vec<&str> = NAMES.iter().filter(|(bit, _)| flags.0 & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { "without flags".to_owned() } else { names.join("+") }
}

/// Formats parsed headers in words.
pub(super) fn read(headers: &Result<Headers, Malformed>) -> String {
    let headers = match headers {
        Err(malformed) => return format!("malformed: {malformed}"),
        Ok(headers) => headers,
    };
    let mut parts = Vec::new();
    if let Some((source, destination)) = headers.macs {
        parts.push(format!("Ethernet {source} > {destination}"));
    }
    for id in headers.vlans.ids.iter().take(usize::from(headers.vlans.count)) {
        parts.push(format!("VLAN {id}"));
    }
    match headers.network {
        Network::V4(_) | Network::V6(_) => {
            let tuple = headers.five_tuple().map(|tuple| tuple.to_string());
            let name = protocol::name(headers.protocol).map_or_else(|| headers.protocol.to_string(), str::to_owned);
            parts.push(format!("IP {}", tuple.unwrap_or(name)));
            parts.extend(ttl(headers).map(|ttl| format!("TTL {ttl}")));
            if let Transport::Tcp(tcp) = headers.transport {
                let flags = flags(tcp.flags);
                parts.push(format!("TCP {flags} seq {} ack {} window {}", tcp.seq, tcp.ack, tcp.window));
            }
            parts.push(format!("{} bytes of payload", headers.payload_len));
        }
        Network::Arp => parts.push("ARP".to_owned()),
        Network::Unreadable => parts.push(format!("unreadable, EtherType {:#06x}", headers.ethertype)),
        Network::None => parts.push(format!("no IP, EtherType {:#06x}", headers.ethertype)),
    }
    match headers.fragment {
        Fragment::Whole => {}
        Fragment::First => parts.push("the first fragment of a datagram".to_owned()),
        Fragment::Later => parts.push("a later fragment of a datagram".to_owned()),
    }
    parts.join("; ")
}
