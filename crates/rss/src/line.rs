//! The one-line form: `lan: src, wan: dst`.

use std::ops::Range;

use crate::field::{Field, PacketType};
use crate::sets::{PORTS_MAX, PacketSets, PortSets, SetsError, Vary, field_names, meant, unpaired, usual_types};

const FORM: &str = "write port: field field, port: field field";
const SYMMETRIC: &str = "symmetric";
/// Names for several fields at once.
pub(crate) const SHORT: [(&str, &[Field]); 2] =
    [("hosts", &[Field::Src, Field::Dst]), ("five-tuple", &[Field::Src, Field::Dst, Field::SrcPort, Field::DstPort])];

pub(crate) fn parse(text: &str, types: Option<&[PacketType]>) -> Result<PacketSets, SetsError> {
    let usual = usual_types();
    let mut ports: Vec<PortSets> = Vec::new();
    let mut spans = Vec::new();
    for (group, shared) in pieces(text, 0..text.len(), ';').into_iter().enumerate() {
        for span in pieces(text, shared, ',') {
            let port = port(text, span.clone(), group, types.unwrap_or(&usual))?;
            if ports.iter().any(|other| other.name == port.name) {
                return Err(SetsError::at(text, span, format!("port {} is given twice", port.name)));
            }
            ports.push(port);
            spans.push(span);
        }
    }
    if ports.len() > PORTS_MAX {
        return Err(SetsError::at(text, spans[PORTS_MAX].clone(), format!("at most {PORTS_MAX} ports")));
    }
    if let Some((later, reason)) = unpaired(&ports) {
        return Err(SetsError::at(text, spans[later].clone(), reason));
    }
    Ok(PacketSets { ports, vary: Vary::default() })
}

fn port(text: &str, span: Range<usize>, group: usize, types: &[PacketType]) -> Result<PortSets, SetsError> {
    let piece = &text[span.clone()];
    let Some(colon) = piece.find(':') else {
        return Err(SetsError::at(text, span, format!("`{piece}` has no port: {FORM}")));
    };
    let name = piece[..colon].trim();
    if let Err(reason) = check_name(name) {
        return Err(SetsError::at(text, span.start..span.start + colon, reason));
    }
    let mut symmetric = false;
    let mut fields = Vec::new();
    let rest = span.start + colon + 1..span.end;
    for word in words(text, rest.clone()) {
        match &text[word.clone()] {
            SYMMETRIC => symmetric = true,
            _ => fields.extend(named(text, word)?),
        }
    }
    if fields.is_empty() {
        return Err(SetsError::at(
            text,
            rest,
            format!("port {name} has no field: {FORM}; fields are {}", field_names()),
        ));
    }
    PortSets::check_fields(&fields, symmetric).map_err(|reason| SetsError::at(text, rest.clone(), reason))?;
    let port = PortSets::new(name.to_owned(), group.to_string(), symmetric, &fields, types, &[]);
    if port.types.is_empty() {
        return Err(SetsError::at(text, rest, "none of the packet types has these fields"));
    }
    Ok(port)
}

/// The fields that a word stands for.
pub(crate) fn named(text: &str, word: Range<usize>) -> Result<Vec<Field>, SetsError> {
    let given = &text[word.clone()];
    if let Some((_, fields)) = SHORT.iter().find(|(name, _)| *name == given) {
        return Ok(fields.to_vec());
    }
    Field::named(given).map(|field| vec![field]).ok_or_else(|| {
        let short = SHORT.map(|(name, _)| name);
        let hint = meant(given, Field::NAMED.iter().map(|field| field.name()).chain(short).chain([SYMMETRIC]));
        let message = format!("`{given}` is not a field{hint} ({}, or {})", field_names(), short.join(", "));
        SetsError::at(text, word, message)
    })
}

/// What a port may be called.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    // No option of a command that the name is pasted into.
    if name.is_empty() || name.len() > 15 || name.starts_with('-') || !name.bytes().all(plain) {
        return Err(format!("`{name}` is not a port name: up to 15 letters, digits and . _ -, as for interfaces"));
    }
    Ok(())
}

/// The parts between `by`, without blanks at their ends; the last may be left out.
fn pieces(text: &str, span: Range<usize>, by: char) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut start = span.start;
    for piece in text[span].split(by) {
        let lead = piece.len() - piece.trim_start().len();
        out.push(start + lead..start + lead + piece.trim().len());
        start += piece.len() + by.len_utf8();
    }
    if out.len() > 1 && out.last().is_some_and(Range::is_empty) {
        out.pop();
    }
    out
}

/// The words, which blanks or pluses part.
pub(crate) fn words(text: &str, span: Range<usize>) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for (at, char) in text[span.clone()].char_indices() {
        let at = span.start + at;
        if char.is_whitespace() || char == '+' {
            continue;
        }
        match out.last_mut() {
            Some(last) if last.end == at => last.end = at + char.len_utf8(),
            _ => out.push(at..at + char.len_utf8()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_fields_and_what_they_share() {
        let sets = PacketSets::from_line("lan: src, wan: dst; tap: five-tuple symmetric", None).unwrap();
        let about: Vec<_> =
            sets.ports.iter().map(|port| (port.name.as_str(), port.state.as_str(), port.symmetric)).collect();
        assert_eq!(about, [("lan", "0", false), ("wan", "0", false), ("tap", "1", true)]);
        let of = |port: usize, kind| {
            let sets = sets.ports[port].types.iter().find(|sets| sets.kind == kind).unwrap();
            (sets.fields.as_slice(), sets.alone)
        };
        assert_eq!(of(0, PacketType::Tcp4), ([Field::Src].as_slice(), false));
        assert_eq!(of(1, PacketType::Frag6), ([Field::Dst].as_slice(), false));
        assert_eq!(of(2, PacketType::Udp6), (SHORT[1].1, true));
        assert_eq!(of(2, PacketType::Other4), (SHORT[0].1, true));
        assert_eq!(PacketSets::from_line("a:src+dst", None), PacketSets::from_line(" a : hosts ,", None));
        let few = PacketSets::from_line("a: sport", Some(&[PacketType::Tcp4, PacketType::Other4])).unwrap();
        assert_eq!(few.ports[0].types.len(), 1, "what has no ports has no set");
    }

    #[test]
    fn slips_are_named() {
        for (text, words) in [
            ("", "has no port"),
            ("lan src", "has no port: write port: field"),
            ("lan: source", "did you mean `src`?"),
            ("lan: scr", "`scr` is not a field (src, dst, sport, dport, smac, dmac, or hosts, five-tuple)"),
            ("lan:", "has no field"),
            ("lan: src src", "src is given twice"),
            ("lan: src symmetric", "a symmetric set with src also needs dst"),
            ("lan: src, lan: dst", "lan is given twice"),
            ("lan: src, wan: dst sport", "the same number of fields"),
            ("lan: src, wan: sport", "lan's src doesn't match wan's sport"),
            ("eth 0: src", "is not a port name"),
            ("-x: src", "is not a port name"),
        ] {
            let error = PacketSets::from_line(text, None).unwrap_err();
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
        let error = PacketSets::from_line("lan: src, wan: dts", None).unwrap_err().of("--sets");
        assert!(error.starts_with("--sets:1:16: `dts`") && error.ends_with("  |                ^^^"), "{error}");
    }

    proptest! {
        #[test]
        fn no_line_panics(text in ".{0,60}", words in prop::collection::vec("(lan|wan|src|dst|:|,|;|\\+| |symmetric|é)", 0..14)) {
            let _ = PacketSets::from_line(&text, None).map_err(|error| error.to_string());
            let _ = PacketSets::from_line(&words.concat(), None).map_err(|error| error.to_string());
        }
    }
}
