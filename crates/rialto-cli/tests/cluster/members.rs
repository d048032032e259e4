//! Nodes that join a running cluster, are drained, leave, and are replaced.

use std::net::TcpListener;

use crate::common::{number, run, stdout, succeeds, text};
use crate::demo::{Demo, is_installed, node, nodes, partitions, pid, primary, send};

/// Three partitions on three nodes, which talk by TLS.
const SMALL: [&str; 8] = ["--nodes", "3", "--partitions", "3", "--replicas", "2", "--links", "tls"];

/// A node's name, with two ports. They are to be given back right before the node starts.
fn spec(name: &str) -> (String, [TcpListener; 2]) {
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [links, sql] = ports.each_ref().map(|listener| listener.local_addr().expect("an address"));
    (format!("{name}={links},sql={sql}"), ports)
}

/// Transfers at level 2 for a short time. None is lost.
fn transfers(demo: &Demo, address: &str) {
    let arguments = ["bench", "cluster", "--connect", address, "--clients", "4", "--seconds", "2"];
    let all: Vec<&str> =
        arguments.into_iter().chain(["--durability", "standby", "--accounts", "200", "--json"]).collect();
    let done = crate::common::json(&succeeds(run(&all)));
    assert_eq!(done["consistent"], true, "{done}");
    assert_eq!(number(&done, "lost_commits"), 0.0, "{done}");
    assert!(number(&done, "committed_per_s") > 0.0, "{done}: {}", demo.status());
}

/// How many replicas a node has.
fn replicas(status: &serde_json::Value, name: &str) -> usize {
    let has = |partition: &&serde_json::Value| {
        let lists = ["in_sync", "learners"].map(|list| partition[list].as_array().expect("a list"));
        lists.into_iter().flatten().any(|member| member == name)
    };
    partitions(status).iter().filter(has).count()
}

#[test]
fn nodes_join_are_drained_leave_and_are_replaced() {
    if !is_installed() {
        return;
    }
    let mut demo = Demo::start("cluster-members", &SMALL);
    let status = demo.wait_until_whole();
    let sql = node(&status, "node0")["sql"].as_str().unwrap().to_owned();
    transfers(&demo, &sql);

    // A node joins, once.
    let (spec3, ports) = spec("node3");
    for done in ["node3 has joined", "nothing was changed"] {
        let joined = demo.command(&["join", "--node", &spec3]);
        assert!(joined.status.success() && text(&joined).contains(done), "{}", text(&joined));
    }
    drop(ports);
    let mut third = demo.start_node("node3");
    demo.wait("it is up, without replicas", |status| {
        node(status, "node3")["state"] == "up" && replicas(status, "node3") == 0
    });
    let balanced = demo.command(&["balance"]);
    assert!(balanced.status.success(), "{}", text(&balanced));
    let status = demo.wait_until_whole();
    assert!(replicas(&status, "node3") > 0, "{status}");
    transfers(&demo, &sql);

    // Another one is drained, and leaves.
    let refused = demo.command(&["leave", "node1"]);
    assert!(
        refused.status.code() == Some(3) && text(&refused).contains("rialto cluster drain node1"),
        "{}",
        text(&refused)
    );
    for _ in 0..2 {
        let drained = demo.command(&["drain", "node1"]);
        assert!(drained.status.success() && text(&drained).contains("has no replicas"), "{}", text(&drained));
    }
    let status = demo.wait_until_whole();
    assert_eq!(
        (replicas(&status, "node1"), &node(&status, "node1")["drains"]),
        (0, &true.into()),
        "{status}"
    );
    let first = demo.directory.path().join("node1");
    demo.wait("its directories are gone", |_| {
        (0..3).all(|of| !first.join(format!("partition-{of}")).exists())
    });
    for done in ["node1 has left", "already"] {
        let left = demo.command(&["leave", "node1"]);
        assert!(left.status.success() && text(&left).contains(done), "{}", text(&left));
    }
    let pid1 = pid(&status, "node1");
    assert!(demo.processes().contains(&pid1), "it runs until it is told to end");
    send("TERM", pid1);
    demo.wait("it has ended", |_| !demo.processes().contains(&pid1));
    demo.wait("it is not shown any more", |status| nodes(status).iter().all(|node| node["name"] != "node1"));
    transfers(&demo, &sql);

    // A node is killed, and another one takes its place.
    send("KILL", pid(&demo.status(), "node2"));
    let (spec4, ports) = spec("node4");
    let joined = demo.command(&["join", "--node", &spec4]);
    assert!(joined.status.success(), "{}", text(&joined));
    drop(ports);
    let mut fourth = demo.start_node("node4");
    let refused = demo.command(&["replace", "node2", "node1"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    for done in ["node2 has left", "already"] {
        let replaced = demo.command(&["replace", "node2", "node4"]);
        assert!(replaced.status.success() && text(&replaced).contains(done), "{}", text(&replaced));
    }
    let status = demo.wait_until_whole();
    let names: Vec<&str> = nodes(&status).iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["node0", "node3", "node4"]);
    transfers(&demo, &sql);
    let words = stdout(&demo.command(&["status"]));
    assert!(words.contains("node4: up"), "{words}");

    // Two replicas on each node, so that each can lead one partition, and one node leads two.
    let balanced = demo.command(&["balance"]);
    assert!(balanced.status.success(), "{}", text(&balanced));
    let status = demo.wait_until_whole();
    let members = partitions(&status)[0]["in_sync"].as_array().unwrap();
    let from = primary(&status, 0);
    let to = members.iter().map(|name| name.as_str().unwrap()).find(|name| *name != from).unwrap();
    let moved = demo.command(&["switchover", "--partition", "0", "--to", to]);
    assert!(moved.status.success(), "{}", text(&moved));
    // A primary may change by itself where a node stands still for long.
    demo.wait("each leads one", |_| {
        let balanced = demo.command(&["balance", "--primaries-only"]);
        assert!(!text(&balanced).contains("replicas are balanced"), "{}", text(&balanced));
        let status = demo.status();
        let mut leads: Vec<String> = (0..3).map(|partition| primary(&status, partition)).collect();
        leads.sort();
        leads == ["node0", "node3", "node4"]
    });

    // All of it ends with the demo, which goes on with the nodes that there are.
    send("TERM", demo.pid());
    assert!(third.wait().unwrap().success() && fourth.wait().unwrap().success());
    assert_eq!(demo.end_by("TERM"), Some(0));
    demo.start_again(&[]);
    demo.wait_until_whole();
    transfers(&demo, &sql);
    assert_eq!(demo.end_by("TERM"), Some(0));
}
