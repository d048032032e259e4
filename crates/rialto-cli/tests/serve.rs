//! `rialto serve`, run as a user runs it: the ready line, signals, exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rialto"));
    command.arg("serve");
    command
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server process and its ready line.
struct Serving {
    child: Child,
    tcp: String,
    data: String,
}

impl Serving {
    fn start(data: &Path) -> Serving {
        let mut child = program()
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
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
        assert_eq!(part("socket"), "none");
        Serving { tcp: part("tcp"), data: part("data"), child }
    }

    /// Asks for an SSL connection, as clients begin, and returns the answer.
    fn greet(&self) -> u8 {
        let mut stream = TcpStream::connect(&self.tcp).expect("it listens");
        stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).expect("it reads");
        let mut answer = [0];
        stream.read_exact(&mut answer).expect("it answers");
        answer[0]
    }

    fn end_by(mut self, signal: &str) -> Option<i32> {
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
        self.child.wait().expect("it ends").code()
    }
}

#[test]
fn says_that_it_is_ready_and_ends_well_on_either_signal() {
    let directory = Directory::new("serve-signals");
    for signal in ["-TERM", "-INT"] {
        let serving = Serving::start(&directory.0);
        assert_eq!(serving.data, directory.0.display().to_string());
        assert_eq!(serving.greet(), b'N', "there is no SSL yet");
        assert_eq!(serving.end_by(signal), Some(0), "{signal}");
    }
}

#[test]
fn a_directory_serves_once_at_a_time() {
    let directory = Directory::new("serve-twice");
    let serving = Serving::start(&directory.0);
    let second =
        program().args(["--listen", "127.0.0.1:0", "--data"]).arg(&directory.0).output().expect("it runs");
    assert_eq!(second.status.code(), Some(3));
    let error = String::from_utf8_lossy(&second.stderr);
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
    ] {
        let output = program().args(arguments).arg("--data").arg(&directory.0).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}
