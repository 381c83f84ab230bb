//! What is refused: where, and with which words.

use millrace_iptables::{ErrorKind, Family, Options, Parsed, Sets, TableKind, Target, parse};

fn errors(text: &str) -> String {
    let options = Options { name: "rules.v4", ..Options::default() };
    parse(text, &options).expect_err("the text is wrong").to_string()
}

/// The error of one rule in a chain of the table filter.
fn of_rule(rule: &str) -> String {
    errors(&format!("*filter\n:A - [0:0]\n{rule}\nCOMMIT\n")).replace("rules.v4:3:", "")
}

#[test]
fn slips_in_a_rule() {
    for (rule, says) in [
        ("-A INPUT -p tpc -j DROP", "13: `tpc` is not the name of a protocol; write its number"),
        (
            "-A INPUT -s 10.0.0.0/33",
            "22: `33` is not a mask; write the bits, from 0 to 32, or a mask as `255.255.255.0`",
        ),
        ("-A INPUT -s 10.0.0.256", "13: `10.0.0.256` is not an IPv4 address"),
        ("-A INPUT -s ::1", "13: `::1` is no IPv4 address, and these rules are for IPv4; choose the other family"),
        ("-A INPUT -i ! eth0", "13: `!` stands behind the option; write it before the option"),
        ("-A INPUT ! -j DROP", "10: `-j` can't have a `!`"),
        ("-A INPUT -p tcp -p udp", "17: `-p` may be given once"),
        (
            "-A INPUT -p tcp --dport 1 --dport 2",
            "27: tcp: `--dport` may be given once; write `-m tcp` again before it to test twice",
        ),
        ("-A INPUT --dport 22", "10: `--dport` needs a protocol or a match that has it; write `-p tcp` before it"),
        ("-A INPUT --state NEW", "10: there is no option `--state`"),
        (
            "-A INPUT --ctstate NEW",
            "10: `--ctstate` belongs to the match conntrack, which the rule doesn't name; write `-m conntrack` before it",
        ),
        ("-A INPUT -j REJECT --reject icmp-por", ""),
        ("-A INPUT -j reject", "13: `reject` is neither a target nor a chain of the table; did you mean `REJECT`?"),
        ("-A INPUT -m contrack", "13: `contrack` is not a match"),
        ("-A INPUT -m hl --hl-eq 1", "13: IPv4 has no match hl"),
        ("-A INPUT -g INPUT", "13: there is no chain `INPUT` in the table"),
        ("-A B -j DROP", "1: there is no chain `B` in the table filter; declare it before"),
        ("-A INPUT -j", "10: `-j` needs a value"),
        ("-A INPUT stray", "10: `stray` belongs to no option"),
        (
            "-A INPUT -o eth0",
            "10: `-o` can't be in INPUT: packets there have no interface yet that they leave by; write `-i`, or use another chain",
        ),
        ("-A INPUT -ieth0", "10: `-ieth0` has an option and its value in one word; write `-i eth0`"),
        ("-A INPUT -m conntrack", "13: conntrack needs an option; write `--ctstate` and states"),
        ("-A INPUT -m limit --lim 1/s", "19: `--lim` may be `--limit` or `--limit-burst`; write the whole name"),
        ("-A INPUT -m comment --comment \"open", "31: the quote is not closed; add `\"`"),
        ("-t nat -A INPUT", "1: the table is the one after `*`, so `-t` must not be here"),
        ("-I INPUT 3 -j DROP", "1: `INPUT` has 0 rules, so none can be inserted as number 3"),
        ("-N A", "1: the chain `A` is there already, since line 2"),
        ("-N DNAT", "4: the chain can't be called `DNAT`, which is a target"),
        ("-X INPUT", "1: the chain `INPUT` can't be deleted: it belongs to a hook"),
        ("-P A DROP", "1: `A` is no chain of a hook, so it can't have a policy"),
        (":A - [0:0]", "2: the chain `A` is there already, since line 2"),
        ("*nat", "1: the table before is not finished; add the line `COMMIT` before this one"),
        (
            "-A INPUT -j DROP\r",
            "17: the line ends with a carriage return, which counts as a part of the last word; convert the file: `tr -d '\\r'`",
        ),
    ] {
        if says.is_empty() {
            parse(&format!("*filter\n{rule}\nCOMMIT\n"), &Options::default()).expect("a beginning of a name is enough");
            continue;
        }
        assert_eq!(of_rule(rule), says, "{rule}");
    }
}

#[test]
fn what_the_kernel_refuses() {
    for (text, says) in [
        ("*filter\n:A -\n-A INPUT -j A\n-A A -j A\nCOMMIT\n", "4:9: the chain `A` leads to itself"),
        (
            "*filter\n:A -\n:B -\n-A INPUT -j A\n-A A -j B\n-A B -g A\nCOMMIT\n",
            "6:9: the chain `A` leads back to itself by this rule",
        ),
        (
            "*nat\n:A -\n-A A -j MASQUERADE\n-A PREROUTING -j A\nCOMMIT\n",
            "3:9: MASQUERADE can't be where packets of PREROUTING come by; use a chain of POSTROUTING",
        ),
        ("*nat\n-A OUTPUT -j REJECT\nCOMMIT\n", "2:14: REJECT can't be in the table nat; use the table filter"),
        (
            "*filter\n-A INPUT -j REJECT --reject-with tcp-reset\nCOMMIT\n",
            "2:13: tcp-reset needs `-p tcp`; write `-p tcp` before it",
        ),
        ("*filter\n-A INPUT ! -p tcp -m tcp --dport 1\nCOMMIT\n", "2:22: tcp needs `-p tcp`; write `-p tcp` before it"),
        ("*filter\n-A INPUT -j CT --notrack\nCOMMIT\n", "2:13: CT can't be in the table filter; use the table raw"),
        (
            "*mangle\n-A FORWARD -p tcp -j TCPMSS --set-mss 9\nCOMMIT\n",
            "2:22: TCPMSS needs a match for SYN packets; write `--tcp-flags SYN,RST SYN` before it",
        ),
        (
            "*nat\n-A POSTROUTING -j DROP\nCOMMIT\n",
            "2:19: the table nat can't drop, as it sees only the first packet of a flow; drop in the table filter",
        ),
        (
            "*filter\n-A OUTPUT -m mac --mac-source 2:0:0:0:0:1\nCOMMIT\n",
            "2:14: mac can't be where packets of OUTPUT come by; use a chain of PREROUTING, INPUT, FORWARD",
        ),
    ] {
        assert_eq!(errors(text), format!("rules.v4:{says}"), "{text}");
    }
    // The kernel doesn't look at what it never reaches.
    for text in [
        "*filter\n:A -\n-A A -j A\nCOMMIT\n",
        "*nat\n:A -\n-A A -j MASQUERADE\nCOMMIT\n",
        "*nat\n:A -\n-A A -j MASQUERADE\n-A PREROUTING -j RETURN\n-A PREROUTING -j A\nCOMMIT\n",
    ] {
        parse(text, &Options::default()).unwrap_or_else(|errors| panic!("{text}: {errors}"));
    }
}

#[test]
fn several_errors_are_reported_in_one_go() {
    let text = "*filter\n-A INPUT -m owner --uid-owner 0\n-A INPUT -j NOWHERE\n-A INPUT -j ACCEPT\n";
    let expected =
        "rules.v4:2:13: the match owner is not supported: it tests sockets of the host, and a router has none
rules.v4:3:13: `NOWHERE` is neither a target nor a chain of the table
rules.v4:5:1: the table is not finished; add the line `COMMIT`";
    assert_eq!(errors(text), expected);
    let many = "*filter\n".to_owned() + &"-A NONE\n".repeat(150) + "COMMIT\n";
    let errors = parse(&many, &Options::default()).unwrap_err();
    assert_eq!((errors.errors.len(), errors.left_out), (100, 50));
}

#[test]
fn broken_files_are_refused_in_a_line() {
    let expected = "rules.v4:1:1: the file begins with a byte order mark; save it as UTF-8 without one";
    assert_eq!(errors("\u{feff}*filter\nCOMMIT\n"), expected);
    assert!(of_rule("-A A -s 1.2.\u{0}3.4 -j DROP").ends_with("is not an IPv4 address"));
    let long = format!("*filter\n-A INPUT -j {}\nCOMMIT\n", "x".repeat(1_000_000));
    assert_eq!(errors(&long), "rules.v4:2:1: the line is longer than 65535 bytes");
}

#[test]
fn unsupported_rules_are_skipped_and_listed() {
    let text = "*filter\n-A INPUT -s 10.0.0.1 -j DROP\n-A INPUT -m owner --uid-owner 0 -j DROP\n-A INPUT -s 10.0.0.3\n\
                -D INPUT 3\n-I INPUT 2 -j TPROXY --on-port 1\n-A INPUT -s www.example.net -j DROP\nCOMMIT\n";
    let options = Options { skip_unsupported: true, ..Options::default() };
    let Parsed { rules, skipped } = parse(text, &options).unwrap();
    assert_eq!(rules.to_string().lines().nth(4), Some("-A INPUT -s 10.0.0.1/32 -j DROP"));
    assert_eq!(rules.rule_count(), 1, "the deleted rule is the one that iptables would delete");
    let listed: Vec<_> = skipped.iter().map(|error| (error.at.line, error.feature.as_str())).collect();
    assert_eq!(listed, [(3, "owner"), (6, "TPROXY"), (7, "host name")]);
    assert!(skipped.iter().all(|error| error.kind == ErrorKind::Unsupported));
}

#[test]
fn command_lines_change_a_rule_set() {
    let script = "#!/bin/sh
set -e
IPT_comment=1 # refused below
iptables -F
sudo /sbin/iptables -N web && iptables -A INPUT -p tcp --dport http \\
    -j web
iptables -A web -s 10.0.0.1,10.0.0.2 -m comment --comment 'it is \"web\"' -j ACCEPT
iptables -I web 2 -j DROP; iptables -R web 2 -j RETURN
iptables -E web www
iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE
iptables -P FORWARD DROP
iptables -D www -s 10.0.0.2 -m comment --comment 'it is \"web\"' -j ACCEPT
iptables -L -n -v
";
    let failed = parse(script, &Options::default()).unwrap_err();
    assert_eq!(failed.to_string(), "3:1: `IPT_comment=1` is not a command of iptables; leave it out");
    let script = script.replace("IPT_comment=1", "echo");
    let rules = parse(&script, &Options::default()).unwrap().rules;
    let expected = "*nat
:PREROUTING ACCEPT
:INPUT ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
-A POSTROUTING -o eth0 -j MASQUERADE
COMMIT
*filter
:INPUT ACCEPT
:FORWARD DROP
:OUTPUT ACCEPT
:www -
-A INPUT -p tcp -m tcp --dport 80 -j www
-A www -s 10.0.0.1/32 -m comment --comment \"it is \\\"web\\\"\" -j ACCEPT
-A www -j RETURN
COMMIT
";
    assert_eq!(rules.to_string(), expected);
    let jump = &rules.table(TableKind::Filter).unwrap().chain("INPUT").unwrap().rules[0];
    assert_eq!((jump.at.line, jump.target.as_deref()), (5, Some(&Target::Jump("www".into()))));
}

#[test]
fn a_script_of_both_families_needs_a_choice() {
    let script = "iptables -A INPUT -s 10.0.0.1\nip6tables -A INPUT -s ::1\n";
    let failed = parse(script, &Options::default()).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "2:1: the line is for IPv6, and these rules are for IPv4; choose a family, or read the lines from two files"
    );
    for (family, line) in [(Family::V4, 2), (Family::V6, 1)] {
        let parsed = parse(script, &Options { family: Some(family), ..Options::default() }).unwrap();
        assert_eq!((parsed.rules.rule_count(), parsed.skipped.len(), parsed.skipped[0].at.line), (1, 1, line));
    }
}

#[test]
fn sets_are_read_and_printed() {
    let text = "\
create blocked hash:net family inet hashsize 1024 maxelem 65536 timeout 300 counters comment
add blocked 10.0.0.0/8 timeout 12 packets 3 bytes 180 comment \"a \\\"net\\\"\"
add blocked 10.1.0.0/16 nomatch
create ports bitmap:port range 1-1024
add ports 22-25
create six hash:ip,port family inet6 hashsize 1024 maxelem 65536
add six 2001:db8::1,tcp:80
add six 2001:db8::1,icmpv6:128/0
create uplinks hash:net,iface family inet hashsize 1024 maxelem 65536
add uplinks 0.0.0.0/0,eth0
add uplinks 10.0.0.0/24,physdev:eth1
create hosts hash:mac hashsize 1024 maxelem 65536
add hosts 02:00:5e:00:00:01
create all list:set size 8
add all blocked
";
    assert_eq!(Sets::parse(text, "").unwrap().to_string(), text);
    for (line, says) in [
        ("create a hash:ip,mark", "1:10: sets of the type `hash:ip,mark` are not supported"),
        ("create a hash:thing", "1:10: `hash:thing` is not a type of sets; write it as `hash:ip`"),
        ("add a 10.0.0.1", "1:5: there is no set `a`; create it before"),
        ("create a bitmap:ip", "1:8: bitmap:ip needs `range`"),
        (
            "create a hash:net\nadd a 0.0.0.0/0",
            "2:7: a set of this type can't have the network of all addresses; write two halves, as `0.0.0.0/1` and `128.0.0.0/1`",
        ),
        (
            "create a hash:ip\nadd a 10.0.0.1\nadd a 10.0.0.1",
            "3:7: `10.0.0.1` is in the set already; write `-exist` to allow it",
        ),
        (
            "create a hash:ip maxelem 2\nadd a 10.0.0.0-10.0.0.2",
            "2:7: the set is full: `maxelem` is 2; create it with a larger `maxelem`",
        ),
        ("create a hash:ip,port\nadd a 10.0.0.1", "2:7: `10.0.0.1` has too few parts: 2 belong to the set's type"),
        ("create a hash:ip\nadd a 10.0.0.1 timeout 3", "2:16: the set `a` has no `timeout`; create it with `timeout`"),
    ] {
        assert_eq!(Sets::parse(line, "").unwrap_err().to_string(), says, "{line}");
    }
    let options = Options { sets: Some(&Sets { sets: Vec::new() }), ..Options::default() };
    let failed = parse("iptables -A INPUT -m set --match-set a src", &options).unwrap_err();
    assert_eq!(failed.to_string(), "1:22: there is no set `a`; create it in the file of sets");
}
