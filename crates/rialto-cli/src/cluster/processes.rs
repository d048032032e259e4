//! [`Process`]: a child of a demo, and the end of processes.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::child;
use super::failed::Failed;
use crate::output::tell;

/// How long a process has to end after SIGTERM; then it is killed.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the process is looked at meanwhile.
const POLL: Duration = Duration::from_millis(20);

/// A child process. It is killed when the thread that has started it ends.
pub struct Process {
    pub name: String,
    child: Child,
    has_ended: bool,
}

impl Process {
    /// Starts a program, with its output appended to a file.
    pub fn start(
        name: &str,
        program: &OsStr,
        arguments: &[&OsStr],
        output: &Path,
    ) -> Result<Process, Failed> {
        let opened = OpenOptions::new().append(true).create(true).open(output);
        let file = opened.map_err(|error| Failed::of_file(output, &error))?;
        let copy = file.try_clone().map_err(|error| Failed::of_file(output, &error))?;
        let mut command = child::command(program)?;
        command.args(arguments).stdin(Stdio::null()).stdout(copy).stderr(file);
        let child =
            command.spawn().map_err(|error| Failed::failing(format_args!("starting {name}: {error}")))?;
        Ok(Process { name: name.to_owned(), child, has_ended: false })
    }

    /// How the process has ended, told once.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.has_ended {
            return None;
        }
        // An error cannot come: it is a child, and is waited for here alone.
        let status = self.child.try_wait().ok().flatten()?;
        self.has_ended = true;
        Some(status)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it may still run.
    pub fn runs(&mut self) -> bool {
        let _ = self.ended();
        !self.has_ended
    }
}

/// Ends these processes in order, all at once.
pub fn end_all(processes: &mut [Process]) {
    for process in processes.iter_mut().filter(|process| !process.has_ended) {
        ask_to_end(process.pid());
    }
    let began = Instant::now();
    for process in processes {
        while process.runs() {
            if began.elapsed() > PATIENCE {
                tell(format_args!("{} does not end, and is killed", process.name));
                let _ = process.child.kill();
                let _ = process.child.wait();
                process.has_ended = true;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Ends a process that is no child of this one, and waits until it is gone.
pub fn end_other(name: &str, pid: u32) {
    ask_to_end(pid);
    let began = Instant::now();
    while is_there(pid) {
        if began.elapsed() > PATIENCE {
            tell(format_args!("{name} does not end, and is killed"));
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(POLL);
    }
}

fn ask_to_end(pid: u32) {
    signal(pid, Signal::TERM);
    // One that is stopped ends once it goes on.
    signal(pid, Signal::CONT);
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = known(pid) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

fn is_there(pid: u32) -> bool {
    known(pid).is_some_and(|pid| test_kill_process(pid).is_ok()) && !is_zombie(pid)
}

/// Whether a process has ended, and its parent has not looked at that yet.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
}

fn known(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The program of a name in the directories of PATH, or at a path.
pub fn find_program(name: &Path) -> Result<Option<PathBuf>, Failed> {
    let is_program = |path: &Path| match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_file()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(Failed::of_file(path, &error)),
    };
    if name.components().count() > 1 {
        return Ok(is_program(name)?.then(|| name.to_owned()));
    }
    for directory in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        let path = directory.join(name);
        if is_program(&path).unwrap_or(false) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
