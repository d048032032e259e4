//! What handlers may do: take their time while members change, panic, and drop the links.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rialto_cluster::net::{Class, ConnectionId, Direction, Event, Handler, Links, Options, Security};
use rialto_cluster::protocol::NodeId;

use crate::cuts::assert_events_alternate;
use crate::nodes::{CLUSTER, Heard, Node, Recorder, connect, patience, patiently};
use crate::proxy::Proxy;

/// A node has another address from now on, while a message of its earlier connection is still being handled: the earlier
/// connection's end is told before the later one begins.
#[test]
fn the_end_of_an_older_link_is_told_before_the_beginning_of_a_newer_one_with_the_same_node() {
    let (one, two) = (Node::new(1), Node::new(2));
    connect(&[&one, &two]);
    let proxy = Proxy::before(one.links.address());
    for round in 0..4 {
        let stalled = two.recorder.stalls.lock().expect("no panic");
        let before = two.links.counts().messages_received;
        one.links.send(two.id, Class::Work, b"takes its time").expect("a connection");
        let is_taken = || two.links.counts().messages_received > before;
        patiently("the message", || is_taken().then_some(()));
        // Now by the proxy, now without it.
        let member = match round % 2 {
            0 => one.member_at(proxy.address().to_string()),
            _ => one.member(),
        };
        two.links.set_members(&[member]).expect("links");
        patiently("both connections", || (two.links.connections() == 2).then_some(()));
        // If the newer connection told its beginning now, it would have the time to do so.
        std::thread::sleep(Duration::from_millis(100));
        drop(stalled);
        two.recorder.wait("the newer connection", |heard| {
            let began = |heard: &&Heard| {
                matches!(heard, Heard::Event(Event::Began { direction: Direction::Incoming, .. }))
            };
            (heard.iter().filter(began).count() >= round + 2).then_some(())
        });
        // The other node has told the end of its older connection before.
        one.wait_for_links(&two);
        two.wait_for_links(&one);
        assert_events_alternate(&two);
        assert_events_alternate(&one);
    }
}

/// A handler that panics at the first beginning of each direction, and at some messages.
struct Panics {
    recorder: Arc<Recorder>,
    beginnings: [AtomicUsize; 2],
}

impl Handler for Panics {
    fn message(&self, from: NodeId, connection: ConnectionId, payload: &[u8]) {
        assert_ne!(payload, b"panic", "the test asks for it");
        self.recorder.message(from, connection, payload);
    }

    fn event(&self, event: Event) {
        self.recorder.event(event.clone());
        match event {
            Event::Began { direction, .. } => {
                let first = self.beginnings[direction as usize].fetch_add(1, Ordering::SeqCst) == 0;
                assert!(!first, "the test asks for it");
            }
            Event::Ended { why, .. } => {
                assert!(!why.contains("asks for it"), "the test asks for it at an end, too");
            }
            Event::Failed { .. } | Event::TurnedAway { .. } => panic!("the test asks for it at a failure"),
        }
    }
}

#[test]
fn a_panic_of_a_handler_ends_its_connection_and_the_node_goes_on() {
    let one = Node::new(1);
    let two = Node::handled(
        2,
        |_| {},
        |recorder| Arc::new(Panics { recorder, beginnings: [const { AtomicUsize::new(0) }; 2] }),
    );
    // It is turned away first, as no member yet, and tries again.
    one.links.set_members(&[two.member()]).expect("links");
    two.recorder.wait_for_failure(|why| why.to_string().contains("no member"));
    two.links.set_members(&[one.member()]).expect("links");
    let panics = |direction: Direction, count: usize| {
        two.recorder.wait("the end by a panic", |heard| {
            let ended = heard.iter().filter(|heard| {
                matches!(heard, Heard::Event(Event::Ended { direction: way, why, .. })
                    if *way == direction && why.contains("handler has panicked"))
            });
            (ended.count() >= count).then_some(())
        });
    };
    panics(Direction::Incoming, 1);
    panics(Direction::Outgoing, 1);
    for round in 2..4 {
        // A message may be lost with a connection whose end the sender has not heard of yet.
        patiently("the end by a panic", || {
            let _ = one.links.send(two.id, Class::Work, b"panic");
            let is_end = |heard: &&Heard| {
                matches!(heard, Heard::Event(Event::Ended { direction: Direction::Incoming, why, .. })
                    if why.contains("handler has panicked"))
            };
            (two.recorder.heard().iter().filter(is_end).count() >= round).then_some(())
        });
    }
    let is_back = || {
        let _ = one.links.send(two.id, Class::Work, b"no panic");
        two.recorder.heard().iter().any(|heard| matches!(heard, Heard::Message { .. }))
    };
    patiently("a message", || is_back().then_some(()));
    patiently("a message", || two.links.send(one.id, Class::Work, b"back").ok());
    one.recorder.wait_for_messages(two.id, 1);
    assert_events_alternate(&two);
}

/// A handler that has the only handle of the node's links, and drops it at a message or at an event.
struct Drops {
    links: Mutex<Option<Links>>,
    at: At,
    dropped: mpsc::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Message,
    Outgoing,
    TurnedAway,
}

impl Drops {
    fn drop_links(&self) {
        drop(self.links.lock().expect("no panic").take());
        self.dropped.send(()).expect("the test waits");
    }
}

impl Handler for Drops {
    fn message(&self, _: NodeId, _: ConnectionId, _: &[u8]) {
        if self.at == At::Message {
            self.drop_links();
        }
    }

    fn event(&self, event: Event) {
        let is_it = match event {
            Event::Ended { direction: Direction::Outgoing, .. } => self.at == At::Outgoing,
            Event::TurnedAway { .. } => self.at == At::TurnedAway,
            _ => false,
        };
        if is_it && self.links.lock().expect("no panic").is_some() {
            self.drop_links();
        }
    }
}

#[test]
fn links_may_be_dropped_on_a_thread_of_their_own() {
    for at in [At::Message, At::Outgoing, At::TurnedAway] {
        let mut one = Node::new(1);
        let (dropped, has_dropped) = mpsc::channel();
        let handler = Arc::new(Drops { links: Mutex::default(), at, dropped });
        let listen = "127.0.0.1:0".parse().expect("an address");
        let options = Options::new(CLUSTER, NodeId(2), "node2", listen, Security::PlainOnLoopback);
        let links = Links::open(options, Arc::clone(&handler) as Arc<dyn Handler>).expect("links");
        let address = links.address();
        let two = rialto_cluster::net::Member {
            node: NodeId(2),
            name: "node2".to_owned(),
            address: address.to_string(),
        };
        links.set_members(&[one.member()]).expect("links");
        *handler.links.lock().expect("no panic") = Some(links);
        one.links.set_members(&[two]).expect("links");
        patiently("the message", || one.links.send(NodeId(2), Class::Work, b"drop").ok());
        match at {
            At::Message => {}
            At::Outgoing => {
                patiently("both connections", || (one.links.connections() == 2).then_some(()));
                // The other node hears the end of its outgoing connection.
                one = Node::new(1);
            }
            At::TurnedAway => {
                use std::io::Write;
                let mut stranger = std::net::TcpStream::connect(address).expect("a connection");
                stranger.write_all(b"no frame").expect("it is written");
            }
        }
        has_dropped.recv_timeout(patience()).unwrap_or_else(|_| panic!("{at:?}: it has not returned"));
        // The node takes no connections any more.
        patiently("the end", || std::net::TcpStream::connect(address).is_err().then_some(()));
        drop(one);
    }
}
