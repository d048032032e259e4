//! Blocks, savepoints, errors, cancel and time-outs over partitions are those of one database.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rialto_sql::TransactionStatus;

use crate::in_process::Counts;
use crate::{code, counts, error, run, tag, value, with_table};

#[test]
fn a_block_is_committed_whole_or_rolled_back_whole() {
    for count in [1, 2, 4] {
        let (partitions, mut session) = with_table(count, 100);
        run(&mut session, "begin");
        assert_eq!(tag(&mut session, "update t set v = 1000"), "UPDATE 100");
        assert_eq!(tag(&mut session, "insert into t values (101, 1, 'x'), (102, 1, 'x')"), "INSERT 0 2");
        run(&mut session, "rollback");
        assert_eq!(value(&mut session, "select count(*) from t where v < 1000"), "100");
        run(&mut session, "begin");
        run(&mut session, "delete from t where v < 5");
        assert_eq!(code(&mut session, "insert into t values (6, 1, 'x')"), "23505");
        assert_eq!(session.status(), TransactionStatus::Failed);
        assert_eq!(code(&mut session, "select 1"), "25P02");
        assert_eq!(tag(&mut session, "commit"), "ROLLBACK");
        assert_eq!(counts(&partitions, "t").iter().sum::<u64>(), 100);
    }
}

#[test]
fn savepoints_go_back_in_every_branch() {
    for count in [1, 2, 4] {
        let (_partitions, mut session) = with_table(count, 40);
        let count_of = |session: &mut rialto_sql::Session| value(session, "select count(*) from t");
        run(&mut session, "begin");
        run(&mut session, "delete from t where id = 1");
        run(&mut session, "savepoint a");
        run(&mut session, "delete from t where id in (2, 3, 4, 5, 6)");
        run(&mut session, "savepoint b");
        run(&mut session, "delete from t");
        assert_eq!(count_of(&mut session), "0");
        run(&mut session, "rollback to b");
        assert_eq!(count_of(&mut session), "34");
        run(&mut session, "delete from t where id = 7");
        assert_eq!(code(&mut session, "insert into t values (8, 1, 'x')"), "23505");
        run(&mut session, "rollback to a");
        assert_eq!(count_of(&mut session), "39");
        run(&mut session, "rollback to a");
        run(&mut session, "delete from t where id = 9");
        run(&mut session, "savepoint c");
        run(&mut session, "delete from t where id = 10");
        run(&mut session, "release c");
        run(&mut session, "savepoint d");
        run(&mut session, "delete from t where id = 11");
        run(&mut session, "rollback to d");
        run(&mut session, "release a");
        run(&mut session, "commit");
        assert_eq!(count_of(&mut session), "37");
        run(&mut session, "begin");
        run(&mut session, "savepoint before_all");
        run(&mut session, "delete from t");
        run(&mut session, "rollback to before_all");
        run(&mut session, "delete from t where id = 12");
        run(&mut session, "commit");
        assert_eq!(count_of(&mut session), "36");
    }
}

/// A savepoint and its release cost no exchange, and leave nothing in the branches.
#[test]
fn savepoints_cost_no_messages() {
    let (partitions, mut session) = with_table(2, 10);
    run(&mut session, "begin");
    run(&mut session, "select * from t");
    Counts::take(&partitions.counts.exchanges);
    for _ in 0..50 {
        run(&mut session, "savepoint s");
        run(&mut session, "update t set v = v + 1 where id = 1");
        run(&mut session, "release s");
    }
    assert_eq!(Counts::take(&partitions.counts.exchanges), 50);
    run(&mut session, "commit");
    assert_eq!(value(&mut session, "select v from t where id = 1"), "51");
}

#[test]
fn settings_reach_the_branches() {
    let (_partitions, mut session) = with_table(2, 10);
    let (partitions, mut holder) = (&_partitions, _partitions.session());
    run(&mut holder, "begin");
    run(&mut holder, "update t set v = 0 where id = 1");
    run(&mut session, "set lock_timeout = '20ms'");
    assert_eq!(code(&mut session, "update t set v = 1 where id = 1"), "55P03");
    run(&mut session, "begin");
    run(&mut session, "select v from t where id = 2");
    run(&mut session, "set local lock_timeout = '10ms'");
    assert_eq!(code(&mut session, "update t set v = 1"), "55P03");
    run(&mut session, "rollback");
    run(&mut holder, "rollback");
    run(&mut session, "set lock_timeout = 0");
    run(&mut session, "set rialto.durability = 'disk'");
    assert_eq!(tag(&mut session, "update t set v = 1 where id < 3"), "UPDATE 2");
    run(&mut session, "begin read only");
    assert_eq!(code(&mut session, "update t set v = 1 where id = 1"), "25006");
    run(&mut session, "rollback");
    run(&mut session, "begin");
    run(&mut session, "select v from t where id = 2");
    run(&mut session, "set transaction read only");
    assert_eq!(code(&mut session, "create table u (id int)"), "25006");
    run(&mut session, "rollback");
    assert!(partitions.counts.exchanges.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_request_and_a_time_limit_end_a_wait_in_a_branch() {
    let (partitions, mut session) = with_table(2, 10);
    let mut holder = partitions.session();
    run(&mut holder, "begin");
    run(&mut holder, "update t set v = 0 where id = 1");
    run(&mut session, "set statement_timeout = '30ms'");
    let told = error(&mut session, "update t set v = 1 where id = 1");
    assert_eq!(
        (told.sqlstate.code(), &*told.message),
        ("57014", "canceling statement due to statement timeout")
    );
    run(&mut session, "begin");
    run(&mut session, "savepoint s");
    assert_eq!(code(&mut session, "update t set v = 1"), "57014");
    run(&mut session, "rollback to s");
    assert_eq!(tag(&mut session, "update t set v = 1 where id = 2"), "UPDATE 1");
    run(&mut session, "commit");
    run(&mut session, "set statement_timeout = 0");
    let cancel = session.cancel();
    let asked = thread::spawn(move || {
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(5));
            cancel.request();
        }
    });
    assert_eq!(code(&mut session, "update t set v = 1 where id = 1"), "57014");
    asked.join().unwrap();
    run(&mut holder, "rollback");
    assert_eq!(tag(&mut session, "update t set v = 1 where id = 1"), "UPDATE 1");
}

/// What was announced for a statement that did not run is not in force for a later one.
#[test]
fn a_pipeline_is_committed_whole_although_an_earlier_end_was_announced() {
    let (partitions, mut session) = with_table(2, 10);
    let execute = |session: &mut rialto_sql::Session, sql: &str| {
        let prepared = session.prepare(sql, &[])?;
        session.execute(&prepared, &[], &mut rialto_sql::run::Collected::default())
    };
    session.announce_end();
    let told = session.prepare("select nonsense from t", &[]).map(drop).unwrap_err();
    session.fail(&told).unwrap();
    session.announce_end();
    session.finish().unwrap();
    execute(&mut session, "delete from t where id = 1").unwrap();
    let told = execute(&mut session, "insert into t values (2, 0, 'x')").unwrap_err();
    session.fail(&told).unwrap();
    assert_eq!(counts(&partitions, "t").iter().sum::<u64>(), 10);
    // Both are committed at the end.
    execute(&mut session, "delete from t where id = 1").unwrap();
    execute(&mut session, "delete from t where id = 2").unwrap();
    assert!(session.is_in_implicit_block());
    session.finish().unwrap();
    assert_eq!(counts(&partitions, "t").iter().sum::<u64>(), 8);
}

/// A victim that is alone in its transaction runs again.
#[test]
fn a_victim_is_retried_if_its_statement_stands_alone() {
    let (partitions, _session) = with_table(1, 2);
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let mut session = partitions.session();
            thread::spawn(move || {
                for round in 0..50 {
                    let order = if (number + round) % 2 == 0 { "id" } else { "id desc" };
                    let list = if order == "id" { "(1, 2)" } else { "(2, 1)" };
                    run(&mut session, &format!("update t set v = v + 1 where id in {list}"));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(value(&mut partitions.session(), "select count(*) from t where v in (201, 202)"), "2");
}

/// Branches of one transaction read with locks, so that a transfer is never seen half.
#[test]
fn sums_over_partitions_are_those_of_one_moment() {
    let (partitions, mut session) = with_table(4, 8);
    run(&mut session, "update t set v = 100");
    let mover = {
        let mut session = partitions.session();
        thread::spawn(move || {
            for round in 0..100 {
                let (from, to) = (round % 8 + 1, (round * 3 + 1) % 8 + 1);
                if from == to {
                    continue;
                }
                let (first, second) = (from.min(to), from.max(to));
                run(&mut session, "begin");
                for id in [first, second] {
                    let sign = if id == from { "-" } else { "+" };
                    run(&mut session, &format!("update t set v = v {sign} 7 where id = {id}"));
                }
                run(&mut session, "commit");
            }
        })
    };
    run(&mut session, "set lock_timeout = '50ms'");
    let mut looked = 0;
    while !mover.is_finished() {
        let rows = crate::try_run(&mut session, "select v from t", None);
        if let Ok((rows, _)) = rows {
            let sum: i32 = rows.iter().map(|row| row[0].parse::<i32>().unwrap()).sum();
            assert_eq!(sum, 800);
            looked += 1;
        }
    }
    mover.join().unwrap();
    assert!(looked > 0);
}
