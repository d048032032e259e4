//! `rialto bench cluster`, on a server of one database.

use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;

use crate::common::wire::{query, runs, session};
use crate::common::{Directory, Serving, json, number, program, run, stderr, stdout, succeeds};

fn arguments<'a>(connect: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["bench", "cluster", "--connect", connect, "--clients", "3", "--json"];
    all.extend(more);
    all
}

/// A run in the background; the test changes the tables meanwhile.
fn begins(serving: &Serving, seconds: &str) -> Child {
    let arguments = arguments(&serving.tcp, &["--seconds", seconds]);
    let running = program(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    running.expect("the program starts")
}

/// How a run has ended that has found something wrong.
fn wrong(output: &Output) -> Json {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    json(output)
}

#[test]
fn a_server_of_one_database_loses_nothing() {
    let directory = Directory::new("bench-cluster");
    let serving = Serving::start(directory.path());
    // A node that does not answer is passed over.
    let connect = format!("127.0.0.1:1,{}", serving.tcp);
    let line = arguments(&connect, &["--seconds", "1", "--accounts", "100", "--durability", "memory"]);
    let output = succeeds(run(&line));
    assert!(stdout(&output).contains("lost commits"), "{}", stdout(&output));
    let figures = json(&output);
    assert!(number(&figures, "committed") > 0.0, "{figures}");
    for (name, expected) in [("accounts", 100.0), ("lost_commits", 0.0), ("unknown_outcomes", 0.0)] {
        assert_eq!(number(&figures, name), expected, "{name}: {figures}");
    }
    assert_eq!(figures["consistent"], Json::Bool(true));
    assert_eq!((&figures["messages_per_txn"], &figures["remote_pct"]), (&Json::Null, &Json::Null));
    let pause = number(&figures, "longest_pause_ms");
    assert!(pause > 0.0 && pause <= 1_000.0, "{figures}");

    // The tables are used again, and each run looks at its own rows alone.
    let again = succeeds(run(&arguments(&serving.tcp, &["--seconds", "0.5", "--remote-pct", "10"])));
    assert_eq!(number(&json(&again), "accounts"), 100.0);
    let other = run(&arguments(&serving.tcp, &["--seconds", "0.5", "--accounts", "200"]));
    assert_eq!(other.status.code(), Some(3), "{}", stderr(&other));
    assert!(stderr(&other).contains("holds 100 accounts, expected 200"), "{}", stderr(&other));
}

#[test]
fn a_row_that_is_gone_is_a_lost_commit_and_money_that_is_gone_is_inconsistent() {
    let directory = Directory::new("bench-cluster-lost");
    let serving = Serving::start(directory.path());
    let mut client = session(&serving);
    succeeds(run(&arguments(&serving.tcp, &["--seconds", "0.2"])));

    runs(&mut client, "DELETE FROM bench_ledger");
    let running = begins(&serving, "3");
    // Rows that are seen are those of answered commits, or of commits whose answers are on their way.
    while query(&mut client, "SELECT client FROM bench_ledger WHERE client < 2 LIMIT 1").contains("SELECT 0")
    {
        thread::sleep(Duration::from_millis(10));
    }
    let deleted = runs(&mut client, "DELETE FROM bench_ledger WHERE client < 2");
    let deleted = deleted.split("DELETE ").nth(1).and_then(|tag| tag.split(' ').next()?.parse::<f64>().ok());
    let figures = wrong(&running.wait_with_output().expect("it ends"));
    assert_eq!(Some(number(&figures, "lost_commits")), deleted, "{figures}");
    let lost = figures["lost"].as_array().expect("they are named");
    assert!(!lost.is_empty() && lost.iter().all(|lost| number(lost, "client") < 2.0), "{figures}");
    assert_eq!(figures["consistent"], Json::Bool(true), "{figures}");

    runs(&mut client, "DELETE FROM bench_ledger");
    let running = begins(&serving, "3");
    while query(&mut client, "SELECT client FROM bench_ledger LIMIT 1").contains("SELECT 0") {
        thread::sleep(Duration::from_millis(10));
    }
    runs(&mut client, "UPDATE bench_accounts SET balance = balance + 1 WHERE branch = 0 AND number = 0");
    let figures = wrong(&running.wait_with_output().expect("it ends"));
    assert_eq!((number(&figures, "lost_commits"), &figures["consistent"]), (0.0, &Json::Bool(false)));

    // The next run finds that before it begins.
    let refused = run(&arguments(&serving.tcp, &["--seconds", "1"]));
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("before the run"), "{}", stderr(&refused));
}

#[test]
fn the_workload_has_options_of_its_own() {
    for (line, code, named) in [
        ("bench", 2, "Usage"),
        ("bench cluster", 2, "--connect"),
        ("bench cluster --connect localhost", 2, "expected HOST:PORT"),
        ("bench cluster --connect a:1 --accounts 15", 2, "15"),
        ("bench tpcb --connect a:1", 2, "--connect"),
        ("bench cluster --connect a:1 --scale 2", 2, "--scale"),
    ] {
        let output = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(code), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{line}: {}", stderr(&output));
    }
    let help = succeeds(run(&["bench", "cluster", "--help"]));
    assert!(
        stdout(&help).contains("--remote-pct") && !stdout(&help).contains("--scale"),
        "{}",
        stdout(&help)
    );
    assert!(stdout(&succeeds(run(&["bench", "--help"]))).contains("tpcb"));
}
