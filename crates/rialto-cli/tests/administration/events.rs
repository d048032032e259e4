//! What a server prints on stderr, by `--log` and without it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, Command};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// An error of the disk shows, however often clients meet the memory bound before it.
#[test]
fn an_error_of_one_kind_hides_none_of_another() {
    let directory = Directory::new("events-kinds");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_rialto"), "serve"]);
    shell.args(["--memory-bytes", "8388608"]);
    let mut serving = Serving::start_by(shell, directory.path());
    let stderr = BufReader::new(serving.child.stderr.take().expect("it is piped"));
    let mut client = session(&serving);
    runs(&mut client, "create table large (a int primary key, b text)");
    let text = "much ".repeat(800);
    let fill = format!("insert into large select n, '{text}' from generate_series(1, 3000) as n");
    assert!(query(&mut client, &fill).contains("C53200"));
    let process = serving.child.id().to_string();
    let limited = Command::new("prlimit").args(["--fsize=0:0", "--pid", &process]).status();
    assert!(limited.expect("prlimit of util-linux runs").success());
    assert!(query(&mut client, "insert into large values (1, '')").contains("C08007"));
    assert_eq!(serving.child.wait().expect("it ends").code(), Some(4));
    let lines = lines(stderr);
    for state in ["sqlstate=\"53200\"", "sqlstate=\"08007\""] {
        assert_eq!(count(&lines, &["ERROR", "a statement failed", state]), 1, "{state}: {lines:?}");
    }
}

/// A server that may open no more files accepts no connection. No client is told, so the log is.
#[test]
fn a_connection_that_cannot_be_accepted_is_an_error() {
    let directory = Directory::new("events-accept");
    let (serving, stderr) = serving(&[], &directory);
    let process = serving.child.id().to_string();
    let open = fs::read_dir(format!("/proc/{process}/fd")).expect("it lives").count();
    let limited = Command::new("prlimit").args([&format!("--nofile={open}"), "--pid", &process]).status();
    assert!(limited.expect("prlimit of util-linux runs").success());
    let _client = std::net::TcpStream::connect(&serving.tcp).expect("the system accepts it");
    wait_for(stderr, &["ERROR", "a connection could not be accepted", "Too many open files"]);
    assert_eq!(serving.end_by("-TERM"), Some(0));
}

/// A pipe whose reader stalls takes no more after 64 KiB: sessions, new connections and the shutdown go on.
#[test]
fn a_reader_of_stderr_that_stalls_holds_nothing_up() {
    let directory = Directory::new("events-stalled");
    let (serving, stderr) = serving(&["--log", "debug"], &directory);
    let mut client = session(&serving);
    let patience = Some(std::time::Duration::from_secs(20));
    client.set_read_timeout(patience).expect("a socket takes it");
    for _ in 0..3_000 {
        assert!(query(&mut client, "select nothing").contains("C42703"), "the session hangs");
    }
    runs(&mut session(&serving), "select 1");
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let lines = lines(stderr);
    assert!(count(&lines, &["error sent"]) > 100, "what was printed can be read");
}

/// No client is told that the archive fails.
#[test]
fn an_archive_that_takes_no_files_is_an_error_by_default() {
    let (directory, archive) = (Directory::new("events-archive"), Directory::new("events-archive-to"));
    let options =
        ["--checkpoint-interval-s", "0.05", "--log-bytes-max", "1100000", "--archive", archive.name()];
    let (serving, stderr) = serving(&options, &directory);
    // No file of the log can be made in it now.
    for entry in fs::read_dir(archive.path()).expect("it is there") {
        let of_database = entry.expect("it can be read").path();
        for number in 1..100 {
            let name = format!("log-{number:010}");
            let _ = fs::create_dir_all(of_database.join(format!("{name}.unfinished")).join("full"));
        }
    }
    let mut client = session(&serving);
    runs(&mut client, "create table t (a int primary key, b text)");
    // More than one log file, and less than the bound.
    for n in 0..20 {
        runs(&mut client, &format!("insert into t values ({n}, '{}')", "x".repeat(20_000)));
    }
    // The log is freed when two checkpoints do not need it any more, and each needs something to copy.
    let is_told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if is_told.load(Ordering::SeqCst) {
                    break;
                }
                runs(&mut client, &format!("update t set b = '{n}' where a = 0"));
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(stderr, &["ERROR", "the archive takes no files", "cause="]);
        }));
        is_told.store(true, Ordering::SeqCst);
        found.unwrap();
    });
}

#[test]
fn connections_that_are_turned_away_or_closed_are_told() {
    let directory = Directory::new("events-turned-away");
    let (serving, mut stderr) = serving(&["--log", "info", "--max-connections", "1"], &directory);
    let client = session(&serving);
    let mut refused = std::net::TcpStream::connect(&serving.tcp).expect("it listens");
    std::io::Write::write_all(&mut refused, b"\0\0\0\x12\0\x03\0\0user\0ann\0\0").expect("it reads");
    refused.read_to_end(&mut Vec::new()).expect("it is told and closed");
    drop(client);
    // The server has seen that before it is asked to end.
    let mut before = Vec::new();
    while count(&before, &["{process=1}", "ended"]) == 0 {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).expect("it is text") > 0, "{before:?}");
        before.push(line);
    }
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let lines = [before, lines(stderr)].concat();
    assert_eq!(count(&lines, &["WARN", "turned away", "connections=1"]), 1, "{lines:?}");
    let ended = ["INFO", "connection{process=1}", "ended", "the client closed it without a Terminate"];
    assert_eq!(count(&lines, &ended), 1, "{lines:?}");
}
