//! An operator's commands.

use crate::common::{json, run, stderr, stdout, succeeds, text};
use crate::demo::{Demo, is_installed, nodes, partitions, pid, primary, send};

/// Three partitions on three nodes, which talk by TLS.
const SMALL: [&str; 8] = ["--nodes", "3", "--partitions", "3", "--replicas", "2", "--links", "tls"];

#[test]
fn a_demo_goes_on_with_its_data_and_leaves_no_process_however_it_ends() {
    if !is_installed() {
        return;
    }
    let mut demo = Demo::start("cluster-again", &SMALL);
    let (ready, before) = (demo.ready.clone(), demo.wait_until_whole());
    let refused = demo.command(&["demo"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
    demo.end_by("KILL");
    // Options that are left out are those of the first time; others are refused.
    let refused = demo.command(&["demo", "--nodes", "4"]);
    assert!(stderr(&refused).contains("--nodes 3"), "{}", text(&refused));
    demo.start_again(&[]);
    assert_eq!(demo.ready, ready);
    let after = demo.wait_until_whole();
    for (before, after) in partitions(&before).iter().zip(partitions(&after)) {
        assert!(after["epoch"].as_u64() > before["epoch"].as_u64(), "the same partitions go on");
    }
    // The replicas of nodes that run are compared with each other, and nothing differs.
    let checked = demo.command(&["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert_eq!(
        stdout(&checked).matches("no difference").count(),
        partitions(&before).len(),
        "{}",
        text(&checked)
    );
    assert_eq!(demo.status()["differences"], serde_json::json!([]));
    assert_eq!(demo.end_by("INT"), Some(0));
    // Stopped replicas are verified.
    let checked = demo.command(&["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert_eq!(stdout(&checked).matches("\npartition ").count(), 6, "{}", text(&checked));
}

#[test]
fn a_primary_moves_when_an_operator_says_so_and_a_command_is_run_again() {
    if !is_installed() {
        return;
    }
    let mut demo = Demo::start("cluster-moves", &SMALL);
    let status = demo.wait_until_whole();
    let in_sync = |partition: usize| -> Vec<String> {
        let found = partitions(&status)[partition]["in_sync"].as_array().unwrap();
        found.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let (from, members) = (primary(&status, 0), in_sync(0));
    let to = members.iter().find(|name| **name != from).unwrap();
    let third = ["node0", "node1", "node2"].into_iter().find(|name| members.iter().all(|of| of != name));
    let refused = demo.command(&["switchover", "--partition", "0", "--to", third.unwrap()]);
    assert!(refused.status.code() == Some(3) && text(&refused).contains("in sync"), "{}", text(&refused));
    for done in ["moves", "already"] {
        let moved = demo.command(&["switchover", "--partition", "0", "--to", to]);
        assert_eq!(moved.status.code(), Some(0), "{}", text(&moved));
        assert!(text(&moved).contains(done), "{}", text(&moved));
    }
    assert_eq!(&primary(&demo.status(), 0), to);

    // On a machine that has only the third node, all is seen and done through that.
    let third = third.unwrap();
    demo.wait_until_whole();
    let seen = json(&succeeds(demo.command_at(third, &["status", "--json"])));
    for found in nodes(&seen) {
        assert_eq!(found["state"], "up", "{seen}");
        assert_eq!(found["pid"].is_number(), found["name"] == third, "{seen}");
    }
    for partition in partitions(&seen) {
        assert!(partition["serves"] == true && partition["lag_bytes"].is_number(), "{seen}");
    }
    for to in [&from, to] {
        demo.wait_until_whole();
        let moved = demo.command_at(third, &["switchover", "--partition", "0", "--to", to]);
        assert_eq!(moved.status.code(), Some(0), "{}", text(&moved));
        assert!(text(&moved).contains("moves"), "{}", text(&moved));
    }

    // The only replica in sync is lost, and one that was dropped before comes back: an operator decides.
    let status = demo.wait_until_whole();
    let (lost, stays) = (primary(&status, 0), from);
    send("KILL", pid(&status, &stays));
    demo.wait("it is dropped", |status| partitions(status)[0]["learners"] == serde_json::json!([stays]));
    send("KILL", pid(&status, &lost));
    let mut by_hand = demo.start_node(&stays);
    let status = demo.wait("it is up", |status| crate::demo::node(status, &stays)["state"] == "up");
    assert_eq!(primary(&status, 0), lost, "{status}");
    assert_eq!(partitions(&status)[0]["serves"], false, "{status}");
    let force = ["force-promote", "--partition", "0", "--node", &stays, "--without", &lost];
    let asked = demo.command(&force);
    assert_eq!(asked.status.code(), Some(2), "{}", text(&asked));
    assert!(text(&asked).contains("nothing was done") && text(&asked).contains(&lost), "{}", text(&asked));
    let confirmed: Vec<&str> = force.into_iter().chain(["--yes"]).collect();
    for _ in 0..2 {
        let done = demo.command_at(third, &confirmed);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done));
        assert!(text(&done).contains("leads"), "{}", text(&done));
    }
    assert_eq!(primary(&demo.status(), 0), stays);
    // No transaction ran: the loss has left nothing undecided.
    let listed = demo.command(&["decide"]);
    assert!(
        listed.status.code() == Some(0) && stdout(&listed).contains("no transaction waits"),
        "{}",
        text(&listed)
    );
    assert_eq!(demo.status()["undecided"], serde_json::json!([]));
    demo.wait("all serve", |status| partitions(status).iter().all(|partition| partition["serves"] == true));
    let over = demo.command(&["decide", "--transaction", "0.1.1", "--decision", "abort"]);
    assert!(
        over.status.code() == Some(0) && stdout(&over).contains("nothing is to be decided"),
        "{}",
        text(&over)
    );
    let refused = demo.command(&["decide", "--transaction", "0.1", "--decision", "abort"]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("0.1"), "{}", text(&refused));
    // The other one comes back behind it.
    let mut other = demo.start_node(&lost);
    demo.wait_until_whole();
    send("TERM", demo.pid());
    assert!(by_hand.wait().unwrap().success() && other.wait().unwrap().success());
    assert_eq!(demo.end_by("TERM"), Some(0));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let refused = run(&["cluster", "status", "--data", "/nonexistent"]);
    assert!(
        refused.status.code() == Some(3) && stderr(&refused).contains("/nonexistent"),
        "{}",
        text(&refused)
    );
    let refused = run(&["cluster", "node", "--data", "/"]);
    assert!(stderr(&refused).contains("rialto cluster init"), "{}", text(&refused));
    let demo = ["cluster", "demo", "--etcd", "/nonexistent/etcd", "--data"];
    let directory = crate::common::Directory::new("cluster-without-etcd");
    let refused = crate::common::program(&demo).arg(directory.path()).output().unwrap();
    assert!(
        refused.status.code() == Some(2) && stderr(&refused).contains("etcd-server"),
        "{}",
        text(&refused)
    );
}
