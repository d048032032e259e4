//! Machines start again: what was only in their memory is lost.

use std::time::Duration;

use crate::bank::Bank;
use crate::cluster::{Cluster, NODES};

/// One machine after the other, and then all at once, while money is transferred at level 3: nothing that was answered is lost,
/// and no transaction waits for an operator.
#[test]
fn level_3_survives_the_loss_of_all_memories() {
    let Some(mut cluster) = Cluster::start("namespaces-power", |_| ()) else { return };
    for node in 0..=NODES.len() {
        let lost: Vec<usize> = match node {
            one if one < NODES.len() => vec![one],
            _ => (0..NODES.len()).collect(),
        };
        let bank = Bank::begin(&cluster, "disk", 3.0);
        std::thread::sleep(Duration::from_millis(1_200));
        lost.iter().for_each(|node| cluster.kill_node(*node));
        lost.iter().for_each(|node| cluster.start_node_after_a_boot(*node));
        cluster.wait_until_whole();
        let found = bank.judge(&format!("the memories of {lost:?} are lost"));
        assert!(found.committed > 0, "{lost:?}: {found:?}");
        println!("{lost:?}: {found:?}");
    }
}
