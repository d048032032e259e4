//! The messages to clients: each function appends one message to a buffer.

use rialto_sql::values::text;
use rialto_sql::{OutputColumn, Severity, SqlError, Tag};

use super::frontend::Format;

/// The state that ReadyForQuery reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// No transaction is open.
    Idle,
    /// Inside a transaction block.
    Block,
    /// Inside a transaction block that has failed.
    Failed,
}

/// Starts a message and returns where its length goes.
fn open(out: &mut Vec<u8>, tag: u8) -> usize {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    at
}

/// Ends a message: writes its length.
fn close(out: &mut [u8], at: usize) {
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &str) {
    // A zero byte would end the string early.
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    out[start..].iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    out.push(0);
}

/// AuthenticationOk.
pub fn authentication_ok(out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'R', 0, 0, 0, 8, 0, 0, 0, 0]);
}

/// NegotiateProtocolVersion: only 3.0 is spoken, and these options are unknown.
pub fn negotiate_version(out: &mut Vec<u8>, unknown: &[&str]) {
    let at = open(out, b'v');
    out.extend_from_slice(&0u32.to_be_bytes());
    out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
    for name in unknown {
        string(out, name);
    }
    close(out, at);
}

/// ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    let at = open(out, b'S');
    string(out, name);
    string(out, value);
    close(out, at);
}

/// BackendKeyData.
pub fn key_data(out: &mut Vec<u8>, process: u32, secret: u32) {
    let at = open(out, b'K');
    out.extend_from_slice(&process.to_be_bytes());
    out.extend_from_slice(&secret.to_be_bytes());
    close(out, at);
}

/// ReadyForQuery.
pub fn ready(out: &mut Vec<u8>, status: Status) {
    let status = match status {
        Status::Idle => b'I',
        Status::Block => b'T',
        Status::Failed => b'E',
    };
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
}

/// CommandComplete.
pub fn command_complete(out: &mut Vec<u8>, tag: Tag) {
    // The most frequent ones, prepared.
    match tag {
        Tag::Rows("UPDATE", 1) => return out.extend_from_slice(b"C\0\0\0\x0dUPDATE 1\0"),
        Tag::Rows("SELECT", 1) => return out.extend_from_slice(b"C\0\0\0\x0dSELECT 1\0"),
        Tag::Rows("INSERT 0", 1) => return out.extend_from_slice(b"C\0\0\0\x0fINSERT 0 1\0"),
        _ => {}
    }
    let at = open(out, b'C');
    match tag {
        Tag::Word(word) => out.extend_from_slice(word.as_bytes()),
        Tag::Rows(word, rows) => {
            out.extend_from_slice(word.as_bytes());
            out.push(b' ');
            text::write_integer(rows as i64, out);
        }
    }
    out.push(0);
    close(out, at);
}

/// One of the messages without a body: ParseComplete `1`, BindComplete `2`, CloseComplete `3`, NoData `n`,
/// EmptyQueryResponse `I`, PortalSuspended `s`, CopyDone `c`.
pub fn bare(out: &mut Vec<u8>, tag: u8) {
    out.extend_from_slice(&[tag, 0, 0, 0, 4]);
}

/// ParameterDescription, from type numbers.
pub fn parameter_description(out: &mut Vec<u8>, types: impl ExactSizeIterator<Item = u32>) {
    let at = open(out, b't');
    out.extend_from_slice(&(types.len() as u16).to_be_bytes());
    for oid in types {
        out.extend_from_slice(&oid.to_be_bytes());
    }
    close(out, at);
}

/// RowDescription.
pub fn row_description(out: &mut Vec<u8>, columns: &[OutputColumn], format: impl Fn(usize) -> Format) {
    let at = open(out, b'T');
    out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
    for (index, column) in columns.iter().enumerate() {
        string(out, &column.name);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&column.sql_type.oid().to_be_bytes());
        out.extend_from_slice(&column.sql_type.wire_size().to_be_bytes());
        out.extend_from_slice(&column.sql_type.wire_modifier().to_be_bytes());
        let code: u16 = if format(index) == Format::Binary { 1 } else { 0 };
        out.extend_from_slice(&code.to_be_bytes());
    }
    close(out, at);
}

/// Starts a DataRow of `count` values; give the result to [`end_row`].
pub fn begin_row(out: &mut Vec<u8>, count: usize) -> usize {
    let at = open(out, b'D');
    out.extend_from_slice(&(count as u16).to_be_bytes());
    at
}

/// Appends one value of a row: `write` appends its bytes; `None` from it means null.
pub fn row_value(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let length = match write(out) {
        Some(()) => (out.len() - at - 4) as u32,
        None => u32::MAX,
    };
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Ends a DataRow.
pub fn end_row(out: &mut [u8], at: usize) {
    close(out, at);
}

/// CopyInResponse (`G`) or CopyOutResponse (`H`): this number of columns, all in this format. CSV is a text format.
pub fn copy_response(out: &mut Vec<u8>, tag: u8, columns: usize, format: Format) {
    let code = u8::from(format == Format::Binary);
    let at = open(out, tag);
    out.push(code);
    out.extend_from_slice(&(columns as u16).to_be_bytes());
    for _ in 0..columns {
        out.extend_from_slice(&[0, code]);
    }
    close(out, at);
}

/// CopyData around what `write` appends.
pub fn copy_data(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = open(out, b'd');
    write(out);
    close(out, at);
}

/// ErrorResponse, or NoticeResponse for a severity below error.
pub fn error(out: &mut Vec<u8>, severity: Severity, error: &SqlError) {
    let tag = if matches!(severity, Severity::Error | Severity::Fatal) { b'E' } else { b'N' };
    let at = open(out, tag);
    let mut field = |code: u8, text: &str| {
        out.push(code);
        string(out, text);
    };
    field(b'S', severity.as_str());
    field(b'V', severity.as_str());
    field(b'C', error.sqlstate.code());
    field(b'M', &error.message);
    if let Some(detail) = &error.detail {
        field(b'D', detail);
    }
    if let Some(hint) = &error.hint {
        field(b'H', hint);
    }
    if let Some(position) = error.position {
        field(b'P', &position.to_string());
    }
    if let Some(about) = &error.about {
        let schema = about.table.as_ref().map(|_| "public");
        let fields = [
            (b'W', about.context.as_deref()),
            (b's', schema),
            (b't', about.table.as_deref()),
            (b'c', about.column.as_deref()),
            (b'n', about.constraint.as_deref()),
        ];
        for (code, text) in fields {
            if let Some(text) = text {
                field(code, text);
            }
        }
    }
    out.push(0);
    close(out, at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rialto_sql::SqlState;

    #[test]
    fn an_error_carries_its_fields_and_its_length() {
        let mut out = Vec::new();
        let mut wrong = SqlError::new(SqlState::SyntaxError, "bad\0word");
        wrong.position = Some(8);
        error(&mut out, Severity::Error, &wrong);
        assert_eq!(out[0], b'E');
        assert_eq!(u32::from_be_bytes(out[1..5].try_into().unwrap()) as usize, out.len() - 1);
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.contains("C42601\0Mbad word\0P8\0\0"), "{text:?}");
    }

    #[test]
    fn a_row_has_lengths_and_nulls() {
        let mut out = Vec::new();
        let at = begin_row(&mut out, 2);
        row_value(&mut out, |out| {
            out.extend_from_slice(b"42");
            Some(())
        });
        row_value(&mut out, |_| None);
        end_row(&mut out, at);
        assert_eq!(out, b"D\0\0\0\x10\0\x02\0\0\0\x0242\xff\xff\xff\xff");
    }
}
