//! Replicas that are read while their redo, or what they hear of the primary, comes late.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::Scan;
use rialto_cluster::control::Access;
use rialto_cluster::node::NotRead;

use crate::cluster::Cluster;
use crate::reads::{begin_to_read, code, comes, one_partition, readable, session_with, told};
use crate::sql::{bank, run, session, try_run};

const HOUR: Duration = Duration::from_secs(3600);

/// Reads all accounts, then holds them for some time.
fn hold_accounts(tx: &mut rialto::Transaction<'static>, time: Duration) -> rialto::Result<()> {
    let accounts = tx.table("accounts")?;
    tx.scan(&accounts, &Scan::all(), |_, _| Ok(ControlFlow::Continue(())))?;
    std::thread::sleep(time);
    Ok(())
}

/// Each of the reads is short, and the redo goes on between two of them by one transaction only. Still it gets through.
#[test]
fn short_reads_that_overlap_do_not_keep_the_redo_behind() {
    let cluster = Cluster::calm_and_yielding("overlapping", 2, Duration::from_millis(100));
    let cluster = one_partition(cluster, 2);
    let mut writer = session(&cluster, 0);
    bank(&mut writer);
    let position = run(&mut writer, "SHOW rialto.commit_position")[0][0].clone();
    let replica = cluster.replica(1, 0);
    comes("the replica has the accounts", || {
        replica.read_here(HOUR, Some(told(&position)), Duration::ZERO).is_ok()
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(permit) = replica.read_here(HOUR, None, Duration::from_millis(5)) else {
                        continue;
                    };
                    match permit.read(|tx| hold_accounts(tx, Duration::from_millis(50))) {
                        Ok(()) | Err(NotRead::GaveWay) => {}
                        // The victim of a deadlock with the redo.
                        Err(NotRead::Failed(rialto::Error::Deadlock { .. })) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
        let through = || {
            (0..300).for_each(|_| {
                drop(run(&mut writer, "UPDATE accounts SET balance = balance + 1 WHERE id = 7"))
            });
            let position = run(&mut writer, "SHOW rialto.commit_position")[0][0].clone();
            comes("the redo is through", || {
                replica.read_here(HOUR, Some(told(&position)), Duration::ZERO).is_ok()
            });
        };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(through));
        stop.store(true, Ordering::Relaxed);
        ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(replica.reads_ended() > 0);
}

/// A session finds a table that was made, at a node whose replica has not redone that yet.
#[test]
fn a_definition_that_comes_late_is_waited_for() {
    let cluster = Cluster::calm_and_yielding("late-definition", 2, Duration::from_millis(600));
    let cluster = one_partition(cluster, 2);
    let mut writer = session(&cluster, 0);
    bank(&mut writer);
    let mut reader = session_with(&cluster, 1, "accounts");
    begin_to_read(&cluster, &mut reader, &mut writer);
    let mut session = session_with(&cluster, 1, "accounts");
    // The redo waits for the reader.
    run(&mut writer, "UPDATE accounts SET balance = balance + 1");
    run(&mut writer, "CREATE TABLE own (id bigint PRIMARY KEY)");
    run(&mut session, "INSERT INTO own VALUES (1)");
    assert_eq!(code(&mut session, "SELECT id FROM none"), "42P01");
}

/// A primary has a definition that another partition has decided once it has heard of that. A statement waits for it; it does not
/// take what is prepared for what is not there.
#[test]
fn a_definition_that_is_prepared_is_waited_for() {
    let cluster = one_partition(Cluster::calm("prepared-definition", 1, 1, 1), 1);
    let mut session = session(&cluster, 0);
    bank(&mut session);
    let replica = cluster.replica(0, 0);
    let lead = replica.lead().unwrap();
    let options = rialto::TxOptions { may_prepare: true, ..rialto::TxOptions::default() };
    let mut tx = lead.database().begin_with(&options).unwrap();
    let columns = vec![rialto::row::Column::new("id", rialto::row::ColumnType::Int8)];
    tx.create_table(&rialto::TableDef::new("own", columns).with_primary_key(&["id"])).unwrap();
    tx.prepare("in-doubt", &[]).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let told = code(&mut session, "SELECT id FROM none");
            (told, has_ended.load(Ordering::SeqCst))
        });
        std::thread::sleep(Duration::from_millis(100));
        has_ended.store(true, Ordering::SeqCst);
        lead.database().abort_prepared("in-doubt").unwrap().wait().unwrap();
        assert_eq!(asks.join().unwrap(), ("42P01".to_owned(), true));
    });
}

/// A node that hears of no primary does not say that something is not there. Its statement can be ended meanwhile.
#[test]
fn a_definition_that_may_be_late_is_not_told_to_be_missing() {
    let mut cluster = one_partition(Cluster::calm("unknown-definition", 2, 1, 2), 2);
    let mut writer = session(&cluster, 0);
    bank(&mut writer);
    let mut session = session_with(&cluster, 1, "accounts");
    assert_eq!(code(&mut session, "SELECT id FROM none"), "42P01");
    // Without the store it does not lead.
    cluster.clients[1].set_access(Access::Away);
    cluster.stop(0);
    assert_eq!(code(&mut session, "SELECT id FROM none"), "40001");
    // What needs no table is told at once.
    assert_eq!(code(&mut session, "SHOW nothing.of_the_kind"), "42704");
    let cancel = session.cancel();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::SeqCst) {
                cancel.request();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let told = code(&mut session, "SELECT id FROM none");
        has_ended.store(true, Ordering::SeqCst);
        assert_eq!(told, "57014");
    });
    run(&mut session, "SET statement_timeout = '20ms'");
    assert_eq!(code(&mut session, "SELECT id FROM none"), "57014");
}

/// Each statement of a block has what was answered longer ago than the session accepts, not only the first one.
#[test]
fn a_block_does_not_go_on_at_a_replica_that_grows_old() {
    let mut cluster = one_partition(Cluster::calm("block-grows-old", 2, 1, 2), 2);
    let mut writer = session(&cluster, 0);
    bank(&mut writer);
    run(&mut writer, "CREATE TABLE other (id bigint PRIMARY KEY)");
    let mut reader = session_with(&cluster, 1, "other");
    begin_to_read(&cluster, &mut reader, &mut writer);
    // The block that is open accepts an hour; the next one less.
    assert!(run(&mut reader, "SELECT id FROM other").is_empty());
    run(&mut reader, "COMMIT");
    run(&mut reader, "RESET rialto.read_after");
    run(&mut reader, "SET rialto.read_staleness = '2s'");
    comes("the block reads at the replica", || {
        run(&mut reader, "BEGIN READ ONLY");
        run(&mut reader, "SELECT balance FROM accounts");
        let reads = cluster.replica(1, 0).readers() == 1;
        if !reads {
            run(&mut reader, "COMMIT");
        }
        reads
    });
    // Without the store it does not lead.
    cluster.clients[1].set_access(Access::Away);
    cluster.stop(0);
    let mut refused = None;
    comes("the block is too old", || {
        refused = try_run(&mut reader, "SELECT id FROM other").err();
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!(refused.sqlstate.code(), "40001");
    assert!(refused.to_string().contains("older by now"), "{refused}");
}

/// A question for a position has an end, whatever keeps the primary from its answer.
#[test]
fn a_question_for_a_position_hears_the_statement_timeout() {
    let mut cluster = one_partition(Cluster::calm("no-position", 2, 1, 2), 2);
    let mut writer = session(&cluster, 0);
    run(&mut writer, "CREATE TABLE own (id bigint PRIMARY KEY)");
    readable(&cluster, 1);
    // The primary cannot drop the replica, which takes nothing.
    cluster.clients[0].set_access(Access::Away);
    cluster.stop(1);
    run(&mut writer, "SET rialto.durability = 'memory'");
    run(&mut writer, "INSERT INTO own VALUES (1)");
    run(&mut writer, "SET statement_timeout = '100ms'");
    assert_eq!(code(&mut writer, "SHOW rialto.commit_position"), "57014");
}
