//! Replicas that join a partition and leave it.

use rialto::io::Random;
use rialto_cluster::protocol::NodeId;
use rialto_cluster::protocol::replication::{Event, Once};

use super::{each_of_some_seeds, settled};
use crate::node::Appends;
use crate::world::{HEARTBEAT, PROMISE, World};

/// The nodes of the configuration in force.
fn nodes(world: &World) -> Vec<u32> {
    let mut nodes: Vec<u32> = world.store.now().configuration.nodes().map(|node| node.0).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn replicas_leave_and_join() {
    each_of_some_seeds(|seed| {
        let mut world = World::of(Random::new(seed), 4, 4, HEARTBEAT);
        world.run_until(3 * PROMISE);
        world.tell_replica(0, Event::Remove { node: NodeId(3), once: Once::Others(1) });
        world.tell_replica(0, Event::Remove { node: NodeId(2), once: Once::Others(1) });
        // A primary stays.
        world.tell_replica(0, Event::Remove { node: NodeId(0), once: Once::Others(1) });
        world.run_until(world.time + PROMISE);
        assert_eq!(nodes(&world), [0, 1]);
        assert_eq!(world.serving(), Some(0));
        // One that hears no primary asks the store.
        world.run_until(world.time + 2 * PROMISE);
        let says: Vec<bool> = world.nodes.iter().map(|node| node.says_removed).collect();
        assert_eq!(says, [false, false, true, true]);
        let member = world.nodes[3].member();
        world.tell_replica(0, Event::AddLearner { member });
        world.run_until(world.time + 6 * PROMISE);
        assert_eq!(nodes(&world), [0, 1, 3]);
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
        // The one that is none of the partition's leads nothing, whatever becomes of the others.
        for node in [0, 1, 3] {
            world.lose_power(node);
            world.pause(node, 10 * PROMISE);
        }
        world.run_until(world.time + 5 * PROMISE);
        assert_eq!(world.serving(), None);
        world.force(2);
        world.run_until(world.time + PROMISE);
        assert_eq!(nodes(&world), [0, 1, 3]);
        assert_eq!(world.nodes[2].leads_begun, 0);
    });
}

#[test]
fn a_replica_that_was_given_up_comes_back_with_nothing() {
    each_of_some_seeds(|seed| {
        let mut world = World::of(Random::new(seed), 3, 3, HEARTBEAT);
        world.run_until(3 * PROMISE);
        world.tell_replica(0, Event::Remove { node: NodeId(2), once: Once::Others(1) });
        world.run_until(world.time + 4 * PROMISE);
        assert!(world.nodes[2].says_removed);
        world.give_up(2);
        assert_eq!(world.nodes[2].log.len(), 0);
        let answers = world.answers;
        world.run_until(world.time + 3 * PROMISE);
        assert!(world.answers > answers, "the others go on");
        let member = world.nodes[2].member();
        world.tell_replica(0, Event::AddLearner { member });
        world.run_until(world.time + 8 * PROMISE);
        assert_eq!(nodes(&world), [0, 1, 2]);
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
    });
}

#[test]
fn a_primary_knows_which_replicas_are_away() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        let unheard = |world: &World| {
            assert_eq!(world.serving(), Some(0));
            let node = &world.nodes[0];
            node.replica.as_ref().unwrap().unheard(node.now(world.time))
        };
        // None while all are in sync, also when one has just stopped.
        assert_eq!(unheard(&world), []);
        world.pause(2, 6 * PROMISE);
        world.run_until(world.time + HEARTBEAT);
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
        assert_eq!(unheard(&world), []);
        world.run_until(world.time + 3 * PROMISE);
        assert_eq!(nodes(&world), [0, 1, 2]);
        assert_eq!(world.store.now().configuration.in_sync.len(), 2);
        assert_eq!(unheard(&world), [NodeId(2)]);
        // One that only catches up is heard.
        world.nodes[2].appends = Appends::Stick;
        world.run_until(world.time + 5 * PROMISE);
        assert_eq!(world.store.now().configuration.in_sync.len(), 2);
        assert_eq!(unheard(&world), []);
    });
}

#[test]
fn the_last_standby_is_removed_once_the_primary_has_all_on_its_disk() {
    each_of_some_seeds(|seed| {
        let mut world = World::of(Random::new(seed), 2, 2, HEARTBEAT);
        world.run_until(3 * PROMISE);
        world.nodes[0].disk = 0;
        world.tell_replica(0, Event::Remove { node: NodeId(1), once: Once::Others(1) });
        // The oracle looks at the disk of a replica that is alone.
        world.run_until(world.time + 3 * PROMISE);
        assert_eq!(nodes(&world), [0]);
        assert!(world.nodes[1].says_removed);
    });
}

#[test]
fn a_wish_is_looked_at_when_it_is_carried_out() {
    each_of_some_seeds(|seed| {
        let mut world = World::of(Random::new(seed), 3, 3, HEARTBEAT);
        world.run_until(3 * PROMISE);
        // Node 2 takes the place of node 1, and dies while the store does not answer.
        world.store.is_away = true;
        world.run_until(world.time + 3 * PROMISE);
        world.tell_replica(0, Event::Remove { node: NodeId(1), once: Once::InSync(NodeId(2)) });
        world.pause(2, 20 * PROMISE);
        world.run_until(world.time + PROMISE);
        world.store.is_away = false;
        world.run_until(world.time + 6 * PROMISE);
        let store = world.store.now();
        assert_eq!(store.configuration.life_in_sync(NodeId(2)), None);
        assert!(store.configuration.life_in_sync(NodeId(1)).is_some(), "{store:?}");
        assert_eq!(world.serving(), Some(0));
        // Nor does one go that is one of two.
        world.tell_replica(0, Event::Remove { node: NodeId(1), once: Once::Others(2) });
        world.run_until(world.time + PROMISE);
        assert!(world.store.now().configuration.has(NodeId(1)));
    });
}

#[test]
fn a_wish_that_is_not_told_again_goes() {
    each_of_some_seeds(|seed| {
        let mut world = World::of(Random::new(seed), 3, 3, HEARTBEAT);
        world.run_until(3 * PROMISE);
        world.tell_replica(0, Event::Remove { node: NodeId(2), once: Once::CatchesUp });
        world.run_until(world.time + 6 * PROMISE);
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
        // It catches up for a moment: what was wanted long ago is not done then.
        world.pause(2, 4 * PROMISE);
        world.run_until(world.time + 12 * PROMISE);
        assert_eq!(nodes(&world), [0, 1, 2]);
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
    });
}

#[test]
fn what_a_replica_agrees_with_is_no_epoch_that_it_has_only_heard_of() {
    each_of_some_seeds(|seed| {
        let mut world = World::of(Random::new(seed), 3, 3, HEARTBEAT);
        world.run_until(3 * PROMISE);
        let before = world.nodes[2].saved;
        assert_eq!(before.agrees, world.store.now().configuration.epoch);
        // It is dropped, and hears of epochs without it.
        world.nodes[2].appends = Appends::Stick;
        world.run_until(world.time + 5 * PROMISE);
        assert_eq!(world.store.now().configuration.in_sync.len(), 2);
        let saved = world.nodes[2].saved;
        assert!(saved.epoch > before.epoch && saved.agrees == before.agrees, "{saved:?}");
        world.nodes[2].appends = Appends::Work;
        world.run_until(world.time + 5 * PROMISE);
        assert_eq!(world.nodes[2].saved.agrees, world.store.now().configuration.epoch);
    });
}
