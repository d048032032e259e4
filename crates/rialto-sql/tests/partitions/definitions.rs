//! Definitions run in all partitions, in one transaction; the placement of rows is part of them.

use rialto_sql::parse::CopyDirection;
use rialto_sql::{Session, SqlError};

use crate::in_process::InProcess;
use crate::{code, column, counts, error, run, tag, value};

/// Runs a COPY from these data, given in pieces.
pub fn copy(session: &mut Session, sql: &str, data: &[&str]) -> Result<String, SqlError> {
    let answer = (|| {
        let prepared = session.prepare(sql, &[])?;
        assert_eq!(prepared.copy().map(|copy| copy.0), Some(CopyDirection::FromStdin));
        let mut copy = session.begin_copy(&prepared)?;
        for piece in data {
            session.run_copy(&mut copy, piece.as_bytes(), false)?;
        }
        let tag = session.run_copy(&mut copy, b"", true)?.expect("it was the last piece");
        session.finish()?;
        Ok(tag.to_string())
    })();
    answer.map_err(|error| session.fail(&error).err().unwrap_or(error))
}

#[test]
fn a_definition_is_in_all_partitions_or_in_none() {
    let partitions = InProcess::new(3);
    let mut session = partitions.session();
    let has = |name: &str| -> Vec<bool> {
        partitions.databases().iter().map(|database| database.table(name).is_ok()).collect()
    };
    run(&mut session, "create table t (id int primary key, v int)");
    assert_eq!(has("t"), [true; 3]);
    run(&mut session, "create index t_v on t (v)");
    run(&mut session, "begin");
    run(&mut session, "create table u (id int primary key) with (partition_by = 'id')");
    run(&mut session, "insert into u values (1), (2), (3)");
    assert_eq!(value(&mut session, "select count(*) from u"), "3");
    run(&mut session, "rollback");
    assert_eq!(has("u"), [false; 3]);
    assert_eq!(code(&mut session, "select * from u"), "42P01");
    assert_eq!(code(&mut session, "create table t (id int)"), "42P07");
    assert_eq!(tag(&mut session, "create table if not exists t (id int)"), "CREATE TABLE");
    assert_eq!(session.take_notices().len(), 1);
    assert_eq!(tag(&mut session, "drop table t"), "DROP TABLE");
    assert_eq!(has("t"), [false; 3]);
    assert_eq!(code(&mut session, "drop table t"), "42P01");
    assert_eq!(tag(&mut session, "drop table if exists t"), "DROP TABLE");
}

#[test]
fn keys_have_the_routing_columns() {
    let partitions = InProcess::new(2);
    let mut session = partitions.session();
    let told = error(&mut session, "create table t (id int primary key, mail text unique)");
    assert_eq!(told.sqlstate.code(), "42P16");
    assert!(told.message.contains("\"id\"") && told.hint.unwrap().contains("replicated"), "{}", told.message);
    assert_eq!(
        code(&mut session, "create table t (a int, b int, primary key (a, b)) with (partition_by = 'c')"),
        "42703"
    );
    assert_eq!(
        code(&mut session, "create table t (a int, b int primary key) with (partition_by = 'a')"),
        "42P16"
    );
    assert_eq!(
        code(&mut session, "create table t (a int) with (partition_by = 'a', replicated = true)"),
        "22023"
    );
    run(&mut session, "create table t (a int, b int, c int, primary key (a, b), unique (c, a))");
    assert_eq!(code(&mut session, "create unique index t_b on t (b)"), "42P16");
    run(&mut session, "create unique index t_ba on t (b, a)");
    run(&mut session, "create table h (a int, b int)");
    assert_eq!(code(&mut session, "create unique index h_a on h (a)"), "42P16");
    run(&mut session, "create table p (a int, b int) with (partition_by = 'b')");
    assert_eq!(code(&mut session, "alter table p add primary key (a)"), "42P16");
    run(&mut session, "alter table p add primary key (a, b)");
    // Without partitions the options mean nothing, and are refused.
    let mut alone = Session::new(crate::in_process::new_database(16 << 20), "ann", "bank");
    assert_eq!(code(&mut alone, "create table t (a int primary key) with (partition_by = 'a')"), "0A000");
    assert_eq!(code(&mut alone, "create table t (a int primary key) with (replicated = true)"), "0A000");
}

/// The table of an earlier life leaves nothing to a new one of its name.
#[test]
fn a_table_made_anew_has_a_placement_of_its_own() {
    let partitions = InProcess::new(4);
    let (mut session, mut other) = (partitions.session(), partitions.session());
    for (with, expected) in
        [("with (replicated = true)", 4), ("", 1), ("with (partition_by = 'b')", 1), ("", 1)]
    {
        run(&mut session, &format!("create table t (a int, b int, primary key (a, b)) {with}"));
        run(&mut other, "insert into t values (1, 2)");
        assert_eq!(counts(&partitions, "t").iter().sum::<u64>(), expected, "{with}");
        for session in [&mut session, &mut other] {
            assert_eq!(column(session, "select b from t where a = 1 and b = 2"), ["2"], "{with}");
            assert_eq!(column(session, "select b from t where a = 1"), ["2"], "{with}");
        }
        run(&mut session, "drop table t");
    }
    assert_eq!(run(&mut session, "select * from rialto_placement"), Vec::<Vec<String>>::new());
    assert_eq!(code(&mut session, "insert into rialto_placement values ('t', 0, null)"), "0A000");
    assert_eq!(code(&mut session, "drop table rialto_placement"), "0A000");
}

#[test]
fn a_copy_spreads_its_rows_and_gives_them_back() {
    for count in [1, 2, 4] {
        let partitions = InProcess::new(count);
        let mut session = partitions.session();
        run(&mut session, "create table t (id int primary key, v text)");
        let lines: Vec<String> = (1..=5_000).map(|id| format!("{id}\tv{id}\n")).collect();
        let data = lines.concat();
        let pieces: Vec<&str> =
            data.as_bytes().chunks(997).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
        assert_eq!(copy(&mut session, "copy t from stdin", &pieces).unwrap(), "COPY 5000");
        assert_eq!(counts(&partitions, "t").iter().sum::<u64>(), 5_000);
        let mut rows = run(&mut session, "copy t to stdout");
        rows.sort_by_key(|row| row[0].parse::<i32>().unwrap());
        assert_eq!(rows.len(), 5_000);
        assert_eq!(rows[41], ["42", "v42"]);
        let told = copy(&mut session, "copy t (id) from stdin", &["6001\n6002\n7\n6003\nx\n"]).unwrap_err();
        assert_eq!(told.sqlstate.code(), "23505");
        assert_eq!(told.about.unwrap().context.as_deref(), Some("COPY t, line 3"));
        let told = copy(&mut session, "copy t (id) from stdin", &["6001\n6002\nx\n7\n"]).unwrap_err();
        assert_eq!(told.about.unwrap().context.as_deref(), Some("COPY t, line 3, column id: \"x\""));
        assert_eq!(value(&mut session, "select count(*) from t"), "5000");
    }
}

/// The rows of a table without a key lie anywhere; its new key says where.
#[test]
fn a_new_primary_key_moves_rows() {
    for count in [1, 2, 4] {
        let partitions = InProcess::new(count);
        let mut session = partitions.session();
        run(&mut session, "create table t (a int not null, b text)");
        run(
            &mut session,
            &format!("insert into t select n, '{}' || n from generate_series(1, 9000) n", "x".repeat(100)),
        );
        run(&mut session, "alter table t add primary key (a)");
        let rows = counts(&partitions, "t");
        assert_eq!(rows.iter().sum::<u64>(), 9_000);
        assert!(rows.iter().all(|rows| *rows > 9_000 / u64::from(count) * 2 / 3), "{rows:?}");
        for a in [1, 2, 3, 4, 5, 4_500, 9_000] {
            assert_eq!(column(&mut session, &format!("select a from t where a = {a}")), [a.to_string()]);
        }
    }
    // Equal keys in two partitions.
    let databases: Vec<_> = (0..2).map(|_| crate::in_process::new_database(64 << 20)).collect();
    let near = InProcess::of(databases.clone());
    let far = InProcess::of(databases.into_iter().rev().collect());
    let mut session = near.session();
    run(&mut session, "create table t (a int not null)");
    run(&mut session, "insert into t values (1), (2), (3)");
    run(&mut far.session(), "insert into t values (3)");
    let told = error(&mut session, "alter table t add primary key (a)");
    assert_eq!(told.sqlstate.code(), "23505");
    assert_eq!(told.message, "could not create unique index \"t_pkey\"");
    assert_eq!(told.detail.as_deref(), Some("Key (a)=(3) is duplicated."));
    assert_eq!(value(&mut session, "select count(*) from t"), "4");
}

/// The statements of `pgbench -i` and of its script.
#[test]
fn pgbench_runs_unchanged() {
    let partitions = InProcess::new(2);
    let mut session = partitions.session();
    for sql in [
        "drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
        "create table pgbench_history(tid int,bid int,aid    int,delta int,mtime timestamp,filler char(22))",
        "create table pgbench_tellers(tid int not null,bid int,tbalance int,filler char(84)) with (fillfactor=100)",
        "create table pgbench_accounts(aid    int not null,bid int,abalance int,filler char(84)) with (fillfactor=100)",
        "create table pgbench_branches(bid int not null,bbalance int,filler char(88)) with (fillfactor=100)",
        "begin",
        "truncate table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
        "insert into pgbench_branches(bid,bbalance) values(1,0)",
        "insert into pgbench_tellers(tid,bid,tbalance) values (1,1,0)",
        "insert into pgbench_tellers(tid,bid,tbalance) values (2,1,0)",
    ] {
        run(&mut session, sql);
    }
    let data: String = (1..=1_000).map(|aid| format!("{aid}\t1\t0\t\n")).collect();
    let loaded = copy(&mut session, "copy pgbench_accounts from stdin with (freeze on)", &[&data]);
    assert_eq!(loaded.unwrap(), "COPY 1000");
    for sql in [
        "commit",
        "vacuum analyze pgbench_branches",
        "alter table pgbench_branches add primary key (bid)",
        "alter table pgbench_tellers add primary key (tid)",
        "alter table pgbench_accounts add primary key (aid)",
    ] {
        run(&mut session, sql);
    }
    let rows = counts(&partitions, "pgbench_accounts");
    assert!(rows.iter().sum::<u64>() == 1_000 && rows.iter().all(|rows| *rows > 300), "{rows:?}");
    for number in 1..=50 {
        let (aid, tid, delta) = (number * 17 % 1_000 + 1, number % 2 + 1, number);
        run(&mut session, "BEGIN");
        run(
            &mut session,
            &format!("UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid}"),
        );
        run(&mut session, &format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid}"));
        run(
            &mut session,
            &format!("UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid}"),
        );
        run(
            &mut session,
            &format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = 1"),
        );
        run(
            &mut session,
            &format!(
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ({tid}, 1, {aid}, {delta}, CURRENT_TIMESTAMP)"
            ),
        );
        run(&mut session, "END");
    }
    assert_eq!(value(&mut session, "select bbalance from pgbench_branches"), (50 * 51 / 2).to_string());
    assert_eq!(value(&mut session, "select count(*) from pgbench_history"), "50");
}
