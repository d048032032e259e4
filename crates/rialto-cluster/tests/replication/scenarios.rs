//! What replication promises about time, and about what has to be waited for.

use rialto::io::Random;
use rialto_cluster::protocol::NodeId;
use rialto_cluster::protocol::replication::{Event, RoleKind, Unprotected};

use crate::world::{HEARTBEAT, PROMISE, World};

/// Runs it with a few seeds.
fn each_of_some_seeds(run: impl Fn(u64)) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    (0..40).for_each(|seed| run(first.wrapping_add(seed)));
}

/// A partition of so many replicas that serves, all of them in sync.
fn settled(seed: u64, replicas: usize) -> World {
    let mut world = World::of(Random::new(seed), replicas, replicas, HEARTBEAT);
    world.run_until(3 * PROMISE);
    assert_eq!(world.serving(), Some(0));
    assert_eq!(world.store.now().configuration.in_sync.len(), replicas);
    world
}

/// How long no replica serves from now on, in the simulation's milliseconds, until another than the first one does.
fn time_without_service(world: &mut World) -> u64 {
    let (mut without, until) = (0, world.time + 10 * PROMISE);
    while world.time < until {
        world.run_until(world.time + 5);
        match world.serving() {
            Some(0) => without = 0,
            Some(_) => return without,
            None => without += 5,
        }
    }
    panic!("no other replica serves")
}

#[test]
fn a_planned_change_does_not_wait_for_a_promise() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.tell_replica(0, Event::Switchover { to: NodeId(2) });
        let without = time_without_service(&mut world);
        assert_eq!(world.serving(), Some(2));
        assert!(without < PROMISE / 2, "{without} ms without a primary");
        assert_eq!(world.store.now().configuration.in_sync.len(), 3, "the logs end at one place");
    });
}

#[test]
fn a_standby_takes_over_once_its_promise_has_run_out() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 2);
        world.lose_power(0);
        let without = time_without_service(&mut world);
        assert!(without < 2 * PROMISE, "{without} ms without a primary");
    });
}

#[test]
fn a_standby_that_fails_costs_no_service() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.pause(2, 5 * PROMISE);
        for _ in 0..200 {
            world.run_until(world.time + 10);
            assert_eq!(world.serving(), Some(0));
        }
        assert_eq!(world.store.now().configuration.in_sync.len(), 2);
    });
}

#[test]
fn a_primary_that_stood_still_drops_no_standby() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.pause(0, PROMISE * 7 / 10);
        world.run_until(world.time + 3 * PROMISE);
        assert_eq!(world.serving(), Some(0));
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
    });
}

#[test]
fn a_store_that_is_away_costs_nothing_while_nothing_fails() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.store.is_away = true;
        let answers = world.answers;
        for _ in 0..500 {
            world.run_until(world.time + 10);
            assert_eq!(world.serving(), Some(0));
        }
        assert!(world.answers > answers);
    });
}

#[test]
fn a_primary_whose_log_has_stopped_resigns() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 2);
        world.nodes[0].log_stopped = true;
        world.tell_replica(0, Event::LogStopped);
        assert_eq!(world.serving(), None);
        let without = time_without_service(&mut world);
        assert!(without < PROMISE, "{without} ms without a primary");
        world.run_until(world.time + PROMISE);
        assert_eq!(world.role(0), Some(RoleKind::Following));
    });
}

#[test]
fn level_2_is_refused_while_one_replica_is_alone_if_the_operator_chose_so() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 2);
        let admits = |world: &World| world.nodes[0].replica.as_ref().is_some_and(|r| r.admits_level_2());
        let has_enough =
            world.options.min_in_sync <= 2 || world.options.unprotected == Unprotected::WhenOnDisk;
        assert_eq!(admits(&world), has_enough);
        world.pause(1, 20 * PROMISE);
        world.run_until(world.time + 3 * PROMISE);
        assert_eq!(world.store.now().configuration.in_sync.len(), 1);
        assert_eq!(admits(&world), world.options.unprotected == Unprotected::WhenOnDisk);
    });
}
