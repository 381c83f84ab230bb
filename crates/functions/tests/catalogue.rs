//! The catalogue's configuration keys and defaults agree with the configurations.

use millrace_functions::{Catalogued, Visitor, each, policer, port_knock};
use nf::Description;
use serde::de::DeserializeOwned;

/// The catalogue's defaults give the default configuration, and no key is missing.
fn defaults_are_true<C: DeserializeOwned + Default + PartialEq + std::fmt::Debug>(description: &Description) {
    let lines: Vec<String> = description.keys.iter().map(|key| format!("{} = {}\n", key.name, key.default)).collect();
    let read: C = toml::from_str(&lines.concat()).unwrap_or_else(|error| panic!("{}: {error}", description.name));
    assert_eq!(read, C::default(), "{}", description.name);
    let none: C = toml::from_str("").expect("an empty file is a configuration");
    assert_eq!(none, C::default());
    let Err(error) = toml::from_str::<C>("no_such_key = 1") else { panic!("{}: unknown key", description.name) };
    let error = error.to_string();
    // For a key inside a table the table is listed.
    let mut names: Vec<&str> = description.keys.iter().filter_map(|key| key.name.split('.').next()).collect();
    names.dedup();
    for name in &names {
        assert!(error.contains(&format!("`{name}`")), "{}: {name} is not listed: {error}", description.name);
    }
    let known = error.matches('`').count() / 2 - 1;
    assert!(known >= names.len(), "{}: {error}", description.name);
}

struct Defaults;

impl Visitor for Defaults {
    fn visit<N: Catalogued>(&mut self) {
        defaults_are_true::<N::Config>(&N::DESCRIPTION);
    }
}

#[test]
fn catalogue_defaults() {
    each(&mut Defaults);
}

#[test]
fn errors_say_what_is_right() {
    let error = |text: &str| toml::from_str::<port_knock::Config>(text).unwrap_err().to_string();
    assert!(error("ports = []").contains("one to eight"));
    assert!(error("\nports = [1, 2, 3, 4, 5, 6, 7, 8, 9]").contains("line 2, column 9"));
    assert!(error("ports = [7000, 0]").contains("port 0"));
    assert!(error("ports = [70000]").contains("line 1, column"));
    let error = |text: &str| toml::from_str::<policer::Config>(text).unwrap_err().to_string();
    assert!(error("per = \"host\"").contains("five-tuple"));
    assert!(error("burst = 0").contains("from 1 to 1000000000"));
}
