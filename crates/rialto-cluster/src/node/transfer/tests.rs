//! Transfers between two nodes in one process, of which one answers as a test wants.

use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::{Piece, Rest, Source, Transfers};
use crate::net::{Class, ConnectionId, Event, Handler, Links, Options, Security};
use crate::node::pace::Pace;
use crate::node::sending::Sending;
use crate::protocol::{NodeId, PartitionId};

/// The longest wait for what has to come. `RIALTO_PATIENCE_S` gives another number of seconds.
fn patience() -> Duration {
    let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
    Duration::from_secs(seconds.map_or(20, |text| text.parse().expect("a number of seconds")))
}

/// A node that takes all messages, and answers none.
struct Silent;

impl Handler for Silent {
    fn message(&self, _: NodeId, _: ConnectionId, _: &[u8]) {}

    fn event(&self, _: Event) {}
}

fn links(node: u32) -> Arc<Links> {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let options = Options::new(7, NodeId(node), &format!("n{node}"), listen, Security::PlainOnLoopback);
    Arc::new(Links::open(options, Arc::new(Silent)).expect("links"))
}

/// The transfers of node 1, which is connected with node 2.
struct Two {
    transfers: Arc<Transfers>,
    _links: [Arc<Links>; 2],
}

fn two() -> Two {
    let [one, two] = [links(1), links(2)];
    let member = |node: u32, links: &Links| crate::net::Member {
        node: NodeId(node),
        name: format!("n{node}"),
        address: links.address().to_string(),
    };
    one.set_members(&[member(2, &two)]).expect("links");
    two.set_members(&[member(1, &one)]).expect("links");
    // A connection is counted before it takes messages.
    while one.send(NodeId(2), Class::Work, b"is it there?").is_err() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let sending = Arc::new(Sending::default());
    sending.open(&one);
    Two { transfers: Arc::new(Transfers::new(sending, Pace::new(None))), _links: [one, two] }
}

/// Reads a copy of a partition from node 2 on a thread of its own; what comes of it is told.
fn read(transfers: &Arc<Transfers>, partition: u32) -> (u64, Receiver<std::io::Result<Vec<u8>>>) {
    let mut pulling = transfers.pull(NodeId(2), Source::Copy(PartitionId(partition)));
    let (transfer, (told, tells)) = (pulling.transfer, channel());
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pulling.read_to_end(&mut bytes).map(|_| bytes);
        told.send(read)
    });
    (transfer, tells)
}

fn piece(transfer: u64, piece: u64, rest: Rest) -> Piece {
    Piece { transfer, piece, rest }
}

fn error(tells: &Receiver<std::io::Result<Vec<u8>>>) -> String {
    let read = tells.recv_timeout(patience()).expect("the reader ends at once");
    read.expect_err("the transfer has not ended").to_string()
}

#[test]
fn a_close_ends_what_is_being_received_at_once() {
    let two = two();
    let (transfer, tells) = read(&two.transfers, 0);
    two.transfers.came(NodeId(2), piece(transfer, 0, Rest::More), b"some");
    two.transfers.close();
    assert!(error(&tells).contains("the connection has ended"));
    // Nothing begins later.
    let (_, tells) = read(&two.transfers, 0);
    assert!(error(&tells).contains("node 2"));
}

#[test]
fn a_transfer_that_fails_at_its_sender_tells_the_reader_why() {
    let two = two();
    let (transfer, tells) = read(&two.transfers, 0);
    two.transfers.came(NodeId(2), piece(transfer, 0, Rest::More), b"some");
    // What another node says of the transfer is not heard.
    two.transfers.came(NodeId(3), piece(transfer, 1, Rest::End), b"");
    two.transfers.came(NodeId(2), piece(transfer, 1, Rest::Failed("a file is damaged".to_owned())), b"");
    assert_eq!(error(&tells), "node 2: a file is damaged");
}

#[test]
fn the_end_of_a_connection_or_of_a_replica_ends_its_transfers_alone() {
    let two = two();
    let (first, second) = (read(&two.transfers, 0), read(&two.transfers, 1));
    two.transfers.cut(NodeId(3));
    two.transfers.end_pulls_of(PartitionId(0));
    assert!(error(&first.1).contains("the connection has ended"));
    two.transfers.came(NodeId(2), piece(second.0, 0, Rest::More), b"all ");
    two.transfers.came(NodeId(2), piece(second.0, 1, Rest::End), b"of it");
    let read = second.1.recv_timeout(patience()).expect("it ends");
    assert_eq!(read.expect("it has come whole"), b"all of it");
}
