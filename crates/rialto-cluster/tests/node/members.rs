//! Nodes that join, are drained, leave and are lost, while transfers of money run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use rialto_cluster::control::ControlStore as _;
use rialto_cluster::node::{
    ClusterFacts, Joined, Move, NodeFacts, Placement, Purpose, RoundError, Standing, balance_round,
    drain_round,
};
use rialto_cluster::protocol::replication::{Configuration, StoreIdentity};
use rialto_cluster::protocol::transactions::Level;
use rialto_cluster::protocol::{NodeId, PartitionId};

use crate::cluster::{Cluster, soon};
use crate::sql::{ACCOUNTS, bank, ready, session, total, transfer};

/// Clients at node 0 that transfer money until this is dropped.
struct Transfers {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicI64>,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Transfers {
    fn begin(cluster: &Cluster) -> Transfers {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let client = |client| {
            let mut session = session(cluster, 0);
            let (stop, done) = (stop.clone(), done.clone());
            std::thread::spawn(move || {
                let mut random = rialto::io::Random::new(client);
                while !stop.load(Ordering::Relaxed) {
                    let mut account = || 1 + random.below(ACCOUNTS as u64) as i64;
                    let (from, to) = (account(), account());
                    if from == to {
                        continue;
                    }
                    match transfer(&mut session, from, to, 1) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => {
                            let code = error.sqlstate.code();
                            assert!(["40001", "40P01", "57P03", "08007"].contains(&code), "{code}: {error}");
                        }
                    }
                }
            })
        };
        let clients = (0..3).map(client).collect();
        Transfers { stop, done, clients }
    }

    fn go_on(&self, what: &str) {
        let before = self.done.load(Ordering::Relaxed);
        soon(what, || self.done.load(Ordering::Relaxed) > before + 20);
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

fn facts(cluster: &Cluster) -> ClusterFacts {
    ClusterFacts::read(&cluster.store).unwrap()
}

fn placement(cluster: &Cluster) -> Placement {
    Placement::read(&cluster.store, &facts(cluster)).unwrap()
}

/// Does what `rialto cluster drain` and `replace` do.
fn drain(cluster: &Cluster, node: usize, preferred: Option<u32>) {
    NodeFacts::set_standing(&cluster.store, &format!("node-{node}"), Standing::Draining).unwrap();
    soon("the node is drained", || {
        std::thread::sleep(Duration::from_millis(100));
        drain_round(&cluster.store, &facts(cluster), node as u32, preferred, 2).unwrap().left == 0
    });
}

/// All partitions have two replicas, in sync, on other nodes than this one, and nothing is under way.
fn settles(cluster: &Cluster, without: usize) {
    soon("nothing is under way", || {
        std::thread::sleep(Duration::from_millis(100));
        let found = placement(cluster);
        let is_settled = |id: &PartitionId| {
            let nodes: Vec<u32> = found.configurations[id].in_sync.iter().map(|of| of.node.0).collect();
            nodes.len() == 2
                && !nodes.contains(&(without as u32))
                && found.configurations[id].learners.is_empty()
        };
        found.moves.all().count() == 0 && found.configurations.keys().all(is_settled)
    });
}

#[test]
fn a_node_joins_and_another_one_is_drained_and_leaves_while_transfers_run() {
    let mut cluster = Cluster::calm("members", 3, 6, 2);
    ready(&cluster, 6, 2);
    let mut checker = session(&cluster, 0);
    bank(&mut checker);
    let transfers = Transfers::begin(&cluster);
    transfers.go_on("transfers run");
    let new = cluster.join();
    // The node is known to the others, and has nothing yet.
    soon("the links are there", || (0..3).all(|node| cluster.node(node).links().connections() == 6));
    assert!(cluster.node(new).replicas().is_empty());
    soon("the replicas are balanced", || {
        std::thread::sleep(Duration::from_millis(100));
        balance_round(&cluster.store, &facts(&cluster), 2).unwrap().left == 0
    });
    assert_eq!(placement(&cluster).on(new as u32).len(), 3);
    let leads = |node: usize| cluster.node(node).replicas().iter().filter(|of| of.lead().is_some()).count();
    soon("the new node leads one", || leads(new) > 0);
    transfers.go_on("transfers run with the new node");

    drain(&cluster, 1, None);
    settles(&cluster, 1);
    assert!(placement(&cluster).on(1).is_empty());
    soon("its directories are gone", || {
        cluster.node(1).replicas().is_empty() && (0..6).all(|partition| !cluster.has_directory(1, partition))
    });
    transfers.go_on("transfers run without the drained node");
    NodeFacts::set_standing(&cluster.store, "node-1", Standing::Left).unwrap();
    soon("the others know", || [0, 2].iter().all(|node| cluster.node(*node).links().connections() == 4));
    soon("it says so", || cluster.node(1).trouble().is_some_and(|trouble| trouble.contains("has left")));
    cluster.stop(1);
    transfers.go_on("transfers run after it has left");
    transfers.end();
    assert_eq!(total(&mut checker), 100 * ACCOUNTS);
    // The number of a node that has left is not given again, and its name may be.
    let joined = NodeFacts::join(&cluster.store, "node-1", "127.0.0.1:1", "127.0.0.1:2").unwrap();
    assert!(matches!(&joined, Joined::New(node) if node.node == 4), "{joined:?}");
}

/// Writes rows of a partition. Gives those that were answered, which are most.
fn answered_rows(cluster: &Cluster, partition: u32) -> Vec<i64> {
    let answered: Vec<i64> = (0..50).filter(|id| cluster.write(partition, *id, Level::Standby)).collect();
    assert!(answered.len() > 25, "{answered:?}");
    answered
}

#[test]
fn a_node_takes_the_place_of_a_dead_one() {
    let mut cluster = Cluster::new("takes-place", 3, 3, 2);
    ready(&cluster, 3, 2);
    let answered: Vec<Vec<i64>> = (0..3).map(|partition| answered_rows(&cluster, partition)).collect();
    cluster.stop(1);
    let new = cluster.join();
    drain(&cluster, 1, Some(new as u32));
    settles(&cluster, 1);
    // The nodes that were there have what they had, and the new one has the rest.
    assert_eq!(placement(&cluster).on(new as u32).len(), 2);
    for (partition, answered) in (0..).zip(&answered) {
        let rows = cluster.rows(partition);
        assert!(
            answered.iter().all(|id| rows.contains(id)),
            "{answered:?} of partition {partition}: {rows:?}"
        );
    }
    // If it comes back, what it had is given up.
    assert!(cluster.has_directory(1, 0));
    cluster.start(1);
    soon("its directories are gone", || (0..3).all(|partition| !cluster.has_directory(1, partition)));
}

#[test]
fn a_replica_whose_node_is_away_for_long_is_made_again_elsewhere() {
    let mut cluster = Cluster::new("repair", 4, 3, 2);
    ready(&cluster, 3, 2);
    cluster.repair_after = Some(Duration::from_secs(2));
    for node in 0..4 {
        cluster.stop(node);
        cluster.start(node);
    }
    ready(&cluster, 3, 2);
    (0..3).for_each(|partition| drop(answered_rows(&cluster, partition)));
    let rows: Vec<_> = (0..3).map(|partition| cluster.rows(partition)).collect();
    assert!(rows.iter().all(|rows| rows.len() > 25), "{rows:?}");
    cluster.stop(1);
    settles(&cluster, 1);
    for (partition, rows) in (0..).zip(&rows) {
        assert_eq!(&cluster.rows(partition), rows);
    }
    cluster.start(1);
    soon("what it had is given up", || (0..3).all(|partition| !cluster.has_directory(1, partition)));
    // A node that is away for shorter keeps its replicas.
    cluster.repair_after = Some(Duration::from_secs(60));
    for node in [0, 2, 3] {
        cluster.stop(node);
        cluster.start(node);
    }
    settles(&cluster, 1);
    let found = placement(&cluster);
    let before: Vec<_> = (0..4).map(|node| found.on(node)).collect();
    cluster.stop(2);
    soon("the node's replicas are away", || {
        let in_sync = |of: &Configuration| of.in_sync.iter().any(|member| member.node.0 == 2);
        !placement(&cluster).configurations.values().any(in_sync)
    });
    // Some looks later there is nothing to do.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(placement(&cluster).moves.all().count(), 0);
    cluster.start(2);
    settles(&cluster, 1);
    let after: Vec<_> = (0..4).map(|node| placement(&cluster).on(node)).collect();
    assert_eq!(before, after);
}

#[test]
fn a_replica_waits_until_the_one_in_its_place_is_in_sync() {
    let mut cluster = Cluster::calm("waits", 2, 1, 2);
    ready(&cluster, 1, 2);
    let new = cluster.enter();
    let next = Move::new(Some(1), Some(new as u32));
    assert!(placement(&cluster).moves.set(&cluster.store, PartitionId(0), Some(next)).unwrap());
    let nodes = || -> Vec<u32> {
        placement(&cluster).configurations[&PartitionId(0)].nodes().map(|node| node.0).collect()
    };
    soon("the node has a replica to make", || nodes().contains(&(new as u32)));
    // Some looks later it is still not there.
    std::thread::sleep(Duration::from_secs(4));
    assert!(nodes().contains(&1), "{:?}", nodes());
    assert!(cluster.write(0, 1, Level::Standby));
    cluster.start(new);
    settles(&cluster, 1);
    assert_eq!(cluster.rows(0), [1]);
}

#[test]
fn a_drain_without_another_node_says_so_and_is_taken_back() {
    let cluster = Cluster::calm("no-room", 2, 2, 2);
    ready(&cluster, 2, 2);
    let set = |standing| NodeFacts::set_standing(&cluster.store, "node-1", standing).unwrap();
    set(Standing::Draining);
    let refused = drain_round(&cluster.store, &facts(&cluster), 1, None, 2).unwrap_err();
    assert!(matches!(refused, RoundError::NoRoom(_)), "{refused}");
    assert!(refused.to_string().contains("rialto cluster join"), "{refused}");
    let address = &placement(&cluster).nodes[1].address.clone();
    let joined = NodeFacts::join(&cluster.store, "node-1", address, "127.0.0.1:0").unwrap();
    assert!(matches!(joined, Joined::Again(_)), "{joined:?}");
    assert_eq!(placement(&cluster).nodes[1].standing, Standing::Member);
    let refused = NodeFacts::join(&cluster.store, "node-1", "127.0.0.1:9", "127.0.0.1:0").unwrap_err();
    assert!(refused.to_string().contains("other addresses"), "{refused}");
    assert!(cluster.write(0, 1, Level::Standby));
}

#[test]
fn a_move_to_a_node_that_does_not_run_ends_and_another_node_is_found() {
    let mut cluster = Cluster::new("in-vain", 2, 1, 2);
    cluster.move_patience = Duration::from_secs(10);
    for node in 0..2 {
        cluster.stop(node);
        cluster.start(node);
    }
    ready(&cluster, 1, 2);
    let (dead, new) = (cluster.enter(), cluster.join());
    let next = Move::new(Some(1), Some(dead as u32));
    assert!(placement(&cluster).moves.set(&cluster.store, PartitionId(0), Some(next)).unwrap());
    drain(&cluster, 1, Some(dead as u32));
    settles(&cluster, 1);
    let found = placement(&cluster);
    assert_eq!((found.on(new as u32).len(), found.on(dead as u32).len()), (1, 0));
    let why = &found.moves.why_avoided(dead as u32).expect("a reason").why;
    assert!(why.contains("was not heard"), "{why}");
    assert!(cluster.write(0, 1, Level::Standby));
}

#[test]
fn a_move_whose_copy_fails_ends_and_another_node_is_found() {
    let mut cluster = Cluster::new("copy-fails", 2, 1, 2);
    cluster.move_patience = Duration::from_secs(10);
    for node in 0..2 {
        cluster.stop(node);
        cluster.start(node);
    }
    ready(&cluster, 1, 2);
    assert!(cluster.write(0, 1, Level::Standby));
    let (broken, new) = (cluster.join(), cluster.join());
    // No directory can be made there.
    std::fs::write(cluster.directory_of(broken, 0), "in the way").unwrap();
    let next = Move::new(Some(1), Some(broken as u32));
    assert!(placement(&cluster).moves.set(&cluster.store, PartitionId(0), Some(next)).unwrap());
    drain(&cluster, 1, Some(broken as u32));
    settles(&cluster, 1);
    let found = placement(&cluster);
    assert_eq!((found.on(new as u32).len(), found.on(broken as u32).len()), (1, 0));
    let why = &found.moves.why_avoided(broken as u32).expect("a reason").why;
    // Without a directory the replica says nothing.
    assert!(why.contains("its replica was not heard"), "{why}");
    assert_eq!(cluster.rows(0), [1]);
}

#[test]
fn a_drain_ends_when_the_node_is_a_member_again() {
    let cluster = Cluster::new("again", 3, 3, 2);
    ready(&cluster, 3, 2);
    let refused = drain_round(&cluster.store, &facts(&cluster), 1, None, 2).unwrap_err();
    assert_eq!(refused, RoundError::NotDraining("node-1".to_owned()));
    assert_eq!(placement(&cluster).moves.all().count(), 0);
}

#[test]
fn a_repair_ends_when_the_replica_is_back() {
    let mut cluster = Cluster::new("back", 2, 1, 2);
    ready(&cluster, 1, 2);
    let new = cluster.enter();
    let repair = Move { purpose: Purpose::Repair, ..Move::new(Some(1), Some(new as u32)) };
    assert!(placement(&cluster).moves.set(&cluster.store, PartitionId(0), Some(repair)).unwrap());
    soon("the move has ended", || placement(&cluster).moves.all().count() == 0);
    let nodes: Vec<NodeId> = placement(&cluster).configurations[&PartitionId(0)].nodes().collect();
    assert!(nodes.contains(&NodeId(1)) && !nodes.contains(&NodeId(new as u32)), "{nodes:?}");
}

#[test]
fn a_copy_goes_no_faster_than_its_pace() {
    const PIECE: u64 = 512 << 10;
    let mut cluster = Cluster::calm("pace", 1, 1, 1);
    cluster.in_sync(0, 1);
    {
        let replica = cluster.replica(0, 0);
        let lead = replica.admit().unwrap();
        let db = lead.database();
        let table = db.table("numbers").unwrap();
        let mut rows = db.begin().unwrap();
        (0..40_000).for_each(|row| rows.insert(&table, &[rialto::row::Value::Int8(row)]).unwrap());
        rows.commit().unwrap();
    }
    cluster.stop(0);
    cluster.copy_bytes_per_second = std::num::NonZeroU64::new(PIECE / 3);
    cluster.start(0);
    cluster.in_sync(0, 1);
    let new = cluster.join();
    let began = std::time::Instant::now();
    let moved = Move::new(None, Some(new as u32));
    assert!(placement(&cluster).moves.set(&cluster.store, PartitionId(0), Some(moved)).unwrap());
    cluster.in_sync(0, 2);
    // The copy has more than one piece; the second one waits for three seconds.
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn replicas_on_a_node_that_has_left_are_made_again_elsewhere() {
    let mut cluster = Cluster::new("left-behind", 4, 2, 2);
    ready(&cluster, 2, 2);
    cluster.stop(1);
    NodeFacts::set_standing(&cluster.store, "node-1", Standing::Left).unwrap();
    settles(&cluster, 1);
}

#[test]
fn a_key_that_cannot_be_read_is_told_and_the_rest_goes_on() {
    let mut cluster = Cluster::new("unreadable", 2, 2, 2);
    ready(&cluster, 2, 2);
    let identity = cluster.store.identify(StoreIdentity::draw()).unwrap();
    cluster.store.swap(identity, "moves/000001", None, b"nothing").unwrap();
    cluster.store.swap(identity, "partitions/no", None, b"nothing").unwrap();
    for key in ["moves/000001", "partitions/no"] {
        soon(key, || cluster.node(0).trouble().is_some_and(|trouble| trouble.contains(key)));
    }
    let new = cluster.join();
    let next = Move::new(Some(1), Some(new as u32));
    let known = |cluster: &Cluster| {
        let (known, unreadable) = rialto_cluster::node::read_configurations(&cluster.store).unwrap();
        assert_eq!(unreadable.len(), 1);
        known
    };
    let mut moves = rialto_cluster::node::Moves::read(&cluster.store).unwrap();
    assert!(moves.set(&cluster.store, PartitionId(0), Some(next)).unwrap());
    soon("the other partition's replica moves", || {
        !known(&cluster)[&PartitionId(0)].configuration.has(NodeId(1))
    });
    // A command does not move what it cannot see.
    assert!(Placement::read(&cluster.store, &facts(&cluster)).is_err());
}

#[test]
fn a_node_that_a_restored_list_does_not_have_stays() {
    let mut cluster = Cluster::new("restored-list", 2, 2, 2);
    ready(&cluster, 2, 2);
    let older = cluster.store.backup();
    let new = cluster.join();
    soon("the links are there", || cluster.node(0).links().connections() == 4);
    cluster.store.restore(&older);
    soon("it is told", || {
        cluster.node(0).trouble().is_some_and(|trouble| trouble.contains("was it restored"))
    });
    assert_eq!(cluster.node(0).links().connections(), 4);
    let told = cluster.node(new).trouble().unwrap_or_default();
    assert!(!told.contains("end it"), "{told}");
}
