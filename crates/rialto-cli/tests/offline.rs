//! `rialto check` and `rialto inspect`, run as a user runs them, on what `rialto bench` left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rialto(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rialto"))
        .args(arguments)
        .arg(directory)
        .output()
        .expect("the program starts")
}

fn loaded(name: &str) -> Directory {
    let directory = Directory::new(name);
    let arguments = "bench tpcb --scale 1 --accounts 500 --clients 2 --seconds 0.2 --warmup 0.2 --data";
    let output = rialto(&arguments.split(' ').collect::<Vec<_>>(), &directory.0);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    directory
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_sound_directory_is_verified_and_described() {
    let directory = loaded("offline-sound");
    let before = contents(&directory.0);
    let checked = rialto(&["check"], &directory.0);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(text(&checked).lines().any(|line| line == "sound"), "{}", text(&checked));
    let inspected = rialto(&["inspect"], &directory.0);
    assert_eq!(inspected.status.code(), Some(0), "{}", text(&inspected));
    for named in ["accounts", "history", "files", "database"] {
        assert!(text(&inspected).contains(named), "{named} is missing in {}", text(&inspected));
    }
    assert!(before == contents(&directory.0), "check and inspect only read");
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
    let home = directory.0.join("home");
    let length = fs::metadata(&home).expect("the home file is there").len();
    fs::write(&home, vec![0xa5; length as usize]).expect("it can be written");
    for command in ["check", "inspect"] {
        let output = rialto(&[command], &directory.0);
        assert_eq!(output.status.code(), Some(1), "{command}: {}", text(&output));
        assert!(text(&output).contains("home"), "{command}: {}", text(&output));
    }
    let bench = rialto(&["bench", "tpcb", "--scale", "1", "--accounts", "500", "--data"], &directory.0);
    assert_eq!(bench.status.code(), Some(1), "{}", text(&bench));
}

#[test]
fn a_directory_that_is_missing_empty_or_in_use_exits_3() {
    let directory = Directory::new("offline-unusable");
    let missing = rialto(&["check"], &directory.0);
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing));
    fs::create_dir_all(&directory.0).expect("it can be made");
    for command in ["check", "inspect"] {
        let empty = rialto(&[command], &directory.0);
        assert_eq!(empty.status.code(), Some(3), "{command}: {}", text(&empty));
        assert!(text(&empty).contains("holds no database"), "{}", text(&empty));
        assert!(contents(&directory.0).is_empty(), "{command} left a file");
    }

    let mut serving = Command::new(env!("CARGO_BIN_EXE_rialto"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(&directory.0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(serving.stdout.take().expect("it is piped"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("it is ready");
    let in_use = rialto(&["check"], &directory.0);
    serving.kill().expect("it runs");
    serving.wait().expect("it ends");
    assert_eq!(in_use.status.code(), Some(3), "{}", text(&in_use));
}
