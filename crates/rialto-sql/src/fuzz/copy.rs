//! COPY in each format, with any options and any data.

use std::cell::RefCell;

use rialto::fuzz::Script;
use rialto::row::Value;

use super::fixture::Fixture;
use crate::copy::CopyOut;
use crate::parse::CopyFormat;
use crate::prepared::Kind;
use crate::run::Collected;
use crate::values::text;
use crate::{Prepared, Result, RowSink, Session, SqlState, Tag};

/// Two tables of all types; rows are copied from one to the other.
const TABLES: [&str; 2] = [
    "create table one (b boolean, i2 smallint, i4 int, i8 int8, f8 double precision, n numeric(12,2), t text, \
     c char(3), x bytea, d date, ts timestamp)",
    "create table other (b boolean, i2 smallint, i4 int, i8 int8, f8 double precision, n numeric(12,2), t text, \
     c char(3), x bytea, d date, ts timestamp)",
];
/// The columns of a COPY.
const COLUMNS: [&str; 12] = [
    "",
    "(t)",
    "(b)",
    "(i2, i4, i8)",
    "(f8)",
    "(n)",
    "(c)",
    "(x)",
    "(d)",
    "(ts)",
    "(t, i4)",
    "(ts, t, c, b)",
];

thread_local! {
    static FIXTURE: RefCell<Fixture> = RefCell::new(Fixture::made_by(&TABLES));
}

/// The data of a COPY to the client.
#[derive(Default)]
struct Written {
    data: Vec<u8>,
    copy: CopyOut,
}

fn plan_of(prepared: &Prepared) -> &crate::prepared::CopyPlan {
    match &prepared.kind {
        Kind::Copy(copy) => copy,
        _ => unreachable!("the statement is a COPY"),
    }
}

impl RowSink for Written {
    fn begin(&mut self, plan: &Prepared) -> Result<()> {
        self.data = CopyOut::header(plan_of(plan)).unwrap_or_default();
        self.copy = CopyOut::default();
        Ok(())
    }

    fn row(&mut self, plan: &Prepared, values: &[Value]) -> Result<()> {
        self.copy.row(values, plan_of(plan), &mut self.data);
        Ok(())
    }

    fn end(&mut self, plan: &Prepared) -> Result<()> {
        self.data.extend(self.copy.end(plan_of(plan)).unwrap_or_default());
        Ok(())
    }

    fn restart(&mut self) -> bool {
        true
    }
}

/// As [`copy`], with lines in the text format.
pub fn copy_text(data: &[u8]) {
    copy(CopyFormat::Text, data);
}

/// As [`copy`], with lines of CSV.
pub fn copy_csv(data: &[u8]) {
    copy(CopyFormat::Csv, data);
}

/// As [`copy`], with tuples in binary form.
pub fn copy_binary(data: &[u8]) {
    copy(CopyFormat::Binary, data);
}

/// Data for a COPY, with its columns and options. However the data are cut, the result is the same rows, or the same
/// error. COPY TO writes rows of the table as data, and these data make the same rows in another table.
fn copy(format: CopyFormat, data: &[u8]) {
    let mut script = Script::of(data);
    let columns = COLUMNS[script.below(COLUMNS.len())];
    let cut = 1 + script.below(9);
    let options = options(format, &mut script);
    // Few bytes by chance are the header of the binary format.
    let header: &[u8] = match format {
        CopyFormat::Binary if !script.byte().is_multiple_of(8) => b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0",
        _ => b"",
    };
    let data = &[header, script.bytes(usize::MAX)].concat()[..];
    FIXTURE.with_borrow_mut(|fixture| {
        let mut session = Session::new(fixture.database().clone(), "ann", "bank");
        let mut in_block = |work: &mut dyn FnMut(&mut Session)| {
            run(&mut session, "begin");
            work(&mut session);
            run(&mut session, "rollback");
        };
        let from = |table: &str| format!("copy {table} {columns} from stdin with ({options})");
        let to = |table: &str| format!("copy {table} {columns} to stdout with ({options})");
        let mut whole = None;
        in_block(&mut |session| {
            let answer = copy_in(session, &from("one"), &[data]);
            let rows = answer.is_ok().then(|| rows(session, "one"));
            if let Some(rows) = &rows {
                let lines = copy_out(session, &to("one"));
                let again = copy_in(session, &from("other"), &[&lines]);
                assert_eq!(again, answer, "{}", String::from_utf8_lossy(&lines));
                assert_eq!(copy_out(session, &to("other")), lines);
                if !some_value_reads_as_null(session, &to("one"), rows) {
                    assert_eq!(printed(&self::rows(session, "other")), printed(rows));
                }
            }
            whole = Some((answer, rows));
        });
        let (answer, expected) = whole.expect("it has run");
        in_block(&mut |session| {
            let pieces: Vec<&[u8]> = data.chunks(cut).collect();
            assert_eq!(copy_in(session, &from("one"), &pieces), answer, "in pieces of {cut} bytes");
            if let Some(expected) = &expected {
                assert_eq!(printed(&rows(session, "one")), printed(expected), "in pieces of {cut} bytes");
            }
        });
        drop(session);
        fixture.restore();
    });
}

/// The text of a COPY's options.
fn options(format: CopyFormat, script: &mut Script<'_>) -> String {
    let quoted = |bytes: &[u8]| -> String {
        let text: String = bytes.iter().map(|byte| char::from(byte & 0x7f)).collect();
        format!("'{}'", text.replace('\'', "''"))
    };
    let name = match format {
        CopyFormat::Text => "text",
        CopyFormat::Csv => "csv",
        CopyFormat::Binary => return "format binary".to_owned(),
    };
    let mut options = vec![format!("format {name}")];
    let which = script.byte();
    if which & 1 != 0 {
        options.push(format!("delimiter {}", quoted(script.bytes(1))));
    }
    if which & 2 != 0 {
        let length = script.below(4);
        options.push(format!("null {}", quoted(script.bytes(length))));
    }
    if which & 4 != 0 {
        options.push("freeze".to_owned());
    }
    if format == CopyFormat::Csv {
        if which & 8 != 0 {
            options.push(format!("quote {}", quoted(script.bytes(1))));
        }
        if which & 16 != 0 {
            options.push(format!("escape {}", quoted(script.bytes(1))));
        }
        if which & 32 != 0 {
            options.push("header".to_owned());
        }
    }
    options.join(", ")
}

fn run(session: &mut Session, text: &str) -> (Tag, Collected) {
    let mut rows = Collected::default();
    let prepared = session.prepare(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    let tag = session.execute(&prepared, &[], &mut rows).unwrap_or_else(|error| panic!("{text}: {error}"));
    (tag, rows)
}

fn rows(session: &mut Session, table: &str) -> Vec<Vec<Value>> {
    run(session, &format!("select * from {table}")).1.0
}

/// The rows as text, in which a NaN equals itself.
fn printed(rows: &[Vec<Value>]) -> Vec<String> {
    rows.iter().map(|row| format!("{row:?}")).collect()
}

fn copy_in(session: &mut Session, text: &str, pieces: &[&[u8]]) -> Result<Option<Tag>> {
    let answer = session.prepare(text, &[]).and_then(|prepared| {
        let mut copy = session.begin_copy(&prepared)?;
        for piece in pieces {
            assert_eq!(session.run_copy(&mut copy, piece, false)?, None);
        }
        session.run_copy(&mut copy, &[], true)
    });
    if let Err(error) = &answer {
        assert_ne!(error.sqlstate, SqlState::Internal, "{text}: {error}");
        session.fail(error).expect("the database goes on");
    }
    answer
}

fn copy_out(session: &mut Session, text: &str) -> Vec<u8> {
    let prepared = session.prepare(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut written = Written::default();
    session.execute(&prepared, &[], &mut written).unwrap_or_else(|error| panic!("{text}: {error}"));
    written.data
}

/// Whether some value's text is the string for null, and would be read as null (as in PostgreSQL).
fn some_value_reads_as_null(session: &mut Session, text: &str, rows: &[Vec<Value>]) -> bool {
    let prepared = session.prepare(text, &[]).expect("it was prepared before");
    let copy = plan_of(&prepared);
    if copy.options.format != CopyFormat::Text {
        // A CSV has quotes around them.
        return false;
    }
    let null = &copy.options.null;
    let mut plain = Vec::new();
    let mut reads_as_null = |row: &[Value], column: usize| {
        plain.clear();
        let is_null =
            text::write(&row[copy.columns[column]], copy.output[column].sql_type, &mut plain).is_none();
        !is_null && escaped(&plain, copy.options.delimiter) == null.as_bytes()
    };
    let found = rows.iter().any(|row| (0..copy.columns.len()).any(|column| reads_as_null(row, column)));
    assert!(!found || null != DEFAULT_NULL, "no line of a value is {DEFAULT_NULL}");
    found
}

/// The string for null where the options do not give one.
const DEFAULT_NULL: &str = "\\N";

/// A value in a line, by PostgreSQL's manual: a backslash before itself and the delimiter, and before the letter that
/// stands for a control character.
fn escaped(plain: &[u8], delimiter: u8) -> Vec<u8> {
    const LETTERS: [(u8, u8); 6] =
        [(0x08, b'b'), (0x0c, b'f'), (0x0a, b'n'), (0x0d, b'r'), (0x09, b't'), (0x0b, b'v')];
    let mut written = Vec::new();
    for &byte in plain {
        let letter = LETTERS.iter().find(|(control, _)| *control == byte).map(|(_, letter)| *letter);
        let itself = (byte == b'\\' || byte == delimiter).then_some(byte);
        written.extend(letter.or(itself).map(|_| b'\\'));
        written.push(letter.unwrap_or(byte));
    }
    written
}
