//! One fault after the other, while money is transferred and lists are appended to: nothing that was answered is lost, all
//! of it is strictly serializable, and the cluster serves again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rialto::io::Random;

use crate::bank::Bank;
use crate::cluster::{Cluster, MEMBERS, NODES, partitions, promise};
use crate::lists::Lists;

/// For how long a fault lasts: longer than a promise, and than it takes to take over.
fn held() -> Duration {
    promise() * 2
}

/// For how long money is transferred around a fault, in seconds.
fn load_s() -> f64 {
    1.0 + 3.5 * promise().as_secs_f64()
}

/// A fault of a node, or of the members of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A node's process is killed, and starts again at the end.
    Killed,
    /// Two nodes are killed at once.
    TwoKilled,
    /// A node stands still, and goes on when its promises have run out.
    StandsStill,
    /// A node's link is down: it reaches neither nodes nor etcd.
    Cut,
    /// What a node hears is lost, and what it says arrives.
    Deaf,
    /// What a node says to the other nodes is lost; what it hears arrives, and it reaches etcd.
    Mute,
    /// What a node sends is slow, and some of it is lost.
    Slow,
    /// A member of etcd is killed, and then a node.
    MemberAndNodeKilled,
    /// Two of three members of etcd are killed: it is away.
    StoreAway,
    /// etcd is away, and a node dies. Its partitions wait for etcd.
    StoreAwayAndNodeKilled,
    /// etcd's members stand still most of the time, and a node dies.
    StoreSlowAndNodeKilled,
}

const FAULTS: [Fault; 11] = [
    Fault::Killed,
    Fault::TwoKilled,
    Fault::StandsStill,
    Fault::Cut,
    Fault::Deaf,
    Fault::Mute,
    Fault::Slow,
    Fault::MemberAndNodeKilled,
    Fault::StoreAway,
    Fault::StoreAwayAndNodeKilled,
    Fault::StoreSlowAndNodeKilled,
];

impl Fault {
    /// What becomes of the node, and of some others.
    fn lasts(self, cluster: &mut Cluster, node: usize) {
        let name = NODES[node];
        let other_nodes: Vec<&str> = NODES.into_iter().filter(|other| *other != name).collect();
        let all_others: Vec<&str> = other_nodes.iter().copied().chain(MEMBERS).collect();
        match self {
            Fault::Killed => {
                cluster.kill_node(node);
                sleep(held());
                cluster.start_node(node);
            }
            Fault::TwoKilled => {
                let two = [node, (node + 1) % NODES.len()];
                two.iter().for_each(|node| cluster.kill_node(*node));
                sleep(held());
                two.iter().for_each(|node| cluster.start_node(*node));
            }
            Fault::StandsStill => {
                cluster.signal_node(node, "STOP");
                sleep(held());
                cluster.signal_node(node, "CONT");
            }
            Fault::Cut => {
                cluster.network.cut(name);
                sleep(held());
                cluster.network.join(name);
            }
            Fault::Deaf => {
                cluster.network.lose(name, &all_others);
                sleep(held());
                cluster.network.lose_nothing(name);
            }
            Fault::Mute => {
                other_nodes.iter().for_each(|other| cluster.network.lose(other, &[name]));
                sleep(held());
                other_nodes.iter().for_each(|other| cluster.network.lose_nothing(other));
            }
            Fault::Slow => {
                cluster.network.slow(name);
                sleep(held());
                cluster.network.fast(name);
            }
            Fault::MemberAndNodeKilled => {
                cluster.kill_member(0);
                cluster.kill_node(node);
                sleep(held());
                cluster.start_node(node);
                cluster.start_member(0);
            }
            Fault::StoreAway => {
                let epochs = |cluster: &Cluster| -> Vec<_> {
                    let status = cluster.status();
                    partitions(&status).iter().map(|partition| partition["epoch"].clone()).collect()
                };
                let before = epochs(cluster);
                (0..2).for_each(|member| cluster.kill_member(member));
                sleep(held());
                (0..2).for_each(|member| cluster.start_member(member));
                println!("epochs before etcd was away and after: {before:?}, {:?}", epochs(cluster));
            }
            Fault::StoreAwayAndNodeKilled => {
                (0..2).for_each(|member| cluster.kill_member(member));
                sleep(promise() / 2);
                cluster.kill_node(node);
                sleep(held());
                (0..2).for_each(|member| cluster.start_member(member));
                cluster.start_node(node);
            }
            Fault::StoreSlowAndNodeKilled => {
                cluster.kill_node(node);
                let began = Instant::now();
                let all = |cluster: &Cluster, signal| {
                    (0..MEMBERS.len()).for_each(|member| cluster.signal_member(member, signal));
                };
                while began.elapsed() < held() {
                    all(cluster, "STOP");
                    sleep(Duration::from_millis(200));
                    all(cluster, "CONT");
                    sleep(Duration::from_millis(50));
                }
                cluster.start_node(node);
            }
        }
    }
}

/// Whatever fails, nothing that was answered is lost. Each fault comes at least once; with more time (`RIALTO_TEST_SECONDS`)
/// in another order again.
#[test]
fn nothing_that_was_answered_is_lost_whatever_fails() {
    let Some(mut cluster) = Cluster::start("namespaces-faults", |_| ()) else { return };
    let lists = Lists::begin(cluster.sql());
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let (mut random, began) = (Random::new(seed), Instant::now());
    let mut rounds = 0;
    while rounds == 0 || began.elapsed() < Random::test_time_from_environment() {
        let mut left = FAULTS.to_vec();
        while !left.is_empty() {
            let fault = left.swap_remove(random.below(left.len() as u64) as usize);
            let level = ["standby", "disk"][random.below(2) as usize];
            let bank = Bank::begin(&cluster, level, load_s());
            sleep(Duration::from_millis(300 + random.below(500)));
            // It leads at least one partition.
            let node = cluster.primary(random.below(3) as usize);
            fault.lasts(&mut cluster, node);
            let about = format!("{fault:?} of {}, level {level}, RIALTO_SEED={seed}", NODES[node]);
            let found = bank.judge(&about);
            cluster.wait_until_whole();
            let before = lists.committed();
            cluster.wait("the lists go on", |_| lists.committed() > before);
            println!("{about}: {found:?}, {:.1} s so far", began.elapsed().as_secs_f64());
            assert!(found.committed > 0, "{about}: {found:?}");
        }
        rounds += 1;
    }
    let tally = lists.judge();
    println!("{rounds} rounds, lists: {} committed, {} unknown", tally.committed, tally.unknown);
    assert!(tally.committed > 0);
}
