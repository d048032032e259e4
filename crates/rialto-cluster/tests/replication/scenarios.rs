//! What replication promises about time, and about what has to be waited for.

mod differing;
mod disks;
mod members;
mod openings;
mod store_away;

use rialto::io::Random;
use rialto_cluster::protocol::replication::{Event, Fitness, RoleKind, Unprotected};
use rialto_cluster::protocol::{Epoch, NodeId};

use crate::node::{Memory, Swaps};
use crate::world::{HEARTBEAT, PROMISE, World};

/// Runs it with a few seeds.
pub fn each_of_some_seeds(run: impl Fn(u64)) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    (0..40).for_each(|seed| run(first.wrapping_add(seed)));
}

/// A partition of so many replicas that serves, all of them in sync.
pub fn settled(seed: u64, replicas: usize) -> World {
    let mut world = World::of(Random::new(seed), replicas, replicas, HEARTBEAT);
    world.run_until(3 * PROMISE);
    assert_eq!(world.serving(), Some(0));
    assert_eq!(world.store.now().configuration.in_sync.len(), replicas);
    world
}

/// How long no replica serves from now on, in the simulation's milliseconds, until another than the first one does.
pub fn time_without_service(world: &mut World) -> u64 {
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
        // The logs of the other two end at one place.
        assert_eq!(world.store.now().configuration.in_sync.len(), 2);
        // The first one closes its database, and comes back.
        world.run_until(world.time + 3 * PROMISE);
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
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
fn a_primary_that_is_alone_and_whose_log_has_stopped_opens_it_anew() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 1);
        world.nodes[0].log_stopped = true;
        world.tell_replica(0, Event::LogStopped);
        assert_eq!(world.serving(), None);
        world.run_until(world.time + 3 * PROMISE);
        assert_eq!(world.serving(), Some(0));
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

#[test]
fn a_round_trip_may_take_longer_than_a_heartbeat() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        // Longer than the time between two heartbeats of this simulation, and shorter than what counts as silence.
        world.latency = HEARTBEAT * 97 / 125;
        for _ in 0..500 {
            world.run_until(world.time + 10);
            assert_eq!(world.serving(), Some(0));
        }
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
    });
}

#[test]
fn a_planned_change_that_comes_before_the_primary_leads_is_not_taken() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 2);
        world.restart_process(0, 20);
        while world.role(0) != Some(RoleKind::Leading) {
            world.run_until(world.time + 1);
        }
        world.tell_replica(0, Event::Switchover { to: NodeId(1) });
        world.run_until(world.time + 2 * PROMISE);
        assert_eq!(world.serving(), Some(0));
    });
}

#[test]
fn a_primary_whose_database_does_not_lead_gives_way() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.nodes.iter_mut().for_each(|node| node.disk = 50);
        world.nodes[0].fails_to_lead = true;
        world.restart_process(0, 20);
        let without = time_without_service(&mut world);
        assert!(without < PROMISE * 3 / 4, "{without} ms without a primary");
    });
}

#[test]
fn a_primary_that_is_alone_and_whose_database_does_not_lead_pauses() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 1);
        let before = world.nodes[0].leads_begun;
        world.nodes[0].fails_to_lead = true;
        world.restart_process(0, 20);
        world.run_until(world.time + 8 * PROMISE);
        let tries = world.nodes[0].leads_begun - before;
        assert!((2..=4).contains(&tries), "{tries} tries, with pauses of 1, 2, 4 and 8 promises");
        world.nodes[0].fails_to_lead = false;
        world.run_until(world.time + 9 * PROMISE);
        assert_eq!(world.serving(), Some(0));
    });
}

#[test]
fn a_replica_whose_database_loses_its_memory_amid_its_promotion_leads_in_its_new_life() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 2);
        world.nodes[1].swaps = Swaps::Late;
        world.pause(0, 30 * PROMISE);
        while !world.nodes[1].has_open_swap(world.time) {
            world.run_until(world.time + 1);
        }
        world.reopen(1, Memory::Lost);
        world.run_until(world.time + 12 * PROMISE);
        assert_eq!(world.serving(), Some(1));
        let recorded = world.store.now().configuration.life_in_sync(NodeId(1));
        assert_eq!(recorded, Some(world.nodes[1].life));
    });
}

#[test]
fn a_swap_that_may_be_done_forbids_promises() {
    each_of_some_seeds(|seed| {
        for begins_again in [false, true] {
            let mut world = settled(seed, 2);
            world.nodes[1].swaps = Swaps::Late;
            while !world.nodes[1].has_open_swap(world.time) {
                world.pause(0, 20);
                world.run_until(world.time + 1);
            }
            if begins_again {
                world.restart_process(1, 10);
            }
            // The primary is back. The oracle sees whether both serve.
            world.run_until(world.time + 4 * PROMISE);
            assert!(world.serving().is_some());
        }
    });
}

#[test]
fn a_primary_that_begins_again_owes_what_was_answered_before() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 2);
        world.nodes[0].disk = 0;
        world.run_until(world.time + PROMISE);
        world.restart_process(0, 20);
        while world.role(0) != Some(RoleKind::Leading) {
            world.run_until(world.time + 1);
        }
        // The oracle looks at the disk of a replica that becomes the only one in sync.
        world.pause(1, 10 * PROMISE);
        world.run_until(world.time + 5 * PROMISE);
        assert_eq!(world.store.now().configuration.in_sync.len(), 1);
        assert_eq!(world.serving(), Some(0));
    });
}

#[test]
fn a_loss_of_all_memories_is_told_to_each_later_primary() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        (0..3).for_each(|node| world.lose_power(node));
        world.run_until(world.time + 8 * PROMISE);
        assert_eq!(world.serving(), Some(0));
        let lost_before = world.store.now().configuration.lost_before;
        assert!(lost_before.memories > Epoch(2));
        assert_eq!(lost_before.disks, Epoch(0));
        // The oracle compares what each one is told that leads.
        world.pause(0, 20 * PROMISE);
        time_without_service(&mut world);
        assert_eq!(world.store.now().configuration.lost_before, lost_before);
    });
}

#[test]
fn a_primary_shows_its_replicas() {
    each_of_some_seeds(|seed| {
        let world = settled(seed, 3);
        let now = world.nodes[0].now(world.time);
        let show = |node: usize| world.nodes[node].replica.as_ref().expect("a replica").status(now);
        let primary = show(0);
        assert_eq!((primary.role, primary.serves), (RoleKind::Leading, true));
        assert_eq!((primary.primary, primary.in_sync.len()), (Some(NodeId(0)), 3));
        assert_eq!((primary.open_swap, primary.epoch), (None, world.store.now().configuration.epoch));
        assert!(primary.store_seen.is_some());
        assert_eq!(primary.peers.len(), 2);
        for peer in &primary.peers {
            let is_known = peer.received.is_some() && peer.promised_until.is_some_and(|until| until > now);
            assert!(is_known && peer.fitness == Fitness::Fit, "{peer:?}");
        }
        let standby = show(1);
        assert_eq!(
            (standby.role, standby.serves, standby.epoch),
            (RoleKind::Following, false, primary.epoch)
        );
    });
}
