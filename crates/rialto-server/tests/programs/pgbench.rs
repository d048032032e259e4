//! pgbench 15, unmodified: both ways to load, all built-in scripts in all query modes. At the end the bank's books
//! balance.

use crate::common::{TestServer, has, texts};
use crate::in_process::{InProcess, new_database};

fn pgbench(server: &TestServer, arguments: &[&str]) -> String {
    let output = server.program("pgbench").args(arguments).output().expect("pgbench runs");
    let success = output.status.success();
    let (stdout, stderr) = texts(output);
    assert!(success, "pgbench {arguments:?}\n{stdout}\n{stderr}");
    stdout + &stderr
}

/// The number that a query gives as its one value.
fn number(server: &TestServer, sql: &str) -> i64 {
    let (stdout, stderr) = server.psql(&[sql]);
    stdout.trim().parse().unwrap_or_else(|_| panic!("{sql}: {stdout}{stderr}"))
}

/// The sum of a column, computed by the test.
fn sum(server: &TestServer, column: &str, table: &str) -> i64 {
    let (stdout, stderr) = server.psql(&[&format!("select {column} from {table} where {column} <> 0")]);
    assert_eq!(stderr, "");
    stdout.lines().map(|line| line.parse::<i64>().unwrap()).sum()
}

fn check_books(server: &TestServer) {
    let branches = sum(server, "bbalance", "pgbench_branches");
    assert_eq!(branches, sum(server, "tbalance", "pgbench_tellers"));
    assert_eq!(branches, sum(server, "abalance", "pgbench_accounts"));
    assert_eq!(branches, sum(server, "delta", "pgbench_history"));
}

fn check_load(server: &TestServer, scale: i64) {
    assert_eq!(number(server, "select count(*) from pgbench_accounts"), 100_000 * scale);
    assert_eq!(number(server, "select count(*) from pgbench_tellers"), 10 * scale);
    assert_eq!(number(server, "select count(*) from pgbench_branches"), scale);
    let filler = server.psql(&["select filler from pgbench_accounts where aid = 100000"]).0;
    assert_eq!(filler.trim_end_matches('\n'), " ".repeat(84));
}

#[test]
fn loads_and_runs_every_script_in_every_mode() {
    if !has("pgbench") || !has("psql") {
        return;
    }
    let server = TestServer::start();
    pgbench(&server, &["-i", "-s", "1", "-q"]);
    check_load(&server, 1);
    for mode in ["simple", "extended", "prepared"] {
        for (script, clients, transactions) in
            [("tpcb-like", 4, 25), ("simple-update", 4, 25), ("select-only", 4, 100)]
        {
            let all = clients * transactions;
            let (clients, transactions) = (clients.to_string(), transactions.to_string());
            // simple-update does not change the branches, so the books are checked before it.
            let arguments = [
                "-n",
                "-M",
                mode,
                "-b",
                script,
                "-c",
                &clients,
                "-j",
                "2",
                "-t",
                &transactions,
                "--max-tries=1",
            ];
            let report = pgbench(&server, &arguments);
            let processed = format!("number of transactions actually processed: {all}/{all}");
            assert!(report.contains(&processed), "{mode} {script}\n{report}");
            assert!(
                report.contains("number of failed transactions: 0 (0.000%)"),
                "{mode} {script}\n{report}"
            );
            if script == "tpcb-like" && mode == "simple" {
                check_books(&server);
            }
        }
    }
    // The start-up vacuum and the partition probe, which a run without -n makes.
    let report = pgbench(&server, &["-t", "1"]);
    assert!(report.contains("number of transactions actually processed: 1/1"), "{report}");
    server.wait().unwrap();
}

#[test]
fn loads_on_the_server_side_and_keeps_the_books() {
    if !has("pgbench") || !has("psql") {
        return;
    }
    let server = TestServer::start();
    pgbench(&server, &["-i", "-I", "dtGvp", "-s", "2", "--fillfactor=90"]);
    check_load(&server, 2);
    // Loaded over the existing tables.
    pgbench(&server, &["-i", "-I", "dtgvp", "-s", "1"]);
    check_load(&server, 1);
    for mode in ["prepared", "extended", "simple"] {
        pgbench(&server, &["-n", "-M", mode, "-c", "8", "-j", "2", "-t", "20"]);
    }
    check_books(&server);
    assert_eq!(number(&server, "select count(*) from pgbench_history"), 3 * 8 * 20);
}

/// Over two partitions: the accounts are loaded into one of them, and the primary key spreads them.
#[test]
fn loads_and_keeps_the_books_over_partitions() {
    if !has("pgbench") || !has("psql") {
        return;
    }
    let partitions = InProcess::of((0..2).map(|_| new_database(256 << 20)).collect());
    let server = TestServer::over_partitions(partitions.clone());
    pgbench(&server, &["-i", "-s", "1", "-q"]);
    check_load(&server, 1);
    for database in partitions.databases() {
        let accounts = database.table("pgbench_accounts").unwrap();
        assert!(database.read(|tx| tx.count(&accounts)).unwrap() > 40_000);
    }
    for mode in ["prepared", "extended", "simple"] {
        pgbench(&server, &["-n", "-M", mode, "-b", "tpcb-like", "-c", "4", "-j", "2", "-t", "20"]);
        pgbench(&server, &["-n", "-M", mode, "-b", "select-only", "-c", "4", "-j", "2", "-t", "50"]);
    }
    check_books(&server);
    assert_eq!(number(&server, "select count(*) from pgbench_history"), 3 * 4 * 20);
    server.wait().unwrap();
}
