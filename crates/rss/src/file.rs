//! Packet sets in TOML.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::field::{Field, PacketType};
use crate::line::{SHORT, check_name, named, words};
use crate::sets::{
    PORTS_MAX, PacketSets, PortSets, SetsError, Vary, field_names, meant, type_names, unpaired, usual_types,
};

type Value<'i> = Spanned<DeValue<'i>>;

pub(crate) fn parse(text: &str) -> Result<PacketSets, SetsError> {
    let document = DeTable::parse(text).map_err(|error| {
        let message = error.message().trim_end().replace('\n', "; ");
        SetsError::at(text, error.span().unwrap_or(0..0), message)
    })?;
    let file = File { text };
    let mut types = usual_types();
    let mut vary = Vary::default();
    let mut ports = None;
    for (key, value) in document.get_ref() {
        match key.get_ref().as_ref() {
            "types" => types = file.types(value)?,
            "vary" => vary = file.vary(value)?,
            "port" => ports = Some(file.table(value, "port")?),
            other => return Err(file.unknown(key.span(), other, "packet sets", &["types", "vary", "port"])),
        }
    }
    let Some(ports) = ports.filter(|ports| !ports.is_empty()) else {
        return Err(SetsError::at(text, 0..0, "no port is given: write [port.lan], then fields = [\"src\"]"));
    };
    let mut read: Vec<(PortSets, Range<usize>)> = Vec::new();
    for (name, value) in ports {
        if read.len() == PORTS_MAX {
            return Err(SetsError::at(text, name.span(), format!("at most {PORTS_MAX} ports")));
        }
        check_name(name.get_ref()).map_err(|reason| SetsError::at(text, name.span(), reason))?;
        read.push((file.port(name.get_ref(), name.span(), value, &types)?, name.span()));
    }
    // As the file has them, not by the alphabet.
    read.sort_by_key(|(_, span)| span.start);
    let (ports, spans): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    match unpaired(&ports) {
        Some((later, reason)) => Err(SetsError::at(text, spans[later].clone(), reason)),
        None => Ok(PacketSets { ports, vary }),
    }
}

/// The text, for the places of errors.
struct File<'t> {
    text: &'t str,
}

impl File<'_> {
    fn port(
        &self,
        name: &str,
        span: Range<usize>,
        value: &Value<'_>,
        types: &[PacketType],
    ) -> Result<PortSets, SetsError> {
        const KEYS: [&str; 3] = ["fields", "symmetric", "state"];
        let (mut fields, mut symmetric, mut state, mut own) = (None, false, String::new(), Vec::new());
        for (key, value) in self.table(value, name)? {
            match key.get_ref().as_ref() {
                "fields" => fields = Some((self.fields(value)?, value.span())),
                "symmetric" => match value.get_ref() {
                    DeValue::Boolean(answer) => symmetric = *answer,
                    other => return Err(self.wrong(value, "symmetric", "true or false", other)),
                },
                "state" => match value.get_ref() {
                    DeValue::String(name) => state = name.to_string(),
                    other => return Err(self.wrong(value, "state", "a name in quotes", other)),
                },
                other => match PacketType::named(other) {
                    Some(kind) => own.push((kind, self.fields(value)?, value.span())),
                    None => {
                        let names: Vec<&str> = KEYS.into_iter().chain(PacketType::ALL.map(PacketType::name)).collect();
                        return Err(self.unknown(key.span(), other, "a port", &names));
                    }
                },
            }
        }
        let Some((fields, fields_span)) = fields else {
            return Err(SetsError::at(
                self.text,
                span,
                format!("port {name} has no `fields`: write fields = [\"src\"]; fields are {}", field_names()),
            ));
        };
        let lists = own.iter().map(|(_, fields, span)| (fields, span)).chain([(&fields, &fields_span)]);
        for (list, span) in lists {
            PortSets::check_fields(list, symmetric).map_err(|reason| SetsError::at(self.text, span.clone(), reason))?;
        }
        for (kind, list, span) in &own {
            if let Some(field) = list.iter().find(|field| !kind.fields().contains(**field)) {
                return Err(SetsError::at(self.text, span.clone(), format!("{kind} packets have no {field}")));
            }
            if !types.contains(kind) {
                let message = format!("`{kind}` is not one of `types`: add it there");
                return Err(SetsError::at(self.text, span.clone(), message));
            }
        }
        let own: Vec<_> = own.into_iter().map(|(kind, fields, _)| (kind, fields)).collect();
        let port = PortSets::new(name.to_owned(), state, symmetric, &fields, types, &own);
        if port.types.is_empty() {
            return Err(SetsError::at(self.text, fields_span, "none of the packet types has these fields"));
        }
        Ok(port)
    }

    /// `["src", "dst"]`, `"src dst"` or `"five-tuple"`.
    fn fields(&self, value: &Value<'_>) -> Result<Vec<Field>, SetsError> {
        let mut fields = Vec::new();
        let entries = match value.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            DeValue::String(_) => vec![value],
            other => return Err(self.wrong(value, "fields", "a list of fields: [\"src\", \"dst\"]", other)),
        };
        for entry in entries {
            let DeValue::String(names) = entry.get_ref() else {
                return Err(self.wrong(entry, "a field", "its name in quotes", entry.get_ref()));
            };
            for word in words(names, 0..names.len()) {
                // The place is that of the string: escapes may make its inside longer than what it says.
                let read = named(names, word);
                fields.extend(read.map_err(|error| SetsError::at(self.text, entry.span(), error.message()))?);
            }
        }
        if fields.is_empty() {
            let short = SHORT.map(|(name, _)| name).join(", ");
            let message = format!("no field is given: use {}, or {short}", field_names());
            return Err(SetsError::at(self.text, value.span(), message));
        }
        Ok(fields)
    }

    fn types(&self, value: &Value<'_>) -> Result<Vec<PacketType>, SetsError> {
        let DeValue::Array(array) = value.get_ref() else {
            return Err(self.wrong(value, "types", "a list of types: [\"tcp4\", \"udp4\"]", value.get_ref()));
        };
        let mut types = Vec::new();
        for entry in array.iter() {
            let DeValue::String(name) = entry.get_ref() else {
                return Err(self.wrong(entry, "a type", "its name in quotes", entry.get_ref()));
            };
            let Some(kind) = PacketType::named(name) else {
                let hint = meant(name, PacketType::ALL.map(PacketType::name));
                let message = format!("`{name}` is not a packet type{hint} ({})", type_names());
                return Err(SetsError::at(self.text, entry.span(), message));
            };
            if !types.contains(&kind) {
                types.push(kind);
            }
        }
        types.sort_unstable();
        if types.is_empty() {
            return Err(SetsError::at(self.text, value.span(), format!("no type is given: use {}", type_names())));
        }
        Ok(types)
    }

    fn vary(&self, value: &Value<'_>) -> Result<Vary, SetsError> {
        let mut vary = Vary::default();
        for (key, value) in self.table(value, "vary")? {
            let (place, most) = match key.get_ref().as_ref() {
                "ipv4" => (&mut vary.ipv4, 32),
                "ipv6" => (&mut vary.ipv6, 128),
                other => return Err(self.unknown(key.span(), other, "vary", &["ipv4", "ipv6"])),
            };
            let number = match value.get_ref() {
                DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
                _ => None,
            };
            let Some(number) = number.filter(|number| (1..=most).contains(number)) else {
                let range = format!("a number of bits from 1 to {most}");
                return Err(self.wrong(value, key.get_ref(), &range, value.get_ref()));
            };
            *place = number;
        }
        Ok(vary)
    }

    fn table<'v, 'i>(&self, value: &'v Value<'i>, name: &str) -> Result<&'v DeTable<'i>, SetsError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            other => Err(self.wrong(value, name, "a table", other)),
        }
    }

    fn wrong(&self, value: &Value<'_>, key: &str, right: &str, is: &DeValue<'_>) -> SetsError {
        let shown = match is {
            DeValue::Integer(number) => format!("the number {}", number.as_str()),
            other => format!("of type {}", other.type_str()),
        };
        SetsError::at(self.text, value.span(), format!("`{key}` must be {right}, not {shown}"))
    }

    fn unknown(&self, span: Range<usize>, given: &str, of: &str, names: &[&str]) -> SetsError {
        let hint = meant(given, names.iter().copied());
        SetsError::at(self.text, span, format!("`{given}` is not a key of {of}{hint} ({})", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"
types = ["udp4", "tcp4"]
[vary]
ipv4 = 0x10
ipv6 = 64
[port.wan]
fields = "dst"
state = "clients"
[port.lan]
fields = ["src"]
state = "clients"
udp4 = ["src"]
[port.tap]
fields = ["hosts", "sport dport"]
symmetric = true
state = "tap"
"#;

    #[test]
    fn every_key_is_read() {
        let sets = PacketSets::parse(WHOLE).unwrap();
        assert_eq!(sets.vary, Vary { ipv4: 16, ipv6: 64 });
        let about: Vec<_> =
            sets.ports.iter().map(|port| (port.name.as_str(), port.state.as_str(), port.symmetric)).collect();
        assert_eq!(about, [("wan", "clients", false), ("lan", "clients", false), ("tap", "tap", true)]);
        let lan: Vec<_> = sets.ports[1].types.iter().map(|sets| (sets.kind, sets.alone)).collect();
        assert_eq!(lan, [(PacketType::Tcp4, false), (PacketType::Udp4, true)]);
        assert_eq!(sets.ports[2].types[0].fields, SHORT[1].1);
        let line = PacketSets::from_line("lan: src, wan: dst", None).unwrap();
        let mut file = PacketSets::parse("[port]\nlan.fields = \"src\"\nwan.fields = \"dst\"").unwrap();
        file.ports.iter_mut().for_each(|port| port.state = "0".to_owned());
        assert_eq!(file, line);
    }

    #[test]
    fn errors_name_line_key_and_what_is_allowed() {
        for (text, place, words) in [
            ("", "a.toml:1:1:", "no port is given: write [port.lan]"),
            ("types = 4\n", "a.toml:1:9:", "`types` must be a list of types"),
            ("types = [\"tpc4\"]\n", "a.toml:1:10:", "did you mean `tcp4`? (tcp4, udp4, sctp4, other4"),
            ("\nprot = 1", "a.toml:2:1:", "did you mean `port`? (types, vary, port)"),
            ("[vary]\nipv4 = 33", "a.toml:2:8:", "`ipv4` must be a number of bits from 1 to 32, not the number 33"),
            ("[vary]\nipv5 = 3", "a.toml:2:1:", "`ipv5` is not a key of vary; did you mean"),
            ("[port.lan]\n", "a.toml:1:7:", "port lan has no `fields`"),
            ("[port.lan]\nfields = []", "a.toml:2:10:", "no field is given: use src, dst"),
            ("[port.lan]\nfields = [\"src\", \"srcport\"]", "a.toml:2:18:", "`srcport` is not a field"),
            ("[port.lan]\nfields = [7]", "a.toml:2:11:", "its name in quotes"),
            ("[port.lan]\nfields = \"src\"\nfeilds = 1", "a.toml:3:1:", "did you mean `fields`?"),
            ("[port.lan]\nfields = \"src\"\nsymmetric = true", "a.toml:2:10:", "also needs dst"),
            ("[port.lan]\nfields = \"src\"\nsymmetric = 1", "a.toml:3:13:", "true or false"),
            ("[port.lan]\nfields = \"src\"\nother4 = \"sport\"", "a.toml:3:10:", "other4 packets have no sport"),
            ("types = [\"tcp4\"]\n[port.lan]\nfields = \"src\"\nudp4 = \"dst\"", "a.toml:4:8:", "add it there"),
            ("[port.\"a b\"]\nfields = \"src\"", "a.toml:1:7:", "is not a port name"),
            (
                "[port.a]\nfields = \"src\"\n[port.b]\nfields = \"sport\"",
                "a.toml:3:7:",
                "a's src doesn't match b's sport",
            ),
            (
                "types = [\"tcp4\"]\n[port.a]\nfields = \"src\"\n[port.b]\nfields = \"hosts\"",
                "a.toml:4:7:",
                "the same number of fields",
            ),
            ("[port.lan\n", "a.toml:1:", "table"),
        ] {
            let error = PacketSets::parse(text).unwrap_err().of("a.toml");
            assert!(error.starts_with(place) && error.contains(words), "{text}\n{error}");
            assert!(error.contains(" | ") && error.contains('^'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,80}", lines in prop::collection::vec(
            "(types|vary|port|\\[port\\.lan\\]|\\[vary\\]|fields|symmetric|state|tcp4|ipv4|=|\"src\"|\"d\\\\u00e9\"|\\[|\\]|\\{|\\}|,|1|true|\n| |é)", 0..24,
        )) {
            let _ = PacketSets::parse(&text).map_err(|error| error.to_string());
            let _ = PacketSets::parse(&lines.concat()).map_err(|error| error.to_string());
        }

        /// What is right but for one character is read or refused, never more.
        #[test]
        fn no_slip_panics(at in 0..WHOLE.len(), with in any::<char>()) {
            let text: String = WHOLE.char_indices().map(|(index, char)| if index == at { with } else { char }).collect();
            let _ = PacketSets::parse(&text).map_err(|error| error.to_string());
        }
    }
}
