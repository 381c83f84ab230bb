//! Configurations and their errors, and the shipped functions against the contract. A program of its own: tests inside the crate would
//! compile every function under every engine once more.

#[path = "../src/config/messages.rs"]
mod messages;

use functions::config::{FlowCount, Prefix, Timeout};
use millrace_catalogue::Catalogue;
use millrace_catalogue::config::Settings;
use nf::{ConfigKey, Description, Sharing};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    idle: Option<Timeout>,
    flows: Option<FlowCount>,
    inside: Option<Prefix>,
    tcp: Option<Inner>,
    #[serde(default)]
    #[allow(dead_code)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Rule {
    from: Prefix,
    allow: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    established: Option<Timeout>,
}

const FUNCTION: Description = Description {
    name: "sample",
    summary: "",
    state: "",
    sharing: Sharing::Nothing,
    keys: &[
        ConfigKey { name: "idle", default: "60", help: "" },
        ConfigKey { name: "flows", default: "1000", help: "" },
        ConfigKey { name: "inside", default: "\"10.0.0.0/8\"", help: "" },
        ConfigKey { name: "tcp.established", default: "3600", help: "" },
        ConfigKey { name: "rules", default: "[]", help: "" },
    ],
    drop_reasons: &[],
    recipes: &[],
};

fn error(text: &str) -> String {
    Settings::from_file("a.toml", text).read::<Sample>(&FUNCTION).unwrap_err().to_string()
}

/// Two values may only make sense together, whichever comes first.
#[test]
fn values_are_checked_together() {
    let read = |given: [&str; 2]| {
        let mut settings = Settings::default();
        given.iter().for_each(|given| settings.set(given).unwrap());
        settings.read::<functions::asset_monitor::Config>(&FUNCTION).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(read(["asset_timeout=30", "refresh_interval=10"]), Ok(()));
    assert_eq!(read(["refresh_interval=10", "asset_timeout=30"]), Ok(()));
    let error = read(["refresh_interval=40", "asset_timeout=30"]).unwrap_err();
    assert!(error.starts_with("--set asset_timeout=30: "), "{error}");
}

#[test]
fn errors_show_the_line_with_a_caret() {
    assert_eq!(
        error("# idle\nidle = 0\n"),
        "a.toml:2:8: 0 is not a timeout: whole seconds from 1 to 315360000 (ten years)\n  |\n2 | idle = 0\n  |        ^"
    );
    assert_eq!(
        error("inside = \"10.0.0.1/8\""),
        "a.toml:1:10: `10.0.0.1/8` has bits set after its prefix length: write 10.0.0.0/8\n  \
         |\n1 | inside = \"10.0.0.1/8\"\n  |          ^^^^^^^^^^^^"
    );
    let broken = error("idle = \n");
    assert!(broken.starts_with("a.toml:1:") && broken.contains("| idle ="), "{broken}");
}

#[test]
fn unknown_keys_name_the_known_ones() {
    let unknown = error("idel = 7");
    assert!(
        unknown.contains("`idel` is not a key of sample; did you mean `idle`? (sample knows: idle, flows"),
        "{unknown}"
    );
    let nested = error("[tcp]\nestablishd = 7");
    assert!(nested.contains("a.toml:2:1") && nested.contains("did you mean `tcp.established`?"), "{nested}");
    let listed = error("[[rules]]\nfrom = \"10.0.0.0/8\"\nalow = true");
    assert!(
        listed.starts_with("a.toml:3:1: `alow` is not a key here; did you mean `allow`? (keys here: from, allow)\n"),
        "{listed}"
    );
}

#[test]
fn wrong_values_are_told_without_types() {
    let wrong = error("idle = 5\nflows = \"many\"");
    assert!(wrong.starts_with("a.toml:2:9: expected a whole number, found the text \"many\"\n"), "{wrong}");
    let wrong = error("rules = [{ from = 7, allow = true }]");
    assert!(wrong.starts_with("a.toml:1:19: expected a prefix in quotes, found the number 7"), "{wrong}");
    let missing = error("\n[[rules]]\nallow = true");
    assert!(missing.starts_with("a.toml:2:1: `from` is missing"), "{missing}");
    let mut settings = Settings::default();
    settings.set("tcp=7").unwrap();
    let wrong = settings.read::<Sample>(&FUNCTION).unwrap_err().to_string();
    assert_eq!(wrong, "--set tcp=7: expected a table of keys, as { key = value }, found the number 7");
}

#[test]
fn values_beside_the_file_go_before_it() {
    let mut settings = Settings::from_file("a.toml", "idle = 5\nflows = 7");
    for given in ["idle=9", "inside = 192.0.2.0/24", "tcp.established=3"] {
        settings.set(given).unwrap();
    }
    let Sample { idle, flows, inside, tcp, .. } = settings.read(&FUNCTION).unwrap();
    assert_eq!(idle.map(Timeout::secs), Some(9));
    assert_eq!(flows.map(FlowCount::get), Some(7));
    assert_eq!(inside.unwrap().to_string(), "192.0.2.0/24");
    assert_eq!(tcp.unwrap().established.map(Timeout::secs), Some(3));
    settings.set("flows=0").unwrap();
    let error = settings.read::<Sample>(&FUNCTION).unwrap_err().to_string();
    assert_eq!(error, "--set flows=0: 0 is out of range: from 1 to 268435456");
    assert!(settings.set("flows").unwrap_err().to_string().contains("KEY=VALUE"));
}

#[test]
fn no_function_has_a_flaw() {
    for entry in Catalogue::standard().entries() {
        assert_eq!(entry.flaw(), None, "{}", entry.description().name);
    }
}
