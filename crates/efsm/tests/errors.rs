//! Errors in programs: each has its place, and says what to write.
#![allow(missing_docs)]

use millrace_efsm::{Machine, netfpga};

/// The errors of a program, a line each.
fn errors(text: &str) -> String {
    let errors = Machine::compile(text).expect_err("the program has errors");
    errors.iter().map(|error| format!("{error}\n")).collect()
}

#[test]
fn every_error_has_its_place() {
    for (text, expected) in [
        ("", "1:1: there is no stage"),
        ("sage a", "1:1: unknown keyword `sage`; a line begins with one of: ports, meta, template, stage"),
        ("stage a\n  on 0", "2:7: ` : ` and the row's actions are missing"),
        ("stage a\n  on 0 : out", "2:13: a port is missing"),
        ("stage a\n  on 0 ip.ttl : drop", "2:15: `ip.ttl` is not compared with anything"),
        ("stage a\n  on 0 ip.tl=1 : drop", "2:8: `ip.tl` is neither a number nor an address"),
        ("stage a\n  on 0 ip.ttl=256 : drop", "2:15: 256 doesn't fit in the 8 bits of `ip.ttl`"),
        ("stage a\n  on * : l4.src = 70000; out 1", "2:19: 70000 doesn't fit in the 16 bits of `l4.src`"),
        ("meta m = bits 0..3\nstage a\n  on * : m = 17; out 1", "3:14: 17 doesn't fit in the 4 bits of `m`"),
        (
            "stage a\n  key ip.src\n  on * : r0 = 99999999999999999999; out 1",
            "3:15: 99999999999999999999 doesn't fit in 64 bits",
        ),
        (
            "stage a\n  key ip.src\n  on * : state = 99999999999999999999; out 1",
            "3:18: 99999999999999999999 doesn't fit in 64 bits",
        ),
        ("stage a\n  key ip.src\n  contexts 0\n  on * : out 1", "3:12: a stage stores at least one context"),
        ("stage a\n  on 0 ip.src=10.0.0.1/24 : drop", "2:15: 10.0.0.1 has bits outside of the mask 24"),
        ("stage a\n  on 0 l4.src<5/3 : drop", "2:17: a mask goes with = and != alone"),
        ("stage a\n  on new : drop", "2:6: no state `new`: declare it by `states`"),
        ("stage a\n  on 0 : r0 = 1; drop", "2:6: the stage has no key"),
        ("stage a\n  key ip.src\n  on 0 : r0 = 1", "3:6: the row doesn't say where the packet goes"),
        ("stage a\n  key ip.src\n  on 0 : goto b; drop", "3:15: no stage `b`: stages are a"),
        ("stage a\n  on 0 : goto a", "2:15: stage `a` is not below this one"),
        ("stage a\n  on 0 : drop; out 1", "2:20: the packet goes to one place"),
        ("stage a\n  on 0 : copy 1; drop", "2:15: `copy` goes with `out` in one row"),
        ("stage a\n  on 0 : copy 1; copy 2; out 1", "2:23: one copy a row"),
        ("stage a\n  on 0 : make pong; out 1", "2:15: no template `pong`: none is declared by `template`"),
        (
            "template a = 4500 00000\nstage a\n  on 0 : drop",
            "1:19: `00000` is not bytes in hexadecimal, two digits each",
        ),
        ("template a = 4500\nstage a\n  on 0 : drop", "1:10: a template begins with an IPv4 header of 20 bytes"),
        ("stage a\n  on 0 : ip.ttl = 1; drop", "2:10: `ip.ttl` can't be changed; what can be is eth.src"),
        ("stage a\n  key ip.src\n  on 0 : state 1 idle 20; drop", "3:23: `20` is not a span of time"),
        ("stage a\n  key ip.src\n  on 0 : r0 = mean(1, 2); drop", "3:15: no function `mean`: functions are min, max"),
        ("stage a\n  key biflow ip.src l4.src\n  on 0 : drop", "2:14: `biflow` with ip.src needs ip.dst too"),
        ("stage a\n  lookup ip.src\n  on 0 : drop", "2:10: `lookup` and `update` come together"),
        ("stage a\n  lookup ip.src\n  update ip.dst l4.dst\n  on 0 : drop", "3:10: the update key has 2 fields"),
        ("stage a\n  key time.ms\n  on 0 : drop", "2:7: a time can't be part of a key"),
        ("stage a\n  on * : drop\nstage b\n  on * : drop", "3:7: no packet comes to stage `b`"),
        ("meta m = bits 0..64\nstage a\n  on * : drop", "1:15: metadata has 1 to 64 bits"),
        (
            "stage a\n  key ip.src l4.src\n  preset 1..2, 3 : state = 1\n  on * : drop",
            "3:10: a range is for keys of one field",
        ),
        (
            "stage a\n  key in\n  contexts 2\n  preset 1..3 : state = 1\n  on * : drop",
            "1:7: 3 preset contexts, and the stage stores 2",
        ),
    ] {
        assert!(errors(text).starts_with(expected), "{text}\n{}", errors(text));
    }
}

#[test]
fn all_errors_are_told_in_order_of_lines() {
    let all = errors("stage a\n  on 0 : out lan\n  on x : goto b\n  on 0 : r0 = 1; drop");
    let places: Vec<_> = all.lines().map(|line| line.split(": ").next().expect("a place")).collect();
    assert_eq!(places, ["2:14", "3:6", "3:15", "4:6"], "{all}");
}

#[test]
fn what_does_not_fit_the_prototype_is_told() {
    let rows: String = (0..40).map(|port| format!("  on * l4.dst={port} r0<{port} : drop\n")).collect();
    let text = format!(
        "meta wide = bits 0..39\nstage a\n  key ip.src\n  on 1 : r0 = 1; r1 = 1; r2 = 1; r3 = 1; r4 = ip.src; wide = 1; drop\n{rows}"
    );
    let machine = Machine::compile(&text).expect("sizes are free");
    let misfits = netfpga(&machine);
    let expected = [
        "the program has 40 bits of metadata, the prototype 32",
        "stage a has 41 rows, the prototype 32",
        "stage a has 5 registers of 32 bits (an IPv4 address is one), the prototype 4",
        "stage a has 40 different conditions besides ternary matches, the prototype 8",
        "line 4 has 6 updates in a row, the prototype 5",
    ];
    assert_eq!(misfits, expected);
    let figure = Machine::compile(include_str!("../../../testdata/efsm/figure-2.efsm")).expect("a program");
    assert_eq!(netfpga(&figure), [] as [&str; 0]);
}
