//! Processes that die or stand still: another replica leads, and what went comes back in sync.

use std::time::Duration;

use crate::demo::{Demo, is_installed, node, nodes, partitions, pid, primary, send};

/// Three partitions on three nodes.
const SMALL: [&str; 6] = ["--nodes", "3", "--partitions", "3", "--replicas", "2"];

#[test]
fn a_node_that_is_killed_is_replaced_and_comes_back_in_sync() {
    if !is_installed() {
        return;
    }
    let mut demo = Demo::start("cluster-killed", &SMALL);
    let status = demo.status();
    let names: Vec<&str> = nodes(&status).iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["node0", "node1", "node2"]);
    let sql = node(&status, "node0")["sql"].as_str().unwrap();
    assert_eq!(demo.ready, format!("ready sql={sql} data={}", demo.directory.name()));
    assert!(std::net::TcpStream::connect(sql).is_ok());
    let status = demo.wait_until_whole();
    assert_eq!((status["in_doubt"].as_u64(), status["unprotected"].as_u64()), (Some(0), Some(0)), "{status}");
    let keys: Vec<&String> = partitions(&status)[0].as_object().unwrap().keys().collect();
    for key in ["id", "epoch", "primary", "in_sync", "learners", "lag_bytes"] {
        assert!(keys.iter().any(|found| *found == key), "{key} is missing in {keys:?}");
    }

    let (dead, epoch) = (primary(&status, 0), partitions(&status)[0]["epoch"].as_u64());
    send("KILL", pid(&status, &dead));
    let status = demo.wait("another leads", |status| {
        primary(status, 0) != dead && partitions(status).iter().all(|partition| partition["serves"] == true)
    });
    assert!(partitions(&status)[0]["epoch"].as_u64() > epoch, "{status}");
    assert_eq!(node(&status, &dead)["state"], "down", "{status}");
    assert!(node(&status, &dead)["pid"].is_null());
    assert!(status["unprotected"].as_u64() > Some(0), "{status}");
    let words = String::from_utf8(demo.command(&["status"]).stdout).unwrap();
    assert!(words.contains("rialto cluster node --data") && words.contains("unprotected:"), "{words}");

    // The demo does not start it again; by hand it comes back, and catches up.
    let mut by_hand = demo.start_node(&dead);
    let status = demo.wait_until_whole();
    assert_eq!(pid(&status, &dead), by_hand.id());
    // A second process for the same node is refused.
    let second = demo.start_node(&dead).wait().unwrap();
    assert_eq!(second.code(), Some(3));
    assert_eq!(pid(&demo.status(), &dead), by_hand.id());
    // The end is also that of the node that was started by hand. This test is its parent.
    send("TERM", demo.pid());
    assert_eq!(by_hand.wait().unwrap().code(), Some(0));
    assert_eq!(demo.end_by("TERM"), Some(0));
    // With nothing there, there is still an answer.
    let status = demo.status();
    assert!(nodes(&status).iter().all(|node| node["state"] == "down"), "{status}");
}

#[test]
fn a_node_that_stands_still_is_replaced_and_the_loss_of_etcd_stops_nothing() {
    if !is_installed() {
        return;
    }
    let mut demo = Demo::start("cluster-still", &SMALL);
    let status = demo.wait_until_whole();
    let still = primary(&status, 1);
    let still_pid = pid(&status, &still);
    send("STOP", still_pid);
    // Longer than its promises: the replica in sync with it leads.
    let status = demo.wait("another leads", |status| {
        primary(status, 1) != still && partitions(status).iter().all(|partition| partition["serves"] == true)
    });
    assert_eq!(node(&status, &still)["state"], "silent", "{status}");
    assert_eq!(pid(&status, &still), still_pid);
    send("CONT", still_pid);
    let whole = demo.wait_until_whole();

    send("KILL", demo.etcd());
    // Several promises long, with no control store.
    std::thread::sleep(Duration::from_secs(8));
    let status = demo
        .wait("all serve", |status| partitions(status).iter().all(|partition| partition["serves"] == true));
    let epochs = |status| -> Vec<_> {
        partitions(status).iter().map(|partition| partition["epoch"].clone()).collect()
    };
    assert_eq!(epochs(&status), epochs(&whole), "nothing has changed");
    let words = String::from_utf8(demo.command(&["status"]).stdout).unwrap();
    assert!(words.contains("the control store does not answer"), "{words}");
    // A node that stands still at the end ends nevertheless.
    send("STOP", pid(&status, &still));
    assert_eq!(demo.end_by("TERM"), Some(0));
}
