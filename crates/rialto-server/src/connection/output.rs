//! [`WireSink`]: a statement's rows as messages in the session's buffer, which stays bounded.

use rialto::row::Value;
use rialto_sql::copy::CopyOut;
use rialto_sql::parse::CopyDirection;
use rialto_sql::prepared::Kind;
use rialto_sql::values::{binary, text};
use rialto_sql::{Prepared, Result, RowSink, Severity, SqlError, SqlState};

use super::portal::KEPT_BYTES_MAX;
use crate::protocol::backend;
use crate::protocol::frontend::Format;

/// The number of bytes in the buffer from which it is sent although the outcome is not known.
pub(super) const SEND_BYTES: usize = 1 << 20;

/// What the client is told of a result, and in which form. (Rows of a COPY are lines in any case.)
#[derive(Clone, Copy)]
pub(super) struct RowForm<'a> {
    /// The formats of the columns.
    pub(super) formats: &'a OutputFormats,
    /// Whether the client is told of the columns before the rows. If not, a Describe has told it.
    pub(super) described: bool,
}

impl RowForm<'_> {
    /// The form of a simple query.
    pub(super) const SIMPLE: RowForm<'static> = RowForm { formats: &OutputFormats::TEXT, described: true };
}

/// The formats of a result's columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OutputFormats {
    /// One format for all columns.
    All(Format),
    /// One format for each column.
    Each(std::rc::Rc<[Format]>),
}

impl OutputFormats {
    pub(super) const TEXT: OutputFormats = OutputFormats::All(Format::Text);

    /// The format of a column.
    #[inline]
    pub(super) fn of(&self, column: usize) -> Format {
        match self {
            OutputFormats::All(format) => *format,
            OutputFormats::Each(formats) => formats.get(column).copied().unwrap_or(Format::Text),
        }
    }
}

/// Sends the buffer before the outcome is known, and waits for the client.
pub(super) type SendEarly<'a> = &'a mut dyn FnMut(&mut Vec<u8>) -> Result<()>;

/// Takes the rows beyond a portal's row limit.
pub(super) struct Rest<'a> {
    /// The number of rows up to the limit that are still to come.
    pub(super) before: u64,
    /// The messages of the rows behind the limit.
    pub(super) kept: &'a mut Vec<u8>,
    /// The most bytes of these messages.
    pub(super) bytes_max: usize,
}

/// Takes a statement's rows.
pub(super) struct WireSink<'a> {
    out: &'a mut Vec<u8>,
    form: RowForm<'a>,
    /// The beginning of the statement's answer in the buffer.
    start: usize,
    send: SendEarly<'a>,
    sent: bool,
    /// `None` without a row limit.
    rest: Option<Rest<'a>>,
    limit: u64,
    /// The data of a COPY so far.
    copy: CopyOut,
}

impl<'a> WireSink<'a> {
    pub(super) fn new(
        out: &'a mut Vec<u8>,
        form: RowForm<'a>,
        send: SendEarly<'a>,
        rest: Option<Rest<'a>>,
    ) -> WireSink<'a> {
        let start = out.len();
        let limit = rest.as_ref().map_or(0, |rest| rest.before);
        WireSink { out, form, start, send, sent: false, rest, limit, copy: CopyOut::default() }
    }
}

impl WireSink<'_> {
    /// How many more rows the limit allows; 0 without a limit.
    pub(super) fn before(&self) -> u64 {
        self.rest.as_ref().map_or(0, |rest| rest.before)
    }
}

/// Appends one row of a plan.
#[inline]
fn write_row(
    out: &mut Vec<u8>,
    plan: &Prepared,
    formats: &OutputFormats,
    copy: &mut CopyOut,
    values: &[Value],
) -> Result<()> {
    let columns = plan.row_columns();
    if values.len() != columns.len() {
        return Err(not_its_columns(values.len(), columns.len()));
    }
    if let Kind::Copy(plan) = &plan.kind {
        backend::copy_data(out, |out| copy.row(values, plan, out));
        return Ok(());
    }
    let at = backend::begin_row(out, values.len());
    for (index, (value, column)) in values.iter().zip(columns).enumerate() {
        backend::row_value(out, |out| match formats.of(index) {
            Format::Text => text::write(value, column.sql_type, out),
            Format::Binary => binary::write(value, column.sql_type, out),
        });
    }
    backend::end_row(out, at);
    Ok(())
}

#[cold]
fn not_its_columns(values: usize, columns: usize) -> SqlError {
    let message = format!("a row of {values} values for {columns} columns");
    SqlError::new(SqlState::Internal, message)
}

impl RowSink for WireSink<'_> {
    fn begin(&mut self, plan: &Prepared) -> Result<()> {
        // A plan that was given up has at most announced its columns.
        self.out.truncate(self.start);
        match plan.copy() {
            Some((CopyDirection::ToStdout, columns)) => {
                let format = if plan.copies_binary() { Format::Binary } else { Format::Text };
                backend::copy_response(self.out, b'H', columns, format);
                self.copy = CopyOut::default();
                if let Kind::Copy(copy) = &plan.kind
                    && let Some(line) = CopyOut::header(copy)
                {
                    backend::copy_data(self.out, |out| out.extend_from_slice(&line));
                }
            }
            None if self.form.described && !plan.columns.is_empty() => {
                backend::row_description(self.out, &plan.columns, |index| self.form.formats.of(index));
            }
            _ => {}
        }
        Ok(())
    }

    fn tells_columns(&self) -> bool {
        self.form.described
    }

    fn row(&mut self, plan: &Prepared, values: &[Value]) -> Result<()> {
        match &mut self.rest {
            None => {}
            Some(rest) if rest.before > 0 => rest.before -= 1,
            Some(rest) => {
                write_row(rest.kept, plan, self.form.formats, &mut self.copy, values)?;
                if rest.kept.len() > rest.bytes_max {
                    return Err(too_much_kept());
                }
                return Ok(());
            }
        }
        write_row(self.out, plan, self.form.formats, &mut self.copy, values)?;
        if self.out.len() >= SEND_BYTES {
            (self.send)(self.out)?;
            self.sent = true;
        }
        Ok(())
    }

    fn tell(&mut self, notice: &SqlError) -> Result<()> {
        backend::error(self.out, Severity::Notice, notice);
        (self.send)(self.out)?;
        self.sent = true;
        Ok(())
    }

    fn end(&mut self, plan: &Prepared) -> Result<()> {
        if let Kind::Copy(copy) = &plan.kind
            && let Some(last) = self.copy.end(copy)
        {
            backend::copy_data(self.out, |out| out.extend_from_slice(&last));
        }
        Ok(())
    }

    fn restart(&mut self) -> bool {
        if !self.sent {
            self.out.truncate(self.start);
            if let Some(rest) = &mut self.rest {
                rest.kept.clear();
                rest.before = self.limit;
            }
        }
        !self.sent
    }
}

#[cold]
fn too_much_kept() -> SqlError {
    no_room()
        .hint("Execute without a row limit, which keeps no rows, ask for fewer rows, or close other portals.")
}

/// The error when portals would keep more than their bound.
pub(super) fn no_room() -> SqlError {
    let message = format!(
        "the portals of this session would keep more than {} MiB of rows and arguments",
        KEPT_BYTES_MAX >> 20
    );
    SqlError::new(SqlState::OutOfMemory, message)
}
