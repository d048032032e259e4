//! Handshakes that come to no end by themselves: they have a time as a whole, and end at once with the node's links.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto_cluster::net::frame::{Kind, append};
use rialto_cluster::net::{Class, Failure, Member, Security};
use rialto_cluster::protocol::NodeId;
use rustix::net::{AddressFamily, SocketType};

use crate::certificates::Authority;
use crate::nodes::{Node, in_time, patiently};
use crate::proxy::{Passes, Proxy};

/// Sends bytes one after the other to a node with a short time for handshakes, and waits until it is turned away.
fn drip(two: &Node, bytes: &[u8]) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = TcpStream::connect(two.links.address()).expect("a connection");
            socket.set_nodelay(true).expect("an option");
            for byte in bytes {
                if is_over.load(Ordering::SeqCst) || socket.write_all(&[*byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // Also when the wait fails.
        let _over = SetWhenDropped(&is_over);
        let why = two.recorder.wait_for_failure(|why| matches!(why, Failure::Unreachable(_)));
        assert!(why.to_string().contains("no hello has come in time"), "{why}");
    });
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_stranger_that_sends_a_byte_now_and_then_gains_no_time() {
    let short = Duration::from_millis(300);
    let plain = Node::with(2, |options| options.handshake_max = short);
    let mut hello = Vec::new();
    append(&mut hello, Kind::Hello, &[0; 4_000]);
    drip(&plain, &hello);

    let authority = Authority::new("the cluster");
    let secure = Node::with(2, |options| {
        options.handshake_max = short;
        options.security = Security::Tls(authority.tls("node2", &authority));
    });
    // The header of a record of TLS that is long.
    let mut record = vec![0x16, 3, 1, 0x40, 0];
    record.resize(4_000, 1);
    drip(&secure, &record);
}

/// A listener at which connections wait: its queue is full, and it takes none of them.
struct Deaf {
    address: SocketAddr,
    _listener: OwnedFd,
    _waiting: Vec<TcpStream>,
}

impl Deaf {
    fn new() -> Deaf {
        let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        rustix::net::listen(&listener, 0).expect("a listener");
        let bound = rustix::net::getsockname(&listener).expect("an address");
        let address = SocketAddr::try_from(bound).expect("an address");
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let waiting = std::iter::from_fn(connect).collect();
        Deaf { address, _listener: listener, _waiting: waiting }
    }
}

#[test]
fn links_that_are_dropped_end_handshakes_at_once() {
    let node = Node::with(1, |options| options.handshake_max = Duration::from_secs(3600));
    // One that takes connections and says nothing, and one that does not even take them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let deaf = Deaf::new();
    let member = |number, address: SocketAddr| Member {
        node: NodeId(number),
        name: format!("node{number}"),
        address: address.to_string(),
    };
    let silent_address = silent.local_addr().expect("an address");
    node.links.set_members(&[member(2, silent_address), member(3, deaf.address)]).expect("links");
    patiently("a handshake", || (node.links.connections() == 1).then_some(()));
    // Three that connect and say nothing. One that connects after them is turned away once they are taken.
    let strangers: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(node.links.address()).expect("a connection")).collect();
    let mut last = TcpStream::connect(node.links.address()).expect("a connection");
    last.write_all(b"no frame").expect("it is written");
    node.recorder.wait_for_failure(|why| matches!(why, Failure::RefusedByUs(_)));

    in_time("the end of the links", move || drop(node));
    for mut stranger in strangers {
        let _ = stranger.read_to_end(&mut Vec::new());
    }
}

/// A node has a full queue for one that does not read. Its links end nevertheless.
#[test]
fn links_to_a_node_that_does_not_read_end_at_once() {
    let authority = Authority::new("the cluster");
    for is_secure in [false, true] {
        let [one, two] = [1, 2].map(|number| {
            Node::with(number, |options| {
                // The kernel alone would take that long to give such a connection up.
                options.silence_max = Duration::from_secs(3600);
                if is_secure {
                    options.security = Security::Tls(authority.tls(&format!("node{number}"), &authority));
                }
            })
        });
        let proxy = Proxy::before(two.links.address());
        one.links.set_members(&[two.member_at(proxy.address().to_string())]).expect("links");
        two.links.set_members(&[one.member()]).expect("links");
        one.wait_for_links(&two);
        proxy.pass(Passes::Stalled);
        let mut refused = 0;
        while refused < 100 {
            match one.links.send(two.id, Class::Work, &[0; 10_000]) {
                Ok(()) => refused = 0,
                Err(_) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        in_time("the end of the links", move || drop(one));
    }
}
