//! Simple queries: one string, any number of statements, one answer.

use std::io;

use rialto_sql::parse::{CopyDirection, Piece, split};
use rialto_sql::{ReadStatement, Ready, SqlError};

use super::copy::CopyState;
use super::output::OutputFormats;
use super::{Connection, Length, Mode, Stream, form};
use crate::protocol::backend;
use crate::protocol::frontend::Format;

impl<S: Stream> Connection<S> {
    /// Runs a query string.
    pub(super) fn query(&mut self, sql: &str) -> io::Result<()> {
        self.in_pipeline = true;
        // As in PostgreSQL, a simple query ends the unnamed statement and portal.
        self.statements.remove(&b""[..]);
        self.portals.unnamed.close();
        let pieces = split(sql);
        match pieces[..] {
            [] => {
                backend::bare(&mut self.out, b'I');
                self.ready()
            }
            [piece] => {
                let read = self.session.read(piece.text);
                let answer = read.and_then(|read| self.statement(&piece, read));
                self.after(&piece, answer, Vec::new())
            }
            _ => self.statements(&pieces),
        }
    }

    /// Runs several statements of one query string.
    fn statements(&mut self, pieces: &[Piece<'_>]) -> io::Result<()> {
        // A syntax error anywhere means that nothing is run.
        let mut read = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match self.session.read(piece.text) {
                Ok(statement) => read.push(statement),
                Err(error) => return self.after(piece, Err(error), Vec::new()),
            }
        }
        let mut rest = pieces.iter();
        let mut read = read.into_iter();
        while let (Some(piece), Some(statement)) = (rest.next(), read.next()) {
            match self.statement(piece, statement) {
                Ok(None) => {}
                answer => {
                    let rest = rest.map(|piece| (piece.text.to_string(), piece.chars_before)).collect();
                    return self.after(piece, answer, rest);
                }
            }
        }
        self.ready()
    }

    /// After a statement that is the last, for now or for good: it was done, began a COPY, or failed.
    fn after(
        &mut self,
        piece: &Piece<'_>,
        answer: Result<Option<CopyState>, SqlError>,
        rest: Vec<(String, usize)>,
    ) -> io::Result<()> {
        match answer {
            Ok(None) => {}
            Ok(Some(mut copy)) => {
                copy.rest = rest;
                self.mode = Mode::CopyIn(Box::new(copy));
                return self.flush();
            }
            Err(error) => self.fail(piece.move_error(error)),
        }
        self.ready()
    }

    /// What is left of a query string after a COPY.
    pub(super) fn rest_of_query(&mut self, rest: Vec<(String, usize)>) -> io::Result<()> {
        let mut rest = rest.into_iter();
        while let Some((text, chars_before)) = rest.next() {
            let piece = Piece { text: &text, chars_before };
            let answer = match self.session.read(&text) {
                Ok(statement) => self.statement(&piece, statement),
                Err(error) => Err(error),
            };
            match answer {
                Ok(None) => {}
                answer => return self.after(&piece, answer, rest.collect()),
            }
        }
        self.ready()
    }

    /// Runs one statement; a COPY from the client is only begun.
    fn statement(&mut self, piece: &Piece<'_>, read: ReadStatement) -> Result<Option<CopyState>, SqlError> {
        let Ready { prepared, arguments } = self.session.prepare_read(piece.text, read)?;
        if prepared.params.len() > arguments.len() {
            let message = "there is no parameter $1: a simple query has none";
            return Err(SqlError::new(rialto_sql::SqlState::UndefinedParameter, message));
        }
        match prepared.copy() {
            Some((CopyDirection::FromStdin, columns)) => {
                let copy = self.session.begin_copy(&prepared)?;
                backend::copy_response(&mut self.out, b'G', columns);
                return Ok(Some(CopyState::simple(copy)));
            }
            Some((CopyDirection::ToStdout, columns)) => backend::copy_response(&mut self.out, b'H', columns),
            None if !prepared.columns.is_empty() => {
                backend::row_description(&mut self.out, &prepared.columns, |_| Format::Text);
            }
            None => {}
        }
        let tag =
            self.execute(&prepared, &arguments, form(&prepared, &OutputFormats::TEXT), Length::Streamed)?;
        if prepared.copy().is_some() {
            backend::bare(&mut self.out, b'c');
        }
        self.complete(tag);
        self.session.reuse(arguments);
        Ok(None)
    }
}
