//! A directory that another process has open: each command says which directory, which process, and what to do.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Directory, Serving, program, run, stderr, succeeds};

/// Runs each command that opens a data directory on this one; gives what it says. Each has to exit with 3.
fn refusals(data: &str, other: &Directory) -> Vec<(&'static str, String)> {
    let backup = other.path().join("backup");
    let made = other.path().join("made");
    succeeds(run(&[
        "backup",
        "--data",
        other.path().join("data").to_str().unwrap(),
        "--to",
        backup.to_str().unwrap(),
    ]));
    let backup = backup.to_str().unwrap();
    let commands: [(&str, Vec<&str>); 6] = [
        ("serve", vec!["serve", "--listen", "127.0.0.1:0", "--data", data]),
        (
            "bench",
            vec!["bench", "tpcb", "--scale", "1", "--accounts", "100", "--seconds", "0.2", "--data", data],
        ),
        ("check", vec!["check", data]),
        ("inspect", vec!["inspect", data]),
        ("backup", vec!["backup", "--data", data, "--to", made.to_str().unwrap()]),
        ("restore", vec!["restore", "--from", backup, "--data", data]),
    ];
    let said = commands.map(|(name, words)| {
        let output = run(&words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{name}: {said}");
        assert!(said.contains(data), "{name} names the directory: {said}");
        assert!(said.contains("is in use by "), "{name}: {said}");
        (name, said)
    });
    fs::remove_dir_all(backup).unwrap();
    said.into()
}

/// A directory with a database in `data`, for backups.
fn prepared(name: &str) -> Directory {
    let directory = Directory::new(name);
    let serving = Serving::start(&directory.path().join("data"));
    assert_eq!(serving.end_by("-TERM"), Some(0));
    directory
}

#[test]
fn each_command_names_the_server_and_its_address() {
    let (data, other) = (Directory::new("in-use-served"), prepared("in-use-served-other"));
    let serving = Serving::start(data.path());
    let process = format!("is in use by process {} (", serving.child.id());
    for (name, said) in refusals(data.name(), &other) {
        assert!(said.contains(&process), "{name}: {said}");
        assert!(said.contains(" serve --listen 127.0.0.1:0 --data "), "{name} has the command line: {said}");
        let address = &serving.tcp;
        assert!(said.contains(&format!("which serves it at {address}")), "{name}: {said}");
        assert!(
            said.contains(&format!("connect to {address} with SQL, or stop that process")),
            "{name}: {said}"
        );
        let online = format!("rialto backup --connect {address} --to DIR");
        assert_eq!(said.contains(&online), name == "backup", "{name}: {said}");
    }
    assert_eq!(serving.end_by("-TERM"), Some(0));
    succeeds(run(&["check", data.name()]));
}

/// The bench's prompt, which has the directory open until its input ends.
fn prompt(data: &str) -> Child {
    let mut child = program(&["bench", "card", "--accounts", "200", "--interactive", "--data", data])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    child.stdin.as_mut().unwrap().write_all(b"help\n").unwrap();
    let mut answer = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut answer)
        .expect("it answers when it is open");
    child
}

#[test]
fn a_process_that_serves_nothing_is_to_be_stopped() {
    let (data, other) = (Directory::new("in-use-prompt"), prepared("in-use-prompt-other"));
    let mut child = prompt(data.name());
    let process = format!("is in use by process {} (", child.id());
    for (name, said) in refusals(data.name(), &other) {
        assert!(said.contains(&process) && said.contains(" --interactive "), "{name}: {said}");
        assert!(said.contains("wait until that process ends, or stop it"), "{name}: {said}");
        assert!(!said.contains("serves it at"), "{name}: {said}");
    }
    drop(child.stdin.take());
    std::io::Read::read_to_end(child.stdout.as_mut().unwrap(), &mut Vec::new()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A server that was killed has left its name in the lock file. It holds nothing: neither does the directory stay
/// locked, nor is the server named when another process has it, which has left no name.
#[test]
fn a_process_that_is_gone_is_not_named() {
    let (data, other) = (Directory::new("in-use-stale"), prepared("in-use-stale-other"));
    let mut serving = Serving::start(data.path());
    let gone = serving.child.id();
    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    let lock = data.path().join("lock");
    let mark = fs::read_to_string(&lock).unwrap();
    assert!(mark.starts_with(&format!("{gone} ")), "the mark is left: {mark}");
    let mut holder = Command::new("flock")
        .args([lock.to_str().unwrap(), "-c", "echo locked; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock of util-linux runs");
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    for (name, said) in refusals(data.name(), &other) {
        assert!(said.contains("is in use by another process: "), "{name}: {said}");
        assert!(!said.contains(&gone.to_string()) && !said.contains("serves it at"), "{name}: {said}");
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut checked = run(&["check", data.name()]);
    while checked.status.code() != Some(0) && Instant::now() < until {
        checked = run(&["check", data.name()]);
    }
    succeeds(checked);
    assert_eq!(fs::read_to_string(&lock).unwrap(), "", "a process that ends well takes its mark away");
}
