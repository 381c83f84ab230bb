//! Time of day, days and dates: `time`.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, plain};

/// `-m time`. All that is given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// `--datestart`: seconds since 1970, in the zone of `kernel_tz`.
    pub date_start_s: u32,
    /// `--datestop`: the last second.
    pub date_stop_s: u32,
    /// `--timestart`: seconds since midnight. If it is above `day_stop_s`, the time runs over midnight.
    pub day_start_s: u32,
    /// `--timestop`: the last second.
    pub day_stop_s: u32,
    /// `--monthdays`: bit N stands for day N, from 1.
    pub month_days: u32,
    /// `--weekdays`: bit N stands for day N, where 1 is Monday and 7 Sunday.
    pub week_days: u8,
    /// `--kerneltz`: times are in the zone of the kernel instead of UTC.
    pub kernel_tz: bool,
    /// `--contiguous`: a time over midnight belongs to the day that it began in.
    pub contiguous: bool,
}

const DATE_STOP_MAX: u32 = i32::MAX as u32;
const DAY_STOP_MAX: u32 = 24 * 3_600 - 1;
const MONTH_DAYS_ALL: u32 = 0xffff_fffe;
const WEEK_DAYS_ALL: u8 = 0xfe;
const WEEK_DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl Extension for Time {
    const NAME: &'static str = "time";
    const OPTIONS: &'static [Spec] = &[
        Spec::value("datestart"),
        Spec::value("datestop"),
        Spec::value("timestart"),
        Spec::value("timestop"),
        Spec::value("monthdays").inverts(),
        Spec::value("weekdays").inverts(),
        Spec::flag("kerneltz"),
        Spec::flag("contiguous"),
        Spec::flag("utc"),
        Spec::flag("localtz"),
    ];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        args.one_of(&["kerneltz", "utc", "localtz"])?;
        args.needs("contiguous", &["timestart", "timestop"])?;
        let month_days = args.test("monthdays", |value| {
            value.parts(',').try_fold(0, |days, part| Ok(days | 1_u32 << part.number(1, 31)?))
        })?;
        let week_days = args.test("weekdays", |value| {
            value.parts(',').try_fold(0, |days, part| {
                let name = |day: &&str| day[..2].eq_ignore_ascii_case(part.text.get(..2).unwrap_or(""));
                match WEEK_DAYS.iter().position(name) {
                    Some(nth) => Ok(days | 2_u8 << nth),
                    None => Ok(days | 1_u8 << part.number(1, 7)?),
                }
            })
        })?;
        let flip = |days: Condition<u32>, all| if days.negated { days.value ^ all } else { days.value };
        Ok(Self {
            date_start_s: args.read("datestart", date)?.unwrap_or(0),
            date_stop_s: args.read("datestop", date)?.unwrap_or(DATE_STOP_MAX),
            day_start_s: args.read("timestart", day_time)?.unwrap_or(0),
            day_stop_s: args.read("timestop", day_time)?.unwrap_or(DAY_STOP_MAX),
            month_days: month_days.map_or(MONTH_DAYS_ALL, |days| flip(days, MONTH_DAYS_ALL)),
            week_days: week_days
                .map_or(WEEK_DAYS_ALL, |days| flip(days.map(u32::from), u32::from(WEEK_DAYS_ALL)) as u8),
            kernel_tz: args.flag("kerneltz"),
            contiguous: args.flag("contiguous"),
        })
    }
}

/// `hh:mm` or `hh:mm:ss`, in seconds.
fn day_time(value: Value<'_>) -> Result<u32, Fault> {
    let parts: Vec<&str> = value.text.split(':').collect();
    let [hour, minute, second] = match *parts {
        [hour, minute] => [hour, minute, "0"],
        [hour, minute, second] => [hour, minute, second],
        _ => return Err(no_time(value)),
    };
    let number = |text: &str, last: u32| two_digits(text).filter(|number| *number <= last);
    match (number(hour, 23), number(minute, 59), number(second, 59)) {
        (Some(hour), Some(minute), Some(second)) => Ok(hour * 3_600 + minute * 60 + second),
        _ => Err(no_time(value)),
    }
}

fn no_time(value: Value<'_>) -> Fault {
    value.fault(format!("`{}` is not a time of day", value.text)).instead("write it as `08:30` or `08:30:00`")
}

fn two_digits(text: &str) -> Option<u32> {
    let is_plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// `2001-02-03T04:05:06`, or a beginning of it, in seconds since 1970.
fn date(value: Value<'_>) -> Result<u32, Fault> {
    let wrong = || value.fault(format!("`{}` is not a date", value.text)).instead("write it as `2031-12-24T18:00:00`");
    let (day, time) = match value.split_once('T') {
        Some((day, time)) => (day.text, Some(time)),
        None => (value.text, None),
    };
    let mut parts = day.split('-');
    let year: u32 = parts.next().and_then(|year| year.parse().ok()).ok_or_else(wrong)?;
    let mut part = |last: u32| match parts.next() {
        Some(text) => two_digits(text).filter(|number| (1..=last).contains(number)).ok_or_else(wrong),
        None => Ok(1),
    };
    let (month, day) = (part(12)?, part(31)?);
    if parts.next().is_some() || !(1970..=2038).contains(&year) {
        return Err(wrong());
    }
    let time = match time {
        Some(time) if !time.text.contains(':') => {
            two_digits(time.text).filter(|hour| *hour < 24).ok_or_else(wrong)? * 3_600
        }
        Some(time) => day_time(time)?,
        None => 0,
    };
    let seconds = days_before(year, month, day) * 86_400 + time;
    if seconds > DATE_STOP_MAX { Err(wrong()) } else { Ok(seconds) }
}

/// Days from 1970 to a date.
fn days_before(year: u32, month: u32, day: u32) -> u32 {
    let leap = |year: u32| u32::from(year.is_multiple_of(4));
    let years: u32 = (1970..year).map(|year| 365 + leap(year)).sum();
    let months: u32 = (1..month).map(|month| month_length(year, month)).sum();
    years + months + day - 1
}

/// Days of a month, for years from 1970 to 2038.
const fn month_length(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The date of a second since 1970: `2001-02-03T04:05:06`.
fn write_date(f: &mut fmt::Formatter<'_>, seconds: u32) -> fmt::Result {
    let (mut day, time) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    while day >= 365 + u32::from(u32::is_multiple_of(year, 4)) {
        day -= 365 + u32::from(year.is_multiple_of(4));
        year += 1;
    }
    let mut month = 1;
    while day >= month_length(year, month) {
        day -= month_length(year, month);
        month += 1;
    }
    write!(f, "{year:04}-{month:02}-{:02}T", day + 1)?;
    write_time(f, time)
}

fn write_time(f: &mut fmt::Formatter<'_>, seconds: u32) -> fmt::Result {
    write!(f, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.day_start_s != 0 || self.day_stop_s != DAY_STOP_MAX {
            f.write_str(" --timestart ")?;
            write_time(f, self.day_start_s)?;
            f.write_str(" --timestop ")?;
            write_time(f, self.day_stop_s)?;
        }
        if self.month_days != MONTH_DAYS_ALL {
            for (nth, day) in (1..32).filter(|day| self.month_days & 1 << day != 0).enumerate() {
                write!(f, "{}{day}", if nth == 0 { " --monthdays " } else { "," })?;
            }
        }
        if self.week_days != WEEK_DAYS_ALL {
            for (nth, day) in (1..8).filter(|day| self.week_days & 1 << day != 0).enumerate() {
                write!(f, "{}{}", if nth == 0 { " --weekdays " } else { "," }, WEEK_DAYS[day as usize - 1])?;
            }
        }
        if self.date_start_s != 0 {
            f.write_str(" --datestart ")?;
            write_date(f, self.date_start_s)?;
        }
        if self.date_stop_s != DATE_STOP_MAX {
            f.write_str(" --datestop ")?;
            write_date(f, self.date_stop_s)?;
        }
        plain(f, "kerneltz", self.kernel_tz)?;
        plain(f, "contiguous", self.contiguous)
    }
}
