//! [`AdminSocket`]: a node's end of its admin socket.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::report::{AdminAnswer, AdminRequest, NodeReport};
use super::{Opened, SOCKET, relay};
use crate::node::Node;
use crate::protocol::transactions::TransactionId;
use crate::protocol::{NodeId, PartitionId};

/// The longest request, in bytes.
const REQUEST_MAX: u64 = 64 << 10;
/// How long a client has to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The clients that are answered at a time. Further ones wait.
const AT_A_TIME: usize = 16;
/// How often the listening thread looks whether one of them has gone.
const POLL_AGAIN: Duration = Duration::from_millis(10);

/// A node's admin socket, until this is dropped. It also answers what operators ask through other nodes.
pub struct AdminSocket {
    directory: Opened,
    node: Arc<Node>,
    is_closed: Arc<AtomicBool>,
    relaying: Option<JoinHandle<()>>,
    listening: Option<JoinHandle<()>>,
}

impl AdminSocket {
    /// Opens the socket in the node's directory. One that an earlier process has left there is replaced: that no other
    /// process runs the node is up to the caller. A node has one admin socket at a time.
    ///
    /// # Errors
    /// Those of the file system, and if no thread can start.
    pub fn open(directory: &Path, node: Arc<Node>) -> io::Result<AdminSocket> {
        let directory = Opened::new(directory)?;
        let (new, path) = (directory.path("admin.new"), directory.path(SOCKET));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, &path)?;
        node.relay().begin();
        let is_closed = Arc::new(AtomicBool::new(false));
        let mut socket = AdminSocket {
            directory,
            node: node.clone(),
            is_closed: is_closed.clone(),
            relaying: None,
            listening: None,
        };
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let relays = node.clone();
        socket.relaying = Some(named("rialto-relay").spawn(move || answer_others(&relays))?);
        socket.listening = Some(named("rialto-admin").spawn(move || listen(&listener, &node, &is_closed))?);
        Ok(socket)
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        self.node.relay().end();
        let path = self.directory.path(SOCKET);
        // The listening thread takes this connection, and ends.
        let is_told = UnixStream::connect(&path).is_ok();
        let listening = self.listening.take().filter(|_| is_told);
        for thread in self.relaying.take().into_iter().chain(listening) {
            // A panic there has told of itself.
            let _ = thread.join();
        }
        let _ = fs::remove_file(path);
    }
}

/// A client that is being answered, as one of a number.
struct Served<'a>(&'a AtomicUsize);

impl<'a> Served<'a> {
    fn begin(number: &'a AtomicUsize) -> Served<'a> {
        number.fetch_add(1, Ordering::AcqRel);
        Served(number)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers clients, each on a thread of its own: one that asks for another node may have to wait for that.
fn listen(listener: &UnixListener, node: &Node, is_closed: &AtomicBool) {
    let number = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for connection in listener.incoming() {
            if is_closed.load(Ordering::Acquire) {
                return;
            }
            let Ok(connection) = connection else {
                // No file handle is left, or the like.
                std::thread::sleep(PATIENCE);
                continue;
            };
            while number.load(Ordering::Acquire) >= AT_A_TIME {
                std::thread::sleep(POLL_AGAIN);
            }
            let served = Served::begin(&number);
            let serve = move || {
                let _served = served;
                // A client that has gone hears no answer.
                let _ = serve(&connection, node);
            };
            let thread = std::thread::Builder::new().name("rialto-operator".to_owned());
            // Without a thread the client finds its connection closed.
            let _ = thread.spawn_scoped(threads, serve);
        }
    });
}

/// Answers what operators ask through other nodes, until the socket is closed.
fn answer_others(node: &Node) {
    while let Some(asked) = node.relay().next_asked() {
        let answer = match serde_json::from_slice(&asked.request) {
            Ok(
                AdminRequest::At { .. }
                | AdminRequest::StatusOfAll
                | AdminRequest::Backup { .. }
                | AdminRequest::BackupStatus,
            ) => AdminAnswer::Refused("a node does this only for an operator on its own machine".to_owned()),
            Ok(request) => carry_out(node, &request),
            Err(error) => unknown(&error),
        };
        node.relay().answer(&asked, &answer);
    }
}

fn serve(connection: &UnixStream, node: &Node) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(connection.take(REQUEST_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        // A client that only wanted to know whether there is a process.
        return Ok(());
    }
    let answer = match serde_json::from_str(&line) {
        Ok(request) => carry_out(node, &request),
        Err(error) => unknown(&error),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    (&mut &*connection).write_all(&bytes)
}

fn unknown(error: &serde_json::Error) -> AdminAnswer {
    AdminAnswer::Refused(format!("this node does not know the request: {error}"))
}

/// Asks another node.
fn ask_other(node: &Node, to: NodeId, request: &AdminRequest) -> AdminAnswer {
    let until = Instant::now() + relay::PATIENCE;
    let answer = node.relay().send(to, request, until).and_then(|pending| pending.answer(until));
    answer.unwrap_or_else(|why| AdminAnswer::Unreached(why.to_string()))
}

/// The status of this node, and of all others that answer. All are asked at once.
fn status_of_all(node: &Node) -> Vec<NodeReport> {
    let until = Instant::now() + relay::PATIENCE;
    let others = node.nodes().into_iter().map(|other| NodeId(other.node)).filter(|other| *other != node.id());
    let asked: Vec<_> =
        others.filter_map(|other| node.relay().send(other, &AdminRequest::Status, until).ok()).collect();
    let mut all = vec![NodeReport::of(node)];
    for pending in asked {
        if let Ok(AdminAnswer::Status(report)) = pending.answer(until) {
            all.push(*report);
        }
    }
    all
}

fn carry_out(node: &Node, request: &AdminRequest) -> AdminAnswer {
    let replica = |partition: u32| {
        let no = || AdminAnswer::Refused(format!("this node has no replica of partition {partition}"));
        node.replica(PartitionId(partition)).ok_or_else(no)
    };
    let begun = match *request {
        AdminRequest::Status => return AdminAnswer::Status(Box::new(NodeReport::of(node))),
        AdminRequest::StatusOfAll => return AdminAnswer::StatusOfAll(status_of_all(node)),
        AdminRequest::At { node: to, ref request } if NodeId(to) == node.id() => {
            return carry_out(node, request);
        }
        AdminRequest::At { node: to, ref request } => return ask_other(node, NodeId(to), request),
        AdminRequest::Switchover { partition, to } => {
            replica(partition).map(|replica| replica.switch_over(NodeId(to)))
        }
        AdminRequest::Force { partition, ref without } => {
            replica(partition).map(|replica| replica.force(without.iter().copied().map(NodeId).collect()))
        }
        AdminRequest::Decide { partition, ref transaction, decision } => {
            let named =
                transaction.parse::<TransactionId>().map_err(|error| format!("{transaction}: {error}"));
            let decided = named
                .and_then(|id| node.transactions().operator_decides(PartitionId(partition), id, decision));
            decided.map_err(AdminAnswer::Refused)
        }
        AdminRequest::Knows { ref transaction } => match transaction.parse::<TransactionId>() {
            Ok(id) => return AdminAnswer::Knows(node.transactions().has(id)),
            Err(error) => Err(AdminAnswer::Refused(format!("{transaction}: {error}"))),
        },
        AdminRequest::Backup { ref to } => {
            let begun = node.begin_backup(to);
            return begun.map_or_else(AdminAnswer::Refused, AdminAnswer::BackupBegun);
        }
        AdminRequest::Compare => {
            let begun = node.begin_comparison();
            return begun.map_or_else(AdminAnswer::Refused, AdminAnswer::ComparisonBegun);
        }
        AdminRequest::ComparisonStatus => return AdminAnswer::Comparison(node.comparison_status()),
        AdminRequest::BackupStatus => return AdminAnswer::Backup(node.backup_status()),
    };
    begun.map_or_else(|refused| refused, |()| AdminAnswer::Begun)
}
