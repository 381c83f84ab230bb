use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use iptables::{Family, Options, Sets, parse};
use packet::{Fragment, protocol};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;

use super::super::machine::{Check, Rule};
use super::super::router::Paths;
use super::super::sets::SetContents;
use super::super::test::{Environment, samples};
use super::super::tuple::bits;
use super::super::view::{NO_INTERFACE, View};
use super::tuple_space::Sizes;
use super::*;

const ROUTER: &str = r#"
[[interface]]
name = "lan0"
port = 0
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
[[interface]]
name = "lan1"
port = 1
[[interface]]
name = "wan"
port = 2
"#;

/// Compiles the rules of the chain `FORWARD`.
fn compile(family: Family, rules: &[String]) -> (Machine, Environment, Chain) {
    let mut text = String::from("*filter\n:FORWARD ACCEPT [0:0]\n");
    for rule in rules {
        writeln!(text, "-A FORWARD {rule}").expect("a string has room");
    }
    text.push_str("COMMIT\n");
    let options = Options { family: Some(family), ..Options::default() };
    let parsed = parse(&text, &options).unwrap_or_else(|errors| panic!("{text}{errors}"));
    let paths = Paths::new(&toml::from_str(ROUTER).expect("the text is well-formed")).expect("the router is right");
    let sets = Sets::parse("", "sets").expect("no sets are well-formed");
    let contents = SetContents::new(&sets, &paths, &BTreeSet::new()).expect("no sets fit");
    let environment = Environment { paths, sets: contents };
    let compiled = Machine::compile(&parsed.rules, &environment, &sets);
    let (machine, _) = compiled.unwrap_or_else(|refused| panic!("{text}{refused:?}"));
    let chain = machine.chains.iter().find(|chain| chain.end > chain.first).expect("it has rules").clone();
    (machine, environment, chain)
}

/// True if a packet must be compared with the rule: it matches, or it comes to a check with state, which may count it.
fn concerns(machine: &Machine, environment: &Environment, rule: &Rule, view: &View) -> bool {
    let (first, end) = rule.checks;
    let checks = &machine.checks[first as usize..end as usize];
    let before_state = checks.iter().take_while(|check| !matches!(check, Check::Stateful(_)));
    let mut plain = before_state.filter_map(|check| if let Check::Plain(test) = check { Some(test) } else { None });
    rule.holds(view, &machine.highs) && plain.all(|test| test.holds(view, environment))
}

/// The candidates are in order, and all rules that concern the packet are among them.
fn check(family: Family, rules: &[String], views: &[View], from: u32) -> TestCaseResult {
    let (machine, environment, chain) = compile(family, rules);
    let from = from % (rules.len() as u32 + 2);
    for classifier in classifiers(&machine, &chain) {
        for view in views {
            for from in [0, from] {
                let found = candidates(&classifier, view, from);
                prop_assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
                prop_assert!(found.iter().all(|nth| (from..rules.len() as u32).contains(nth)), "{from}: {found:?}");
                for nth in from..rules.len() as u32 {
                    let concerns = concerns(&machine, &environment, &machine.rules[(chain.first + nth) as usize], view);
                    let is_found = found.binary_search(&nth).is_ok();
                    prop_assert!(is_found || !concerns, "rule {nth} from {from}: {}\n{view:?}", rules[nth as usize]);
                }
            }
        }
    }
    Ok(())
}

/// Classifiers of all kinds. Those with tables have small ones, for short chains.
fn classifiers(machine: &Machine, chain: &Chain) -> Vec<Classifier> {
    let small = Sizes { table_min: 2, alike_max: 3, rest_max: 4 };
    let many_alike = Sizes { table_min: 1, alike_max: 20, rest_max: 20 };
    let spaces = [small, many_alike].map(|sizes| TupleSpace::with(machine, chain.rules(machine), sizes));
    let kinds = [Method::BitVectors, Method::TupleSpace];
    let classifiers = kinds.into_iter().filter_map(|method| Classifier::build(machine, chain, method));
    classifiers.chain(spaces.map(Classifier::TupleSpace)).collect()
}

fn candidates(classifier: &Classifier, view: &View, from: u32) -> Vec<u32> {
    match classifier {
        Classifier::BitVectors(vectors) => vectors.candidates(view, from).collect(),
        Classifier::TupleSpace(space) => space.candidates(view, from).collect(),
    }
}

/// Addresses that often share prefixes.
fn address(family: Family) -> BoxedStrategy<IpAddr> {
    let bytes = (0..3_u8, 0..3_u8, select(&[0_u8, 1, 2, 3, 4, 127, 128, 200, 255]));
    match family {
        Family::V4 => {
            let near = bytes.prop_map(|(a, b, c)| Ipv4Addr::new(10, a, b, c));
            prop_oneof![9 => near, 1 => any::<u32>().prop_map(Ipv4Addr::from_bits)].prop_map(IpAddr::V4).boxed()
        }
        Family::V6 => {
            let near = bytes.prop_map(|(a, b, c)| Ipv6Addr::new(0x2001, 0xdb8, a.into(), 0, b.into(), 0, 0, c.into()));
            prop_oneof![9 => near, 1 => any::<u128>().prop_map(Ipv6Addr::from_bits)].prop_map(IpAddr::V6).boxed()
        }
    }
}

fn network(family: Family, option: &'static str) -> BoxedStrategy<String> {
    let (lengths, gaps): (&[u8], [&str; 3]) = match family {
        Family::V4 => (&[0, 1, 7, 8, 16, 23, 24, 24, 25, 31, 32, 32], ["255.0.255.3", "0.0.0.1", "0.255.0.0"]),
        Family::V6 => (&[0, 1, 32, 47, 48, 64, 64, 65, 80, 127, 128, 128], ["ffff::ff", "::1", "0:0:ff::"]),
    };
    let prefix = (address(family), select(lengths)).prop_map(|(address, len)| format!("{address}/{len}"));
    let gap = (address(family), select(gaps.to_vec())).prop_map(|(address, mask)| format!("{address}/{mask}"));
    let given = prop_oneof![8 => prefix, 1 => gap];
    let given = (prop::bool::weighted(0.15), given).prop_map(move |(negated, network)| {
        let negation = if negated { "! " } else { "" };
        format!("{negation}{option} {network} ")
    });
    prop_oneof![1 => Just(String::new()), 3 => given].boxed()
}

const PORTS: [u16; 10] = [0, 1, 22, 23, 80, 81, 443, 1024, 65_534, 65_535];

fn port(option: &'static str) -> BoxedStrategy<String> {
    let one = select(&PORTS).prop_map(|port| format!("{port}"));
    let range = (select(&PORTS), select(&PORTS)).prop_map(|(first, last)| format!("{first}:{last}"));
    let given = (prop::bool::weighted(0.2), prop_oneof![3 => one, 1 => range]).prop_map(move |(negated, ports)| {
        let negation = if negated { "! " } else { "" };
        format!("{negation}{option} {ports} ")
    });
    prop_oneof![2 => Just(String::new()), 1 => given].boxed()
}

fn protocol_and_ports() -> BoxedStrategy<String> {
    let ports = (select(&["tcp", "udp"][..]), any::<bool>(), port("--sport"), port("--dport"));
    let ports = ports.prop_map(|(protocol, limited, source, destination)| {
        let is_empty = |ports: &str| {
            let (_, ports) = ports.trim_end().rsplit_once(' ').unwrap_or_default();
            ports.split_once(':').is_some_and(|(first, last)| first.parse::<u16>().ok() > last.parse::<u16>().ok())
        };
        // The reader refuses ranges without ports for TCP alone.
        let protocol = if is_empty(&source) || is_empty(&destination) { "udp" } else { protocol };
        let limit = if limited { "-m limit --limit 5/sec " } else { "" };
        format!("-p {protocol} {limit}-m {protocol} {source}{destination}")
    });
    let multiport = (select(&["", "! "][..]), select(&["--sports", "--dports", "--ports"][..]));
    let multiport =
        multiport.prop_map(|(negation, side)| format!("-p tcp -m multiport {negation}{side} 22,80:443,81 "));
    let others = select(&["", "", "-p tcp ", "! -p tcp ", "-p 47 ", "-p all ", "! -p 255 "][..]).prop_map(String::from);
    prop_oneof![4 => ports, 1 => multiport, 3 => others].boxed()
}

fn interface() -> BoxedStrategy<String> {
    let names = select(&["lan0", "lan1", "wan", "lan+", "+", "other"][..]);
    let given = (select(&["", "! "][..]), select(&["-i", "-o"][..]), names);
    let given = given.prop_map(|(negation, option, name)| format!("{negation}{option} {name} "));
    let given = given.prop_filter("iptables refuses it", |text| !text.starts_with('!') || !text.ends_with(" + "));
    prop_oneof![3 => Just(String::new()), 1 => given].boxed()
}

fn rule(family: Family) -> impl Strategy<Value = String> {
    let parts = (network(family, "-s"), network(family, "-d"), interface(), protocol_and_ports());
    let target = select(&["-j ACCEPT", "-j DROP", "-m ttl --ttl-eq 64 -j DROP", ""][..]);
    (parts, target).prop_map(move |((src, dst, interface, ports), target)| {
        let target = if family == Family::V6 { target.replace("ttl", "hl") } else { target.into() };
        format!("{src}{dst}{interface}{ports}{target}")
    })
}

fn view(family: Family) -> impl Strategy<Value = View> {
    let protocols = select(&[protocol::TCP, protocol::TCP, protocol::UDP, 47, 255, 0][..]);
    let interfaces = (select(&[0, 1, 2, NO_INTERFACE][..]), select(&[0, 1, 2, NO_INTERFACE][..]));
    let ports = (select(&PORTS), select(&PORTS));
    let fields = (address(family), address(family), protocols, ports, interfaces, prop::bool::weighted(0.1));
    fields.prop_map(move |(src, dst, protocol, (src_port, dst_port), (input, output), is_later)| {
        let template = samples::tcp("10.0.0.1", "10.0.0.1");
        let has_ports = matches!(protocol, protocol::TCP | protocol::UDP);
        let (src_port, dst_port) = if has_ports { (src_port, dst_port) } else { (0, 0) };
        let (src, dst, is_v6) = (bits(src), bits(dst), family == Family::V6);
        let view = View { src, dst, is_v6, protocol, src_port, dst_port, input, output, ..template };
        match is_later {
            false => view,
            true => View { fragment: Fragment::Later, has_transport: false, src_port: 0, dst_port: 0, ..view },
        }
    })
}

fn case(family: Family) -> impl Strategy<Value = (Vec<String>, Vec<View>, u32)> {
    (prop::collection::vec(rule(family), 1..200), prop::collection::vec(view(family), 30), any::<u32>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_rule_of_ipv4_that_may_match_is_left_out((rules, views, from) in case(Family::V4)) {
        check(Family::V4, &rules, &views, from)?;
    }

    #[test]
    fn no_rule_of_ipv6_that_may_match_is_left_out((rules, views, from) in case(Family::V6)) {
        check(Family::V6, &rules, &views, from)?;
    }
}

#[test]
fn a_check_with_state_sees_packets_of_all_ports() {
    let mut rules: Vec<String> = (0..20).map(|nth| format!("-p tcp -m tcp --dport {}", 1000 + nth)).collect();
    rules.push("-p tcp -m limit --limit 5/sec -m tcp --dport 2000".into());
    let (machine, _, chain) = compile(Family::V4, &rules);
    for classifier in classifiers(&machine, &chain) {
        assert_eq!(candidates(&classifier, &samples::tcp("10.0.0.1", "10.0.0.2"), 0), [20]);
    }
}
