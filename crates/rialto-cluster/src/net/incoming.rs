//! Connections that other nodes make: each is taken, shakes hands, and is read until it ends.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::bell::{Awaited, Bell};
use super::event::{Direction, Event, Failure};
use super::frame::{Decoder, Kind};
use super::handshake;
use super::hello::{Agreed, Hello, Refusal};
use super::link::Link;
use super::links::Shared;
use super::options::Security;
use super::queue::ConnectionId;
use super::stream::{Socket, Stream};
use super::tls;
use crate::protocol::Life;

/// Takes connections until the links are closed.
pub(super) fn accept(shared: &Arc<Shared>, listener: &TcpListener, bell: &Bell) {
    while !shared.is_closed() {
        match listener.accept() {
            Ok((socket, address)) => {
                if let Err(why) = begin(shared, socket, address) {
                    shared.tell(Event::TurnedAway { address, why });
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bell.sleep(Some(Awaited::Bytes(listener.as_fd())), None);
            }
            // As when the process has no file handle left: it may have one later.
            Err(_) => {
                bell.sleep(None, Some(Duration::from_millis(100)));
            }
        }
    }
}

fn begin(shared: &Arc<Shared>, socket: TcpStream, address: SocketAddr) -> Result<(), Failure> {
    let until = Instant::now() + shared.options.handshake_max;
    let handshake = shared.handshakes.begin(&socket)?;
    let reading = Arc::clone(shared);
    let spawned = shared.spawn_reader(move || {
        let begun = shake_hands(&reading, socket, until);
        reading.handshakes.end(handshake);
        match begun {
            Ok(incoming) => incoming.read_until_the_end(&reading),
            Err(why) => reading.tell(Event::TurnedAway { address, why }),
        }
    });
    spawned.map_err(|error| {
        shared.handshakes.end(handshake);
        Failure::Busy(format!("no thread for the connection: {error}"))
    })
}

/// A connection whose handshake is over.
struct Incoming {
    link: Arc<Link>,
    stream: Stream,
    connection: ConnectionId,
    agreed: Agreed,
    life: Life,
}

fn shake_hands(shared: &Shared, socket: TcpStream, until: Instant) -> Result<Incoming, Failure> {
    let options = &shared.options;
    socket.set_nonblocking(false)?;
    let socket = Socket::prepare(socket, options, until)?;
    let mut stream = match &options.security {
        Security::Tls(tls) => tls.accept(socket)?,
        Security::PlainOnLoopback | Security::PlainAnywhere => Stream::Plain(socket),
    };
    let theirs = handshake::read_hello(&mut stream, Kind::Hello)?;
    let ours = shared.hello(theirs.node);
    let agreed = ours.agree(&theirs).and_then(|agreed| Ok((agreed, member(shared, &theirs, &stream)?)));
    let (agreed, link) = agreed.map_err(|refusal| handshake::refuse(&mut stream, refusal))?;
    handshake::send(&mut stream, Kind::Welcome, &ours.encode())?;
    stream.has_begun()?;
    let connection = shared.next_connection();
    link.incoming.begin(connection, stream.ender()?);
    if link.is_over() || shared.is_closed() {
        link.incoming.end(connection);
        return Err(Failure::Unreachable("this node has ended it".to_owned()));
    }
    Ok(Incoming { link, stream, connection, agreed, life: theirs.life })
}

/// The member that the other node says it is, if it is one and its certificate says so, too.
fn member(shared: &Shared, theirs: &Hello, stream: &Stream) -> Result<Arc<Link>, Refusal> {
    let us = &shared.options.name;
    let link = shared.link(theirs.node).filter(|link| link.member.name == theirs.name);
    let link = link.ok_or_else(|| {
        Refusal::NotAMember(format!(
            "node {:?}, {}, is no member of the cluster, as far as node {us:?} knows",
            theirs.name, theirs.node
        ))
    })?;
    let is_sure = match (&shared.options.security, stream.certificate()) {
        (Security::Tls(_), Some(certificate)) => tls::is_made_for(certificate, &theirs.name),
        (Security::Tls(_), None) => false,
        (Security::PlainOnLoopback | Security::PlainAnywhere, _) => true,
    };
    if !is_sure && !rialto::fault_injection::is_on("certificate-of-any-node") {
        return Err(Refusal::Certificate(format!(
            "the certificate that node {:?} has shown to node {us:?} is made for another name",
            theirs.name
        )));
    }
    Ok(link)
}

impl Incoming {
    fn read_until_the_end(mut self, shared: &Shared) {
        let link = Arc::clone(&self.link);
        // An older connection with this node is at its end, and that is told first.
        let _reading = link.incoming.reading.lock();
        let (connection, agreed, life) = (self.connection, self.agreed, self.life);
        if link.incoming.is_newest(connection) && !link.is_over() {
            let (peer, direction) = (link.member.node, Direction::Incoming);
            let began = Event::Began { peer, direction, connection, agreed, life };
            let why = match shared.call(|handler| handler.event(began)) {
                Ok(()) => self.read(shared),
                Err(panicked) => panicked,
            };
            link.incoming.end(connection);
            drop(self.stream);
            shared.tell(Event::Ended { peer, direction, connection, why });
        }
    }

    /// Reads messages until the connection ends; says why it has ended.
    fn read(&mut self, shared: &Shared) -> String {
        let (peer, counters) = (self.link.member.node, &shared.counters);
        let mut decoder = Decoder::new(shared.options.message_max);
        loop {
            let bytes = match self.stream.read(decoder.room()) {
                Ok(0) if decoder.is_inside_a_frame() => return "it has ended inside a message".to_owned(),
                Ok(0) => return "the other node has ended it".to_owned(),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return error.to_string(),
            };
            decoder.filled(bytes);
            counters.reads.fetch_add(1, Ordering::Relaxed);
            counters.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
            loop {
                match decoder.next_frame() {
                    Ok(None) => break,
                    Ok(Some(found)) if found.kind == Kind::Message => {
                        counters.messages_received.fetch_add(1, Ordering::Relaxed);
                        let took =
                            shared.call(|handler| handler.message(peer, self.connection, found.payload));
                        if let Err(panicked) = took {
                            return panicked;
                        }
                    }
                    Ok(Some(found)) if found.kind == Kind::Refusal => {
                        return Failure::RefusedByThem(Refusal::decode(found.payload)).to_string();
                    }
                    Ok(Some(found)) => {
                        return format!("a frame of the kind {:?} instead of a message", found.kind);
                    }
                    Err(error) => return error.to_string(),
                }
            }
        }
    }
}
