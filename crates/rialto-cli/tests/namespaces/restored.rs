//! etcd is put back to a backup: what it says is older than what the replicas have seen.

use std::fs;
use std::path::Path;
use std::thread::sleep;

use serde_json::Value as Json;

use crate::bank::Bank;
use crate::cluster::{Cluster, MEMBERS, NODES, partitions, promise};
use crate::common::{Directory, text};

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).expect("a file")),
        }
    }
}

/// All members stop, and start again, with what `change` makes of their directories.
fn amid_a_stop(cluster: &mut Cluster, change: impl Fn(&Path, &str)) {
    (0..MEMBERS.len()).for_each(|member| cluster.kill_member(member));
    for (member, name) in MEMBERS.iter().enumerate() {
        change(&cluster.member_directory(member), name);
    }
    (0..MEMBERS.len()).for_each(|member| cluster.start_member(member));
}

#[test]
fn a_restored_etcd_revives_no_primary_and_force_leads_on() {
    let Some(mut cluster) = Cluster::start("namespaces-restored", |_| ()) else { return };
    let backup = Directory::new("namespaces-backup");
    let kept = backup.path().to_owned();
    amid_a_stop(&mut cluster, |directory, name| copy(directory, &kept.join(name)));
    let before = cluster.wait_until_whole();
    let first = cluster.primary(0);
    // Other nodes lead, and what they answer is in their epochs.
    cluster.kill_node(first);
    cluster.wait("another one leads", |status| {
        partitions(status)[0]["primary"] != NODES[first] && partitions(status)[0]["serves"] == true
    });
    Bank::begin(&cluster, "disk", 1.0).judge("after a failover");
    cluster.start_node(first);
    let newest = cluster.wait_until_whole();
    assert_ne!(partitions(&before)[0]["epoch"], partitions(&newest)[0]["epoch"]);
    let bank = Bank::begin(&cluster, "disk", 5.0);
    amid_a_stop(&mut cluster, |directory, name| {
        fs::remove_dir_all(directory).expect("the member's directory");
        copy(&kept.join(name), directory);
    });
    sleep(promise() * 3);
    // The node that etcd names now does not lead, and the one that leads goes on.
    assert_ne!(cluster.primary(0), first);
    let found = bank.judge("etcd was put back");
    assert!(found.committed > 0, "{found:?}");
    // As the page says: a standby in sync of the newest configuration leads by force, in each partition.
    for (number, partition) in partitions(&newest).iter().enumerate() {
        let mut members = partition["in_sync"].as_array().expect("a list").iter().filter_map(Json::as_str);
        let standby = members.find(|name| partition["primary"] != *name).expect("a standby");
        let number = number.to_string();
        let forced = cluster.command(&["force-promote", "--partition", &number, "--node", standby, "--yes"]);
        assert!(forced.status.success(), "partition {number} on {standby}: {}", text(&forced));
    }
    cluster.wait_until_whole();
    // Failovers work again.
    let bank = Bank::begin(&cluster, "disk", 4.0);
    let leads = cluster.primary(0);
    cluster.kill_node(leads);
    cluster.wait("another one leads", |status| {
        partitions(status)[0]["primary"] != NODES[leads] && partitions(status)[0]["serves"] == true
    });
    cluster.start_node(leads);
    let found = bank.judge("after force");
    assert!(found.committed > 0, "{found:?}");
    cluster.wait_until_whole();
}
