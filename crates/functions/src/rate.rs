//! Bit rates in configuration files.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// A rate in whole bits per second, from one byte per second to ten terabits per second.
///
/// In a file it is a whole number of bytes per second, or text with a decimal unit:
/// `"10Mbit"`, `"512kbit"`, `"2.5Gbit"`, `"1.25MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

const UNITS: [(&str, u64); 9] = [
    ("Tbit", 1_000_000_000_000),
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
    ("GB", 8_000_000_000),
    ("MB", 8_000_000),
    ("kB", 8_000),
    ("B", 8),
];

impl Rate {
    const MIN: u64 = 8;
    const MAX: u64 = 10_000_000_000_000;

    /// Creates a rate of `bits` bits per second.
    ///
    /// # Panics
    /// If it is out of range.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        assert!(bits >= Self::MIN && bits <= Self::MAX);
        Self(bits)
    }

    /// Bits per second.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    fn checked(bits: Option<u64>, text: &dyn fmt::Display) -> Result<Self, String> {
        match bits {
            Some(bits) if (Self::MIN..=Self::MAX).contains(&bits) => Ok(Self(bits)),
            _ => Err(format!("{text} is out of range: a rate is from 1 byte to 10 terabits per second")),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a rate: write 10Mbit, 2.5Gbit or 1.25MB, or bytes per second without a unit");
        let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(number_len);
        let unit = unit.trim_start();
        let unit = unit.strip_suffix("/s").unwrap_or(unit);
        let unit_bits = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, bits)) => *bits,
            None if unit.is_empty() => 8,
            None => return Err(wrong()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let (Ok(whole), Ok(numerator)) = (whole.parse::<u64>(), fraction.parse::<u64>()) else { return Err(wrong()) };
        // Decimal arithmetic: a rate that is no whole number of bits is refused, not rounded.
        let denominator = 10_u64.checked_pow(fraction.len() as u32).ok_or_else(wrong)?;
        let part =
            numerator.checked_mul(unit_bits).filter(|part| part.is_multiple_of(denominator)).ok_or_else(wrong)?;
        let bits = whole.checked_mul(unit_bits).and_then(|whole| whole.checked_add(part / denominator));
        Self::checked(bits, &format_args!("`{text}`"))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes per second, or text such as \"10Mbit\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Rate, E> {
                let bits = u64::try_from(bytes).ok().and_then(|bytes| bytes.checked_mul(8));
                Rate::checked(bits, &bytes).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Rate, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        rate: Rate,
    }

    #[test]
    fn reads_units_exactly() {
        for (text, bits) in [
            ("1250000", 10_000_000),
            ("\"10Mbit\"", 10_000_000),
            ("\"10 Mbit/s\"", 10_000_000),
            ("\"2.5Gbit\"", 2_500_000_000),
            ("\"1.25MB\"", 10_000_000),
            ("\"9bit\"", 9),
            ("\"0.009kbit\"", 9),
            ("\"10Tbit\"", 10_000_000_000_000),
            ("\"125\"", 1_000),
        ] {
            let sample: Sample =
                toml::from_str(&format!("rate = {text}")).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(sample.rate.bits(), bits, "{text}");
        }
    }

    #[test]
    fn errors_point_at_line_and_column() {
        for (text, says) in [
            ("0", "out of range"),
            ("-1", "out of range"),
            ("\"11Tbit\"", "out of range"),
            ("\"18446744073709551615Tbit\"", "out of range"),
            ("\"10mbit\"", "not a rate"),
            ("\"fast\"", "not a rate"),
            ("\"1.0005kbit\"", "not a rate"),
            ("\"1.2.3kbit\"", "not a rate"),
            ("true", "bytes per second"),
        ] {
            let error = toml::from_str::<Sample>(&format!("\nrate = {text}")).unwrap_err().to_string();
            assert!(error.contains("line 2, column 8"), "{text}: {error}");
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
