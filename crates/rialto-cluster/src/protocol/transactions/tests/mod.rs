//! A simulation of coordinators and participants over models of partitions, and what it has to keep: after each step no
//! branch ends otherwise than its transaction was decided; at the end nothing waits, each request has had its effects
//! once at most, what was answered is there, and the history is strictly serializable.
//!
//! `world` has the drivers of partitions, `network` and `faults` what is between and against them; `requests` what is
//! asked for, and `clients` the sessions and the coordinators; `model` the kernel; `history` the checker. `scenarios` go
//! message by message, without a world; `bytes` are those of messages and rows.

mod bytes;
mod clients;
mod faults;
mod history;
mod model;
mod network;
mod requests;
mod scenarios;
mod world;

pub(super) use model::Bank;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rialto::io::Random;

use crate::protocol::PartitionId;
use crate::protocol::transactions::Pace;
use history::{Transaction, Writers, what_is_wrong};
use model::KEYS;
use world::{Faults, World};

/// Runs it with one seed after the other, for as long as random tests may take. A failure names the seed.
fn for_a_while(time: Duration, run: fn(u64)) -> u64 {
    let first = Random::seed_from_environment();
    let (began, mut seeds) = (Instant::now(), 0);
    while seeds == 0 || began.elapsed() < time {
        let seed = first.wrapping_add(seeds);
        let outcome = std::panic::catch_unwind(|| run(seed));
        if let Err(panic) = outcome {
            println!("RIALTO_SEED={seed}, the {seeds}th from RIALTO_SEED={first} on");
            std::panic::resume_unwind(panic);
        }
        seeds += 1;
    }
    println!("RIALTO_SEED={first}, {seeds} seeds");
    seeds
}

fn simulate(seed: u64, faults: Faults) {
    let mut world = World::new(seed, faults);
    world.run();
    check(&world, faults);
}

fn check(world: &World, faults: Faults) {
    let mut writers = Writers::new();
    for (of, partition) in world.partitions.iter().enumerate() {
        let rows = &partition.model.rows;
        assert!(
            rows.prepared.is_empty()
                && rows.bound.is_empty()
                && rows.decisions.is_empty()
                && rows.committed.is_empty(),
            "{rows:?}"
        );
        for key in 0..KEYS {
            writers.insert((PartitionId(of as u32), key), partition.model.value(key).writers.clone());
        }
    }
    let has_written =
        |id, of: usize| (0..KEYS).any(|key| world.partitions[of].model.value(key).writers.contains(id));
    let mut effects = BTreeMap::<_, Vec<_>>::new();
    for (id, attempt) in &world.cluster.attempts {
        let has_lost = |of: &usize| {
            let lost = world.partitions[*of].model.rows.lost;
            lost.on_disks.is_some() || lost.in_memories.is_some() && !attempt.is_on_disks()
        };
        let writes = (0..world.partitions.len()).filter(|of| attempt.writes_in(*of) && !has_lost(of));
        let (has, lacks): (Vec<_>, Vec<_>) = writes.partition(|of| has_written(id, *of));
        assert!(has.is_empty() || lacks.is_empty(), "{id} is in partitions {has:?} and not in {lacks:?}");
        let has_ended = attempt.ends_without_effects();
        assert!(has.is_empty() || !has_ended, "{id} has failed and is in partitions {has:?}");
        // An operator's "commit" may contradict what a client was told: nothing knows better then.
        let is_told = attempt.is_told_aborted && !(world.operator_asked > 0 && world.operator_may_commit());
        assert!(has.is_empty() || !is_told, "{id}: the client was told of an abort, and it is in {has:?}");
        if !has.is_empty() {
            effects.entry(attempt.request).or_default().push(*id);
        }
    }
    if faults == Faults::LostPower {
        for (id, attempt) in &world.cluster.attempts {
            let is_answered =
                world.cluster.answered.get(&attempt.request).is_some_and(|(_, answer)| !answer.has_failed);
            let is_kept = attempt.is_on_disks() && attempt.spec.writes() && attempt.spec.is_kept();
            let has_effects = effects.contains_key(&attempt.request);
            let often = effects.get(&attempt.request).map_or(0, Vec::len);
            assert!(
                !attempt.is_on_disks() || often <= 1,
                "{id}: its request has had its effects {often} times"
            );
            assert!(
                !(is_answered && is_kept) || has_effects,
                "{id}: answered at level 3, and has no effects"
            );
        }
    }
    if faults != Faults::WithinGuarantees {
        return;
    }
    for (request, ids) in &effects {
        assert_eq!(ids.len(), 1, "request {request:?} has had its effects more than once: {ids:?}");
    }
    let mut transactions = Vec::new();
    let counts = |attempt: &clients::Attempt| attempt.spec.is_kept();
    for (id, attempt) in &world.cluster.attempts {
        let answered = world.cluster.answered.get(&attempt.request);
        let (seen, told) = match &attempt.told {
            Some(answer) => (answer, answered.map(|(at, _)| *at)),
            None if effects.get(&attempt.request).is_some_and(|ids| ids.contains(id)) => {
                let at = answered.map(|(at, _)| *at);
                (world.seen(id), at.filter(|_| counts(attempt)))
            }
            None => continue,
        };
        if attempt.spec.writes() || counts(attempt) {
            // What only reads may be answered from the row that an earlier attempt has left.
            let is_same = |other: &&clients::Attempt| other.request == attempt.request;
            let first = world.cluster.attempts.values().filter(is_same).map(|other| other.began).min();
            let began = first.filter(|_| !attempt.spec.writes()).unwrap_or(attempt.began);
            let seen = seen.seen.clone();
            transactions.push(Transaction { id: *id, seen, began, told });
        }
    }
    for (id, attempt) in &world.cluster.attempts {
        let Some((_, answer)) = world.cluster.answered.get(&attempt.request) else { continue };
        let has_effects = effects.contains_key(&attempt.request);
        assert!(!(answer.has_failed && has_effects), "{id}: the client was told that it failed");
        if attempt.spec.writes() && !answer.has_failed && counts(attempt) {
            assert!(has_effects, "{id}: request {:?} was answered, and has no effects", attempt.request);
        }
    }
    let keys = world.partitions.len() * usize::from(KEYS);
    for transaction in &transactions {
        let seen: BTreeMap<_, _> = transaction.seen.iter().map(|seen| (seen.key, seen.balance)).collect();
        if seen.len() < keys {
            continue;
        }
        let sum: i64 = seen.values().sum();
        assert_eq!(sum, 100 * keys as i64, "{transaction:?} has seen half a transfer");
    }
    if let Some(wrong) = what_is_wrong(&transactions, &writers) {
        panic!("not strictly serializable: {wrong}");
    }
}

#[test]
fn transactions_are_atomic_durable_and_in_order() {
    for_a_while(Random::test_time_from_environment(), |seed| simulate(seed, Faults::WithinGuarantees));
}

#[test]
fn transactions_of_statements_are_atomic_durable_and_in_order() {
    for_a_while(Random::test_time_from_environment() / 2, |seed| {
        let mut world = World::new(seed, Faults::WithinGuarantees);
        world.only_statements = true;
        world.run();
        check(&world, Faults::WithinGuarantees);
    });
}

#[test]
fn after_a_forced_loss_what_is_left_is_atomic() {
    for_a_while(Random::test_time_from_environment(), |seed| simulate(seed, Faults::ForcedLosses));
}

/// What was on disks is whole, and needs no operator.
#[test]
fn after_a_loss_of_all_power_what_was_on_disks_is_there() {
    for_a_while(Random::test_time_from_environment(), |seed| simulate(seed, Faults::LostPower));
}

/// Whether some seed finds that something is wrong if a rule of the driver is left out.
fn is_found_without(rule: fn(&mut World), faults: Faults) -> bool {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let is_wrong = |seed| {
        let run = || {
            let mut world = World::new(seed, faults);
            rule(&mut world);
            world.run();
            check(&world, faults);
        };
        std::panic::catch_unwind(run).is_err()
    };
    (0..20_000).any(|nth| is_wrong(first.wrapping_add(nth)))
}

#[test]
fn reads_without_locks_have_to_wait_for_branches_that_have_written() {
    let passes = |world: &mut World| {
        world.partitions.iter_mut().for_each(|partition| partition.model.passes_writes = true);
    };
    assert!(is_found_without(passes, Faults::WithinGuarantees));
}

#[test]
fn what_may_be_answered_has_to_be_asked_before_a_step_is_fed() {
    assert!(is_found_without(|world| world.feeds_deposed = true, Faults::WithinGuarantees));
}

#[test]
fn a_forced_loss_has_to_be_known_to_each_later_opening() {
    assert!(is_found_without(|world| world.forgets_losses = true, Faults::ForcedLosses));
}

/// What a simulation is for does happen in it.
#[test]
fn the_simulation_comes_to_each_kind_of_end() {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (mut by_deposed, mut asked, mut ends) = (0, BTreeMap::<_, u32>::new(), BTreeMap::<_, u32>::new());
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    for seed in 0..5_000 {
        let faults = [Faults::WithinGuarantees, Faults::ForcedLosses, Faults::LostPower][seed as usize % 3];
        let mut world = World::new(first.wrapping_add(seed), faults);
        world.run();
        by_deposed += world.received_by_deposed;
        *asked.entry(faults == Faults::LostPower).or_default() += world.operator_asked;
        for attempt in world.cluster.attempts.values().filter(|attempt| attempt.spec.pace == Pace::Statements)
        {
            let (is_alone, rolls_back) = (attempt.spec.partitions().len() == 1, attempt.spec.rolls_back);
            let is_answered = world.cluster.answered.contains_key(&attempt.request);
            assert!(!(rolls_back && is_answered), "{attempt:?}");
            if rolls_back || is_answered {
                *ends.entry((is_alone, attempt.spec.writes(), rolls_back)).or_default() += 1;
            }
        }
        let has =
            |of: &(bool, bool)| [true, false].iter().all(|back| ends.contains_key(&(of.0, of.1, *back)));
        // After a loss of power, too: about transactions at level 2.
        let is_asked = [true, false].iter().all(|power| asked.get(power).is_some_and(|asked| *asked > 3));
        if by_deposed > 50 && is_asked && kinds.iter().all(has) {
            return;
        }
    }
    panic!("{by_deposed} messages to deposed primaries, {asked:?} questions to operators, {ends:?}");
}
