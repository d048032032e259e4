//! One client's connection: start-up, then messages until the end.
//!
//! Kept here: answers gather in one buffer, which goes to the socket with one write at a Sync, at the end of a simple
//! query, at a Flush and before waiting for COPY data (and piecewise only for results of more than a mebibyte). Nothing
//! that tells an outcome is written before the session has given it (I3).
//!
//! A connection has a thread of its own, so whatever it waits for holds up nobody: a lock, the log, the client. See
//! `docs/decisions/2026-11-21-a-thread-per-connection.md`.

mod copy;
mod extended;
mod input;
mod output;
mod simple;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use rialto::row::Value;
use rialto_sql::{Prepared, Session, Severity, SqlError, SqlState, Tag, TransactionStatus};

use crate::protocol::Malformed;
use crate::protocol::backend::{self, Status};
use crate::protocol::frontend::{self, Message};
use crate::shared::{Place, Shared};
use copy::CopyState;
use extended::{Portals, Statement};
use input::Input;
use output::{OutputFormats, RowForm, WireSink};

/// Ends a socket's reads from another thread.
pub type Closer = Box<dyn Fn() + Send + Sync>;

/// A client's socket.
pub trait Stream: Read + Write + Send {
    /// What ends its reads.
    fn closer(&self) -> io::Result<Closer>;
    /// How long a read may take.
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
}

macro_rules! stream {
    ($($socket:ty),*) => {$(
        impl Stream for $socket {
            fn closer(&self) -> io::Result<Closer> {
                let socket = self.try_clone()?;
                // It is closed already if this fails.
                Ok(Box::new(move || drop(socket.shutdown(Shutdown::Read))))
            }

            fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                <$socket>::set_read_timeout(self, limit)
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

/// What becomes of a long result.
#[derive(Clone, Copy)]
enum Length {
    /// It is sent as it comes.
    Streamed,
    /// It is kept in the buffer.
    Kept,
}

/// Whether the connection goes on.
#[derive(PartialEq)]
enum Next {
    Go,
    End,
}

/// A client's connection after start-up.
struct Connection<S> {
    stream: S,
    out: Vec<u8>,
    session: Session,
    shared: Arc<Shared>,
    mode: Mode,
    /// Prepared statements by their names' bytes.
    statements: HashMap<Vec<u8>, Arc<Statement>>,
    portals: Portals,
    /// Where the last CommandComplete of the implicit block begins in `out`: a failed commit takes it back.
    completed_at: Option<usize>,
    /// Whether messages since the last Sync are still open.
    in_pipeline: bool,
}

/// Serves one client from its first byte to its last, on this thread.
pub fn serve<S: Stream>(mut stream: S, shared: Arc<Shared>) {
    // An error here, and below, means that the client is gone: there is nobody to tell.
    let _ = stream.set_read_timeout(Some(crate::STARTUP_TIMEOUT));
    let Ok(Some((session, place))) = crate::startup::start(&mut stream, &shared) else { return };
    let _ = stream.set_read_timeout(None);
    let connection = Connection {
        stream,
        out: Vec::with_capacity(8 * 1024),
        session,
        shared,
        mode: Mode::Ready,
        statements: HashMap::new(),
        portals: Portals::default(),
        completed_at: None,
        in_pipeline: false,
    };
    let _ = connection.run(place);
}

impl<S: Stream> Connection<S> {
    fn run(mut self, place: Place) -> io::Result<()> {
        let mut input = Input::default();
        loop {
            if !place.is_serving() && place.ends(self.is_idle()) {
                return self.shut_down();
            }
            match input.next() {
                Ok(Some((tag, body))) => {
                    if self.message(tag, body)? == Next::End {
                        self.session.abandon();
                        return Ok(());
                    }
                    if tag == b'B' && matches!(self.mode, Mode::Ready) && input.skip(RUN_UNNAMED) {
                        self.run_unnamed()?;
                    }
                }
                Ok(None) => {
                    let idle = self.is_idle();
                    let more = place.read(idle, || input.fill(&mut self.stream))?;
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

    /// Tells the client that the server is closing.
    fn shut_down(&mut self) -> io::Result<()> {
        self.fatal(self.shared.farewell())
    }

    fn fatal(&mut self, error: SqlError) -> io::Result<()> {
        self.session.abandon();
        backend::error(&mut self.out, Severity::Fatal, &error);
        self.flush()
    }

    /// One write, of everything that waits to be sent.
    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let written = self.stream.write_all(&self.out);
        self.out.clear();
        self.completed_at = None;
        if self.out.capacity() > 1 << 22 {
            self.out = Vec::with_capacity(8 * 1024);
        }
        written
    }

    fn message(&mut self, tag: u8, body: &[u8]) -> io::Result<Next> {
        if matches!(self.mode, Mode::Ready) {
            // What every driver sends for a prepared statement, without the detour by a `Message`.
            let done = match (tag, body) {
                (b'B', body) => frontend::bind_message(body).ok().map(|bind| self.bind(&bind)),
                (b'D', b"P\0") => Some(self.portals.describe("", &mut self.out)),
                (b'E', [0, 0, 0, 0, 0]) => Some(self.execute_portal("", 0)),
                (b'S', []) => return self.ready().map(|()| Next::Go),
                _ => None,
            };
            if let Some(done) = done {
                self.in_pipeline = true;
                if let Err(error) = done {
                    self.fail_pipeline(error);
                }
                return Ok(Next::Go);
            }
        }
        self.any_message(tag, body)
    }

    /// Does what [`RUN_UNNAMED`] asks for.
    fn run_unnamed(&mut self) -> io::Result<()> {
        let Connection { portals, out, .. } = self;
        let done = portals.describe("", out).and_then(|()| self.execute_portal("", 0));
        if let Err(error) = done {
            self.fail_pipeline(error);
        }
        match self.mode {
            // A Sync that comes while a COPY has begun ends nothing.
            Mode::CopyIn(_) => return Ok(()),
            Mode::Ready | Mode::SkipToSync => self.mode = Mode::Ready,
        }
        self.ready()
    }

    fn any_message(&mut self, tag: u8, body: &[u8]) -> io::Result<Next> {
        let message = match frontend::message(tag, body) {
            Ok(message) => message,
            Err(malformed) => {
                let error = protocol_error(malformed);
                match tag {
                    b'Q' => {
                        self.fail(error);
                        self.ready()?;
                    }
                    b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' => self.fail_pipeline(error),
                    _ => {
                        self.fatal(error)?;
                        return Ok(Next::End);
                    }
                }
                return Ok(Next::Go);
            }
        };
        if matches!(message, Message::Terminate) {
            return Ok(Next::End);
        }
        match &self.mode {
            Mode::Ready => {}
            Mode::SkipToSync => {
                if matches!(message, Message::Sync) {
                    self.mode = Mode::Ready;
                    self.ready()?;
                }
                return Ok(Next::Go);
            }
            Mode::CopyIn(_) => return self.copy_message(message).map(|()| Next::Go),
        }
        match message {
            Message::Query(sql) => self.query(sql)?,
            Message::Sync => self.ready()?,
            Message::Flush => self.flush()?,
            // What a client sent before it heard that its COPY had failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => {}
            Message::Unserved(what) => {
                self.fail(SqlError::unsupported(format!("the {what} message")));
                self.ready()?;
            }
            Message::Terminate => return Ok(Next::End),
            other => {
                self.in_pipeline = true;
                if let Err(error) = self.pipeline_message(other) {
                    self.fail_pipeline(error);
                }
            }
        }
        Ok(Next::Go)
    }

    fn fail_pipeline(&mut self, error: SqlError) {
        self.in_pipeline = true;
        self.fail(error);
        self.mode = Mode::SkipToSync;
    }

    /// Ends an implicit block and tells the client that it is its turn.
    fn ready(&mut self) -> io::Result<()> {
        if let Err(error) = self.session.finish() {
            if let Some(at) = self.completed_at.take() {
                self.out.truncate(at);
            }
            self.fail(error);
        }
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
        for (severity, notice) in self.session.take_notices() {
            backend::error(&mut self.out, severity, &notice);
        }
        for (name, value) in self.session.take_status_changes() {
            backend::parameter_status(&mut self.out, name, &value);
        }
    }

    /// Runs a statement and awaits its outcome; rows go to `out`.
    fn execute(
        &mut self,
        prepared: &Prepared,
        params: &[Value],
        form: RowForm<'_>,
        length: Length,
    ) -> Result<Tag, SqlError> {
        let Connection { session, out, stream, .. } = self;
        let mut send = |bytes: &mut Vec<u8>| stream.write_all(bytes);
        let send: Option<output::Send<'_>> = match length {
            Length::Streamed => Some(&mut send),
            Length::Kept => None,
        };
        let mut sink = WireSink::new(out, prepared.row_columns(), form, send);
        let tag = session.execute(prepared, params, &mut sink)?;
        self.notices();
        Ok(tag)
    }

    /// Appends CommandComplete.
    fn complete(&mut self, tag: Tag) {
        self.completed_at = match self.session.status() {
            TransactionStatus::Idle => Some(self.out.len()),
            _ => None,
        };
        backend::command_complete(&mut self.out, tag);
    }
}

/// What a statement's rows become.
fn form<'a>(prepared: &'a Prepared, formats: &'a OutputFormats) -> RowForm<'a> {
    match prepared.copy() {
        Some(_) => RowForm::CopyLines(prepared),
        None => RowForm::Rows(formats),
    }
}

fn protocol_error(malformed: Malformed) -> SqlError {
    SqlError::new(SqlState::ProtocolViolation, malformed.to_string())
}
