//! `millrace rules router`: the configuration of this machine as a router.

use std::fmt::Write as _;
use std::io;
use std::process::Command;

use serde_json::Value;

use crate::cli::failure::Failed;
use crate::print::output::print_as_it_is;

/// Print this machine's interfaces, addresses, routes and neighbours as a router's configuration
///
/// Asks `ip`. Ports have numbers from 0, in the order of the interfaces; correct them to those of your capture or your ports. What the
/// configuration can't express is left out, and a comment says so.
#[derive(clap::Args)]
#[command(after_help = "Example:
  millrace rules router > router.toml")]
pub(super) struct Args {}

pub(super) fn perform(Args {}: &Args) -> Result<(), Failed> {
    let asked = Asked {
        addresses: ask(&["-json", "addr"])?,
        routes: ask(&["-json", "route"])?,
        routes_v6: ask(&["-json", "-6", "route"])?,
        neighbours: ask(&["-json", "neigh"])?,
    };
    print_as_it_is(&text(&asked))
}

/// The output of `ip`.
struct Asked {
    addresses: Value,
    routes: Value,
    routes_v6: Value,
    neighbours: Value,
}

fn ask(arguments: &[&str]) -> Result<Value, Failed> {
    let line = format!("ip {}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failed::input("`ip` is not installed; it is a part of iproute2"),
        _ => Failed::input(format_args!("`{line}` can't be run: {error}")),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failed::input(format_args!("`{line}` failed: {}", said.trim())));
    }
    // Without an address or a route, some versions print nothing at all.
    match output.stdout.trim_ascii() {
        [] => Ok(Value::Array(Vec::new())),
        json => serde_json::from_slice(json)
            .map_err(|error| Failed::input(format_args!("`{line}` did not print JSON: {error}"))),
    }
}

/// The most interfaces that a router has.
const INTERFACES_MAX: usize = 63;
/// The smallest and the largest `mtu` of an interface.
const MTU: (u64, u64) = (68, 65_535);

/// An interface that is written.
struct Interface<'a> {
    name: &'a str,
    /// Its addresses, and the networks that follow from them.
    addresses: Vec<&'a str>,
    networks: Vec<String>,
}

fn text(asked: &Asked) -> String {
    let mut out = String::from("# Made by `millrace rules router`. Correct the numbers of the ports.\n");
    let mut known: Vec<Interface<'_>> = Vec::new();
    for entry in entries(&asked.addresses) {
        let name = word(entry, "ifname");
        if name == "lo" || name.is_empty() {
            continue;
        }
        if known.len() == INTERFACES_MAX {
            left_out(&mut out, &format!("interface {name}"), "there are more than 63");
            continue;
        }
        let interface = interface(&mut out, entry, name, known.len(), &known);
        known.push(interface);
    }
    let mut routes: Vec<&Value> = entries(&asked.routes).chain(entries(&asked.routes_v6)).collect();
    routes.sort_by_key(|route| route["metric"].as_u64().unwrap_or(0));
    let mut written = Vec::new();
    for entry in routes {
        route(&mut out, entry, &known, &mut written);
    }
    let mut neighbours = Vec::new();
    for entry in entries(&asked.neighbours) {
        let (address, device, mac) = (word(entry, "dst"), word(entry, "dev"), word(entry, "lladdr"));
        let is_failed = entries(&entry["state"]).any(|state| matches!(state.as_str(), Some("FAILED" | "INCOMPLETE")));
        let is_known = known.iter().any(|interface| interface.name == device) && mac.len() == "00:00:00:00:00:00".len();
        if is_failed || !is_known || neighbours.contains(&(address, device)) {
            continue;
        }
        neighbours.push((address, device));
        let _ = write!(out, "\n[[neighbour]]\naddress = \"{address}\"\ninterface = \"{device}\"\nmac = \"{mac}\"\n");
    }
    out
}

/// Writes an interface.
fn interface<'a>(
    out: &mut String,
    entry: &'a Value,
    name: &'a str,
    port: usize,
    before: &[Interface<'_>],
) -> Interface<'a> {
    let mut own = Interface { name, addresses: Vec::new(), networks: Vec::new() };
    let mut list = Vec::new();
    let mut comments = String::new();
    for given in entries(&entry["addr_info"]) {
        let (address, len) = (word(given, "local"), given["prefixlen"].as_u64().unwrap_or(0));
        let is_v6 = word(given, "family") == "inet6";
        let is_there = |interface: &Interface<'_>| interface.addresses.contains(&address);
        // The network of a peer is a route of its own.
        let len = if given["address"].is_string() { if is_v6 { 128 } else { 32 } } else { len };
        if own.addresses.contains(&address) || word(given, "scope") != "link" && before.iter().any(is_there) {
            left_out(&mut comments, &format!("address {address} of {name}"), "it is there twice");
            continue;
        }
        let Some(network) = network(address, len) else {
            left_out(&mut comments, &format!("address {address} of {name}"), "it is not an address");
            continue;
        };
        own.addresses.push(address);
        own.networks.push(network);
        list.push(format!("\"{address}/{len}\""));
    }
    let mtu = entry["mtu"].as_u64().unwrap_or(1_500);
    let _ =
        write!(out, "\n{comments}[[interface]]\nname = \"{name}\"\nport = {port}\naddresses = [{}]\n", list.join(", "));
    if word(entry, "link_type") == "ether" {
        let _ = writeln!(out, "mac = \"{}\"", word(entry, "address"));
    }
    if mtu != 1_500 {
        let _ = writeln!(out, "mtu = {}", mtu.clamp(MTU.0, MTU.1));
    }
    own
}

/// Writes a route, or a comment on why it is left out. Routes that follow from addresses are passed over.
fn route(out: &mut String, entry: &Value, known: &[Interface<'_>], written: &mut Vec<String>) {
    let (to, device, via) = (word(entry, "dst"), word(entry, "dev"), word(entry, "gateway"));
    let kind = match word(entry, "type") {
        "" => "unicast",
        kind => kind,
    };
    let is_v6 = to.contains(':') || via.contains(':') || entry["pref"].is_string();
    let to = match to {
        "default" if is_v6 => "::/0",
        "default" => "0.0.0.0/0",
        to => to,
    };
    let interface = known.iter().find(|interface| interface.name == device);
    let follows = |interface: &Interface<'_>| interface.networks.iter().any(|network| network == to);
    if kind == "unicast" && via.is_empty() && interface.is_some_and(follows) {
        return;
    }
    let is_nowhere = matches!(kind, "blackhole" | "unreachable" | "prohibit");
    let has_flag = |name: &str| entries(&entry["flags"]).any(|flag| flag.as_str() == Some(name));
    let why = match () {
        () if !is_nowhere && kind != "unicast" => format!("routes of the kind {kind} are not supported"),
        () if entry["nexthops"].is_array() || entry["nhid"].is_u64() && device.is_empty() => {
            "it has several next hops".to_owned()
        }
        () if entry["via"].is_object() => "its next hop is of the other family".to_owned(),
        () if entry["tos"].is_string() || entry["tos"].is_u64() => "it is for a type of service".to_owned(),
        () if has_flag("dead") => "its interface is down".to_owned(),
        () if !is_nowhere && interface.is_none() => format!("the interface {device} is not in this file"),
        () if written.iter().any(|other| other == to) => "another route to this network is preferred".to_owned(),
        () if known.iter().any(follows) => "the network follows from an address".to_owned(),
        () => String::new(),
    };
    if !why.is_empty() {
        let via = if via.is_empty() { String::new() } else { format!(" via {via}") };
        return left_out(out, &format!("route to {to}{via}"), &why);
    }
    written.push(to.to_owned());
    let _ = write!(out, "\n[[route]]\nto = \"{to}\"\n");
    if is_nowhere {
        let _ = writeln!(out, "kind = \"{kind}\"");
        return;
    }
    if !via.is_empty() {
        let _ = writeln!(out, "via = \"{via}\"");
    }
    let _ = writeln!(out, "interface = \"{device}\"");
    let source = word(entry, "prefsrc");
    if known.iter().any(|interface| interface.addresses.contains(&source)) {
        let _ = writeln!(out, "source = \"{source}\"");
    } else if !source.is_empty() {
        left_out(out, &format!("source {source}"), "no interface has it");
    }
}

fn left_out(out: &mut String, what: &str, why: &str) {
    let _ = writeln!(out, "# Left out: {what}: {why}.");
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    // Some versions put an empty object in place of what they left out.
    list.as_array().into_iter().flatten().filter(|entry| entry.as_object().is_none_or(|entry| !entry.is_empty()))
}

fn word<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or("")
}

/// The network of an address, as `ip` prints it.
fn network(address: &str, len: u64) -> Option<String> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let network: IpAddr = match address.parse().ok()? {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(len as u32).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & !host).into()
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(len as u32).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & !host).into()
        }
    };
    Some(format!("{network}/{len}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use functions::rules::router::{Paths, Route, Router};
    use serde_json::json;

    fn asked() -> Asked {
        Asked {
            addresses: json!([
                {"ifindex": 1, "ifname": "lo", "flags": ["LOOPBACK", "UP"], "mtu": 65536, "link_type": "loopback",
                 "address": "00:00:00:00:00:00",
                 "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
                {"ifindex": 2, "link_index": 2, "ifname": "vb", "flags": ["BROADCAST", "MULTICAST", "UP"], "mtu": 1500,
                 "link_type": "ether", "address": "c2:04:be:00:ba:b5", "broadcast": "ff:ff:ff:ff:ff:ff",
                 "addr_info": [
                    {"family": "inet", "local": "192.0.2.1", "prefixlen": 24, "scope": "global", "label": "vb"},
                    {"family": "inet6", "local": "2001:db8::1", "prefixlen": 64, "scope": "global", "nodad": true},
                    {"family": "inet6", "local": "fe80::c004:beff:fe00:bab5", "prefixlen": 64, "scope": "link"}]},
                {"ifindex": 3, "ifname": "ppp0", "mtu": 1492, "link_type": "ppp",
                 "addr_info": [{"family": "inet", "local": "203.0.113.5", "address": "203.0.113.9", "prefixlen": 32, "scope": "global"}]},
            ]),
            routes: json!([
                {"dst": "default", "dev": "ppp0", "metric": 100, "flags": []},
                {"dst": "default", "gateway": "192.0.2.254", "dev": "vb", "metric": 20, "flags": []},
                {"dst": "10.0.0.0/8", "gateway": "192.0.2.254", "dev": "vb", "prefsrc": "192.0.2.1", "flags": []},
                {"dst": "10.1.0.0/16", "flags": [], "nexthops": [{"gateway": "192.0.2.7", "dev": "vb", "weight": 1, "flags": []}]},
                {"dst": "192.0.2.0/24", "dev": "vb", "protocol": "kernel", "scope": "link", "prefsrc": "192.0.2.1", "flags": []},
                {"dst": "203.0.113.9", "dev": "ppp0", "protocol": "kernel", "scope": "link", "prefsrc": "203.0.113.5", "flags": []},
                {"type": "blackhole", "dst": "198.51.101.0/24", "flags": []},
                {"type": "throw", "dst": "198.51.104.0/24", "flags": []},
            ]),
            routes_v6: json!([
                {"dst": "2001:db8::/64", "dev": "vb", "protocol": "kernel", "metric": 256, "flags": [], "pref": "medium"},
                {"type": "unreachable", "dst": "2001:db8:102::/48", "dev": "lo", "metric": 1024, "flags": [], "pref": "medium"},
                {"dst": "fe80::/64", "dev": "vb", "protocol": "kernel", "metric": 256, "flags": [], "pref": "medium"},
                {"dst": "default", "gateway": "fe80::1", "dev": "vb", "metric": 1024, "flags": [], "pref": "medium"},
            ]),
            neighbours: json!([
                {"dst": "192.0.2.254", "dev": "vb", "lladdr": "02:00:00:00:09:09", "state": ["REACHABLE"]},
                {"dst": "192.0.2.7", "dev": "vb", "state": ["FAILED"]},
            ]),
        }
    }

    #[test]
    fn recorded_output_becomes_a_configuration() {
        let expected = r#"# Made by `millrace rules router`. Correct the numbers of the ports.

[[interface]]
name = "vb"
port = 0
addresses = ["192.0.2.1/24", "2001:db8::1/64", "fe80::c004:beff:fe00:bab5/64"]
mac = "c2:04:be:00:ba:b5"

[[interface]]
name = "ppp0"
port = 1
addresses = ["203.0.113.5/32"]
mtu = 1492

[[route]]
to = "10.0.0.0/8"
via = "192.0.2.254"
interface = "vb"
source = "192.0.2.1"
# Left out: route to 10.1.0.0/16: it has several next hops.

[[route]]
to = "203.0.113.9"
interface = "ppp0"
source = "203.0.113.5"

[[route]]
to = "198.51.101.0/24"
kind = "blackhole"
# Left out: route to 198.51.104.0/24: routes of the kind throw are not supported.

[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"
interface = "vb"
# Left out: route to 0.0.0.0/0: another route to this network is preferred.

[[route]]
to = "2001:db8:102::/48"
kind = "unreachable"

[[route]]
to = "::/0"
via = "fe80::1"
interface = "vb"

[[neighbour]]
address = "192.0.2.254"
interface = "vb"
mac = "02:00:00:00:09:09"
"#;
        let text = text(&asked());
        assert_eq!(text, expected);
        let router: Router = toml::from_str(&text).expect("it is well-formed");
        let paths = Paths::new(&router).expect("it is right");
        assert_eq!(paths.route(false, 0xcb00_7109), Route::Interface(1), "the peer");
    }

    #[test]
    fn nothing_is_an_empty_configuration() {
        let none = || Value::Array(Vec::new());
        let asked = Asked { addresses: none(), routes: none(), routes_v6: none(), neighbours: none() };
        let router: Router = toml::from_str(&text(&asked)).expect("it is well-formed");
        assert_eq!(router, Router::default());
    }
}
