//! Nodes in one process, which note all that they hear.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rialto_cluster::net::{
    ConnectionId, Direction, Event, Failure, Handler, Links, Member, Options, Security, SendError,
};
use rialto_cluster::protocol::NodeId;

/// The longest wait for something that has to come: longer than a machine stands still. `RIALTO_PATIENCE_S` gives another
/// number of seconds, for runs with bugs put back, in which it may never come.
pub fn patience() -> Duration {
    let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
    Duration::from_secs(seconds.map_or(100, |text| text.parse().expect("a number of seconds")))
}

pub const CLUSTER: u128 = 0x5eed;

/// What a node hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Message { from: NodeId, connection: ConnectionId, payload: Vec<u8> },
    Event(Event),
}

/// What a test does about each event.
pub type OnEvent = Box<dyn FnMut(&Event) + Send>;

/// A node's handler: it notes what it hears.
#[derive(Default)]
pub struct Recorder {
    heard: Mutex<Vec<Heard>>,
    comes: Condvar,
    /// Held by a test while the node takes no message.
    pub stalls: Mutex<()>,
    /// What is called for each event, before it is noted.
    pub on_event: Mutex<Option<OnEvent>>,
}

impl Recorder {
    fn note(&self, heard: Heard) {
        self.heard.lock().expect("no panic").push(heard);
        self.comes.notify_all();
    }

    /// Waits until something was heard.
    pub fn wait<T>(&self, what: &str, look: impl Fn(&[Heard]) -> Option<T>) -> T {
        let until = Instant::now() + patience();
        let mut heard = self.heard.lock().expect("no panic");
        loop {
            if let Some(found) = look(&heard) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            let events = || heard.iter().filter(|heard| matches!(heard, Heard::Event(_))).collect::<Vec<_>>();
            assert!(!left.is_zero(), "{what}: this has not come; the events are {:?}", events());
            heard = self.comes.wait_timeout(heard, left).expect("no panic").0;
        }
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().expect("no panic").clone()
    }

    /// The messages from a node, in the order in which they came.
    pub fn wait_for_messages(&self, from: NodeId, count: usize) -> Vec<Vec<u8>> {
        self.wait("messages", |heard| {
            let messages = heard.iter().filter_map(|heard| match heard {
                Heard::Message { from: sender, payload, .. } if *sender == from => Some(payload.clone()),
                _ => None,
            });
            let messages: Vec<_> = messages.collect();
            (messages.len() >= count).then_some(messages)
        })
    }

    /// Why a connection was turned away, or was not made.
    pub fn wait_for_failure(&self, is_it: impl Fn(&Failure) -> bool) -> Failure {
        self.wait("a failure", |heard| {
            heard.iter().find_map(|heard| match heard {
                Heard::Event(Event::Failed { why, .. } | Event::TurnedAway { why, .. }) if is_it(why) => {
                    Some(why.clone())
                }
                _ => None,
            })
        })
    }
}

impl Handler for Recorder {
    fn message(&self, from: NodeId, connection: ConnectionId, payload: &[u8]) {
        drop(self.stalls.lock().expect("no panic"));
        self.note(Heard::Message { from, connection, payload: payload.to_vec() });
    }

    fn event(&self, event: Event) {
        if let Some(called) = &mut *self.on_event.lock().expect("no panic") {
            called(&event);
        }
        self.note(Heard::Event(event));
    }
}

/// A node.
pub struct Node {
    pub links: Links,
    pub recorder: Arc<Recorder>,
    pub id: NodeId,
    pub name: String,
}

impl Node {
    /// A node with plain connections, and small limits.
    pub fn new(number: u32) -> Node {
        Node::with(number, |_| {})
    }

    /// The same with other options.
    pub fn with(number: u32, change: impl FnOnce(&mut Options)) -> Node {
        Node::handled(number, change, |recorder| recorder)
    }

    /// The same with another handler, which may tell the recorder what it hears.
    pub fn handled<H: Handler + 'static>(
        number: u32,
        change: impl FnOnce(&mut Options),
        handler: impl FnOnce(Arc<Recorder>) -> Arc<H>,
    ) -> Node {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let name = format!("node{number}");
        let mut options = Options::new(CLUSTER, NodeId(number), &name, listen, Security::PlainOnLoopback);
        options.message_max = 64 << 10;
        options.work_room = 256 << 10;
        options.protocol_room = 128 << 10;
        options.blocks_room = 256 << 10;
        options.reconnect_max = Duration::from_millis(50);
        change(&mut options);
        let (id, name) = (options.node, options.name.clone());
        let recorder = Arc::new(Recorder::default());
        let handler = handler(Arc::clone(&recorder));
        let links = Links::open(options, handler).expect("links");
        Node { links, recorder, id, name }
    }

    pub fn member(&self) -> Member {
        self.member_at(self.links.address().to_string())
    }

    /// The node, as it is reached by another address.
    pub fn member_at(&self, address: String) -> Member {
        Member { node: self.id, name: self.name.clone(), address }
    }

    /// Waits until both connections with a node are there.
    pub fn wait_for_links(&self, other: &Node) {
        for direction in [Direction::Outgoing, Direction::Incoming] {
            self.recorder.wait("both connections", |heard| {
                let last = heard.iter().rev().find_map(|heard| match heard {
                    Heard::Event(event) => match event {
                        Event::Began { peer, direction: way, .. }
                            if *peer == other.id && *way == direction =>
                        {
                            Some(true)
                        }
                        Event::Ended { peer, direction: way, .. }
                            if *peer == other.id && *way == direction =>
                        {
                            Some(false)
                        }
                        _ => None,
                    },
                    Heard::Message { .. } => None,
                });
                (last == Some(true)).then_some(())
            });
        }
    }
}

/// Makes nodes know each other, and waits until all are connected.
pub fn connect(nodes: &[&Node]) {
    let members: Vec<Member> = nodes.iter().map(|node| node.member()).collect();
    for node in nodes {
        node.links.set_members(&members).expect("links");
    }
    for node in nodes {
        for other in nodes.iter().filter(|other| other.id != node.id) {
            node.wait_for_links(other);
        }
    }
}

/// Does something on a thread of its own, and waits until it is over.
pub fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(run()));
    ended.recv_timeout(patience()).unwrap_or_else(|error| panic!("{what}: this has not ended ({error})"))
}

/// Looks until something is there.
pub fn patiently<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < patience(), "{what}: this has not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a message, however long its room has to be waited for.
pub fn send(node: &Node, to: NodeId, class: rialto_cluster::net::Class, payload: &[u8]) {
    let began = Instant::now();
    while let Err(error) = node.links.send(to, class, payload) {
        assert_eq!(error, SendError::Full);
        assert!(began.elapsed() < patience(), "no room comes");
        std::thread::sleep(Duration::from_micros(200));
    }
}
