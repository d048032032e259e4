//! What a forced loss leaves undecided: an operator sees it, and decides it.

use std::sync::Arc;

use rialto::TxOptions;
use rialto::row::Value;
use rialto_cluster::node::DecisionStage;
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest, AdminSocket, NodeReport, Reached, ask};
use rialto_cluster::protocol::transactions::{
    Access, BranchRef, Branches, Decision, Level, Opening, Start, TransactionId,
};
use rialto_cluster::protocol::{NodeId, PartitionId};

use crate::cluster::{Cluster, Directory, patience, soon};

fn opening(cluster: &Cluster, partition: u32) -> Opening {
    let lead = cluster.replica(cluster.primary(partition), partition).lead().unwrap();
    Opening(lead.epoch().0)
}

/// The branches of a transaction in both partitions, by its level. Partition 0 decides it.
fn in_both(cluster: &Cluster) -> impl Fn(Level) -> Branches + use<> {
    let all = [0, 1].map(|partition| BranchRef {
        partition: PartitionId(partition),
        opening: opening(cluster, partition),
        access: Access::Writes,
    });
    move |level| Branches { deciding: PartitionId(0), all: all.into(), level }
}

/// Leaves a branch in partition 1 that has voted to insert a row, as a node leaves it that dies then.
fn prepare(cluster: &Cluster, id: TransactionId, branches: &Branches, row: i64) {
    let primary = cluster.replica(cluster.primary(1), 1);
    let db = primary.admit().unwrap();
    let mut branch =
        db.database().begin_with(&TxOptions { may_prepare: true, ..TxOptions::default() }).unwrap();
    let table = branch.table("numbers").unwrap();
    branch.insert(&table, &[Value::Int8(row)]).unwrap();
    // The note is the branch's row of the protocol.
    let note = postcard::to_stdvec(&(id, branches)).unwrap();
    branch.prepare(&id.name(), &note).unwrap();
    db.answer(db.database().log_end().lsn, Level::Disk).unwrap();
}

/// All machines start again: memories are lost, and no disk. What was at level 3 ends as its decision says, which is on record or was
/// told to no client; level 2 is asked about.
#[test]
fn a_loss_of_all_memories_leaves_level_2_undecided_and_not_level_3() {
    let mut cluster = Cluster::calm("memories", 2, 2, 2);
    (0..2).for_each(|partition| cluster.in_sync(partition, 2));
    let [asked, ends] = [7, 8].map(|number| TransactionId { node: NodeId(0), start: Start(1), number });
    let at = in_both(&cluster);
    prepare(&cluster, asked, &at(Level::Standby), 7);
    prepare(&cluster, ends, &at(Level::Disk), 8);
    let led_in = opening(&cluster, 1).0;
    (0..2).for_each(|node| cluster.stop(node));
    for (node, partition) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        std::fs::remove_file(cluster.directory_of(node, partition).join("database/log-tail")).unwrap();
    }
    (0..2).for_each(|node| cluster.start(node));
    (0..2).for_each(|partition| cluster.in_sync(partition, 2));
    let undecided = |cluster: &Cluster| -> Vec<String> {
        let reports = [0, 1].map(|node| NodeReport::of(cluster.node(node)).undecided);
        reports.into_iter().flatten().map(|undecided| undecided.transaction).collect()
    };
    soon("an operator is asked", || !undecided(&cluster).is_empty());
    let prepared = |cluster: &Cluster| -> Vec<String> {
        let replica = cluster.replica(cluster.primary(1), 1);
        let names = |lead: rialto_cluster::node::Lead| lead.database().prepared();
        replica.lead().map(names).unwrap_or_default().into_iter().map(|prepared| prepared.name).collect()
    };
    soon("the other one has ended", || prepared(&cluster) == [asked.name()]);
    assert_eq!(undecided(&cluster), [asked.name()]);
    for partition in 0..2 {
        let configuration = cluster.replica(0, partition).status().configuration.unwrap();
        assert!(configuration.lost_before.memories.0 > led_in, "{configuration:?}");
        assert_eq!(configuration.lost_before.disks.0, 0, "{configuration:?}");
    }
}

#[test]
fn an_operator_decides_what_a_forced_loss_has_left_undecided() {
    let mut cluster = Cluster::new("undecided", 2, 2, 2);
    (0..2).for_each(|partition| cluster.in_sync(partition, 2));
    let [keeps, undone] = [7, 8].map(|number| TransactionId { node: NodeId(0), start: Start(1), number });
    let at = in_both(&cluster);
    // Force may lose disks, too.
    prepare(&cluster, keeps, &at(Level::Standby), 7);
    prepare(&cluster, undone, &at(Level::Disk), 8);
    // The deciding partition is led by force from now on, and then the other one is opened anew: its branches ask.
    let from = cluster.primary(0);
    let to = 1 - from;
    cluster.replica(to, 0).force(vec![NodeId(from as u32)]);
    soon("it leads by force", || cluster.primary(0) == to);
    let other = 1 - cluster.primary(1);
    cluster.in_sync(1, 2);
    cluster.change_primary(1, other);
    let report = || NodeReport::of(cluster.node(to));
    soon("an operator is asked", || report().undecided.len() == 2);
    let undecided = report().undecided;
    assert_eq!((undecided[0].partition, &undecided[0].prepared[..]), (0, &[1][..]), "{undecided:?}");
    soon("it grows older", || report().undecided[0].age_ms > undecided[0].age_ms);

    let node = Arc::new(cluster.nodes[to].take().unwrap());
    let directory = Directory::new("undecided-admin");
    let socket = AdminSocket::open(directory.path(), node.clone()).unwrap();
    let asked = |request: &AdminRequest| match ask(directory.path(), request, patience()).unwrap() {
        Reached::Answered { answer, .. } => answer,
        reached => panic!("{reached:?}"),
    };
    let decide = |id: &str, decision| {
        let transaction = id.to_owned();
        asked(&AdminRequest::Decide { partition: 0, transaction, decision })
    };
    assert_eq!(asked(&AdminRequest::Knows { transaction: keeps.name() }), AdminAnswer::Knows(true));
    for _ in 0..2 {
        assert_eq!(decide(&keeps.name(), Decision::Commit), AdminAnswer::Begun);
        assert_eq!(decide(&undone.name(), Decision::Abort), AdminAnswer::Begun);
    }
    soon("all branches have ended", || {
        let AdminAnswer::Status(report) = asked(&AdminRequest::Status) else { panic!("a status") };
        assert!(report.undecided.is_empty(), "{report:?}");
        report.decided.len() == 2 && report.decided.iter().all(|decided| decided.stage == DecisionStage::Over)
    });
    for (id, why) in [
        (keeps.name(), "decided otherwise before: commit"),
        ("0.1.9".to_owned(), "does not wait for an operator"),
        ("0.1".to_owned(), "three numbers"),
    ] {
        let AdminAnswer::Refused(refused) = decide(&id, Decision::Abort) else { panic!("{id}: {why}") };
        assert!(refused.contains(why), "{refused}");
    }
    for (id, knows) in [(keeps.name(), false), ("0.1.9".to_owned(), false)] {
        assert_eq!(asked(&AdminRequest::Knows { transaction: id }), AdminAnswer::Knows(knows));
    }
    drop(socket);
    cluster.nodes[to] = Arc::into_inner(node);
    assert_eq!(cluster.rows(1), [7]);
}
