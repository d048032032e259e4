//! The control store is away, or tells nothing.

use rialto_cluster::protocol::NodeId;
use rialto_cluster::protocol::replication::Event;

use super::{each_of_some_seeds, settled};
use crate::world::{PROMISE, Tells, World};

/// Cuts, or joins again, all connections of a node.
fn set_links(world: &mut World, node: usize, is_down: bool) {
    for other in 0..world.nodes.len() {
        world.down[node][other] = is_down;
        world.down[other][node] = is_down;
    }
}

/// Whether a node knows the configuration in force.
fn knows(world: &World, node: usize) -> bool {
    let replica = world.nodes[node].replica.as_ref().expect("a replica");
    replica.known() == Some(world.store.now())
}

#[test]
fn a_cut_that_ends_while_the_store_is_away_leaves_nothing_behind() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.store.is_away = true;
        set_links(&mut world, 0, true);
        world.run_until(world.time + 3 * PROMISE);
        assert_eq!(world.serving(), None);
        set_links(&mut world, 0, false);
        world.run_until(world.time + PROMISE);
        assert_eq!(world.serving(), Some(0), "a swap that is open forbids promises");
    });
}

#[test]
fn a_store_that_is_away_is_asked_ever_less_often() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.store.is_away = true;
        world.lose_power(0);
        world.pause(0, 30 * PROMISE);
        let before: Vec<u64> = world.nodes.iter().map(|node| node.reads).collect();
        world.run_until(world.time + 20 * PROMISE);
        for (node, before) in world.nodes.iter().zip(before) {
            let reads = node.reads - before;
            assert!(reads <= 28, "{reads} reads of {} in 20 times of the longest pause", node.id);
        }
        world.store.is_away = false;
        world.run_until(world.time + 2 * PROMISE);
        assert!(world.serving().is_some());
    });
}

/// A partition whose third replica hears no other one, and has been dropped.
fn with_a_cut_learner(seed: u64, tells: Tells) -> World {
    let mut world = settled(seed, 3);
    world.tells = tells;
    set_links(&mut world, 2, true);
    world.run_until(world.time + 3 * PROMISE);
    assert_eq!(world.store.now().configuration.in_sync.len(), 2);
    assert!(knows(&world, 2));
    world
}

/// Makes the second replica primary.
fn promote_the_second(world: &mut World) {
    world.tell_replica(0, Event::Switchover { to: NodeId(1) });
    for _ in 0..PROMISE {
        world.run_until(world.time + 1);
        if world.store.now().configuration.primary == NodeId(1) {
            return assert!(!knows(world, 2));
        }
    }
    panic!("no planned change");
}

#[test]
fn a_replica_that_hears_no_other_finds_a_promotion_by_asking() {
    each_of_some_seeds(|seed| {
        let mut world = with_a_cut_learner(seed, Tells::None);
        promote_the_second(&mut world);
        // Its clock may be slow.
        let until = world.time + world.options.poll.as_millis() as u64 * 11 / 10 + 150;
        let found = (world.time..until).any(|time| {
            world.run_until(time);
            world.nodes[2]
                .replica
                .as_ref()
                .and_then(|replica| replica.known())
                .is_some_and(|known| known.configuration.primary == NodeId(1))
        });
        assert!(found);
    });
}

#[test]
fn a_replica_that_is_told_of_a_change_reads_it_at_once() {
    each_of_some_seeds(|seed| {
        let mut world = with_a_cut_learner(seed, Tells::All);
        promote_the_second(&mut world);
        world.run_until(world.time + PROMISE / 10);
        assert!(knows(&world, 2));
    });
}
