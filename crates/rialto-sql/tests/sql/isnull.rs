//! ISNULL and NOTNULL, PostgreSQL's short forms of IS NULL and IS NOT NULL.

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::values::text;
use rialto_sql::{Session, SqlError};

/// The rows as text, with a bar between values.
fn run(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let mut rows = Collected::default();
    let mut types = Vec::new();
    let answer = session.read(sql).and_then(|read| {
        let ready = session.prepare_read(sql, read)?;
        types = ready.prepared.columns.iter().map(|column| column.sql_type).collect();
        session.execute_ready(&ready, &mut rows)?;
        session.finish()
    });
    answer.inspect_err(|error| drop(session.fail(error)))?;
    let print = |row: &Vec<rialto::row::Value>| {
        let mut out = Vec::new();
        for (value, sql_type) in row.iter().zip(&types) {
            let _ = text::write(value, *sql_type, &mut out);
            out.push(b'|');
        }
        String::from_utf8(out).unwrap()
    };
    Ok(rows.0.iter().map(print).collect())
}

#[test]
fn isnull_is_an_operator_and_no_name() {
    let database = Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens");
    let mut session = Session::new(database, "ann", "bank");
    run(&mut session, "create table t (a int primary key, b int, \"isnull\" int)").unwrap();
    run(&mut session, "insert into t values (1, 7, 3), (2, null, null)").unwrap();
    for (sql, expected) in [
        ("select b isnull from t", &["f|", "t|"][..]),
        ("select b IsNull, b notnull from t", &["f|t|", "t|f|"]),
        ("select a from t where b isnull", &["2|"]),
        ("select a from t where b notnull", &["1|"]),
        ("select count(*) isnull from t", &["f|"]),
        ("select count(*) notnull from t", &["t|"]),
        ("select (b)isnull as isnull from t order by a", &["f|", "t|"]),
        ("select b = 7 isnull from t", &["f|", "t|"]),
        ("select not b isnull from t", &["t|", "f|"]),
        ("select b isnull and a isnull, b /* is */ isnull from t", &["f|f|", "f|t|"]),
        ("select t.isnull, \"isnull\" isnull from t", &["3|f|", "|t|"]),
        ("select a as isnull from t", &["1|", "2|"]),
        ("select b \"isnull\" from t", &["7|", "|"]),
        ("select 'isnull' isnull", &["f|"]),
        ("update t set b = b where b isnull returning b isnull", &["t|"]),
        ("explain select a from t where b isnull", &[]),
    ] {
        let answer = run(&mut session, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        match sql.starts_with("explain") {
            true => assert!(!answer.is_empty()),
            false => assert_eq!(answer, expected, "{sql}"),
        }
    }
    for sql in ["select isnull from t", "select a from isnull", "select b isnull c isnull from t"] {
        assert!(run(&mut session, sql).is_err(), "{sql}");
    }
    // A chain of them is as high as any other chain.
    let chain = format!("select a{} from t", " isnull".repeat(40_000));
    assert_eq!(run(&mut session, &chain).unwrap_err().sqlstate.code(), "54001");
}
