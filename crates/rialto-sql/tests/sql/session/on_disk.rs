//! Disk-resident tables.

use rialto::io::MemoryDisk;
use rialto::{Checkpointing, Database, Options, TwoStage, TwoStageAccount};
use rialto_sql::{Session, SqlState};

use super::{database, try_run};

fn run(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    try_run(session, sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// A database under TSTE whose cache has room for a quarter of its table.
fn with_a_small_cache() -> Database {
    let options = Options {
        memory_bytes: 64 << 20,
        cache_bytes: 4 << 20,
        page_bytes: 4_096,
        checkpoint: Checkpointing::None,
        two_stage: TwoStage::Tste,
        ..Options::default()
    };
    Database::open_on(MemoryDisk::new(), options).unwrap()
}

#[test]
fn a_transaction_uses_tables_on_disk_and_in_memory() {
    let mut session = Session::new(database(), "someone", "here");
    run(
        &mut session,
        "create table old (id bigint primary key, what text unique) with (residence = 'disk', fillfactor = 90)",
    );
    run(&mut session, "create table new (id bigint primary key, what text) with (residence = memory)");
    run(&mut session, "insert into new select n, 'n' || n from generate_series(1, 500) n");
    for end in ["rollback", "commit"] {
        run(&mut session, "begin");
        run(&mut session, "insert into old select n, 'n' || n from generate_series(1, 300) n");
        run(&mut session, "delete from new where id <= 300");
        assert_eq!(run(&mut session, "select count(*) from old"), [["300"]]);
        run(&mut session, end);
    }
    assert_eq!(run(&mut session, "select count(*) from old"), [["300"]]);
    assert_eq!(run(&mut session, "select count(*) from new"), [["200"]]);
    assert_eq!(run(&mut session, "select id from old where what = 'n77'"), [["77"]]);
    run(&mut session, "update old set what = 'm' || id where id between 10 and 12");
    assert_eq!(
        run(&mut session, "select id from old where what > 'm' and what < 'n' order by id desc"),
        [["12"], ["11"], ["10"]]
    );
    let refused = |session: &mut Session, sql: &str| try_run(session, sql, &[]).unwrap_err();
    let duplicate = refused(&mut session, "insert into old values (1000, 'n77')");
    assert_eq!(duplicate.sqlstate, SqlState::UniqueViolation);
    run(&mut session, "truncate old");
    assert_eq!(run(&mut session, "select count(*) from old"), [["0"]]);
    let wrong = refused(&mut session, "create table t (a int) with (residence = 'tape')");
    assert_eq!(wrong.sqlstate, SqlState::InvalidParameterValue);
    assert!(wrong.message.contains("expected \"memory\" or \"disk\", found \"tape\""), "{}", wrong.message);
    run(&mut session, "drop table old");
}

/// A table gets indexes and its key after its rows, and moves from one residence to the other.
#[test]
fn a_table_is_filled_indexed_and_moved() {
    let mut session = Session::new(database(), "someone", "here");
    let refused = |session: &mut Session, sql: &str| try_run(session, sql, &[]).unwrap_err();
    run(&mut session, "create table t (id int, part int, what text) with (residence = 'disk')");
    run(&mut session, "insert into t select n, n / 4, 'n' || n from generate_series(1, 2000) n");
    run(&mut session, "alter table t add primary key (id)");
    run(&mut session, "create index on t (part)");
    run(&mut session, "create unique index by_what on t (what)");
    let all = |session: &mut Session| {
        assert_eq!(run(session, "select count(*) from t"), [["2000"]]);
        assert_eq!(run(session, "select what from t where id = 77"), [["n77"]]);
        assert_eq!(
            run(session, "select id from t where part = 20 order by id"),
            [["80"], ["81"], ["82"], ["83"]]
        );
        assert_eq!(run(session, "select id from t where what = 'n1999'"), [["1999"]]);
        let duplicate = try_run(session, "insert into t values (3000, 1, 'n5')", &[]).unwrap_err();
        assert_eq!(duplicate.sqlstate, SqlState::UniqueViolation);
    };
    all(&mut session);
    for residence in ["'memory'", "memory", "'disk'", "DISK"] {
        run(&mut session, &format!("alter table t set (residence = {residence})"));
        all(&mut session);
    }
    run(&mut session, "begin");
    run(&mut session, "update t set part = 20 where id = 5");
    run(&mut session, "alter table t set (residence = memory)");
    run(&mut session, "update t set part = 20 where id = 6");
    assert_eq!(run(&mut session, "select count(*) from t where part = 20"), [["6"]]);
    run(&mut session, "rollback");
    all(&mut session);
    let twice = refused(&mut session, "create unique index on t (part)");
    assert_eq!(twice.sqlstate, SqlState::UniqueViolation);
    run(&mut session, "drop index by_what");
    run(&mut session, "insert into t values (3000, 1, 'n5')");
    for (sql, state) in [
        ("alter table t set (residence = 'tape')", SqlState::InvalidParameterValue),
        ("alter table t set (fillfactor = 50)", SqlState::FeatureNotSupported),
        ("alter table t set logged", SqlState::FeatureNotSupported),
        ("alter table t set (residence)", SqlState::SyntaxError),
        ("alter table nothing set (residence = 'disk')", SqlState::UndefinedTable),
    ] {
        assert_eq!(refused(&mut session, sql).sqlstate, state, "{sql}");
    }
}

/// Statements have stages: alone, and in blocks. What they read under locks they have read ahead.
#[test]
fn statements_on_tables_on_disk_read_their_pages_before_they_lock() {
    let database = with_a_small_cache();
    let mut session = Session::new(database.clone(), "someone", "here");
    run(&mut session, "create table old (id int primary key, part int, what text) with (residence = 'disk')");
    for from in (0..16_000).step_by(500) {
        let rows = format!("generate_series({from}, {}) n", from + 499);
        run(&mut session, &format!("insert into old select n, n / 4, '{}' from {rows}", "x".repeat(1_000)));
    }
    let met = || {
        let accounts = database.metrics().two_stage;
        let sum = |of: fn(&TwoStageAccount) -> u64| accounts.iter().map(of).sum::<u64>();
        (sum(|of| of.conversions), sum(|of| of.misprefetches))
    };
    let before = met();
    for id in (0..16_000).step_by(777) {
        run(&mut session, &format!("update old set part = -part where id = {id}"));
        assert_eq!(
            run(&mut session, &format!("select part from old where id = {id}")),
            [[format!("{}", -(id / 4))]]
        );
        run(&mut session, "begin");
        run(&mut session, &format!("delete from old where id = {}", (id + 5_000) % 16_000));
        assert_eq!(
            run(&mut session, &format!("select count(*) from old where id between {id} and {}", id + 9)),
            [["10"]]
        );
        run(&mut session, &format!("insert into old values ({}, 1, 'y')", id + 100_000));
        run(&mut session, "rollback");
    }
    let met = met();
    assert!(met.0 > before.0 + 20, "the test's own premise: {before:?}, {met:?}");
    assert_eq!(met.1, before.1, "misprefetches");
    assert_eq!(database.metrics().pages.kept, 0);
}

/// Each kind of statement on a table has an account, and is executed by what its own kind has met. A transaction of several
/// statements has none.
#[test]
fn statements_have_accounts_by_their_kind_and_table() {
    let database = database();
    let mut session = Session::new(database.clone(), "someone", "here");
    run(&mut session, "create table old (id int primary key, part int) with (residence = 'disk')");
    run(&mut session, "insert into old select n, n from generate_series(1, 100) n");
    for id in 1..=5 {
        run(&mut session, &format!("update old set part = 0 where id = {id}"));
        run(&mut session, &format!("select part from old where id = {id}"));
    }
    run(&mut session, "begin");
    run(&mut session, "update old set part = 1 where id = 7");
    run(&mut session, "delete from old where id = 8");
    run(&mut session, "commit");
    // Alone in its block.
    run(&mut session, "begin");
    run(&mut session, "update old set part = 1 where id = 9");
    run(&mut session, "commit");
    let metrics = database.metrics();
    let committed = |name: &str| {
        metrics.procedures.iter().find(|account| account.name == name).map_or(0, |account| account.committed)
    };
    assert_eq!(["INSERT old", "UPDATE old", "SELECT old", "DELETE old"].map(committed), [1, 6, 5, 0]);
    let executions = |name: &str| {
        metrics.two_stage.iter().find(|account| account.name == name).map_or(0, |account| account.executions)
    };
    assert_eq!(["INSERT old", "UPDATE old", "SELECT old", "DELETE old"].map(executions), [1, 7, 5, 1]);
}

/// COPY reads the pages of its rows ahead, some rows at a time. The first line with an error is the one that is told.
#[test]
fn copy_reads_ahead_and_tells_the_first_wrong_line() {
    let database = with_a_small_cache();
    let mut session = Session::new(database.clone(), "someone", "here");
    run(&mut session, "create table old (id int primary key, what text) with (residence = 'disk')");
    let text = "x".repeat(1_000);
    for from in (0..16_000).step_by(500) {
        let rows = format!("generate_series({from}, {}) n", from + 499);
        run(&mut session, &format!("insert into old select n * 10, '{text}' from {rows}"));
    }
    let copy = |session: &mut Session, data: &str| {
        let prepared = session.prepare("copy old from stdin", &[]).unwrap();
        let mut copy = session.begin_copy(&prepared).unwrap();
        let mut pieces = data.as_bytes().chunks(700).peekable();
        while let Some(piece) = pieces.next() {
            let copied = session.run_copy(&mut copy, piece, pieces.peek().is_none());
            if let Err(error) = copied {
                session.fail(&error).unwrap();
                return Err(error);
            }
        }
        session.finish().map(|()| copy.rows())
    };
    let lines =
        |ids: &mut dyn Iterator<Item = i32>| ids.map(|id| format!("{id}\t{text}\n")).collect::<String>();
    let met = || {
        let accounts = database.metrics().two_stage;
        let account = accounts.iter().find(|account| account.name == "COPY old");
        account.map_or((0, 0), |account| (account.executions, account.misprefetches))
    };
    assert_eq!(copy(&mut session, &lines(&mut (0..200).map(|nth| nth * 700 + 1))), Ok(200));
    assert_eq!(met(), (4, 0), "batches of 64 rows, and no page is read under locks");
    assert_eq!(run(&mut session, "select count(*) from old"), [["16200"]]);

    let mut wrong = lines(&mut [3, 4, 20, 5].into_iter());
    wrong.push_str("no number\n");
    let told = copy(&mut session, &wrong).unwrap_err();
    assert_eq!(told.sqlstate, SqlState::UniqueViolation);
    let context = told.about.and_then(|about| about.context).unwrap_or_default();
    assert!(context.contains("line 3"), "{context}");
    // Also before an error that is found where no record begins.
    let csv = session.prepare("copy old from stdin csv", &[]).unwrap();
    let mut open_quote = session.begin_copy(&csv).unwrap();
    let told = session.run_copy(&mut open_quote, b"3,x\n20,x\n4,\"x\n", true).unwrap_err();
    assert_eq!(told.sqlstate, SqlState::UniqueViolation);
    session.fail(&told).unwrap();
    // What was read ahead for a batch that fails does not stay.
    run(&mut session, "begin");
    run(&mut session, "savepoint s");
    let prepared = session.prepare("copy old from stdin", &[]).unwrap();
    let mut failing = session.begin_copy(&prepared).unwrap();
    let told = session.run_copy(&mut failing, b"3\tx\n20\tx\n", true).unwrap_err();
    session.fail(&told).unwrap();
    run(&mut session, "rollback to s");
    assert_eq!(database.metrics().pages.kept, 0);
    run(&mut session, "rollback");
    assert_eq!(run(&mut session, "select count(*) from old"), [["16200"]]);
}
