//! The options of `serve` that set a bound: asked of the server and of its directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::wire::{query, runs, session};
use crate::common::{Directory, Serving, program, run, stdout, succeeds};

fn serving(options: &[&str], directory: &Directory) -> Serving {
    let mut serve = program(&["serve"]);
    serve.args(options);
    Serving::start_by(serve, directory.path())
}

/// The lengths of the files whose names begin so.
fn lengths(directory: &Path, prefix: &str) -> Vec<u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.expect("it can be read"));
    let files =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
    files.filter_map(|entry| Some(entry.metadata().ok()?.len())).collect()
}

/// Changes rows until the directory is so, or for a minute.
fn until(serving: &Serving, what: &str, is_so: impl Fn() -> bool) {
    let mut client = session(serving);
    runs(&mut client, "create table changing (a int primary key, b int); insert into changing values (1, 0)");
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        runs(&mut client, "update changing set b = b + 1");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn bounds_of_memory_and_log_hold() {
    let directory = Directory::new("serve-bounds");
    let serving = serving(&["--memory-bytes", "8388608", "--log-bytes-max", "16000000"], &directory);
    let mut client = session(&serving);
    runs(&mut client, "create table large (a int primary key, b text)");
    let text = "x".repeat(1_000);
    let fill = format!("insert into large select n, '{text}' from generate_series(1, 10000) as n");
    let refused = query(&mut client, &fill);
    assert!(refused.contains("C53200") && refused.contains("of 8388608 bytes are in use"), "{refused}");
    let files = lengths(directory.path(), "log-0");
    assert!(
        !files.is_empty() && files.iter().all(|&bytes| (1_000_000..=2_100_000).contains(&bytes)),
        "{files:?}"
    );
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let inspected = stdout(&succeeds(run(&["inspect", directory.name()])));
    assert!(inspected.contains("log-"), "{inspected}");
}

#[test]
fn checkpoints_come_by_the_interval_the_copies_and_the_archive_are_made_and_none_makes_none() {
    let (directory, archive) = (Directory::new("serve-checkpoints"), Directory::new("serve-archive"));
    let log = ["--log-bytes-max", "1100000"];
    let often = ["--checkpoint-interval-s", "0.05", "--backup-copies", "3", "--archive", archive.name()];
    let serving = self::serving(&often, &directory);
    until(&serving, "the third copy is written", || !lengths(directory.path(), "backup-2").is_empty());
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let archived =
        Command::new("find").args([archive.name(), "-name", "log-0*"]).output().expect("find runs");
    assert!(!archived.stdout.is_empty(), "the log is archived");

    let never = Directory::new("serve-no-checkpoints");
    let serving = self::serving(&[&log[..], &["--checkpoint", "none"]].concat(), &never);
    let mut client = session(&serving);
    runs(&mut client, "create table t (a int primary key, b text)");
    // Beyond half of its bound the log would ask for a checkpoint.
    for n in 0..40 {
        runs(&mut client, &format!("insert into t values ({n}, '{}')", "x".repeat(20_000)));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(lengths(never.path(), "backup-"), [0; 0], "no checkpoint is made");
    assert_eq!(serving.end_by("-TERM"), Some(0));
}

#[test]
fn engines_and_group_commit_are_those_of_the_command_line() {
    for options in [
        &[
            "--engine",
            "data-oriented",
            "--executors",
            "3",
            "--executor-threads",
            "1",
            "--hand-over",
            "always",
        ][..],
        &[
            "--locks",
            "central",
            "--group-commit",
            "hiber-stall",
            "--durability",
            "memory",
            "--spool=false",
            "--checkpoint",
            "tccou",
        ],
        &["--sweep-bytes-per-s", "1000000", "--checkpoint", "tcbw", "--straddling-retry-us", "50"],
        &["--recovery-within-s", "30", "--log-writes", "buffered", "--log-writes-in-flight", "1"],
    ] {
        let directory = Directory::new("serve-engines");
        let serving = serving(options, &directory);
        let mut client = session(&serving);
        runs(&mut client, "create table t (a int primary key, b int); insert into t values (1, 2)");
        // Only designs whose committers stall honour it; others say that they do not.
        let raised = runs(&mut client, "alter system set rialto.raise_stalls = '1us'");
        assert_eq!(
            raised.contains("has no effect with"),
            !options.contains(&"hiber-stall"),
            "{options:?}: {raised}"
        );
        assert_eq!(serving.end_by("-TERM"), Some(0), "{options:?}");
    }
}

/// A control group of this test's own, with a limit on memory.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// `None` where none can be made.
    fn new(bytes: u64) -> Option<ControlGroup> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = |prefix: &str| own.lines().find_map(|line| line.split_once(prefix).map(|(_, path)| path));
        let name = format!("rialto-test-{}", std::process::id());
        let candidates = [
            ("memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("0::", "/sys/fs/cgroup", "memory.max"),
        ];
        candidates.into_iter().find_map(|(prefix, mount, limit)| {
            let at = Path::new(mount).join(group(prefix)?.trim_start_matches('/')).join(&name);
            fs::create_dir(&at).ok()?;
            let made = ControlGroup(at);
            fs::write(made.0.join(limit), bytes.to_string()).ok()?;
            Some(made)
        })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn the_limit_of_a_control_group_bounds_the_default() {
    const LIMIT: u64 = 512 << 20;
    let Some(group) = ControlGroup::new(LIMIT) else {
        println!("no control group can be made here");
        return;
    };
    let procs = group.0.join("cgroup.procs");
    let ready = |options: &str| {
        let directory = Directory::new("serve-cgroup");
        let line = format!("echo $$ > {} && exec \"$@\" {options}", procs.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, "sh", env!("CARGO_BIN_EXE_rialto"), "serve", "--log", "info"]);
        let mut serving = Serving::start_by(shell, directory.path());
        let mut stderr = serving.child.stderr.take().expect("it is piped");
        assert_eq!(serving.end_by("-TERM"), Some(0));
        let mut said = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut said).expect("it is text");
        said
    };
    let said = ready("");
    let bound = format!(
        "{} bytes, three quarters of {LIMIT} bytes, the limit in {}/",
        LIMIT / 4 * 3,
        group.0.display()
    );
    assert!(said.contains(&bound) && !said.contains("warning: "), "{said}");
    let said = ready("--memory-bytes 1000000000");
    let warning = format!(
        "warning: --memory-bytes 1000000000 is more than {LIMIT} bytes, the limit in {}/",
        group.0.display()
    );
    assert!(said.contains(&warning), "{said}");
    assert!(said.contains("1000000000 bytes, by --memory-bytes"), "{said}");
}
