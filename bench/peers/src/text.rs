//! Numbers and tables for people.

use std::fmt::Write;

use rialto_bench::machine::Machine;

/// A whole number with its thousands apart.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds, in a unit that fits.
pub fn time(us: f64) -> String {
    match us {
        us if us < 9.995 => format!("{us:.2} us"),
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// The machine, in a line.
pub fn machine(machine: &Machine) -> String {
    let Machine { cpu, cores, memory_bytes, kernel } = machine;
    format!("{cpu}, {cores} cores, {:.0} GiB, {kernel}", *memory_bytes as f64 / (1u64 << 30) as f64)
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
            written.expect("a string takes all");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_columns() {
        assert_eq!((thousands(999.4), thousands(1_234_567.0)), ("999".to_owned(), "1,234,567".to_owned()));
        let times = [2.346, 85.0, 999.9, 9_990.0, 12_345.0, 999_800.0].map(time);
        assert_eq!(times, ["2.35 us", "85 us", "1.00 ms", "9.99 ms", "12 ms", "1.0 s"]);
        assert_eq!(aligned(&[row(["a", "22"]), row(["bb", "1"])]), "  a   22\n  bb   1\n");
    }
}
