//! `rialto check` and `rialto inspect`, run as a user runs them, on directories of `rialto bench`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Directory, Serving, program, succeeds, text};

fn rialto(arguments: &[&str], directory: &Path) -> Output {
    program(arguments).arg(directory).output().expect("the program starts")
}

fn loaded(name: &str) -> Directory {
    let directory = Directory::new(name);
    let arguments = "bench tpcb --scale 1 --accounts 500 --clients 2 --seconds 0.2 --warmup 0.2 --data";
    succeeds(rialto(&arguments.split(' ').collect::<Vec<_>>(), directory.path()));
    directory
}

#[test]
fn a_sound_directory_is_verified_and_described() {
    let directory = loaded("offline-sound");
    let before = contents(directory.path());
    let checked = rialto(&["check"], directory.path());
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(text(&checked).lines().any(|line| line == "sound"), "{}", text(&checked));
    let inspected = rialto(&["inspect"], directory.path());
    assert_eq!(inspected.status.code(), Some(0), "{}", text(&inspected));
    for named in ["accounts", "history", "files", "database"] {
        assert!(text(&inspected).contains(named), "{named} is missing in {}", text(&inspected));
    }
    assert!(before == contents(directory.path()), "check and inspect only read");
}

fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("it is there")
        .map(|entry| {
            let entry = entry.expect("it can be listed");
            (
                entry.file_name().to_string_lossy().into_owned(),
                fs::read(entry.path()).expect("it can be read"),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn damage_exits_1_and_names_the_file() {
    let directory = loaded("offline-damaged");
    let home = directory.path().join("home");
    let length = fs::metadata(&home).expect("the home file is there").len();
    fs::write(&home, vec![0xa5; length as usize]).expect("it can be written");
    for command in ["check", "inspect"] {
        let output = rialto(&[command], directory.path());
        assert_eq!(output.status.code(), Some(1), "{command}: {}", text(&output));
        assert!(text(&output).contains("home"), "{command}: {}", text(&output));
    }
    let bench = rialto(&["bench", "tpcb", "--scale", "1", "--accounts", "500", "--data"], directory.path());
    assert_eq!(bench.status.code(), Some(1), "{}", text(&bench));
}

/// An error of the system says nothing about the files.
#[test]
fn a_check_without_address_space_for_the_tables_exits_4_and_tells_of_no_damage() {
    let directory = loaded("offline-no-address-space");
    let limited = "ulimit -v 8388608; exec \"$0\" check --memory-bytes 68719476736 \"$1\"";
    let checked = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_rialto"), directory.name()])
        .output()
        .expect("a shell starts");
    assert_eq!(checked.status.code(), Some(4), "{}", text(&checked));
    assert!(text(&checked).contains("reserving address space for the tables"), "{}", text(&checked));
    assert!(!text(&checked).contains("DAMAGE"), "{}", text(&checked));
}

#[test]
fn a_directory_that_is_missing_empty_or_in_use_exits_3() {
    let directory = Directory::new("offline-unusable");
    let missing = rialto(&["check"], directory.path());
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing));
    fs::create_dir_all(directory.path()).expect("it can be made");
    for command in ["check", "inspect"] {
        let empty = rialto(&[command], directory.path());
        assert_eq!(empty.status.code(), Some(3), "{command}: {}", text(&empty));
        assert!(text(&empty).contains("holds no database"), "{}", text(&empty));
        assert!(contents(directory.path()).is_empty(), "{command} left a file");
    }

    let serving = Serving::start(directory.path());
    let in_use = rialto(&["check"], directory.path());
    drop(serving);
    assert_eq!(in_use.status.code(), Some(3), "{}", text(&in_use));
}

/// The reader of the results, or of the errors, may be gone: there is no panic, and the exit code is that of the work.
#[test]
fn a_reader_that_has_gone_is_no_error() {
    let directory = loaded("offline-unread");
    let missing = directory.path().join("missing");
    let (data, missing) = (directory.path().to_str().unwrap(), missing.to_str().unwrap());
    let copy = Directory::new("offline-unread-copy");
    let restored = Directory::new("offline-unread-restored");
    let bench = "bench tpcb --scale 1 --accounts 500 --clients 1 --seconds 0.2 --warmup 0.2";
    let bench: Vec<&str> = bench.split(' ').collect();
    let runs: [(&[&str], i32); 8] = [
        (&["inspect", data], 0),
        (&["check", data], 0),
        (&["inspect", missing], 3),
        (&["serve", "--data", data, "--backup-copies", "9"], 2),
        (&["backup", "--data", data, "--to", copy.name()], 0),
        (&["restore", "--from", copy.name(), "--data", restored.name()], 0),
        (&bench, 0),
        (&["--help"], 0),
    ];
    for (arguments, code) in runs {
        let unread = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer
        };
        let (told, kept) = (Directory::new("offline-told"), unread());
        let errors = fs::File::create(told.path()).expect("it can be made");
        let status = program(arguments).stdout(kept).stderr(errors).status().expect("the program starts");
        let text = fs::read_to_string(told.path()).expect("it is there");
        fs::remove_file(told.path()).expect("it can be removed");
        assert_eq!(status.code(), Some(code), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{arguments:?}: {text}");
        if arguments[0] != "backup" && arguments[0] != "restore" {
            let status = program(arguments).stdout(unread()).stderr(unread()).status();
            assert_eq!(status.expect("the program starts").code(), Some(code), "{arguments:?}, unread");
        }
    }
}
