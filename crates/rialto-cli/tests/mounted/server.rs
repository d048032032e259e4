//! The real program, as a process on a machine that can be restarted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rialto::GroupCommitDesign;
use rialto::io::Random;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::client::Client;
use crate::killer;

/// Longer than a server takes to begin or to end, and any other program to run, on any machine: a program that takes
/// longer hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// The options of the server.
#[derive(Debug, Clone, Default)]
pub struct Settings(pub Vec<String>);

impl Settings {
    pub fn any(random: &mut Random) -> Settings {
        let mut words = Vec::new();
        let mut add = |name: &str, values: &[&str]| {
            let value = values.get(random.below(values.len() as u64 + 1) as usize);
            words.extend(value.into_iter().flat_map(|value| [name.to_owned(), (*value).to_owned()]));
            value.is_some()
        };
        add("--log-bytes-max", &["1048576", "1048576", "2097152", "67108864"]);
        add("--log-writes", &["direct", "direct-sync", "buffered"]);
        add("--log-writes-in-flight", &["1", "2", "3"]);
        if add("--engine", &["data-oriented"]) {
            add("--executors", &["1", "2", "7", "500"]);
        }
        add("--group-commit", &GroupCommitDesign::ALL.map(GroupCommitDesign::name));
        add("--group-max", &["1", "3"]);
        add("--backup-copies", &["3"]);
        add("--recovery-within-s", &["0.2"]);
        Settings(words)
    }

    /// The same with these words added.
    pub fn and(mut self, words: &[String]) -> Settings {
        self.0.extend_from_slice(words);
        self
    }

    pub fn has_small_log(&self) -> bool {
        let is_small = |bytes: &str| bytes.parse::<u64>().is_ok_and(|bytes| bytes <= 2 << 20);
        self.0.windows(2).any(|two| two[0] == "--log-bytes-max" && is_small(&two[1]))
    }

    pub fn is_data_oriented(&self) -> bool {
        self.0.iter().any(|word| word == "data-oriented")
    }
}

/// The boot number of a machine, in a file that the server reads in place of the kernel's.
#[derive(Debug)]
pub struct Boot(PathBuf);

impl Boot {
    pub fn new(path: PathBuf, random: &mut Random) -> Boot {
        let boot = Boot(path);
        boot.renew(random);
        boot
    }

    /// The machine starts again.
    pub fn renew(&self, random: &mut Random) {
        let (high, low) = (random.next(), random.next());
        let text = format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}\n",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        );
        fs::write(&self.0, text).expect("the scratch directory takes a file");
    }
}

/// How a server ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// Its stderr.
    pub said: String,
}

impl Ended {
    pub fn by_signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// A running server; it is killed when this is dropped.
pub struct Server {
    /// Its process, which is waited for when it has ended.
    child: Child,
    number: u32,
    pub address: String,
    said: PathBuf,
}

impl Server {
    /// Starts `rialto serve` on a directory. If it does not come to serve, gives its end.
    ///
    /// It reads `boot` as the number of the machine's boot: the ring of its log, which is memory of the machine, is
    /// valid only for that boot.
    pub fn start(
        data: &Path,
        settings: &Settings,
        boot: &Boot,
        said: PathBuf,
        is_born: impl FnOnce(u32),
    ) -> Result<Server, Ended> {
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(&boot.0)
            .arg(env!("CARGO_BIN_EXE_rialto"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(&settings.0)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&said).expect("the scratch directory takes a file"))
            .spawn()
            .expect("unshare of util-linux runs");
        is_born(child.id());
        let line = first_line(&mut child, &said);
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("tcp="));
        let Some(address) = address.map(str::to_owned) else {
            let status = wait(&mut child, &said);
            return Err(Ended { status, said: heard(&said) });
        };
        let number = child.id();
        Ok(Server { child, number, address, said })
    }

    pub fn process(&self) -> u32 {
        self.number
    }

    pub fn connect(&self, about: &str) -> Client {
        Client::connect(&self.address)
            .unwrap_or_else(|error| panic!("{about}: {error}, {}", heard(&self.said)))
    }

    /// Whether it still runs. It is not waited for, so its process number stays its own.
    pub fn runs(&self) -> bool {
        let pid = Pid::from_raw(self.number as i32).expect("a child's number is positive");
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), options).expect("it is our child").is_none()
    }

    /// Whether the kernel keeps one of its threads: the thread waits in a call or a page fault that no signal interrupts, or
    /// runs in one, all the time between two looks.
    pub fn is_in_kernel(&self) -> bool {
        let before = threads_in_kernel(self.number);
        thread::sleep(Duration::from_secs(1));
        let now = threads_in_kernel(self.number);
        let is_kept = |thread: &InKernel| {
            let same = before.iter().find(|earlier| earlier.thread == thread.thread);
            same.is_some_and(|earlier| {
                let waits = earlier.waits && thread.waits;
                waits || thread.system - earlier.system >= LOOK_TICKS / 2
            })
        };
        now.iter().any(is_kept)
    }

    /// Kills it, if it still runs.
    pub fn kill(&self) {
        if self.runs() {
            killer::kill(self.number);
        }
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        if self.runs() {
            let asked = Command::new("kill").args(["-TERM", &self.number.to_string()]).status();
            asked.expect("kill runs");
        }
    }

    /// Waits for its end. No server panics, however it ends, and none has found a damaged copy or a loss, of which it
    /// would warn. On a slow machine it may warn that a recovery takes longer than it was asked to.
    pub fn ended(mut self, about: &str) -> Ended {
        let status = wait(&mut self.child, &self.said);
        let said = heard(&self.said);
        let warns = |line: &str| line.contains("warning:") && !line.contains("recovery within");
        assert!(!said.contains("panicked") && !said.lines().any(warns), "{about}: {said}");
        Ended { status, said }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line that a server writes to stdout; nothing if it ends before.
fn first_line(child: &mut Child, said: &Path) -> String {
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let (told, line) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line comes, or the end");
        // The receiver is gone if that took too long.
        let _ = told.send(line);
    });
    line.recv_timeout(PATIENCE).unwrap_or_else(|_| hangs(child, "does not begin", said))
}

/// Waits for a program's end.
fn wait(child: &mut Child, said: &Path) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status;
        }
        if Instant::now() > until {
            hangs(child, "does not end", said);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Fails: a program hangs at its beginning or its end. The failure says where its threads are.
fn hangs(child: &mut Child, what: &str, said: &Path) -> ! {
    let threads = where_threads_are(child.id());
    let _ = child.kill();
    let _ = child.wait();
    panic!("the program {what} in {PATIENCE:?}: {}\nits threads: {threads}", heard(said));
}

/// The clock ticks of a second, in which `/proc` counts the time of threads.
const LOOK_TICKS: u64 = 100;

/// What `/proc` says of a thread.
struct InKernel {
    thread: PathBuf,
    /// It waits, and no signal interrupts it.
    waits: bool,
    /// The ticks that it has run in the kernel.
    system: u64,
}

/// The directories of a process's threads.
fn threads(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

fn threads_in_kernel(process: u32) -> Vec<InKernel> {
    let look = |thread: PathBuf| {
        let stat = fs::read_to_string(thread.join("stat")).ok()?;
        // The name before them may have blanks.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some(InKernel { thread, waits: fields[0] == "D", system: fields[12].parse().ok()? })
    };
    threads(process).into_iter().filter_map(look).collect()
}

/// The name, the state and the kernel's calls of each thread.
fn where_threads_are(process: u32) -> String {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let tell = |thread: PathBuf| {
        let stat = read(thread.join("stat"));
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| &rest[..1]);
        let calls = read(thread.join("stack")).replace('\n', ", ");
        format!("{} {state} {calls}", read(thread.join("comm")).trim())
    };
    threads(process).into_iter().map(tell).collect::<Vec<_>>().join("; ")
}

fn heard(said: &Path) -> String {
    String::from_utf8_lossy(&fs::read(said).unwrap_or_default()).into_owned()
}

/// `rialto check` of a directory without a server finds it sound. Its output goes to a file.
pub fn check(data: &Path, said: &Path, about: &str) {
    let (status, text) = rialto(Command::new(env!("CARGO_BIN_EXE_rialto")).arg("check").arg(data), said);
    assert_eq!(status.code(), Some(0), "{about}: {text}");
}

/// `rialto restore` of a backup to a new directory, with these options. Gives its output, or the error of options that
/// it cannot follow.
pub fn restore(
    backup: &Path,
    data: &Path,
    words: &[String],
    said: &Path,
    about: &str,
) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rialto"));
    command.arg("restore").args(words).arg("--from").arg(backup).arg("--data").arg(data);
    match rialto(&mut command, said) {
        (status, text) if status.code() == Some(0) => Ok(text),
        (status, text) if status.code() == Some(3) => Err(text),
        (status, text) => panic!("{about}: {status}, {words:?}: {text}"),
    }
}

/// Runs the program to its end, which has to come. Gives its output.
fn rialto(command: &mut Command, said: &Path) -> (ExitStatus, String) {
    let output = fs::File::create(said).expect("the scratch directory takes a file");
    let errors = output.try_clone().expect("a file has two handles");
    let mut child = command.stdout(output).stderr(errors).spawn().expect("it runs");
    let status = wait(&mut child, said);
    (status, heard(said))
}
