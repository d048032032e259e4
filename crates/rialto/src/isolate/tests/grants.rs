//! Granting, re-entrance, upgrades, fairness, release, slots.

use std::sync::mpsc;
use std::thread;

use super::{INDEX, manager, name, patient, refusing, until_waiting};
use crate::ids::{IndexId, TableId};
use crate::isolate::central::head::{HEADS_KEPT, Heads, LockAnswer, LockRequest, Release, WaitOutcome};
use crate::isolate::name::HeadName;
use crate::isolate::slot::HELD_KEPT;
use crate::isolate::{Acquired, LockError, LockManager, LockMode, LockName, LockOptions, Owner, RecordMode};
use crate::probes::PROBES;
use crate::seed::keys_of_one_slot;

const TABLE: TableId = TableId(3);

#[test]
fn a_table_lock_is_granted_exactly_beside_compatible_ones() {
    use LockMode::{Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive};
    let modes = [IntentShared, IntentExclusive, Shared, SharedIntentExclusive, Exclusive];
    let granted = [
        [true, true, true, true, false],
        [true, true, false, false, false],
        [true, false, true, false, false],
        [true, false, false, false, false],
        [false, false, false, false, false],
    ];
    let manager = manager();
    for (row, held) in modes.into_iter().enumerate() {
        for (column, asked) in modes.into_iter().enumerate() {
            let (mut one, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
            assert_eq!(manager.table(&mut one, TABLE, held, &refusing()), Ok(Acquired::New));
            let answer = manager.table(&mut other, TABLE, asked, &refusing());
            let expected = if granted[row][column] { Ok(Acquired::New) } else { Err(LockError::WouldWait) };
            assert_eq!(answer, expected, "{asked:?} beside {held:?}");
            manager.end(one);
            manager.end(other);
        }
    }
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn locks_are_re_entrant_and_upgrade() {
    let manager = manager();
    let mut owner = manager.begin().unwrap();
    let lock = |owner: &mut _, mode| manager.record(owner, name(b"a"), b"a", mode, &refusing());
    assert_eq!(lock(&mut owner, RecordMode::Shared), Ok(Acquired::New));
    assert_eq!(lock(&mut owner, RecordMode::Shared), Ok(Acquired::Held));
    assert_eq!(lock(&mut owner, RecordMode::Exclusive), Ok(Acquired::Upgraded));
    assert_eq!(lock(&mut owner, RecordMode::Shared), Ok(Acquired::Held));
    assert_eq!(manager.table(&mut owner, TABLE, LockMode::IntentExclusive, &refusing()), Ok(Acquired::New));
    assert_eq!(manager.table(&mut owner, TABLE, LockMode::Shared, &refusing()), Ok(Acquired::Upgraded));
    assert_eq!(
        manager.table(&mut owner, TABLE, LockMode::SharedIntentExclusive, &refusing()),
        Ok(Acquired::Held),
        "IX and S together are SIX"
    );
    assert_eq!(owner.locks_held(), 2);
    manager.release_all(&mut owner);
    assert!(!owner.holds_any());
    assert_eq!(manager.locks_now(), 0);
    manager.end(owner);
}

#[test]
fn names_of_equal_hash_in_two_indexes_are_two_locks() {
    let manager = manager();
    let (mut one, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    let elsewhere = LockName { index: IndexId(8), ..name(b"a") };
    manager.record(&mut one, name(b"a"), b"a", RecordMode::Exclusive, &refusing()).unwrap();
    assert_eq!(
        manager.record(&mut other, elsewhere, b"a", RecordMode::Exclusive, &refusing()),
        Ok(Acquired::New)
    );
    assert_eq!(
        manager.record(&mut other, name(b"a"), b"a", RecordMode::Shared, &refusing()),
        Err(LockError::WouldWait)
    );
    manager.end(one);
    assert_eq!(
        manager.record(&mut other, name(b"a"), b"a", RecordMode::Shared, &refusing()),
        Ok(Acquired::New)
    );
    manager.end(other);
}

#[test]
fn requests_are_granted_in_order_and_sharers_together() {
    let manager = manager();
    let mut first = manager.begin().unwrap();
    manager.record(&mut first, name(b"k"), b"k", RecordMode::Exclusive, &patient()).unwrap();
    let (sender, order) = mpsc::channel();
    let modes = [
        RecordMode::Shared,
        RecordMode::Shared,
        RecordMode::Exclusive,
        RecordMode::Shared,
        RecordMode::Exclusive,
    ];
    thread::scope(|scope| {
        for (at, mode) in modes.into_iter().enumerate() {
            let (manager, sender) = (&manager, sender.clone());
            scope.spawn(move || {
                let mut owner = manager.begin().unwrap();
                manager.record(&mut owner, name(b"k"), b"k", mode, &patient()).unwrap();
                sender.send(at).unwrap();
                manager.end(owner);
            });
            until_waiting(manager, at + 1);
        }
        manager.release_all(&mut first);
    });
    let mut order: Vec<usize> = order.try_iter().collect();
    order[..2].sort_unstable();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    manager.end(first);
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn a_new_sharer_does_not_overtake_a_waiting_writer() {
    let manager = manager();
    let (mut reader, mut late) = (manager.begin().unwrap(), manager.begin().unwrap());
    manager.record(&mut reader, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = manager.begin().unwrap();
            manager.record(&mut writer, name(b"k"), b"k", RecordMode::Exclusive, &patient()).unwrap();
            manager.end(writer);
        });
        until_waiting(&manager, 1);
        let answer = manager.record(&mut late, name(b"k"), b"k", RecordMode::Shared, &refusing());
        assert_eq!(answer, Err(LockError::WouldWait));
        manager.release_all(&mut reader);
    });
    assert_eq!(
        manager.record(&mut late, name(b"k"), b"k", RecordMode::Shared, &refusing()),
        Ok(Acquired::New)
    );
    manager.end(reader);
    manager.end(late);
}

/// A head of a record, and what its requests are told.
struct OfHead {
    heads: Heads,
    at: u32,
    told: Vec<WaitOutcome>,
}

impl OfHead {
    fn new(name: HeadName) -> OfHead {
        let mut heads = Heads::default();
        let at = heads.find_or_insert(name);
        OfHead { heads, at, told: Vec::new() }
    }

    /// Whether the request is granted at once. Otherwise it waits, as one that has asked again `retries` times.
    fn ask(&mut self, owner: u16, mode: LockMode, retries: u32) -> bool {
        let head = self.heads.at(self.at);
        head.come_back(owner);
        match head.ask(owner, mode) {
            LockAnswer::Wait(request) => {
                head.enqueue(LockRequest { retries, ..request });
                false
            }
            _ => true,
        }
    }

    /// What the release tells to which owner.
    fn release(&mut self, owner: u16) -> Vec<WaitOutcome> {
        self.release_as(Release::Ordinary, owner)
    }

    fn release_as(&mut self, by: Release, owner: u16) -> Vec<WaitOutcome> {
        let (head, told) = (self.heads.at(self.at), &mut self.told);
        assert!(head.release(owner));
        head.grant_waiting(by, |it| told.push(it));
        std::mem::take(told)
    }
}

/// The first waiter is told to ask again, once, while other owners take the lock. It keeps its position before later
/// requests, and is granted the lock after three tries that found the lock taken.
#[test]
fn a_released_record_goes_to_the_first_request_that_asks() {
    use LockMode::Exclusive;
    let mut head = OfHead::new(HeadName::record(name(b"k")));
    assert!(head.ask(1, Exclusive, 0));
    assert!(!head.ask(2, Exclusive, 0) && !head.ask(3, Exclusive, 0));
    assert_eq!(head.release(1), [WaitOutcome::Retry(2)]);
    for retries in 1..=3 {
        // Another owner takes the lock and releases it meanwhile: the one that was told has not asked yet.
        assert!(head.ask(4, Exclusive, 0));
        assert_eq!(head.release(4), []);
        assert!(head.ask(1, Exclusive, 0));
        assert!(!head.ask(2, Exclusive, retries), "it is held");
        let told = if retries < 3 { WaitOutcome::Retry(2) } else { WaitOutcome::Granted(2) };
        assert_eq!(head.release(1), [told], "it stands before 3");
    }
    assert!(!head.ask(4, Exclusive, 0));
    assert_eq!(head.release(2), [WaitOutcome::Retry(3)]);
    assert!(head.ask(3, Exclusive, 1));
    assert_eq!(head.release(3), [WaitOutcome::Retry(4)]);
}

#[test]
fn what_a_victim_releases_is_granted_to_the_first_waiter() {
    use LockMode::Exclusive;
    let mut head = OfHead::new(HeadName::record(name(b"k")));
    assert!(head.ask(1, Exclusive, 0));
    assert!(!head.ask(2, Exclusive, 0) && !head.ask(3, Exclusive, 0));
    assert_eq!(head.release_as(Release::Victim, 1), [WaitOutcome::Granted(2)]);
    assert_eq!(head.release(2), [WaitOutcome::Retry(3)]);
}

/// A victim that runs again at once does not overtake the transaction that it was aborted for. The next transaction
/// of its slot releases its locks as others do.
#[test]
fn a_victim_that_runs_again_finds_its_lock_taken() {
    let manager = &*manager();
    let (hot, other) = (name(b"hot"), name(b"other"));
    let exclusive = RecordMode::Exclusive;
    for _ in 0..20 {
        let mut older = manager.begin().unwrap();
        manager.record(&mut older, other, b"other", exclusive, &patient()).unwrap();
        thread::scope(|scope| {
            let (victim_holds, has) = mpsc::channel();
            let again = scope.spawn(move || {
                let mut victim = manager.begin().unwrap();
                manager.record(&mut victim, hot, b"hot", exclusive, &patient()).unwrap();
                victim_holds.send(()).unwrap();
                let told = manager.record(&mut victim, other, b"other", exclusive, &patient());
                assert_eq!(told.unwrap_err(), LockError::Deadlock);
                assert_eq!(manager.slot(&victim).release(), Release::Victim);
                manager.close(&mut victim);
                manager.open(&mut victim, manager.now());
                let told = manager.record(&mut victim, hot, b"hot", exclusive, &refusing());
                assert_eq!(manager.slot(&victim).release(), Release::Ordinary);
                manager.end(victim);
                told.map(drop)
            });
            has.recv().unwrap();
            until_waiting(manager, 1);
            manager.record(&mut older, hot, b"hot", exclusive, &patient()).unwrap();
            assert_eq!(again.join().unwrap(), Err(LockError::WouldWait), "the older one has it");
            manager.end(older);
        });
    }
}

#[test]
fn readers_and_requests_for_a_table_are_granted_what_is_free() {
    use LockMode::{Exclusive, Shared};
    let mut record = OfHead::new(HeadName::record(name(b"k")));
    assert!(record.ask(1, Exclusive, 0));
    assert!(!record.ask(2, Shared, 0) && !record.ask(3, Shared, 0) && !record.ask(4, Exclusive, 0));
    assert_eq!(record.release(1), [WaitOutcome::Granted(2), WaitOutcome::Granted(3)]);
    assert!(!record.ask(5, Shared, 0), "it would overtake a writer");
    let mut table = OfHead::new(HeadName::table(TABLE));
    assert!(table.ask(1, Exclusive, 0));
    assert!(!table.ask(2, Exclusive, 0) && !table.ask(3, Exclusive, 0));
    assert_eq!(table.release(1), [WaitOutcome::Granted(2)]);
}

#[test]
fn an_upgrade_goes_before_new_requests() {
    let manager = manager();
    let (sender, order) = mpsc::channel();
    let (mut one, mut two) = (manager.begin().unwrap(), manager.begin().unwrap());
    manager.record(&mut one, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
    manager.record(&mut two, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
    thread::scope(|scope| {
        let new = sender.clone();
        let manager = &manager;
        scope.spawn(move || {
            let mut owner = manager.begin().unwrap();
            manager.record(&mut owner, name(b"k"), b"k", RecordMode::Exclusive, &patient()).unwrap();
            new.send("new").unwrap();
            manager.end(owner);
        });
        until_waiting(manager, 1);
        scope.spawn(move || {
            let answer = manager.record(&mut one, name(b"k"), b"k", RecordMode::Exclusive, &patient());
            assert_eq!(answer, Ok(Acquired::Upgraded));
            sender.send("upgrade").unwrap();
            manager.end(one);
        });
        until_waiting(manager, 2);
        manager.end(two);
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["upgrade", "new"]);
}

#[test]
fn an_early_release_gives_back_one_lock() {
    let manager = manager();
    let (mut one, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    for key in [b"a", b"b", b"c"] {
        manager.record(&mut one, name(key), key, RecordMode::Exclusive, &refusing()).unwrap();
    }
    manager.release_early(&mut one, name(b"b"));
    manager.release_early(&mut one, name(b"absent"));
    assert_eq!(one.locks_held(), 2);
    assert!(manager.record(&mut other, name(b"b"), b"b", RecordMode::Exclusive, &refusing()).is_ok());
    assert!(manager.record(&mut other, name(b"a"), b"a", RecordMode::Exclusive, &refusing()).is_err());
    manager.end(one);
    manager.end(other);
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn slots_run_out_and_come_back() {
    let manager = LockManager::new(LockOptions { owners_max: 3, ..LockOptions::default() });
    let owners: Vec<_> = (0..3).map(|_| manager.begin().unwrap()).collect();
    assert!(manager.begin().is_none());
    let mut ids: Vec<u16> = owners.iter().map(|owner| owner.id()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2]);
    // A slot that another thread gives back is still found.
    thread::scope(|scope| {
        scope.spawn(|| owners.into_iter().for_each(|owner| manager.end(owner)));
    });
    let again: Vec<_> = (0..3).map(|_| manager.begin().unwrap()).collect();
    assert!(manager.begin().is_none());
    again.into_iter().for_each(|owner| manager.end(owner));
}

#[test]
fn many_locks_fit_and_are_all_given_back() {
    let manager = manager();
    let mut owner = manager.begin().unwrap();
    for round in 0..2 {
        for key in 0..20_000_u32 {
            let key = key.to_be_bytes();
            let answer = manager.record(
                &mut owner,
                manager.name(INDEX, &key),
                &key,
                RecordMode::Exclusive,
                &refusing(),
            );
            assert_eq!(answer, Ok(Acquired::New), "round {round}");
        }
        assert_eq!(manager.locks_now(), 20_000);
        manager.release_all(&mut owner);
        assert_eq!(manager.locks_now(), 0);
    }
    assert_eq!(manager.counters().row, 40_000);
    manager.end(owner);
}

/// Keys whose hashes by a known seed are in one chain of one partition.
fn keys_of_one_chain() -> Vec<[u8; 8]> {
    keys_of_one_slot(200, |key| {
        let spread = HeadName::record(name(key)).spread();
        spread >> 48 & 0xff | spread & 0xff
    })
}

#[test]
fn keys_that_a_client_chooses_do_not_share_a_chain() {
    let manager = manager();
    let mut owner = manager.begin().unwrap();
    let looks = PROBES.get();
    for key in keys_of_one_chain() {
        let name = manager.name(INDEX, &key);
        manager.record(&mut owner, name, &key, RecordMode::Exclusive, &refusing()).unwrap();
    }
    let looks = PROBES.get() - looks;
    assert!(looks < 2_000, "{looks} looks for 200 locks");
    manager.end(owner);
}

#[test]
fn the_memory_of_many_locks_goes_with_the_last_of_them() {
    let manager = manager();
    let mut owner = manager.begin().unwrap();
    for key in 0..100_000_u32 {
        let name = manager.name(INDEX, &key.to_be_bytes());
        manager.record(&mut owner, name, b"key", RecordMode::Shared, &refusing()).unwrap();
    }
    let room = || manager.partitions.iter().map(|heads| heads.lock().capacity()).sum::<usize>();
    assert!(room() >= 100_000);
    manager.release_all(&mut owner);
    assert!(room() <= 256 * HEADS_KEPT, "room for {} heads", room());
    assert!(owner.body.records.capacity() <= HELD_KEPT);
    assert_eq!(manager.locks_now(), 0);
    manager.end(owner);
}

#[test]
fn an_owner_gets_so_many_locks_on_names_and_no_more() {
    let manager = LockManager::new(LockOptions { locks_max: 3, ..LockOptions::default() });
    let (mut one, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    let ask = |owner: &mut Owner, key: &[u8]| {
        manager.record(owner, manager.name(INDEX, key), key, RecordMode::Exclusive, &refusing())
    };
    for key in [b"a", b"b", b"c"] {
        assert_eq!(ask(&mut one, key), Ok(Acquired::New));
    }
    assert_eq!(ask(&mut one, b"d"), Err(LockError::TooMany { limit: 3 }));
    assert_eq!(ask(&mut one, b"c"), Ok(Acquired::Held));
    assert_eq!(ask(&mut other, b"d"), Ok(Acquired::New), "what was refused is free");
    manager.release_all(&mut one);
    assert_eq!(ask(&mut one, b"a"), Ok(Acquired::New));
    manager.end(one);
    manager.end(other);
    assert_eq!(manager.locks_now(), 0);
}
