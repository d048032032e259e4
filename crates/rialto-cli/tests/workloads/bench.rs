//! `rialto bench`, run as a user runs it: exit codes, the table, the JSON object, the data directory.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use serde_json::Value as Json;

use crate::common::{Directory, at, json, measured, number, program, run, stderr, stdout, succeeds};

/// The arguments of a small run; each test adds to them.
const SMALL: [&str; 8] = ["--accounts", "2000", "--scale", "2", "--clients", "4", "--warmup", "0.2"];

fn bench(arguments: &[&str]) -> Output {
    let mut all = vec!["bench"];
    all.extend(arguments);
    run(&all)
}

fn small(arguments: &[&str]) -> Output {
    let mut all = vec!["tpcb", "--memory-bytes", "300000000"];
    all.extend(SMALL);
    all.extend(arguments);
    bench(&all)
}

/// The names of an object's members, those of inner objects as `outer.inner`.
fn names(json: &Json) -> Vec<String> {
    let Json::Object(members) = json else { return Vec::new() };
    let mut all = Vec::new();
    for (name, value) in members {
        all.push(name.clone());
        all.extend(names(value).into_iter().map(|inner| format!("{name}.{inner}")));
    }
    all
}

#[test]
fn the_json_object_has_the_keys_of_the_contract_and_the_run_is_consistent() {
    let directory = Directory::new("bench-json");
    let run = |seconds: &str| succeeds(small(&["--data", directory.name(), "--seconds", seconds, "--json"]));
    let output = measured(1.3, run, |output| number(&json(output), "committed") > 100.0);
    let json = json(&output);
    let latency = "p50 p99 p999 max";
    let times = "queue fetch_io lock_wait latch_wait run log_wait standby_wait";
    let both = "calm noisy";
    let members = [
        ("", "workload engine clients seconds seed data machine"),
        ("machine", "cpu cores memory_bytes kernel"),
        ("", "offered_per_s committed committed_per_s aborted_user aborted_deadlock latency_us"),
        ("latency_us", latency),
        ("", "log_bytes_per_txn group_size_mean log_writes instructions_per_txn"),
        ("instructions_per_txn", "user kernel"),
        ("", "wakes_per_txn syscalls_per_txn checkpoints locks_per_100_txn"),
        ("locks_per_100_txn", "row higher local"),
        ("", "time_us_per_txn"),
        ("time_us_per_txn", times),
        ("", "hit_ratio reads_per_miss misprefetches conversions lock_held_io_waits"),
        ("", "lock_wait_for_disk_share page_reads page_writes page_file_bytes two_stage"),
        ("", "allocations_per_txn procedures"),
        ("procedures", "tpcb"),
        ("procedures.tpcb", "committed committed_per_s"),
        ("procedures.tpcb", "aborted_user success_percent success_percent_specified latency_us"),
        ("procedures.tpcb.latency_us", latency),
        ("procedures.tpcb", "time_us_per_txn"),
        ("procedures.tpcb.time_us_per_txn", times),
        ("procedures.tpcb", "waits_us"),
        ("procedures.tpcb.waits_us", "lock"),
        ("procedures.tpcb.waits_us.lock", "share p50 p99 for_disk_share"),
        ("procedures.tpcb.waits_us", "latch"),
        ("procedures.tpcb.waits_us.latch", "share p50 p99"),
        ("procedures.tpcb.waits_us", "log"),
        ("procedures.tpcb.waits_us.log", "share p50 p99"),
        ("", "context_switches_per_txn"),
        ("context_switches_per_txn", "voluntary involuntary clients_voluntary clients_involuntary"),
        ("", "device_bytes_per_txn sweep_bytes_per_txn sweep_copied_bytes sweep_cpu_ms_per_gb"),
        ("", "aborted_straddling sweep_latches sweep_latch_conflicts sweep_hold_us_max latch_conflicts"),
        ("", "cuts cut_held_us_max snapshot_bytes_max recovery"),
        ("recovery", "seconds load indexes redo until_checkpoint within kept"),
        ("", "server_us_per_txn"),
        ("server_us_per_txn", "transaction checkpoint log message"),
        ("", "servers response_us overdue"),
        ("", "callgrind_instructions_per_txn locks_by_form_per_100_txn"),
        ("locks_by_form_per_100_txn", "thin head"),
        ("", "cache_line_transfers_per_txn latency_us_at_percent_of_peak"),
        ("latency_us_at_percent_of_peak", "50 80"),
        ("", "calibration"),
        ("calibration", "slices noisy committed_per_s"),
        ("calibration.committed_per_s", both),
        ("calibration", "wake_us"),
        ("calibration.wake_us", both),
        ("calibration", "write_us"),
        ("calibration.write_us", both),
        ("calibration", "load_ns"),
        ("calibration.load_ns", both),
        ("", "slices limits not_counted"),
        (
            "not_counted",
            "instructions_per_txn callgrind_instructions_per_txn allocations_per_txn syscalls_per_txn",
        ),
        (
            "not_counted",
            "device_bytes_per_txn locks_by_form_per_100_txn wakes_per_txn context_switches_per_txn",
        ),
        ("not_counted", "cache_line_transfers_per_txn latency_us_at_percent_of_peak"),
        ("not_counted.latency_us_at_percent_of_peak", "50 80"),
        ("", "consistent"),
    ];
    let full = |(outer, inner): (&str, &str)| {
        let outer = if outer.is_empty() { String::new() } else { format!("{outer}.") };
        inner.split(' ').map(|name| format!("{outer}{name}")).collect::<Vec<_>>()
    };
    assert_eq!(names(&json), members.into_iter().flat_map(full).collect::<Vec<_>>());
    assert_eq!((at(&json, "workload"), at(&json, "consistent")), (&"tpcb".into(), &Json::from(true)));
    assert_eq!((at(&json, "offered_per_s"), at(&json, "limits")), (&Json::Null, &Json::Null));
    assert!(at(&json, "data").to_string().contains("bench-json"), "{json}");
    assert!(number(&json, "committed") > 100.0, "{json}");
    assert!(number(&json, "allocations_per_txn") < 0.5, "a transaction allocates: {json}");
    let row_locks = number(&json, "locks_per_100_txn.row") / 100.0;
    assert!((3.9..4.1).contains(&row_locks), "four row locks a transaction: {json}");
    assert!((100.0..2_000.0).contains(&number(&json, "log_bytes_per_txn")), "{json}");
    // A figure is null only with its reason.
    for (figure, part) in [
        ("instructions_per_txn", ".user"),
        ("callgrind_instructions_per_txn", ""),
        ("allocations_per_txn", ""),
        ("syscalls_per_txn", ""),
        ("device_bytes_per_txn", ""),
        ("locks_by_form_per_100_txn", ".thin"),
        ("wakes_per_txn", ""),
        ("context_switches_per_txn", ".voluntary"),
        ("cache_line_transfers_per_txn", ""),
        ("latency_us_at_percent_of_peak.50", ""),
        ("latency_us_at_percent_of_peak.80", ""),
    ] {
        let value = format!("{figure}{part}");
        let reason = at(&json, &format!("not_counted.{figure}"));
        assert_eq!(at(&json, &value) == &Json::Null, reason != &Json::Null, "{figure}: {json}");
    }
    // There is one transaction type, and its account is that of all. What does not apply is null.
    let time = |part: &str| at(&json, &format!("time_us_per_txn.{part}"));
    assert_eq!(at(&json, "time_us_per_txn"), at(&json, "procedures.tpcb.time_us_per_txn"));
    for part in ["queue", "fetch_io", "standby_wait"] {
        assert_eq!(time(part), &Json::Null, "{part}");
    }
    assert!(time("run").as_f64() > Some(0.0) && time("log_wait").as_f64() > Some(0.0), "{json}");
    assert!(number(&json, "procedures.tpcb.waits_us.log.share") > 0.5, "blocking clients wait: {json}");
    assert!(number(&json, "context_switches_per_txn.clients_voluntary") > 0.0, "{json}");
    let (slices, noisy) = (number(&json, "calibration.slices"), number(&json, "calibration.noisy"));
    assert!(slices >= 2.0 && noisy <= slices, "{json}");
    let Json::Array(list) = at(&json, "slices") else { panic!("slices are a list: {json}") };
    let tagged =
        |tag: &str| list.iter().filter(|slice| slice.get("spell") == Some(&tag.into())).count() as f64;
    assert_eq!((tagged("calm"), tagged("noisy")), (slices - noisy, noisy), "{json}");
    assert!(list.iter().any(|slice| number(slice, "committed_per_s") > 0.0), "{json}");
    let write_us = |spell: &str| at(&json, &format!("calibration.write_us.{spell}")).as_f64();
    assert!(write_us("calm").or(write_us("noisy")) > Some(0.0), "{json}");
    let left: Vec<_> = std::fs::read_dir(directory.path().parent().expect("it has one"))
        .expect("it can be listed")
        .filter_map(|entry| entry.expect("an entry").file_name().into_string().ok())
        .filter(|name| name.starts_with("bench-json") && name.contains(".bench-"))
        .collect();
    assert!(left.is_empty(), "scratch files are left over: {left:?}");
    let table = stdout(&output);
    for row in [
        "throughput",
        "latency",
        "time account",
        "log ",
        "group commit",
        "group sizes",
        "wake-ups",
        "spells",
        "consistent",
        "data",
    ] {
        assert!(table.contains(&format!("\n  {row}")), "{row} is missing in\n{table}");
    }
    assert!(stderr(&output).contains("transactions/s"), "progress goes to stderr: {}", stderr(&output));
}

#[test]
fn tickets_and_open_loops_end_consistent_too() {
    for arguments in [
        &["--in-flight", "50"][..],
        &["--rate", "500"],
        &["--rate", "2000", "--in-flight", "20"],
        &["--rate", "50%"],
        &["--durability", "memory", "--in-flight", "10"],
        &["--repeat", "3"],
        &["--disk", "sim:nvme"],
    ] {
        let mut all = vec!["--seconds", "0.4", "--json"];
        if arguments[0] != "--disk" {
            all.extend(["--disk", "memory"]);
        }
        all.extend(arguments);
        let json = json(&succeeds(small(&all)));
        assert_eq!(at(&json, "consistent"), &Json::from(true), "{arguments:?}: {json}");
        assert_eq!(at(&json, "data"), &Json::Null, "{arguments:?}: {json}");
        let is_half = arguments == ["--rate", "50%"];
        let half = at(&json, "latency_us_at_percent_of_peak.50");
        assert_eq!(
            half,
            if is_half { at(&json, "latency_us") } else { &Json::Null },
            "{arguments:?}: {json}"
        );
        let offered = at(&json, "offered_per_s") != &Json::Null;
        assert_eq!(arguments[0] == "--rate", offered, "{arguments:?}: {json}");
        assert_eq!(at(&json, "overdue") != &Json::Null, offered, "{arguments:?}: {json}");
        // Calibrations of a disk are of a device of this machine, or of none.
        assert!(number(&json, "calibration.slices") >= 1.0, "{arguments:?}: {json}");
        assert_eq!(at(&json, "calibration.write_us.calm"), &Json::Null, "{arguments:?}: {json}");
        if arguments == ["--rate", "500"] {
            // With those that a machine which stood still was late for. The window is a little longer than 0.4 s, or
            // much longer.
            let due = number(&json, "committed") + number(&json, "overdue");
            let a_second = due / number(&json, "seconds");
            assert!((125.0..1_000.0).contains(&a_second), "{json}");
            assert!(number(&json, "time_us_per_txn.queue") > 0.0, "{json}");
        }
    }
}

#[test]
fn an_open_loop_counts_what_it_did_not_come_to() {
    // One client on a disk that takes 8 ms a write cannot begin 500 a second.
    let flood = ["--rate", "500", "--disk", "sim:hdd", "--clients", "1", "--seconds", "1", "--warmup", "0.2"];
    let mut all = vec!["tpcb", "--memory-bytes", "300000000", "--accounts", "2000", "--scale", "2", "--json"];
    all.extend(flood);
    let output = succeeds(bench(&all));
    let json = json(&output);
    let (overdue, committed) = (number(&json, "overdue"), number(&json, "committed"));
    assert!(overdue > committed, "most of it was never begun: {json}");
    // A transaction in the middle of the queue waits for hundreds of writes.
    assert!(number(&json, "latency_us.p50") > 20.0 * 8_000.0, "{json}");
    assert!(
        stdout(&output).contains("were due in the window and not done at its end"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn checkpoints_of_a_window_say_what_they_took() {
    let none = succeeds(small(&["--disk", "memory", "--seconds", "0.4", "--json"]));
    for figure in ["sweep_copied_bytes", "sweep_cpu_ms_per_gb"] {
        assert_eq!(at(&json(&none), figure), &Json::Null, "{}", stdout(&none));
    }
    assert!(stdout(&none).contains("none completed in the window"), "{}", stdout(&none));

    // Sweeps all the time, beside a run without any.
    let versus = "--checkpoint fuzzy --checkpoint-interval-s 0 --sweep-bytes-per-s 0";
    let compared = ["--checkpoint", "none", "--versus", versus, "--repeat", "2"];
    let mut all = vec!["--disk", "memory", "--seconds", "0.4", "--json"];
    all.extend(compared);
    let output = succeeds(small(&all));
    let json = json(&output);
    assert_eq!(at(&json, "this.sweep_cpu_ms_per_gb"), &Json::Null, "{json}");
    assert!(number(&json, "other.sweep_cpu_ms_per_gb") > 1.0, "copying takes time: {json}");
    let table = stdout(&output);
    assert!(table.contains("  sweeps, other") && table.contains("core-ms a GB"), "{table}");
    assert!(!table.contains("  sweeps, this") && table.contains("%; medians"), "{table}");
}

#[test]
fn a_directory_is_created_used_again_and_refused_in_another_shape() {
    let directory = Directory::new("bench-again");
    let arguments = ["--seconds", "0.3", "--json", "--data", directory.name()];
    let first = succeeds(small(&arguments));
    assert!(stderr(&first).contains("loaded a bank"), "{}", stderr(&first));
    assert!(at(&json(&first), "data").to_string().contains("bench-again"));
    let second = succeeds(small(&arguments));
    assert!(stderr(&second).contains("using the bank"), "{}", stderr(&second));
    assert_eq!(at(&json(&second), "consistent"), &Json::from(true));

    let other = bench(&["tpcb", "--scale", "3", "--accounts", "2000", "--data", directory.name()]);
    assert_eq!(other.status.code(), Some(3), "{}", stderr(&other));
    let refusal = stderr(&other);
    assert!(refusal.contains("holds a TPC-B bank of 2 branches, 20 tellers, 2000 accounts"), "{refusal}");
    assert!(refusal.contains("expected one of 3 branches, 30 tellers, 2000 accounts"), "{refusal}");
    assert!(stdout(&other).is_empty());
}

/// Tables many times as large as the pages in memory, by each strategy; then again, from the directory.
#[test]
fn tables_on_disk_end_consistent_and_their_pages_are_counted() {
    let directory = Directory::new("bench-on-disk");
    let run = |more: &[&str]| {
        let mut all = vec!["tpcb", "--residence", "disk", "--cache-bytes", "4194304", "--page-bytes", "4096"];
        all.extend(["--accounts", "60000", "--scale", "20", "--clients", "4", "--warmup", "0.2"]);
        all.extend(["--seconds", "0.5", "--data", directory.name(), "--json"]);
        all.extend(more);
        bench(&all)
    };
    for strategy in ["htste", "2pl", "tste", "otste", "adaptive"] {
        let json = json(&succeeds(run(&["--two-stage", strategy])));
        assert_eq!(at(&json, "consistent"), &Json::from(true));
        assert!(number(&json, "hit_ratio") < 0.999 && number(&json, "hit_ratio") > 0.0, "{json}");
        assert!(number(&json, "reads_per_miss") >= 1.0, "{json}");
        assert!(number(&json, "time_us_per_txn.fetch_io") > 0.0, "{json}");
        assert!(number(&json, "page_file_bytes") > 8e6 && number(&json, "page_reads") > 0.0, "{json}");
        let (conversions, held) = (number(&json, "conversions"), number(&json, "lock_held_io_waits"));
        match strategy {
            "2pl" => assert!(conversions == 0.0 && held > 0.0, "{json}"),
            "tste" | "otste" => assert!(conversions > held, "{json}"),
            _ => {}
        }
        assert!(number(&json, "misprefetches") <= held, "{json}");
    }
    let json = json(&succeeds(run(&["--engine", "data-oriented"])));
    assert_eq!(at(&json, "consistent"), &Json::from(true));
    assert!(number(&json, "conversions") > 0.0, "{json}");
    assert!(number(&json, "hit_ratio") < 0.999, "{json}");
    let refused = bench(&["tpcb", "--accounts", "60000", "--scale", "20", "--data", directory.name()]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("on disk, expected one in memory"), "{}", stderr(&refused));
}

#[test]
fn a_directory_that_cannot_be_one_is_unusable() {
    let directory = Directory::new("bench-file");
    std::fs::write(directory.path(), "a file").expect("a file can be written");
    let output = small(&["--data", directory.name()]);
    let _ = std::fs::remove_file(directory.path());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("bench-file"), "{}", stderr(&output));
}

#[test]
fn what_does_not_fit_exits_2_and_says_what_does() {
    for (arguments, named) in [
        (&["tpch"][..], "tpcb"),
        (&["tpcb", "--engine", "dataflow"], "data-oriented"),
        (&["tpcb", "--checkpoint", "black"], "tcbw"),
        (&["tpcb", "--logging", "transaction"], "--checkpoint tccou, tcbw or none"),
        (&["tpcb", "--group-commit", "sleepy"], "log-server"),
        (&["tpcb", "--spool=perhaps"], "true, false"),
        (&["tpcb", "--mix", "BAL=100"], "no mix"),
        (&["card", "--mix", "BAL=50"], "add up to 50%"),
        (&["tatp", "--mix", "BAL=100"], "GetSubscriberData"),
        (&["tatp", "--accounts", "5"], "--subscribers"),
        (&["card", "--interactive", "--rate", "5"], "--rate does not apply to --interactive"),
        (&["tpcb", "--two-stage", "2pl"], "--residence disk"),
        (&["tpcb", "--disk", "sim:floppy"], "sim:koda"),
        (&["tpcb", "--nonsense"], "--nonsense"),
        (&["tpcb", "--limits", "--rate", "100"], "closed loops"),
        (&["tpcb", "--disk", "memory", "--versus", "--clients many"], "many"),
        (&["tpcb", "--disk", "memory", "--versus-binary", "/nowhere/rialto"], "/nowhere/rialto"),
        (&[], "Usage"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{arguments:?} printed {}", stdout(&output));
    }
}

#[test]
fn a_run_whose_growth_does_not_fit_is_refused_with_the_seconds_that_would() {
    for rate in [&["--rate", "1000"][..], &[]] {
        let mut arguments = vec!["--disk", "memory", "--memory-bytes", "20000000", "--seconds", "900000"];
        arguments.extend(rate);
        let mut all = vec!["tpcb"];
        all.extend(SMALL);
        all.extend(arguments);
        let output = bench(&all);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let refusal = stderr(&output);
        assert!(
            refusal.contains("seconds in all would fit") && refusal.contains("--memory-bytes"),
            "{refusal}"
        );
    }
}

#[test]
fn limits_stand_beside_the_runs_that_they_bound() {
    for (arguments, probes, absent, rows) in [
        (&["--clients", "1"][..], &["write"][..], &["group_commit", "map"][..], &["bare write"][..]),
        (&["--clients", "4"], &["write", "group_commit"], &["map"], &["bare write", "bare group commit"]),
        (&["--in-flight", "20"], &["map"], &["write", "group_commit"], &["bare map with log"]),
        (&["--durability", "memory"], &["map"], &["write", "group_commit"], &["bare map with log"]),
        (
            &["--durability", "memory", "--residence", "disk", "--cache-bytes", "4194304"],
            &["pages"],
            &["write", "group_commit", "map"],
            &["bare pages"],
        ),
    ] {
        let mut all =
            vec!["tpcb", "--accounts", "2000", "--scale", "2", "--warmup", "0.2", "--seconds", "0.4"];
        all.extend(["--memory-bytes", "300000000", "--disk", "memory", "--limits", "--json"]);
        all.extend(arguments);
        let output = succeeds(bench(&all));
        let json = json(&output);
        for probe in probes {
            assert!(number(&json, &format!("limits.{probe}.per_s")) > 0.0, "{arguments:?}: {json}");
        }
        for probe in absent {
            assert_eq!(at(&json, &format!("limits.{probe}")), &Json::Null, "{arguments:?}: {json}");
        }
        let share = match probes.last() {
            Some(&"write") => "p50_over_write",
            Some(&"group_commit") => "share_of_group_commit",
            Some(&"pages") => "share_of_pages",
            _ => "share_of_map",
        };
        assert!(number(&json, &format!("limits.{share}")) > 0.0, "{arguments:?}: {json}");
        for row in rows {
            assert!(
                stdout(&output).contains(&format!("\n  {row}")),
                "{row} is missing in {}",
                stdout(&output)
            );
        }
    }
}

#[test]
fn a_comparison_is_of_pairs_and_prints_the_ratio_with_its_interval() {
    let this_program = env!("CARGO_BIN_EXE_rialto");
    // A disk in memory against one that takes 8 ms a write.
    let versus = ["--disk", "memory", "--versus", "--disk sim:hdd", "--versus-binary", this_program];
    let mut arguments = vec!["--clients", "1", "--seconds", "0.3", "--repeat", "2", "--json"];
    arguments.extend(versus);
    let mut all =
        vec!["tpcb", "--memory-bytes", "300000000", "--accounts", "2000", "--scale", "2", "--warmup", "0.2"];
    all.extend(arguments);
    let output = succeeds(bench(&all));
    let json = json(&output);
    assert_eq!(at(&json, "pairs"), &Json::from(2u64));
    let ratio =
        |figure: &str, part: &str| number(at(&json, "ratio").get(figure).expect("it is compared"), part);
    let (low, median, high) = (
        ratio("committed_per_s", "low"),
        ratio("committed_per_s", "median"),
        ratio("committed_per_s", "high"),
    );
    assert!(1.0 < low && low <= median && median <= high, "memory is faster than a disk: {json}");
    assert!(ratio("latency_us.p50", "median") < 1.0, "{json}");
    // Two pairs contain the true median with a probability of only one half, and the result says so.
    assert_eq!(ratio("committed_per_s", "confidence"), 0.5);
    assert!(stdout(&output).contains("2 pairs, this over other"), "{}", stdout(&output));
    assert!(stdout(&output).contains("with 50.0%"), "{}", stdout(&output));
    assert!(stderr(&output).contains("pair 2 of 2"), "{}", stderr(&output));
}

#[test]
fn without_logging_a_run_is_kept_at_its_end_and_lost_before() {
    let directory = Directory::new("bench-unlogged");
    let unlogged = ["--logging", "none", "--checkpoint", "none", "--data", directory.name(), "--json"];
    // A busy disk may take a third of a second for one write.
    let mut short = vec!["--seconds", "1"];
    short.extend(unlogged);
    let first = succeeds(small(&short));
    let figures = json(&first);
    let of_all = |figure: &str, times: &str| number(&figures, figure) * number(&figures, times);
    // Each commit has at most a commit block of its own, without contents; with its values it has about 200 bytes. Of
    // what the window wrote, not of what it committed, because a busy disk lags behind.
    let bytes = of_all("log_bytes_per_txn", "committed") / of_all("group_size_mean", "log_writes");
    assert!(bytes < 120.0, "places only, not {bytes} bytes each: {}", stdout(&first));
    assert!(stdout(&first).contains("durability none until the run ends"), "{}", stdout(&first));
    // The data is kept, and is consistent with the log after it.
    let logged = ["--seconds", "0.3", "--data", directory.name(), "--json"];
    let second = succeeds(small(&logged));
    assert!(
        stderr(&second).contains("using the bank") && !stderr(&second).contains("lost"),
        "{}",
        stderr(&second)
    );

    // Slow enough to fit for this long.
    let mut long = vec!["bench", "tpcb", "--memory-bytes", "300000000", "--seconds", "60", "--rate", "1000"];
    long.extend(SMALL);
    long.extend(unlogged);
    let mut running = program(&long).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(running.stderr.take().expect("it is piped")).lines();
    // The first tick of the window: it has run for more than a second.
    assert!(lines.any(|line| line.expect("it writes").contains("transactions/s")), "it runs");
    running.kill().expect("it runs");
    running.wait().expect("it ends");
    let third = succeeds(small(&logged));
    assert!(stderr(&third).contains("commits are lost"), "{}", stderr(&third));
    assert_eq!(at(&json(&third), "consistent"), &Json::from(true));
}

/// The next run recovers the log of each run, whatever it logs itself; a check says what it cannot run.
#[test]
fn a_directory_of_calls_is_used_whatever_is_logged_next() {
    let directory = Directory::new("bench-calls");
    for logging in ["transaction", "value", "action", "transaction"] {
        let arguments = [
            "--seconds",
            "0.3",
            "--logging",
            logging,
            "--checkpoint",
            "none",
            "--data",
            directory.name(),
            "--json",
        ];
        let output = succeeds(small(&arguments));
        assert_eq!(at(&json(&output), "consistent"), &Json::from(true), "{logging}");
        let bytes = number(&json(&output), "log_bytes_per_txn");
        assert!(bytes > 0.0, "{logging}: {bytes}");
    }
    let checked = succeeds(program(&["check", directory.name()]).output().expect("it runs"));
    let says = "begin with a call of a procedure (Logging::Transaction) that only a program with its procedures can run again";
    assert!(stdout(&checked).contains(says), "{}", stdout(&checked));
    let inspected = succeeds(program(&["inspect", directory.name()]).output().expect("it runs"));
    assert!(stdout(&inspected).contains(says), "{}", stdout(&inspected));
    // With the log of another workload's procedures beside it, and each transaction twice.
    succeeds(small(&["--seconds", "0.3", "--check-determinism", "--data", directory.name()]));
}

const SUBSCRIBERS: [&str; 10] = [
    "tatp",
    "--subscribers",
    "3000",
    "--clients",
    "2",
    "--warmup",
    "0.2",
    "--memory-bytes",
    "300000000",
    "--json",
];

fn tatp(arguments: &[&str]) -> Output {
    let mut all = SUBSCRIBERS.to_vec();
    all.extend(arguments);
    bench(&all)
}

#[test]
fn tatp_is_loaded_recovered_and_says_how_much_of_each_type_succeeds() {
    let directory = Directory::new("bench-tatp");
    let loaded = succeeds(tatp(&["--seconds", "0.1", "--data", directory.name()]));
    assert!(stderr(&loaded).contains("loaded a TATP population"), "{}", stderr(&loaded));
    let run = |seconds: &str| succeeds(tatp(&["--seconds", seconds, "--data", directory.name()]));
    let is_enough = |output: &Output| number(&json(output), "procedures.GetAccessData.committed") >= 100.0;
    let first = measured(0.6, run, is_enough);
    let figures = json(&first);
    assert_eq!((at(&figures, "workload"), at(&figures, "consistent")), (&"tatp".into(), &Json::from(true)));
    assert_eq!(number(&figures, "aborted_deadlock"), 0.0, "{figures}");
    let of = |name: &str, figure: &str| number(&figures, &format!("procedures.{name}.{figure}"));
    for (name, specified, least, most) in [
        ("GetSubscriberData", 100.0, 100.0, 100.0),
        // Of some hundreds.
        ("GetAccessData", 62.5, 40.0, 85.0),
        ("UpdateLocation", 100.0, 100.0, 100.0),
    ] {
        assert_eq!(of(name, "success_percent_specified"), specified, "{name}");
        assert!((least..=most).contains(&of(name, "success_percent")), "{name}: {figures}");
        assert!(stdout(&first).contains(&format!("{name}: ")), "{}", stdout(&first));
    }
    assert!(number(&figures, "aborted_user") > 0.0 && of("GetAccessData", "aborted_user") > 0.0, "{figures}");
    // The same directory, by calls of the procedures, in the log too; then by tickets.
    let calls = ["--logging", "transaction", "--checkpoint", "tccou", "--seconds", "0.4"];
    let mut again = calls.to_vec();
    again.extend(["--data", directory.name()]);
    let second = succeeds(tatp(&again));
    assert!(stderr(&second).contains("using the TATP population"), "{}", stderr(&second));
    let tickets = ["--in-flight", "20", "--seconds", "0.4", "--locks", "central", "--data", directory.name()];
    assert_eq!(at(&json(&succeeds(tatp(&tickets))), "consistent"), &Json::from(true));

    let other = bench(&["tatp", "--subscribers", "3001", "--data", directory.name()]);
    assert_eq!(other.status.code(), Some(3), "{}", stderr(&other));
    let refusal = stderr(&other);
    assert!(refusal.contains("holds a TATP population of 3000 subscribers"), "{refusal}");
    assert!(refusal.contains("expected one of 3001 subscribers"), "{refusal}");
}

#[test]
fn tatp_runs_in_open_loops_at_level_1_and_beside_itself() {
    for arguments in [
        &["--rate", "500", "--seconds", "0.4"][..],
        &["--durability", "memory", "--in-flight", "10", "--seconds", "0.4"],
        &["--mix", "UpdateLocation=50,InsertCallForwarding=50", "--check-determinism", "--seconds", "0.4"],
    ] {
        let mut all = vec!["--disk", "memory"];
        all.extend(arguments);
        let figures = json(&succeeds(tatp(&all)));
        assert_eq!(at(&figures, "consistent"), &Json::from(true), "{arguments:?}: {figures}");
    }
    let mix = "--mix GetSubscriberData=100";
    let versus = ["--disk", "memory", "--seconds", "0.3", "--repeat", "1", "--versus", mix];
    let compared = succeeds(tatp(&versus));
    assert!(stdout(&compared).contains("this over other"), "{}", stdout(&compared));
}
