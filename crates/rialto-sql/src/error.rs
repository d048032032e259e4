//! [`SqlError`]: what a client is told when a statement fails.

use rialto::Error;

pub use crate::sqlstate::SqlState;

/// The result of one step of a statement.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// Something that the user may not have meant.
    Warning,
    /// Something worth knowing.
    Notice,
}

impl Severity {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// An error, a warning or a notice, with the fields that PostgreSQL's clients can show.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// What kind of error.
    pub sqlstate: SqlState,
    /// One sentence: what is wrong, with the name of the thing.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the text of the query: characters, from 1.
    pub position: Option<usize>,
    /// The things that it is about, and where it was met.
    pub about: Option<Box<About>>,
    /// The kernel's error, when it is the cause.
    pub cause: Option<Box<Error>>,
}

/// The names of the things that an error is about, for the errors of which PostgreSQL gives them, and where it was met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The table.
    pub table: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// The constraint: the name of a unique index or primary key.
    pub constraint: Option<String>,
    /// Where it was met: the line and the column of a COPY.
    pub context: Option<String>,
}

impl SqlError {
    /// An error with a code and a message.
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> SqlError {
        let message = message.into();
        SqlError { sqlstate, message, detail: None, hint: None, position: None, about: None, cause: None }
    }

    /// Valid SQL that is not built: SQLSTATE 0A000, naming the construct.
    pub fn unsupported(construct: impl std::fmt::Display) -> SqlError {
        let mut error = SqlError::new(SqlState::FeatureNotSupported, format!("{construct} is not supported"));
        error.hint = Some("docs/sql.md lists what is accepted.".to_string());
        error
    }

    /// The same error, with a place in the text (unless it has one already).
    pub fn at(mut self, position: Option<usize>) -> SqlError {
        self.position = self.position.or(position);
        self
    }

    /// The same error with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> SqlError {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with a detail.
    pub fn detail(mut self, detail: impl Into<String>) -> SqlError {
        self.detail = Some(detail.into());
        self
    }

    /// The same error with where it was met (unless that is told already).
    pub fn context(mut self, context: impl FnOnce() -> String) -> SqlError {
        let about = self.about.get_or_insert_default();
        about.context.get_or_insert_with(context);
        self
    }

    /// Whether the transaction was a deadlock's victim.
    pub fn is_deadlock(&self) -> bool {
        matches!(self.cause.as_deref(), Some(Error::Deadlock { .. }))
    }

    /// Whether the log has failed, so that what was read may never be durable.
    pub fn is_log_failure(&self) -> bool {
        matches!(self.cause.as_deref(), Some(Error::OutcomeUnknown { .. } | Error::Stopped { .. }))
    }

    /// Whether only an abort is allowed after this error.
    pub fn ends_transaction(&self) -> bool {
        matches!(
            self.cause.as_deref(),
            Some(
                Error::Deadlock { .. }
                    | Error::Timeout { .. }
                    | Error::OutcomeUnknown { .. }
                    | Error::Stopped { .. }
                    | Error::Closed
            )
        )
    }
}
