//! Check of rule sets and sets of addresses: any text gives rules or errors with positions, and what is printed reads back equal.

use iptables::{Errors, Family, Options, Sets, parse};

/// Reads the input as a rule set of both families and as sets.
pub fn iptables(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    for family in [Family::V4, Family::V6] {
        for skip_unsupported in [false, true] {
            let options = Options { family: Some(family), skip_unsupported, ..Options::default() };
            match parse(text, &options) {
                Ok(parsed) => {
                    let printed = parsed.rules.with_counters().to_string();
                    let again = parse(&printed, &options).unwrap_or_else(|errors| panic!("{printed}: {errors}"));
                    assert_eq!(again.rules, parsed.rules, "{printed}");
                }
                Err(errors) => has_positions(&errors, text),
            }
        }
    }
    match Sets::parse(text, "") {
        Ok(sets) => {
            let printed = sets.to_string();
            let again = Sets::parse(&printed, "").unwrap_or_else(|errors| panic!("{printed}: {errors}"));
            assert_eq!(again.to_string(), printed);
        }
        Err(errors) => has_positions(&errors, text),
    }
}

/// All errors lie in the text, or on the line behind it.
fn has_positions(errors: &Errors, text: &str) {
    let lines = text.matches('\n').count() as u32 + 2;
    assert!(!errors.errors.is_empty());
    for error in &errors.errors {
        assert!(!error.what.is_empty());
        assert!((1..=lines).contains(&error.at.line) && error.at.column > 0, "{error:?} of {text:?}");
    }
}
