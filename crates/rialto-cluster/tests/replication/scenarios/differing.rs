//! A replica whose tables are not its log, redone (C6).

use rialto_cluster::protocol::NodeId;
use rialto_cluster::protocol::replication::Event;

use super::{each_of_some_seeds, settled};
use crate::world::{PROMISE, World};

fn is_in_sync(world: &World, node: usize) -> bool {
    world.store.now().configuration.life_in_sync(NodeId(node as u32)).is_some()
}

/// The primary finds that the tables of this replica differ.
fn found(world: &mut World, node: usize) {
    world.nodes[node].differs = true;
    let member = world.nodes[node].member();
    world.tell_replica(0, Event::Differs { member });
}

/// Lets time pass, in which the first node serves. A replica that was out of sync comes back with a copy only. Gives whether
/// that one was out of sync.
fn serves_on(world: &mut World, node: usize, time: u64) -> bool {
    let (mut was_out, until) = (false, world.time + time);
    while world.time < until {
        world.run_until(world.time + 5);
        assert_eq!(world.serving(), Some(0));
        was_out |= !is_in_sync(world, node);
        assert!(!was_out || !is_in_sync(world, node) || !world.nodes[node].differs, "it is back as it was");
    }
    was_out
}

#[test]
fn a_replica_that_differs_takes_a_copy_while_the_partition_serves() {
    each_of_some_seeds(|seed| {
        for replicas in [2, 3] {
            let mut world = settled(seed, replicas);
            let life = world.nodes[1].life;
            found(&mut world, 1);
            assert!(serves_on(&mut world, 1, 8 * PROMISE), "it gets out of sync");
            assert!(is_in_sync(&world, 1) && !world.nodes[1].differs, "it comes back with a copy");
            assert_ne!(world.nodes[1].life, life);
            assert_eq!(world.store.now().configuration.in_sync.len(), replicas);
        }
    });
}

#[test]
fn a_store_that_is_away_has_no_partition_stop_for_a_difference() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 2);
        world.store.is_away = true;
        world.run_until(world.time + 2 * PROMISE);
        let answers = world.answers;
        found(&mut world, 1);
        assert!(!serves_on(&mut world, 1, 6 * PROMISE), "no configuration changes");
        assert!(world.answers > answers);
        world.store.is_away = false;
        assert!(serves_on(&mut world, 1, 10 * PROMISE), "it gets out of sync");
        assert!(is_in_sync(&world, 1) && !world.nodes[1].differs);
    });
}

#[test]
fn a_learner_that_differs_takes_a_copy_before_it_is_in_sync() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.pause(2, 3 * PROMISE);
        world.run_until(world.time + 2 * PROMISE);
        assert!(!is_in_sync(&world, 2));
        found(&mut world, 2);
        serves_on(&mut world, 2, 10 * PROMISE);
        assert!(is_in_sync(&world, 2) && !world.nodes[2].differs);
        // What is said of an earlier life means no replica that is there.
        let mut member = world.nodes[1].member();
        member.life.0 ^= 1;
        world.tell_replica(0, Event::Differs { member });
        assert!(!serves_on(&mut world, 1, 3 * PROMISE));
    });
}
