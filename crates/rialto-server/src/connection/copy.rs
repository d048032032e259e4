//! COPY from the client: the messages while its data comes.

use std::io;

use rialto_sql::{CopyIn, SqlError, SqlState};

use super::{Connection, Mode, Stream};
use crate::protocol::frontend::Message;

/// A COPY whose data is coming.
pub(super) struct CopyState {
    copy: CopyIn,
    /// Whether it was in a simple query, and not in a pipeline.
    simple: bool,
    /// What is left of the query string: statements, and the characters before each.
    pub(super) rest: Vec<(String, usize)>,
}

impl CopyState {
    pub(super) fn simple(copy: CopyIn) -> CopyState {
        CopyState { copy, simple: true, rest: Vec::new() }
    }

    pub(super) fn in_pipeline(copy: CopyIn) -> CopyState {
        CopyState { copy, simple: false, rest: Vec::new() }
    }
}

impl<S: Stream> Connection<S> {
    /// A message while a COPY's data comes.
    pub(super) fn copy_message(&mut self, message: Message<'_>) -> io::Result<()> {
        let Mode::CopyIn(mut state) = std::mem::replace(&mut self.mode, Mode::Ready) else { return Ok(()) };
        let answer = match message {
            Message::CopyData(data) => {
                state.copy.push(data);
                self.session.run_copy(&mut state.copy, false)
            }
            Message::CopyDone => self.session.run_copy(&mut state.copy, true),
            Message::CopyFail(reason) => {
                let message = format!("COPY from stdin failed: {reason}");
                Err(SqlError::new(SqlState::Cancelled, message))
            }
            // A client may have sent these before it knew that a COPY had begun.
            Message::Flush | Message::Sync => Ok(None),
            _ => {
                let message = "unexpected message during COPY from stdin";
                Err(SqlError::new(SqlState::ProtocolViolation, message))
            }
        };
        match answer {
            Ok(None) => self.mode = Mode::CopyIn(state),
            Ok(Some(tag)) => {
                self.complete(tag);
                if state.simple {
                    return self.rest_of_query(state.rest);
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
