//! Primaries whose databases take longer to open than a promise holds.

use rialto_cluster::protocol::NodeId;
use rialto_cluster::protocol::replication::Event;

use super::{each_of_some_seeds, settled, time_without_service};
use crate::node::{Kernel, Openings, Redoes};
use crate::world::{HEARTBEAT, PROMISE, World};

fn begun_elsewhere(world: &World, primary: usize) -> u64 {
    let others = world.nodes.iter().enumerate().filter(|(node, _)| *node != primary);
    others.map(|(_, node)| node.leads_begun).sum()
}

#[test]
fn a_slow_opening_keeps_its_standbys() {
    each_of_some_seeds(|seed| {
        // The primary's process begins again, before its promises have run out.
        let mut world = settled(seed, 3);
        world.nodes[0].openings = Openings::Slow;
        world.restart_process(0, PROMISE / 20);
        world.run_until(world.time + 7 * PROMISE);
        assert_eq!((world.serving(), begun_elsewhere(&world, 0)), (Some(0), 0));
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);

        // A planned change: the one that stays in sync gives its promise to the new primary.
        let mut world = settled(seed, 3);
        world.nodes[2].openings = Openings::Slow;
        world.tell_replica(0, Event::Switchover { to: NodeId(2) });
        world.run_until(world.time + 9 * PROMISE);
        assert_eq!((world.serving(), world.nodes[1].leads_begun), (Some(2), 0));
        assert_eq!(world.store.now().configuration.in_sync.len(), 3);
    });
}

#[test]
fn a_stuck_opening_is_given_up() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.nodes[0].openings = Openings::Stuck;
        world.restart_process(0, PROMISE / 20);
        let before = world.time;
        let without = time_without_service(&mut world);
        assert!(begun_elsewhere(&world, 0) > 0, "{without} ms from {before} on");
    });
}

#[test]
fn a_standby_that_dies_while_a_primary_opens_holds_nothing_up() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.nodes[0].openings = Openings::Slow;
        world.restart_process(0, PROMISE / 20);
        world.run_until(world.time + PROMISE);
        assert_eq!(world.nodes[0].kernel, Kernel::BeginsToLead);
        world.pause(1, 20 * PROMISE);
        let until = world.time + 7 * PROMISE;
        while world.nodes[0].kernel != Kernel::Leads {
            assert!(world.time < until, "it opens");
            world.run_until(world.time + 5);
        }
        // It has not to drop the standby first.
        world.run_until(world.time + HEARTBEAT);
        assert_eq!((world.serving(), begun_elsewhere(&world, 0)), (Some(0), 0));
        world.run_until(world.time + PROMISE);
        assert_eq!((world.serving(), begun_elsewhere(&world, 0)), (Some(0), 0));
        assert_eq!(world.store.now().configuration.in_sync.len(), 2);
    });
}

#[test]
fn a_standby_goes_on_with_its_redo_while_its_primary_opens() {
    each_of_some_seeds(|seed| {
        let mut world = settled(seed, 3);
        world.nodes[1].redoes = Redoes::HeldUp;
        let before = world.nodes[1].log.redone;
        world.run_until(world.time + 4 * PROMISE);
        let allowed = world.nodes[1].bound;
        assert!(allowed > before, "nothing was answered meanwhile");
        world.nodes[0].openings = Openings::Slow;
        world.restart_process(0, PROMISE / 20);
        world.run_until(world.time + PROMISE);
        assert_eq!(world.nodes[0].kernel, Kernel::BeginsToLead);
        world.nodes[1].redoes = Redoes::Usual;
        world.redo(1);
        assert!(world.nodes[1].log.redone >= allowed, "{} of {allowed}", world.nodes[1].log.redone);
    });
}
