//! [`Date`] and [`Timestamp`]: points in time without a time zone, in the proleptic Gregorian calendar.

use std::fmt;
use std::str::FromStr;

const DAYS_PER_400_YEARS: i64 = 146_097;
const MICROS_PER_DAY: i64 = 86_400_000_000;
/// Days before the first of each month in a year that starts in March, so that the leap day is the last day.
const DAYS_BEFORE_MONTH: [i64; 12] = [0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337];
/// 1970-01-01, counted from 0000-03-01.
const EPOCH: i64 = 719_468;

/// A day, as days since 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(pub i32);

/// A moment, as microseconds since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Text that is no date or timestamp, or that is outside the type's range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no {expected}")]
pub struct ParseDateError {
    text: String,
    expected: &'static str,
}

impl Date {
    /// The day of a year (0 is 1 BC), month (1 to 12) and day of the month; `None` if there is no such day.
    pub fn from_ymd(year: i32, month: u32, day: u32) -> Option<Date> {
        i32::try_from(days_of(i64::from(year), month, day)?).ok().map(Date)
    }

    /// Year (0 is 1 BC), month (1 to 12) and day of the month.
    pub fn to_ymd(self) -> (i32, u32, u32) {
        let (year, month, day) = ymd_of(self.0.into());
        (year as i32, month, day)
    }
}

fn days_of(year: i64, month: u32, day: u32) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if day == 0 || day > last {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (cycle, year) = (year.div_euclid(400), year.rem_euclid(400));
    let days = cycle * DAYS_PER_400_YEARS + year * 365 + year / 4 - year / 100;
    Some(days + DAYS_BEFORE_MONTH[month as usize] + i64::from(day) - 1 - EPOCH)
}

fn ymd_of(days: i64) -> (i64, u32, u32) {
    let days = days + EPOCH;
    let (cycle, mut rest) = (days.div_euclid(DAYS_PER_400_YEARS), days.rem_euclid(DAYS_PER_400_YEARS));
    // Each of the three steps has a longer last part, since the leap day of its last year is its very last day.
    let century = (rest / 36_524).min(3);
    rest -= century * 36_524;
    let four_years = (rest / 1_461).min(24);
    rest -= four_years * 1_461;
    let year = (rest / 365).min(3);
    rest -= year * 365;
    let month = DAYS_BEFORE_MONTH.partition_point(|first| *first <= rest) - 1;
    let day = (rest - DAYS_BEFORE_MONTH[month]) as u32 + 1;
    let year = cycle * 400 + century * 100 + four_years * 4 + year;
    if month < 10 { (year, month as u32 + 3, day) } else { (year + 1, month as u32 - 9, day) }
}

/// `[year]-[month]-[day]` and whether " BC" has to follow.
fn print_day(f: &mut fmt::Formatter<'_>, days: i64) -> Result<bool, fmt::Error> {
    let (year, month, day) = ymd_of(days);
    let (year, before_christ) = if year > 0 { (year, false) } else { (1 - year, true) };
    write!(f, "{year:04}-{month:02}-{day:02}")?;
    Ok(before_christ)
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if print_day(f, self.0.into())? { f.write_str(" BC") } else { Ok(()) }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0.div_euclid(MICROS_PER_DAY), self.0.rem_euclid(MICROS_PER_DAY));
        let before_christ = print_day(f, days)?;
        let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
        write!(f, " {:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
        if micros != 0 {
            let digits = format!("{micros:06}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if before_christ { f.write_str(" BC") } else { Ok(()) }
    }
}

fn number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// A year has at least three digits. PostgreSQL takes a year of two digits for one of this century or the last, or for
/// a day or a month, depending on its settings, and never for one of the first century.
fn parse_day(text: &str, before_christ: bool) -> Option<i64> {
    let mut parts = text.splitn(3, '-');
    let year = parts.next().filter(|digits| digits.len() >= 3)?;
    let year = i64::from(number(year)?);
    let (month, day) = (number(parts.next()?)?, number(parts.next()?)?);
    if year == 0 {
        return None;
    }
    days_of(if before_christ { 1 - year } else { year }, month, day)
}

fn parse_time(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let second = parts.next().map_or(Some(0), number)?;
    if hour > 23 || minute > 59 || second > 59 || fraction.len() > 6 {
        return None;
    }
    let micros = number(fraction)? * 10u32.pow(6 - fraction.len() as u32);
    Some(
        (i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second)) * 1_000_000
            + i64::from(micros),
    )
}

fn split_era(text: &str) -> (&str, bool) {
    let text = text.trim();
    text.strip_suffix("BC").map_or((text, false), |text| (text.trim_end(), true))
}

impl FromStr for Date {
    type Err = ParseDateError;

    /// `YYYY-MM-DD`, with " BC" behind it for a year before 1.
    fn from_str(text: &str) -> Result<Date, ParseDateError> {
        let (day, before_christ) = split_era(text);
        parse_day(day, before_christ)
            .and_then(|days| i32::try_from(days).ok())
            .map(Date)
            .ok_or_else(|| ParseDateError { text: text.to_owned(), expected: "date (YYYY-MM-DD)" })
    }
}

impl FromStr for Timestamp {
    type Err = ParseDateError;

    /// `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]]`; a `T` may stand for the blank; " BC" behind it for a year before 1.
    fn from_str(text: &str) -> Result<Timestamp, ParseDateError> {
        let (moment, before_christ) = split_era(text);
        let (day, time) = moment.split_once([' ', 'T']).unwrap_or((moment, "00:00"));
        parse_day(day, before_christ)
            .zip(parse_time(time.trim()))
            // Computed in a wider type, because the first day's midnight lies before the first moment.
            .and_then(|(days, micros)| {
                i64::try_from(i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(micros)).ok()
            })
            .map(Timestamp)
            .ok_or_else(|| ParseDateError {
                text: text.to_owned(),
                expected: "timestamp (YYYY-MM-DD HH:MM:SS)",
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_days_from_1970() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2000-03-01", 11_017),
            ("2024-12-31", 20_088),
        ] {
            assert_eq!(text.parse::<Date>().unwrap(), Date(days));
            assert_eq!(Date(days).to_string(), text);
        }
        for text in [
            "1900-02-29",
            "2001-13-01",
            "2001-00-10",
            "2001-1",
            "yesterday",
            "0000-01-01",
            "2001-04-31",
            "01-02-03",
            "99-01-08",
            "1-2-3",
            "26-01-05 BC",
        ] {
            assert!(text.parse::<Date>().is_err(), "{text}");
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
            assert!(format!("{text} 10:00").parse::<Timestamp>().is_err(), "{text}");
        }
        assert_eq!("099-1-8".parse::<Date>().unwrap().to_string(), "0099-01-08");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut expected = Date(-800_000).to_ymd();
        for days in -800_000..800_000 {
            let (year, month, day) = Date(days).to_ymd();
            assert_eq!((year, month, day), expected);
            assert_eq!(Date::from_ymd(year, month, day), Some(Date(days)));
            expected = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)]
                .into_iter()
                .find(|(year, month, day)| Date::from_ymd(*year, *month, *day).is_some())
                .unwrap();
        }
    }

    #[test]
    fn extremes_survive_printing() {
        for days in [i32::MIN, i32::MIN + 1, -719_163, i32::MAX] {
            assert_eq!(Date(days).to_string().parse(), Ok(Date(days)));
        }
        for micros in [i64::MIN, -1, 0, 1, 1_500_000, i64::MAX] {
            assert_eq!(Timestamp(micros).to_string().parse(), Ok(Timestamp(micros)));
        }
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31 23:59:59.999999");
        assert_eq!("2024-01-02T03:04".parse::<Timestamp>().unwrap().to_string(), "2024-01-02 03:04:00");
        assert!("2024-01-02 24:00".parse::<Timestamp>().is_err());
    }
}
