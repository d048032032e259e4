//! Waits for locks, and which part of them is the wait of others for the disk.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::{cold_with, options};
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::io::Clock;
use crate::row::Value;
use crate::txn::two_stage::TwoStage;
use crate::{Database, Engine, Error, Options, Result, Table, Transaction};

fn open() -> (Database, Table) {
    cold_with(Options { engine: Engine::central(), ..options(TwoStage::TwoPhaseLocking) })
}

/// As if a page came so slowly.
fn wait_for_disk(time: Duration) {
    let _waiting = WaitGuard::enter(&Clock::System, Awaited::Page);
    thread::sleep(time);
}

fn change(tx: &mut Transaction<'_>, table: &Table) -> Result<()> {
    tx.update(table, 0, &[(1, Value::Int4(1))]).map(|there| assert!(there))
}

/// A transaction changes the row and ends after `held`; meanwhile the waiter begins.
fn beside_holder(db: &Database, table: &Table, held: impl Fn() + Send + Sync, waiter: impl FnOnce()) {
    let locked = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            db.transact(|tx| {
                change(tx, table)?;
                locked.wait();
                held();
                Ok(())
            })
            .unwrap();
        });
        locked.wait();
        waiter();
    });
}

/// How long transactions waited for locks, and how much of it was for the disk, in milliseconds.
fn waited_ms(db: &Database) -> (u64, u64) {
    let locks = db.metrics().locks;
    (locks.wait_ns / 1_000_000, locks.wait_for_disk_ns / 1_000_000)
}

#[test]
fn a_wait_for_a_lock_tells_how_much_of_it_was_the_holders_wait_for_the_disk() {
    let (db, table) = open();
    let time = Duration::from_millis(50);
    beside_holder(&db, &table, || thread::sleep(time), || db.transact(|tx| change(tx, &table)).unwrap());
    let (waited, for_disk) = waited_ms(&db);
    assert!(waited > 0 && for_disk == 0, "{waited} {for_disk}");
    let holds = || {
        thread::sleep(time);
        wait_for_disk(2 * time);
    };
    beside_holder(&db, &table, holds, || db.transact(|tx| change(tx, &table)).unwrap());
    let (waited_in_all, for_disk) = waited_ms(&db);
    assert!(for_disk >= 100 && for_disk <= waited_in_all - waited, "{for_disk} of {waited_in_all}");
    let of_procedures: u64 =
        db.metrics().procedures.iter().map(|account| account.time.lock_wait_for_disk_ns).sum();
    assert_eq!(of_procedures / 1_000_000, for_disk);
    db.close().unwrap();
}

/// The one that waits behind a waiter waits for the disk of the first, too.
#[test]
fn waits_for_the_disk_are_told_along_a_chain_of_waits() {
    let (db, table) = open();
    let second = || {
        thread::scope(|scope| {
            scope.spawn(|| db.transact(|tx| change(tx, &table)).unwrap());
            db.transact(|tx| change(tx, &table)).unwrap();
        });
    };
    beside_holder(&db, &table, || wait_for_disk(Duration::from_millis(200)), second);
    let (waited, for_disk) = waited_ms(&db);
    assert!(waited >= 200 && for_disk > waited * 2 / 3, "both: {for_disk} of {waited}");
    db.close().unwrap();
}

/// The last of several holders grants the lock, and the others have told before.
#[test]
fn each_of_several_readers_tells_when_it_waited_for_the_disk() {
    let (db, table) = open();
    let locked = Barrier::new(3);
    let read = |then: &dyn Fn()| {
        db.transact(|tx| {
            assert!(tx.get(&table, 0)?.is_some());
            locked.wait();
            then();
            Ok(())
        })
        .unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| read(&|| wait_for_disk(Duration::from_millis(200))));
        scope.spawn(|| read(&|| thread::sleep(Duration::from_millis(300))));
        locked.wait();
        db.transact(|tx| change(tx, &table)).unwrap();
    });
    let (waited, for_disk) = waited_ms(&db);
    assert!(for_disk >= 100 && for_disk < waited, "{for_disk} of {waited}");
    db.close().unwrap();
}

#[test]
fn what_an_aborted_transaction_waited_for_is_not_told_by_the_next() {
    let (db, table) = open();
    beside_holder(
        &db,
        &table,
        || wait_for_disk(Duration::from_millis(100)),
        || {
            let given_up = db.transact(|tx| {
                change(tx, &table)?;
                Err::<(), _>(Error::aborted("enough"))
            });
            assert!(given_up.is_err());
        },
    );
    assert!(waited_ms(&db).1 >= 50);
    beside_holder(
        &db,
        &table,
        || thread::sleep(Duration::from_millis(20)),
        || {
            db.transact(|tx| change(tx, &table)).unwrap();
        },
    );
    for account in db.metrics().procedures {
        assert_eq!(account.time.lock_wait_for_disk_ns, 0, "{account:?}");
    }
    db.close().unwrap();
}

/// A transaction of a handle tells nothing of those before it on its thread.
#[test]
fn the_times_of_a_handles_transaction_end_with_it() {
    let (db, table) = open();
    let mut tx = db.begin().unwrap();
    change(&mut tx, &table).unwrap();
    wait_for_disk(Duration::from_millis(5));
    assert!(crate::account::disk_waits::are_there());
    tx.commit().unwrap();
    assert!(!crate::account::disk_waits::are_there());
    db.close().unwrap();
}
