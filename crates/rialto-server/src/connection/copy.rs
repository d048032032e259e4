//! COPY from the client: the messages while its data comes.

use std::io;
use std::sync::Arc;

use rialto_sql::parse::Pieces;
use rialto_sql::room::{Room, Taken};
use rialto_sql::{CopyIn, SqlError, SqlState};

use super::{Connection, Mode, Stream};
use crate::protocol::frontend::Message;

/// A COPY whose data is coming.
pub(super) struct CopyState {
    copy: CopyIn,
    /// Whether it was in a simple query, and not in a pipeline.
    simple: bool,
    /// What is left of the query string, and the characters before it.
    rest: (String, usize),
    /// The room that this takes.
    taken: Taken,
}

impl CopyState {
    pub(super) fn simple(copy: CopyIn, room: &Arc<Room>) -> CopyState {
        CopyState { copy, simple: true, rest: Default::default(), taken: Taken::of(room) }
    }

    pub(super) fn in_pipeline(copy: CopyIn, room: &Arc<Room>) -> CopyState {
        CopyState { copy, simple: false, rest: Default::default(), taken: Taken::of(room) }
    }

    /// Keeps the statements behind it until it has ended.
    pub(super) fn keep(&mut self, rest: Pieces<'_>) -> Result<(), SqlError> {
        let (text, chars_before) = rest.rest();
        self.taken.fit(text.len(), "the text behind a COPY")?;
        self.rest = (text.to_string(), chars_before);
        Ok(())
    }

    /// Whether it holds room that all connections share.
    pub(super) fn holds_room(&self) -> bool {
        !self.taken.is_empty()
    }
}

impl<S: Stream> Connection<S> {
    /// A message while a COPY's data comes.
    /// Whatever ends the COPY ends this mode.
    pub(super) fn copy_message(&mut self, message: Result<Message<'_>, SqlError>) -> io::Result<()> {
        let Mode::CopyIn(mut state) = std::mem::replace(&mut self.mode, Mode::Ready) else { return Ok(()) };
        let answer = match message {
            Ok(Message::CopyData(data)) => self.session.run_copy(&mut state.copy, data, false),
            Ok(Message::CopyDone) => self.session.run_copy(&mut state.copy, &[], true),
            Ok(Message::CopyFail(reason)) => {
                let message = format!("COPY from stdin failed: {reason}");
                Err(SqlError::new(SqlState::Cancelled, message))
            }
            // A client may have sent these before it knew that a COPY had begun.
            Ok(Message::Flush | Message::Sync) => Ok(None),
            Err(malformed) => Err(malformed),
            Ok(_) => {
                let message = "unexpected message during COPY from stdin";
                Err(SqlError::new(SqlState::ProtocolViolation, message))
            }
        };
        match answer {
            Ok(None) => self.mode = Mode::CopyIn(state),
            Ok(Some(tag)) => {
                self.complete(tag);
                if state.simple {
                    let (rest, chars_before) = &state.rest;
                    return self.statements_behind_copy(Pieces::behind(rest, *chars_before));
                }
            }
            Err(error) => return self.copy_failed(*state, error),
        }
        Ok(())
    }

    fn copy_failed(&mut self, state: CopyState, error: SqlError) -> io::Result<()> {
        if state.simple {
            self.fail(error);
            return self.ready();
        }
        self.fail_pipeline(error);
        Ok(())
    }
}
