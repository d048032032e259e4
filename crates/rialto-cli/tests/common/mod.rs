//! The program and its directories, for all tests of the command line.

#![allow(dead_code, reason = "each test program uses its part")]

#[path = "../../../rialto-server/tests/common/progress.rs"]
pub mod progress;
pub mod wire;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value as Json;

/// A new directory's path, which is removed at the end.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn name(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program with these arguments.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rialto"));
    command.args(arguments);
    command
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    program(arguments).output().expect("the program starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The text of both outputs.
pub fn text(output: &Output) -> String {
    stdout(output) + &stderr(output)
}

pub fn succeeds(output: Output) -> Output {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    output
}

/// The JSON object on the last line.
pub fn json(output: &Output) -> Json {
    let text = stdout(output);
    let line = text.lines().last().expect("some output");
    serde_json::from_str(line).unwrap_or_else(|problem| panic!("{problem}: {line}"))
}

/// The value at a path, such as `outer.inner`.
pub fn at<'a>(json: &'a Json, path: &str) -> &'a Json {
    let found = path.split('.').try_fold(json, |value, name| value.get(name));
    found.unwrap_or_else(|| panic!("{path} is missing in {json}"))
}

pub fn number(json: &Json, path: &str) -> f64 {
    at(json, path).as_f64().unwrap_or_else(|| panic!("{path} is no number in {json}"))
}

/// Measures for this many seconds, and for twice as many each time, until `is_enough` is satisfied: a slow machine, or
/// one that stands still, takes longer. After the longest time, the caller's assertions say what is missing.
pub fn measured<T>(first: f64, measure: impl Fn(&str) -> T, is_enough: impl Fn(&T) -> bool) -> T {
    let mut seconds = first;
    loop {
        let measured = measure(&seconds.to_string());
        if is_enough(&measured) || seconds > 15.0 {
            return measured;
        }
        println!("{seconds} seconds were not enough");
        seconds *= 2.0;
    }
}

/// A server process that is ready; it is killed when this is dropped.
pub struct Serving {
    pub child: Child,
    pub tcp: String,
    /// The socket file, or "none".
    pub socket: String,
    pub data: String,
}

impl Serving {
    pub fn start(data: &Path) -> Serving {
        Serving::start_by(program(&["serve"]), data)
    }

    /// Starts `rialto serve` by another command that takes its arguments; its stderr is piped.
    pub fn start_by(mut program: Command, data: &Path) -> Serving {
        let mut child = program
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        output.read_line(&mut line).expect("a line comes");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.first(), Some(&"ready"), "{line}");
        let part = |name: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_else(|| panic!("{name} is missing in {line}")).to_owned()
        };
        Serving { tcp: part("tcp"), socket: part("socket"), data: part("data"), child }
    }

    /// Sends a signal and gives the exit code.
    pub fn end_by(mut self, signal: &str) -> Option<i32> {
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
