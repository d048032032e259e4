//! A node that is not of the cluster, or of an unknown version, is refused, and both nodes name the reason.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rialto_cluster::net::frame::{Kind, append};
use rialto_cluster::net::{
    Class, Direction, Event, Failure, Links, Options, Refusal, Security, SendError, Versions,
};
use rialto_cluster::protocol::NodeId;

use crate::nodes::{CLUSTER, Heard, Node};

/// Makes one node connect to another one, which knows it or not.
fn meet(one: &Node, two: &Node, are_members: bool) {
    one.links.set_members(&[two.member()]).expect("links");
    if are_members {
        two.links.set_members(&[one.member()]).expect("links");
    }
}

/// Both name the same reason, and neither has a connection of the first one.
fn both_name(one: &Node, two: &Node, is_it: impl Fn(&Refusal) -> bool) -> String {
    let ours =
        two.recorder.wait_for_failure(|why| matches!(why, Failure::RefusedByUs(refusal) if is_it(refusal)));
    let theirs =
        one.recorder.wait_for_failure(|why| matches!(why, Failure::RefusedByThem(refusal) if is_it(refusal)));
    let (Failure::RefusedByUs(ours), Failure::RefusedByThem(theirs)) = (ours, theirs) else { unreachable!() };
    assert_eq!(ours, theirs);
    let sent = one.links.send(two.id, Class::Work, b"a");
    assert!(matches!(sent, Err(SendError::NotConnected | SendError::NotAMember)), "{sent:?}");
    let heard = two.recorder.heard();
    let began =
        |heard: &Heard| matches!(heard, Heard::Event(Event::Began { direction: Direction::Incoming, .. }));
    assert!(!heard.iter().any(began), "{heard:?}");
    ours.to_string()
}

#[test]
fn a_node_of_another_cluster() {
    let (one, two) = (Node::with(1, |options| options.cluster = 0xbad), Node::new(2));
    meet(&one, &two, true);
    let told = both_name(&one, &two, |refusal| matches!(refusal, Refusal::OtherCluster(_)));
    assert!(
        told.contains("node1") && told.contains("node2") && told.contains(&format!("{CLUSTER:032x}")),
        "{told}"
    );
}

#[test]
fn a_node_of_an_unknown_version() {
    let versions = Versions { oldest: 8, newest: 9, feature_level: 1 };
    let (one, two) = (Node::with(1, |options| options.versions = versions), Node::new(2));
    meet(&one, &two, true);
    let told = both_name(&one, &two, |refusal| matches!(refusal, Refusal::Version(_)));
    assert!(told.contains("8 to 9") && told.contains("1 to 1"), "{told}");
}

#[test]
fn a_node_that_is_no_member_or_has_another_one_s_name() {
    let (one, two) = (Node::new(1), Node::new(2));
    meet(&one, &two, false);
    let told = both_name(&one, &two, |refusal| matches!(refusal, Refusal::NotAMember(_)));
    assert!(told.contains("node1") && told.contains("node2"), "{told}");

    let (one, two) = (Node::new(1), Node::new(2));
    let mut known = one.member();
    known.name = "another".to_owned();
    two.links.set_members(&[known]).expect("links");
    one.links.set_members(&[two.member()]).expect("links");
    both_name(&one, &two, |refusal| matches!(refusal, Refusal::NotAMember(_)));
}

#[test]
fn a_node_at_the_address_of_another_one() {
    let (one, three) = (Node::new(1), Node::new(3));
    let mut wrong = three.member();
    (wrong.node, wrong.name) = (NodeId(2), "node2".to_owned());
    one.links.set_members(&[wrong]).expect("links");
    three.links.set_members(&[one.member()]).expect("links");
    let told = both_name(&one, &three, |refusal| matches!(refusal, Refusal::OtherNode(_)));
    assert!(told.contains("node3") && told.contains("node 2"), "{told}");
}

/// A program that is no node.
fn say(two: &Node, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(two.links.address()).expect("a connection");
    socket.write_all(bytes).expect("it is written");
    let mut answer = Vec::new();
    // A node that refuses may end the connection before it has read everything.
    let _ = socket.read_to_end(&mut answer);
    answer
}

#[test]
fn what_is_no_node_is_turned_away() {
    let two = Node::with(2, |options| options.handshake_max = Duration::from_millis(200));
    let mut message = Vec::new();
    append(&mut message, Kind::Message, b"no hello");
    let mut damaged = Vec::new();
    append(&mut damaged, Kind::Hello, b"what is this");
    for (bytes, reason) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "does not send frames"),
        (b"RLNT\x09", "version 9"),
        (&message, "instead of a hello"),
        (&damaged, "makes no sense"),
    ] {
        let answer = say(&two, bytes);
        let why = two.recorder.wait_for_failure(|why| why.to_string().contains(reason));
        assert!(matches!(why, Failure::RefusedByUs(_)), "{why:?}");
        assert!(String::from_utf8_lossy(&answer).contains(reason), "it is told: {answer:?}");
    }
    say(&two, b"RLN");
    two.recorder.wait_for_failure(|why| why.to_string().contains("no hello has come in time"));
}

#[test]
fn plain_connections_leave_the_machine_only_by_a_named_option() {
    let open = |listen: &str, security| {
        let listen = listen.parse().expect("an address");
        let options = Options::new(CLUSTER, NodeId(1), "node1", listen, security);
        Links::open(options, std::sync::Arc::new(crate::nodes::Recorder::default()))
    };
    let told = open("0.0.0.0:0", Security::PlainOnLoopback).map(drop).expect_err("it is plain").to_string();
    assert!(told.contains("0.0.0.0") && told.contains("plain"), "{told}");
    open("0.0.0.0:0", Security::PlainAnywhere).map(drop).expect("it is named");

    let one = Node::new(1);
    let mut far = Node::new(2).member();
    // An address that no machine has.
    far.address = "192.0.2.1:9".to_owned();
    one.links.set_members(&[far]).expect("links");
    one.recorder.wait_for_failure(|why| why.to_string().contains("would be plain"));
}
