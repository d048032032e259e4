//! What a server prints on stderr, by `--log` and without it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, Command};

use crate::common::wire::{query, runs, session};
use crate::common::{Directory, Serving, program};

/// A server with these options.
fn serving(options: &[&str], directory: &Directory) -> (Serving, BufReader<ChildStderr>) {
    let mut serve = program(&["serve"]);
    serve.args(options);
    let mut serving = Serving::start_by(serve, directory.path());
    let stderr = serving.child.stderr.take().expect("it is piped");
    (serving, BufReader::new(stderr))
}

/// The rest of what it prints, by lines.
fn lines(mut stderr: BufReader<ChildStderr>) -> Vec<String> {
    let mut text = String::new();
    stderr.read_to_string(&mut text).expect("it is text");
    text.lines().map(str::to_owned).collect()
}

/// The number of lines that have all of these parts.
fn count(lines: &[String], parts: &[&str]) -> usize {
    lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

/// A client whose names have a line break, that makes a mistake with a value, and goes.
fn visit(serving: &Serving) {
    let mut client = session(serving);
    runs(&mut client, "create table secrets (a text primary key)");
    runs(&mut client, "set application_name = 'line\nbreak'");
    runs(&mut client, "insert into secrets values ('hush-hush')");
    for wrong in
        ["insert into secrets values ('hush-hush')", "select nothing from secrets", "select 'hush-hush'::int"]
    {
        assert!(query(&mut client, wrong).contains("SERROR"), "{wrong}");
    }
    std::io::Write::write_all(&mut client, b"X\0\0\0\x04").expect("it reads");
    // The server closes the socket when it has served all.
    client.read_to_end(&mut Vec::new()).expect("it closes");
}

#[test]
fn connections_errors_and_the_shutdown_are_told_a_line_each() {
    let directory = Directory::new("events-debug");
    let (serving, stderr) = serving(&["--log", "debug"], &directory);
    visit(&serving);
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let lines = lines(stderr);
    let all = lines.join("\n");
    for parts in [
        &["INFO", "memory of tables and indexes", "three quarters of"][..],
        &["INFO", "serving", "tcp=127.0.0.1:"],
        &["INFO", "connection{process=1}", "accepted", "from=127.0.0.1:"],
        &[
            "INFO",
            "connection{process=1}",
            "session began",
            "user=\"ann\"",
            "database=\"ann\"",
            "application_name=",
        ],
        &["INFO", "connection{process=1}", "ended", "reason=\"the client ended it\"", "seconds="],
        &["DEBUG", "connection{process=1}", "error sent", "sqlstate=\"23505\"", "unique_violation"],
        &["DEBUG", "error sent", "sqlstate=\"42703\"", "undefined_column", "position=8"],
        &["DEBUG", "error sent", "sqlstate=\"22P02\""],
        &["INFO", "shutting down: SIGTERM"],
        &["INFO", "draining", "connections=0"],
        &["INFO", "syncing and closing the database"],
        &["INFO", "the database is closed"],
    ] {
        assert_eq!(count(&lines, parts), 1, "{parts:?} in:\n{all}");
    }
    assert!(!all.contains("hush"), "a value is told:\n{all}");
    assert!(!all.contains('\u{1b}'), "there are no colours:\n{all}");
    for line in &lines {
        // 2026-11-28T13:05:40.876773Z
        let time = line.split(' ').next().unwrap();
        assert!(
            time.ends_with('Z') && time.as_bytes().get(10) == Some(&b'T'),
            "each line is an event: {line}"
        );
    }
}

#[test]
fn without_the_option_only_errors_and_the_end_are_told() {
    let directory = Directory::new("events-quiet");
    let (serving, stderr) = serving(&[], &directory);
    visit(&serving);
    assert_eq!(serving.end_by("-INT"), Some(0));
    let lines = lines(stderr);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(count(&lines[..1], &["shutting down: SIGINT"]), 1, "{lines:?}");
    assert_eq!(count(&lines[1..], &["the database is closed"]), 1, "{lines:?}");
}

#[test]
fn filters_choose_by_target_and_are_checked() {
    let directory = Directory::new("events-filter");
    let (serving, stderr) =
        serving(&["--log", "rialto_server::shutdown=info,rialto::serve=info"], &directory);
    visit(&serving);
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let lines = lines(stderr);
    assert_eq!(lines.len(), 3, "{lines:?}");
    let wrong = program(&["serve", "--log", "loud", "--data", directory.name()]).output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains("off, error, warn, info, debug or trace"), "{said}");
}

/// Waits for a line that has all of these parts; gives up after a minute.
fn wait_for(stderr: BufReader<ChildStderr>, parts: &'static [&'static str]) {
    let (found, is_found) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = stderr.lines().map_while(Result::ok);
        let line = lines.find(|line| parts.iter().all(|part| line.contains(part)));
        // The rest is read, so that the server's pipe stays open.
        let _ = found.send(line);
        lines.for_each(drop);
    });
    let line = is_found.recv_timeout(std::time::Duration::from_secs(60)).ok().flatten();
    assert!(line.is_some(), "no line has {parts:?}");
}

/// No client is told that checkpoints fail: the log of the server is where it shows.
#[test]
fn a_checkpoint_that_fails_is_an_error_by_default() {
    let directory = Directory::new("events-checkpoint");
    let (serving, stderr) = serving(&["--checkpoint-interval-s", "0.05"], &directory);
    // No file of this name can be opened now.
    for name in ["backup-0", "backup-1"] {
        fs::create_dir(directory.path().join(name)).expect("there is no such file yet");
    }
    runs(&mut session(&serving), "create table t (a int primary key); insert into t values (1)");
    wait_for(stderr, &["ERROR", "a checkpoint failed", "backup-"]);
    for name in ["backup-0", "backup-1"] {
        fs::remove_dir(directory.path().join(name)).expect("it is empty");
    }
    assert_eq!(serving.end_by("-TERM"), Some(0));
}

/// A process that may not write one more byte to any file behaves like one whose disk has failed.
#[test]
fn a_log_that_fails_is_an_error_and_the_reason_of_the_end() {
    let directory = Directory::new("events-stopped");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_rialto"), "serve"]);
    let mut serving = Serving::start_by(shell, directory.path());
    let stderr = BufReader::new(serving.child.stderr.take().expect("it is piped"));
    let mut client = session(&serving);
    runs(&mut client, "create table t (a int primary key)");
    let limited = Command::new("prlimit")
        .args(["--fsize=0:0", "--pid", &serving.child.id().to_string()])
        .status()
        .expect("prlimit of util-linux runs");
    assert!(limited.success());
    assert!(query(&mut client, "insert into t values (2)").contains("C08007"));
    assert_eq!(serving.child.wait().expect("it ends").code(), Some(4));
    let lines = lines(stderr);
    for parts in [
        &["ERROR", "connection{process=1}", "a statement failed", "sqlstate=\"08007\"", "log-"][..],
        &["ERROR", "the database has stopped: the server ends", "log-"],
    ] {
        assert_eq!(count(&lines, parts), 1, "{parts:?}: {lines:?}");
    }
}

/// A full memory fails every statement that inserts: it is told, and not for each of them.
#[test]
fn an_error_of_the_machine_is_told_without_a_flood() {
    const FAILURES: usize = 8;
    let directory = Directory::new("events-memory");
    let (serving, stderr) = serving(&["--memory-bytes", "8388608"], &directory);
    let mut client = session(&serving);
    runs(&mut client, "create table large (a int primary key, b text)");
    let text = "hush-hush ".repeat(400);
    let fill = format!("insert into large select n, '{text}' from generate_series(1, 3000) as n");
    for _ in 0..FAILURES {
        assert!(query(&mut client, &fill).contains("C53200"));
    }
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let lines = lines(stderr);
    let told = count(&lines, &["ERROR", "connection{process=1}", "a statement failed", "sqlstate=\"53200\""]);
    assert!((1..FAILURES).contains(&told), "{lines:?}");
    assert_eq!(count(&lines, &["8388608 bytes", "left_out=0"]), 1, "the bound is named: {lines:?}");
    assert_eq!(count(&lines, &["hush"]), 0, "{lines:?}");
}
