//! A prepared branch whose decision is lost: an operator decides, by `rialto cluster decide`.

use std::process::{Child, Stdio};
use std::thread::sleep;

use crate::cluster::{Cluster, NODES, partitions, promise, serves};
use crate::common::{program, stdout, text};

/// How often the loss is tried: it has to meet a transaction between its votes and its decision.
const TRIES: usize = 20;

/// Clients that transfer money between partitions until this is dropped. What they would find at the end counts for nothing.
struct Load(Child);

impl Load {
    fn begin(cluster: &Cluster) -> Load {
        let connect = cluster.sql().join(",");
        let line = [
            "bench",
            "cluster",
            "--connect",
            &connect,
            "--clients",
            "16",
            "--accounts",
            "300",
            "--seconds",
            "60",
        ];
        let mut command = program(&line);
        command.args(["--remote-pct", "100", "--durability", "disk"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Load(child.expect("the program starts"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a statement at one node or the other, until it succeeds. Gives the first value of its last row.
fn query(cluster: &Cluster, statement: &str) -> String {
    let mut found = String::new();
    cluster.wait(statement, |_| {
        cluster.sql().iter().any(|address| {
            let ran = crate::lists::begin(address).and_then(|mut session| {
                session.query(statement, |row| found = row[0].unwrap_or_default().to_owned())
            });
            ran.is_ok()
        })
    });
    found
}

/// Has the partition 0 lose what it was told last: its standby falls behind, the only replica in sync dies, and the one that
/// is behind leads by force. Then the dead node runs again.
fn lose_the_newest(cluster: &mut Cluster) {
    let leads = cluster.primary(0);
    let status = cluster.wait_until_whole();
    let members = partitions(&status)[0]["in_sync"].as_array().expect("a list");
    let is_behind = |node: &usize| *node != leads && members.iter().any(|name| name == NODES[*node]);
    let behind = (0..NODES.len()).find(is_behind).expect("a standby");
    cluster.kill_node(behind);
    let alone = serde_json::json!([NODES[leads]]);
    cluster.wait("it is dropped", |status| partitions(status)[0]["in_sync"] == alone && serves(status));
    sleep(promise());
    cluster.kill_node(leads);
    cluster.start_node(behind);
    let (name, without) = (NODES[behind], NODES[leads]);
    let force = ["force-promote", "--partition", "0", "--node", name, "--without", without, "--yes"];
    cluster.wait("it leads by force", |_| cluster.command(&force).status.success());
    cluster.start_node(leads);
}

#[test]
fn an_operator_decides_what_a_forced_loss_has_left_undecided() {
    let Some(mut cluster) = Cluster::start("namespaces-decided", |_| ()) else { return };
    let mut decided = 0;
    for round in 0..TRIES {
        // What was lost by force is missing in them.
        for table in ["bench_accounts", "bench_ledger"] {
            query(&cluster, &format!("DROP TABLE IF EXISTS {table}"));
        }
        let load = Load::begin(&cluster);
        cluster.wait("transfers run", |_| {
            let rows = crate::lists::begin(&cluster.sql()[0]).and_then(|mut session| {
                let mut rows = 0;
                let count = "SELECT count(*) FROM bench_ledger";
                session.query(count, |row| rows = row[0].unwrap_or_default().parse().unwrap_or(0))?;
                Ok(rows)
            });
            rows.is_ok_and(|rows: u64| rows > 0)
        });
        lose_the_newest(&mut cluster);
        drop(load);
        decided += cluster.decide_all(&["abort", "commit"]);
        cluster.wait_until_whole();
        println!("round {round}: an operator has decided {decided}");
        if decided > 0 {
            break;
        }
    }
    assert!(
        decided > 0,
        "in {TRIES} forced losses none has met a transaction between its votes and its decision"
    );
    let listed = cluster.command(&["decide"]);
    assert!(stdout(&listed).contains("no transaction waits"), "{}", text(&listed));
    // All that was locked is free.
    query(&cluster, "UPDATE bench_accounts SET balance = 0");
}
