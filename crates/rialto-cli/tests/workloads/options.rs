//! Options of the command line, by their effects: a run with an option beside one without it, or with another value.

use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;

use crate::common::wire::{runs, session};
use crate::common::{Directory, Serving, json, number, program, run, stderr, stdout, succeeds, text};

/// A small bank in memory.
const BANK: &str =
    "tpcb --disk memory --memory-bytes 300000000 --accounts 2000 --scale 2 --warmup 0.2 --json";
/// How many times a figure that a busy machine can change is measured, until it is as on other machines.
const TRIES: u32 = 6;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn bench(lines: &[&str]) -> Output {
    run(&[&["bench"], &words(&lines.join(" "))[..]].concat())
}

/// The figures of a run.
fn measured(lines: &[&str]) -> Json {
    json(&succeeds(bench(lines)))
}

/// Tickets without a waiter: with a linger everything that a client has outstanding goes into one log write, and
/// without it a few.
#[test]
fn packets_that_linger_go_into_fewer_and_larger_log_writes() {
    let run = |linger: &str| {
        let tickets = "--clients 1 --in-flight 200 --seconds 0.5 --linger-us";
        let figures = measured(&[BANK, tickets, linger]);
        let writes_per_commit = number(&figures, "log_writes") / number(&figures, "committed");
        (number(&figures, "group_size_mean"), writes_per_commit)
    };
    let ratios = |(): ()| {
        let ((none, many), (some, few)) = (run("0"), run("50000"));
        println!("groups of {none} and {some}, {many} and {few} writes for each commit");
        (some / none, many / few)
    };
    let is_as_told = |(groups, writes): &(f64, f64)| *groups > 2.0 && *writes > 2.0;
    let found: Vec<_> = (0..TRIES).map(|_| ratios(())).take_while(|found| !is_as_told(found)).collect();
    assert!(found.len() < TRIES as usize, "with linger, over none: {found:?}");
}

/// The page at the beginning of each log file, which has nothing of the log.
const HEADER: u64 = 4096;

/// The bytes of a directory's log files, including files kept for later use, but without the ring (`log-tail`).
fn log_bytes(directory: &Path) -> u64 {
    let is_log = |name: &str| {
        let number = name.strip_prefix("log-").unwrap_or_default();
        number.starts_with(|first: char| first.is_ascii_digit()) || number.starts_with("spare")
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| is_log(&entry.file_name().to_string_lossy()));
    // A file may be removed meanwhile.
    logs.filter_map(|entry| Some(entry.metadata().ok()?.len().saturating_sub(HEADER))).sum()
}

/// More than the bound is written, and checkpoints free it again.
#[test]
fn log_files_together_stay_under_their_bound_while_more_is_written() {
    let directory = Directory::new("options-log");
    let bound: u64 = 20 << 20;
    let arguments = "bench tpcb --memory-bytes 300000000 --accounts 2000 --scale 2 --clients 2 --in-flight 100 --durability memory \
                     --warmup 0.2 --json";
    let (mut most, mut written) = (0, 0_u64);
    let mut seconds = 1;
    while written < 2 * bound && seconds < 60 {
        let limits =
            ["--log-bytes-max", &bound.to_string(), "--seconds", &seconds.to_string()].map(str::to_owned);
        let mut running = program(&words(arguments))
            .args(["--data", directory.name()])
            .args(limits)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        while running.try_wait().expect("it can be waited for").is_none() {
            most = most.max(log_bytes(directory.path()));
            thread::sleep(Duration::from_millis(2));
        }
        let figures = json(&succeeds(running.wait_with_output().expect("it ends")));
        written += (number(&figures, "log_bytes_per_txn") * number(&figures, "committed")) as u64;
        println!("{written} bytes of log in {seconds} s, at most {most} at a time");
        seconds *= 2;
    }
    assert!(written >= 2 * bound, "{written} bytes were written");
    assert!(most > 0 && most <= bound, "log files of {most} bytes, and {bound} are allowed");
}

/// How many log writes were in flight at a time, on average: on a simulated disk they take the same time side by side.
#[test]
fn as_many_log_writes_are_on_their_way_as_the_option_says() {
    let at_a_time = |in_flight: &str| {
        let design =
            "commit --disk sim:nvme --clients 16 --group-commit hiber --warmup 0.2 --seconds 2 --json";
        let figures = measured(&[design, "--log-writes-in-flight", in_flight]);
        let busy_us = number(&figures, "log_writes") * number(&figures, "log_write_us");
        busy_us / (number(&figures, "seconds") * 1e6)
    };
    // Writes that the window's ends cut count whole.
    let few = [at_a_time("1"), at_a_time("1")];
    assert!(few.iter().all(|writes| *writes < 1.15), "one at a time: {few:?}");
    let many: Vec<_> = (0..TRIES).map(|_| at_a_time("3")).take_while(|writes| *writes < 1.3).collect();
    assert!(many.len() < TRIES as usize, "up to three at a time: {many:?}");
}

/// Without the option the next checkpoint is due after 30 s.
#[test]
fn checkpoints_begin_by_themselves_so_that_a_recovery_stays_within_its_time() {
    let run = |target: &str| {
        let figures = measured(&[BANK, "--clients 2 --in-flight 20 --seconds 1", target]);
        (number(&figures, "checkpoints"), figures)
    };
    let (none, figures) = run("");
    assert_eq!(none, 0.0, "{figures}");
    assert_eq!(figures.pointer("/recovery/within"), Some(&Json::Null), "{figures}");
    let many =
        (0..TRIES).map(|_| run("--recovery-within-s 0.01")).find(|(checkpoints, _)| *checkpoints > 0.0);
    let (_, figures) = many.expect("the log asks for a checkpoint");
    assert_eq!(number(&figures, "recovery.within"), 0.01, "{figures}");
}

/// The number of the checkpoint that is in force in a directory.
fn checkpoint(directory: &Directory) -> u64 {
    let inspected = stdout(&succeeds(run(&["inspect", directory.name()])));
    let home = inspected.lines().find(|line| line.ends_with("(in force)")).expect("a home block is in force");
    let (_, rest) = home.split_once("checkpoint ").expect("it names its checkpoint");
    rest.split(|letter: char| !letter.is_ascii_digit())
        .next()
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

#[test]
fn checkpoints_of_a_server_begin_by_themselves_too() {
    for (arguments, is_asked) in [(&["serve"][..], false), (&["serve", "--recovery-within-s", "0.01"], true)]
    {
        let directory = Directory::new(if is_asked { "options-within" } else { "options-without" });
        let serving = Serving::start_by(program(arguments), directory.path());
        let mut client = session(&serving);
        runs(&mut client, "create table t (a int primary key, b text)");
        let first = 1;
        let home = || std::fs::read(directory.path().join("home")).expect("it is there");
        let before = home();
        // Until a checkpoint has changed the home file; where none is requested, for a while.
        let mut batches = 0;
        while batches < 40 || is_asked && home() == before && batches < 4_000 {
            let from = batches * 100;
            let rows = format!("insert into t select n, 'x' from generate_series({from}, {}) n", from + 99);
            runs(&mut client, &rows);
            batches += 1;
        }
        assert_eq!(home() != before, is_asked, "after {batches} batches");
        drop(client);
        assert_eq!(serving.end_by("-TERM"), Some(0));
        assert_eq!(checkpoint(&directory) > first, is_asked, "{arguments:?}");
    }
}

/// Calls give their outputs in memory of their own, which closures do not need: this is counted in a transaction that
/// reads one row.
#[test]
fn transactions_are_calls_where_the_option_says_so() {
    let allocations = |calls: &str| {
        let reads = "tatp --disk memory --memory-bytes 300000000 --subscribers 500 --mix GetSubscriberData=100 --clients 1 \
                     --warmup 0.2 --seconds 0.4 --json";
        number(&measured(&[reads, calls]), "allocations_per_txn")
    };
    let (closures, calls) = (allocations(""), allocations("--calls"));
    assert!(closures < 0.5 && calls > closures + 0.5, "{closures} with closures, {calls} with calls");
}

#[test]
fn a_refused_value_names_its_option_what_was_found_and_what_is_expected() {
    let directory = Directory::new("options-refused");
    for (line, named) in [
        ("bench tpcb --linger-us soon", &["--linger-us", "'soon'"][..]),
        ("bench tpcb --linger-us 5 --group-commit hiber", &["hiber has no linger", "5µs", "log-server"]),
        ("bench tpcb --log-bytes-max 1000", &["log_bytes_max is 1000", "expected at least 1048576"]),
        ("bench tpcb --log-bytes-max much", &["--log-bytes-max", "'much'"]),
        ("bench tpcb --log-writes-in-flight 4", &["--log-writes-in-flight", "'4'", "1..=3"]),
        ("bench tpcb --log-writes-in-flight 0", &["--log-writes-in-flight", "'0'", "1..=3"]),
        (
            "bench tpcb --recovery-within-s never",
            &["--recovery-within-s", "'never'", "expected seconds, 0 to 1000000"],
        ),
        (
            "bench tpcb --recovery-within-s 2 --checkpoint none",
            &["--recovery-within-s does not apply to --checkpoint none", "available: --checkpoint fuzzy"],
        ),
        ("bench tpcb --calls=yes", &["--calls", "'yes'", "no more were expected"]),
        ("bench commit --calls", &["--calls does not apply to commit", "available: "]),
        (
            "bench commit --disk sim:koda --log-writes-in-flight 2",
            &["--log-writes-in-flight does not apply", "--disk file"],
        ),
        (
            "serve --recovery-within-s never",
            &["--recovery-within-s", "'never'", "expected seconds, 0 to 1000000"],
        ),
        ("serve --linger-us soon", &["--linger-us", "'soon'"]),
        ("serve --log-writes-in-flight 4", &["--log-writes-in-flight", "'4'", "1..=3"]),
    ] {
        let mut command = program(&words(line));
        if !line.starts_with("bench commit") {
            command.args(["--data", directory.name()]);
        }
        let refused = command.output().expect("the program starts");
        assert_eq!(refused.status.code(), Some(2), "{line}: {}", text(&refused));
        for word in named {
            assert!(stderr(&refused).contains(word), "{line}: {word} is missing in {}", stderr(&refused));
        }
        assert!(stdout(&refused).is_empty(), "{line}: {}", stdout(&refused));
    }
}
