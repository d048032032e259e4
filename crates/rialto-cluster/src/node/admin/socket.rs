//! [`AdminSocket`]: a node's end of its admin socket.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::report::{AdminAnswer, AdminRequest, NodeReport};
use super::{Opened, SOCKET};
use crate::node::Node;
use crate::protocol::transactions::TransactionId;
use crate::protocol::{NodeId, PartitionId};

/// The longest request, in bytes.
const REQUEST_MAX: u64 = 64 << 10;
/// How long a client has to ask, and to take the answer. The next one waits meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// A node's admin socket, until this is dropped.
pub struct AdminSocket {
    directory: Opened,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminSocket {
    /// Opens the socket in the node's directory. One that an earlier process has left there is replaced: that no other
    /// process runs the node is up to the caller.
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
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = is_closed.clone();
        let thread = std::thread::Builder::new().name("rialto-admin".to_owned()).spawn(move || {
            for connection in listener.incoming() {
                if closed.load(Ordering::Acquire) {
                    return;
                }
                match connection {
                    // A client that has gone hears no answer.
                    Ok(connection) => drop(serve(&connection, &node)),
                    // No file handle is left, or the like.
                    Err(_) => std::thread::sleep(PATIENCE),
                }
            }
        })?;
        Ok(AdminSocket { directory, is_closed, thread: Some(thread) })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        let path = self.directory.path(SOCKET);
        // The thread takes this connection, and ends.
        if UnixStream::connect(&path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic there has told of itself.
            let _ = thread.join();
        }
        let _ = fs::remove_file(path);
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
        Err(error) => AdminAnswer::Refused(format!("this node does not know the request: {error}")),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    (&mut &*connection).write_all(&bytes)
}

fn carry_out(node: &Node, request: &AdminRequest) -> AdminAnswer {
    let replica = |partition: u32| {
        let no = || AdminAnswer::Refused(format!("this node has no replica of partition {partition}"));
        node.replica(PartitionId(partition)).ok_or_else(no)
    };
    let begun = match *request {
        AdminRequest::Status => return AdminAnswer::Status(Box::new(NodeReport::of(node))),
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
