//! [`Reading`]: from text to tokens, within the memory that there is for them and for their tree.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::Places;
use super::dialect::Lexis;
use super::weight::Scales;
use crate::cancel::Cancel;
use crate::error::{Result, SqlError, SqlState};
use crate::room::{Room, SMALL_BYTES, Taken};

/// The most bytes that reading one statement takes.
pub const READING_BYTES_MAX: usize = 1 << 30;
/// The most bytes that the statements which the sessions of a server read at one time take together.
pub const READING_ROOM_BYTES: usize = 2 << 30;

/// This number of tokens fits in a list that does not grow.
const TOKENS_FEW: usize = 256;

/// A statement that is being read. Its memory is weighed as its tokens are made, and taken from a room until this is
/// dropped.
///
/// Invariant: no token is made before there is room for the tokens before it, with their part of the tree, and for all
/// texts.
pub(super) struct Reading<'a> {
    text: &'a str,
    cancel: &'a Cancel,
    scales: Scales,
    taken: Taken,
    /// The bytes that were taken from the room.
    granted: usize,
}

impl<'a> Reading<'a> {
    /// Begins to read a text.
    pub(super) fn begin(text: &'a str, room: &Arc<Room>, cancel: &'a Cancel) -> Result<Reading<'a>> {
        let (scales, taken) = (Scales::new(text), Taken::of(room));
        let mut reading = Reading { text, cancel, scales, taken, granted: SMALL_BYTES };
        reading.find_room()?;
        Ok(reading)
    }

    /// All tokens.
    pub(super) fn tokens(&mut self, places: &Places<'_>) -> Result<Vec<TokenWithSpan>> {
        let mut tokens = Vec::with_capacity(TOKENS_FEW.min(self.text.len()));
        let mut refused = None;
        let mut tokenizer = Tokenizer::new(&Lexis, self.text);
        // The end of an operator of which a sign directly behind it would be a part.
        let mut goes_on_at = None;
        // The last number: its beginning and its end.
        let mut number = None;
        let read = catch_unwind(AssertUnwindSafe(|| {
            tokenizer.tokenize_with_location_into_buf_with_mapper(&mut tokens, |token| {
                self.scales.put(&token.token);
                if let Err(error) = self.find_room() {
                    refused = Some(error);
                    // A tokenizer shows each token and takes no answer. Only unwinding ends it.
                    resume_unwind(Box::new(()));
                }
                match &token.token {
                    operator @ (Token::Mod | Token::StringConcat) => {
                        goes_on_at = Some((token.span.end, operator.to_string()));
                    }
                    sign @ (Token::Plus | Token::Minus) => {
                        if let Some((end, operator)) = &goes_on_at
                            && *end == token.span.start
                            && refused.is_none()
                        {
                            let error = SqlError::unsupported(format!("operator {operator}{sign}"));
                            refused = Some(error.at(places.position(*end)));
                            resume_unwind(Box::new(()));
                        }
                    }
                    Token::Number(..) => number = Some((token.span.start, token.span.end)),
                    Token::Word(word) => {
                        if let Some((start, end)) = number
                            && end == token.span.start
                            && word.quote_style.is_none()
                            && refused.is_none()
                        {
                            let message = "syntax error: trailing junk after a number";
                            let error = SqlError::new(SqlState::SyntaxError, message);
                            refused = Some(error.at(places.position(start)));
                            resume_unwind(Box::new(()));
                        }
                    }
                    _ => {}
                }
                token
            })
        }));
        match (read, refused) {
            (Ok(Ok(())), _) => {}
            (Ok(Err(error)), _) => {
                let message = format!("syntax error: {}", error.message);
                return Err(SqlError::new(SqlState::SyntaxError, message).at(places.position(error.location)));
            }
            (Err(_), Some(refused)) => return Err(refused),
            (Err(panic), None) => resume_unwind(panic),
        }
        if tokens.len() > TOKENS_FEW {
            tokens.shrink_to_fit();
        }
        Ok(tokens)
    }

    /// Refuses the text if there is no room for it.
    #[inline]
    fn find_room(&mut self) -> Result<()> {
        if self.scales.bytes() <= self.granted { Ok(()) } else { self.take_room() }
    }

    #[cold]
    fn take_room(&mut self) -> Result<()> {
        self.cancel.check()?;
        self.granted = self.scales.bytes().next_multiple_of(SMALL_BYTES);
        if self.granted > READING_BYTES_MAX {
            let limit = READING_BYTES_MAX >> 20;
            let message = format!("reading the statement takes too much memory: the limit is {limit} MiB");
            return Err(SqlError::new(SqlState::LimitExceeded, message)
                .hint("Split it, give values as parameters, or use COPY."));
        }
        self.taken.fit(self.granted, "reading the statement").map_err(|error| {
            error.hint("Try again when less is read, split it, give values as parameters, or use COPY.")
        })
    }
}

/// The most bytes that reading a statement takes. Of a text that is cut short by an error, the bytes so far.
pub fn weigh(text: &str) -> usize {
    let mut scales = Scales::new(text);
    let _ =
        Tokenizer::new(&Lexis, text).tokenize_with_location_into_buf_with_mapper(&mut Vec::new(), |token| {
            scales.put(&token.token);
            token
        });
    scales.bytes()
}
