//! The connections of a node with all others.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::{fmt, io};

use parking_lot::{Mutex, RwLock};

use super::bell::Bell;
use super::counters::{Counters, Counts};
use super::event::Handler;
use super::hello::Hello;
use super::incoming;
use super::link::Link;
use super::options::{Options, OptionsError};
use super::queue::{Class, ConnectionId, Room, SendError};
use super::turn::Turn;
use crate::protocol::NodeId;

/// Another node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub node: NodeId,
    /// Its name, for which its certificate is made.
    pub name: String,
    /// Where it takes connections: `host:port`.
    pub address: String,
}

/// The connections of a node with all others: for each of them one that this node writes to and one that it reads, that is
/// `2(n - 1)` in a cluster of `n` nodes.
///
/// Dropping it ends all connections, and waits for their threads; a call of the handler is waited for. Therefore a handler
/// that keeps the links alive keeps them open.
pub struct Links {
    shared: Arc<Shared>,
    address: SocketAddr,
    bell: Arc<Bell>,
    /// The threads that take connections, and that connect and write.
    acceptor: Option<JoinHandle<()>>,
    writers: Mutex<BTreeMap<NodeId, JoinHandle<()>>>,
}

/// What the threads share.
pub(super) struct Shared {
    pub options: Options,
    pub handler: Arc<dyn Handler>,
    pub counters: Counters,
    pub handshakes: AtomicUsize,
    links: RwLock<BTreeMap<NodeId, Arc<Link>>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    connections: AtomicU64,
    is_closed: AtomicBool,
}

/// Why a node's links are not opened.
#[derive(Debug)]
pub enum OpenError {
    /// Its options make no sense, or would leave connections unprotected.
    Options(OptionsError),
    /// It cannot take connections at its address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Options(error) => error.fmt(f),
            OpenError::Listen { address, error } => {
                write!(f, "no connections can be taken at {address}: {error}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl Links {
    /// Begins to take connections; there is no other member yet.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: Options, handler: Arc<dyn Handler>) -> Result<Links, OpenError> {
        options.check().map_err(OpenError::Options)?;
        let address = options.listen;
        let listen = || -> io::Result<(TcpListener, SocketAddr, Arc<Bell>)> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address, Arc::new(Bell::new()?)))
        };
        let (listener, address, bell) = listen().map_err(|error| OpenError::Listen { address, error })?;
        let shared = Arc::new(Shared {
            options,
            handler,
            counters: Counters::default(),
            handshakes: AtomicUsize::new(0),
            links: RwLock::default(),
            readers: Mutex::default(),
            connections: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let (accepting, ringing) = (Arc::clone(&shared), Arc::clone(&bell));
        let acceptor = spawn("accept", move || incoming::accept(&accepting, &listener, &ringing));
        Ok(Links { shared, address, bell, acceptor: Some(acceptor), writers: Mutex::default() })
    }

    /// Where this node takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, the other nodes of the cluster are these. Links with nodes that are not among them any more end, and
    /// links with new ones begin. This node's own entry is passed over.
    ///
    /// # Errors
    /// If the process has no file handle left; the members are then as they were, or some of the new ones are there.
    pub fn set_members(&self, members: &[Member]) -> io::Result<()> {
        let options = &self.shared.options;
        let room = Room {
            work: options.work_room,
            protocol: options.protocol_room,
            message_max: options.message_max,
        };
        let others = members.iter().filter(|member| member.node != options.node);
        // Held to the end, so that two calls do not mix.
        let mut writers = self.writers.lock();
        let mut links = self.shared.links.write();
        links.retain(|_, link| {
            let stays = members.contains(&link.member);
            if !stays {
                link.end();
            }
            stays
        });
        for member in others {
            if links.contains_key(&member.node) {
                continue;
            }
            let link = Arc::new(Link::new(member.clone(), room)?);
            links.insert(member.node, Arc::clone(&link));
            // The end of an earlier link with the same node is told before this one begins.
            let (earlier, shared) = (writers.remove(&member.node), Arc::clone(&self.shared));
            let run = move || {
                earlier.map(JoinHandle::join);
                link.run(&shared);
            };
            writers.insert(member.node, spawn("link", run));
        }
        Ok(())
    }

    /// Queues a message for a node. It never blocks.
    ///
    /// # Errors
    /// See [`SendError`]. A message that is queued comes, unless the end of the connection is told.
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        let sent = match self.shared.link(to) {
            Some(link) => link.queue.send(class, payload, &self.shared.counters),
            None => Err(SendError::NotAMember),
        };
        self.shared.counted(sent)
    }

    /// A turn for one thread, which may use it again and again: what it sends to one node goes by one write.
    pub fn turn(&self) -> Turn<'_> {
        Turn::new(&self.shared)
    }

    /// What all connections have done.
    pub fn counts(&self) -> Counts {
        self.shared.counters.now()
    }

    /// The number of connections that there are now: `2(n - 1)` once all nodes are connected, and never more.
    pub fn connections(&self) -> usize {
        let links = self.shared.links.read();
        let connections = links.values().map(|link| link.connections()).sum();
        assert!(connections <= 2 * links.len(), "one connection a direction and node");
        connections
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.bell.ring();
        for link in self.shared.links.read().values() {
            link.end();
        }
        // A thread that has panicked has said so.
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for (_, writer) in std::mem::take(&mut *self.writers.lock()) {
            let _ = writer.join();
        }
        let readers = std::mem::take(&mut *self.shared.readers.lock());
        for reader in readers {
            let _ = reader.join();
        }
    }
}

impl Shared {
    pub(super) fn link(&self, node: NodeId) -> Option<Arc<Link>> {
        self.links.read().get(&node).cloned()
    }

    pub(super) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// What this node says of itself to another one.
    pub(super) fn hello(&self, to: NodeId) -> Hello {
        let options = &self.options;
        Hello {
            cluster: options.cluster,
            node: options.node,
            versions: options.versions,
            to,
            life: options.life,
            name: options.name.clone(),
        }
    }

    pub(super) fn counted<T>(&self, sent: Result<T, SendError>) -> Result<T, SendError> {
        if sent.as_ref().err() == Some(&SendError::Full) {
            self.counters.messages_refused.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    pub(super) fn spawn_reader(&self, run: impl FnOnce() + Send + 'static) {
        let mut readers = self.readers.lock();
        readers.retain(|reader| !reader.is_finished());
        readers.push(spawn("read", run));
    }
}

fn spawn(what: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = std::thread::Builder::new().name(format!("rialto-{what}"));
    thread.spawn(run).expect("a thread for a connection")
}
