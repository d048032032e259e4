//! The connections of a node with all others.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::{fmt, io};

use parking_lot::{Mutex, RwLock};

use super::bell::Bell;
use super::counters::{Counters, Counts};
use super::event::{Event, Handler};
use super::handshakes::Handshakes;
use super::hello::Hello;
use super::incoming;
use super::lanes::Class;
use super::link::Link;
use super::options::{Options, OptionsError};
use super::queue::{ConnectionId, SendError};
use super::thread::LinksId;
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
/// Dropping it ends all connections and handshakes at once, and waits for their threads; a call of the handler is
/// waited for. If a call of the handler drops it, the drop waits for nothing. A handler that keeps the links alive
/// keeps them open.
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
    pub counters: Counters,
    pub handshakes: Handshakes,
    id: LinksId,
    handler: Arc<dyn Handler>,
    links: RwLock<BTreeMap<NodeId, Arc<Link>>>,
    /// What the reader of each node's connection holds ([`Entrance`](super::link::Entrance)), also while the node is no
    /// member.
    readings: Mutex<BTreeMap<NodeId, Arc<Mutex<()>>>>,
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
            counters: Counters::default(),
            handshakes: Handshakes::default(),
            id: LinksId::next(),
            handler,
            links: RwLock::default(),
            readings: Mutex::default(),
            readers: Mutex::default(),
            connections: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let (accepting, ringing) = (Arc::clone(&shared), Arc::clone(&bell));
        let acceptor = shared
            .id
            .spawn("accept", move || incoming::accept(&accepting, &listener, &ringing))
            .map_err(|error| OpenError::Listen { address, error })?;
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
    /// If the process has no file handle or no thread left; the members are then as they were.
    pub fn set_members(&self, members: &[Member]) -> io::Result<()> {
        let options = &self.shared.options;
        // Held to the end, so that two calls do not mix.
        let mut writers = self.writers.lock();
        let stays = |link: &Link| members.contains(&link.member);
        // What may fail comes first. The threads of new links wait until the earlier links are over.
        let mut new: BTreeMap<NodeId, Beginning> = BTreeMap::new();
        for member in members.iter().filter(|member| member.node != options.node) {
            let is_there = self.shared.link(member.node).is_some_and(|link| stays(&link));
            if !is_there && !new.contains_key(&member.node) {
                new.insert(member.node, self.shared.begin(member.clone())?);
            }
        }
        let mut links = self.shared.links.write();
        links.retain(|_, link| {
            let stays = stays(link);
            if !stays {
                link.end();
            }
            stays
        });
        for (node, Beginning { link, thread, earlier }) in new {
            links.insert(node, link);
            // It waits for that, and for nothing else.
            let _ = earlier.send(writers.insert(node, thread));
        }
        Ok(())
    }

    /// Queues a message for a node. It never blocks.
    ///
    /// # Errors
    /// See [`SendError`]. A message that is queued comes, unless the end of the connection is told.
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        let sent = match self.shared.link(to) {
            Some(link) => link.send(class, payload, &self.shared.counters),
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
        self.shared.handshakes.close();
        for link in self.shared.links.read().values() {
            link.end();
        }
        // One of the threads cannot wait for itself, nor for another one that waits for it.
        if self.shared.id.is_on_own_thread() {
            return;
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

/// A link with a new member, whose thread waits for the one of an earlier link with the same node.
struct Beginning {
    link: Arc<Link>,
    thread: JoinHandle<()>,
    earlier: mpsc::Sender<Option<JoinHandle<()>>>,
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

    /// Calls the handler.
    ///
    /// # Errors
    /// The call has panicked: what it has said.
    pub(super) fn call(&self, call: impl FnOnce(&dyn Handler)) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| call(&*self.handler))).map_err(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            format!("this node's handler has panicked: {}", text.unwrap_or("without a word"))
        })
    }

    /// Tells the handler something after which no more is told of the connection.
    pub(super) fn tell(&self, event: Event) {
        // A panic has said so, and there is no connection left that it could end.
        let _ = self.call(|handler| handler.event(event));
    }

    fn begin(self: &Arc<Shared>, member: Member) -> io::Result<Beginning> {
        let reading = match rialto::fault_injection::is_on("newer-links-begin-beside-older-ends") {
            true => Arc::default(),
            false => Arc::clone(self.readings.lock().entry(member.node).or_default()),
        };
        let link = Arc::new(Link::new(member, self.options.room(), reading)?);
        let (earlier, waits) = mpsc::channel::<Option<JoinHandle<()>>>();
        let (running, shared) = (Arc::clone(&link), Arc::clone(self));
        let thread = self.id.spawn("link", move || {
            // Without an answer the link does not begin.
            let Ok(earlier) = waits.recv() else { return };
            // The end of an earlier link with the same node is told before this one begins.
            earlier.map(JoinHandle::join);
            running.run(&shared);
        })?;
        Ok(Beginning { link, thread, earlier })
    }

    pub(super) fn spawn_reader(&self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut readers = self.readers.lock();
        readers.retain(|reader| !reader.is_finished());
        readers.push(self.id.spawn("read", run)?);
        Ok(())
    }
}
