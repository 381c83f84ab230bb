//! Formats and parses numbers: `5M`, `35,169`, `2.86 Mpps`.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::Timestamp;
use packet::Nanos;

// A function's report has the same numbers in it.
pub(crate) use nf::{counted, grouped as count};

/// `21.7 MB`.
pub(crate) fn bytes(number: u64) -> String {
    scaled(number as f64, "B")
}

/// `2.86 Mpps`.
pub(crate) fn rate(packets: u64, elapsed: Duration) -> String {
    scaled(packets as f64 / elapsed.as_secs_f64().max(1e-9), "pps")
}

/// `8.61 Mbit/s`.
pub(crate) fn bit_rate(bytes: u64, elapsed: Duration) -> String {
    scaled(bytes as f64 * 8.0 / elapsed.as_secs_f64().max(1e-9), "bit/s")
}

fn scaled(number: f64, unit: &str) -> String {
    const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];
    let mut number = number;
    let mut prefix = 0;
    while number >= 999.5 && prefix + 1 < PREFIXES.len() {
        number /= 1000.0;
        prefix += 1;
    }
    let digits = if prefix == 0 || number >= 99.95 {
        0
    } else if number >= 9.995 {
        1
    } else {
        2
    };
    format!("{number:.digits$} {}{unit}", PREFIXES[prefix])
}

/// `85.3 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if part > 0 && percent < 0.05 { "< 0.1 %".to_owned() } else { format!("{percent:.1} %") }
}

/// `12.3 ms`.
pub(crate) fn span(span: Duration) -> String {
    let secs = span.as_secs_f64();
    match secs {
        0.0..1e-3 => format!("{:.0} us", secs * 1e6),
        1e-3..1.0 => format!("{:.1} ms", secs * 1e3),
        1.0..120.0 => format!("{secs:.2} s"),
        120.0..7200.0 => format!("{} min {} s", secs as u64 / 60, secs as u64 % 60),
        _ => format!("{} h {} min", secs as u64 / 3600, secs as u64 / 60 % 60),
    }
}

/// `31 ns`, `4.2 us`, `12 ms`.
pub(crate) fn time(ns: f64) -> String {
    let (number, unit) = match ns {
        ..999.5 => (ns, "ns"),
        ..999_500.0 => (ns / 1e3, "us"),
        ..999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    if number >= 9.95 || unit == "ns" { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
}

/// Parses `5M`, `100k`, `1.5G`, `10_000`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let (digits, factor) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1e3),
        Some((at, 'M' | 'm')) => (&plain[..at], 1e6),
        Some((at, 'G' | 'g')) => (&plain[..at], 1e9),
        _ => (plain.as_str(), 1.0),
    };
    if let (Ok(number), 1.0) = (digits.parse(), factor) {
        return Ok(number);
    }
    let number: f64 = digits.parse().map_err(|_| format!("`{text}` is not a number: write 5000, 100k, 5M or 1.5G"))?;
    let product = number * factor;
    if product >= 0.0 && product < u64::MAX as f64 && product.fract() == 0.0 {
        Ok(product as u64)
    } else {
        Err(format!("`{text}` is not a whole number, or is too large"))
    }
}

/// As [`parse`], at least 1.
pub(crate) fn parse_positive(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("it must be at least 1".to_owned()),
        number => Ok(number),
    }
}

/// Parses `4` or `1-8`, at least 1.
pub(crate) fn parse_range(text: &str) -> Result<RangeInclusive<usize>, String> {
    let wrong = || format!("`{text}` is not a range: write 4, 1-8 or 2,5");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first: usize = first.trim().parse().map_err(|_| wrong())?;
    let last: usize = last.trim().parse().map_err(|_| wrong())?;
    if first == 0 || last < first {
        return Err(wrong());
    }
    Ok(first..=last)
}

/// Formats a packet's time as ISO 8601 in UTC with microseconds: `2026-11-27T08:00:00.123456Z`.
pub(crate) fn iso(time: Nanos) -> String {
    let stamp = Timestamp::from_nanosecond(i128::from(time.0) / 1_000 * 1_000);
    stamp.map_or_else(|_| "-".to_owned(), |stamp| format!("{stamp:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for (text, number) in
            [("5M", 5_000_000), ("100k", 100_000), ("1.5G", 1_500_000_000), ("10_000", 10_000), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        for text in ["", "k", "-1", "1.5", "five", "5T", "1e400", "NaN", "inf"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn ranges() {
        assert_eq!(parse_range("1-8"), Ok(1..=8));
        assert_eq!(parse_range("4"), Ok(4..=4));
        for text in ["0", "0-3", "3-1", "-", "a", ""] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn people_read_these() {
        assert_eq!(count(0), "0");
        assert_eq!(count(35_169), "35,169");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bytes(21_700_000), "21.7 MB");
        assert_eq!(rate(2_860_000, Duration::from_secs(1)), "2.86 Mpps");
        assert_eq!(percent(1, 100_000), "< 0.1 %");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(span(Duration::from_micros(12_340)), "12.3 ms");
        assert_eq!(span(Duration::from_secs(3725)), "62 min 5 s");
        for (ns, text) in
            [(31.2, "31 ns"), (4_240.0, "4.2 us"), (12_000_000.0, "12 ms"), (999.7, "1.0 us"), (2e9, "2.0 s")]
        {
            assert_eq!(time(ns), text);
        }
    }
}
