//! One client's connection: start-up, then messages until the end.
//!
//! Kept here: answers gather in one buffer, which goes to the socket with one write at a Sync, at the end of a simple
//! query, at a Flush and before waiting for COPY data (and piecewise only for results of more than a mebibyte). A
//! statement runs first where it may not wait; one that would have to wait for a lock, or that is long, runs where its
//! waiting holds up nobody: tokio gives this thread's other sessions to another thread. Nothing that tells an outcome
//! is written before its ticket is done (I3). Messages that cannot wait for anything, which are most of a pipeline's,
//! are answered by plain functions; only what may wait is a future.

mod copy;
mod extended;
mod input;
mod output;
mod simple;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use hashbrown::HashMap;
use rialto::row::Value;
use rialto::{LockPolicy, Ticket};
use rialto_sql::{Completion, Prepared, Session, Severity, SqlError, SqlState, Tag, TransactionStatus};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::protocol::Malformed;
use crate::protocol::backend::{self, Status};
use crate::protocol::frontend::{self, Format, Message};
use crate::shared::{Phase, Place, Shared};
use copy::CopyState;
use extended::Portal;
use input::Input;
use output::{RowForm, WireSink};

/// A client's socket.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

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

/// What came of an attempt to answer a message without waiting.
enum AtOnce {
    Done,
    Failed(SqlError),
    /// It may have to wait; nothing has been done.
    No,
}

/// A client's connection after start-up.
struct Connection<S> {
    stream: S,
    input: Input,
    out: Vec<u8>,
    session: Session,
    shared: Arc<Shared>,
    mode: Mode,
    statements: HashMap<String, Option<Arc<Prepared>>>,
    portals: HashMap<String, Portal>,
    /// Where the last CommandComplete of the implicit block begins in `out`: a failed commit takes it back.
    completed_at: Option<usize>,
    /// Whether messages since the last Sync are still open.
    in_pipeline: bool,
}

/// Serves one client from its first byte to its last.
pub async fn serve<S: Stream>(mut stream: S, shared: Arc<Shared>) {
    let started =
        tokio::time::timeout(crate::STARTUP_TIMEOUT, crate::startup::start(&mut stream, &shared)).await;
    let Ok(Ok(Some((session, place)))) = started else { return };
    let connection = Connection {
        stream,
        input: Input::default(),
        out: Vec::with_capacity(8 * 1024),
        session,
        shared,
        mode: Mode::Ready,
        statements: HashMap::new(),
        portals: HashMap::new(),
        completed_at: None,
        in_pipeline: false,
    };
    // An error here means that the client is gone: there is nobody to tell.
    let _ = connection.run(place).await;
}

impl<S: Stream> Connection<S> {
    async fn run(mut self, mut place: Place) -> io::Result<()> {
        loop {
            let between = !self.in_pipeline && self.session.status() == TransactionStatus::Idle;
            let phase = place.phase();
            if phase == Phase::Ending
                || phase == Phase::Draining && between && matches!(self.mode, Mode::Ready)
            {
                return self.shut_down().await;
            }
            match self.input.next() {
                Ok(Some((tag, body))) => {
                    let bytes = self.input.lend();
                    let next = match self.at_once(tag, &bytes[body.clone()]) {
                        AtOnce::Done => Ok(Next::Go),
                        AtOnce::Failed(error) => {
                            self.fail_pipeline(error).await;
                            Ok(Next::Go)
                        }
                        AtOnce::No => self.message(tag, &bytes[body]).await,
                    };
                    self.input.give_back(bytes);
                    if next? == Next::End {
                        self.session.abandon();
                        return Ok(());
                    }
                }
                Ok(None) => {
                    let Connection { input, stream, .. } = &mut self;
                    let more = poll_fn(|cx| match input.poll_fill(stream, cx) {
                        Poll::Ready(more) => Poll::Ready(Some(more)),
                        Poll::Pending if place.has_new_phase(cx.waker()) => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    });
                    let Some(more) = more.await else { continue };
                    if !more? {
                        self.session.abandon();
                        return Ok(());
                    }
                }
                Err(malformed) => return self.fatal(protocol_error(malformed)).await,
            }
        }
    }

    /// Answers a message of a pipeline if it is one that waits for nothing.
    fn at_once(&mut self, tag: u8, body: &[u8]) -> AtOnce {
        if !matches!(tag, b'B' | b'D' | b'E') || !matches!(self.mode, Mode::Ready) {
            return AtOnce::No;
        }
        let answer = match frontend::message(tag, body) {
            Ok(Message::Bind(bind)) => self.bind(bind),
            Ok(Message::Describe(target, name)) => self.describe(target, name),
            Ok(Message::Execute { portal, max_rows: 0 }) => match self.execute_at_once(portal) {
                Ok(true) => Ok(()),
                Ok(false) => return AtOnce::No,
                Err(error) => Err(error),
            },
            _ => return AtOnce::No,
        };
        self.in_pipeline = true;
        match answer {
            Ok(()) => AtOnce::Done,
            Err(error) => AtOnce::Failed(error),
        }
    }

    /// Tells the client that the server is closing.
    async fn shut_down(&mut self) -> io::Result<()> {
        self.fatal(self.shared.farewell()).await
    }

    async fn fatal(&mut self, error: SqlError) -> io::Result<()> {
        self.session.abandon();
        backend::error(&mut self.out, Severity::Fatal, &error);
        self.flush().await
    }

    /// One write, of everything that waits to be sent.
    async fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let written = self.stream.write_all(&self.out).await;
        self.out.clear();
        self.completed_at = None;
        if self.out.capacity() > 1 << 22 {
            self.out = Vec::with_capacity(8 * 1024);
        }
        written
    }

    async fn message(&mut self, tag: u8, body: &[u8]) -> io::Result<Next> {
        let message = match frontend::message(tag, body) {
            Ok(message) => message,
            Err(malformed) => {
                let error = protocol_error(malformed);
                match tag {
                    b'Q' => {
                        self.fail(error).await;
                        self.ready().await?;
                    }
                    b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' => self.fail_pipeline(error).await,
                    _ => {
                        self.fatal(error).await?;
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
                    self.sync().await?;
                }
                return Ok(Next::Go);
            }
            Mode::CopyIn(_) => return self.copy_message(message).await.map(|()| Next::Go),
        }
        match message {
            Message::Query(sql) => self.query(sql).await?,
            Message::Sync => self.sync().await?,
            Message::Flush => self.flush().await?,
            // What a client sent before it heard that its COPY had failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => {}
            Message::Unserved(what) => {
                self.fail(SqlError::unsupported(format!("the {what} message"))).await;
                self.ready().await?;
            }
            Message::Terminate => return Ok(Next::End),
            other => {
                self.in_pipeline = true;
                if let Err(error) = self.pipeline_message(other).await {
                    self.fail_pipeline(error).await;
                }
            }
        }
        Ok(Next::Go)
    }

    async fn fail_pipeline(&mut self, error: SqlError) {
        self.in_pipeline = true;
        self.fail(error).await;
        self.mode = Mode::SkipToSync;
    }

    /// Ends an implicit block and tells the client that it is its turn.
    async fn ready(&mut self) -> io::Result<()> {
        if let Err(error) = self.finish().await {
            if let Some(at) = self.completed_at.take() {
                self.out.truncate(at);
            }
            self.fail(error).await;
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
        self.flush().await
    }

    /// Commits an implicit block, if one is open.
    async fn finish(&mut self) -> Result<(), SqlError> {
        let ticket = match self.session.is_heavy() {
            true => block_in_place(|| self.session.finish())?,
            false => self.session.finish()?,
        };
        wait(ticket).await
    }

    /// Tells the client of an error, once what led to it is durable.
    async fn fail(&mut self, error: SqlError) {
        let ticket = self.session.fail(&error);
        let error = match wait(ticket).await {
            Ok(()) => error,
            Err(worse) => worse,
        };
        self.shared.note(&error);
        self.notices();
        backend::error(&mut self.out, Severity::Error, &error);
    }

    /// Appends notices and changed settings.
    fn notices(&mut self) {
        for (severity, notice) in self.session.take_notices() {
            backend::error(&mut self.out, severity, &notice);
        }
        for (name, value) in self.session.take_status_changes() {
            backend::parameter_status(&mut self.out, name, &value);
        }
    }

    /// Runs a statement and awaits its outcome; rows go to `out`.
    async fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        formats: &[Format],
        length: Length,
    ) -> Result<Tag, SqlError> {
        let Completion { tag, ticket } = match self.execute_short(prepared, params, formats)? {
            Some(completion) => completion,
            None => self.execute_waiting(prepared, params, form(prepared, formats), length)?,
        };
        wait(ticket).await?;
        self.notices();
        Ok(tag)
    }

    /// Runs a statement if it is short and its locks are free. `None` if not: then nothing has happened.
    fn execute_short(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        formats: &[Format],
    ) -> Result<Option<Completion>, SqlError> {
        let long_commit = self.session.is_heavy() && prepared.is_allowed_when_failed();
        if !prepared.is_short() || long_commit {
            return Ok(None);
        }
        let start = self.out.len();
        let mut sink = WireSink::new(&mut self.out, prepared.row_columns(), form(prepared, formats), None);
        match self.session.execute(prepared, params, LockPolicy::Refuse, &mut sink) {
            Err(error) if error.is_would_wait() => {
                self.out.truncate(start);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Runs a statement where it may wait: for locks, and for the client to take a long result.
    fn execute_waiting(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        form: RowForm<'_>,
        length: Length,
    ) -> Result<Completion, SqlError> {
        let Connection { session, out, stream, .. } = self;
        block_in_place(|| {
            let handle = Handle::current();
            let mut send = |bytes: &mut Vec<u8>| handle.block_on(stream.write_all(bytes));
            let send: Option<output::Send<'_>> = match length {
                Length::Streamed => Some(&mut send),
                Length::Kept => None,
            };
            let mut sink = WireSink::new(out, prepared.row_columns(), form, send);
            session.execute(prepared, params, LockPolicy::Wait, &mut sink)
        })
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
fn form<'a>(prepared: &'a Prepared, formats: &'a [Format]) -> RowForm<'a> {
    match prepared.copy() {
        Some(_) => RowForm::CopyLines(prepared),
        None => RowForm::Rows(formats),
    }
}

/// Waits until an outcome may be told.
async fn wait(ticket: Option<Ticket>) -> Result<(), SqlError> {
    match ticket {
        Some(ticket) => Ok(ticket.await?),
        None => Ok(()),
    }
}

fn protocol_error(malformed: Malformed) -> SqlError {
    SqlError::new(SqlState::ProtocolViolation, malformed.to_string())
}
