//! Times of day, days and dates in UTC: `time`, as net/netfilter/xt_time.c has it.

use iptables::matches::Time;
use packet::Nanos;

/// The times of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// First and last second since 1970.
    dates: (u32, u32),
    /// First and last second since midnight. If the first is not below the last, the time runs over midnight.
    hours: (u32, u32),
    /// Bit N stands for day N of the month, from 1.
    month_days: u32,
    /// Bit N stands for day N of the week: 1 is Monday, 7 is Sunday.
    week_days: u8,
    /// A time over midnight belongs to the day that it began in.
    is_contiguous: bool,
}

const DAY_S: u64 = 86_400;

impl Times {
    pub(super) const fn of(time: &Time) -> Self {
        Self {
            dates: (time.date_start_s, time.date_stop_s),
            hours: (time.day_start_s, time.day_stop_s),
            month_days: time.month_days,
            week_days: time.week_days,
            is_contiguous: time.contiguous,
        }
    }

    #[inline(never)]
    pub(super) fn contain(&self, time: Nanos) -> bool {
        let now = time.0 / 1_000_000_000;
        let of_day = now % DAY_S;
        let (first, last) = (u64::from(self.hours.0), u64::from(self.hours.1));
        let is_over_midnight = first >= last;
        let is_hour = match is_over_midnight {
            true => of_day >= first || of_day <= last,
            false => of_day >= first && of_day <= last,
        };
        if now < self.dates.0.into() || now > self.dates.1.into() || !is_hour {
            return false;
        }
        let began_yesterday = is_over_midnight && self.is_contiguous && of_day <= last;
        let day = (now / DAY_S).wrapping_sub(began_yesterday.into());
        // 1970 began on a Thursday.
        let week_day = (day.wrapping_add(3)) % 7 + 1;
        const ALL: u32 = 0xffff_fffe;
        self.week_days >> week_day & 1 != 0 && (self.month_days == ALL || self.month_days >> month_day(day) & 1 != 0)
    }
}

/// The day of its month of a day since 1970, from 1.
const fn month_day(day: u64) -> u64 {
    // Days since the first of March of a year that 400 divides, so that a leap day is the last one.
    let day = day.wrapping_add(719_468) % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    of_year - (153 * month + 2) / 5 + 1
}
