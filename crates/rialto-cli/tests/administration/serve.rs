//! `rialto serve`, run as a user runs it: the ready line, signals, exit codes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::common::wire::{answer, query, session};
use crate::common::{Directory, Serving, program, stderr};

/// Requests an SSL connection, as clients do first, and gives the answer.
fn greet(serving: &Serving) -> u8 {
    let mut stream = TcpStream::connect(&serving.tcp).expect("it listens");
    stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).expect("it reads");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("it answers");
    answer[0]
}

#[test]
fn says_that_it_is_ready_and_ends_well_on_either_signal() {
    let directory = Directory::new("serve-signals");
    for signal in ["-TERM", "-INT"] {
        let serving = Serving::start(directory.path());
        assert_eq!(serving.data, directory.path().display().to_string());
        assert_eq!(serving.socket, "none");
        assert_eq!(greet(&serving), b'N', "there is no SSL yet");
        assert_eq!(serving.end_by(signal), Some(0), "{signal}");
    }
}

#[test]
fn a_directory_serves_once_at_a_time() {
    let directory = Directory::new("serve-twice");
    let serving = Serving::start(directory.path());
    let second = program(&["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(directory.path())
        .output()
        .expect("it runs");
    assert_eq!(second.status.code(), Some(3));
    let error = stderr(&second);
    assert!(error.contains("serve-twice") && error.contains("in use"), "{error}");
    assert_eq!(serving.end_by("-TERM"), Some(0));
}

#[test]
fn usage_errors_exit_2() {
    let directory = Directory::new("serve-usage");
    for (arguments, named) in [
        (&["--listen", "0.0.0.0:0"][..], "loopback"),
        (&["--listen", "none"], "--socket-dir"),
        (&["--max-connections", "0"], "--max-connections"),
        (&["--listen", "here"], "HOST:PORT"),
        (&["--durability", "tape"], "memory"),
        (&["--engine", "row"], "data-oriented"),
        (&["--executors", "4"], "--engine data-oriented"),
        (&["--engine", "data-oriented", "--executors", "0"], "1..=4096"),
    ] {
        let output = program(&["serve"])
            .args(arguments)
            .arg("--data")
            .arg(directory.path())
            .output()
            .expect("it runs");
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}

/// A process that may not write one more byte to any file, from some point on, behaves like one whose disk has failed.
#[test]
fn ends_with_4_when_its_log_fails_and_recovers() {
    let directory = Directory::new("serve-stopped");
    let mut shell = Command::new("sh");
    // A write beyond the limit is an error then, and no signal.
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_rialto"), "serve"]);
    let mut serving = Serving::start_by(shell, directory.path());
    let mut client = session(&serving);
    let made = query(&mut client, "create table t (a int primary key); insert into t values (1)");
    assert!(made.contains("INSERT 0 1"), "{made}");
    let limited = Command::new("prlimit")
        .args(["--fsize=0:0", "--pid", &serving.child.id().to_string()])
        .status()
        .expect("prlimit of util-linux runs");
    assert!(limited.success());
    let unknown = query(&mut client, "insert into t values (2)");
    assert!(unknown.contains("C08007"), "{unknown}");
    let farewell = answer(&mut client);
    assert!(farewell.contains("FATAL") && farewell.contains("the database has stopped"), "{farewell}");
    let mut error = String::new();
    let stderr = serving.child.stderr.as_mut().expect("it is piped");
    stderr.read_to_string(&mut error).expect("it is text");
    assert_eq!(serving.child.wait().expect("it ends").code(), Some(4), "{error}");
    assert!(error.contains("the database has stopped") && error.contains("log-"), "{error}");

    let serving = Serving::start(directory.path());
    let found = query(&mut session(&serving), "select count(*) from t where a = 1");
    assert!(found.contains("SELECT 1"), "{found}");
    assert_eq!(serving.end_by("-TERM"), Some(0));
}

#[test]
fn corrupt_bytes_are_named_and_exit_1_before_the_server_is_ready() {
    let directory = Directory::new("serve-corrupt");
    let serving = Serving::start(directory.path());
    let made = query(&mut session(&serving), "create table t (a int primary key)");
    assert!(made.contains("CREATE TABLE"), "{made}");
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let home = directory.path().join("home");
    let bytes = std::fs::read(&home).expect("the home file is there");
    std::fs::write(&home, bytes.iter().map(|byte| byte ^ 0x55).collect::<Vec<_>>()).expect("it is ours");
    let output = program(&["serve", "--listen", "127.0.0.1:0", "--data"]).arg(directory.path()).output();
    let output = output.expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("\"home\" is corrupt at offset"), "{error}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("ready"));
}
