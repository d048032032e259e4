//! Transaction blocks: failed ones, savepoints, definitions, settings.

use super::*;

#[test]
fn a_failed_block_refuses_all_but_its_end() {
    let mut session = bank();
    run(&mut session, "begin");
    run(&mut session, "insert into t (a) values (20)");
    assert_eq!(code(&mut session, "insert into t (a) values (20)"), "23505");
    assert_eq!(session.status(), TransactionStatus::Failed);
    assert_eq!(code(&mut session, "select 1"), "25P02");
    run(&mut session, "commit");
    assert_eq!(session.status(), TransactionStatus::Idle);
    assert_eq!(value(&mut session, "select count(*) from t where a = 20"), "0");
}

#[test]
fn savepoints_nest_and_mend_a_failed_block() {
    let mut session = bank();
    run(&mut session, "begin");
    run(&mut session, "savepoint a");
    run(&mut session, "insert into t (a) values (20)");
    run(&mut session, "savepoint b");
    run(&mut session, "insert into t (a) values (21)");
    assert_eq!(code(&mut session, "select nope"), "42703");
    run(&mut session, "rollback to b");
    run(&mut session, "insert into t (a) values (22)");
    run(&mut session, "release a");
    assert_eq!(code(&mut session, "rollback to a"), "3B001");
    run(&mut session, "rollback");
    run(&mut session, "begin");
    run(&mut session, "savepoint s");
    run(&mut session, "insert into t (a) values (23)");
    run(&mut session, "rollback to s");
    run(&mut session, "insert into t (a) values (24)");
    run(&mut session, "commit");
    assert_eq!(column(&mut session, "select a from t where a >= 20"), ["24"]);
}

#[test]
fn definitions_are_part_of_their_transaction() {
    let mut session = bank();
    run(&mut session, "begin");
    run(&mut session, "create table u (a int not null, b int)");
    run(&mut session, "alter table u add primary key (a)");
    run(&mut session, "insert into u values (1, 1), (2, 2)");
    run(&mut session, "insert into u values (3, 3)");
    assert_eq!(value(&mut session, "select b from u where a = 3"), "3");
    run(&mut session, "rollback");
    assert_eq!(code(&mut session, "select * from u"), "42P01");
    run(&mut session, "begin");
    run(&mut session, "truncate t");
    run(&mut session, "insert into t (a) values (1)");
    run(&mut session, "truncate t");
    run(&mut session, "insert into t (a) values (2)");
    assert_eq!(column(&mut session, "select a from t"), ["2"]);
    run(&mut session, "commit");
    assert_eq!(column(&mut session, "select a from t"), ["2"]);
}

#[test]
fn plans_follow_the_catalog() {
    let database = database();
    let mut one = Session::new(database.clone(), "one", "bank");
    let mut two = Session::new(database, "two", "bank");
    run(&mut one, "create table t (a int not null, b int)");
    run(&mut one, "insert into t values (1, 2)");
    let prepared = one.prepare("select b from t where a = 1", &[]).unwrap();
    run(&mut two, "alter table t add primary key (a)");
    let mut rows = Collected::default();
    one.execute(&prepared, &[], &mut rows).unwrap();
    assert_eq!(rows.0, [[Value::Int4(2)]]);
    one.finish().unwrap();
    run(&mut two, "drop table t");
    run(&mut two, "create table t (a int, b text)");
    let error = one.execute(&prepared, &[], &mut Collected::default()).unwrap_err();
    assert_eq!(error.sqlstate.code(), "0A000");
    one.fail(&error).unwrap();
    assert!(column(&mut one, "select b from t where a = 1").is_empty());
}

#[test]
fn a_read_only_transaction_writes_nothing() {
    let mut session = bank();
    run(&mut session, "begin read only");
    assert_eq!(value(&mut session, "select count(*) from t"), "10");
    assert_eq!(code(&mut session, "delete from t"), "25006");
    run(&mut session, "rollback");
    // Also if there is no row to write.
    for sql in [
        "update t set b = 1 where a = null",
        "delete from t where a = null",
        "insert into t (a) select 1 where false",
        "insert into t (a) select g from generate_series(1, 0) g",
    ] {
        run(&mut session, "begin read only");
        assert_eq!(code(&mut session, sql), "25006", "{sql}");
        run(&mut session, "rollback");
        run(&mut session, "begin read only");
        run(&mut session, &format!("explain {sql}"));
        run(&mut session, "rollback");
    }
    run(&mut session, "set default_transaction_read_only = on");
    assert_eq!(code(&mut session, "insert into t (a) values (50)"), "25006");
    assert_eq!(value(&mut session, "show transaction_read_only"), "on");
}

#[test]
fn settings_go_back_with_their_transaction() {
    let mut session = bank();
    run(&mut session, "begin isolation level read committed");
    run(&mut session, "set lock_timeout = '3s'");
    assert_eq!(value(&mut session, "show lock_timeout"), "3s");
    assert_eq!(value(&mut session, "show transaction_isolation"), "serializable");
    run(&mut session, "rollback");
    assert_eq!(value(&mut session, "show lock_timeout"), "10s");
}
