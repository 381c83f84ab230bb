//! Formats numbers for people: `2.86 Mpps`, `35,169`, `85.3 %`.

/// `2.86 Mpps` of 2,860,000 and `pps`.
pub(crate) fn scaled(number: f64, unit: &str) -> String {
    const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (mut number, mut at) = (number, 0);
    while number >= 999.5 && at + 1 < PREFIXES.len() {
        number /= 1000.0;
        at += 1;
    }
    let digits = match number {
        _ if at == 0 => 0,
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{number:.digits$} {}{unit}", PREFIXES[at])
}

/// Packets per second.
pub(crate) fn pps(rate: f64) -> String {
    scaled(rate, "pps")
}

/// Bits per second.
pub(crate) fn bps(rate: f64) -> String {
    scaled(rate, "bit/s")
}

/// `35,169`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `85.3 %`; `-` of nothing.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "-".to_owned();
    }
    let percent = part * 100.0 / whole;
    if part > 0.0 && percent < 0.05 { "< 0.1 %".to_owned() } else { format!("{percent:.1} %") }
}

/// `83 %` of 0.83; `-` if unknown.
pub(crate) fn load(load: Option<f64>) -> String {
    load.map_or_else(|| "-".to_owned(), |load| format!("{:.0} %", load * 100.0))
}

/// `31 ns`, `4.2 us`, `12 ms`.
pub(crate) fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (number, unit) = match ns {
        ..999.5 => (ns, "ns"),
        ..999_500.0 => (ns / 1e3, "us"),
        ..999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    if number >= 9.95 || unit == "ns" { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
}

/// `3 h 12 min`.
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1000;
    let (days, hours, minutes) = (s / 86400, s / 3600 % 24, s / 60 % 60);
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{minutes} min {} s", s % 60),
        3600..86400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Text of the run without signs that would move the cursor, or turn text around: those become a mark.
pub(crate) fn plain(text: &str) -> String {
    let moves = |sign: char| {
        sign.is_control() || matches!(sign, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|sign| if moves(sign) { '\u{fffd}' } else { sign }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_write_them() {
        for (number, shown) in [(0.0, "0 pps"), (999.4, "999 pps"), (999.6, "1.00 kpps"), (2.861e6, "2.86 Mpps")] {
            assert_eq!(pps(number), shown);
        }
        for (number, shown) in [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")] {
            assert_eq!(count(number), shown);
        }
        assert_eq!([percent(1.0, 0.0), percent(1.0, 3.0), percent(1.0, 1e6)], ["-", "33.3 %", "< 0.1 %"]);
        assert_eq!(
            [0, 999, 4_321, 12_000_000, u64::MAX].map(time),
            ["0 ns", "999 ns", "4.3 us", "12 ms", "18446744074 s"]
        );
        assert_eq!([59_999, 60_000, 3_600_000, 90_000_000].map(span), ["59 s", "1 min 0 s", "1 h 0 min", "1 d 1 h"]);
        assert_eq!(plain("a\x1b[2J\n\u{202e}é"), "a\u{fffd}[2J\u{fffd}\u{fffd}é");
    }
}
