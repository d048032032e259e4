//! The *admin socket* of a node: a Unix socket in the node's directory, for an operator on the same machine. A line of JSON
//! asks ([`AdminRequest`]), a line of JSON answers ([`AdminAnswer`]).
//!
//! Invariants:
//! 1. **Of the operator alone.** The socket has mode 600 before it has its name.
//! 2. **Nothing waits for it.** It has threads of its own, one for each connection, of which there are a few at a time, each
//!    for a short time. A request never waits for a replica: what it begins is seen by asking for the status again.
//! 3. **Dead or silent.** A client tells a process that is gone from one that stands still ([`Reached`]), and never waits
//!    longer than its patience. The pid is that of the process that has made the socket, by the system's word.
//!
//! [`AdminSocket`] is the node's end, [`ask()`] is the operator's. Nodes on other machines are asked through a node of this
//! one ([`AdminRequest::At`], [`AdminRequest::StatusOfAll`]): it sends the request over the nodes' links (`relay.rs`) to the
//! other one, whose admin socket's threads answer. So an operator of one node's machine is one of the whole cluster's.

mod ask;
mod relay;
mod report;
mod socket;

pub use ask::{Reached, ask};
pub(in crate::node) use relay::{Relay, RelayMessage};
pub use report::{
    AdminAnswer, AdminRequest, ConfigurationReport, DecidedReport, NodeReport, PointReport, ReplicaReport,
    UndecidedReport,
};
pub use socket::AdminSocket;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The socket's name in the node's directory.
const SOCKET: &str = "admin.sock";

/// A directory that is open, so that a socket in it has a short path: the system's addresses of sockets have 107 bytes.
struct Opened(File);

impl Opened {
    fn new(directory: &Path) -> std::io::Result<Opened> {
        File::open(directory).map(Opened)
    }

    /// The path of a file in it. It leads there as long as this is open.
    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name)
    }
}
