//! [`Child`]: a node, as the parent sees it.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rialto_measure::{RunError, interrupt};

use super::failed;
use super::meeting::Meeting;
use crate::namespaces::Networks;
use crate::node::{self, WithoutParent};
use crate::priority;
use crate::spec::{Nodes, Spec};
use crate::wire::{Answer, Order, send};

/// How often the parent looks whether it is to end, or a node has ended.
const POLL: Duration = Duration::from_millis(200);

/// What runs the node.
enum Body {
    Process(process::Child),
    Thread(JoinHandle<Result<(), String>>),
}

/// A node that was started. It ends when this is dropped.
pub struct Child {
    node: u32,
    body: Option<Body>,
    stream: Option<BufReader<UnixStream>>,
}

impl Child {
    /// Starts a node; it connects later.
    ///
    /// # Errors
    /// The program does not start.
    pub fn spawn(
        spec: &Spec,
        node: u32,
        meeting: &Meeting,
        networks: Option<&Networks>,
        is_real_time: bool,
    ) -> Result<Child, RunError> {
        let body = match &spec.nodes {
            Nodes::Alone => return Err(failed("starting a node", "a database without a cluster has none")),
            Nodes::Threads => {
                let parent = meeting.path().to_owned();
                Body::Thread(thread::spawn(move || node::run(&parent, node, WithoutParent::Return)))
            }
            Nodes::Processes { program, words } => {
                let mut command = match is_real_time {
                    true => priority::with_real_time(program),
                    false => Command::new(program),
                };
                command.args(words).arg(node.to_string()).arg(meeting.path());
                // A ^C at a terminal is for the parent alone, which ends the nodes.
                command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
                let mut spawn = || command.spawn().map_err(|error| format!("{}: {error}", program.display()));
                let spawned = match networks {
                    Some(networks) => networks.in_node(node, spawn),
                    None => spawn(),
                };
                Body::Process(spawned.map_err(|why| failed("starting a node", why))?)
            }
        };
        Ok(Child { node, body: Some(body), stream: None })
    }

    /// Waits until it has connected.
    ///
    /// # Errors
    /// It has ended, or the run is interrupted.
    pub fn connect(&mut self, meeting: &Meeting) -> Result<(), RunError> {
        loop {
            if let Some(stream) = meeting.node(self.node, POLL) {
                stream.set_read_timeout(Some(POLL)).map_err(|error| self.gone(&error))?;
                self.stream = Some(BufReader::new(stream));
                return Ok(());
            }
            self.check()?;
        }
    }

    /// Gives it an order.
    ///
    /// # Errors
    /// It has ended.
    pub fn send(&mut self, order: &Order) -> Result<(), RunError> {
        let sent = send(self.stream.as_mut().expect("it has connected").get_mut(), order);
        sent.map_err(|error| self.gone(&error))
    }

    /// Waits for its answer.
    ///
    /// # Errors
    /// It has failed or ended, or the run is interrupted.
    pub fn answer(&mut self) -> Result<Answer, RunError> {
        let mut line = Vec::new();
        loop {
            // What has come before the time is over stays in the line.
            match self.stream.as_mut().expect("it has connected").read_until(b'\n', &mut line) {
                Ok(0) => return Err(self.gone(&"it has ended")),
                Ok(_) => break,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.check()?
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.gone(&error)),
            }
        }
        match serde_json::from_slice(&line).map_err(|error| self.gone(&error))? {
            Answer::Failed(why) => Err(failed("running the nodes", why)),
            answer => Ok(answer),
        }
    }

    /// Whether the run goes on, and the node runs.
    fn check(&mut self) -> Result<(), RunError> {
        interrupt::check()?;
        let ended = match &mut self.body {
            Some(Body::Process(child)) => child.try_wait().ok().flatten().map(|status| status.to_string()),
            Some(Body::Thread(thread)) if thread.is_finished() => Some("its thread has ended".to_owned()),
            _ => None,
        };
        ended.map_or(Ok(()), |how| Err(self.gone(&how)))
    }

    /// The node has ended; or the run was interrupted, and that may be why.
    fn gone(&self, why: &dyn std::fmt::Display) -> RunError {
        if let Err(interrupted) = interrupt::check() {
            return interrupted;
        }
        failed("running the nodes", format!("node {}: {why}", self.node))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A thread sees the end of its orders.
        if let Some(stream) = self.stream.take() {
            let _ = stream.get_ref().shutdown(std::net::Shutdown::Both);
        }
        match self.body.take() {
            Some(Body::Process(mut child)) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Some(Body::Thread(thread)) => {
                // Its errors were answers.
                let _ = thread.join();
            }
            None => {}
        }
    }
}
