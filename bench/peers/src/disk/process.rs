//! [`Process`]: an engine's process, as the run has it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;

use super::args::DiskArgs;
use super::memory_group::MemoryGroup;
use super::protocol::Request;
use super::table::DiskEngine;
use crate::error::{PeerError, Result};
use crate::step::Killed;

/// SIGKILL: the kernel sends it to a process that needs more memory than its group has.
const KILL: i32 = 9;
/// The C library's allocator, which RocksDB uses, would have an arena for each of many threads, with memory that is free and
/// counts. Other engines use another allocator.
const C_ARENAS: &str = "2";

/// An engine's process in its group. Killed when dropped; the group is gone after that.
pub struct Process {
    engine: DiskEngine,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    // Dropped in this order.
    child: Killed,
    group: MemoryGroup,
}

impl Process {
    /// Starts it in a group of its own. It makes no table before it is asked to.
    ///
    /// # Errors
    /// If there can be no group, or no process.
    pub fn start(engine: DiskEngine, args: &DiskArgs, directory: &Path) -> Result<Process> {
        let failed =
            |cause: String| PeerError::Child { during: format!("starting {}", engine.name()), cause };
        let group = MemoryGroup::new(engine.name(), args.memory_bytes)?;
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["disk", "--engines", engine.name(), "--rows", &args.rows.to_string()]);
        command.args(["--memory-bytes", &args.memory_bytes.to_string()]).arg("--serve").arg(directory);
        command.env("MALLOC_ARENA_MAX", C_ARENAS);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = Killed(command.spawn().map_err(|error| failed(error.to_string()))?);
        group.take_in(child.0.id())?;
        let (Some(requests), Some(answers)) = (child.0.stdin.take(), child.0.stdout.take()) else {
            return Err(failed("it has no standard input and output".to_owned()));
        };
        Ok(Process { engine, requests, answers: BufReader::new(answers), child, group })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If the process ends; it has said why on stderr, unless the kernel has killed it.
    pub fn ask<Answer: DeserializeOwned>(&mut self, request: Request) -> Result<Answer> {
        let mut line = String::new();
        let asked = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        let told = asked.and_then(|()| self.answers.read_line(&mut line));
        let cause = match told {
            Ok(1..) => match serde_json::from_str(line.trim()) {
                Ok(answer) => return Ok(answer),
                Err(problem) => format!("it printed \"{}\": {problem}", line.trim()),
            },
            _ => self.end(),
        };
        Err(PeerError::Child { during: format!("\"{request}\" of {}", self.engine.name()), cause })
    }

    /// How it ended, in words.
    fn end(&mut self) -> String {
        match self.child.0.wait() {
            Ok(status) if status.signal() == Some(KILL) => {
                "it was killed: it needed more memory than its control group has (--memory-bytes)".to_owned()
            }
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Its group.
    pub fn group(&self) -> &MemoryGroup {
        &self.group
    }
}
