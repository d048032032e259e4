//! A backup of a cluster that is used, and a new cluster made of it.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{json, number, program, run, stdout, succeeds, text, wire};
use crate::demo::{Demo, PATIENCE, is_installed, node, nodes, partitions, send};

/// Three partitions on three nodes, which talk by TLS.
const SMALL: [&str; 8] = ["--nodes", "3", "--partitions", "3", "--replicas", "2", "--links", "tls"];

/// Transfers of money for some seconds; at the end all is looked at.
fn bench(sql: &str, seconds: &str) -> std::process::Command {
    program(&[
        "bench",
        "cluster",
        "--connect",
        sql,
        "--clients",
        "4",
        "--accounts",
        "100",
        "--durability",
        "standby",
        "--seconds",
        seconds,
        "--json",
    ])
}

/// The number that a query answers.
fn one(sql: &str, query: &str) -> u64 {
    // A row's message begins with the count of its columns and the length of the only one.
    let said = wire::runs(&mut wire::session_at(sql), query);
    let row = said.split("SELECT 1").next().unwrap();
    let digits = row.rsplit(|of: char| !of.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{query}: {said:?}"))
}

/// Ends with the test.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            send("KILL", child.id());
            let _ = child.wait();
        }
    }
}

#[test]
fn a_cluster_is_made_of_a_backup_that_was_taken_while_it_was_used() {
    if !is_installed() {
        return;
    }
    let mut demo = Demo::start("cluster-backup", &SMALL);
    let status = demo.wait_until_whole();
    let sql = node(&status, "node0")["sql"].as_str().unwrap().to_owned();
    let first = bench(&sql, "1").output().unwrap();
    assert!(first.status.success(), "{}", text(&first));
    let committed = number(&json(&first), "committed") as u64;
    let rows = || one(&sql, "SELECT count(*) FROM bench_ledger");
    let backups = crate::common::Directory::new("cluster-backups");
    std::fs::create_dir_all(backups.path()).unwrap();
    let to = backups.path().join("one");
    let to = to.to_str().unwrap();
    let began = Instant::now();
    // The load begins before the backup, and ends after it.
    let (taken, load) = loop {
        let before = rows();
        let mut load = bench(&sql, "15").stdout(Stdio::piped()).spawn().unwrap();
        while rows() == before {
            assert!(began.elapsed() < PATIENCE, "transfers run");
            std::thread::sleep(Duration::from_millis(20));
        }
        let taken = demo.command(&["backup", "--to", to]);
        let has_load = load.try_wait().unwrap().is_none();
        if taken.status.success() && has_load {
            break (taken, load);
        }
        let load = load.wait_with_output().unwrap();
        assert!(load.status.success(), "the load went on: {}", text(&load));
        assert!(began.elapsed() < PATIENCE, "{}", text(&taken));
        if taken.status.success() {
            std::fs::remove_dir_all(to).unwrap();
        } else {
            assert_eq!(taken.status.code(), Some(4), "{}", text(&taken));
            assert!(!Path::new(to).exists(), "nothing is left of it");
        }
    };
    assert!(stdout(&taken).contains("3 partitions"), "{}", text(&taken));
    let refused = demo.command(&["backup", "--to", to]);
    assert!(
        refused.status.code() == Some(4) && text(&refused).contains("is not empty"),
        "{}",
        text(&refused)
    );
    let load = load.wait_with_output().unwrap();
    assert!(load.status.success(), "the load went on: {}", text(&load));
    succeeds(run(&["cluster", "check", "--backup", to]));

    // The same etcd has the new cluster under another prefix.
    let file = std::fs::read_to_string(demo.directory.path().join("node0/node.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    let control = file["control"][0].as_str().unwrap();
    let listeners: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |at: usize| listeners[at].local_addr().unwrap();
    let specs = [0, 1].map(|at| format!("n{at}={},sql={}", address(2 * at), address(2 * at + 1)));
    let restored_sql = address(1).to_string();
    let data = backups.path().join("restored");
    let data = data.to_str().unwrap();
    let restore = |from: &str, prefix: &str| {
        let control = ["--control", control, "--prefix", prefix, "--links", "plain-on-loopback"];
        let all =
            ["cluster", "restore", "--from", from, "--data", data, "--node", &specs[0], "--node", &specs[1]];
        run(&[&all[..], &control[..]].concat())
    };
    let refused = restore(to, "rialto/");
    assert!(refused.status.code() == Some(3) && text(&refused).contains("--prefix"), "{}", text(&refused));
    // A damaged backup, and one that is not whole, leave nothing.
    let broken = backups.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    for entry in std::fs::read_dir(to).unwrap().flatten() {
        std::fs::copy(entry.path(), broken.join(entry.file_name())).unwrap();
    }
    let damaged = broken.join("partition-1.backup");
    let mut bytes = std::fs::read(&damaged).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let refused = restore(broken.to_str().unwrap(), "new/");
    assert!(
        refused.status.code() == Some(3) && text(&refused).contains("partition-1.backup"),
        "{}",
        text(&refused)
    );
    let refused = run(&["cluster", "check", "--backup", broken.to_str().unwrap()]);
    assert!(
        refused.status.code() == Some(3) && text(&refused).contains("partition-1.backup"),
        "{}",
        text(&refused)
    );
    std::fs::remove_file(broken.join("manifest.json")).unwrap();
    let refused = restore(broken.to_str().unwrap(), "new/");
    assert!(text(&refused).contains("no complete backup"), "{}", text(&refused));
    assert!(!Path::new(data).exists());
    succeeds(restore(to, "new/"));
    let again = restore(to, "other/");
    assert!(again.status.code() == Some(3) && text(&again).contains("is not empty"), "{}", text(&again));

    let start = |name: &str| {
        let mut command = program(&["cluster", "node", "--memory-bytes", "300000000", "--data"]);
        command.arg(Path::new(data).join(name)).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    // Until now nothing else gets their ports.
    drop(listeners);
    let mut restored = Processes(vec![start("n0"), start("n1")]);
    let began = Instant::now();
    loop {
        let status = json(&succeeds(run(&["cluster", "status", "--data", data, "--json"])));
        let is_whole = partitions(&status).len() == 3
            && nodes(&status).iter().all(|node| node["state"] == "up")
            && partitions(&status).iter().all(|partition| {
                partition["serves"] == true && partition["in_sync"].as_array().unwrap().len() == 2
            });
        if is_whole {
            break;
        }
        let have_ended = restored.0.iter_mut().any(|child| child.try_wait().unwrap().is_some());
        assert!(!have_ended, "a node of the restored cluster has ended: {status}");
        assert!(began.elapsed() < PATIENCE, "the restored cluster is not whole: {status}");
        std::thread::sleep(Duration::from_millis(200));
    }
    // It has what the backup has: the accounts, and all that was committed before the load.
    assert_eq!(one(&restored_sql, "SELECT count(*) FROM bench_accounts"), 100);
    let there = one(&restored_sql, "SELECT count(*) FROM bench_ledger");
    assert!(there >= committed && there > 0, "{there} rows of the ledger, {committed} committed before");
    // It looks at all accounts, and at the ledger.
    let looked = bench(&restored_sql, "1").output().unwrap();
    assert!(looked.status.success(), "{}", text(&looked));
    let report = json(&looked);
    assert_eq!(report["consistent"], true, "{report}");
    drop(restored);
    assert_eq!(demo.end_by("TERM"), Some(0));
}
