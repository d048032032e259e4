//! `rialto serve`, run as a user runs it: the ready line, signals, exit codes.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Directory, Serving, program, stderr};

/// Asks for an SSL connection, as clients begin, and returns the answer.
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
