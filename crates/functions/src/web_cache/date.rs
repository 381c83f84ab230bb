//! Parses HTTP dates (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`. The two obsolete forms are refused.

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Returns the seconds since 1970. The day of the week is ignored.
pub(super) fn seconds(date: &[u8]) -> Option<u64> {
    let [_, _, _, b',', b' ', day @ .., b' ', b'G', b'M', b'T'] = date else { return None };
    let (day, rest) = day.split_at_checked(2)?;
    let [b' ', a, b, c, b' ', rest @ ..] = rest else { return None };
    let month = MONTHS.iter().position(|name| **name == [*a, *b, *c])? as u64 + 1;
    let (year, rest) = rest.split_at_checked(4)?;
    let [b' ', hour @ .., b':', _, _, b':', _, _] = rest else { return None };
    let (minute, second) = (&rest[rest.len() - 5..rest.len() - 3], &rest[rest.len() - 2..]);
    let [day, year, hour, minute, second] = [day, year, hour, minute, second].map(number);
    let (day, year, hour, minute, second) = (day?, year?, hour?, minute?, second?);
    let is_date = (1..=days_of(month, year)).contains(&day) && year >= 1970;
    // A leap second counts as the next second.
    let is_time = rest.len() == 9 && hour < 24 && minute < 60 && second <= 60;
    (is_date && is_time).then(|| ((days_before(year, month) + day - 1) * 24 + hour) * 3_600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'));
    digits.iter().try_fold(0, add)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_of(month: u64, year: u64) -> u64 {
    match month {
        2 => 28 + is_leap(year) as u64,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from the beginning of 1970 to the beginning of the month.
fn days_before(year: u64, month: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let of_years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    of_years + (1..month).map(|month| days_of(month, year)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_what_another_library_writes(secs in 0..253_402_300_799_u64) {
            let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
            prop_assert_eq!(seconds(date.as_bytes()), Some(secs));
        }

        #[test]
        fn what_another_library_refuses_is_refused(
            secs in 0..4_102_444_800_u64,
            at in 4..29_usize,
            byte in prop_oneof![Just(b' '), Just(b':'), b'0'..=b'9', any::<u8>()],
        ) {
            let mut date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)).into_bytes();
            date[at] = byte;
            let text = core::str::from_utf8(&date).unwrap_or_default();
            let expected = httpdate::parse_http_date(text).ok();
            if let Some(read) = seconds(&date) {
                let expected = expected.map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
                // The other library checks the day of the week.
                prop_assert!(expected.is_none_or(|expected| expected == read), "{text}");
            } else {
                prop_assert!(expected.is_none(), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        assert_eq!(seconds(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        for text in [
            "",
            "0",
            "-1",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 2021 00:00:00 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(seconds(text.as_bytes()), None, "{text}");
        }
    }
}
