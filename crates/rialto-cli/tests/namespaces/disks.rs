//! The disk of a node fills up while the cluster is used.

use std::cell::RefCell;
use std::time::Duration;

use crate::bank::Bank;
use crate::cluster::{Cluster, NODES, partitions};
use crate::loop_mount::{Kind, LoopMount};

/// The node `c` is on a file system of its own, which fills up while it has a standby; then there is room again.
#[test]
fn a_standby_whose_disk_is_full_holds_up_nothing_and_comes_back() {
    let mount = RefCell::new(None);
    let made = Cluster::start("namespaces-full", |directory| {
        let disk = LoopMount::new(Kind::Ext4, crate::common::Directory::new("namespaces-disk"));
        if let Ok(disk) = &disk {
            std::os::unix::fs::symlink(disk.path(), directory.path().join("c")).expect("a new name");
        }
        *mount.borrow_mut() = Some(disk);
    });
    let Some(mut cluster) = made else { return };
    let disk = match mount.into_inner().expect("it was tried") {
        Ok(disk) => disk,
        Err(why) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}, and CI=true is set");
            return println!("skipped: no file system in a file: {why}");
        }
    };
    // Another node leads all that it has.
    let c = 2;
    let status = cluster.wait_until_whole();
    for (number, partition) in partitions(&status).iter().enumerate() {
        let members = partition["in_sync"].as_array().expect("a list");
        if partition["primary"] == NODES[c] {
            let other = members.iter().find_map(|name| name.as_str().filter(|name| *name != NODES[c]));
            let (number, other) = (number.to_string(), other.expect("another one"));
            let moved = cluster.command(&["switchover", "--partition", &number, "--to", other]);
            assert!(moved.status.success(), "{}", crate::common::text(&moved));
        }
    }
    cluster.wait_until_whole();
    let bank = Bank::begin(&cluster, "disk", 6.0);
    disk.leave_room(0);
    let found = bank.judge("a full disk");
    assert!(found.committed > 0, "{found:?}");
    println!("{found:?}, {} bytes are free", disk.free());
    disk.make_room();
    cluster.wait_until_whole();
    let found = Bank::begin(&cluster, "disk", 1.0).judge("with room again");
    assert!(found.committed > 0, "{found:?}");
    cluster.kill_node(c);
    std::thread::sleep(Duration::from_millis(10));
    drop(cluster);
    drop(disk);
}
