//! `rialto bench`, run as a user runs it: exit codes, the table, the JSON object, the data directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a small run takes; each test adds to it.
const SMALL: [&str; 8] = ["--accounts", "2000", "--scale", "2", "--clients", "4", "--warmup", "0.2"];

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rialto"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn small(arguments: &[&str]) -> Output {
    let mut all = vec!["tpcb", "--memory-bytes", "300000000"];
    all.extend(SMALL);
    all.extend(arguments);
    bench(&all)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeds(output: Output) -> Output {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    output
}

/// The JSON object's text.
fn last_line(output: &Output) -> String {
    stdout(output).lines().last().expect("some output").to_owned()
}

/// The raw value of a member of the outermost object that is no object itself.
fn member(json: &str, name: &str) -> String {
    let start = json.find(&format!("\"{name}\": ")).unwrap_or_else(|| panic!("{name} is missing in {json}"));
    let value = &json[start + name.len() + 4..];
    value[..value.find([',', '}']).expect("an end")].to_owned()
}

fn number(json: &str, name: &str) -> f64 {
    let text = member(json, name);
    text.parse().unwrap_or_else(|_| panic!("{name} is {text}"))
}

/// The names of an object's members, those of inner objects as `outer.inner`.
fn names(json: &str) -> Vec<String> {
    let (mut names, mut path, mut rest) = (Vec::new(), Vec::<String>::new(), json);
    let mut last = String::new();
    while let Some(at) = rest.find(['"', '{', '}']) {
        let (found, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = after;
        match found {
            b'{' => path.push(std::mem::take(&mut last)),
            b'}' => drop(path.pop()),
            _ => {
                let end = after.find('"').expect("texts end");
                let (text, behind) = (&after[..end], &after[end + 1..]);
                rest = behind;
                if behind.starts_with(": ") {
                    let outer = path.iter().filter(|name| !name.is_empty()).map(|name| format!("{name}."));
                    names.push(outer.collect::<String>() + text);
                    last = text.to_owned();
                }
            }
        }
    }
    names
}

/// A directory of its own, removed at the end of the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_json_object_has_the_keys_of_the_contract_and_the_run_is_consistent() {
    let directory = Directory::new("bench-json");
    let output = succeeds(small(&["--data", directory.path(), "--seconds", "1.3", "--json"]));
    let json = last_line(&output);
    let expected = "workload engine clients seconds seed data machine machine.cpu machine.cores \
        machine.memory_bytes machine.kernel offered_per_s committed committed_per_s aborted_user aborted_deadlock \
        latency_us latency_us.p50 latency_us.p99 latency_us.p999 latency_us.max log_bytes_per_txn group_size_mean \
        log_writes instructions_per_txn instructions_per_txn.user instructions_per_txn.kernel wakes_per_txn \
        syscalls_per_txn checkpoints locks_per_100_txn locks_per_100_txn.row locks_per_100_txn.higher \
        locks_per_100_txn.local time_us_per_txn time_us_per_txn.queue time_us_per_txn.fetch_io \
        time_us_per_txn.lock_wait time_us_per_txn.latch_wait time_us_per_txn.run time_us_per_txn.log_wait \
        time_us_per_txn.standby_wait allocations_per_txn procedures procedures.tpcb procedures.tpcb.committed \
        procedures.tpcb.committed_per_s procedures.tpcb.latency_us procedures.tpcb.latency_us.p50 \
        procedures.tpcb.latency_us.p99 procedures.tpcb.latency_us.p999 procedures.tpcb.latency_us.max consistent";
    assert_eq!(names(&json), expected.split_whitespace().collect::<Vec<_>>());
    assert_eq!((member(&json, "workload"), member(&json, "consistent")), ("\"tpcb\"".into(), "true".into()));
    assert_eq!(member(&json, "offered_per_s"), "null");
    assert!(member(&json, "data").contains("bench-json"), "{json}");
    assert!(number(&json, "committed") > 100.0, "{json}");
    assert!(number(&json, "allocations_per_txn") < 0.5, "a transaction allocates: {json}");
    assert!((3.9..4.1).contains(&(number(&json, "row") / 100.0)), "four row locks a transaction: {json}");
    assert!((100.0..2_000.0).contains(&number(&json, "log_bytes_per_txn")), "{json}");
    let table = stdout(&output);
    for row in
        ["throughput", "latency", "time account", "log ", "group commit", "group sizes", "consistent", "data"]
    {
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
        &["--rate", "20%"],
        &["--durability", "memory", "--in-flight", "10"],
        &["--repeat", "3"],
        &["--disk", "sim:nvme"],
    ] {
        let mut all = vec!["--seconds", "0.4", "--json"];
        if arguments[0] != "--disk" {
            all.extend(["--disk", "memory"]);
        }
        all.extend(arguments);
        let json = last_line(&succeeds(small(&all)));
        assert_eq!(member(&json, "consistent"), "true", "{arguments:?}: {json}");
        assert_eq!(member(&json, "data"), "null", "{arguments:?}: {json}");
        let offered = member(&json, "offered_per_s");
        assert_eq!(arguments[0] == "--rate", offered != "null", "{arguments:?}: {json}");
        if arguments == ["--rate", "500"] {
            assert!((350.0..650.0).contains(&number(&json, "committed_per_s")), "{json}");
            assert!(number(&json, "queue") >= 0.0);
        }
    }
}

#[test]
fn a_directory_is_created_used_again_and_refused_in_another_shape() {
    let directory = Directory::new("bench-again");
    let arguments = ["--seconds", "0.3", "--json", "--data", directory.path()];
    let first = succeeds(small(&arguments));
    assert!(stderr(&first).contains("loaded a bank"), "{}", stderr(&first));
    assert!(member(&last_line(&first), "data").contains("bench-again"));
    let second = succeeds(small(&arguments));
    assert!(stderr(&second).contains("using the bank"), "{}", stderr(&second));
    assert_eq!(member(&last_line(&second), "consistent"), "true");

    let other = bench(&["tpcb", "--scale", "3", "--accounts", "2000", "--data", directory.path()]);
    assert_eq!(other.status.code(), Some(3), "{}", stderr(&other));
    let refusal = stderr(&other);
    assert!(refusal.contains("holds a TPC-B bank of 2 branches, 20 tellers, 2000 accounts"), "{refusal}");
    assert!(refusal.contains("expected one of 3 branches, 30 tellers, 2000 accounts"), "{refusal}");
    assert!(stdout(&other).is_empty());
}

#[test]
fn a_directory_that_cannot_be_one_is_unusable() {
    let directory = Directory::new("bench-file");
    std::fs::write(&directory.0, "a file").expect("a file can be written");
    let output = small(&["--data", directory.path()]);
    let _ = std::fs::remove_file(&directory.0);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("bench-file"), "{}", stderr(&output));
}

#[test]
fn what_is_not_built_or_does_not_fit_exits_2_and_says_what_does() {
    for (arguments, named) in [
        (&["tatp"][..], "tpcb"),
        (&["tpcb", "--engine", "data-oriented"], "conventional"),
        (&["tpcb", "--checkpoint", "tccou"], "fuzzy"),
        (&["tpcb", "--logging", "action"], "value"),
        (&["tpcb", "--group-commit", "hiber"], "log-server"),
        (&["tpcb", "--spool"], "not spooled"),
        (&["tpcb", "--mix", "a=1"], "no mix"),
        (&["tpcb", "--two-stage", "2pl"], "--residence memory"),
        (&["tpcb", "--disk", "sim:floppy"], "sim:koda"),
        (&["tpcb", "--nonsense"], "--nonsense"),
        (&[], "Usage"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{arguments:?} printed {}", stdout(&output));
    }
    let help = stdout(&succeeds(bench(&["--help"])));
    for absent in ["--spool", "--mix", "--two-stage", "data-oriented", "tpcc"] {
        assert!(!help.contains(absent), "{absent} is in {help}");
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
