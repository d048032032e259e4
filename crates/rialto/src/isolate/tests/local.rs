//! Local lock tables: which requests are granted, in which order, and what happens when keys move.

mod leases;
mod parts;
mod probes;
mod tables_out;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Dice, INDEX, patient, refusing, seed, test_seconds, until_waiting, within};
use crate::catalog::{NumberShare, NumbersAtHand, RowNumbers};
use crate::ids::{IndexId, TableId};
use crate::isolate::slot::HELD_KEPT;
use crate::isolate::{
    Acquired, LockError, LockForm, LockManager, LockMode, LockOptions, Owner, RecordMode, RoutingRule, Span,
    SpanRef, Wait, Wanted,
};
use crate::row::{Column, ColumnType, IntoKey, Key, Schema, Value, WhichIndex};

const EXECUTORS: u16 = 5;

fn manager() -> Arc<LockManager> {
    let executors = usize::from(EXECUTORS);
    let options = LockOptions { owners_max: 64, form: LockForm::Local, executors, ..LockOptions::default() };
    Arc::new(LockManager::new(options))
}

fn lock(
    manager: &LockManager,
    owner: &mut Owner,
    span: SpanRef<'_>,
    mode: RecordMode,
) -> Result<Acquired, LockError> {
    manager.local(owner, INDEX, span, mode, &refusing())
}

/// Keys by the hash of their one byte, divided among so many executors.
fn hashed(executors: u16) -> RoutingRule {
    let columns = vec![Column::new("letter", ColumnType::Bool)];
    let schema = Schema::new("t", columns, Some(vec![0]), vec![]).unwrap();
    let leading = schema.key_shape(WhichIndex::Primary).leading(1).unwrap();
    RoutingRule::hashed(INDEX, leading, executors)
}

/// A rule of some datasets, or by a hash.
fn any_rule(dice: &mut Dice) -> Option<RoutingRule> {
    if dice.below(4) == 0 {
        return Some(hashed(1 + dice.below(u64::from(EXECUTORS)) as u16));
    }
    let mut bounds: Vec<Key> = (0..dice.below(5)).map(|_| Key::from(&[dice.below(24) as u8][..])).collect();
    bounds.sort();
    bounds.dedup();
    let executors = (0..=bounds.len()).map(|_| dice.below(u64::from(EXECUTORS)) as u16).collect();
    (dice.below(8) > 0).then(|| RoutingRule::new(bounds, executors))
}

/// Moves the keys: to any executors, or to the read-only one.
fn move_keys(manager: &LockManager, dice: &mut Dice) {
    match dice.below(3) {
        0 => manager.place_read_only(INDEX),
        _ => manager.route(INDEX, any_rule(dice)),
    }
}

/// One key, keys between two bounds, keys with a prefix, or all keys.
fn any_span(dice: &mut Dice) -> Span {
    let (one, other) = (dice.below(24) as u8, dice.below(24) as u8);
    match dice.below(8) {
        0..5 => SpanRef::point(&[one]).to_owned(),
        5 => {
            let (from, to) = ([one.min(other)], [one.max(other)]);
            let bounds = (std::ops::Bound::Included(&from[..]), std::ops::Bound::Included(&to[..]));
            Span::between(bounds.0, bounds.1).expect("has its bounds")
        }
        6 => Span::prefix(&[one]),
        _ => SpanRef::all().to_owned(),
    }
}

/// Some spans for a lease.
fn any_spans(dice: &mut Dice) -> Vec<(Span, RecordMode)> {
    (0..=dice.below(3)).map(|_| (any_span(dice), any_mode(dice))).collect()
}

fn lease(manager: &LockManager, owner: &mut Owner, spans: &[(Span, RecordMode)]) -> bool {
    let wanted = spans.iter().map(|(span, mode)| Wanted { index: INDEX, span: span.borrow(), mode: *mode });
    manager.lease(owner, wanted)
}

fn any_mode(dice: &mut Dice) -> RecordMode {
    if dice.below(2) == 0 { RecordMode::Shared } else { RecordMode::Exclusive }
}

#[test]
fn a_rule_sends_a_span_to_the_executors_that_have_keys_of_it() {
    let bounds = [b"d", b"m", b"t"].map(|bound| Key::from(&bound[..]));
    let rule = RoutingRule::new(bounds.to_vec(), vec![2, 0, 3, 0]);
    let executors = |span: SpanRef<'_>| {
        let mut out = smallvec::SmallVec::new();
        rule.executors_of(span, &mut out);
        out.to_vec()
    };
    let cases: [(SpanRef<'_>, &[u16]); 6] = [
        (SpanRef::point(b"a"), &[2]),
        (SpanRef::point(b"d"), &[0]),
        (SpanRef::point(b"lzz"), &[0]),
        (SpanRef::point(b"m"), &[3]),
        (SpanRef::point(b"z"), &[0]),
        (SpanRef::all(), &[0, 2, 3]),
    ];
    for (span, expected) in cases {
        assert_eq!(executors(span), expected, "{span:?}");
    }
    let between = |from: &[u8], to: &[u8]| {
        let span = Span::between(std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)).unwrap();
        executors(span.borrow())
    };
    assert_eq!(between(b"a", b"d"), [2], "d itself is not in it");
    assert_eq!(between(b"a", b"d\0"), [0, 2]);
    assert_eq!(between(b"e", b"s"), [0, 3]);
    assert_eq!(executors(Span::prefix(b"t").borrow()), [0]);
}

#[test]
fn a_rule_by_hash_sends_keys_that_begin_alike_to_one_executor() {
    let columns = ["town", "house"].map(|name| Column::new(name, ColumnType::Text));
    let schema = Schema::new("t", columns.to_vec(), Some(vec![0, 1]), vec![]).unwrap();
    let shape = schema.key_shape(WhichIndex::Primary);
    let rule = RoutingRule::hashed(INDEX, shape.leading(1).unwrap(), EXECUTORS);
    let executors = |span: SpanRef<'_>| {
        let mut out = smallvec::SmallVec::new();
        rule.executors_of(span, &mut out);
        out.to_vec()
    };
    let key = |values: &[&str]| {
        let (values, mut key): (Vec<Value>, _) =
            (values.iter().map(|text| (*text).into()).collect(), Key::new());
        values.as_slice().encode_prefix_into(shape, &mut key).unwrap();
        key
    };
    let mut all = std::collections::BTreeSet::new();
    for town in (0..200).map(|nth| format!("town {nth}")) {
        let prefix = key(&[&town]);
        let [own] = executors(Span::prefix(&prefix).borrow())[..] else { panic!("of one executor") };
        assert_eq!(executors(SpanRef::point(&key(&[&town, "1"]))), [own]);
        assert_eq!(executors(Span::prefix(&key(&[&town, "2"])).borrow()), [own]);
        let (from, to) = (key(&[&town, "1"]), key(&[&town, "3"]));
        let within = (std::ops::Bound::Included(&*from), std::ops::Bound::Excluded(&*to));
        assert_eq!(executors(Span::between(within.0, within.1).unwrap().borrow()), [own]);
        // A span that is not within one town.
        let beyond = Span::between(within.0, std::ops::Bound::Unbounded).unwrap();
        assert_eq!(executors(beyond.borrow()).len(), usize::from(EXECUTORS));
        assert_eq!(
            executors(Span::prefix(&prefix[..prefix.len() - 1]).borrow()).len(),
            usize::from(EXECUTORS)
        );
        all.insert(own);
    }
    assert_eq!(all.len(), usize::from(EXECUTORS), "each has some");
    assert_eq!(executors(SpanRef::all()).len(), usize::from(EXECUTORS));
}

/// Compared with a list of what all owners hold, while the keys move from one executor to another (L11).
#[test]
fn what_is_granted_follows_from_what_others_hold_wherever_the_keys_are() {
    let seed = seed();
    println!("RIALTO_SEED={seed}");
    let end = Instant::now() + test_seconds();
    let (mut requests, mut refused, mut leases) = (0u64, 0u64, 0u64);
    for round in 0.. {
        if round > 0 && Instant::now() >= end {
            break;
        }
        let mut dice = Dice::new(seed + round);
        let manager = manager();
        let mut owners: Vec<Owner> = (0..4).map(|_| manager.begin().unwrap()).collect();
        let mut held: Vec<(usize, IndexId, Span, RecordMode)> = Vec::new();
        for _ in 0..200 {
            let asker = dice.below(4) as usize;
            match dice.below(12) {
                0 if dice.below(3) == 0 => {
                    let executors = 1 + dice.below(u64::from(EXECUTORS)) as usize;
                    manager.set_executors(executors);
                    assert_eq!(manager.requests_by_executor().len(), executors);
                }
                0 => move_keys(&manager, &mut dice),
                1 => {
                    manager.release_all(&mut owners[asker]);
                    held.retain(|(owner, ..)| *owner != asker);
                }
                2 => {
                    // One owner at a time: a request to a table that is out would wait.
                    let spans = any_spans(&mut dice);
                    let is_free = !spans.iter().any(|(span, mode)| {
                        held.iter().any(|(owner, index, there, held)| {
                            *owner != asker
                                && *index == INDEX
                                && there.borrow().overlaps(span.borrow())
                                && (*mode == RecordMode::Exclusive || *held == RecordMode::Exclusive)
                        })
                    });
                    let owner = &mut owners[asker];
                    assert_eq!(
                        lease(&manager, owner, &spans),
                        is_free,
                        "seed {}: {spans:?}, {held:?}",
                        seed + round
                    );
                    if is_free {
                        for (span, _) in &spans {
                            // What the owner has by the lease needs no further lock.
                            let again = lock(&manager, owner, span.borrow(), RecordMode::Shared);
                            assert_eq!(again, Ok(Acquired::Held));
                        }
                        held.extend(spans.into_iter().map(|(span, mode)| (asker, INDEX, span, mode)));
                        manager.return_lease(owner);
                        leases += 1;
                    }
                }
                _ => {
                    let index = if dice.below(8) == 0 { IndexId(INDEX.0 + 1) } else { INDEX };
                    let (span, mode) = (any_span(&mut dice), any_mode(&mut dice));
                    let exclusive = mode == RecordMode::Exclusive;
                    let enemy = held.iter().find(|(owner, other, there, held)| {
                        *owner != asker
                            && *other == index
                            && there.borrow().overlaps(span.borrow())
                            && (exclusive || *held == RecordMode::Exclusive)
                    });
                    let answer = manager.local(&mut owners[asker], index, span.borrow(), mode, &refusing());
                    requests += 1;
                    match answer {
                        Ok(_) => {
                            assert!(
                                enemy.is_none(),
                                "seed {}: {asker} has {span:?} in {mode:?} beside {enemy:?}",
                                seed + round
                            );
                            held.push((asker, index, span, mode));
                        }
                        Err(error) => {
                            assert_eq!(error, LockError::WouldWait);
                            assert!(
                                enemy.is_some(),
                                "seed {}: {asker} is refused {span:?} in {mode:?}; held: {held:?}",
                                seed + round
                            );
                            refused += 1;
                        }
                    }
                }
            }
        }
        owners.into_iter().for_each(|owner| manager.end(owner));
        assert_eq!(manager.locks_now(), 0, "seed {}", seed + round);
    }
    assert!(refused > 0 && refused < requests && leases > 0);
    println!("tally: local locks against a list, {requests} operations, RIALTO_SEED={seed}");
}

#[test]
fn blocked_requests_are_granted_in_their_order() {
    let manager = manager();
    let mut holder = manager.begin().unwrap();
    lock(&manager, &mut holder, SpanRef::point(b"k"), RecordMode::Exclusive).unwrap();
    let turn = AtomicU64::new(0);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for place in 0..4 {
            let (manager, turn) = (&manager, &turn);
            threads.push(scope.spawn(move || {
                let mut owner = manager.begin().unwrap();
                manager
                    .local(&mut owner, INDEX, SpanRef::point(b"k"), RecordMode::Exclusive, &patient())
                    .unwrap();
                assert_eq!(turn.fetch_add(1, Ordering::SeqCst), place);
                manager.end(owner);
            }));
            until_waiting(manager, place as usize + 1);
        }
        manager.end(holder);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// A wide request is passed by narrow ones only if it waits for their owners, so narrow requests cannot starve it.
#[test]
fn a_wide_request_is_passed_only_by_owners_that_it_waits_for() {
    let manager = manager();
    let (mut holder, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    lock(&manager, &mut holder, SpanRef::point(b"k"), RecordMode::Shared).unwrap();
    thread::scope(|scope| {
        let wide = scope.spawn(|| {
            let mut owner = manager.begin().unwrap();
            manager.local(&mut owner, INDEX, SpanRef::all(), RecordMode::Exclusive, &patient()).unwrap();
            manager.end(owner);
        });
        until_waiting(&manager, 1);
        assert_eq!(
            lock(&manager, &mut other, SpanRef::point(b"z"), RecordMode::Shared),
            Err(LockError::WouldWait)
        );
        assert_eq!(lock(&manager, &mut holder, SpanRef::point(b"z"), RecordMode::Shared), Ok(Acquired::New));
        let wait = &manager.waits()[0];
        assert_eq!((&wait.holders[..], &wait.ahead[..]), (&[holder.id()][..], &[][..]));
        manager.end(holder);
        wide.join().unwrap();
    });
    assert_eq!(lock(&manager, &mut other, SpanRef::point(b"z"), RecordMode::Shared), Ok(Acquired::New));
    manager.end(other);
}

/// A move of keys takes locks along while their owner is at work, and wakes the requests that wait for them.
#[test]
fn a_waiter_is_sent_after_the_keys_that_it_waits_for() {
    let manager = manager();
    let mut holder = manager.begin().unwrap();
    lock(&manager, &mut holder, SpanRef::point(b"k"), RecordMode::Exclusive).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut owner = manager.begin().unwrap();
            manager
                .local(&mut owner, INDEX, SpanRef::point(b"k"), RecordMode::Exclusive, &patient())
                .unwrap();
            manager.end(owner);
        });
        for executor in 0..EXECUTORS {
            until_waiting(&manager, 1);
            manager.route(INDEX, Some(RoutingRule::new(Vec::new(), vec![executor])));
        }
        until_waiting(&manager, 1);
        manager.end(holder);
        waiter.join().unwrap();
    });
    assert_eq!(manager.locks_now(), 0);
}

/// The owners inside each key: a count of sharers, or -1 for one writer.
struct Inside([AtomicI64; 24]);

/// Threads lock keys and spans of keys, while another thread moves the keys.
#[test]
fn spans_keep_conflicting_owners_apart_while_keys_move() {
    let seed = seed();
    println!("RIALTO_SEED={seed}");
    let manager = manager();
    let inside = Inside([const { AtomicI64::new(0) }; 24]);
    let (committed, sacrificed, leases) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + test_seconds();
    thread::scope(|scope| {
        let (manager, inside, committed, sacrificed, leases) =
            (&manager, &inside, &committed, &sacrificed, &leases);
        let mut threads = Vec::new();
        for thread in 0..5 {
            threads.push(scope.spawn(move || {
                let mut dice = Dice::new(seed + thread);
                while Instant::now() < end {
                    let mut owner = manager.begin().unwrap();
                    let mut held: [Option<RecordMode>; 24] = [None; 24];
                    let mut run = || -> Result<(), LockError> {
                        let mut spans = Vec::new();
                        if dice.below(2) == 0 {
                            spans = any_spans(&mut dice);
                            if !lease(manager, &mut owner, &spans) {
                                spans.clear();
                            }
                        }
                        for nth in 0..spans.len() + dice.below(6) as usize {
                            let (span, mode) = match spans.get(nth) {
                                Some(span) => span.clone(),
                                None => (any_span(&mut dice), any_mode(&mut dice)),
                            };
                            if nth >= spans.len() {
                                manager.local(&mut owner, INDEX, span.borrow(), mode, &patient())?;
                            } else {
                                leases.fetch_add(1, Ordering::Relaxed);
                            }
                            for (key, held) in held
                                .iter_mut()
                                .enumerate()
                                .filter(|(key, _)| span.borrow().contains(&[*key as u8]))
                            {
                                let step = match (*held, mode) {
                                    (None, RecordMode::Shared) => 1,
                                    (None, RecordMode::Exclusive) => -1,
                                    (Some(RecordMode::Shared), RecordMode::Exclusive) => -2,
                                    _ => continue,
                                };
                                *held = Some(mode);
                                let after = inside.0[key].fetch_add(step, Ordering::SeqCst) + step;
                                let fits = if step == 1 { after >= 1 } else { after == -1 };
                                assert!(fits, "{after} inside of key {key} after {step}");
                            }
                        }
                        Ok(())
                    };
                    match run() {
                        Ok(()) => committed.fetch_add(1, Ordering::Relaxed),
                        Err(LockError::Deadlock) => sacrificed.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}; {:?}", manager.waits()),
                    };
                    for (key, held) in held.iter().enumerate() {
                        let step = match held {
                            None => continue,
                            Some(RecordMode::Shared) => -1,
                            Some(RecordMode::Exclusive) => 1,
                        };
                        inside.0[key].fetch_add(step, Ordering::SeqCst);
                    }
                    manager.end(owner);
                }
            }));
        }
        threads.push(scope.spawn(move || {
            let mut dice = Dice::new(seed + 99);
            while Instant::now() < end {
                match dice.below(4) {
                    0 => manager.set_executors(1 + dice.below(u64::from(EXECUTORS)) as usize),
                    _ => move_keys(manager, &mut dice),
                }
                // An owner that gathers a span part by part starts again at each change: for ever, if the changes
                // come fast enough.
                thread::sleep(std::time::Duration::from_micros(1_000 + dice.below(4_000)));
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(manager.locks_now(), 0);
    assert!(manager.waits().is_empty());
    assert_eq!(manager.counters().deadlocks, sacrificed.load(Ordering::Relaxed));
    let committed = committed.load(Ordering::Relaxed);
    println!("tally: local locks under stress, {committed} transactions, RIALTO_SEED={seed}");
    assert!(committed > 0 && leases.load(Ordering::Relaxed) > 0);
}

/// However often the keys of a lock move, only what the owner acquired itself is left behind. Owners acquire keys and
/// ranges before the moves and between them, and hand what they hold over to another owner.
#[test]
fn locks_that_move_again_and_again_are_no_more_than_after_a_few_moves() {
    const SPANS: usize = 8;
    let seed = seed();
    println!("RIALTO_SEED={seed}");
    let (manager, mut dice) = (manager(), Dice::new(seed));
    let mut owners = [(); 3].map(|()| manager.begin().unwrap());
    for round in 0..4 {
        for owner in &mut owners {
            for _ in 0..SPANS / 4 {
                lock(&manager, owner, any_span(&mut dice).borrow(), RecordMode::Shared).unwrap();
            }
        }
        if round == 2 {
            let [leader, part, _] = &mut owners;
            manager.follow(part, leader);
            manager.hand_over(part, leader);
        }
        for _ in 0..100 {
            move_keys(&manager, &mut dice);
            // At each executor a span has one lock for all owners, and a further one for owners that acquired it
            // there.
            let most = owners.len() * SPANS * 2 * (usize::from(EXECUTORS) + 1);
            assert!(
                manager.locks_now() <= most,
                "RIALTO_SEED={seed}: {} locks, round {round}",
                manager.locks_now()
            );
        }
    }
    owners.into_iter().for_each(|owner| manager.end(owner));
    assert_eq!(manager.locks_now(), 0, "RIALTO_SEED={seed}");
}

/// A request in parts is turned away, because the rules change, after some parts have strengthened a lock of its
/// owner. Then it fails at an earlier part. The new rules are equal to the old ones, so no lock is where it was not
/// before.
#[test]
fn a_request_that_fails_on_its_second_way_leaves_no_part_stronger() {
    let rule = || RoutingRule::new([b"g", b"p"].map(|bound| Key::from(&bound[..])).to_vec(), vec![0, 1, 2]);
    let range = Span::between(Bound::Included(b"d"), Bound::Excluded(b"t")).unwrap();
    let only_a = [(SpanRef::point(b"a").to_owned(), RecordMode::Exclusive)];
    // The runner may come to the first table later than the waiter does, so this is tried several times.
    for _ in 0..6 {
        let manager = manager();
        manager.route(INDEX, Some(rule()));
        let [mut holder, mut waiter, mut runner] = [(); 3].map(|()| manager.begin().unwrap());
        lock(&manager, &mut waiter, range.borrow(), RecordMode::Shared).unwrap();
        lock(&manager, &mut holder, SpanRef::point(b"s"), RecordMode::Shared).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                // Long enough to be seen waiting on a machine that pauses now and then.
                let soon = within(Duration::from_millis(500));
                let asked = manager.local(&mut waiter, INDEX, range.borrow(), RecordMode::Exclusive, &soon);
                assert!(matches!(asked, Err(LockError::Timeout { .. })), "{asked:?}");
            });
            until_waiting(&manager, 1);
            manager.route(INDEX, Some(rule()));
            while !lease(&manager, &mut runner, &only_a) {}
            waiting.join().unwrap();
        });
        let shared = lock(&manager, &mut holder, SpanRef::point(b"h"), RecordMode::Shared);
        assert_eq!(shared, Ok(Acquired::New));
        [holder, runner, waiter].into_iter().for_each(|owner| manager.end(owner));
        assert_eq!(manager.locks_now(), 0);
    }
}

/// An owner has a range exclusively at three executors, and the mark at one of them was left out because its table
/// was out. It asks for the range again, and is refused, because another table is out.
#[test]
fn a_request_that_fails_takes_nothing_of_what_its_owner_had() {
    let manager = manager();
    let rule = RoutingRule::new([b"g", b"p"].map(|bound| Key::from(&bound[..])).to_vec(), vec![0, 1, 2]);
    manager.route(INDEX, Some(rule));
    let other = IndexId(INDEX.0 + 1);
    manager.route(other, Some(RoutingRule::new(vec![], vec![1])));
    let range = Span::between(Bound::Included(b"d"), Bound::Excluded(b"t")).unwrap();
    let [mut owner, mut holder, mut runner, mut stranger] = [(); 4].map(|()| manager.begin().unwrap());
    lock(&manager, &mut owner, range.borrow(), RecordMode::Shared).unwrap();
    lock(&manager, &mut holder, SpanRef::point(b"s"), RecordMode::Shared).unwrap();
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            manager.local(&mut owner, INDEX, range.borrow(), RecordMode::Exclusive, &patient()).unwrap();
        });
        // It waits for the key at the third executor.
        until_waiting(&manager, 1);
        let at_second = Wanted { index: other, span: SpanRef::point(b"x"), mode: RecordMode::Exclusive };
        while !manager.lease(&mut runner, std::iter::once(at_second)) {}
        manager.release_all(&mut holder);
        asks.join().unwrap();
        manager.end_lease(&mut runner);
    });
    let key = SpanRef::point(b"h");
    assert_eq!(lock(&manager, &mut stranger, key, RecordMode::Shared), Err(LockError::WouldWait));
    // A key at the third executor, beyond the range.
    while !lease(&manager, &mut runner, &[(SpanRef::point(b"z").to_owned(), RecordMode::Exclusive)]) {}
    let again = lock(&manager, &mut owner, range.borrow(), RecordMode::Exclusive);
    assert_eq!(again, Err(LockError::WouldWait));
    assert_eq!(lock(&manager, &mut stranger, key, RecordMode::Shared), Err(LockError::WouldWait));
    manager.end_lease(&mut runner);
    [owner, holder, runner, stranger].into_iter().for_each(|owner| manager.end(owner));
    assert_eq!(manager.locks_now(), 0);
}

/// The number of an owner's locks is bounded because of their memory.
#[test]
fn a_lock_on_a_long_key_counts_as_several() {
    const LOCKS: usize = 3_000;
    let options = LockOptions { form: LockForm::Local, locks_max: LOCKS, ..LockOptions::default() };
    let manager = LockManager::new(options);
    let mut owner = manager.begin().unwrap();
    let ask = |owner: &mut Owner, key: usize, long: usize| {
        let mut bytes = key.to_be_bytes().to_vec();
        bytes.resize(long, 7);
        lock(&manager, owner, SpanRef::point(&bytes), RecordMode::Shared)
    };
    for _ in 0..2 {
        // Each counts as one lock, and its 1,000 bytes count as four more.
        for key in 0..LOCKS / 5 {
            assert_eq!(ask(&mut owner, key, 1_000), Ok(Acquired::New));
        }
        for _ in 0..3 {
            assert_eq!(ask(&mut owner, LOCKS, 1_000), Err(LockError::TooMany { limit: LOCKS }));
        }
        assert_eq!(ask(&mut owner, 0, 1_000), Ok(Acquired::Held));
        manager.release_all(&mut owner);
    }
    for key in 0..LOCKS {
        assert_eq!(ask(&mut owner, key, 8), Ok(Acquired::New));
    }
    manager.end(owner);
}

#[test]
fn an_owner_gets_so_many_locks_and_no_more() {
    const LOCKS: usize = 3_000;
    let options = LockOptions { form: LockForm::Local, locks_max: LOCKS, ..LockOptions::default() };
    let manager = LockManager::new(options);
    let (mut one, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    let ask = |owner: &mut Owner, key: usize| {
        lock(&manager, owner, SpanRef::point(&key.to_be_bytes()), RecordMode::Exclusive)
    };
    for key in 0..LOCKS {
        assert_eq!(ask(&mut one, key), Ok(Acquired::New));
    }
    assert_eq!(ask(&mut one, LOCKS), Err(LockError::TooMany { limit: LOCKS }));
    assert_eq!(ask(&mut one, 0), Ok(Acquired::Held));
    assert_eq!(ask(&mut other, LOCKS), Ok(Acquired::New), "what was refused is free");
    manager.release_all(&mut one);
    assert!(one.body.locals.capacity() <= HELD_KEPT, "the owner's list has gone");
    assert_eq!(ask(&mut one, 0), Ok(Acquired::New));
    manager.end(one);
    manager.end(other);
    assert_eq!(manager.locks_now(), 0);
}
