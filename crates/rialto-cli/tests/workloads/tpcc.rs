//! `rialto bench tpcc`, run as a user runs it: its result, its directory, and its refusals.

use std::process::Output;

use serde_json::Value as Json;

use crate::common::{Directory, at, json, number, run, stderr, stdout, succeeds};

/// Not the specification's sizes: few enough rows that clients conflict.
const SMALL: [&str; 12] = [
    "tpcc",
    "--scale",
    "2",
    "--items",
    "300",
    "--customers",
    "30",
    "--memory-bytes",
    "300000000",
    "--warmup",
    "0.2",
    "--json",
];
const NAMES: [&str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];

fn bench(arguments: &[&str]) -> Output {
    let mut all = vec!["bench"];
    all.extend(arguments);
    run(&all)
}

fn small(arguments: &[&str]) -> Output {
    let mut all = SMALL.to_vec();
    all.extend(arguments);
    bench(&all)
}

#[test]
fn a_run_has_an_entry_for_each_transaction_and_ends_consistent() {
    for arguments in [
        &["--clients", "4"][..],
        &["--clients", "4", "--in-flight", "20", "--locks", "central"],
        &["--clients", "4", "--in-flight", "20", "--engine", "data-oriented"],
        &["--clients", "4", "--engine", "data-oriented", "--executor-threads", "2"],
        &["--rate", "2000", "--durability", "memory"],
        &["--mix", "PAYMENT=60,new-order=40", "--clients", "8"],
    ] {
        let mut all = vec!["--disk", "memory", "--seconds", "0.5"];
        all.extend(arguments);
        let output = succeeds(small(&all));
        let json = json(&output);
        assert_eq!((at(&json, "workload"), at(&json, "consistent")), (&"tpcc".into(), &Json::from(true)));
        let committed = |name: &str| number(&json, &format!("procedures.{name}.committed"));
        let has_mix = arguments[0] == "--mix";
        for name in NAMES {
            let is_run = !has_mix || ["new-order", "payment"].contains(&name);
            assert_eq!(committed(name) > 0.0, is_run, "{name}, {arguments:?}: {json}");
        }
        let sum: f64 = NAMES.into_iter().map(committed).sum();
        assert_eq!(sum, number(&json, "committed"), "{json}");
        // One new order of a hundred is rolled back.
        assert!(number(&json, "aborted_user") <= committed("new-order") * 0.1, "{json}");
        let table = stdout(&output);
        let heading =
            "TPC-C, 2 warehouses, 300 items, 30 customers a district (not the specification's sizes); mix ";
        assert!(
            table.starts_with(heading) && table.contains("conditions 1 to 4 hold in 2 warehouses"),
            "{table}"
        );
    }
}

/// The next run recovers the log of each run: values, or calls of the procedures.
#[test]
fn a_directory_is_used_again_and_one_of_another_shape_is_refused() {
    let directory = Directory::new("tpcc-again");
    let data = ["--data", directory.name(), "--seconds", "0.4", "--clients", "4"];
    let calls = ["--logging", "transaction", "--checkpoint", "tccou"];
    for (number, logging) in [&[][..], &calls, &calls, &[]].into_iter().enumerate() {
        let output = succeeds(small(&[&data, logging].concat()));
        let expected =
            if number == 0 { "loaded a TPC-C database into" } else { "using the TPC-C database in" };
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(at(&json(&output), "consistent"), &Json::from(true));
    }
    for (arguments, expected) in [
        (
            &["tpcc", "--scale", "3", "--items", "300", "--customers", "30"][..],
            "expected one of 3 warehouses, 300 items",
        ),
        (
            &["tpcc", "--scale", "1"],
            "expected one of 1 warehouses, 100000 items, 3000 customers a district: ",
        ),
        (&["tpcb"], "expected a TPC-B bank of 10 branches"),
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--data", directory.name()]);
        let refused = bench(&all);
        assert_eq!(refused.status.code(), Some(3), "{arguments:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(expected), "{}", stderr(&refused));
    }
}

/// On a virtual machine the same command gives the same figures; with several strategies the data is consistent.
#[test]
fn virtual_seconds_are_the_same_each_time() {
    let virtually = |more: &[&str]| {
        let mut all =
            vec!["tpcc", "--disk", "sim:charm", "--residence", "disk", "--page-bytes", "4096", "--json"];
        all.extend(["--durability", "memory", "--checkpoint", "none", "--cache-bytes", "4194304"]);
        all.extend(["--scale", "1", "--customers", "200", "--items", "5000"]);
        all.extend(["--warmup", "5", "--seconds", "20", "--clients", "4"]);
        all.extend(more);
        let json = json(&succeeds(bench(&all)));
        assert_eq!(at(&json, "consistent"), &Json::from(true));
        assert!(number(&json, "committed") > 100.0, "{json}");
        json
    };
    let figures =
        ["committed", "latency_us", "procedures", "page_reads", "hit_ratio", "two_stage", "time_us_per_txn"];
    let (one, other) = (virtually(&[]), virtually(&[]));
    for figure in figures {
        assert_eq!(at(&one, figure), at(&other, figure), "{figure}");
    }
    let reads = number(&one, "time_us_per_txn.fetch_io");
    assert!(reads > 100.0, "a disk of 5400 rpm: {one}");
    let other = virtually(&["--seed", "2", "--two-stage", "2pl", "--locks", "central"]);
    assert_ne!(at(&one, "committed"), at(&other, "committed"));
    assert!(number(&other, "lock_held_io_waits") > number(&one, "lock_held_io_waits"), "{other}");
    // Waits of a transaction for locks behind others' disk I/O.
    let [behind, in_two] = [&other, &one]
        .map(|json| number(json, "lock_wait_for_disk_share") * number(json, "time_us_per_txn.lock_wait"));
    assert!(in_two > 0.0 && in_two < behind / 3.0, "{behind} and {in_two}: {other}");
    let staged = |key: &str| -> f64 {
        ["new-order", "payment", "delivery"]
            .iter()
            .map(|name| number(&one, &format!("two_stage.{name}.{key}")))
            .sum()
    };
    let [executions, with_some, misprefetches] = ["executions", "misprefetched", "misprefetches"].map(staged);
    assert!(with_some > 0.0 && with_some <= misprefetches && with_some <= executions, "{one}");
    let of_new_orders = number(&other, "procedures.new-order.waits_us.lock.for_disk_share");
    assert!(of_new_orders > 0.3 && of_new_orders <= 1.0, "{other}");
    let slower = virtually(&["--run-us", "30000"]);
    assert!(number(&slower, "committed") < 0.5 * number(&one, "committed"), "{slower}");
    let refused = small(&["--disk", "sim:charm"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("takes --residence disk"), "{}", stderr(&refused));
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let grows = small(&["--disk", "memory", "--seconds", "900000", "--rate", "1000"]);
    assert_eq!(grows.status.code(), Some(2), "{}", stderr(&grows));
    assert!(stderr(&grows).contains("seconds in all would fit"), "{}", stderr(&grows));
    let large = bench(&["tpcc", "--disk", "memory", "--memory-bytes", "500000000"]);
    assert_eq!(large.status.code(), Some(2), "{}", stderr(&large));
    assert!(stderr(&large).contains("--scale 10 warehouses take about"), "{}", stderr(&large));
}
