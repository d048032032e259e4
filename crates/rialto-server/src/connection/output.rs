//! [`WireSink`]: a statement's rows as messages in the session's buffer.

use rialto::row::Value;
use rialto_sql::values::{binary, text};
use rialto_sql::{OutputColumn, Prepared, Result, RowSink, SqlError, SqlState};

use crate::protocol::backend;
use crate::protocol::frontend::Format;

/// Bytes of rows after which a long result is sent on its way, where that is allowed.
const SEND_BYTES: usize = 1 << 20;

/// What rows become.
pub(super) enum RowForm<'a> {
    /// DataRow messages, in the formats asked for.
    Rows(&'a OutputFormats),
    /// CopyData messages.
    CopyLines(&'a Prepared),
}

/// The formats of a result's columns.
#[derive(Debug, PartialEq)]
pub(super) enum OutputFormats {
    /// One for all.
    All(Format),
    /// One each.
    Each(Vec<Format>),
}

impl OutputFormats {
    pub(super) const TEXT: OutputFormats = OutputFormats::All(Format::Text);

    /// That of a column.
    #[inline]
    pub(super) fn of(&self, column: usize) -> Format {
        match self {
            OutputFormats::All(format) => *format,
            OutputFormats::Each(formats) => formats.get(column).copied().unwrap_or(Format::Text),
        }
    }
}

/// Sends what the buffer holds, waiting for the client.
pub(super) type Send<'a> = &'a mut dyn FnMut(&mut Vec<u8>) -> std::io::Result<()>;

/// Takes a statement's rows.
pub(super) struct WireSink<'a> {
    out: &'a mut Vec<u8>,
    columns: &'a [OutputColumn],
    form: RowForm<'a>,
    /// Where the statement's rows begin in the buffer.
    start: usize,
    /// How to send a long result before its end; `None` where nothing may wait.
    send: Option<Send<'a>>,
    sent: bool,
}

impl<'a> WireSink<'a> {
    pub(super) fn new(
        out: &'a mut Vec<u8>,
        columns: &'a [OutputColumn],
        form: RowForm<'a>,
        send: Option<Send<'a>>,
    ) -> WireSink<'a> {
        let start = out.len();
        WireSink { out, columns, form, start, send, sent: false }
    }
}

impl RowSink for WireSink<'_> {
    fn row(&mut self, values: &[Value]) -> Result<()> {
        match &self.form {
            RowForm::Rows(formats) => {
                let at = backend::begin_row(self.out, values.len());
                for (index, (value, column)) in values.iter().zip(self.columns).enumerate() {
                    backend::row_value(self.out, |out| match formats.of(index) {
                        Format::Text => text::write(value, column.sql_type, out),
                        Format::Binary => binary::write(value, column.sql_type, out),
                    });
                }
                backend::end_row(self.out, at);
            }
            RowForm::CopyLines(prepared) => backend::copy_data(self.out, |out| {
                rialto_sql::copy::write_line(values, self.columns, prepared, out);
            }),
        }
        if self.out.len() >= SEND_BYTES
            && let Some(send) = &mut self.send
        {
            send(self.out)
                .map_err(|error| SqlError::new(SqlState::IoError, format!("the client is gone: {error}")))?;
            self.out.clear();
            self.sent = true;
        }
        Ok(())
    }

    fn restart(&mut self) -> bool {
        if !self.sent {
            self.out.truncate(self.start);
        }
        !self.sent
    }
}
