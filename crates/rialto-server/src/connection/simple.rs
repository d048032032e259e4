//! Simple queries: one string, any number of statements, one answer.

use std::collections::VecDeque;
use std::io;

use rialto_sql::parse::{CopyDirection, Piece, Pieces, split};
use rialto_sql::{ReadStatement, SqlError};

use super::copy::{Behind, CopyState, begin_copy_in};
use super::output::{RowForm, SEND_BYTES};
use super::{Connection, Mode, Stream};
use crate::protocol::backend;

/// The bytes of text of a query string's statements that are kept as they were parsed, while the others are checked for
/// their syntax. The statements behind these are parsed again when their turn comes. So what is kept is bounded,
/// whatever the number of statements.
const READ_BYTES_MAX: usize = 256 << 10;

/// The bytes that a short statement counts of that.
const STATEMENT_BYTES: usize = 256;

impl<S: Stream> Connection<S> {
    /// Runs a query string.
    pub(super) fn query(&mut self, sql: &str) -> io::Result<()> {
        self.in_pipeline = true;
        // As in PostgreSQL, a simple query ends the unnamed statement and portal.
        self.statements.remove(b"");
        self.portals.unnamed.close();
        let mut pieces = split(sql);
        let Some(piece) = pieces.next() else {
            backend::bare(&mut self.out, b'I');
            return self.ready();
        };
        if pieces.clone().next().is_some() {
            return self.statements(split(sql));
        }
        let read = self.session.read(piece.text);
        let answer = read.and_then(|read| self.statement(&piece, read));
        self.after(&piece, answer, pieces, None)
    }

    /// Runs several statements of one query string.
    fn statements(&mut self, pieces: Pieces<'_>) -> io::Result<()> {
        self.session.set_in_string(true);
        let answered = self.read_and_run(pieces);
        self.session.set_in_string(false);
        answered
    }

    /// Runs the statements behind a COPY of a query string.
    pub(super) fn statements_behind_copy(&mut self, behind: Behind) -> io::Result<()> {
        let (text, at, chars_before) = behind.text();
        let pieces = Pieces::behind(&text[at..], chars_before);
        self.session.set_in_string(true);
        let answered = self.run_pieces(pieces, VecDeque::new(), Some(behind));
        self.session.set_in_string(false);
        answered
    }

    fn read_and_run(&mut self, pieces: Pieces<'_>) -> io::Result<()> {
        // After a syntax error anywhere, none of the statements is run.
        let mut kept = VecDeque::new();
        let mut bytes = 0;
        for piece in pieces.clone() {
            bytes += piece.text.len() + STATEMENT_BYTES;
            match self.session.read(piece.text) {
                Ok(statement) if bytes <= READ_BYTES_MAX => kept.push_back(statement),
                Ok(_) => {}
                Err(error) => return self.after(&piece, Err(error), pieces, None),
            }
        }
        self.run_pieces(pieces, kept, None)
    }

    /// Runs the remaining statements of a query string. The first of them may have been parsed already, and they may be
    /// `behind` a COPY.
    fn run_pieces(
        &mut self,
        mut pieces: Pieces<'_>,
        mut read: VecDeque<ReadStatement>,
        behind: Option<Behind>,
    ) -> io::Result<()> {
        let mut next = pieces.next();
        while let Some(piece) = next {
            let statement = match read.pop_front() {
                Some(statement) => Ok(statement),
                None => self.session.read(piece.text),
            };
            match statement.and_then(|statement| self.statement(&piece, statement)) {
                Ok(None) => {}
                answer => return self.after(&piece, answer, pieces, behind),
            }
            next = pieces.next();
            // Not behind the last statement, whose completion is the outcome of all.
            if next.is_some() && self.out.len() >= SEND_BYTES {
                self.send_early()?;
            }
        }
        self.ready()
    }

    /// After a statement that is the last, for now or for good: it is done, has begun a COPY, or has failed.
    fn after(
        &mut self,
        piece: &Piece<'_>,
        answer: Result<Option<CopyState>, SqlError>,
        rest: Pieces<'_>,
        behind: Option<Behind>,
    ) -> io::Result<()> {
        match answer {
            Ok(None) => {}
            Ok(Some(mut copy)) => match copy.keep(rest, behind, &self.shared.message_room) {
                Ok(()) => {
                    self.mode = Mode::CopyIn(Box::new(copy));
                    return self.send_early();
                }
                Err(error) => self.fail(error),
            },
            Err(error) => self.fail(piece.move_error(error)),
        }
        self.ready()
    }

    /// Runs one statement. A COPY from the client is only begun.
    fn statement(&mut self, piece: &Piece<'_>, read: ReadStatement) -> Result<Option<CopyState>, SqlError> {
        let ready = self.session.prepare_read(piece.text, read)?;
        if let Some((CopyDirection::FromStdin, _)) = ready.prepared.copy() {
            let copy = self.session.begin_copy(&ready.prepared)?;
            begin_copy_in(&mut self.out, &copy);
            return Ok(Some(CopyState::simple(copy)));
        }
        let (tag, _) = self.execute(RowForm::SIMPLE, None, |session, sink| {
            // A statement that others follow is not alone in its string.
            session.announce_end();
            session.execute_ready(&ready, sink)
        })?;
        if ready.prepared.copy().is_some() {
            backend::bare(&mut self.out, b'c');
        }
        self.complete(tag);
        self.session.reuse(ready.arguments);
        Ok(None)
    }
}
