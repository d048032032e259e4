//! Times that never end: an administrator disables a limit by the longest time.

use std::time::Duration;

use crate::common::in_time;
use rialto::io::{Caching, MemoryDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, GroupCommitDesign, Options, Table, TableDef, TxOptions};

/// The limit of each test: if a thread has ended, others would wait for it for ever.
const LIMIT: Duration = Duration::from_secs(300);
const CLIENTS: i32 = 4;
const TEXT: usize = 30_000;

/// All times without a bound of their own are endless. There are so few packets, and so little log, that transactions
/// wait for both.
fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        log_bytes_max: 16 << 20,
        transactions_max: CLIENTS as usize,
        packets_max: 1,
        log_writes: Some(Caching::Buffered),
        log_writes_in_flight: Some(1),
        checkpoint_interval: Duration::MAX,
        lock_timeout: Duration::MAX,
        memory_flush_interval: Duration::MAX,
        log_wait_max: Duration::MAX,
        ..Options::default()
    }
}

fn text(table: &Table, db: &Database, id: i32, options: &TxOptions) {
    let row = [Value::Int4(id), Value::Text("x".repeat(TEXT))];
    db.transact_with(options, |tx| {
        tx.delete(table, id)?;
        tx.insert(table, &row)
    })
    .unwrap();
}

/// Commits at both levels, twice as much as the log holds. The log server, the checkpointer and transactions that wait
/// for room go on.
fn use_it(db: Database, about: &str) {
    let table = db
        .transact(|tx| {
            let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
            tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))
        })
        .unwrap();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for nth in 0..(32 << 20) / TEXT as i32 / CLIENTS {
                    let level = if nth % 8 == 0 { Durability::Disk } else { Durability::Memory };
                    let endless = TxOptions {
                        durability: Some(level),
                        timeout: Some(Duration::MAX),
                        lock_timeout: Some(Duration::MAX),
                        ..TxOptions::default()
                    };
                    text(table, db, client, &endless);
                }
            });
        }
    });
    let metrics = db.metrics();
    assert_eq!(metrics.checkpoints.failure, None, "{about}");
    assert!(metrics.checkpoints.completed > 0, "{about}");
    db.checkpoint().unwrap();
    db.close().unwrap();
}

#[test]
fn the_longest_times_that_there_are_are_never_over() {
    in_time(LIMIT, || {
        for design in [GroupCommitDesign::LogServer, GroupCommitDesign::Hiber] {
            for checkpoint in [Checkpointing::Fuzzy, Checkpointing::TransactionCopyOnUpdate] {
                let options = Options { checkpoint, group_commit: design.into(), ..options() };
                let db = Database::open_on(MemoryDisk::new(), options).unwrap();
                use_it(db, &format!("{design}, {checkpoint:?}"));
            }
        }
    });
}

/// With a recovery target the interval is the longest time of a sweep.
#[test]
fn an_endless_sweep_follows_the_recovery_target() {
    in_time(LIMIT, || {
        let options = Options { recovery_within: Some(Duration::from_secs(86_400)), ..options() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        use_it(db, "with a target");
    });
}
