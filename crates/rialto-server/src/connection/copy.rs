//! COPY from the client: the messages while its data comes.

use std::io;
use std::sync::Arc;

use rialto_sql::parse::Pieces;
use rialto_sql::room::{Room, Taken};
use rialto_sql::{CopyIn, SqlError, SqlState};

use super::{Connection, Mode, Stream};
use crate::protocol::backend;
use crate::protocol::frontend::{Format, Message};

/// Tells the client to send the data of a COPY.
pub(super) fn begin_copy_in(out: &mut Vec<u8>, copy: &CopyIn) {
    let format = if copy.is_binary() { Format::Binary } else { Format::Text };
    backend::copy_response(out, b'G', copy.columns(), format);
}

/// A COPY whose data is arriving.
pub(super) struct CopyState {
    copy: CopyIn,
    /// Whether it was in a simple query, and not in a pipeline.
    simple: bool,
    /// The statements behind it in its query string.
    behind: Option<Behind>,
}

/// The rest of a query string behind a COPY. Invariant: the text is copied at the first COPY of the string, and passed
/// from each COPY to the next.
pub(super) struct Behind {
    text: Arc<str>,
    /// Where in the text the next statement begins.
    at: usize,
    /// The number of characters of the query string before that.
    chars_before: usize,
    /// The memory of the text, taken from the room.
    taken: Taken,
}

impl Behind {
    /// The text, the beginning of the rest in it, and the number of characters before that.
    pub(super) fn text(&self) -> (Arc<str>, usize, usize) {
        (self.text.clone(), self.at, self.chars_before)
    }
}

impl CopyState {
    pub(super) fn simple(copy: CopyIn) -> CopyState {
        CopyState { copy, simple: true, behind: None }
    }

    pub(super) fn in_pipeline(copy: CopyIn) -> CopyState {
        CopyState { copy, simple: false, behind: None }
    }

    /// Keeps the statements behind this COPY until it has ended. `kept` is the rest that the COPY before it kept, of
    /// which these statements are the end.
    pub(super) fn keep(
        &mut self,
        rest: Pieces<'_>,
        kept: Option<Behind>,
        room: &Arc<Room>,
    ) -> Result<(), SqlError> {
        let (rest, chars_before) = rest.rest();
        let behind = match kept {
            Some(Behind { text, taken, .. }) => {
                Behind { at: text.len() - rest.len(), text, chars_before, taken }
            }
            None => {
                let mut taken = Taken::of(room);
                taken.fit(rest.len(), "the text behind a COPY")?;
                Behind { text: rest.into(), at: 0, chars_before, taken }
            }
        };
        self.behind = Some(behind);
        Ok(())
    }

    /// Whether it takes room that all connections share.
    pub(super) fn holds_room(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| !behind.taken.is_empty())
    }
}

impl<S: Stream> Connection<S> {
    /// Handles a message while a COPY's data arrives. Everything that ends the COPY ends this mode.
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
                if let Some(behind) = state.behind {
                    return self.statements_behind_copy(behind);
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
