//! Connections that end and are made again: what was sent by one comes by it, or not at all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rialto::io::Random;
use rialto_cluster::net::{Class, ConnectionId, Direction, Event, Failure, SendError};
use rialto_cluster::protocol::NodeId;

use crate::nodes::{Heard, Node, connect, patiently};
use crate::proxy::{Passes, Proxy};

/// How many messages were queued, and how many had been when each outgoing connection ended.
#[derive(Default)]
struct Sent {
    count: u64,
    at_ends: Vec<u64>,
}

/// Ends a thread of a test, also when the test fails.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A node sends numbers to another one through a proxy that cuts and stalls. By each connection the numbers come from the
/// first one that was queued for it, without a gap, and none of them is past the connection's end.
#[test]
fn messages_of_a_connection_come_in_order_without_a_gap_and_by_no_later_one() {
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let mut random = Random::new(seed);
    let (from, to) = (Node::new(1), Node::new(2));
    let proxy = Proxy::before(to.links.address());
    from.links.set_members(&[to.member_at(proxy.address().to_string())]).expect("links");
    to.links.set_members(&[from.member()]).expect("links");

    let sent = Arc::new(Mutex::new(Sent::default()));
    let noting = Arc::clone(&sent);
    *from.recorder.on_event.lock().expect("no panic") = Some(Box::new(move |event| {
        if let Event::Ended { direction: Direction::Outgoing, .. } = event {
            let mut sent = noting.lock().expect("no panic");
            let count = sent.count;
            sent.at_ends.push(count);
        }
    }));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                // An end is noted between two messages.
                let mut sent = sent.lock().expect("no panic");
                let mut payload = sent.count.to_le_bytes().to_vec();
                payload.resize(2_000, 0);
                match from.links.send(to.id, Class::Work, &payload) {
                    Ok(()) => sent.count += 1,
                    Err(_) => {
                        drop(sent);
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
            }
        });
        let _ends_with_the_test = SetWhenDropped(&is_over);
        let began = Instant::now();
        let (mut cuts, mut last) = (0, None);
        while cuts < 20 || began.elapsed() < Random::test_time_from_environment() {
            last = to.recorder.wait("messages by another connection", |heard| {
                let mut newest = heard.iter().rev().filter_map(|heard| match heard {
                    Heard::Message { connection, .. } => Some(*connection),
                    Heard::Event(_) => None,
                });
                let connection = newest.next();
                let is_next = connection != last && newest.take(20).all(|other| Some(other) == connection);
                (connection.is_some() && is_next).then_some(connection)
            });
            // A receiver that takes no bytes: the queue has messages when the connection ends.
            if random.next().is_multiple_of(2) {
                proxy.pass(Passes::Stalled);
                let refused = || from.links.counts().messages_refused;
                let before = refused();
                let is_full = || refused() > before || from.links.connections() < 2;
                patiently("the queue is full", || is_full().then_some(()));
            }
            proxy.pass(Passes::Cut);
            std::thread::sleep(Duration::from_millis(random.next() % 20));
            proxy.pass(Passes::Both);
            cuts += 1;
        }
    });

    let sent = sent.lock().expect("no panic");
    let mut by_connection: BTreeMap<ConnectionId, Vec<u64>> = BTreeMap::new();
    for heard in to.recorder.heard() {
        if let Heard::Message { connection, payload, .. } = heard {
            let number = u64::from_le_bytes(payload[..8].try_into().expect("a number"));
            by_connection.entry(connection).or_default().push(number);
        }
    }
    assert!(by_connection.len() >= 20, "{} connections", by_connection.len());
    for (connection, numbers) in by_connection {
        let first = numbers[0];
        assert!(
            first == 0 || sent.at_ends.contains(&first),
            "{connection:?} begins with {first}, in the middle"
        );
        let end = sent.at_ends.iter().copied().find(|&end| end > first).unwrap_or(sent.count);
        assert!(numbers.iter().copied().eq(first..first + numbers.len() as u64), "{connection:?} has a gap");
        assert!(first + numbers.len() as u64 <= end, "{connection:?} has messages of a later connection");
    }
    assert_events_alternate(&from);
    assert_events_alternate(&to);
}

/// For each direction, beginnings and ends alternate, and messages come in between.
pub fn assert_events_alternate(node: &Node) {
    let mut now: BTreeMap<Direction, Option<ConnectionId>> = BTreeMap::new();
    for heard in node.recorder.heard() {
        match heard {
            Heard::Event(Event::Began { direction, connection, .. }) => {
                let before = now.insert(direction, Some(connection)).flatten();
                assert_eq!(
                    before, None,
                    "{direction:?}: {connection:?} begins before the end of another one"
                );
            }
            Heard::Event(Event::Ended { direction, connection, .. }) => {
                assert_eq!(now.insert(direction, None).flatten(), Some(connection), "{direction:?}");
            }
            Heard::Event(_) => {}
            Heard::Message { connection, .. } => {
                assert_eq!(now.get(&Direction::Incoming).copied().flatten(), Some(connection), "a message");
            }
        }
    }
}

#[test]
fn both_nodes_hear_that_a_node_has_gone_and_connect_again_when_it_is_back() {
    let (one, two) = (Node::new(1), Node::new(2));
    connect(&[&one, &two]);
    let address = two.links.address();
    drop(two);
    for direction in [Direction::Outgoing, Direction::Incoming] {
        // Without a message that would have to be written first.
        one.recorder.wait("the end", |heard| {
            let is_end = |heard: &Heard| matches!(heard, Heard::Event(Event::Ended { direction: way, .. }) if *way == direction);
            heard.iter().any(is_end).then_some(())
        });
    }
    one.recorder.wait_for_failure(|why| matches!(why, Failure::Unreachable(_)));
    assert_eq!(one.links.send(NodeId(2), Class::Protocol, b"a"), Err(SendError::NotConnected));
    let two = Node::with(2, |options| options.listen = address);
    two.links.set_members(&[one.member(), two.member()]).expect("links");
    two.wait_for_links(&one);
    one.wait_for_links(&two);
    one.links.send(two.id, Class::Protocol, b"back").expect("a connection");
    assert_eq!(two.recorder.wait_for_messages(one.id, 1), [b"back"]);
    assert_events_alternate(&one);
}

/// One direction is cut without an end, as by a network that loses packets: the node that connects again replaces its
/// older connection at the other node.
#[test]
fn a_newer_connection_replaces_the_older_one_of_the_same_node() {
    let (one, two) = (Node::new(1), Node::new(2));
    let proxy = Proxy::before(two.links.address());
    one.links.set_members(&[two.member_at(proxy.address().to_string())]).expect("links");
    two.links.set_members(&[one.member()]).expect("links");
    one.wait_for_links(&two);
    two.wait_for_links(&one);
    // The proxy keeps the connection to the second node, which therefore does not hear of an end.
    proxy.pass(Passes::Stalled);
    let direct = two.member();
    one.links.set_members(&[direct]).expect("links");
    one.wait_for_links(&two);
    two.recorder.wait("the newer connection", |heard| {
        let began = |heard: &&Heard| {
            matches!(heard, Heard::Event(Event::Began { direction: Direction::Incoming, .. }))
        };
        (heard.iter().filter(began).count() >= 2).then_some(())
    });
    // The second node has connected again, too, as the first one has another link now.
    patiently("both connections", || (two.links.connections() == 2).then_some(()));
    // The older connection's beginning may be the last thing that the first node has heard.
    patiently("a connection", || one.links.send(two.id, Class::Work, b"by the newer one").ok());
    two.recorder.wait_for_messages(one.id, 1);
    assert_events_alternate(&two);
}
