//! A rolling upgrade: one node after the other is ended, and runs by another program.

use serde_json::Value as Json;

use crate::bank::Bank;
use crate::cluster::{Cluster, NODES, partitions};
use crate::common::text;
use crate::lists::Lists;

/// Each node runs by `RIALTO_OLD_PROGRAM` first, a `rialto` of an earlier build (without it, by the program that is tested), and
/// then by the program that is tested. Clients go on meanwhile, and nothing that was answered is lost.
#[test]
fn each_node_is_upgraded_while_the_cluster_is_used() {
    let Some(mut cluster) = Cluster::start("namespaces-upgrade", |_| ()) else { return };
    if let Ok(old) = std::env::var("RIALTO_OLD_PROGRAM") {
        (0..NODES.len()).for_each(|node| cluster.end_node(node));
        (0..NODES.len()).for_each(|node| cluster.start_node_by(node, &old));
        cluster.wait_until_whole();
        println!("all nodes run by {old}");
    }
    let lists = Lists::begin(cluster.sql());
    for node in 0..NODES.len() {
        let bank = Bank::begin(&cluster, "standby", 3.0);
        let status = cluster.wait_until_whole();
        for (number, partition) in partitions(&status).iter().enumerate() {
            if partition["primary"] == NODES[node] {
                let members = partition["in_sync"].as_array().expect("a list");
                let other = members.iter().filter_map(Json::as_str).find(|name| *name != NODES[node]);
                let (number, other) = (number.to_string(), other.expect("a standby"));
                let moved = cluster.command(&["switchover", "--partition", &number, "--to", other]);
                assert!(moved.status.success(), "{}", text(&moved));
            }
        }
        cluster.end_node(node);
        cluster.start_node(node);
        let found = bank.judge(&format!("the upgrade of {}", NODES[node]));
        assert!(found.committed > 0, "{found:?}");
        cluster.wait_until_whole();
        println!("{}: {found:?}", NODES[node]);
    }
    let tally = lists.judge();
    println!("lists: {} committed, {} unknown", tally.committed, tally.unknown);
    assert!(tally.committed > 0);
}
