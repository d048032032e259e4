//! Replication of one partition, simulated: replicas with model logs, a network, clocks, disks and a control store that fail as a
//! seed says. After each step the oracle looks at the invariants (C1 to C5 in `protocol/replication/`); in the end all faults are healed, and
//! the partition has to serve again.
//!
//! `RIALTO_SEED` repeats a run, and `RIALTO_TRACE` prints its steps.

#[path = "../../../rialto/tests/common/seeds.rs"]
#[allow(dead_code, reason = "each test program needs some of them")]
mod seeds;

mod driver;
mod log;
mod node;
mod oracle;
mod scenarios;
mod store;
mod world;

use rialto_cluster::protocol::replication::{Event, Once, RoleKind};

use crate::node::{Appends, Database, Memory, Openings, Swaps};
use crate::world::{PROMISE, Weather, World};

/// What a run has met.
#[derive(Debug, Default)]
struct Tally {
    steps: u64,
    answers: u64,
    promotions: u64,
    /// How often the age of a replica's tables was known.
    ages: u64,
    restored: u64,
    forced: u64,
    /// The most transactions at level 1 that one failover has lost.
    lost_at_level_1: usize,
}

/// A node is cut off from the others.
fn cut_off(world: &mut World, node: usize) {
    for other in 0..world.nodes.len() {
        world.down[node][other] = true;
        world.down[other][node] = true;
    }
}

/// Something happens to the partition.
fn fault(world: &mut World) {
    let nodes = world.nodes.len() as u64;
    let mut draw = world.random.fork();
    let node = draw.below(nodes) as usize;
    let memory = if draw.chance(1, 2) { Memory::Kept } else { Memory::Lost };
    // Half of the faults meet the primary.
    let leading = (0..nodes as usize).find(|node| world.role(*node) == Some(RoleKind::Leading));
    let node = if draw.chance(1, 2) { leading.unwrap_or(node) } else { node };
    match draw.below(37) {
        0 => world.kill_process(node),
        1 | 2 => world.lose_power(node),
        3 | 4 => world.pause(node, draw.below(3 * PROMISE)),
        5 | 6 => {
            // One way.
            let other = draw.below(nodes) as usize;
            world.down[node][other] = true;
        }
        // The store may be there.
        7 | 8 => cut_off(world, node),
        9 => world.nodes[node].cut_off_store = true,
        10 => world.store.is_away = !world.store.is_away,
        11 => {
            let to = world.nodes[draw.below(nodes) as usize].id;
            world.tell_replica(node, Event::Switchover { to });
        }
        12 => world.die_amid_a_step(node),
        13 if draw.chance(1, 3) => {
            // A primary opens its database anew by itself.
            let leads = world.role(node) == Some(RoleKind::Leading);
            (world.nodes[node].log_stopped, world.nodes[node].needs_opening) = (true, !leads);
            world.tell_replica(node, Event::LogStopped);
        }
        13 if draw.chance(1, 2) => {
            world.nodes[node].needs_opening = true;
            world.tell_replica(node, Event::RedoFailed);
        }
        14 => {
            let keep = 1 + draw.below(world.store.history.len() as u64) as usize;
            world.restore_store(keep);
        }
        31 => {
            // One is dropped while it hears nothing, and the store goes back to before that.
            let other = draw.below(nodes) as usize;
            cut_off(world, other);
            world.nodes[other].cut_off_store = true;
            world.run_until(world.time + PROMISE + PROMISE / 2);
            let keep = world.store.history.len() - 1;
            world.restore_store(keep.max(1));
            world.nodes[other].cut_off_store = false;
        }
        16 if draw.chance(1, 6) => world.force(node),
        15 | 25 | 30 => {
            // The primary stands still, and swaps of those that want to take over are late; some die on the way.
            let time = PROMISE * 3 / 4 + draw.below(3 * PROMISE / 2);
            for other in 0..nodes as usize {
                match Some(other) == leading {
                    true => world.pause(other, time),
                    false => {
                        let swaps = [Swaps::Usual, Swaps::Late, Swaps::LateAndDies, Swaps::LateAndDies];
                        world.nodes[other].swaps = swaps[draw.below(4) as usize];
                    }
                }
            }
        }
        17 if draw.chance(1, 2) => (0..nodes as usize).for_each(|node| world.lose_power(node)),
        18 => world.nodes[node].appends = Appends::Fail,
        19 => world.nodes[node].appends = Appends::Stick,
        20 => match draw.below(3) {
            0 => world.nodes[node].fails_to_lead = true,
            1 => world.nodes[node].openings = Openings::Slow,
            _ => world.nodes[node].openings = Openings::Stuck,
        },
        23 | 24 => {
            // The primary's process begins again, and finds the others silent soon.
            let node = leading.unwrap_or(node);
            world.restart_process(node, draw.below(PROMISE / 10));
            let pause = draw.below(PROMISE);
            world.run_until(world.time + pause);
            for other in (0..nodes as usize).filter(|other| *other != node) {
                world.pause(other, PROMISE + draw.below(2 * PROMISE));
            }
        }
        26 | 27 => {
            // A standby's answers are slow; then it hears the primary no more.
            let other = draw.below(nodes) as usize;
            let leading = leading.unwrap_or(node);
            world.slow[other][leading] = PROMISE / 8 + draw.below(PROMISE / 2);
            world.run_until(world.time + PROMISE);
            world.down[leading][other] = true;
        }
        28 => world.reopen(node, memory),
        29 => {
            // A takeover in which the database is opened anew.
            if let Some(leading) = leading {
                world.pause(leading, 3 * PROMISE);
            }
            for _ in 0..60 {
                world.run_until(world.time + PROMISE / 25);
                let is_open = |node: &usize| world.nodes[*node].has_open_swap(world.time);
                if let Some(node) = (0..nodes as usize).find(is_open) {
                    return world.reopen(node, memory);
                }
            }
        }
        21 | 22 => {
            let other = draw.below(nodes) as usize;
            let (node, member) = (world.nodes[other].id, world.nodes[other].member());
            let event = match draw.chance(1, 2) {
                true => Event::Remove { node, once: Once::Others(1) },
                false => Event::AddLearner { member },
            };
            world.tell_replica(leading.unwrap_or(0), event);
        }
        34 if nodes > 2 => {
            // One takes over that the others do not hear, and the others hear the last primary, and not the store.
            let Some(leading) = leading else { return };
            let other = draw.below(nodes) as usize;
            cut_off(world, other);
            for node in (0..nodes as usize).filter(|node| *node != other || other == leading) {
                world.nodes[node].cut_off_store = true;
            }
            world.run_until(world.time + 3 * PROMISE);
        }

        35 => {
            // The tables of a replica are found to be others than the primary's.
            let other = draw.below(nodes) as usize;
            if let Some(leading) = leading.filter(|leading| *leading != other) {
                world.nodes[other].differs = true;
                let member = world.nodes[other].member();
                world.tell_replica(leading, Event::Differs { member });
            }
        }
        32 | 33 => (0..nodes as usize).for_each(|node| world.give_up(node)),
        _ => {
            world.end_link_faults();
            world.nodes.iter_mut().for_each(|node| node.cut_off_store = false);
            world.store.is_away = false;
            for node in &mut world.nodes {
                (node.appends, node.fails_to_lead, node.swaps) = (Appends::Work, false, Swaps::Usual);
                node.openings = Openings::Usual;
            }
        }
    }
}

/// Names the run that fails: with it as `RIALTO_SEED` it is the first.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the run that failed: RIALTO_SEED={}", self.0);
        }
    }
}

/// One run.
fn run(seed: u64, tally: &mut Tally) {
    let _named = Named(seed);
    let mut world = World::new(seed);
    let bad = world.random.chance(2, 3);
    if bad {
        world.weather = Weather {
            drop: world.random.below(150),
            duplicate: world.random.below(150),
            long_delay: world.random.below(250),
            unknown_swap: world.random.below(400),
            trim: world.random.below(20),
            lead_fails: world.random.below(50),
        };
    }
    world.run_until(PROMISE);
    let faults = 2 + world.random.below(10);
    for _ in 0..faults {
        fault(&mut world);
        let pause = world.random.below(PROMISE);
        world.run_until(world.time + pause);
    }
    heal(&mut world, seed);
    tally.steps += world.steps;
    tally.answers += world.answers;
    tally.promotions += world.promotions;
    tally.ages += world.ages;
    tally.restored += u64::from(world.was_restored);
    tally.forced += world.forced;
    tally.lost_at_level_1 = tally.lost_at_level_1.max(world.oracle.lost_at_level_1);
}

/// All faults end: the partition serves again within a bounded time, with all its replicas in sync.
fn heal(world: &mut World, seed: u64) {
    world.heal();
    // What the log of a replica or its redo was stopped by is repaired by an opening. All else heals without.
    for node in 0..world.nodes.len() {
        if world.nodes[node].needs_opening && world.random.chance(1, 2) {
            world.reopen(node, Memory::Lost);
        }
        if world.nodes[node].needs_opening && world.nodes[node].database == Database::Open {
            world.kill_process(node);
        }
    }
    // A force that came to no end has fenced replicas, and needs another one.
    if world.was_restored || world.forced > 0 {
        world.run_until(world.time + 6 * PROMISE);
        let node = (0..world.nodes.len())
            .filter(|node| world.can_be_forced(*node))
            .max_by_key(|node| world.nodes[*node].log.common(&world.oracle.answered))
            .expect("a node with a whole database");
        let node = world.serving().unwrap_or(node);
        world.force(node);
    }
    for _ in 0..100 {
        world.run_until(world.time + PROMISE / 4);
        let before = world.answers;
        add_missing(world);
        if let Some(serving) = world.serving()
            && world.store.now().configuration.in_sync.len() == world.nodes.len()
        {
            world.run_until(world.time + PROMISE / 2);
            if world.answers > before && world.serving() == Some(serving) {
                return;
            }
        }
    }
    let store = world.store.now();
    let known: Vec<_> =
        world.nodes.iter().map(|node| node.replica.as_ref().and_then(|r| r.known())).collect();
    panic!("seed {seed}: the partition does not serve with all replicas; {store:?}; they know {known:#?}");
}

/// Has the primary add the replicas that were removed.
fn add_missing(world: &mut World) {
    let Some(serving) = world.serving() else { return };
    for node in 0..world.nodes.len() {
        let member = world.nodes[node].member();
        if !world.store.now().configuration.has(member.node) {
            world.tell_replica(serving, Event::AddLearner { member });
        }
    }
}

#[test]
fn one_primary_and_nothing_that_was_answered_is_lost() {
    let mut tally = Tally::default();
    let (first, seeds) = seeds::for_a_while(|seed| {
        // Many runs a seed: the name of the first one repeats all of them.
        run(seed, &mut tally);
    });
    println!("RIALTO_SEED={first}: {seeds} runs, {tally:?}");
    assert!(tally.ages > 0 || tally.answers == 0, "no replica has known the age of its tables");
}
