//! Bytes in the packet: `string`.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, plain};

/// The search algorithm of `string`. The outcome is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchAlgorithm {
    /// `bm`: Boyer and Moore.
    BoyerMoore,
    /// `kmp`: Knuth, Morris and Pratt.
    KnuthMorrisPratt,
}

/// `-m string`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringMatch {
    /// `--string` or `--hex-string`: up to 128 bytes.
    pub pattern: Condition<Vec<u8>>,
    /// `--algo`.
    pub algorithm: SearchAlgorithm,
    /// `--from`: where the search begins, from the IP header on.
    pub from: u16,
    /// `--to`: where it ends.
    pub to: u16,
    /// `--icase`: upper and lower case are the same.
    pub ignores_case: bool,
}

const PATTERN_BYTES_MAX: usize = 128;

impl Extension for StringMatch {
    const NAME: &'static str = "string";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("from"),
        Spec::value("to"),
        Spec::value("algo").required(),
        Spec::value("string").inverts(),
        Spec::value("hex-string").inverts(),
        Spec::flag("icase"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let given = args.exactly_one_of(&["string", "hex-string"])?;
        let value = given.words[0].ok_or_else(|| args.fault("a text is missing"))?;
        let pattern = if given.is("hex-string") { hex_string(value)? } else { value.text.as_bytes().to_vec() };
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(value.fault(format!("the text is longer than {PATTERN_BYTES_MAX} bytes")));
        }
        if pattern.is_empty() {
            return Err(value.fault("the text is empty"));
        }
        let algorithm = args.read("algo", |value| match value.text {
            "bm" => Ok(SearchAlgorithm::BoyerMoore),
            "kmp" => Ok(SearchAlgorithm::KnuthMorrisPratt),
            _ => {
                let what = format!("the kernel has no algorithm `{}`", value.text);
                Err(Fault::load(value.column, value.text, what).instead("write `bm` or `kmp`"))
            }
        })?;
        Ok(Self {
            pattern: Condition { negated: given.negated, value: pattern },
            algorithm: algorithm.ok_or_else(|| args.fault("string needs `--algo`"))?,
            from: args.read("from", Value::u16)?.unwrap_or(0),
            to: args.read("to", Value::u16)?.unwrap_or(u16::MAX),
            ignores_case: args.flag("icase"),
        })
    }
}

/// Text with hexadecimal digits between `|`. A backslash takes the next byte as it is.
fn hex_string(value: Value<'_>) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let mut rest = value.text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => bytes.push(rest.next().ok_or_else(|| value.fault("a byte is missing after `\\`"))?),
            b'|' => loop {
                let digit = |byte: Option<u8>| {
                    let digit = byte.and_then(|byte| (byte as char).to_digit(16));
                    digit.ok_or_else(|| value.fault("between `|` stand pairs of hexadecimal digits"))
                };
                match rest.next() {
                    Some(b'|') => break,
                    Some(b' ') => {}
                    first => bytes.push((digit(first)? << 4 | digit(rest.next())?) as u8),
                }
            },
            other => bytes.push(other),
        }
    }
    Ok(bytes)
}

impl fmt::Display for StringMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { negated, value } = &self.pattern;
        let is_print = |byte: &u8| (b' '..=b'~').contains(byte);
        f.write_str(if *negated { " !" } else { "" })?;
        match value.iter().all(is_print) && value.last() != Some(&b'\\') {
            true => {
                f.write_str(" --string \"")?;
                for byte in value {
                    let escape = if matches!(byte, b'"' | b'\\') { "\\" } else { "" };
                    write!(f, "{escape}{}", *byte as char)?;
                }
                f.write_str("\"")?;
            }
            false => {
                f.write_str(" --hex-string \"|")?;
                for byte in value {
                    write!(f, "{byte:02x}")?;
                }
                f.write_str("|\"")?;
            }
        }
        f.write_str(match self.algorithm {
            SearchAlgorithm::BoyerMoore => " --algo bm",
            SearchAlgorithm::KnuthMorrisPratt => " --algo kmp",
        })?;
        if self.from != 0 {
            write!(f, " --from {}", self.from)?;
        }
        if self.to != u16::MAX {
            write!(f, " --to {}", self.to)?;
        }
        plain(f, "icase", self.ignores_case)
    }
}
