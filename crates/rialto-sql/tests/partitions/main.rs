//! SQL over partitions in one process: its answers are those of one database.

#[path = "../common/in_process.rs"]
mod in_process;
#[path = "../../../rialto/tests/common/seeds.rs"]
mod seeds;

mod costs;
mod definitions;
mod lagging;
mod random;
mod rows;
mod transactions;

use rialto::row::Value;
use rialto_sql::run::Collected;
use rialto_sql::values::text;
use rialto_sql::{Session, SqlError, SqlType, Tag};

use in_process::InProcess;

/// Runs one statement, as a simple query or with arguments. Gives the rows as text, and the tag.
fn try_run(
    session: &mut Session,
    sql: &str,
    params: Option<&[Value]>,
) -> Result<(Vec<Vec<String>>, Tag), SqlError> {
    let answer = (|| {
        let mut rows = Collected::default();
        let (prepared, tag) = match params {
            None => {
                let read = session.read(sql)?;
                let ready = session.prepare_read(sql, read)?;
                session.announce_end();
                let tag = session.execute_ready(&ready, &mut rows)?;
                (ready.prepared, tag)
            }
            Some(params) => {
                let prepared = session.prepare(sql, &[])?;
                session.announce_end();
                let tag = session.execute(&prepared, params, &mut rows)?;
                (prepared, tag)
            }
        };
        session.finish()?;
        let print = |(value, sql_type): (&Value, SqlType)| {
            let mut out = Vec::new();
            match text::write(value, sql_type, &mut out) {
                Some(()) => String::from_utf8(out).unwrap(),
                None => "NULL".to_string(),
            }
        };
        let types: Vec<SqlType> = prepared.row_columns().iter().map(|column| column.sql_type).collect();
        let rows = rows.0.iter().map(|row| row.iter().zip(types.clone()).map(print).collect()).collect();
        Ok((rows, tag))
    })();
    answer.map_err(|error| session.fail(&error).err().unwrap_or(error))
}

fn run(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let answer = try_run(session, sql, None);
    answer.unwrap_or_else(|error| panic!("{sql}\n{} {error} {:?}", error.sqlstate.code(), error.hint)).0
}

/// The text of the tag.
fn tag(session: &mut Session, sql: &str) -> String {
    try_run(session, sql, None).unwrap_or_else(|error| panic!("{sql}\n{error}")).1.to_string()
}

/// The first column, in order.
fn column(session: &mut Session, sql: &str) -> Vec<String> {
    run(session, sql).into_iter().map(|mut row| row.swap_remove(0)).collect()
}

/// The one value of a result.
fn value(session: &mut Session, sql: &str) -> String {
    let rows = run(session, sql);
    assert!(rows.len() == 1 && rows[0].len() == 1, "{sql}: {rows:?}");
    rows[0][0].clone()
}

fn error(session: &mut Session, sql: &str) -> SqlError {
    try_run(session, sql, None).expect_err(sql)
}

fn code(session: &mut Session, sql: &str) -> &'static str {
    error(session, sql).sqlstate.code()
}

fn with_table(count: u32, rows: u32) -> (std::sync::Arc<InProcess>, Session) {
    let partitions = InProcess::new(count);
    let mut session = partitions.session();
    run(&mut session, "create table t (id int primary key, v int, c text)");
    if rows > 0 {
        let insert = format!("insert into t select n, n % 10, 'c' || n from generate_series(1, {rows}) n");
        assert_eq!(tag(&mut session, &insert), format!("INSERT 0 {rows}"));
    }
    (partitions, session)
}

/// The numbers of rows of a table in each partition.
fn counts(partitions: &InProcess, table: &str) -> Vec<u64> {
    let count = |database: &rialto::Database| {
        let table = database.table(table).unwrap();
        database.read(|tx| tx.count(&table)).unwrap()
    };
    partitions.databases().iter().map(count).collect()
}
