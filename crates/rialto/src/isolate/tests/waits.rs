//! How waits end, and the view of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{INDEX, manager, name, patient, refusing, until_waiting, within};
use crate::ids::TableId;
use crate::io::Moment;
use crate::isolate::{Acquired, LockError, LockMode, LockTarget, RecordMode, Wait};

#[test]
fn a_wait_ends_at_its_timeout_and_leaves_nothing_behind() {
    let manager = manager();
    let (mut holder, mut waiter) = (manager.begin().unwrap(), manager.begin().unwrap());
    manager.record(&mut holder, name(b"k"), b"k", RecordMode::Exclusive, &patient()).unwrap();
    let start = Instant::now();
    let answer =
        manager.record(&mut waiter, name(b"k"), b"k", RecordMode::Shared, &within(Duration::from_millis(30)));
    assert!(
        matches!(answer, Err(LockError::Timeout { waited }) if waited >= Duration::from_millis(30)),
        "{answer:?}"
    );
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(manager.waits().is_empty());
    manager.end(holder);
    assert_eq!(manager.locks_now(), 0);
    assert_eq!(manager.counters().timeouts, 1);
    assert_eq!(manager.counters().waits, 1);
    assert!(manager.counters().wait_ns >= 30_000_000);
    assert_eq!(
        manager.record(&mut waiter, name(b"k"), b"k", RecordMode::Shared, &refusing()),
        Ok(Acquired::New),
        "a time-out is not the end of the owner"
    );
    manager.end(waiter);
}

#[test]
fn a_wait_ends_at_the_transactions_deadline() {
    let manager = manager();
    let (mut holder, mut waiter) = (manager.begin().unwrap(), manager.begin().unwrap());
    manager.table(&mut holder, TableId(1), LockMode::Exclusive, &patient()).unwrap();
    let deadline = Some(Moment::now() + Duration::from_millis(10));
    let wait = Wait { timeout: None, deadline, ..patient() };
    let answer = manager.table(&mut waiter, TableId(1), LockMode::IntentShared, &wait);
    assert!(matches!(answer, Err(LockError::Deadline { .. })), "{answer:?}");
    manager.end(holder);
    manager.end(waiter);
}

#[test]
fn a_request_that_leaves_lets_those_behind_it_go() {
    let manager = manager();
    let mut reader = manager.begin().unwrap();
    manager.record(&mut reader, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = manager.begin().unwrap();
            // Long enough to be seen waiting on a machine that pauses now and then.
            let wait = within(Duration::from_secs(3));
            let answer = manager.record(&mut writer, name(b"k"), b"k", RecordMode::Exclusive, &wait);
            manager.end(writer);
            answer
        });
        until_waiting(&manager, 1);
        // It waits behind the writer. When the writer has left, it is granted the lock beside the first reader.
        let mut second = manager.begin().unwrap();
        let answer = manager.record(&mut second, name(b"k"), b"k", RecordMode::Shared, &patient());
        assert_eq!(answer, Ok(Acquired::New));
        assert!(matches!(writer.join().unwrap(), Err(LockError::Timeout { .. })));
        manager.end(second);
    });
    manager.end(reader);
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn a_wait_can_be_cancelled() {
    let manager = manager();
    let (mut holder, mut waiter) = (manager.begin().unwrap(), manager.begin().unwrap());
    manager.record(&mut holder, name(b"k"), b"k", RecordMode::Exclusive, &patient()).unwrap();
    let cancelled = AtomicBool::new(false);
    let id = waiter.id();
    thread::scope(|scope| {
        let answer = scope.spawn(|| {
            let wait = Wait { timeout: None, cancelled: &cancelled, ..patient() };
            manager.record(&mut waiter, name(b"k"), b"k", RecordMode::Exclusive, &wait)
        });
        until_waiting(&manager, 1);
        cancelled.store(true, Ordering::Release);
        manager.interrupt(id);
        assert_eq!(answer.join().unwrap(), Err(LockError::Cancelled));
    });
    manager.end(holder);
    manager.end(waiter);
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn shutting_down_ends_every_wait() {
    let manager = manager();
    let mut holder = manager.begin().unwrap();
    manager.record(&mut holder, name(b"k"), b"k", RecordMode::Exclusive, &patient()).unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut owner = manager.begin().unwrap();
                    let answer = manager.record(&mut owner, name(b"k"), b"k", RecordMode::Shared, &patient());
                    manager.end(owner);
                    answer
                })
            })
            .collect();
        until_waiting(&manager, 3);
        manager.shut_down();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(LockError::Shutdown));
        }
    });
    manager.end(holder);
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn the_view_names_waiters_holders_keys_and_durations() {
    let manager = manager();
    let (mut one, mut two) = (manager.begin().unwrap(), manager.begin().unwrap());
    let (mut three, mut four) = (manager.begin().unwrap(), manager.begin().unwrap());
    let ids = [one.id(), two.id(), three.id(), four.id()];
    manager.record(&mut one, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
    manager.table(&mut one, TableId(5), LockMode::IntentExclusive, &patient()).unwrap();
    thread::scope(|scope| {
        let manager = &manager;
        scope.spawn(move || {
            manager.record(&mut two, name(b"k"), b"k", RecordMode::Exclusive, &patient()).unwrap();
            manager.end(two);
        });
        until_waiting(manager, 1);
        scope.spawn(move || {
            manager.record(&mut three, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
            manager.end(three);
        });
        until_waiting(manager, 2);
        scope.spawn(move || {
            manager.table(&mut four, TableId(5), LockMode::Shared, &patient()).unwrap();
            manager.end(four);
        });
        until_waiting(manager, 3);
        thread::sleep(Duration::from_millis(5));
        let waits = manager.waits();
        let key = LockTarget::Record { index: INDEX, key: b"k".to_vec() };
        let found: Vec<_> = waits
            .iter()
            .map(|w| (w.waiter, w.holders.as_slice(), w.ahead.as_slice(), w.target.clone(), w.mode))
            .collect();
        assert_eq!(
            found,
            [
                (ids[1], &ids[..1], &[][..], key.clone(), LockMode::Exclusive),
                (ids[2], &[][..], &ids[1..2], key, LockMode::Shared),
                (ids[3], &ids[..1], &[][..], LockTarget::Table(TableId(5)), LockMode::Shared),
            ]
        );
        assert!(waits.iter().all(|wait| wait.waited >= Duration::from_millis(5)));
        assert_eq!(waits[0].target.to_string(), "key 6b of index 7");
        manager.end(one);
    });
    assert!(manager.waits().is_empty());
}
