//! Waits for locks, and which part of them is the wait of others for the disk.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{cold_with, options};
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::io::Clock;
use crate::row::Value;
use crate::txn::two_stage::TwoStage;
use crate::{Database, Engine, Error, KeyBound, Options, Result, Scan, Table, Transaction};

const SOME: Duration = Duration::from_millis(50);

fn open() -> (Database, Table) {
    cold_with(Options { engine: Engine::central(), ..options(TwoStage::TwoPhaseLocking) })
}

/// As if a page came so slowly.
fn wait_for_disk(tx: &mut Transaction<'_>, time: Duration) {
    tx.context().page_access.wait_for_tests(|| {
        let _waiting = WaitGuard::enter(&Clock::System, Awaited::Page);
        thread::sleep(time);
    });
}

fn has_waited(tx: &mut Transaction<'_>) -> bool {
    let context = tx.context();
    context.core.locks.disk_waits(&context.owner).are_there()
}

fn change(tx: &mut Transaction<'_>, table: &Table, key: i32) -> Result<()> {
    tx.update(table, key, &[(1, Value::Int4(1))]).map(|there| assert!(there))
}

/// Returns when so many transactions wait for locks.
fn until_waiters(db: &Database, count: u32) {
    while db.core().locks.waiters() < count {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A transaction changes row 0. When the waiter waits for it, it does this and ends.
fn beside_holder(
    db: &Database,
    table: &Table,
    holds: impl Fn(&mut Transaction<'_>) + Send + Sync,
    waiter: impl FnOnce(),
) {
    let locked = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            db.transact(|tx| {
                change(tx, table, 0)?;
                locked.wait();
                until_waiters(db, 1);
                holds(tx);
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

fn accounted_ns(db: &Database) -> u64 {
    db.metrics().procedures.iter().map(|account| account.time.lock_wait_for_disk_ns).sum()
}

#[test]
fn a_wait_for_a_lock_tells_how_much_of_it_was_the_holders_wait_for_the_disk() {
    let (db, table) = open();
    beside_holder(&db, &table, |_| thread::sleep(SOME), || db.transact(|tx| change(tx, &table, 0)).unwrap());
    let (waited, for_disk) = waited_ms(&db);
    assert!(waited >= 50 && for_disk == 0, "{waited} {for_disk}");
    let holds = |tx: &mut Transaction<'_>| {
        thread::sleep(SOME);
        wait_for_disk(tx, 2 * SOME);
    };
    beside_holder(&db, &table, holds, || db.transact(|tx| change(tx, &table, 0)).unwrap());
    let (waited_in_all, for_disk) = waited_ms(&db);
    assert!(for_disk >= 100 && waited_in_all - waited >= for_disk + 49, "{for_disk} of {waited_in_all}");
    assert_eq!(accounted_ns(&db) / 1_000_000, for_disk);
    db.close().unwrap();
}

/// The second waits for the disk of the first, which it has no lock in common with.
#[test]
fn waits_for_the_disk_are_told_along_a_chain_of_waits() {
    let (db, table) = open();
    let (first, second) = (Barrier::new(2), Barrier::new(2));
    let between = |tx: &mut Transaction<'_>| {
        change(tx, &table, 2)?;
        second.wait();
        change(tx, &table, 0)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            db.transact(|tx| {
                change(tx, &table, 0)?;
                first.wait();
                until_waiters(&db, 2);
                wait_for_disk(tx, 4 * SOME);
                Ok(())
            })
            .unwrap();
        });
        first.wait();
        scope.spawn(|| db.transact(between).unwrap());
        second.wait();
        db.transact(|tx| change(tx, &table, 2)).unwrap();
    });
    let (waited, for_disk) = waited_ms(&db);
    assert!(for_disk >= 400, "200 ms each: {for_disk} of {waited}");
    db.close().unwrap();
}

/// The last of several holders grants the lock, and the others have told before.
#[test]
fn each_of_several_readers_tells_when_it_waited_for_the_disk() {
    let (db, table) = open();
    let (locked, has_ended) = (Barrier::new(3), AtomicBool::new(false));
    let read = |then: &dyn Fn(&mut Transaction<'_>)| {
        db.transact(|tx| {
            assert!(tx.get(&table, 0)?.is_some());
            locked.wait();
            until_waiters(&db, 1);
            then(tx);
            Ok(())
        })
        .unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            read(&|tx| wait_for_disk(tx, 4 * SOME));
            has_ended.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            read(&|_| {
                while !has_ended.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(SOME);
            });
        });
        locked.wait();
        db.transact(|tx| change(tx, &table, 0)).unwrap();
    });
    let (waited, for_disk) = waited_ms(&db);
    assert!(for_disk >= 200 && waited >= for_disk + 49, "{for_disk} of {waited}");
    db.close().unwrap();
}

#[test]
fn what_an_aborted_transaction_waited_for_is_not_told_by_the_next() {
    let (db, table) = open();
    beside_holder(
        &db,
        &table,
        |tx| wait_for_disk(tx, 2 * SOME),
        || {
            let given_up = db.transact(|tx| {
                change(tx, &table, 0)?;
                Err::<(), _>(Error::aborted("enough"))
            });
            assert!(given_up.is_err());
        },
    );
    assert!(waited_ms(&db).1 >= 100);
    beside_holder(&db, &table, |_| thread::sleep(SOME), || db.transact(|tx| change(tx, &table, 0)).unwrap());
    assert_eq!((db.metrics().locks.waits, accounted_ns(&db)), (2, 0));
    db.close().unwrap();
}

/// A transaction tells nothing of what its thread has waited for before, nor of what its context's last transaction has.
#[test]
fn the_times_of_a_transaction_are_its_own() {
    let (db, table) = open();
    // The first execution finds out that it touches pages.
    db.transact(|tx| change(tx, &table, 0)).unwrap();
    let waits = |tx: &mut Transaction<'_>| {
        assert!(!has_waited(tx));
        change(tx, &table, 0)?;
        wait_for_disk(tx, Duration::from_millis(1));
        assert!(has_waited(tx));
        Ok(())
    };
    for _ in 0..2 {
        db.transact(waits).unwrap();
        let mut tx = db.begin().unwrap();
        waits(&mut tx).unwrap();
        tx.commit().unwrap();
        // Of a transaction that has touched no page.
        let mut tx = db.begin().unwrap();
        wait_for_disk(&mut tx, Duration::from_millis(1));
        tx.commit().unwrap();
    }
    db.close().unwrap();
}

/// A waiter of one of two transactions, and a waiter of the other: each is told of the waits of its own.
#[test]
fn two_handles_of_a_thread_tell_each_of_its_own_waits() {
    let (db, table) = open();
    let (mut one, mut two) = (db.begin().unwrap(), db.begin().unwrap());
    change(&mut one, &table, 0).unwrap();
    change(&mut two, &table, 2).unwrap();
    thread::scope(|scope| {
        let waits_for = |key| {
            let (db, table) = (&db, &table);
            scope.spawn(move || db.transact(|tx| change(tx, table, key)).unwrap())
        };
        let (of_one, of_two) = (waits_for(0), waits_for(2));
        until_waiters(&db, 2);
        wait_for_disk(&mut one, 2 * SOME);
        two.commit().unwrap();
        of_two.join().unwrap();
        assert_eq!(waited_ms(&db).1, 0, "the first has waited for the disk, and holds another lock");
        one.commit().unwrap();
        of_one.join().unwrap();
    });
    assert!(waited_ms(&db).1 >= 100, "{:?}", waited_ms(&db));
    db.close().unwrap();
}

/// One thread runs its statements, another one commits it.
#[test]
fn a_handle_takes_its_times_to_another_thread() {
    let (db, table) = open();
    let mut holder = db.begin().unwrap();
    change(&mut holder, &table, 0).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| db.transact(|tx| change(tx, &table, 0)).unwrap());
        until_waiters(&db, 1);
        wait_for_disk(&mut holder, 2 * SOME);
        scope.spawn(|| holder.commit().unwrap()).join().unwrap();
        waiter.join().unwrap();
    });
    assert!(waited_ms(&db).1 >= 100, "{:?}", waited_ms(&db));
    db.close().unwrap();
}

/// A scan has locked the gap into which another transaction inserts a row.
#[test]
fn a_wait_for_an_interval_tells_of_the_waits_of_its_holder() {
    let (db, table) = open();
    let (locked, keys) = (Barrier::new(2), 1_000..1_010);
    thread::scope(|scope| {
        scope.spawn(|| {
            db.transact(|tx| {
                let bound = |key: i32| KeyBound::Included(vec![Value::Int4(key)]);
                let range = Scan { lower: bound(keys.start), upper: bound(keys.end), ..Scan::all() };
                assert_eq!(tx.rows(&table, &range)?.count(), 6);
                locked.wait();
                until_waiters(&db, 1);
                wait_for_disk(tx, 2 * SOME);
                Ok(())
            })
            .unwrap();
        });
        locked.wait();
        db.transact(|tx| tx.insert(&table, &super::row(keys.start + 1))).unwrap();
    });
    let (waited, for_disk) = waited_ms(&db);
    assert!(for_disk >= 100 && waited >= for_disk, "{for_disk} of {waited}");
    db.close().unwrap();
}
