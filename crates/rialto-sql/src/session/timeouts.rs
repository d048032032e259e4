//! The values of time-outs, as PostgreSQL reads and shows them: whole milliseconds, zero for none.

use std::time::Duration;

/// What a time-out may be.
pub(super) const NOTATION: &str =
    "milliseconds, or a number with us, ms, s, min, h or d, at most 2147483647 ms; 0 for none";

/// Units with their milliseconds, the largest first.
const UNITS: [(&str, f64); 6] =
    [("d", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0), ("s", 1_000.0), ("ms", 1.0), ("us", 0.001)];

/// Reads a time-out. A fraction is rounded to the next smaller unit, and everything to milliseconds.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    // "s" is the end of "ms" and "us", so the longest unit counts.
    let found = UNITS.iter().enumerate().filter(|(_, (unit, _))| text.ends_with(unit));
    let unit = found.max_by_key(|(_, (unit, _))| unit.len()).map(|(index, _)| index);
    let digits = unit.map_or(text, |index| text[..text.len() - UNITS[index].0.len()].trim_end());
    // PostgreSQL reads this as octal.
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Rust reads the words for infinity and NaN, too.
    let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite())?;
    let index = unit.unwrap_or(4);
    let mut ms = number * UNITS[index].1;
    if let Some((_, step)) = UNITS.get(index + 1) {
        ms = (ms / step).round_ties_even() * step;
    }
    let ms = ms.round_ties_even();
    (0.0..=f64::from(i32::MAX)).contains(&ms).then(|| Duration::from_millis(ms as u64))
}

/// Shows whole milliseconds in the largest unit that has no fraction.
pub(super) fn show(timeout: Duration) -> String {
    let ms = timeout.as_millis() as u64;
    let whole = UNITS[..5].iter().find(|(_, unit_ms)| ms > 0 && ms.is_multiple_of(*unit_ms as u64));
    whole.map_or("0".to_string(), |(unit, unit_ms)| format!("{}{unit}", ms / *unit_ms as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these was read so by PostgreSQL 15.
    #[test]
    fn time_outs_are_read_and_shown_as_in_postgresql() {
        for (text, shown) in [
            ("0", "0"),
            ("100", "100ms"),
            ("1000", "1s"),
            (" 5 s ", "5s"),
            ("60s", "1min"),
            ("90s", "90s"),
            ("1.5s", "1500ms"),
            ("1.5min", "90s"),
            ("1.5h", "90min"),
            ("24h", "1d"),
            ("1d", "1d"),
            ("1e3", "1s"),
            ("1e1s", "10s"),
            (".5s", "500ms"),
            ("+7", "7ms"),
            ("1500us", "2ms"),
            ("400us", "0"),
            ("600us", "1ms"),
            ("2.5", "2ms"),
            ("1.00001min", "1min"),
            ("2147483647", "2147483647ms"),
        ] {
            assert_eq!(parse(text).map(show).as_deref(), Some(shown), "{text}");
        }
        for text in
            ["", "s", "-1", "-1s", "x", "5 sec", "5S", "5MS", "1 2", "2147483648", "25d", "inf", "NaN", "1,5"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        // PostgreSQL reads octal and hexadecimal numbers, which are refused here.
        assert_eq!((parse("010"), parse("0x10")), (None, None));
    }
}
