//! `rialto backup` and `rialto restore`, run as a user runs them: of a directory and of a server, to directories and
//! streams, and with the archived log.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{Directory, Serving, program, run, stderr, stdout, succeeds, text};

const BENCH: &str = "bench tpcb --scale 1 --accounts 500 --clients 2 --seconds 0.3 --warmup 0 --data";

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Runs the bank on a directory, and verifies it at the beginning and the end.
fn bank(data: &Path, more: &[&str]) -> Output {
    succeeds(program(&words(BENCH)).arg(data).args(more).output().expect("the program starts"))
}

fn restore(arguments: &[&str], data: &Directory) -> Output {
    let words: Vec<&str> =
        ["restore"].iter().chain(arguments).copied().chain(["--data", data.name()]).collect();
    run(&words)
}

fn is_sound(data: &Directory) {
    let checked = succeeds(run(&["check", data.name()]));
    assert!(stdout(&checked).ends_with("sound\n"), "{}", text(&checked));
}

/// The place in the output of a backup or a restore.
fn place_in(said: &str) -> u64 {
    let (_, rest) = said.split_once("up to place ").unwrap_or_else(|| panic!("no place in {said}"));
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).expect("a place")
}

#[test]
fn a_directory_goes_to_a_directory_or_a_stream_and_back() {
    let [data, to, again, piped] =
        ["data", "to", "again", "piped"].map(|name| Directory::new(&format!("backup-{name}")));
    bank(data.path(), &[]);
    let taken = succeeds(run(&["backup", "--data", data.name(), "--to", to.name()]));
    assert!(stderr(&taken).starts_with("full backup ") && stdout(&taken).is_empty(), "{}", text(&taken));
    assert!(to.path().join("backup.rialto").exists());
    let said = stdout(&succeeds(restore(&["--from", to.name()], &again)));
    assert!(said.starts_with("restored database ") && place_in(&said) == place_in(&stderr(&taken)), "{said}");
    is_sound(&again);
    bank(again.path(), &[]);

    // Through a pipe.
    let mut backup = program(&["backup", "--data", data.name(), "--to", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stream = backup.stdout.take().expect("it is piped");
    let restored = program(&["restore", "--from", "-", "--data", piped.name()])
        .stdin(stream)
        .output()
        .expect("it starts");
    assert!(backup.wait().expect("it ends").success());
    succeeds(restored);
    bank(piped.path(), &[]);

    // If the reader disconnects, the command says so, and the directory is unchanged.
    let mut unread = program(&["backup", "--data", data.name(), "--to", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stream = unread.stdout.take().expect("it is piped");
    std::io::Read::read_exact(&mut stream, &mut [0; 1]).expect("it writes");
    drop(stream);
    let unread = unread.wait_with_output().expect("it ends");
    let says = stderr(&unread);
    assert_eq!(unread.status.code(), Some(4), "{says}");
    assert!(says.starts_with("error: ") && says.contains("Broken pipe"), "{says}");
    is_sound(&data);

    // A second time to the same directories.
    let twice = run(&["backup", "--data", data.name(), "--to", to.name()]);
    assert_eq!(twice.status.code(), Some(3), "{}", text(&twice));
    let held = format!(
        "error: not supported: a backup to file {}: it holds a backup (\"backup.rialto\") already; use another directory\n",
        to.path().canonicalize().unwrap().display()
    );
    assert!(stderr(&twice).ends_with(&held), "{}", stderr(&twice));
    let over = restore(&["--from", to.name()], &again);
    let expected = format!(
        "error: cannot restore to file {}: it is not empty (it holds \"backup-0\"); use an empty or a new directory\n",
        again.path().canonicalize().unwrap().display()
    );
    assert_eq!((over.status.code(), stderr(&over)), (Some(3), expected));
    is_sound(&again);
}

#[test]
fn a_damaged_or_missing_backup_leaves_nothing() {
    let [data, to, target] = ["d", "t", "n"].map(|name| Directory::new(&format!("backup-damaged-{name}")));
    bank(data.path(), &[]);
    succeeds(run(&["backup", "--data", data.name(), "--to", to.name()]));
    let file = to.path().join("backup.rialto");
    let good = fs::read(&file).expect("the backup");
    let name = file.display();
    let half = good.len() / 2;
    fs::write(&file, &good[..half]).expect("it can be written");
    let cut = restore(&["--from", to.name()], &target);
    assert_eq!(cut.status.code(), Some(1), "{}", text(&cut));
    let says = stderr(&cut);
    assert!(says.starts_with(&format!("error: \"{name}\" is corrupt at offset ")), "{says}");
    assert!(
        says.ends_with(&format!(": the backup is cut: it ends after {half} bytes, before its end\n")),
        "{says}"
    );
    let mut flipped = good.clone();
    flipped[half] ^= 1;
    fs::write(&file, &flipped).expect("it can be written");
    let damaged = restore(&["--from", to.name()], &target);
    assert!(
        damaged.status.code() == Some(1) && stderr(&damaged).contains("the checksum of frame "),
        "{}",
        text(&damaged)
    );
    let left: Vec<_> =
        fs::read_dir(target.path()).expect("it is there").map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "lock"), "{left:?}");
    let missing = restore(&["--from", target.name()], &Directory::new("backup-damaged-m"));
    let expected = format!("error: a backup (\"backup.rialto\") is missing in \"{}\"\n", target.name());
    assert_eq!((missing.status.code(), stderr(&missing)), (Some(3), expected));
}

/// A server's database while clients run on it, full and incremental, and its archived log: restored to a place, to a
/// time, to the end.
#[test]
fn a_server_is_backed_up_while_it_serves_and_restored_to_a_time() {
    let names = ["data", "archive", "full", "increment", "end", "place", "late", "other"];
    let [data, archive, full, increment, end, place, late, other] =
        names.map(|name| Directory::new(&format!("backup-server-{name}")));
    bank(data.path(), &["--archive", archive.name()]);
    let mut serve = program(&["serve"]);
    serve.args(["--archive", archive.name(), "--backup-copies", "3"]);
    let serving = Serving::start_by(serve, data.path());
    let locked = run(&["backup", "--data", data.name(), "--to", full.name()]);
    assert_eq!(locked.status.code(), Some(3), "{}", text(&locked));
    assert!(stderr(&locked).contains("is in use by process "), "{}", stderr(&locked));
    let online = |more: &[&str]| run(&[&["backup", "--connect", &serving.tcp], more].concat());
    let early = online(&["--incremental", "--to", full.name()]);
    assert!(
        stderr(&succeeds(early))
            .contains("(full, because no backup was taken since the database was opened)"),
        "an increment on nothing is a full backup"
    );
    let taken = succeeds(online(&["--incremental", "--to", increment.name()]));
    assert!(stderr(&taken).contains(", an increment on "), "{}", stderr(&taken));
    let at = place_in(&stderr(&taken));
    let twice = online(&["--to", increment.name()]);
    assert!(
        twice.status.code() == Some(3) && stderr(&twice).contains("already; use another directory"),
        "{}",
        text(&twice)
    );
    let streamed = online(&["--to", "-"]);
    assert_eq!(streamed.status.code(), Some(2), "{}", text(&streamed));
    assert_eq!(serving.end_by("-TERM"), Some(0));
    // The database goes on, and is archived.
    let before = std::time::SystemTime::now();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    bank(data.path(), &["--archive", archive.name()]);

    let from = ["--from", full.name(), "--incremental", increment.name(), "--archive", archive.name()];
    let said = stdout(&succeeds(restore(&from, &end)));
    assert!(place_in(&said) > at, "{said}");
    is_sound(&end);
    bank(end.path(), &[]);
    let said =
        stdout(&succeeds(restore(&[&from[..], &["--to-lsn", &(at + 1).to_string()]].concat(), &place)));
    assert_eq!(place_in(&said), at + 1, "{said}");
    is_sound(&place);
    let seconds = before.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs() + 1;
    let date = Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%d %H:%M:%S"])
        .output()
        .expect("date");
    let time = stdout(&date);
    let said = stdout(&succeeds(restore(&[&from[..], &["--to-time", time.trim()]].concat(), &late)));
    assert_eq!(place_in(&said), at, "nothing was committed between the backup and then: {said}");

    let beyond = restore(&[&from[..], &["--to-lsn", "999999999"]].concat(), &other);
    let says = stderr(&beyond);
    assert!(
        beyond.status.code() == Some(3)
            && says.starts_with("error: cannot restore to place 999999999: the archive "),
        "{says}"
    );
    assert!(says.contains(&format!("{} reaches place ", archive.name())), "{says}");
    let alone =
        restore(&["--from", full.name(), "--incremental", increment.name(), "--to-lsn", "999999999"], &other);
    assert!(
        stderr(&alone).ends_with(" UTC, and no archive of the log that follows is given\n"),
        "{}",
        stderr(&alone)
    );
    let unbased = restore(&["--from", increment.name()], &other);
    assert!(
        unbased.status.code() == Some(3)
            && stderr(&unbased)
                .contains(": give the full backup that it follows first, and the increments between"),
        "{}",
        text(&unbased)
    );
    let foreign = restore(&["--from", full.name(), "--archive", full.name()], &other);
    assert!(
        foreign.status.code() == Some(3) && stderr(&foreign).contains(" holds no log of database "),
        "{}",
        text(&foreign)
    );
}

#[test]
fn what_does_not_go_together_is_a_usage_error() {
    for line in [
        "backup --to /tmp/x",
        "backup --data a --connect b --to c",
        "backup --data a --incremental --to c",
        "backup --data a",
        "restore --from a --data b --to-lsn 1 --to-time 2026-01-01",
        "restore --from a --data b --to-time tomorrow",
        "restore --data b",
        "serve --backup-copies 4",
        "bench tpcb --backup-copies 1",
    ] {
        let output = run(&words(line));
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output));
    }
    let absent = run(&words("backup --connect 127.0.0.1:1 --to /tmp/x"));
    assert!(
        absent.status.code() == Some(4)
            && stderr(&absent).starts_with("error: no connection to 127.0.0.1:1: "),
        "{}",
        text(&absent)
    );
}

/// A server gets a path as text. Offline, any path will do.
#[test]
fn a_backup_of_a_server_to_a_path_that_is_not_utf_8_is_refused() {
    let [data, to] = ["data", "to"].map(|name| Directory::new(&format!("backup-not-utf-8-{name}")));
    let path = to.path().join(OsStr::from_bytes(b"b\xffck"));
    let serving = Serving::start(data.path());
    let online = program(&["backup", "--connect", &serving.tcp, "--to"]).arg(&path).output();
    drop(serving);
    let online = online.expect("the program starts");
    assert_eq!(online.status.code(), Some(2), "{}", text(&online));
    assert!(stderr(&online).contains(": the path is not UTF-8, "), "{}", text(&online));
    assert!(!to.path().exists());
    let offline = program(&["backup", "--data", data.name(), "--to"]).arg(&path).output();
    succeeds(offline.expect("the program starts"));
    assert!(path.join("backup.rialto").exists());
}

/// A damaged newest copy: the server, the bench and the offline backup say so, and go on with the older one.
#[test]
fn a_damaged_copy_is_warned_of() {
    let data = Directory::new("backup-fallen-back");
    bank(data.path(), &["--checkpoint-interval-s", "0.05", "--backup-copies", "3"]);
    let inspected = stdout(&succeeds(run(&["inspect", data.name()])));
    let force =
        inspected.lines().find(|line| line.ends_with("(in force)")).expect("a home block is in force");
    let name = force.split('"').nth(1).expect("it names its copy").to_owned();
    let path = data.path().join(&name);
    let mut bytes = fs::read(&path).expect("the copy");
    bytes[70] ^= 1;
    fs::write(&path, bytes).expect("it can be written");
    let checked = run(&["check", data.name()]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    let serving = Serving::start_by(program(&["serve", "--backup-copies", "3"]), data.path());
    let mut child_stderr = String::new();
    let mut serving = serving;
    let mut pipe = serving.child.stderr.take().expect("it is piped");
    assert_eq!(serving.end_by("-TERM"), Some(0));
    std::io::Read::read_to_string(&mut pipe, &mut child_stderr).expect("it ends");
    let expected = format!("\"{name}\" of checkpoint ");
    assert!(
        child_stderr.contains("warning: ")
            && child_stderr.contains(&expected)
            && child_stderr.contains("packets longer"),
        "{child_stderr}"
    );
    let ran = bank(data.path(), &["--checkpoint-interval-s", "0.05", "--backup-copies", "3"]);
    assert!(stderr(&ran).contains("warning: ") && stderr(&ran).contains(&expected), "{}", stderr(&ran));
    is_sound(&data);
}
