//! The ends of lines, as the text format and CSV have them.
//!
//! Invariant: all lines of a COPY end as its first line does.

use crate::error::{Result, SqlError, SqlState};

/// How a line ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Newline,
    Return,
    ReturnNewline,
}

/// The part of a record that data contain: of a line, or of a tuple in binary form.
pub(super) struct Found {
    /// Its bytes are up to here.
    pub(super) record: usize,
    /// Where the next record begins; `None` if this one goes on in the next data.
    pub(super) next: Option<usize>,
}

/// The ending that all lines have.
#[derive(Default)]
pub(super) struct Endings {
    ending: Option<Ending>,
    /// Whether another ending within quotes would be data.
    quoted: bool,
}

impl Endings {
    /// Those of lines with quotes.
    pub(super) fn outside_quotes() -> Endings {
        Endings { quoted: true, ..Endings::default() }
    }

    /// The ending, once a line has ended.
    pub(super) fn known(&self) -> Option<Ending> {
        self.ending
    }

    /// A line that ends at a carriage return, with this byte behind it, at `next`.
    pub(super) fn at_return(&mut self, record: usize, next: usize, behind: u8) -> Result<Found> {
        let with_newline = behind == b'\n' && self.ending != Some(Ending::Return);
        self.agree(if with_newline { Ending::ReturnNewline } else { Ending::Return })?;
        Ok(Found { record, next: Some(next + usize::from(with_newline)) })
    }

    /// A line ends in this way.
    pub(super) fn agree(&mut self, ending: Ending) -> Result<()> {
        if *self.ending.get_or_insert(ending) == ending {
            return Ok(());
        }
        let (what, escape) = match ending {
            Ending::Newline => ("newline", "\\n"),
            Ending::Return | Ending::ReturnNewline => ("carriage return", "\\r"),
        };
        let (message, hint) = match self.quoted {
            true => (
                format!("unquoted {what} found in data"),
                format!("Use quoted CSV field to represent {what}; all lines end as the first one does."),
            ),
            false => (
                format!("literal {what} found in data"),
                format!("Use \"{escape}\" to represent {what}; all lines end as the first one does."),
            ),
        };
        Err(SqlError::new(SqlState::BadCopyFormat, message).hint(hint))
    }
}
