//! `rialto bench commit`, run as a user runs it: on a disk and in virtual time.

use std::process::Output;

use serde_json::Value as Json;

use crate::common::{Directory, at, json, number, run, stderr, stdout, succeeds};

fn commit(arguments: &[&str]) -> Output {
    let mut all = vec!["bench", "commit"];
    all.extend(arguments);
    run(&all)
}

/// The names of the contract's keys, whose values are null where they do not apply.
const KEYS: &str = "workload engine clients seconds seed data machine offered_per_s committed committed_per_s aborted_user \
                    aborted_deadlock latency_us log_bytes_per_txn group_size_mean log_writes instructions_per_txn \
                    wakes_per_txn syscalls_per_txn checkpoints locks_per_100_txn time_us_per_txn allocations_per_txn \
                    procedures consistent";

#[test]
fn every_design_commits_on_a_disk_and_the_log_is_read_back() {
    let directory = Directory::new("commit-file");
    for (design, setting) in [
        ("commit-lock", &[][..]),
        ("commit-stall", &["--stall-us", "200"]),
        ("willing-to-wait", &["--willing-to-wait-us", "400"]),
        ("hiber", &[]),
        ("hiber-stall", &["--stall-us", "50"]),
        ("adaptive", &["--in-flight", "50"]),
    ] {
        let mut all = vec![
            "--data",
            directory.name(),
            "--clients",
            "3",
            "--seconds",
            "0.3",
            "--warmup",
            "0.2",
            "--json",
        ];
        all.extend(["--group-commit", design]);
        all.extend(setting);
        // The commits in groups are the commits, except for those under way at the window's ends. With more threads
        // than processors, the two counters may be read at different times, so they agree not each time.
        let agree = |json: &Json| {
            let sizes = number(json, "group_size_mean") * number(json, "log_writes");
            (sizes - number(json, "committed")).abs() <= 160.0 + 0.02 * sizes
        };
        let mut runs = (0..4).map(|_| succeeds(commit(&all)));
        let output = runs
            .find(|output| agree(&json(output)))
            .expect("one of four runs has in its groups what it committed");
        let json = json(&output);
        for key in KEYS.split_whitespace() {
            at(&json, key);
        }
        assert_eq!(
            (at(&json, "workload"), at(&json, "consistent")),
            (&"commit".into(), &Json::from(true)),
            "{json}"
        );
        let (committed, groups) = (number(&json, "committed"), number(&json, "log_writes"));
        assert!(committed >= 3.0 && groups >= 1.0, "{json}");
        for absent in
            ["engine", "checkpoints", "locks_per_100_txn.row", "time_us_per_txn.run", "procedures", "regime"]
        {
            assert_eq!(at(&json, absent), &Json::Null, "{absent}: {json}");
        }
        for there in [
            "stall_us_per_txn",
            "wake_calls_per_txn",
            "self_wakes_per_txn",
            "log_write_us",
            "groups_by_log_server",
            "groups_by_stand_in",
            "groups_overdue",
            "threads_woken_per_txn",
        ] {
            number(&json, there);
        }
        let Json::Object(times) = at(&json, "log_write_times_us") else { panic!("{json}") };
        let timed: f64 = times.iter().map(|(_, count)| count.as_f64().expect("a count")).sum();
        assert!(timed >= 1.0, "{json}");
        let stalls = number(&json, "stall_us_per_txn") > 0.0;
        assert_eq!(
            stalls,
            design.contains("stall") || design.contains("willing") || stalls && design == "adaptive",
            "{json}"
        );
        assert!(stdout(&output).contains("whole and in order"), "{}", stdout(&output));
    }
    let left = std::fs::read_dir(directory.path()).expect("it was made").count();
    assert_eq!(left, 0, "the log is gone");
}

#[test]
fn in_virtual_time_a_run_is_the_same_each_time_and_says_where_it_was() {
    let line = ["--disk", "sim:koda", "--clients", "50", "--group-commit", "willing-to-wait"];
    let mut all = line.to_vec();
    all.extend(["--willing-to-wait-us", "90000", "--seconds", "4", "--warmup", "1", "--json"]);
    let first = succeeds(commit(&all));
    let found = json(&first);
    assert_eq!(stdout(&first), stdout(&succeeds(commit(&all))));
    assert_eq!(at(&found, "regime"), &Json::from("koda"));
    assert!((3.5..4.5).contains(&number(&found, "seconds")), "of virtual time: {found}");
    // The paper's formula for the maximum: 50 servers x 1000 / 90 ms.
    let tps = number(&found, "committed_per_s");
    assert!((400.0..555.0).contains(&tps), "{found}");
    assert!((1.0..=4.0).contains(&number(&found, "processors_busy")), "{found}");
    assert_eq!((at(&found, "machine"), at(&found, "wakes_per_txn")), (&Json::Null, &Json::Null));
    assert!(number(&found, "self_wakes_per_txn") > 0.9, "each thread wakes itself: {found}");
    for words in ["virtual time", "4 processors", "a log write 33.333ms", "at most 50"] {
        assert!(
            stdout(&first).contains(words) && stderr(&first).contains(words),
            "{words}: {}",
            stdout(&first)
        );
    }
    // Each window has another seed.
    all.extend(["--repeat", "3"]);
    let repeated = stdout(&succeeds(commit(&all)));
    assert!(repeated.contains("median of 3 windows"), "{repeated}");

    let tickets =
        ["--disk", "sim:ssd-30us", "--clients", "2", "--in-flight", "300", "--seconds", "0.02", "--json"];
    let found = json(&succeeds(commit(&tickets)));
    assert!(
        number(&found, "group_size_mean") > 10.0 && number(&found, "committed_per_s") > 100_000.0,
        "{found}"
    );
}

#[test]
fn other_disks_run_in_real_time() {
    for disk in ["memory", "sim:hdd"] {
        let output =
            commit(&["--disk", disk, "--clients", "2", "--seconds", "0.3", "--warmup", "0.2", "--json"]);
        let json = json(&succeeds(output));
        assert_eq!((at(&json, "consistent"), at(&json, "data")), (&true.into(), &Json::Null), "{json}");
        if disk == "sim:hdd" {
            assert!(number(&json, "latency_us.p50") > 4_000.0, "a rotation or two: {json}");
        }
    }
}

#[test]
fn limits_and_comparisons_are_those_of_the_other_workload() {
    let limits =
        ["--disk", "memory", "--clients", "4", "--seconds", "0.4", "--warmup", "0.2", "--limits", "--json"];
    let json_of = json(&succeeds(commit(&limits)));
    assert!(number(&json_of, "limits.share_of_group_commit") > 0.0, "{json_of}");
    assert_eq!(at(&json_of, "limits.map"), &Json::Null);

    let versus = [
        "--disk",
        "sim:koda",
        "--clients",
        "50",
        "--seconds",
        "2",
        "--group-commit",
        "hiber",
        "--repeat",
        "2",
    ];
    let mut all = versus.to_vec();
    all.extend(["--versus", "--group-commit commit-lock", "--json"]);
    let compared = json(&succeeds(commit(&all)));
    assert_eq!(at(&compared, "workload"), &Json::from("commit"));
    let ratio = number(&compared, "ratio.committed_per_s.median");
    assert!((1.55..1.7).contains(&ratio), "hiber over the lock: {compared}");
}

#[test]
fn what_does_not_apply_exits_2_and_says_what_does() {
    for (arguments, named) in [
        (&["--scale", "10"][..], "--scale does not apply to commit"),
        (&["--engine", "conventional"], "--in-flight"),
        (&["--rate", "100"], "--rate does not apply"),
        (&["--checkpoint", "fuzzy"], "--group-commit"),
        (&["--disk", "sim:koda", "--data", "x"], "virtual time"),
        (&["--disk", "sim:koda", "--limits"], "virtual time"),
        (&["--limits", "--in-flight", "8"], "--in-flight 1"),
        (&["--disk", "sim:floppy"], "sim:ssd-1ms"),
        (&["--group-commit", "hiber", "--stall-us", "1"], "commit-stall, hiber-stall"),
        (&["--seconds", "0"], "--seconds 0"),
    ] {
        let output = commit(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{arguments:?} printed {}", stdout(&output));
    }
    let tpcb = run(&["bench", "tpcb", "--disk", "sim:ssd-30us"]);
    assert_eq!(tpcb.status.code(), Some(2));
    assert!(
        stderr(&tpcb).contains("only commit runs in") && stderr(&tpcb).contains("sim:nvme"),
        "{}",
        stderr(&tpcb)
    );
}
