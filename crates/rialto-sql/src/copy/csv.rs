//! CSV: where a line ends, its values, and the quotes around them.

use super::lines::{Ending, Endings, Found};
use super::{Forced, Scratch, extra_data};
use crate::error::{Result, SqlError, SqlState};
use crate::parse;

/// Finds the ends of lines as PostgreSQL does. A line end within quotes is data.
pub(super) struct CsvEnds {
    endings: Endings,
    quote: u8,
    /// `None` if it is the quote.
    escape: Option<u8>,
    in_quotes: bool,
    after_escape: bool,
    /// Whether the data before ended in a carriage return outside of quotes: the next byte may belong to it.
    open_return: bool,
    /// The line ends within quotes of the line so far.
    embedded: u64,
}

impl CsvEnds {
    pub(super) fn new(options: &parse::Copy) -> CsvEnds {
        CsvEnds {
            endings: Endings::outside_quotes(),
            quote: options.quote,
            escape: Some(options.escape).filter(|escape| *escape != options.quote),
            in_quotes: false,
            after_escape: false,
            open_return: false,
            embedded: 0,
        }
    }

    pub(super) fn find(&mut self, data: &[u8]) -> Result<Found> {
        if let Some(&first) = data.first()
            && std::mem::take(&mut self.open_return)
        {
            return self.endings.at_return(0, 0, first);
        }
        for (at, &byte) in data.iter().enumerate() {
            let is_escape = Some(byte) == self.escape;
            // Of two escapes within quotes the second one is data.
            self.after_escape ^= self.in_quotes && is_escape;
            self.in_quotes ^= byte == self.quote && !self.after_escape;
            self.after_escape &= is_escape;
            match byte {
                b'\n' | b'\r' if self.in_quotes => {
                    // As in PostgreSQL, a line ending of two bytes counts once.
                    let counted = if self.endings.known() == Some(Ending::Newline) { b'\n' } else { b'\r' };
                    self.embedded += u64::from(byte == counted);
                }
                b'\n' => {
                    self.endings.agree(Ending::Newline)?;
                    self.after_escape = false;
                    return Ok(Found { record: at, next: Some(at + 1) });
                }
                b'\r' => {
                    self.after_escape = false;
                    if let Some(&behind) = data.get(at + 1) {
                        return self.endings.at_return(at, at + 1, behind);
                    }
                    self.open_return = true;
                    return Ok(Found { record: at, next: None });
                }
                _ => {}
            }
        }
        Ok(Found { record: data.len(), next: None })
    }

    /// The data have ended. Whether their last byte ended a line.
    pub(super) fn end(&mut self) -> Result<bool> {
        let is_end = std::mem::take(&mut self.open_return);
        if is_end {
            self.endings.agree(Ending::Return)?;
        }
        Ok(is_end)
    }

    /// The number of line ends within quotes of the line that was found.
    pub(super) fn take_embedded(&mut self) -> u64 {
        std::mem::take(&mut self.embedded)
    }
}

/// Splits a line into values, at most as many as given, and takes their quotes away.
pub(super) fn split(
    line: &[u8],
    options: &parse::Copy,
    forced: &[Forced],
    columns: usize,
    scratch: &mut Scratch,
) -> Result<()> {
    let parse::Copy { delimiter, quote, escape, null, .. } = options;
    scratch.bytes.clear();
    scratch.values.clear();
    let mut at = 0;
    loop {
        if scratch.values.len() == columns {
            return Err(extra_data());
        }
        let start = scratch.bytes.len();
        let (mut in_quotes, mut quoted) = (false, false);
        while let Some(&byte) = line.get(at) {
            at += 1;
            if !in_quotes {
                if byte == *delimiter {
                    at -= 1;
                    break;
                }
                if byte == *quote {
                    (in_quotes, quoted) = (true, true);
                    continue;
                }
            } else if byte == *escape
                && let Some(next) = line.get(at).filter(|next| [escape, quote].contains(next))
            {
                scratch.bytes.push(*next);
                at += 1;
                continue;
            } else if byte == *quote {
                in_quotes = false;
                continue;
            }
            scratch.bytes.push(byte);
        }
        if in_quotes {
            return Err(SqlError::new(SqlState::BadCopyFormat, "unterminated CSV quoted field"));
        }
        let forced = forced.get(scratch.values.len()).copied().unwrap_or_default();
        let is_null_string = &scratch.bytes[start..] == null.as_bytes();
        let is_null = is_null_string && if quoted { forced.null } else { !forced.not_null };
        scratch.values.push((!is_null).then_some(start..scratch.bytes.len()));
        if at >= line.len() {
            return Ok(());
        }
        at += 1;
    }
}

/// Appends a value, in quotes if it needs them. `alone` says that it is the only one of its line.
pub(super) fn write(value: &[u8], options: &parse::Copy, (forced, alone): (bool, bool), out: &mut Vec<u8>) {
    let parse::Copy { delimiter, quote, escape, null, .. } = options;
    let is_special = |byte: &u8| [delimiter, quote, &b'\n', &b'\r'].contains(&byte);
    let quoted = forced
        || value == null.as_bytes()
        || alone && value == super::END_MARKER
        || value.iter().any(is_special);
    if !quoted {
        return out.extend_from_slice(value);
    }
    out.push(*quote);
    for byte in value {
        if [quote, escape].contains(&byte) {
            out.push(*escape);
        }
        out.push(*byte);
    }
    out.push(*quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> parse::Copy {
        let text = "copy t to stdout (format csv)";
        match parse::parse(text, &Default::default()) {
            Ok(parse::Statement::Copy(copy)) => copy,
            other => panic!("{other:?}"),
        }
    }

    fn values(line: &str, options: &parse::Copy, forced: &[Forced]) -> Vec<Option<String>> {
        let mut scratch = Scratch::default();
        split(line.as_bytes(), options, forced, 100, &mut scratch).unwrap();
        let text = |value: std::ops::Range<usize>| String::from_utf8(scratch.bytes[value].to_vec()).unwrap();
        scratch.values.iter().map(|value| value.clone().map(text)).collect()
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_string())
    }

    #[test]
    fn quotes_are_taken_away_and_an_empty_value_is_null_without_them() {
        let options = options();
        let found = values("a,,\"\",\"b,\"\"c\"\"\nd\", x\"y\"z ", &options, &[]);
        assert_eq!(found, [some("a"), None, some(""), some("b,\"c\"\nd"), some(" xyz ")]);
        assert_eq!(values("", &options, &[]), [None]);
        let error = split(b"\"a", &options, &[], 1, &mut Scratch::default()).unwrap_err();
        assert_eq!(error.message, "unterminated CSV quoted field");
        assert_eq!(split(b",,", &options, &[], 2, &mut Scratch::default()), Err(extra_data()));
    }

    #[test]
    fn another_escape_stands_before_a_quote_and_before_itself_only() {
        let options = parse::Copy { escape: b'\\', null: "nil".to_string(), ..options() };
        let found = values(r#""a\"b","\\c\d",e\f,nil,"nil""#, &options, &[]);
        assert_eq!(found, [some("a\"b"), some("\\c\\d"), some("e\\f"), None, some("nil")]);
    }

    #[test]
    fn columns_may_take_quoted_nulls_and_no_nulls() {
        let null = Forced { null: true, ..Forced::default() };
        let not_null = Forced { not_null: true, ..Forced::default() };
        let options = options();
        assert_eq!(
            values("\"\",\"\",", &options, &[null, Forced::default(), not_null]),
            [None, some(""), some("")]
        );
    }
}
