//! One client's connection: start-up, then messages until the end.
//!
//! Invariant: answers gather in one buffer. It goes to the socket with one write at a Sync, at the end of a simple
//! query, at a Flush, before waiting for COPY data, and whenever it holds a mebibyte. So it is bounded.
//!
//! I3: no outcome is written before the session has given it. Earlier writes, mostly rows of a long result, are made
//! only when everything that the rows may have been read from is durable, unless they belong to a transaction block: of
//! a block, only the answer to its end is an outcome. [`EarlySend`] ensures that while a statement runs, and
//! [`Connection::send_early`] between messages and statements. Of an implicit block, ReadyForQuery tells that it is
//! committed. The last completion before it is sent earlier only if the client asks for that by a Flush, or if a
//! mebibyte of other answers follows it. If what was read will never be durable, the whole answer of the implicit block
//! is taken back ([`Unsettled`]).
//!
//! The effect of a message depends on the [`Mode`]; `tests/protocol/states.rs` has the table. A malformed message is an
//! error in each mode, and ends the mode: no mode outlives the transaction to which it belongs.
//!
//! If a client does not read, or stops in the middle of input that takes shared room, the connection and its
//! transaction end after the write time-out ([`Socket`]).
//!
//! A connection has a thread of its own, so its waits for a lock, the log or the client hold up no other connection.
//! See `docs/decisions/2026-11-21-a-thread-per-connection.md`.

mod copy;
mod extended;
mod input;
mod output;
mod portal;
mod simple;
mod socket;
mod statements;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rialto::{Database, Durability, fault_injection};
use rialto_sql::{Session, Severity, SqlError, SqlState, Tag, TransactionStatus};

use crate::events::{self, ConnectionEvents, Ended};
use crate::protocol::Malformed;
use crate::protocol::backend::{self, Status};
use crate::protocol::frontend::{self, Message};
use crate::shared::{Place, Shared};
use copy::CopyState;
use input::{Came, Input};
use output::{Rest, RowForm, SEND_BYTES, WireSink};
use portal::Portals;
use socket::Socket;
use statements::Statements;

/// Ends a socket's reads, or its reads and writes, from another thread.
pub type Closer = Box<dyn Fn(Shutdown) + Send + Sync>;

/// A client's socket.
pub trait Stream: Read + Write + Send {
    /// Makes the handle that ends its reads, and its writes.
    fn closer(&self) -> io::Result<Closer>;
    /// How long a read may take.
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
    /// How long a write may take that makes no progress.
    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
}

macro_rules! stream {
    ($($socket:ty),*) => {$(
        impl Stream for $socket {
            fn closer(&self) -> io::Result<Closer> {
                let socket = self.try_clone()?;
                // If this fails, the socket is closed already.
                Ok(Box::new(move |how| drop(socket.shutdown(how))))
            }

            fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                <$socket>::set_read_timeout(self, limit)
            }

            fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                <$socket>::set_write_timeout(self, limit)
            }
        }
    )*};
}

stream!(TcpStream, UnixStream);

/// The messages that libpq sends behind the Bind of a prepared statement: Describe and Execute of the unnamed portal,
/// and Sync.
const RUN_UNNAMED: &[u8] = b"D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

/// What to do with the next message.
enum Mode {
    /// What it says.
    Ready,
    /// Skip it, until a Sync, because of an error in a pipeline.
    SkipToSync,
    /// Give it to the COPY.
    CopyIn(Box<CopyState>),
}

/// Whether the connection goes on.
#[derive(PartialEq)]
enum Next {
    Go,
    End,
}

/// A client's connection after start-up.
struct Connection<S> {
    socket: Socket<S>,
    out: Vec<u8>,
    session: Session,
    shared: Arc<Shared>,
    mode: Mode,
    statements: Statements,
    portals: Portals,
    unsettled: Unsettled,
    /// Whether messages have come since the last Sync.
    in_pipeline: bool,
}

/// Serves one client from its first byte to its last, on this thread.
pub fn serve<S: Stream>(mut stream: S, shared: Arc<Shared>) {
    match stream.closer().map(|closer| shared.admit(closer)) {
        Ok(Some(place)) => serve_admitted(stream, "a stream", &shared, &place),
        // An error here, and below, means that the client is gone: there is nothing to tell it.
        Ok(None) => drop(crate::startup::turn_away(&mut stream, &shared)),
        Err(_) => {}
    }
}

/// Serves one client that has a place. The place is given back only when nothing of the client is left.
pub(crate) fn serve_admitted<S: Stream>(stream: S, peer: &str, shared: &Arc<Shared>, place: &Place) {
    ConnectionEvents::accepted(place.process, &peer).serve(|| serve_to_its_end(stream, shared, place));
}

fn serve_to_its_end<S: Stream>(mut stream: S, shared: &Arc<Shared>, place: &Place) -> io::Result<Ended> {
    let write_timeout = shared.write_timeout();
    stream.set_write_timeout(write_timeout)?;
    let Some(session) = crate::startup::start(&mut stream, shared, place)? else {
        return Ok(Ended::NotBegun);
    };
    stream.set_read_timeout(None)?;
    let connection = Connection {
        socket: Socket::new(stream, write_timeout),
        out: Vec::with_capacity(8 * 1024),
        session,
        shared: shared.clone(),
        mode: Mode::Ready,
        statements: Statements::default(),
        portals: Portals::default(),
        unsettled: Unsettled::default(),
        in_pipeline: false,
    };
    connection.run(place)
}

impl<S: Stream> Connection<S> {
    fn run(mut self, place: &Place) -> io::Result<Ended> {
        let mut input = Input::new(&self.shared.message_room);
        loop {
            if !place.is_serving() && place.ends(self.is_idle()) {
                return self.shut_down().map(|()| Ended::Shutdown);
            }
            match input.next() {
                Ok(Some(Came::Message(tag, body))) => {
                    // Before a Sync the buffer ends in the completion that tells the outcome of the pipeline.
                    if self.out.len() >= SEND_BYTES && tag != b'S' {
                        self.send_early()?;
                    }
                    if self.message(tag, body)? == Next::End {
                        self.session.abandon();
                        return Ok(Ended::Terminated);
                    }
                    if tag == b'B' && matches!(self.mode, Mode::Ready) && input.skip(RUN_UNNAMED) {
                        self.run_unnamed()?;
                    }
                }
                Ok(Some(Came::Refused(tag, error))) => {
                    if !matches!(self.mode, Mode::SkipToSync) {
                        self.read_message(tag, Err(*error))?;
                    }
                }
                Ok(None) => {
                    if let Mode::SkipToSync = self.mode {
                        // A client that sent a Flush, or nothing, after the failed message waits for the error.
                        self.flush()?;
                    }
                    let idle = self.is_idle();
                    let copy_holds_room = matches!(&self.mode, Mode::CopyIn(copy) if copy.holds_room());
                    let socket = &mut self.socket;
                    let read = place.read(idle, || {
                        input.fill(|buffer, holds_room| socket.read(buffer, holds_room || copy_holds_room))
                    });
                    let more = match read {
                        Ok(more) => more,
                        Err(error) => return self.read_failed(error),
                    };
                    if !more && !place.ends(idle) {
                        self.session.abandon();
                        return Ok(Ended::Closed);
                    }
                }
                Err(malformed) => {
                    let ended = Ended::Fatal(SqlState::ProtocolViolation);
                    return self.fatal(protocol_error(malformed)).map(|()| ended);
                }
            }
        }
    }

    /// Whether nothing is open, and no message has begun.
    fn is_idle(&self) -> bool {
        let between = !self.in_pipeline && self.session.status() == TransactionStatus::Idle;
        between && matches!(self.mode, Mode::Ready)
    }

    /// Tells a client that its connection ends because it did not read or send.
    #[cold]
    fn read_failed(&mut self, error: io::Error) -> io::Result<Ended> {
        match error.kind() {
            io::ErrorKind::TimedOut => {
                let error = self.socket.stopped_sending();
                let ended = Ended::Fatal(error.sqlstate);
                self.fatal(error).map(|()| ended)
            }
            _ => Err(error),
        }
    }

    /// Tells the client that the server is closing.
    fn shut_down(&mut self) -> io::Result<()> {
        self.fatal(self.shared.farewell())
    }

    /// Ends the connection with this error, after all unsent answers. If an implicit block ends by it, no outcome of
    /// the block is told.
    fn fatal(&mut self, error: SqlError) -> io::Result<()> {
        let is_open = self.session.is_in_implicit_block();
        match self.session.settle() {
            Ok(()) if is_open => self.unsettled.take_back_completion(&mut self.out),
            Ok(()) => {}
            Err(_) => self.unsettled.take_back(&mut self.out),
        }
        self.session.abandon();
        events::error_sent(&error);
        backend::error(&mut self.out, Severity::Fatal, &error);
        self.flush()
    }

    /// Sends everything in the buffer by one write.
    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let written = self.socket.send(&self.out);
        self.out.clear();
        self.unsettled.sent();
        if self.out.capacity() > 1 << 22 {
            self.out = Vec::with_capacity(8 * 1024);
        }
        written
    }

    /// Sends the buffer although the outcome is not known, once everything that it was read from is durable (I3).
    #[cold]
    fn send_early(&mut self) -> io::Result<()> {
        if let Err(error) = self.session.settle() {
            self.shared.note(&error);
            self.fatal(error)?;
            return Err(io::Error::other("the database has stopped"));
        }
        self.flush()
    }

    fn message(&mut self, tag: u8, body: &[u8]) -> io::Result<Next> {
        if matches!(self.mode, Mode::Ready) {
            // Every driver sends this for a prepared statement; it is handled without a `Message`.
            let done = match (tag, body) {
                (b'B', body) => frontend::bind_message(body).ok().map(|bind| self.bind(&bind)),
                (b'D', b"P\0") => Some(self.describe_portal("")),
                (b'E', [0, 0, 0, 0, 0]) => Some(self.execute_portal("", 0)),
                (b'S', []) => return self.ready().map(|()| Next::Go),
                _ => None,
            };
            if let Some(done) = done {
                self.in_pipeline = true;
                if let Err(error) = done {
                    self.fail_pipeline(error);
                }
                if let Mode::CopyIn(_) = self.mode {
                    self.send_early()?;
                }
                return Ok(Next::Go);
            }
        }
        self.any_message(tag, body)
    }

    /// Handles [`RUN_UNNAMED`].
    fn run_unnamed(&mut self) -> io::Result<()> {
        // The Sync has come.
        self.session.announce_end();
        let done = self.describe_portal("").and_then(|()| self.execute_portal("", 0));
        if let Err(error) = done {
            self.fail_pipeline(error);
        }
        match self.mode {
            // A Sync that comes after a COPY has begun ends nothing.
            Mode::CopyIn(_) => return self.send_early(),
            Mode::Ready | Mode::SkipToSync => self.mode = Mode::Ready,
        }
        self.ready()
    }

    fn any_message(&mut self, tag: u8, body: &[u8]) -> io::Result<Next> {
        match (&self.mode, tag) {
            (_, b'X') => return Ok(Next::End),
            // The Sync itself is not skipped, even if it is malformed.
            (Mode::SkipToSync, b'S') => self.mode = Mode::Ready,
            (Mode::SkipToSync, _) => return Ok(Next::Go),
            _ => {}
        }
        self.read_message(tag, frontend::message(tag, body).map_err(protocol_error))
    }

    /// Does what a message asks for that is not skipped, or tells its error.
    fn read_message(&mut self, tag: u8, message: Result<Message<'_>, SqlError>) -> io::Result<Next> {
        let is_passed_by =
            fault_injection::is_on("copy-outlives-its-transaction") && tag == b'Q' && message.is_err();
        if let Mode::CopyIn(_) = self.mode
            && !is_passed_by
        {
            return self.copy_message(message).map(|()| Next::Go);
        }
        match message {
            Ok(Message::Query(sql)) => self.query(sql)?,
            Ok(Message::Sync) => self.ready()?,
            Ok(Message::Flush) => self.send_early()?,
            Ok(Message::Unserved(what)) => {
                self.fail(SqlError::unsupported(format!("the {what} message")));
                self.ready()?;
            }
            Ok(Message::Terminate) => return Ok(Next::End),
            // A client sent these before it knew that its COPY had failed.
            Ok(Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_)) => {}
            Err(_) if matches!(tag, b'd' | b'c' | b'f') => {}
            Ok(other) => {
                self.in_pipeline = true;
                if let Err(error) = self.pipeline_message(other) {
                    self.fail_pipeline(error);
                }
                if let Mode::CopyIn(_) = self.mode {
                    self.send_early()?;
                }
            }
            // A malformed message of a kind that ReadyForQuery answers is answered by it too.
            Err(error) if matches!(tag, b'Q' | b'S' | b'F') => {
                self.fail(error);
                self.ready()?;
            }
            Err(error) => self.fail_pipeline(error),
        }
        Ok(Next::Go)
    }

    fn fail_pipeline(&mut self, error: SqlError) {
        self.in_pipeline = true;
        self.fail(error);
        if !fault_injection::is_on("error-does-not-skip") {
            self.mode = Mode::SkipToSync;
        }
    }

    /// Ends an implicit block, and tells the client that the server is ready.
    fn ready(&mut self) -> io::Result<()> {
        if let Err(error) = self.session.finish() {
            self.unsettled.take_back_completion(&mut self.out);
            self.fail(error);
        }
        // Settings of the block may have ended with it.
        self.notices();
        self.unsettled = Unsettled::default();
        self.in_pipeline = false;
        let status = match self.session.status() {
            TransactionStatus::Idle => Status::Idle,
            TransactionStatus::Block => Status::Block,
            TransactionStatus::Failed => Status::Failed,
        };
        if status == Status::Idle {
            self.portals.clear();
        }
        backend::ready(&mut self.out, status);
        self.flush()
    }

    /// Tells the client of an error, once everything that led to it is durable.
    #[cold]
    fn fail(&mut self, error: SqlError) {
        let error = self.session.fail(&error).err().unwrap_or(error);
        if error.is_log_failure() {
            self.unsettled.take_back(&mut self.out);
        }
        self.shared.note(&error);
        events::error_sent(&error);
        self.notices();
        backend::error(&mut self.out, Severity::Error, &error);
    }

    /// Appends notices and changed settings.
    #[inline]
    fn notices(&mut self) {
        if self.session.has_news() {
            self.tell_news();
        }
    }

    fn tell_news(&mut self) {
        if let Some(savepoint) = self.session.take_closed_portals() {
            let outlives = match savepoint {
                0 => fault_injection::is_on("portal-outlives-its-transaction"),
                _ => fault_injection::is_on("portal-outlives-its-savepoint"),
            };
            if !outlives {
                self.portals.close_behind(savepoint);
            }
        }
        for (severity, notice) in self.session.take_notices() {
            backend::error(&mut self.out, severity, &notice);
        }
        for (name, value) in self.session.take_status_changes() {
            backend::parameter_status(&mut self.out, name, &value);
        }
    }

    /// Runs a statement and waits for its outcome. Rows go to `out`, or are kept as `rest` says. Gives also how many
    /// more rows the row limit would have allowed.
    fn execute(
        &mut self,
        form: RowForm<'_>,
        rest: Option<Rest<'_>>,
        run: impl FnOnce(&mut Session, &mut WireSink<'_>) -> Result<Tag, SqlError>,
    ) -> Result<(Tag, u64), SqlError> {
        let settle = match self.session.status() {
            TransactionStatus::Idle => {
                self.unsettled.from.get_or_insert(self.out.len());
                (!self.session.gives_settled_rows()).then(|| self.session.durability())
            }
            TransactionStatus::Block | TransactionStatus::Failed => None,
        };
        let Connection { session, out, socket, shared, unsettled, .. } = self;
        let mut early = EarlySend { socket, database: &shared.database, settle, unsettled };
        let mut send = |bytes: &mut Vec<u8>| early.send(bytes);
        let mut sink = WireSink::new(out, form, &mut send, rest);
        let tag = run(session, &mut sink)?;
        let before = sink.before();
        if self.session.has_news() {
            self.session.take_closings().iter().try_for_each(|closing| self.close(closing))?;
            self.tell_news();
        }
        Ok((tag, before))
    }

    /// Appends CommandComplete.
    fn complete(&mut self, tag: Tag) {
        if self.session.is_in_implicit_block() {
            self.unsettled.completed_at = Some(self.out.len());
        } else {
            self.unsettled = Unsettled::default();
        }
        backend::command_complete(&mut self.out, tag);
    }
}

/// The positions in the buffer of an implicit block's answer, whose outcome is not known.
///
/// I3: what was read may never be durable. Then none of it may be told. A commit that fails for another reason takes
/// back only its CommandComplete: the rows were there.
#[derive(Default)]
struct Unsettled {
    /// The beginning of the answer to the block's first statement.
    from: Option<usize>,
    /// The beginning of its last CommandComplete.
    completed_at: Option<usize>,
}

impl Unsettled {
    /// The whole buffer has been sent.
    fn sent(&mut self) {
        *self = Unsettled { from: self.from.map(|_| 0), completed_at: None };
    }

    /// The block is not committed, and what was read is durable.
    fn take_back_completion(&mut self, out: &mut Vec<u8>) {
        if let Some(at) = self.completed_at.take() {
            out.truncate(at);
        }
    }

    /// What was read will never be durable.
    fn take_back(&mut self, out: &mut Vec<u8>) {
        if let Some(from) = std::mem::take(self).from {
            out.truncate(from);
        }
    }
}

/// Sends the buffer while a statement runs.
struct EarlySend<'a, S> {
    socket: &'a mut Socket<S>,
    database: &'a Database,
    /// Outside of a block: the level at which everything read has to be durable first.
    settle: Option<Option<Durability>>,
    unsettled: &'a mut Unsettled,
}

impl<S: Stream> EarlySend<'_, S> {
    /// I3: a running statement cannot say what it has read, so everything that has committed by now has to be durable.
    #[cold]
    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), SqlError> {
        if let Some(durability) = self.settle {
            self.database.settle(durability)?;
        }
        let sent = self.socket.send(out);
        out.clear();
        self.unsettled.sent();
        sent.map_err(|error| SqlError::new(SqlState::IoError, format!("the client is gone: {error}")))
    }
}

fn protocol_error(malformed: Malformed) -> SqlError {
    SqlError::new(SqlState::ProtocolViolation, malformed.to_string())
}
