//! COPY in its text format: lines to rows, and rows to lines.
//!
//! Invariant: input is read to its end marker or its end, whichever comes first. Lines are read where they lie; between
//! two pieces of input only an unfinished line is kept.

use std::sync::Arc;

use rialto::row::{ColumnType, RowEncoder, Schema, Value, ValueRef};
use rialto::{Table, Transaction};

use crate::error::{Result, SqlError, SqlState};
use crate::prepared::{CopyPlan, Kind, Prepared};
use crate::room::SMALL_BYTES;
use crate::values::{SqlType, binary, text};

/// The longest line that is accepted, in bytes. A row has at most 32,000 bytes, each of which is a few characters of
/// its line. So what a COPY keeps between two pieces of input is no more than a session may take beside all others.
const LINE_BYTES_MAX: usize = SMALL_BYTES;

/// A COPY from the client, in progress.
pub struct CopyIn {
    table: Table,
    schema: Arc<Schema>,
    /// For each of the data's values, the column.
    columns: Vec<usize>,
    delimiter: u8,
    null: Vec<u8>,
    /// The unfinished line so far, at most [`LINE_BYTES_MAX`].
    pending: Vec<u8>,
    ends: LineEnds,
    rows: u64,
    line: u64,
    ended: bool,
    scratch: Scratch,
}

/// Buffers that are used again for each line.
#[derive(Default)]
struct Scratch {
    /// The values' bytes, escapes undone, one after another.
    bytes: Vec<u8>,
    /// Where each value ends in `bytes`; `None` for null.
    ends: Vec<Option<usize>>,
    row: Vec<u8>,
}

impl CopyIn {
    /// Begins a COPY; `None` if the statement is no COPY FROM.
    pub fn new(prepared: &Prepared) -> Option<CopyIn> {
        let Kind::Copy(CopyPlan { table, schema, columns, options, .. }) = &prepared.kind else {
            return None;
        };
        Some(CopyIn {
            table: table.clone(),
            schema: schema.clone(),
            columns: columns.clone(),
            delimiter: options.delimiter,
            null: options.null.clone().into_bytes(),
            pending: Vec::new(),
            ends: LineEnds::default(),
            rows: 0,
            line: 0,
            ended: false,
            scratch: Scratch::default(),
        })
    }

    /// Locks the table for the rows that come.
    pub fn lock(&self, tx: &mut Transaction) -> Result<()> {
        Ok(tx.lock_for_writes(&self.table, &self.schema)?)
    }

    /// The number of the data's columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Inserts the rows of all lines that these data complete.
    pub fn run(&mut self, tx: &mut Transaction, mut data: &[u8]) -> Result<()> {
        while !self.ended {
            let found = self.ends.find(data).map_err(|error| self.at_next_line(error))?;
            let part = &data[..found.line];
            if self.pending.len() + part.len() > LINE_BYTES_MAX {
                let message = format!("COPY line {} is longer than {LINE_BYTES_MAX} bytes", self.line + 1);
                return Err(SqlError::new(SqlState::LimitExceeded, message));
            }
            let Some(next) = found.next else {
                self.pending.extend_from_slice(part);
                return Ok(());
            };
            if self.pending.is_empty() {
                self.one_line(tx, part)?;
            } else {
                let mut line = std::mem::take(&mut self.pending);
                line.extend_from_slice(part);
                self.one_line(tx, &line)?;
            }
            data = &data[next..];
        }
        Ok(())
    }

    /// Ends the COPY after these last data. What is left then is a last line without its end.
    pub fn finish(&mut self, tx: &mut Transaction, data: &[u8]) -> Result<u64> {
        self.run(tx, data)?;
        let is_whole = self.ends.end().map_err(|error| self.at_next_line(error))?;
        let line = std::mem::take(&mut self.pending);
        if is_whole || !line.is_empty() {
            self.one_line(tx, &line)?;
        }
        Ok(self.rows)
    }

    /// The error, with the number of its line.
    fn at_next_line(&self, error: SqlError) -> SqlError {
        let place = format!("COPY {}, line {}", self.schema.table(), self.line + 1);
        if error.detail.is_none() { error.detail(format!("{place}.")) } else { error }
    }

    fn one_line(&mut self, tx: &mut Transaction, line: &[u8]) -> Result<()> {
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        let read = split(line, self.delimiter, &self.null, self.columns.len(), &mut self.scratch);
        read.and_then(|()| encode(&self.schema, &self.columns, &mut self.scratch))
            .map_err(|error| self.at_next_line(error))?;
        tx.insert_encoded(&self.table, &self.scratch.row)?;
        self.line += 1;
        self.rows += 1;
        Ok(())
    }
}

/// How a line ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Newline,
    Return,
    ReturnNewline,
}

/// Finds the ends of lines as PostgreSQL does: all lines of a COPY end like the first one. A byte behind a backslash
/// ends no line.
#[derive(Default)]
struct LineEnds {
    ending: Option<Ending>,
    /// The last byte of the data before, if its meaning depends on the byte behind it: a backslash, or a carriage
    /// return, which may end a line alone or with a newline.
    open: Option<u8>,
}

/// The part of a line that data contain.
struct Found {
    /// Its bytes are up to here.
    line: usize,
    /// Where the next line begins; `None` if this one goes on in the next data.
    next: Option<usize>,
}

impl LineEnds {
    fn find(&mut self, data: &[u8]) -> Result<Found> {
        let mut at = 0;
        if let Some(&first) = data.first() {
            match self.open.take() {
                Some(b'\r') => return self.at_return(0, 0, first),
                Some(_) => at = 1,
                None => {}
            }
        }
        while let Some(found) = data[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r' | b'\\')) {
            at += found;
            match (data[at], data.get(at + 1)) {
                (b'\n', _) => {
                    self.agree(Ending::Newline)?;
                    return Ok(Found { line: at, next: Some(at + 1) });
                }
                (b'\r', Some(&behind)) => return self.at_return(at, at + 1, behind),
                // The byte behind a backslash is passed over.
                (_, Some(_)) => at += 2,
                (b'\r', None) => {
                    self.open = Some(b'\r');
                    return Ok(Found { line: at, next: None });
                }
                (backslash, None) => {
                    self.open = Some(backslash);
                    break;
                }
            }
        }
        Ok(Found { line: data.len(), next: None })
    }

    /// The data have ended. Whether their last byte ended a line.
    fn end(&mut self) -> Result<bool> {
        let is_end = self.open.take() == Some(b'\r');
        if is_end {
            self.agree(Ending::Return)?;
        }
        Ok(is_end)
    }

    /// A line that ends at a carriage return, with this byte behind it, at `next`.
    fn at_return(&mut self, line: usize, next: usize, behind: u8) -> Result<Found> {
        let with_newline = behind == b'\n' && self.ending != Some(Ending::Return);
        self.agree(if with_newline { Ending::ReturnNewline } else { Ending::Return })?;
        Ok(Found { line, next: Some(next + usize::from(with_newline)) })
    }

    fn agree(&mut self, ending: Ending) -> Result<()> {
        if *self.ending.get_or_insert(ending) == ending {
            return Ok(());
        }
        let (what, escape) = match ending {
            Ending::Newline => ("newline", "\\n"),
            Ending::Return | Ending::ReturnNewline => ("carriage return", "\\r"),
        };
        let message = format!("literal {what} found in data");
        Err(SqlError::new(SqlState::BadCopyFormat, message)
            .hint(format!("Use \"{escape}\" to represent {what}; all lines end as the first one does.")))
    }
}

/// Splits a line into values, at most as many as given, and undoes their escapes.
fn split(line: &[u8], delimiter: u8, null: &[u8], columns: usize, scratch: &mut Scratch) -> Result<()> {
    scratch.bytes.clear();
    scratch.ends.clear();
    let mut at = 0;
    loop {
        if scratch.ends.len() == columns {
            let message = "extra data after last expected column";
            return Err(SqlError::new(SqlState::BadCopyFormat, message));
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
            scratch.ends.push(None);
        } else {
            scratch.ends.push(Some(scratch.bytes.len()));
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

/// Encodes a line's values as a row.
fn encode(schema: &Schema, columns: &[usize], scratch: &mut Scratch) -> Result<()> {
    let Scratch { bytes, ends, row } = scratch;
    if ends.len() < columns.len() {
        let missing = &schema.columns()[columns[ends.len()]].name;
        let message = format!("missing data for column \"{missing}\"");
        return Err(SqlError::new(SqlState::BadCopyFormat, message));
    }
    row.clear();
    let mut encoder = RowEncoder::new(schema, row);
    let in_order = columns.len() == schema.columns().len()
        && columns.iter().enumerate().all(|(at, column)| at == *column);
    let mut start = 0;
    if in_order {
        for (end, column) in ends.iter().zip(schema.columns()) {
            match end {
                None => encoder.put(ValueRef::Null)?,
                Some(end) => {
                    put(&mut encoder, column.ty, &bytes[start..*end])?;
                    start = *end;
                }
            }
        }
    } else {
        let mut parts: Vec<Option<&[u8]>> = vec![None; schema.columns().len()];
        for (end, column) in ends.iter().zip(columns) {
            if let Some(end) = end {
                parts[*column] = Some(&bytes[start..*end]);
                start = *end;
            }
        }
        for (part, column) in parts.iter().zip(schema.columns()) {
            match part {
                None => encoder.put(ValueRef::Null)?,
                Some(part) => put(&mut encoder, column.ty, part)?,
            }
        }
    }
    encoder.finish()?;
    Ok(())
}

fn put(encoder: &mut RowEncoder<'_>, column: ColumnType, bytes: &[u8]) -> Result<()> {
    let text = binary::utf8(bytes)?;
    match column {
        ColumnType::Text | ColumnType::Char(_) => {
            if bytes.contains(&0) {
                let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
                return Err(SqlError::new(SqlState::BadEncoding, message));
            }
            encoder.put(ValueRef::Text(text))?;
        }
        ColumnType::Decimal { .. } => {
            let sql_type = SqlType::of_column(column);
            let value =
                crate::expr::cast::cast(text::parse(sql_type, text)?, SqlType::Decimal(None), sql_type)?;
            encoder.put(value.borrow())?;
        }
        other => encoder.put(text::parse(SqlType::of_column(other), text)?.borrow())?,
    }
    Ok(())
}

/// Appends a row of a COPY to the client as a line.
pub fn write_line(values: &[Value], plan: &CopyPlan, out: &mut Vec<u8>) {
    let mut plain = Vec::new();
    for (index, (value, column)) in values.iter().zip(&plan.output).enumerate() {
        if index > 0 {
            out.push(plan.options.delimiter);
        }
        plain.clear();
        match text::write(value, column.sql_type, &mut plain) {
            None => out.extend_from_slice(plan.options.null.as_bytes()),
            Some(()) => {
                for &byte in &plain {
                    escape(byte, plan.options.delimiter, out);
                }
            }
        }
    }
    out.push(b'\n');
}

/// Appends a byte of a value, with a backslash where the line format needs one.
fn escape(byte: u8, delimiter: u8, out: &mut Vec<u8>) {
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
    use rialto::io::MemoryDisk;
    use rialto::{Database, Options};

    use super::*;
    use crate::Session;
    use crate::run::Collected;

    fn values(line: &str) -> Vec<Option<String>> {
        let mut scratch = Scratch::default();
        split(line.as_bytes(), b'\t', b"\\N", 100, &mut scratch).unwrap();
        let mut start = 0;
        let take = |end: &Option<usize>| {
            end.map(|end| {
                let value = String::from_utf8(scratch.bytes[start..end].to_vec()).unwrap();
                start = end;
                value
            })
        };
        scratch.ends.iter().map(take).collect()
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

    /// The bytes that a COPY keeps after these data, or the error that it ends with.
    fn kept(data: &[&[u8]]) -> Result<usize, &'static str> {
        let database =
            Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens");
        let mut session = Session::new(database, "ann", "bank");
        let prepared = session.prepare("create table t (a int, b text)", &[]).unwrap();
        session.execute(&prepared, &[], &mut Collected::default()).unwrap();
        let prepared = session.prepare("copy t from stdin", &[]).unwrap();
        let mut copy = session.begin_copy(&prepared).unwrap();
        for data in data {
            session.run_copy(&mut copy, data, false).map_err(|error| error.sqlstate.code())?;
        }
        let Scratch { bytes, ends, row } = &copy.scratch;
        let scratch = bytes.capacity() + row.capacity() + ends.capacity() * size_of::<Option<usize>>();
        Ok(copy.pending.capacity() + scratch)
    }

    /// Between two pieces of its data a COPY keeps the unfinished line, not the data.
    #[test]
    fn what_is_kept_is_a_line() {
        let lines = "1\tx\n".repeat(1 << 18);
        let lines = lines.as_bytes();
        let little = 1 << 10;
        assert!(kept(&[lines]).unwrap() < little);
        assert!(kept(&[lines, b"2\t"]).unwrap() < little);
        assert!(kept(&[b"\\.\n", lines]).unwrap() < little);
        // The longest row with each byte as an escape, and then the longest line.
        let row = format!("1\t{}\n", "\\x41".repeat(31_900));
        assert!(kept(&[row.as_bytes()]).unwrap() < 128 << 10);
        let long = vec![b'x'; SMALL_BYTES + 1];
        let pieces: Vec<&[u8]> = long[1..].chunks(1_000).collect();
        assert!(kept(&pieces).unwrap() <= 2 * SMALL_BYTES);
        assert_eq!(kept(&[&long]), Err("54000"));
        let pieces: Vec<&[u8]> = long.chunks(1_000).collect();
        assert_eq!(kept(&pieces), Err("54000"));
    }

    #[test]
    fn values_beyond_the_columns_take_nothing() {
        let mut scratch = Scratch::default();
        let error = split(&[b'\t'; 1 << 20], b'\t', b"\\N", 2, &mut scratch).unwrap_err();
        assert_eq!(error.message, "extra data after last expected column");
        assert!(scratch.ends.capacity() <= 4);
    }
}
