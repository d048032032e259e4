//! A rolling upgrade: one node after the other is ended, and runs by another program.

use crate::bank::Bank;
use crate::cluster::{Cluster, NODES, partitions};
use crate::lists::Lists;

/// The cluster is made and run by `RIALTO_OLD_PROGRAM` first, a `rialto` of an earlier build, and then each node by the program that is
/// tested. Without it all is the program that is tested: then nodes start again, and nothing is upgraded. Clients go on meanwhile, and nothing that was answered is lost.
#[test]
fn each_node_is_upgraded_while_the_cluster_is_used() {
    let old = std::env::var("RIALTO_OLD_PROGRAM").ok();
    let started = Cluster::start_by("namespaces-upgrade", old.as_deref(), |_| ());
    let Some(mut cluster) = started else { return };
    match &old {
        Some(old) => println!("all nodes run by {old}"),
        None => println!("RIALTO_OLD_PROGRAM is not set: nodes start again, and none is upgraded"),
    }
    let lists = Lists::begin(cluster.sql());
    for (node, name) in NODES.iter().enumerate() {
        let bank = Bank::begin(&cluster, "standby", 3.0);
        let status = cluster.wait_until_whole();
        for (number, partition) in partitions(&status).iter().enumerate() {
            if partition["primary"] == *name {
                cluster.lead_elsewhere(number, node);
            }
        }
        cluster.end_node(node);
        cluster.start_node(node);
        let found = bank.judge(&format!("the upgrade of {}", name));
        assert!(found.committed > 0, "{found:?}");
        cluster.wait_until_whole();
        println!("{}: {found:?}", name);
    }
    let tally = lists.judge();
    println!("lists: {} committed, {} unknown", tally.committed, tally.unknown);
    assert!(tally.committed > 0);
}
