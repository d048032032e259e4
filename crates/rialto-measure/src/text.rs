//! Numbers and tables for people, and the output of progress.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// Tells the progress, on the standard error. Its reader may have gone.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Names and values in two columns.
#[derive(Debug, Default)]
pub struct Table(Vec<(&'static str, String)>);

impl Table {
    /// Adds a row.
    pub fn row(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }

    /// The lines, one a row.
    pub fn print(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.0 {
            writeln!(text, "  {name:width$}  {value}").expect("a string takes everything");
        }
        text
    }
}

/// Lines up columns: the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let written = match column {
                0 => write!(line, "  {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
            written.expect("a string takes everything");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Rows of text.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A whole number with its thousands apart.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure with as many digits as it is worth; a dash where there is none.
pub fn figure(number: Option<f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(number) if number >= 1000.0 => thousands(number),
        Some(number) if number >= 100.0 => format!("{number:.0}"),
        Some(number) => format!("{number:.2}"),
    }
}

/// Microseconds, in a unit that fits.
pub fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Bytes, in a unit that fits.
pub fn bytes(count: u64) -> String {
    match count as f64 {
        count if count < 1e4 => format!("{count} bytes"),
        count if count < 1e7 => format!("{:.0} kB", count / 1e3),
        count if count < 1e10 => format!("{:.0} MB", count / 1e6),
        count => format!("{:.1} GB", count / 1e9),
    }
}

/// Seconds, for people.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(1_234_567.2), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(
            (time(1.234), time(1234.0), time(2e6)),
            ("1.23 us".into(), "1.23 ms".into(), "2.00 s".into())
        );
        assert_eq!(
            (figure(None), figure(Some(2.5)), figure(Some(1234.0))),
            ("-".into(), "2.50".into(), "1,234".into())
        );
    }

    #[test]
    fn columns_are_lined_up() {
        assert_eq!(aligned(&[row(["a", "22"]), row(["bb", "1"])]), "  a   22\n  bb   1\n");
    }
}
