//! What is sent comes, in order; a sender never blocks; all of a turn goes by one write.

use std::time::Duration;

use rialto::io::Random;
use rialto_cluster::net::frame::HEADER;
use rialto_cluster::net::{Class, Counts, SendError};
use rialto_cluster::protocol::NodeId;

use crate::nodes::{Heard, Node, connect, patiently, send};

fn sum(nodes: &[&Node], count: impl Fn(Counts) -> u64) -> u64 {
    nodes.iter().map(|node| count(node.links.counts())).sum()
}

const CLASSES: [Class; 3] = [Class::Protocol, Class::Work, Class::Blocks];

fn number_of(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().expect("a number"))
}

fn class_of(payload: &[u8]) -> Class {
    CLASSES[usize::from(payload[8])]
}

/// The messages of each class have the numbers from 0 on, in order.
fn assert_in_order_per_class(came: &[Vec<u8>]) {
    for class in CLASSES {
        let numbers = came.iter().filter(|payload| class_of(payload) == class).map(|p| number_of(p));
        let count = numbers.clone().count() as u64;
        assert!(numbers.eq(0..count), "{class:?} is out of order, or lacks a message");
    }
}

#[test]
fn three_nodes_have_four_connections_each_and_keep_the_order_of_each_direction_and_class() {
    const EACH: usize = 2_000;
    let nodes = [&Node::new(1), &Node::new(2), &Node::new(3)];
    connect(&nodes);
    for node in nodes {
        assert_eq!(node.links.connections(), 4, "2(n - 1)");
    }
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    std::thread::scope(|scope| {
        for from in nodes {
            for to in nodes.iter().filter(|to| to.id != from.id) {
                let mut random = Random::new(seed ^ u64::from(from.id.0 * 8 + to.id.0));
                scope.spawn(move || {
                    let mut next = [0_u64; 3];
                    for _ in 0..EACH {
                        let class = random.next() as usize % CLASSES.len();
                        let mut payload = next[class].to_le_bytes().to_vec();
                        next[class] += 1;
                        payload.push(class as u8);
                        payload.resize(9 + random.next() as usize % 300, from.id.0 as u8);
                        send(from, to.id, CLASSES[class], &payload);
                    }
                });
            }
        }
    });
    for to in nodes {
        for from in nodes.iter().filter(|from| from.id != to.id) {
            let came = to.recorder.wait_for_messages(from.id, EACH);
            assert_in_order_per_class(&came);
            assert!(came.iter().all(|payload| payload[9..].iter().all(|&byte| byte == from.id.0 as u8)));
        }
        assert_eq!(to.links.connections(), 4, "2(n - 1)");
    }
    // A count follows its write.
    let written = || sum(&nodes, |counts| counts.messages_sent) == 6 * EACH as u64;
    patiently("the counts", || written().then_some(()));
    assert_eq!(sum(&nodes, |counts| counts.messages_received), 6 * EACH as u64);
    assert_eq!(sum(&nodes, |counts| counts.bytes_sent), sum(&nodes, |counts| counts.bytes_received));
    assert!(sum(&nodes, |counts| counts.writes) <= 6 * EACH as u64);
}

#[test]
fn what_a_turn_sends_to_a_node_goes_by_one_write() {
    let nodes = [&Node::new(1), &Node::new(2), &Node::new(3)];
    connect(&nodes);
    let mut turn = nodes[0].links.turn();
    for round in 1..=10 {
        let before = nodes[0].links.counts();
        for number in 0..50_u8 {
            turn.send(NodeId(2), Class::Work, &[number]).expect("room");
            turn.send(NodeId(3), Class::Protocol, &[number; 100]).expect("room");
        }
        assert_eq!(nodes[0].links.counts(), before, "nothing is written before the turn ends");
        turn.end();
        for to in &nodes[1..] {
            let came = to.recorder.wait_for_messages(NodeId(1), round * 50);
            assert!(came.iter().enumerate().all(|(index, payload)| payload[0] == (index % 50) as u8));
        }
        // A count follows its write.
        let written = || nodes[0].links.counts().messages_sent == before.messages_sent + 100;
        patiently("the counts", || written().then_some(()));
        let after = nodes[0].links.counts();
        assert_eq!(after.writes, before.writes + 2);
        assert!(after.wake_ups <= before.wake_ups + 2, "one wake-up a node at most");
    }
}

/// A node that sends to one that stalls: how many messages of each class were queued.
struct Sender<'n> {
    from: &'n Node,
    to: &'n Node,
    sent: [u64; 3],
}

impl Sender<'_> {
    fn send(&mut self, class: Class, length: usize) -> bool {
        let index = CLASSES.iter().position(|&other| other == class).expect("a class");
        let mut payload = self.sent[index].to_le_bytes().to_vec();
        payload.push(index as u8);
        payload.resize(length, 0);
        let queued = self.from.links.send(self.to.id, class, &payload);
        assert!(matches!(queued, Ok(()) | Err(SendError::Full)), "{queued:?}");
        self.sent[index] += u64::from(queued.is_ok());
        queued.is_ok()
    }

    /// Sends until there is no room, and none comes.
    fn fill(&mut self, class: Class, length: usize) {
        let mut refused = 0;
        // The kernel's buffers fill first. A sender that waited for room would hang here.
        while refused < 100 {
            refused = if self.send(class, length) { 0 } else { refused + 1 };
            if refused > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn a_receiver_that_stalls_blocks_no_sender_and_each_class_has_room() {
    let nodes = [&Node::new(1), &Node::new(2), &Node::new(3)];
    connect(&nodes);
    let (from, to) = (nodes[0], nodes[1]);
    let stalled = to.recorder.stalls.lock().expect("no panic");
    let mut sender = Sender { from, to, sent: [0; 3] };
    sender.fill(Class::Work, 10_000);
    // A write of work is on its way; all else that is queued of it waits.
    let protocol = (0..10_000).take_while(|_| sender.send(Class::Protocol, 100)).count();
    assert!(protocol >= (128 << 10) / (100 + HEADER), "room for {protocol} messages of the protocol only");
    assert!(protocol < 10_000, "the room of the protocol is bounded, too");
    let blocks = (0..10_000).take_while(|_| sender.send(Class::Blocks, 10_000)).count();
    assert!(blocks >= (256 << 10) / (10_000 + HEADER), "room for {blocks} messages of blocks only");
    assert!(blocks < 10_000, "the room of blocks is bounded, too");
    assert!(from.links.counts().messages_refused > 100);
    // The others are served meanwhile.
    send(from, nodes[2].id, Class::Work, b"not stalled");
    nodes[2].recorder.wait_for_messages(from.id, 1);

    drop(stalled);
    let came = to.recorder.wait_for_messages(from.id, sender.sent.iter().sum::<u64>() as usize);
    assert_in_order_per_class(&came);
    for (class, sent) in CLASSES.into_iter().zip(sender.sent) {
        let count = came.iter().filter(|payload| class_of(payload) == class).count();
        assert_eq!(count as u64, sent, "all that were queued come: {class:?}");
    }
    // What was queued of the protocol comes before what was queued before it.
    let last = came.iter().rposition(|payload| class_of(payload) == Class::Protocol).expect("the protocol");
    let overtaken = came[last..].iter().filter(|payload| class_of(payload) == Class::Work).count();
    assert!(overtaken >= 15, "the protocol overtakes {overtaken} messages of work");
    let early = came[..last].iter().any(|payload| class_of(payload) == Class::Blocks);
    assert!(!early, "blocks come after the protocol");
    // Work and blocks have the same length here, and take turns while there are both.
    let (mut work, mut blocks) = (0_i64, 0);
    for payload in &came[last + 1..] {
        match class_of(payload) {
            Class::Work => work += 1,
            Class::Blocks => blocks += 1,
            Class::Protocol => unreachable!("its last one came before"),
        }
        let both = work < overtaken as i64 && blocks < i64::try_from(sender.sent[2]).expect("a count");
        assert!(!both || (work - blocks).abs() <= 1, "{work} of work and {blocks} of blocks in turn");
    }
    patiently("room again", || from.links.send(to.id, Class::Work, b"more").ok());
}

#[test]
fn a_message_that_is_too_long_or_for_no_member_is_not_queued() {
    let nodes = [&Node::new(1), &Node::new(2)];
    connect(&nodes);
    let links = &nodes[0].links;
    assert_eq!(links.send(NodeId(2), Class::Work, &vec![0; (64 << 10) + 1]), Err(SendError::TooLong));
    assert_eq!(links.send(NodeId(7), Class::Work, b"a"), Err(SendError::NotAMember));
    assert_eq!(
        links.send(NodeId(1), Class::Work, b"a"),
        Err(SendError::NotAMember),
        "a node is no member of its own"
    );
    links.send(NodeId(2), Class::Work, &vec![1; 64 << 10]).expect("room");
    links.send(NodeId(2), Class::Work, b"").expect("room");
    let came = nodes[1].recorder.wait_for_messages(NodeId(1), 2);
    assert_eq!((came[0].len(), came[1].len()), (64 << 10, 0));
}

#[test]
fn a_node_that_is_no_member_any_more_has_no_connection_and_may_become_one_again() {
    let nodes = [&Node::new(1), &Node::new(2), &Node::new(3)];
    connect(&nodes);
    let members: Vec<_> = nodes.iter().map(|node| node.member()).collect();
    for round in 1..=3 {
        for node in &nodes[..2] {
            node.links.set_members(&members[..2]).expect("links");
        }
        assert_eq!(nodes[0].links.send(NodeId(3), Class::Work, b"a"), Err(SendError::NotAMember));
        let refused = "is no member of the cluster";
        nodes[2].recorder.wait("both nodes refuse it", |heard| {
            let told = heard.iter().filter(
                |heard| matches!(heard, Heard::Event(event) if format!("{event:?}").contains(refused)),
            );
            (told.count() >= 2 * round).then_some(())
        });
        patiently("two are connected", || (nodes[0].links.connections() == 2).then_some(()));
        for node in &nodes[..2] {
            node.links.set_members(&members).expect("links");
            node.wait_for_links(nodes[2]);
            nodes[2].wait_for_links(node);
        }
        // The end of the earlier connection may not have been told yet.
        patiently("a connection", || nodes[0].links.send(NodeId(3), Class::Work, b"again").ok());
        nodes[2].recorder.wait_for_messages(NodeId(1), round);
        nodes[0].links.send(NodeId(2), Class::Work, b"all the time").expect("a connection");
        nodes[1].recorder.wait_for_messages(NodeId(1), round);
    }
}
