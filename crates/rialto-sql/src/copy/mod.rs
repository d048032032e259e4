//! COPY: a client's data to rows, and rows to data, in the text, CSV and binary formats.
//!
//! Invariant: input is read to its end marker or its end, whichever comes first. Records (lines, or tuples in binary
//! form) are read where they lie; between two pieces of input only an unfinished record is kept.

mod binary;
mod csv;
mod lines;
mod text;
mod write;

use std::ops::Range;
use std::sync::Arc;

use rialto::row::{ColumnType, RowEncoder, Schema, ValueRef};
use rialto::{Error, Residence, Table, Transaction};

pub use write::CopyOut;

use crate::error::{Result, SqlError, SqlState};
use crate::expr::cast::cast;
use crate::parse::{self, CopyFormat, CopyHeader};
use crate::partitions::{Header, NotInserted, Over, Spread};
use crate::prepared::{CopyPlan, Kind, Prepared};
use crate::room::SMALL_BYTES;
use crate::values::{self, SqlType};
use lines::Found;

/// The longest record that is accepted, in bytes. A row has at most 32,000 bytes, each of which is a few characters of
/// its line. So what a COPY keeps between two pieces of input is no more than a session may take beside all others, and a batch of rows.
const RECORD_BYTES_MAX: usize = SMALL_BYTES;

/// A batch is inserted once it has so many rows, or bytes.
const BATCH_ROWS: usize = 64;
const BATCH_BYTES: usize = 64 << 10;

/// A line that ends the data before their end.
const END_MARKER: &[u8] = b"\\.";

/// The most values of a header line that are read.
const HEADER_VALUES_MAX: usize = rialto::row::COLUMNS_MAX + 1;

/// How many characters of a value or line an error's context shows.
const SHOWN_MAX: usize = 100;

/// Options of one column of a CSV.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forced {
    /// FORCE_QUOTE.
    pub quote: bool,
    /// FORCE_NULL.
    pub null: bool,
    /// FORCE_NOT_NULL.
    pub not_null: bool,
}

/// Where records end.
enum Records {
    Text(text::LineEnds),
    Csv(csv::CsvEnds),
    Binary(binary::Tuples),
}

/// A COPY from the client, in progress.
pub struct CopyIn {
    table: Table,
    schema: Arc<Schema>,
    /// For each of the data's values, the column.
    columns: Vec<usize>,
    options: parse::Copy,
    /// For each of a CSV's values, its options.
    forced: Vec<Forced>,
    records: Records,
    /// The unfinished record so far, at most [`RECORD_BYTES_MAX`].
    pending: Vec<u8>,
    /// Whether the next line is the header.
    header: bool,
    rows: u64,
    /// Lines, or tuples, so far.
    line: u64,
    ended: bool,
    scratch: Scratch,
    /// For a disk-resident table: rows that are still to be inserted.
    batch: Option<Batch>,
    /// Over partitions: rows that are still to be sent to theirs, and the line of each.
    spread: Option<Box<(Spread, Vec<u64>)>>,
}

/// Where the rows of a COPY go.
pub(crate) enum CopyTarget<'a, 'tx> {
    /// Into the table, in this transaction.
    Transaction(&'a mut Transaction<'tx>),
    /// To the partitions in which they are to lie.
    Partitions(&'a mut Over, &'a Header),
}

/// Rows that are inserted together, so that their pages are read ahead together.
#[derive(Default)]
struct Batch {
    /// The rows, encoded, one after another.
    bytes: Vec<u8>,
    /// For each row the end of its bytes, and its line.
    ends: Vec<(usize, u64)>,
}

/// Buffers that are used again for each record.
#[derive(Default)]
struct Scratch {
    /// The bytes of a line's values, escapes and quotes undone, one after another.
    bytes: Vec<u8>,
    /// Where each value lies in `bytes`, or in a tuple; `None` for null.
    values: Vec<Option<Range<usize>>>,
    row: Vec<u8>,
}

/// An error, and the data's value in which it is.
struct Wrong {
    error: SqlError,
    value: Option<usize>,
}

impl From<SqlError> for Box<Wrong> {
    fn from(error: SqlError) -> Box<Wrong> {
        Box::new(Wrong { error, value: None })
    }
}

impl CopyIn {
    /// Begins a COPY; `None` if the statement is no COPY FROM.
    pub fn new(prepared: &Prepared) -> Option<CopyIn> {
        let Kind::Copy(CopyPlan { table, schema, columns, options, forced, .. }) = &prepared.kind else {
            return None;
        };
        Some(CopyIn {
            table: table.clone(),
            schema: schema.clone(),
            columns: columns.clone(),
            records: match options.format {
                CopyFormat::Text => Records::Text(text::LineEnds::default()),
                CopyFormat::Csv => Records::Csv(csv::CsvEnds::new(options)),
                CopyFormat::Binary => Records::Binary(binary::Tuples::new(columns.len())),
            },
            header: options.header != CopyHeader::Absent,
            options: options.clone(),
            forced: forced.clone(),
            pending: Vec::new(),
            rows: 0,
            line: 0,
            ended: false,
            scratch: Scratch::default(),
            batch: (table.residence() == Residence::Disk).then(Batch::default),
            spread: None,
        })
    }

    /// The rows go to their partitions.
    pub(crate) fn over(mut self, spread: Spread) -> CopyIn {
        self.batch = None;
        self.spread = Some(Box::new((spread, Vec::new())));
        self
    }

    /// Locks the table for the rows that come.
    pub fn lock(&self, tx: &mut Transaction) -> Result<()> {
        Ok(tx.lock_for_writes(&self.table, &self.schema)?)
    }

    /// The number of the data's columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Whether the data are in binary form.
    pub fn is_binary(&self) -> bool {
        self.options.format == CopyFormat::Binary
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Inserts the rows of all records that these data complete. Of a disk-resident table some may wait for more.
    pub(crate) fn run(&mut self, to: &mut CopyTarget<'_, '_>, data: &[u8]) -> Result<()> {
        let ran = self.records_of(to, data);
        self.behind_earlier_lines(to, ran)
    }

    /// An error is told behind those of the rows that wait: their lines come before it.
    fn behind_earlier_lines<T>(&mut self, to: &mut CopyTarget<'_, '_>, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.insert_batch(to, false)?;
        }
        outcome
    }

    fn records_of(&mut self, to: &mut CopyTarget<'_, '_>, mut data: &[u8]) -> Result<()> {
        while !self.ended {
            let found = self.find(data)?;
            let part = &data[..found.record];
            if self.pending.len() + part.len() > RECORD_BYTES_MAX {
                let message = format!("COPY line {} is longer than {RECORD_BYTES_MAX} bytes", self.line + 1);
                return Err(SqlError::new(SqlState::LimitExceeded, message));
            }
            let Some(next) = found.next else {
                self.pending.extend_from_slice(part);
                return Ok(());
            };
            if self.pending.is_empty() {
                self.one_record(to, part)?;
            } else {
                let mut record = std::mem::take(&mut self.pending);
                record.extend_from_slice(part);
                self.one_record(to, &record)?;
            }
            data = &data[next..];
        }
        if self.is_binary() && !data.is_empty() {
            let error = bad_format("received copy data after EOF marker");
            return Err(self.met_in(self.line, error, None));
        }
        Ok(())
    }

    /// Ends the COPY after these last data. What is left then is a last line without its end.
    pub(crate) fn finish(&mut self, to: &mut CopyTarget<'_, '_>, data: &[u8]) -> Result<u64> {
        self.run(to, data)?;
        let ended = self.last_record(to);
        self.behind_earlier_lines(to, ended)?;
        self.insert_batch(to, true)?;
        Ok(self.rows)
    }

    fn last_record(&mut self, to: &mut CopyTarget<'_, '_>) -> Result<()> {
        let is_whole = match &mut self.records {
            Records::Text(ends) => ends.end(),
            Records::Csv(ends) => ends.end(),
            Records::Binary(_) if self.ended => Ok(false),
            Records::Binary(tuples) => tuples.end().map(|()| false),
        };
        let is_whole = is_whole.map_err(|error| self.met_in_next(error))?;
        let line = std::mem::take(&mut self.pending);
        let lacks_header = self.header && self.options.header == CopyHeader::Match;
        if is_whole || !line.is_empty() || lacks_header {
            self.one_record(to, &line)?;
        }
        Ok(())
    }

    fn find(&mut self, data: &[u8]) -> Result<Found> {
        let found = match &mut self.records {
            Records::Text(ends) => ends.find(data),
            Records::Csv(ends) => ends.find(data),
            Records::Binary(tuples) => tuples.find(data),
        };
        found.map_err(|error| self.met_in_next(error))
    }

    /// The error, with the number of the next line. The header of the binary format is no line.
    fn met_in_next(&self, error: SqlError) -> SqlError {
        match &self.records {
            Records::Binary(tuples) if tuples.is_in_header() => error,
            _ => self.met_in(self.line + 1, error, None),
        }
    }

    /// The error, with the number of its line, and what PostgreSQL shows behind it.
    fn met_in(&self, line: u64, error: SqlError, more: Option<String>) -> SqlError {
        let more = more.unwrap_or_default();
        error.context(|| format!("COPY {}, line {line}{more}", self.schema.table()))
    }

    fn one_record(&mut self, to: &mut CopyTarget<'_, '_>, record: &[u8]) -> Result<()> {
        match &mut self.records {
            Records::Binary(tuples) => {
                if tuples.take_header() {
                    return Ok(());
                }
            }
            Records::Text(_) | Records::Csv(_) if record == END_MARKER => {
                self.ended = true;
                return Ok(());
            }
            Records::Csv(ends) => self.line += ends.take_embedded(),
            Records::Text(_) => {}
        }
        self.line += 1;
        let is_row = match std::mem::take(&mut self.header) {
            true => self.header_line(record).map(|()| false).map_err(Box::from),
            false => self.row(record),
        };
        match is_row {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(wrong) => {
                let Wrong { error, value } = *wrong;
                let more = self.shown(record, value);
                return Err(self.met_in(self.line, error, more));
            }
        }
        let Some(batch) = &mut self.batch else {
            let row = std::mem::take(&mut self.scratch.row);
            self.insert(to, &row, self.line)?;
            self.scratch.row = row;
            return Ok(());
        };
        batch.bytes.extend_from_slice(&self.scratch.row);
        batch.ends.push((batch.bytes.len(), self.line));
        match batch.ends.len() < BATCH_ROWS && batch.bytes.len() < BATCH_BYTES {
            true => Ok(()),
            false => self.insert_batch(to, false),
        }
    }

    fn insert(&mut self, to: &mut CopyTarget<'_, '_>, row: &[u8], line: u64) -> Result<()> {
        match (&mut *to, &mut self.spread) {
            (CopyTarget::Transaction(tx), _) => {
                tx.insert_encoded(&self.table, row).map_err(|error| self.met_in(line, error.into(), None))?;
            }
            (CopyTarget::Partitions(..), Some(waiting)) => {
                let (spread, lines) = &mut **waiting;
                spread.push_encoded(row);
                lines.push(line);
                if spread.is_full() {
                    self.send(to, false)?;
                }
            }
            (CopyTarget::Partitions(..), None) => {
                return Err(SqlError::new(SqlState::Internal, "a COPY over partitions was begun in one"));
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Sends the rows that wait to their partitions.
    fn send(&mut self, to: &mut CopyTarget<'_, '_>, is_end: bool) -> Result<()> {
        let (CopyTarget::Partitions(over, header), Some(waiting)) = (to, &mut self.spread) else {
            return Ok(());
        };
        let (spread, lines) = &mut **waiting;
        let sent = spread.send(over, header, is_end);
        let lines = std::mem::take(lines);
        sent.map_err(|NotInserted { error, row }| match row.and_then(|row| lines.get(row)) {
            Some(line) => self.met_in(*line, *error, None),
            None => *error,
        })
    }

    /// Inserts the rows of the batch, whose pages it reads ahead; over partitions, sends those that wait.
    fn insert_batch(&mut self, to: &mut CopyTarget<'_, '_>, is_end: bool) -> Result<()> {
        self.send(to, is_end)?;
        let CopyTarget::Transaction(tx) = to else { return Ok(()) };
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        tx.fetch_ahead(&[&self.table], |tx| {
            batch.rows().for_each(|(row, _)| drop(tx.insert_encoded(&self.table, row)));
        });
        let inserted = batch.rows().try_for_each(|(row, line)| self.insert(to, row, line));
        if let CopyTarget::Transaction(tx) = to {
            tx.end_fetched();
        }
        inserted?;
        batch.bytes.clear();
        batch.ends.clear();
        self.batch = Some(batch);
        Ok(())
    }

    /// What an error's context shows of the data: the column and its value, or the line.
    fn shown(&self, record: &[u8], value: Option<usize>) -> Option<String> {
        let Some(value) = value else {
            return (!self.is_binary()).then(|| format!(": \"{}\"", shortened(record)));
        };
        let column = &self.schema.columns()[self.columns[value]].name;
        match &self.scratch.values[value] {
            _ if self.is_binary() => Some(format!(", column {column}")),
            None => Some(format!(", column {column}: null input")),
            Some(place) => {
                let text = shortened(&self.scratch.bytes[place.clone()]);
                Some(format!(", column {column}: \"{text}\""))
            }
        }
    }

    /// Splits a line or a tuple into values. `false` at the end marker of the binary format.
    fn split(&mut self, record: &[u8], values: usize) -> Result<bool> {
        let CopyIn { options, forced, scratch, .. } = self;
        match options.format {
            CopyFormat::Text => {
                text::split(record, options.delimiter, options.null.as_bytes(), values, scratch)?
            }
            CopyFormat::Csv => csv::split(record, options, forced, values, scratch)?,
            CopyFormat::Binary => return binary::split(record, scratch),
        }
        Ok(true)
    }

    /// The header of lines: passed over, or compared with the columns' names.
    fn header_line(&mut self, record: &[u8]) -> Result<()> {
        if self.options.header != CopyHeader::Match {
            return Ok(());
        }
        self.split(record, HEADER_VALUES_MAX)?;
        let (found, expected) = (self.scratch.values.len(), self.columns.len());
        if found != expected {
            return Err(bad_format(&format!(
                "wrong number of fields in header line: got {found}, expected {expected}"
            )));
        }
        for (index, (value, column)) in self.scratch.values.iter().zip(&self.columns).enumerate() {
            let expected = &self.schema.columns()[*column].name;
            let found = match value {
                None => format!("null value (\"{}\")", self.options.null),
                Some(place) if self.scratch.bytes[place.clone()] == *expected.as_bytes() => continue,
                Some(place) => format!("\"{}\"", shortened(&self.scratch.bytes[place.clone()])),
            };
            let field = index + 1;
            return Err(bad_format(&format!(
                "column name mismatch in header line field {field}: got {found}, expected \"{expected}\""
            )));
        }
        Ok(())
    }

    /// Encodes the row of a record. `false` at the end marker of the binary format.
    fn row(&mut self, record: &[u8]) -> Result<bool, Box<Wrong>> {
        if !self.split(record, self.columns.len())? {
            self.ended = true;
            return Ok(false);
        }
        let CopyIn { schema, columns, options, scratch: Scratch { bytes, values, row }, .. } = self;
        if values.len() < columns.len() {
            let missing = &schema.columns()[columns[values.len()]].name;
            return Err(bad_format(&format!("missing data for column \"{missing}\"")).into());
        }
        row.clear();
        let (data, put): (&[u8], Put) = match options.format {
            CopyFormat::Binary => (record, put_binary),
            CopyFormat::Text | CopyFormat::Csv => (bytes, put_text),
        };
        let mut encoder = RowEncoder::new(schema, row);
        let in_order = columns.len() == schema.columns().len()
            && columns.iter().enumerate().all(|(at, column)| at == *column);
        let places: &[usize] = if in_order { &columns[..] } else { &places(schema, columns) };
        for (column, &at) in schema.columns().iter().zip(places) {
            let value = values.get(at).and_then(Option::as_ref);
            let done = match value {
                None => encoder.put(ValueRef::Null).map_err(SqlError::from),
                Some(place) => put(&mut encoder, column.ty, &data[place.clone()]),
            };
            done.map_err(|error| {
                // A null is no error of its own value.
                let is_null = matches!(error.cause.as_deref(), Some(Error::NotNull { .. }));
                Box::new(Wrong { error, value: Some(at).filter(|_| !is_null) })
            })?;
        }
        encoder.finish().map_err(SqlError::from)?;
        Ok(true)
    }
}

impl Batch {
    /// The rows, and their lines.
    fn rows(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut from = 0;
        self.ends.iter().map(move |&(end, line)| (&self.bytes[std::mem::replace(&mut from, end)..end], line))
    }
}

/// For each column of the table its place among the data's columns, which is beyond them for a column that is not there.
fn places(schema: &Schema, columns: &[usize]) -> Vec<usize> {
    let mut places = vec![usize::MAX; schema.columns().len()];
    for (place, column) in columns.iter().enumerate() {
        places[*column] = place;
    }
    places
}

/// Puts a value of the data into a row.
type Put = fn(&mut RowEncoder<'_>, ColumnType, &[u8]) -> Result<()>;

fn put_text(encoder: &mut RowEncoder<'_>, column: ColumnType, bytes: &[u8]) -> Result<()> {
    if let ColumnType::Text | ColumnType::Char(_) = column {
        return put_string(encoder, bytes);
    }
    let text = values::binary::utf8(bytes)?;
    let sql_type = SqlType::of_column(column);
    put_value(encoder, sql_type, values::text::parse(sql_type, text)?)
}

fn put_binary(encoder: &mut RowEncoder<'_>, column: ColumnType, bytes: &[u8]) -> Result<()> {
    if let ColumnType::Text | ColumnType::Char(_) = column {
        return put_string(encoder, bytes);
    }
    let sql_type = SqlType::of_column(column);
    put_value(encoder, sql_type, values::binary::parse(sql_type, bytes)?)
}

fn put_value(encoder: &mut RowEncoder<'_>, sql_type: SqlType, value: rialto::row::Value) -> Result<()> {
    let value = match sql_type {
        SqlType::Decimal(_) => cast(value, SqlType::Decimal(None), sql_type)?,
        _ => value,
    };
    Ok(encoder.put(value.borrow())?)
}

fn put_string(encoder: &mut RowEncoder<'_>, bytes: &[u8]) -> Result<()> {
    let text = values::binary::utf8(bytes)?;
    if bytes.contains(&0) {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(SqlError::new(SqlState::BadEncoding, message));
    }
    Ok(encoder.put(ValueRef::Text(text))?)
}

/// The beginning of a text for an error's context.
fn shortened(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_MAX {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    // No character is cut.
    let end = (0..=SHOWN_MAX).rev().find(|end| bytes[*end] & 0xc0 != 0x80).unwrap_or(SHOWN_MAX);
    format!("{}...", String::from_utf8_lossy(&bytes[..end]))
}

fn bad_format(message: &str) -> SqlError {
    SqlError::new(SqlState::BadCopyFormat, message)
}

fn extra_data() -> SqlError {
    bad_format("extra data after last expected column")
}

#[cfg(test)]
mod tests {
    use rialto::io::MemoryDisk;
    use rialto::{Database, Options};

    use super::*;
    use crate::Session;
    use crate::run::Collected;

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
        let Scratch { bytes, values, row } = &copy.scratch;
        let scratch =
            bytes.capacity() + row.capacity() + values.capacity() * size_of::<Option<Range<usize>>>();
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
}
