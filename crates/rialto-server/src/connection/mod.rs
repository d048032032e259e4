//! One client's connection: start-up, then messages until the end.
//!
//! Kept here: answers gather in one buffer, which goes to the socket with one write at a Sync, at the end of a simple
//! query, at a Flush, before waiting for COPY data, and whenever it holds a mebibyte: it is bounded.
//!
//! I3: nothing that tells an outcome is written before the session has given it. What is written earlier, rows of a long
//! result for the most part, is written only when everything that it may have been read from is durable, unless it
//! belongs to a transaction block: of a block, only the answer to its end is an outcome. [`EarlySend`] keeps that while
//! a statement runs, [`Connection::send_early`] between messages and statements. Of an implicit block, ReadyForQuery tells that it is
//! committed. The completion that comes last before that is sent earlier only if the client asks for that by a Flush, or if a
//! mebibyte of other answers follows it. If what was read will never be durable, all that the implicit block has told is taken back
//! ([`Unsettled`]).
//!
//! What a message does depends on the [`Mode`]; `tests/protocol/states.rs` has the table. A message that makes no sense is an
//! error in each, and ends what the mode was about: no mode outlives the transaction that it belongs to.
//!
//! A client that does not read, or stops in the midst of what takes room that all share, is given up after the write time-out
//! ([`Socket`]), and its transaction with it.
//!
//! A connection has a thread of its own, so whatever it waits for holds up nobody: a lock, the log, the client. See
//! `docs/decisions/2026-11-21-a-thread-per-connection.md`.

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
    /// What ends its reads, and its writes.
    fn closer(&self) -> io::Result<Closer>;
    /// How long a read may take.
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
    /// How long a write may take that writes nothing.
    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
}

macro_rules! stream {
    ($($socket:ty),*) => {$(
        impl Stream for $socket {
            fn closer(&self) -> io::Result<Closer> {
                let socket = self.try_clone()?;
                // It is closed already if this fails.
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

/// What libpq sends behind the Bind of a prepared statement: Describe and Execute of the unnamed portal, and Sync.
const RUN_UNNAMED: &[u8] = b"D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

/// What is to be done with the next message.
enum Mode {
    /// Whatever it says.
    Ready,
    /// Nothing, until a Sync, because of an error in a pipeline.
    SkipToSync,
    /// It belongs to a COPY.
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
    /// Whether messages since the last Sync are still open.
    in_pipeline: bool,
}

/// Serves one client from its first byte to its last, on this thread.
pub fn serve<S: Stream>(mut stream: S, shared: Arc<Shared>) {
    match stream.closer().map(|closer| shared.admit(closer)) {
        Ok(Some(place)) => serve_admitted(stream, &shared, &place),
        // An error here, and below, means that the client is gone: there is nothing to tell it.
        Ok(None) => drop(crate::startup::turn_away(&mut stream, &shared)),
        Err(_) => {}
    }
}

/// Serves one client that has a place. The place is given back only when nothing of the client's is left.
pub(crate) fn serve_admitted<S: Stream>(mut stream: S, shared: &Arc<Shared>, place: &Place) {
    let write_timeout = shared.write_timeout();
    if stream.set_write_timeout(write_timeout).is_err() {
        return;
    }
    let Ok(Some(session)) = crate::startup::start(&mut stream, shared, place) else { return };
    if stream.set_read_timeout(None).is_err() {
        return;
    }
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
    let _ = connection.run(place);
}

impl<S: Stream> Connection<S> {
    fn run(mut self, place: &Place) -> io::Result<()> {
        let mut input = Input::new(&self.shared.message_room);
        loop {
            if !place.is_serving() && place.ends(self.is_idle()) {
                return self.shut_down();
            }
            match input.next() {
                Ok(Some(Came::Message(tag, body))) => {
                    // Before a Sync the buffer ends in the completion that tells the outcome of the pipeline.
                    if self.out.len() >= SEND_BYTES && tag != b'S' {
                        self.send_early()?;
                    }
                    if self.message(tag, body)? == Next::End {
                        self.session.abandon();
                        return Ok(());
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
                        // A client that sent a Flush, or nothing, behind what failed waits for the error.
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
                        return Ok(());
                    }
                }
                Err(malformed) => return self.fatal(protocol_error(malformed)),
            }
        }
    }

    /// Whether nothing is open, and nothing begun.
    fn is_idle(&self) -> bool {
        let between = !self.in_pipeline && self.session.status() == TransactionStatus::Idle;
        between && matches!(self.mode, Mode::Ready)
    }

    /// Tells a client that is given up.
    #[cold]
    fn read_failed(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::TimedOut => self.fatal(self.socket.stopped_sending()),
            _ => Err(error),
        }
    }

    /// Tells the client that the server is closing.
    fn shut_down(&mut self) -> io::Result<()> {
        self.fatal(self.shared.farewell())
    }

    /// Ends the connection with this error behind what there is to send. Of an implicit block that ends by it no outcome is told.
    fn fatal(&mut self, error: SqlError) -> io::Result<()> {
        let is_open = self.session.is_in_implicit_block();
        match self.session.settle() {
            Ok(()) if is_open => self.unsettled.take_back_completion(&mut self.out),
            Ok(()) => {}
            Err(_) => self.unsettled.take_back(&mut self.out),
        }
        self.session.abandon();
        backend::error(&mut self.out, Severity::Fatal, &error);
        self.flush()
    }

    /// One write, of everything that waits to be sent.
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

    /// Sends what there is although the outcome is not known, once what it was read from is durable (I3).
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
            // What every driver sends for a prepared statement, without the detour by a `Message`.
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

    /// Does what [`RUN_UNNAMED`] asks for.
    fn run_unnamed(&mut self) -> io::Result<()> {
        let done = self.describe_portal("").and_then(|()| self.execute_portal("", 0));
        if let Err(error) = done {
            self.fail_pipeline(error);
        }
        match self.mode {
            // A Sync that comes while a COPY has begun ends nothing.
            Mode::CopyIn(_) => return self.send_early(),
            Mode::Ready | Mode::SkipToSync => self.mode = Mode::Ready,
        }
        self.ready()
    }

    fn any_message(&mut self, tag: u8, body: &[u8]) -> io::Result<Next> {
        match (&self.mode, tag) {
            (_, b'X') => return Ok(Next::End),
            // The Sync itself is no part of what is skipped, even if it makes no sense.
            (Mode::SkipToSync, b'S') => self.mode = Mode::Ready,
            (Mode::SkipToSync, _) => return Ok(Next::Go),
            _ => {}
        }
        self.read_message(tag, frontend::message(tag, body).map_err(protocol_error))
    }

    /// Does what a message asks for that is not skipped, or tells what is wrong with it.
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
            // What a client sent before it heard that its COPY had failed.
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
            // Those that are answered by ReadyForQuery are so answered if they make no sense, too.
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

    /// Ends an implicit block and tells the client that it is its turn.
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

    /// Tells the client of an error, once what led to it is durable.
    #[cold]
    fn fail(&mut self, error: SqlError) {
        let error = self.session.fail(&error).err().unwrap_or(error);
        if error.is_log_failure() {
            self.unsettled.take_back(&mut self.out);
        }
        self.shared.note(&error);
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

    /// Runs a statement and awaits its outcome; rows go to `out`, or are kept as `rest` says. Gives how many more would
    /// not have been kept, too.
    fn execute(
        &mut self,
        form: RowForm<'_>,
        rest: Option<Rest<'_>>,
        run: impl FnOnce(&mut Session, &mut WireSink<'_>) -> Result<Tag, SqlError>,
    ) -> Result<(Tag, u64), SqlError> {
        let settle = match self.session.status() {
            TransactionStatus::Idle => {
                self.unsettled.from.get_or_insert(self.out.len());
                Some(self.session.durability())
            }
            TransactionStatus::Block | TransactionStatus::Failed => None,
        };
        let Connection { session, out, socket, shared, unsettled, .. } = self;
        let mut early = EarlySend { socket, database: &shared.database, settle, unsettled };
        let mut send = |bytes: &mut Vec<u8>| early.send(bytes);
        let mut sink = WireSink::new(out, form, &mut send, rest);
        let tag = run(session, &mut sink)?;
        let before = sink.before();
        self.notices();
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

/// What the buffer has of an implicit block, whose outcome is not known: places in the buffer.
///
/// I3: what is read may never be durable. Then nothing of it may be told. A commit that fails for another reason takes
/// back only its CommandComplete: the rows were there.
#[derive(Default)]
struct Unsettled {
    /// Where the answer to the block's first statement begins.
    from: Option<usize>,
    /// Where its last CommandComplete begins.
    completed_at: Option<usize>,
}

impl Unsettled {
    /// All that the buffer had has been sent.
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

/// Sends what waits while a statement runs.
struct EarlySend<'a, S> {
    socket: &'a mut Socket<S>,
    database: &'a Database,
    /// Outside of a block: the level at which what was read has to be durable first.
    settle: Option<Option<Durability>>,
    unsettled: &'a mut Unsettled,
}

impl<S: Stream> EarlySend<'_, S> {
    /// I3: a statement that runs cannot be asked what it has read, so all that has committed by now has to be durable.
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
