//! The bound on the redo, and what ends the redo.

use std::collections::BTreeMap;

use super::bases::*;
use super::*;
use crate::engine::{Flow, Procedure};
use crate::txn::redone::tests::contents::Contents;

/// The bound comes while the redo waits for a packet that it might still redo.
#[test]
fn a_bound_counts_for_the_packet_that_is_waited_for() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), with_a_row);
    let follower = Follower::open_on(to, options()).unwrap();
    for round in 0..20 {
        follower.redo_up_to(Lsn::MAX);
        assert!(follower.wait_redone(follower.received(), SOON).unwrap());
        std::thread::sleep(Duration::from_millis(5));
        let before = follower.redone();
        follower.redo_up_to(before);
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        let is_redone = follower.wait_redone(before.next(), Duration::from_millis(100)).unwrap();
        assert_eq!((is_redone, follower.redone()), (false, before), "round {round}");
    }
    follower.redo_up_to(Lsn::MAX);
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&primary), "the follower");
}

/// To lead it would redo everything. A reader is in the way of the first packet, which the bound does not allow.
#[test]
fn a_bound_counts_again_once_it_could_not_lead() {
    for is_driven in [false, true] {
        let to = MemoryDisk::new();
        let (_disk, primary) = primary_and_copy(&options(), to.clone(), with_a_row);
        let of_follower = if is_driven { driven() } else { options() };
        let of_follower = Options { lock_timeout: Duration::from_millis(20), ..of_follower };
        let follower = Follower::open_on(to, of_follower).unwrap();
        let table = follower.database().table("t").unwrap();
        let before = follower.redone();
        follower.redo_up_to(before);
        let mut reader = follower.database().begin().unwrap();
        assert!(reader.get(&table, 1).unwrap().is_some());
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        let refused = follower.lead(Duration::from_millis(50)).map(drop);
        assert!(matches!(refused, Err(Error::LockTimeout { .. } | Error::Deadlock { .. })), "{refused:?}");
        // What was being redone when the call failed waits for its lock no longer than this.
        std::thread::sleep(Duration::from_millis(400));
        reader.commit().unwrap();
        follower.drive().unwrap();
        assert!(!follower.wait_redone(before.next(), Duration::from_millis(100)).unwrap());
        assert_eq!((follower.redone(), follower.failure()), (before, None));
        follower.redo_up_to(before.next());
        follower.drive().unwrap();
        assert!(follower.wait_redone(before.next(), SOON).unwrap());
    }
}

#[test]
fn a_packet_that_cannot_be_followed_ends_the_redo_and_nothing_else() {
    for is_driven in [false, true] {
        let put = Flow::of(|tx, arguments, _| {
            let table = tx.table("t")?;
            tx.insert(&table, &[Value::Int4(arguments.get::<i32>(0)?), Value::Int8(0)])
        });
        let put = Procedure::new("put", [ColumnType::Int4], put).deterministic(1);
        let to = MemoryDisk::new();
        let calls = Options { logging: Logging::Transaction, procedures: vec![put], ..options() };
        let (_disk, primary) = primary_and_copy(&calls, to.clone(), with_a_row);
        let follower = Follower::open_on(to, if is_driven { driven() } else { options() }).unwrap();
        let before = follower.redone();
        primary.call("put", &[Value::Int4(7)]).unwrap();
        ship(&primary, &follower, 1 << 20).unwrap();
        let is_unsupported =
            |error: &Error| matches!(error, Error::Unsupported { what } if what.contains("value and action"));
        if is_driven {
            let refused = follower.drive();
            assert!(matches!(&refused, Err(error) if is_unsupported(error)), "{refused:?}");
        }
        soon("the redo ends", || follower.failure().is_some());
        let failure = follower.failure().unwrap();
        assert!(is_unsupported(&failure), "{failure}");
        assert_eq!(follower.wait_redone(before.next(), SOON), Err(failure.clone()));
        // It is a copy of the log all the same.
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        follower.sync().unwrap();
        assert_eq!((follower.on_disk(), follower.redone()), (primary.core().commits.log.place(), before));
        assert_eq!(follower.lead(SOON).map(drop), Err(failure));
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        follower.close().unwrap();
    }
}

#[test]
fn a_follower_with_too_little_memory_goes_on_with_more() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |db| {
        db.transact(|tx| tx.create_table(&workload_table())).unwrap();
    });
    let little = Options { memory_bytes: 8 << 20, ..options() };
    let follower = Follower::open_on(to.clone(), little).unwrap();
    let table = primary.table("texts").unwrap();
    let text = "x".repeat(20_000);
    for id in 0..600 {
        let row = [Value::Int4(id), Value::Text(text.clone())];
        primary.transact(|tx| tx.insert(&table, &row)).unwrap();
    }
    ship(&primary, &follower, 1 << 20).unwrap();
    let ended = follower.wait_redone(follower.received(), SOON);
    assert!(matches!(ended, Err(Error::MemoryLimit { .. })), "{ended:?}");
    assert!(matches!(follower.failure(), Some(Error::MemoryLimit { .. })));
    let redone = follower.redone();
    assert!(redone < follower.received());
    follower.close().unwrap();
    drop(follower);
    let follower = Follower::open_on(to, options()).unwrap();
    ship(&primary, &follower, 1 << 20).unwrap();
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&primary), "the follower with more memory");
}

/// What the primary had at some places.
type States = BTreeMap<Lsn, BTreeMap<String, Contents>>;

/// Over losses of power and kills at any step, checkpoints and openings with any bound, it has in its tables what the bound
/// allows, or has once allowed, and the rest of what it has received when it leads.
#[test]
fn an_opening_redoes_no_more_than_it_may() {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, mut seed) = (Instant::now(), first);
    while began.elapsed() < Random::test_time_from_environment() {
        println!("round of RIALTO_SEED={seed}");
        bounded_lives(seed);
        seed = seed.wrapping_add(1);
    }
}

fn bounded_lives(seed: u64) {
    let mut random = Random::new(seed);
    let mut faulty = FaultyDisk::new(random.next());
    let logging = if random.chance(1, 2) { Logging::Value } else { Logging::Action };
    let of_primary = Options { logging, ..options() };
    let mut for_base = random.fork();
    let (_disk, primary) =
        primary_and_copy(&of_primary, faulty.clone(), |db| workload::create(db, &mut for_base));
    let of_follower = Options { logging, ..driven() };
    let place = || primary.core().commits.log.place();
    let mut states: States = BTreeMap::from([(place(), all(&primary))]);
    // The highest bound so far, and what was received then.
    let (mut allowed, mut on_disk) = (place(), place());
    for _ in 0..4 {
        let bound = *states.keys().nth(random.below(states.len() as u64) as usize).unwrap();
        if random.chance(1, 2) {
            faulty.crash_at(faulty.steps() + 1 + random.below(600));
        }
        let opened = Follower::open_on_redoing_up_to(faulty.clone(), of_follower.clone(), bound);
        if let Ok(follower) = &opened {
            let redone = follower.redone();
            assert!(redone >= bound.min(follower.received()), "{redone} of {bound}");
            assert!(redone <= bound.max(allowed), "{redone}, {allowed} was allowed, and now {bound}");
            assert!(follower.received() >= on_disk);
            if let Some(state) = states.get(&redone) {
                assert_same(&all(follower.database()), state, "after the opening");
            }
            allowed = allowed.max(bound);
            let lived = bounded_life(&primary, follower, &mut states, &mut allowed, &mut random);
            assert!(lived.is_ok() || faulty.is_down(), "{lived:?}");
            on_disk = follower.on_disk();
        } else {
            assert!(faulty.is_down(), "{:?}", opened.err());
        }
        let is_killed = random.chance(1, 2);
        if is_killed && !faulty.is_down() {
            faulty.kill();
        } else {
            faulty.crash();
        }
        drop(opened);
        faulty = faulty.restart();
    }
    let last = *states.keys().next_back().unwrap();
    let follower = Follower::open_on_redoing_up_to(faulty, of_follower, Lsn::ZERO).unwrap();
    assert!(follower.redone() <= allowed);
    ship(&primary, &follower, 1 << 20).unwrap();
    follower.drive().unwrap();
    assert!(follower.redone() <= allowed, "the opening's bound holds on");
    primary.close().unwrap();
    let db = follower.lead(SOON).unwrap();
    assert!(follower.redone() >= last);
    assert_same(&all(&db), &states[&last], "the follower that leads");
    db.close().unwrap();
}

fn bounded_life(
    primary: &Database,
    follower: &Follower,
    states: &mut States,
    allowed: &mut Lsn,
    random: &mut Random,
) -> Result<()> {
    for _ in 0..random.below(10) {
        match random.below(6) {
            0..3 => {
                workload::step(primary, random);
                states.insert(primary.core().commits.log.place(), all(primary));
                ship(primary, follower, [1, 3_000, 1 << 20][random.below(3) as usize])?;
            }
            3 => {
                let bound = *states.keys().nth(random.below(states.len() as u64) as usize).unwrap();
                follower.redo_up_to(bound);
                *allowed = bound.max(*allowed);
            }
            4 => follower.drive()?,
            _ => follower.database().checkpoint().map(drop)?,
        }
        assert!(follower.redone() <= *allowed);
    }
    Ok(())
}
