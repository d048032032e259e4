//! Standbys whose disks are full or stuck.

use rialto_cluster::protocol::NodeId;

use super::{each_of_some_seeds, settled};
use crate::node::Appends;
use crate::world::{PROMISE, World};

/// So much was answered at level 2 or 3.
fn answered(world: &World) -> usize {
    world.oracle.answered.len()
}

#[test]
fn a_standby_that_cannot_append_says_so_and_is_dropped() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.nodes[0].disk = 50;
        world.nodes[2].appends = Appends::Fail;
        // Sooner than one that says nothing.
        world.run_until(world.time + PROMISE / 2);
        assert_eq!(world.store.now().configuration.in_sync.len(), 2);
        assert_eq!(world.serving(), Some(0));
        let before = answered(&world);
        world.run_until(world.time + 2 * PROMISE);
        assert!(answered(&world) > before);
    });
}

#[test]
fn what_is_on_its_way_to_a_standby_is_bounded() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.nodes[1].appends = Appends::Stick;
        let begin = world.nodes[0].log.len();
        for _ in 0..18 {
            world.run_until(world.time + PROMISE / 20);
            let now = world.nodes[0].now(world.time);
            let status = world.nodes[0].replica.as_ref().expect("a replica").status(now);
            let peer = status.peers.iter().find(|peer| peer.member.node == NodeId(1)).expect("a standby");
            let on_its_way = peer.sent.position.0 - peer.received.expect("a stream").position.0;
            // A batch is not divided: a few transactions come at once.
            assert!(on_its_way < world.options.window + 8, "{on_its_way} blocks");
        }
        assert!(world.nodes[0].log.len() > begin + 4);
    });
}

#[test]
fn a_standby_that_promises_and_takes_nothing_is_dropped() {
    each_of_some_seeds(|seed| {
        for replicas in [2, 3] {
            let mut world = settled(seed, replicas);
            world.nodes[0].disk = 50;
            world.nodes[1].appends = Appends::Stick;
            // The disk of one that becomes alone has to have all first.
            world.run_until(world.time + 3 * PROMISE);
            assert_eq!(world.store.now().configuration.in_sync.len(), replicas - 1);
            let before = answered(&world);
            for _ in 0..200 {
                world.run_until(world.time + 10);
                assert_eq!(world.serving(), Some(0));
                assert_eq!(world.store.now().configuration.in_sync.len(), replicas - 1, "it comes and goes");
            }
            assert!(answered(&world) > before);
            world.nodes[1].appends = Appends::Work;
            world.run_until(world.time + 2 * PROMISE);
            assert_eq!(world.store.now().configuration.in_sync.len(), replicas);
        }
    });
}
