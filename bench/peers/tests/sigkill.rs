//! What "not durable" promises, and "durable" all the more: an answered commit survives SIGKILL of the process. redb has
//! nothing between durable and less than that, and its settings say so: it must lose commits here, or they are wrong.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const ENGINES: &[&str] = &[
    "rialto",
    "sqlite",
    "lmdb",
    "redb",
    "fjall",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];
/// After so many commits the process is killed.
const COMMITS: u64 = 500;

/// A directory of this test's own, gone when dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Kill is SIGKILL.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn step(name: &str, engine: &str, durable: bool, bank: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(["--step", name, "--engines", engine, "--accounts", "1000", "--branches", "2"]);
    command.arg("--bank").arg(bank);
    if durable {
        command.arg("--durable-only");
    }
    command
}

fn output(mut command: Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The commits that were told of when it was killed.
fn churn_and_kill(engine: &str, durable: bool, bank: &Path) -> u64 {
    let mut killed = Killed(step("churn", engine, durable, bank).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(killed.0.stdout.take().unwrap()).lines();
    let mut told = 0;
    while told < COMMITS {
        told = lines.next().expect("it ends when it is killed").unwrap().parse().unwrap();
    }
    drop(killed);
    // What it wrote and nobody has read yet; a line is written whole or not at all.
    lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).fold(told, u64::max)
}

#[test]
fn answered_commits_survive_sigkill() {
    for engine in ENGINES {
        for durable in [true, false] {
            let path =
                std::env::temp_dir().join(format!("peers-kill-{}-{engine}-{durable}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            let directory = Directory(path);
            output(step("load", engine, durable, &directory.0));
            let told = churn_and_kill(engine, durable, &directory.0);
            let found: u64 = output(step("check", engine, durable, &directory.0)).parse().unwrap();
            if (*engine, durable) == ("redb", false) {
                assert!(found < told, "redb kept all of {told} commits: its settings say that it does not");
                continue;
            }
            assert!(
                (told..=told + 1).contains(&found),
                "{engine}, durable {durable}: {told} commits were told of, the history has {found} rows"
            );
        }
    }
}
