//! Translates error messages of the TOML reader, which mention Rust types, into the words of a configuration file.

/// The message without types' names: `expected a whole number, found the text "x"`.
pub(super) fn plain(message: &str) -> String {
    let message = message.trim_end();
    let reported = ["invalid type: ", "invalid value: "].into_iter().find_map(|start| message.strip_prefix(start));
    // The text that was found may hold the same words.
    if let Some((found, wanted)) = reported.and_then(|reported| reported.rsplit_once(", expected ")) {
        let wanted = self::wanted(wanted);
        return match self::found(found) {
            Some(found) => format!("expected {wanted}, found {found}"),
            None => format!("expected {wanted}"),
        };
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("{name} is missing");
    }
    if let Some((unknown, choices)) = listed(message, "unknown variant ") {
        return format!("`{unknown}` is none of the choices: {}", choices.join(", "));
    }
    match message {
        "wanted string or table" => format!("expected {TEXT}"),
        _ => message.replace('\n', "; "),
    }
}

/// A key that is not known, and those that are at its place.
pub(super) fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    listed(message, "unknown field ")
}

/// The first name in a message that starts so, and the names that it lists: ``unknown field `a`, expected `b` or `c` ``.
fn listed<'m>(message: &'m str, start: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let (unknown, rest) = message.strip_prefix(start)?.strip_prefix('`')?.split_once('`')?;
    Some((unknown, rest.split('`').skip(1).step_by(2).collect()))
}

const TEXT: &str = "a text in quotes";

fn wanted(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" | "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => {
            "a whole number"
        }
        "f32" | "f64" => "a number",
        "a string" | "string only" | "a character" | "IP address" | "IPv4 address" | "IPv6 address" => TEXT,
        "a boolean" => "true or false",
        "a sequence" => "a list in [ ]",
        "a map" => TABLE,
        _ if expected.starts_with("struct ") => TABLE,
        _ if expected.starts_with("enum ") => TEXT,
        _ => expected,
    }
}

const TABLE: &str = "a table of keys, as { key = value }";

/// `None` for what has no name outside of Rust.
fn found(found: &str) -> Option<String> {
    let inside = || found.split('`').nth(1).unwrap_or(found);
    Some(match found.split(' ').next() {
        Some("unit") => return None,
        Some("string") => found.replacen("string", "the text", 1),
        Some("integer" | "floating") => format!("the number {}", inside()),
        Some("boolean") => inside().to_owned(),
        Some("sequence") => "a list".to_owned(),
        Some("map") => "a table".to_owned(),
        _ => found.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        count: u16,
        share: f64,
        name: String,
        is_on: bool,
        list: Vec<Entry>,
        way: Way,
        address: Option<std::net::IpAddr>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Entry {
        from: i64,
        to: i64,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Way {
        #[default]
        In,
        Out,
    }

    fn message(text: &str) -> String {
        toml::from_str::<Sample>(text).unwrap_err().message().to_owned()
    }

    /// By what the library says today: if it says it otherwise one day, this tells.
    #[test]
    fn no_type_is_named() {
        for (text, says) in [
            ("count = \"many\"", "expected a whole number, found the text \"many\""),
            ("count = 1.5", "expected a whole number, found the number 1.5"),
            ("count = 70000", "expected a whole number, found the number 70000"),
            ("share = true", "expected a number, found true"),
            ("name = 7", "expected a text in quotes, found the number 7"),
            ("name = [7]", "expected a text in quotes, found a list"),
            ("is_on = \"a, expected b\"", "expected true or false, found the text \"a, expected b\""),
            ("list = \"x\"", "expected a list in [ ], found the text \"x\""),
            ("list = [7]", "expected a table of keys, as { key = value }, found the number 7"),
            ("list = [{ from = 1 }]", "`to` is missing"),
            ("way = \"up\"", "`up` is none of the choices: in, out"),
            ("way = 7", "expected a text in quotes"),
            ("address = 7", "expected a text in quotes, found the number 7"),
        ] {
            assert_eq!(plain(&message(text)), says, "{text}");
        }
    }

    #[test]
    fn unknown_keys_come_with_those_of_their_place() {
        assert_eq!(unknown_key(&message("list = [{ form = 1 }]")), Some(("form", vec!["from", "to"])));
        let (unknown, known) =
            unknown_key(&message("kount = 1")).map(|(key, known)| (key.to_owned(), known.len())).unwrap();
        assert_eq!((unknown.as_str(), known), ("kount", 7));
        assert_eq!(unknown_key(&message("count = \"x\"")), None);
    }
}
