//! The text format: where a line ends, its values, and the escapes in them.

use super::lines::{Ending, Endings, Found};
use super::{Scratch, extra_data};
use crate::error::{Result, SqlError, SqlState};

/// Finds the ends of lines as PostgreSQL does: all lines of a COPY end like the first one. A byte behind a backslash
/// ends no line.
#[derive(Default)]
pub(super) struct LineEnds {
    endings: Endings,
    /// The last byte of the data before, if its meaning depends on the byte behind it: a backslash, or a carriage
    /// return, which may end a line alone or with a newline.
    open: Option<u8>,
}

impl LineEnds {
    pub(super) fn find(&mut self, data: &[u8]) -> Result<Found> {
        let mut at = 0;
        if let Some(&first) = data.first() {
            match self.open.take() {
                Some(b'\r') => return self.endings.at_return(0, 0, first),
                Some(_) => at = 1,
                None => {}
            }
        }
        while let Some(found) = data[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r' | b'\\')) {
            at += found;
            match (data[at], data.get(at + 1)) {
                (b'\n', _) => {
                    self.endings.agree(Ending::Newline)?;
                    return Ok(Found { record: at, next: Some(at + 1) });
                }
                (b'\r', Some(&behind)) => return self.endings.at_return(at, at + 1, behind),
                // The byte behind a backslash is passed over.
                (_, Some(_)) => at += 2,
                (b'\r', None) => {
                    self.open = Some(b'\r');
                    return Ok(Found { record: at, next: None });
                }
                (backslash, None) => {
                    self.open = Some(backslash);
                    break;
                }
            }
        }
        Ok(Found { record: data.len(), next: None })
    }

    /// The data have ended. Whether their last byte ended a line.
    pub(super) fn end(&mut self) -> Result<bool> {
        let is_end = self.open.take() == Some(b'\r');
        if is_end {
            self.endings.agree(Ending::Return)?;
        }
        Ok(is_end)
    }
}

/// Splits a line into values, at most as many as given, and undoes their escapes.
pub(super) fn split(
    line: &[u8],
    delimiter: u8,
    null: &[u8],
    columns: usize,
    scratch: &mut Scratch,
) -> Result<()> {
    scratch.bytes.clear();
    scratch.values.clear();
    let mut at = 0;
    loop {
        if scratch.values.len() == columns {
            return Err(extra_data());
        }
        let start = at;
        let written = scratch.bytes.len();
        while at < line.len() && line[at] != delimiter {
            if line[at] == b'\\' && at + 1 < line.len() {
                if line[at + 1] == b'.' {
                    let message = "the end marker \\. is not alone on its line";
                    return Err(SqlError::new(SqlState::BadCopyFormat, message));
                }
                at = unescape(line, at + 1, &mut scratch.bytes);
            } else {
                scratch.bytes.push(line[at]);
                at += 1;
            }
        }
        // The null string is compared before escapes are undone.
        if &line[start..at] == null {
            scratch.bytes.truncate(written);
            scratch.values.push(None);
        } else {
            scratch.values.push(Some(written..scratch.bytes.len()));
        }
        if at >= line.len() {
            return Ok(());
        }
        at += 1;
    }
}

/// Undoes the escape whose character behind the backslash is at `at`; gives the place after it.
fn unescape(line: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let digits = |from: usize, radix: u32, most: usize| {
        let digits = line[from..].iter().take(most).map_while(|&byte| (byte as char).to_digit(radix));
        digits.fold((0u32, 0usize), |(value, count), digit| (value * radix + digit, count + 1))
    };
    let (byte, next) = match line[at] {
        b'b' => (8, at + 1),
        b'f' => (12, at + 1),
        b'n' => (b'\n', at + 1),
        b'r' => (b'\r', at + 1),
        b't' => (b'\t', at + 1),
        b'v' => (11, at + 1),
        b'0'..=b'7' => {
            let (value, count) = digits(at, 8, 3);
            (value as u8, at + count)
        }
        b'x' => match digits(at + 1, 16, 2) {
            (_, 0) => (b'x', at + 1),
            (value, count) => (value as u8, at + 1 + count),
        },
        other => (other, at + 1),
    };
    out.push(byte);
    next
}

/// Appends a byte of a value, with a backslash where the line format needs one.
pub(super) fn escape(byte: u8, delimiter: u8, out: &mut Vec<u8>) {
    let letter = match byte {
        b'\\' => b'\\',
        8 => b'b',
        12 => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        11 => b'v',
        byte if byte == delimiter => byte,
        byte => return out.push(byte),
    };
    out.extend_from_slice(&[b'\\', letter]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(line: &str) -> Vec<Option<String>> {
        let mut scratch = Scratch::default();
        split(line.as_bytes(), b'\t', b"\\N", 100, &mut scratch).unwrap();
        let text = |value: std::ops::Range<usize>| String::from_utf8(scratch.bytes[value].to_vec()).unwrap();
        scratch.values.iter().map(|value| value.clone().map(text)).collect()
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_string())
    }

    #[test]
    fn a_line_is_split_at_tabs() {
        assert_eq!(values("1\t\\N\t"), [some("1"), None, some("")]);
        assert_eq!(values(""), [some("")]);
        assert_eq!(values("a\\\tb\tc"), [some("a\tb"), some("c")]);
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(values(r"a\nb\\N\x41\102\q"), [some("a\nb\\NABq")]);
        assert!(
            split(br"a\.", b'\t', b"\\N", 1, &mut Scratch::default()).is_err(),
            "an end marker amid data"
        );
        assert_eq!(values(r"\x"), [some("x")]);
        assert_eq!(values(r"\\N"), [some("\\N")]);
        assert_eq!(values(r"\0"), [some("\0")]);
        assert_eq!(values("a\\\nb\t\\\r"), [some("a\nb"), some("\r")]);
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = "a\tb\\c\nd\r\u{8}é";
        let mut line = Vec::new();
        for byte in text.bytes() {
            escape(byte, b'\t', &mut line);
        }
        assert_eq!(values(std::str::from_utf8(&line).unwrap()), [some(text)]);
    }

    #[test]
    fn random_lines_never_panic() {
        let mut state = 7u64;
        for _ in 0..20_000 {
            let mut line = Vec::new();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for _ in 0..state >> 60 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                line.push(b"\\\tN0x7fb."[(state >> 33) as usize % 9]);
            }
            // Any bytes are values or an error.
            let _ = split(&line, b'\t', b"\\N", 3, &mut Scratch::default());
        }
    }

    #[test]
    fn values_beyond_the_columns_take_nothing() {
        let mut scratch = Scratch::default();
        let error = split(&[b'\t'; 1 << 20], b'\t', b"\\N", 2, &mut scratch).unwrap_err();
        assert_eq!(error.message, "extra data after last expected column");
        assert!(scratch.values.capacity() <= 4);
    }
}
