//! Replication over real databases: what was answered at level 2 stays, whichever node goes.

use std::sync::mpsc::channel;
use std::time::Duration;

use rialto_cluster::control::Access;
use rialto_cluster::protocol::transactions::Level;

use crate::cluster::{Cluster, insert, read_all, soon};

#[test]
fn a_new_cluster_copies_its_partitions_and_serves() {
    let cluster = Cluster::calm("new", 3, 3, 2);
    for partition in 0..3 {
        cluster.in_sync(partition, 2);
        assert!(cluster.write(partition, 1, Level::Standby));
        assert_eq!(cluster.rows(partition), [1]);
        // Chained: the partition's primary is on the node of its number, its standby on the next one.
        assert_eq!(cluster.primary(partition), partition as usize);
        assert!(
            cluster
                .node((partition as usize + 2) % 3)
                .replica(rialto_cluster::protocol::PartitionId(partition))
                .is_none()
        );
    }
    // Two connections for each other node.
    assert_eq!(cluster.node(0).links().connections(), 4);
}

#[test]
fn what_was_answered_survives_the_primary() {
    let mut cluster = Cluster::new("survives", 3, 1, 3);
    cluster.in_sync(0, 3);
    let mut answered = Vec::new();
    for id in 0..200 {
        if cluster.write(0, id, Level::Standby) {
            answered.push(id);
        }
    }
    assert!(answered.len() > 100, "most writes are answered: {}", answered.len());
    let primary = cluster.primary(0);
    cluster.stop(primary);
    let rows = cluster.rows(0);
    assert!(answered.iter().all(|id| rows.contains(id)), "what was answered is there");
    assert_ne!(cluster.primary(0), primary);
    // The old primary comes back as a replica, and catches up.
    assert!(cluster.write(0, 1_000, Level::Standby));
    cluster.start(primary);
    cluster.in_sync(0, 3);
    assert!(cluster.write(0, 1_001, Level::Standby));
    let replica = cluster.replica(primary, 0);
    soon("the replica that came back redoes", || {
        replica.readable().is_some_and(|db| read_all(&db).0.contains(&1_001))
    });
}

#[test]
fn a_planned_change_of_the_primary_loses_nothing() {
    let cluster = Cluster::calm("planned", 2, 1, 2);
    cluster.in_sync(0, 2);
    // Handles of databases that are closed keep no directory from being opened again.
    let mut held = Vec::new();
    for (id, to) in [(1, 1), (2, 0), (3, 1)] {
        held.extend([0, 1].map(|node| cluster.replica(node, 0).readable()));
        assert!(cluster.write(0, id, Level::Memory));
        cluster.change_primary(0, to);
        // Both stay in sync: neither takes a copy.
        cluster.in_sync(0, 2);
    }
    assert_eq!(cluster.rows(0), [1, 2, 3]);
}

/// A primary whose standby is gone answers nothing at level 2. What waits is told once the replica leads no more.
#[test]
fn a_wait_for_an_answer_ends_with_the_lead() {
    let mut cluster = Cluster::calm("waits", 2, 1, 2);
    cluster.in_sync(0, 2);
    let primary = cluster.primary(0);
    let replica = cluster.replica(primary, 0);
    let admitted = replica.admit().unwrap();
    // Without the control store nothing says that the standby is not needed.
    cluster.clients[primary].set_access(Access::Away);
    cluster.stop(1 - primary);
    let (told, ended) = channel();
    let waiting = std::thread::spawn(move || told.send(insert(&admitted, 7, Level::Standby)));
    soon("the row is there", || replica.readable().is_some_and(|db| read_all(&db).0.contains(&7)));
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "its standby lacks it");
    drop(replica);
    cluster.stop(primary);
    let seconds = std::env::var("RIALTO_PATIENCE_S").ok().and_then(|seconds| seconds.parse().ok());
    let answer = ended.recv_timeout(Duration::from_secs(seconds.unwrap_or(120)));
    assert!(matches!(answer, Ok(Err(_))), "{answer:?}");
    waiting.join().unwrap().unwrap();
}
