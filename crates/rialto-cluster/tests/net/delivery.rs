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

#[test]
fn three_nodes_have_four_connections_each_and_keep_the_order_of_each_direction() {
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
                    for number in 0..EACH as u64 {
                        let mut payload = number.to_le_bytes().to_vec();
                        payload.resize(8 + random.next() as usize % 300, from.id.0 as u8);
                        let class =
                            if random.next().is_multiple_of(4) { Class::Protocol } else { Class::Work };
                        send(from, to.id, class, &payload);
                    }
                });
            }
        }
    });
    for to in nodes {
        for from in nodes.iter().filter(|from| from.id != to.id) {
            let came = to.recorder.wait_for_messages(from.id, EACH);
            let numbers =
                came.iter().map(|payload| u64::from_le_bytes(payload[..8].try_into().expect("a number")));
            assert!(numbers.eq(0..EACH as u64), "from {} to {}", from.id, to.id);
            assert!(came.iter().all(|payload| payload[8..].iter().all(|&byte| byte == from.id.0 as u8)));
        }
        assert_eq!(to.links.connections(), 4, "2(n - 1)");
    }
    assert_eq!(sum(&nodes, |counts| counts.messages_sent), 6 * EACH as u64);
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

#[test]
fn a_receiver_that_stalls_blocks_no_sender_and_the_protocol_has_room() {
    let nodes = [&Node::new(1), &Node::new(2), &Node::new(3)];
    connect(&nodes);
    let (from, to) = (nodes[0], nodes[1]);
    let stalled = to.recorder.stalls.lock().expect("no panic");
    let (mut payload, mut sent, mut refused) = (vec![0; 10_000], 0_u64, 0);
    let mut send_next = |class, length: usize| {
        payload[..8].copy_from_slice(&sent.to_le_bytes());
        let queued = from.links.send(to.id, class, &payload[..length]);
        assert!(matches!(queued, Ok(()) | Err(SendError::Full)), "{queued:?}");
        sent += u64::from(queued.is_ok());
        queued.is_ok()
    };
    // The kernel's buffers fill first. A sender that waited for room would hang here.
    while refused < 100 {
        refused = if send_next(Class::Work, 10_000) { 0 } else { refused + 1 };
        if refused > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let protocol = (0..10_000).take_while(|_| send_next(Class::Protocol, 100)).count();
    assert!(protocol >= (128 << 10) / (100 + HEADER), "room for {protocol} messages of the protocol only");
    assert!(protocol < 10_000, "the room of the protocol is bounded, too");
    assert!(from.links.counts().messages_refused > 100);
    // The others are served meanwhile.
    send(from, nodes[2].id, Class::Work, b"not stalled");
    nodes[2].recorder.wait_for_messages(from.id, 1);

    drop(stalled);
    let came = to.recorder.wait_for_messages(from.id, sent as usize);
    let numbers = came.iter().map(|payload| u64::from_le_bytes(payload[..8].try_into().expect("a number")));
    assert!(numbers.eq(0..sent), "all {sent} that were queued come, in order");
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
        nodes[0].links.send(NodeId(3), Class::Work, b"again").expect("a connection");
        nodes[2].recorder.wait_for_messages(NodeId(1), round);
        nodes[0].links.send(NodeId(2), Class::Work, b"all the time").expect("a connection");
        nodes[1].recorder.wait_for_messages(NodeId(1), round);
    }
}
