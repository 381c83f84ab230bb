//! The view in a terminal of its own, which `script` makes: that it ends as it should, and gives the terminal back.
#![allow(clippy::print_stdout)]

use std::env;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use daemon::Stats;
use millrace_top::Options;

/// The variable that tells `child` what to do.
const CHILD: &str = "MILLRACE_TOP_CHILD";
/// What a terminal program writes to get another screen, and to leave it.
const ENTERS: &str = "\x1b[?1049h";
const LEAVES: &str = "\x1b[?1049l";
const SHOWS_CURSOR: &str = "\x1b[?25h";

/// Not a test of its own: the program in the terminal.
#[test]
fn child() {
    let Ok(what) = env::var(CHILD) else { return };
    let mut samples = 0;
    let source = move || {
        samples += 1;
        match (what.as_str(), samples) {
            ("none", _) | ("ends", 2) => Err("gone"),
            ("panics", 2) => panic!("boom"),
            ("terminates", 2) => {
                signal_hook::low_level::raise(signal_hook::consts::SIGTERM).expect("it may signal itself");
                Ok(Stats::default())
            }
            _ => Ok(Stats { uptime_ms: samples * 1000, ..Stats::default() }),
        }
    };
    let options = Options { interval: Duration::from_millis(1), ..Options::default() };
    let closed = millrace_top::run(source, &options);
    println!("closed: {closed:?}");
}

/// What the program wrote in a terminal. Once it has written `sign`, it gets `keys`.
fn in_terminal(what: &str, sign: &str, keys: &[u8]) -> Option<String> {
    let program = env::current_exe().expect("it runs");
    // The settings of the terminal before and after, in a line each.
    let commands = format!(
        "stty cols 80 rows 24; echo \"before $(stty -g)\"; {} child --exact --nocapture; echo \"after $(stty -g)\"",
        program.display()
    );
    // A test that has failed ends by itself.
    let started = Command::new("timeout")
        .args(["--foreground", "60", "script", "-qec", &commands, "/dev/null"])
        .env(CHILD, what)
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.expect("coreutils are there");
    let (mut to, mut from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let (mut out, mut part, mut keys) = (Vec::new(), [0; 4096], Some(keys));
    loop {
        let len = from.read(&mut part).expect("it can be read");
        out.extend_from_slice(&part[..len]);
        if len == 0 {
            break;
        }
        if String::from_utf8_lossy(&out).contains(sign)
            && let Some(keys) = keys.take()
        {
            to.write_all(keys).and_then(|()| to.flush()).expect("it reads");
        }
    }
    let status = child.wait().expect("it ends");
    if status.code() == Some(127) {
        println!("SKIPPED (needs script: apt-get install bsdutils): the view in a terminal");
        return None;
    }
    let out = String::from_utf8_lossy(&out).into_owned();
    let setting = |name: &str| {
        let rest = out.rsplit_once(name).unwrap_or_else(|| panic!("no {name}: {out:?}")).1;
        rest.lines().next().expect("it has a line").trim().to_owned()
    };
    assert_eq!(setting("before "), setting("after "), "{what}: the terminal's settings are those from before");
    Some(out)
}

/// Checks that the program entered another screen, left it with the cursor shown, and wrote this after that.
fn closed(what: &str, sign: &str, keys: &[u8], last_words: &str) {
    let Some(out) = in_terminal(what, sign, keys) else { return };
    let (shown, after) = out.rsplit_once(LEAVES).unwrap_or_else(|| panic!("it never leaves: {out:?}"));
    assert!(shown.contains(ENTERS), "{out:?}");
    assert!(shown.ends_with(SHOWS_CURSOR), "{out:?}");
    assert!(after.contains(last_words), "{last_words} is not in {after:?}");
}

#[test]
fn the_user_quits() {
    closed("goes on", "live", b"q", "closed: Ok(Quit)");
    closed("goes on", "live", b"\x1b", "closed: Ok(Quit)");
    closed("goes on", "live", b"\x03", "closed: Ok(Quit)");
}

#[test]
fn the_run_ends() {
    closed("ends", "ended", b"q", "closed: Ok(Ended(\"gone\"))");
}

#[test]
fn a_signal_comes() {
    closed("terminates", "live", b"", "closed: Ok(Signal(15))");
}

/// The message of a panic is readable, as the terminal is restored before it is printed.
#[test]
fn the_source_panics() {
    closed("panics", "live", b"", "boom");
}

#[test]
fn there_is_no_run() {
    let Some(out) = in_terminal("none", "closed", b"") else { return };
    assert!(out.contains("closed: Err(Source(\"gone\"))"), "{out:?}");
    assert!(!out.contains(ENTERS), "{out:?}");
}

#[test]
fn there_is_no_terminal() {
    let program = env::current_exe().expect("it runs");
    let mut child = Command::new(program);
    child.args(["child", "--exact", "--nocapture"]).env(CHILD, "goes on").stdin(Stdio::null());
    let output = child.output().expect("it starts");
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.contains("closed: Err(NoTerminal)"), "{output}");
}
