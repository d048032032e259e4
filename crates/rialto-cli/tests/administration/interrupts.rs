//! Ctrl-C in `bench`, `backup` and `restore`: a line on stderr, status 130, and nothing half done left behind; or what
//! is left is refused by name.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::wire::{runs, session};
use crate::common::{Directory, Serving, program, run, stderr, stdout, succeeds, text};

const BANK: &str = "bench tpcb --scale 2 --accounts 2000 --clients 2 --memory-bytes 300000000";
/// Longer than any step takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Sends this process what a terminal sends on Ctrl-C.
fn interrupt(running: &Running) {
    send("INT", running);
}

/// Sends a signal.
fn send(signal: &str, running: &Running) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &*running.0.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// A program with piped output, which is killed if the test fails.
struct Running(Child);

impl Running {
    /// Its status, once it has ended by itself.
    fn status(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Its status and output, once it has ended.
    fn output(mut self) -> Output {
        let status = self.status();
        let mut output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
        self.0.stdout.take().expect("it is piped").read_to_end(&mut output.stdout).expect("it ends");
        self.0.stderr.take().expect("it is piped").read_to_end(&mut output.stderr).expect("it ends");
        output
    }

    fn stderr(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.0.stderr.take().expect("it is piped"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(mut command: Command) -> Running {
    Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts"))
}

/// The next connection.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a socket takes it");
    let began = Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).expect("a socket takes it");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
            return stream;
        }
        assert!(began.elapsed() < PATIENCE, "no client connects");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads until a line contains this. Gives everything that was read.
fn until_said(lines: &mut BufReader<ChildStderr>, wanted: &str) -> String {
    let mut said = String::new();
    while !said.lines().next_back().is_some_and(|line| line.contains(wanted)) {
        assert_ne!(lines.read_line(&mut said).expect("it is text"), 0, "{wanted} was never said: {said}");
    }
    said
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The rest of its output, and its status.
fn rest(mut running: Running, mut lines: BufReader<ChildStderr>) -> (String, Option<i32>) {
    let status = running.status();
    let mut said = String::new();
    lines.read_to_string(&mut said).expect("it is text");
    (said, status.code())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The entries beside a test's own directory that belong to it, such as its scratch files.
fn beside(directory: &Directory) -> Vec<String> {
    let own = directory.path().file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
    let mut names = names(directory.path().parent().expect("it has one"));
    names.retain(|name| name.starts_with(&own) && *name != own);
    names
}

fn is_sound(data: &Directory) {
    let checked = succeeds(run(&["check", data.name()]));
    assert!(stdout(&checked).ends_with("sound\n"), "{}", text(&checked));
}

#[test]
fn a_run_of_bench_ends_its_window_and_keeps_its_data() {
    let data = Directory::new("interrupts-bench");
    for more in [
        "",
        "--in-flight 20",
        "--logging none --checkpoint none",
        "--engine data-oriented --executor-threads 2",
    ] {
        let mut command = program(&words(BANK));
        // Slow enough that its growth fits for this long.
        command
            .args(["--seconds", "120", "--rate", "500", "--json", "--data", data.name()])
            .args(words(more));
        let mut running = spawn(command);
        let mut lines = running.stderr();
        // The first tick.
        let before = until_said(&mut lines, "transactions/s");
        assert!(!before.contains("lost"), "{more}: {before}");
        interrupt(&running);
        let mut out = running.0.stdout.take().expect("it is piped");
        let (said, code) = rest(running, lines);
        assert_eq!(code, Some(130), "{more}: {said}");
        assert!(said.contains("interrupted: the run ends"), "{more}: {said}");
        assert!(said.ends_with("error: interrupted: there is no result\n"), "{more}: {said}");
        let mut printed = String::new();
        out.read_to_string(&mut printed).expect("it is text");
        assert_eq!(printed, "", "{more}: there is no result");
        assert_eq!(beside(&data), [""; 0], "{more}: scratch files are left over");
        is_sound(&data);
    }
    let again = program(&words(BANK)).args(["--seconds", "0.3", "--data", data.name()]).output();
    let again = succeeds(again.expect("the program starts"));
    assert!(
        stderr(&again).contains("using the bank") && !stderr(&again).contains("lost"),
        "{}",
        stderr(&again)
    );
}

#[test]
fn a_run_that_is_interrupted_while_it_loads_leaves_a_whole_bank_or_none() {
    let data = Directory::new("interrupts-load");
    let arguments = words(
        "bench tpcb --scale 20 --accounts 20000 --clients 2 --memory-bytes 300000000 --seconds 60 --rate 500",
    );
    let mut command = program(&arguments);
    command.args(["--data", data.name()]);
    let mut running = spawn(command);
    until("the directory is made", || data.path().exists());
    interrupt(&running);
    let lines = running.stderr();
    let (said, code) = rest(running, lines);
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(beside(&data), [""; 0], "scratch files are left over");
    let again = program(&arguments[..8]).args(["--seconds", "0.3", "--data", data.name()]).output();
    succeeds(again.expect("the program starts"));
}

#[test]
fn a_run_of_commits_leaves_no_log_behind() {
    let data = Directory::new("interrupts-commit");
    let mut command = program(&words("bench commit --clients 2 --seconds 120 --data"));
    command.arg(data.path());
    let mut running = spawn(command);
    let mut lines = running.stderr();
    until_said(&mut lines, "commits/s");
    interrupt(&running);
    let (said, code) = rest(running, lines);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("interrupted: the run ends"), "{said}");
    assert_eq!((names(data.path()), beside(&data)), (vec![], vec![]));
}

/// A terminal's Ctrl-C reaches all of its processes: a comparison, and the run that it has started.
#[test]
fn a_comparison_ends_with_its_other_run() {
    let data = Directory::new("interrupts-versus");
    let mut command = program(&words(BANK));
    command.args(["--seconds", "0.3", "--versus", "--seconds 120 --rate 500", "--data", data.name()]);
    let running = spawn({
        command.process_group(0);
        command
    });
    let other = PathBuf::from(format!("{}-versus", data.name()));
    until("the other run has begun", || other.exists());
    let group = format!("-{}", running.0.id());
    let sent = Command::new("kill").args(["-s", "INT", "--", &group]).status();
    assert!(sent.expect("kill runs").success());
    let ended = running.output();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended));
    assert!(stderr(&ended).ends_with("error: interrupted: there is no result\n"), "{}", text(&ended));
    assert_eq!(stdout(&ended), "", "there is no result");
    let has_ended = || {
        !Command::new("kill").args(["-s", "0", "--", &group]).output().expect("kill runs").status.success()
    };
    until("the other run has ended", has_ended);
    is_sound(&data);
    std::fs::remove_dir_all(&other).expect("it is there");
    assert_eq!(beside(&data), [""; 0], "scratch files are left over");
}

/// By Ctrl-C, by a service manager, and by a terminal that is closed; but not by the latter under nohup.
#[test]
fn a_prompt_ends_at_once() {
    let data = Directory::new("interrupts-prompt");
    let line = words("bench card --interactive --accounts 2000 --memory-bytes 300000000 --data");
    // The tests themselves may run under nohup.
    for (under, signals) in [
        ("env --default-signal=HUP", vec!["INT"]),
        ("env --default-signal=HUP", vec!["TERM"]),
        ("env --default-signal=HUP", vec!["HUP"]),
        ("nohup", vec!["HUP", "TERM"]),
    ] {
        let program = program(&line);
        let starter = words(under);
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(program.get_program()).args(&line);
        command.arg(data.path()).stdin(Stdio::piped());
        let mut running = spawn(command);
        let mut stdin = running.0.stdin.take().expect("it is piped");
        let mut out = BufReader::new(running.0.stdout.take().expect("it is piped"));
        for signal in &signals {
            stdin.write_all(b"BAL 123\n").expect("it reads");
            let mut line = String::new();
            out.read_line(&mut line).expect("it answers");
            assert!(!line.is_empty(), "{under} {signals:?}: it has ended before {signal}");
            send(signal, &running);
        }
        let lines = running.stderr();
        let (said, code) = rest(running, lines);
        assert_eq!(code, Some(130), "{under} {signals:?}: {said}");
        assert!(said.ends_with("interrupted\n"), "{under} {signals:?}: {said}");
        drop(stdin);
    }
    is_sound(&data);
}

/// A bank whose backup takes a while: to a directory, to a stream, and by a server.
#[test]
fn a_backup_that_is_interrupted_leaves_nothing_that_passes_for_one() {
    let data = Directory::new("interrupts-bank");
    let bank = "bench tpcb --scale 1 --accounts 400000 --clients 1 --seconds 0.2 --warmup 0 --memory-bytes 600000000";
    succeeds(program(&words(bank)).args(["--data", data.name()]).output().expect("the program starts"));
    a_backup_of_a_directory_is_given_up_and_leaves_nothing(&data);
    a_backup_to_a_stream_that_stands_still_ends_and_the_stream_is_refused(&data);
    a_server_is_asked_to_give_its_backup_up_and_goes_on(&data);
}

/// Interrupts a backup while it writes. Gives its end. A backup that ends before the interrupt reaches it is taken
/// again.
fn interrupted_backup(to: &Directory, command: impl Fn() -> Command) -> Output {
    let unfinished = to.path().join("backup.unfinished");
    for _ in 0..20 {
        let _ = std::fs::remove_dir_all(to.path());
        let mut running = spawn(command());
        while !unfinished.exists() && running.0.try_wait().expect("it can be waited for").is_none() {
            thread::yield_now();
        }
        if running.0.try_wait().expect("it can be waited for").is_none() {
            interrupt(&running);
        }
        let output = running.output();
        if output.status.code() != Some(0) {
            return output;
        }
        assert!(to.path().join("backup.rialto").exists(), "{}", text(&output));
        println!("a backup came to its end before it was interrupted");
    }
    panic!("no backup of 20 was interrupted");
}

fn a_backup_of_a_directory_is_given_up_and_leaves_nothing(data: &Directory) {
    let (to, again) = (Directory::new("interrupts-to"), Directory::new("interrupts-again"));
    let taking = || program(&["backup", "--data", data.name(), "--to", to.name()]);
    let ended = interrupted_backup(&to, taking);
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended));
    let nothing = format!("error: interrupted: nothing is left of the backup in {}\n", to.name());
    assert_eq!(stderr(&ended), format!("interrupted: the backup is given up\n{nothing}"));
    assert!(names(to.path()).iter().all(|name| name == "lock"), "{:?}", names(to.path()));
    let missing = run(&["restore", "--from", to.name(), "--data", again.name()]);
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing));
    assert!(stderr(&missing).contains("a backup (\"backup.rialto\") is missing"), "{}", stderr(&missing));
    // The next backup goes to the same directory.
    succeeds(taking().output().expect("the program starts"));
    succeeds(run(&["restore", "--from", to.name(), "--data", again.name()]));
    is_sound(&again);
}

/// The reader of the stream stops, so that the backup stands still in the middle.
fn a_backup_to_a_stream_that_stands_still_ends_and_the_stream_is_refused(data: &Directory) {
    let half = Directory::new("interrupts-half");
    let mut running = spawn(program(&["backup", "--data", data.name(), "--to", "-"]));
    let mut stream = running.0.stdout.take().expect("it is piped");
    let mut began = vec![0; 100_000];
    stream.read_exact(&mut began).expect("it writes");
    interrupt(&running);
    let lines = running.stderr();
    let (said, code) = rest(running, lines);
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(said, "interrupted: the stream is not complete, and is no backup\n");
    stream.read_to_end(&mut began).expect("the rest of the pipe");
    let mut command = program(&["restore", "--from", "-", "--data", half.name()]);
    let mut restoring = spawn({
        command.stdin(Stdio::piped());
        command
    });
    restoring.0.stdin.take().expect("it is piped").write_all(&began).expect("it reads");
    let refused = restoring.output();
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(stderr(&refused).contains("the backup is cut"), "{}", stderr(&refused));
    is_sound(data);
}

fn a_server_is_asked_to_give_its_backup_up_and_goes_on(data: &Directory) {
    let to = Directory::new("interrupts-online");
    let serving = Serving::start(data.path());
    let ended =
        interrupted_backup(&to, || program(&["backup", "--connect", &serving.tcp, "--to", to.name()]));
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended));
    let expected = "interrupted: the server is asked to give the backup up\n\
                    error: interrupted: the server has given the backup up, and nothing is left of it\n";
    // The server may have told how far it was.
    let said = stderr(&ended);
    let lines = said.split_inclusive('\n').filter(|line| !line.starts_with("backed up "));
    assert_eq!(lines.collect::<String>(), expected);
    assert!(names(to.path()).iter().all(|name| name == "lock"), "{:?}", names(to.path()));
    let mut client = session(&serving);
    runs(&mut client, "create table t (a int primary key)");
    succeeds(run(&["backup", "--connect", &serving.tcp, "--to", to.name()]));
    assert_eq!(serving.end_by("-TERM"), Some(0));
}

/// The stream stands still in the middle of the restore.
#[test]
fn a_restore_that_is_interrupted_says_what_it_leaves_and_the_next_one_begins_anew() {
    let [data, to, target] =
        ["data", "from", "target"].map(|name| Directory::new(&format!("interrupts-restore-{name}")));
    succeeds(
        program(&words(BANK)).args(["--seconds", "0.3", "--data", data.name()]).output().expect("it starts"),
    );
    succeeds(run(&["backup", "--data", data.name(), "--to", to.name()]));
    let backup = std::fs::read(to.path().join("backup.rialto")).expect("the backup");
    let mut command = program(&["restore", "--from", "-", "--data", target.name()]);
    command.stdin(Stdio::piped());
    let mut restoring = spawn(command);
    let mut stdin = restoring.0.stdin.take().expect("it is piped");
    stdin.write_all(&backup[..backup.len() / 2]).expect("it reads");
    until("the restore begins", || target.path().join("restore-unfinished").exists());
    interrupt(&restoring);
    let ended = restoring.output();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended));
    let left = format!("interrupted: {} holds an unfinished restore (\"restore-unfinished\")", target.name());
    assert!(stderr(&ended).starts_with(&left) && stdout(&ended).is_empty(), "{}", text(&ended));
    drop(stdin);
    // No command accepts it as a database.
    for arguments in [
        &["check", target.name()][..],
        &["serve", "--listen", "127.0.0.1:0", "--data", target.name()],
        &["backup", "--data", target.name(), "--to", "-"],
        &["bench", "tpcb", "--data", target.name()],
    ] {
        let refused = run(arguments);
        assert_eq!(refused.status.code(), Some(3), "{arguments:?}: {}", text(&refused));
        assert!(stderr(&refused).contains(target.name()), "{arguments:?}: {}", stderr(&refused));
    }
    succeeds(run(&["restore", "--from", to.name(), "--data", target.name()]));
    is_sound(&target);
}

/// Nothing has begun yet: the server accepts the connection and sends nothing.
#[test]
fn a_backup_that_waits_for_its_server_ends_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let running = spawn(program(&["backup", "--connect", &address, "--to", "/nonexistent/rialto"]));
    let mut stream = accepted(&listener);
    let mut first = [0; 8];
    stream.read_exact(&mut first).expect("it begins a session");
    interrupt(&running);
    let ended = running.output();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended));
    assert_eq!(stderr(&ended), "interrupted: no backup was begun\n");
    // The connection ends.
    stream.read_to_end(&mut Vec::new()).expect("it ends");
}

/// A second interrupt does not wait: the server never answers.
#[test]
fn a_second_interrupt_ends_the_program() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let mut running = spawn(program(&["backup", "--connect", &address, "--to", "/nonexistent/rialto"]));
    let mut stream = accepted(&listener);
    // A session begins: its key, and that it is ready.
    stream.write_all(b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x07\0\0\0\x09Z\0\0\0\x05I").expect("it reads");
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"BACKUP TO '/nonexistent/rialto'\0") {
        stream.read_exact(&mut byte).expect("it asks for a backup");
        received.push(byte[0]);
    }
    interrupt(&running);
    let mut lines = running.stderr();
    until_said(&mut lines, "interrupted: the server is asked to give the backup up");
    // The request comes on a connection of its own, with the session's key.
    let mut cancel = accepted(&listener);
    let mut request = [0; 16];
    cancel.read_exact(&mut request).expect("it asks");
    assert_eq!(request, *b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\0\0\0\x09");
    interrupt(&running);
    let (said, code) = rest(running, lines);
    assert_eq!((said.as_str(), code), ("interrupted again: what is half done stays as it is\n", Some(130)));
}
