//! The two connections with one other node, and the thread that connects and writes.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::bell::{Awaited, Woken};
use super::counters::Counters;
use super::dial::dial;
use super::event::{Direction, Event, Failure};
use super::frame::Kind;
use super::handshake;
use super::hello::{Agreed, Hello, Refusal};
use super::lanes::{Class, Lanes};
use super::links::{Member, Shared};
use super::options::Security;
use super::outlet::Outlet;
use super::queue::{ConnectionId, Queue, Room, SendError};
use super::stream::{Ender, Socket, Stream};
use crate::protocol::Life;

/// The first pause between two attempts to connect.
const RECONNECT_FIRST: Duration = Duration::from_millis(10);

/// The connections with one member: at most one for each direction.
pub(super) struct Link {
    pub member: Member,
    pub queue: Queue,
    outgoing: Mutex<Option<Ender>>,
    outlet: Outlet,
    pub incoming: Entrance,
    is_over: AtomicBool,
}

/// The incoming connection. A newer one ends the older one: the other node has made it because it knows the older one to
/// be of no use.
pub(super) struct Entrance {
    newest: Mutex<Option<(ConnectionId, Ender)>>,
    /// Held by the thread that reads: the next one waits until the end of the older connection was told. All links with
    /// one node have the same, so that this holds from one to the next.
    pub reading: Arc<Mutex<()>>,
}

impl Entrance {
    pub(super) fn begin(&self, connection: ConnectionId, ender: Ender) {
        if let Some((_, older)) = self.newest.lock().replace((connection, ender)) {
            older.end();
        }
    }

    pub(super) fn is_newest(&self, connection: ConnectionId) -> bool {
        self.newest.lock().as_ref().is_some_and(|(newest, _)| *newest == connection)
    }

    pub(super) fn end(&self, connection: ConnectionId) {
        self.newest.lock().take_if(|(newest, _)| *newest == connection);
    }
}

/// A connection whose handshake is over.
struct Connected {
    stream: Stream,
    agreed: Agreed,
    life: Life,
}

impl Link {
    pub(super) fn new(member: Member, room: Room, reading: Arc<Mutex<()>>) -> std::io::Result<Link> {
        Ok(Link {
            member,
            queue: Queue::new(room)?,
            outgoing: Mutex::default(),
            outlet: Outlet::default(),
            incoming: Entrance { newest: Mutex::default(), reading },
            is_over: AtomicBool::new(false),
        })
    }

    /// Ends both connections, for good.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(ender) = &*self.outgoing.lock() {
            ender.end();
        }
        if let Some((_, ender)) = &*self.incoming.newest.lock() {
            ender.end();
        }
        self.queue.bell().ring();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The number of connections that there are now: 2 if all is well.
    pub(super) fn connections(&self) -> usize {
        usize::from(self.outgoing.lock().is_some()) + usize::from(self.incoming.newest.lock().is_some())
    }

    /// Connects, writes until the connection ends, and connects again, until the link is over.
    pub(super) fn run(&self, shared: &Arc<Shared>) {
        let (mut pause, mut told) = (RECONNECT_FIRST, None);
        while !self.is_over() {
            match self.connect(shared) {
                Ok(connected) => {
                    told = None;
                    let began = Instant::now();
                    self.write_until_the_end(shared, connected);
                    // A connection that ends at once is one more attempt.
                    pause = match began.elapsed() < shared.options.reconnect_max {
                        true => (pause * 2).min(shared.options.reconnect_max),
                        false => RECONNECT_FIRST,
                    };
                }
                Err(_) if self.is_over() => return,
                Err(why) => {
                    if told.as_ref() != Some(&why) {
                        told = Some(why.clone());
                        let (peer, address) = (self.member.node, self.member.address.clone());
                        shared.tell(Event::Failed { peer, address, why });
                    }
                    pause = (pause * 2).min(shared.options.reconnect_max);
                }
            }
            if !self.is_over() {
                self.queue.bell().sleep(None, Some(pause));
            }
        }
    }

    fn connect(&self, shared: &Shared) -> Result<Connected, Failure> {
        let options = &shared.options;
        let until = Instant::now() + options.handshake_max;
        let socket = Socket::prepare(self.reach(shared, until)?, options, until)?;
        // From here on, the end of the link ends the handshake.
        let mut stream = match &options.security {
            Security::Tls(tls) => tls.connect(socket, &self.member.name)?,
            Security::PlainOnLoopback | Security::PlainAnywhere => Stream::Plain(socket),
        };
        *self.outgoing.lock() = Some(stream.ender()?);
        let connected = if self.is_over() {
            Err(Failure::Unreachable("the link is over".to_owned()))
        } else {
            self.shake_hands(shared, &mut stream)
        };
        match connected {
            Ok((agreed, life)) => Ok(Connected { stream, agreed, life }),
            Err(why) => {
                *self.outgoing.lock() = None;
                Err(why)
            }
        }
    }

    /// Connects to the first one of the member's addresses that answers in its share of the time. While a name is looked
    /// up, the system's own limits hold.
    fn reach(&self, shared: &Shared, until: Instant) -> Result<TcpStream, Failure> {
        let address = &self.member.address;
        let found =
            address.to_socket_addrs().map_err(|error| Failure::Unreachable(format!("{address}: {error}")))?;
        let found: Vec<SocketAddr> = found.collect();
        let mut why = Failure::Unreachable(format!("{address} is no address"));
        let count = found.len();
        for (index, address) in found.into_iter().enumerate() {
            if matches!(shared.options.security, Security::PlainOnLoopback) && !address.ip().is_loopback() {
                why = Failure::Unreachable(format!(
                    "a connection to {address} would be plain; give the node certificates, or allow plain connections \
                     by name"
                ));
                continue;
            }
            let now = Instant::now();
            let share = until.saturating_duration_since(now) / (count - index) as u32;
            match dial(address, self.queue.bell(), now + share, || self.is_over()) {
                Ok(socket) => return Ok(socket),
                Err(error) => why = Failure::Unreachable(format!("{address}: {error}")),
            }
        }
        Err(why)
    }

    fn shake_hands(&self, shared: &Shared, stream: &mut Stream) -> Result<(Agreed, Life), Failure> {
        let ours = shared.hello(self.member.node);
        handshake::send(stream, Kind::Hello, &ours.encode())?;
        let theirs = handshake::read_hello(stream, Kind::Welcome)?;
        let agreed = ours.agree(&theirs).and_then(|agreed| self.is_the_member(&theirs).map(|()| agreed));
        let agreed = agreed.map_err(|refusal| handshake::refuse(stream, refusal))?;
        stream.has_begun()?;
        Ok((agreed, theirs.life))
    }

    fn is_the_member(&self, theirs: &Hello) -> Result<(), Refusal> {
        let member = &self.member;
        if theirs.node == member.node && theirs.name == member.name {
            return Ok(());
        }
        Err(Refusal::OtherNode(format!(
            "at {} is node {:?}, {}, and not node {:?}, {}",
            member.address, theirs.name, theirs.node, member.name, member.node
        )))
    }

    /// Queues one message, and writes it if no other thread is about to: as far as that needs no waiting.
    pub(super) fn send(&self, class: Class, payload: &[u8], counters: &Counters) -> Result<(), SendError> {
        if self.queue.send(class, payload)? {
            self.begin_to_write(counters);
        }
        Ok(())
    }

    /// The same for messages that were admitted for a connection.
    pub(super) fn append(&self, connection: ConnectionId, messages: &mut Lanes, counters: &Counters) {
        if self.queue.append(connection, messages) {
            self.begin_to_write(counters);
        }
    }

    fn begin_to_write(&self, counters: &Counters) {
        self.outlet.write_now(&self.queue, counters);
    }

    fn write_until_the_end(&self, shared: &Shared, connected: Connected) {
        let Connected { stream, agreed, life } = connected;
        let (peer, direction, connection) = (self.member.node, Direction::Outgoing, shared.next_connection());
        // Messages may be sent as soon as the beginning is told, and none may any more once the end is.
        self.queue.open(connection);
        let began = Event::Began { peer, direction, connection, agreed, life };
        let why = match shared.call(|handler| handler.event(began)) {
            Ok(()) => self.write(shared, stream).to_string(),
            Err(panicked) => panicked,
        };
        // In this order: what is queued belongs to the connection that is there.
        self.outlet.close();
        self.queue.close();
        *self.outgoing.lock() = None;
        shared.tell(Event::Ended { peer, direction, connection, why });
    }

    /// Writes what is queued, and what senders leave, until the connection ends.
    fn write(&self, shared: &Shared, stream: Stream) -> std::io::Error {
        let socket = match self.outlet.open(stream) {
            Ok(socket) => socket,
            Err(error) => return error,
        };
        loop {
            if self.is_over() {
                return std::io::Error::other("this node has ended it");
            }
            if let Err(error) = self.outlet.write_all(&self.queue, &shared.counters) {
                return error;
            }
            let woken = self.queue.bell().sleep(Some(Awaited::Bytes(socket.as_fd())), None);
            if woken == Woken::Socket
                && let Err(error) = self.outlet.check()
            {
                return error;
            }
        }
    }
}
