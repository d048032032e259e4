//! [`Client`]: runs statements one after the other, and checks the session's answers to them.

use rialto::Database;
use rialto::row::Value;

use super::fixture::{TableContents, contents};
use crate::run::Collected;
use crate::{OutputColumn, Ready, Result, Session, SqlError, SqlState, Tag, TransactionStatus};

/// How a statement is made ready.
#[derive(Debug, Clone, Copy)]
pub enum Plans {
    /// As a simple query: with the plan of a text that differs in its literals, if there is one.
    Shared,
    /// As it stands.
    Own,
}

/// The answer to a statement.
#[derive(Debug, PartialEq)]
pub struct Told {
    /// The columns of its rows.
    pub columns: Vec<OutputColumn>,
    /// Its rows.
    pub rows: Vec<Vec<Value>>,
    /// How it ended.
    pub outcome: Result<Tag>,
}

/// A session that is checked.
pub struct Client<'d> {
    session: Session,
    database: &'d Database,
    plans: Plans,
    /// The contents that were committed when the client last had no open transaction.
    committed: Vec<TableContents>,
}

impl<'d> Client<'d> {
    /// A new session on a database that no other session uses meanwhile.
    pub fn new(database: &'d Database, plans: Plans) -> Client<'d> {
        let session = Session::new(database.clone(), "ann", "bank");
        Client { session, database, plans, committed: contents(database) }
    }

    /// Runs a statement. An error leaves the transaction in the state that it says, and the committed contents
    /// unchanged.
    pub fn run(&mut self, text: &str) -> Told {
        let before = self.session.status();
        let told = self.tell(text);
        let after = self.session.status();
        if let Err(error) = &told.outcome {
            assert_ne!(error.sqlstate, SqlState::Internal, "{text}: {error}");
            let expected = match before {
                TransactionStatus::Idle => TransactionStatus::Idle,
                TransactionStatus::Block | TransactionStatus::Failed => TransactionStatus::Failed,
            };
            assert_eq!(after, expected, "{text}: {error}");
        }
        if after == TransactionStatus::Idle {
            let now = contents(self.database);
            let changes = !matches!(told.outcome, Err(_) | Ok(Tag::Word("ROLLBACK")));
            assert!(changes || now == self.committed, "{text}: {:?} left a change", told.outcome);
            self.committed = now;
        }
        let _ = (
            self.session.take_notices(),
            self.session.take_status_changes(),
            self.session.take_closed_portals(),
        );
        told
    }

    /// Ends what is open. The session takes a further statement, whatever came before.
    pub fn end(mut self) {
        if self.session.status() != TransactionStatus::Idle {
            assert_eq!(self.run("rollback").outcome, Ok(Tag::Word("ROLLBACK")));
        }
        assert_eq!(self.session.status(), TransactionStatus::Idle);
        let told = self.run("select 7");
        assert_eq!((told.outcome, told.rows), (Ok(Tag::Rows("SELECT", 1)), vec![vec![Value::Int4(7)]]));
    }

    fn tell(&mut self, text: &str) -> Told {
        let (mut columns, mut rows) = (Vec::new(), Collected::default());
        let mut outcome = self.run_once(text, &mut columns, &mut rows);
        if let Ok(tag) = outcome {
            outcome = self.session.finish().map(|()| tag);
        }
        if let Err(error) = &outcome {
            outcome = Err(self.session.fail(error).err().unwrap_or_else(|| error.clone()));
            // A client is told only of the error.
            (columns, rows.0) = Default::default();
        }
        Told { columns, rows: rows.0, outcome }
    }

    fn run_once(&mut self, text: &str, columns: &mut Vec<OutputColumn>, rows: &mut Collected) -> Result<Tag> {
        let session = &mut self.session;
        let ready = match self.plans {
            Plans::Shared => session.read(text).and_then(|read| session.prepare_read(text, read)),
            Plans::Own => session.prepare(text, &[]).map(Ready::of),
        }?;
        if ready.prepared.params.len() > ready.arguments.len() {
            return Err(SqlError::new(SqlState::UndefinedParameter, "a simple query has no parameters"));
        }
        columns.clone_from(&ready.prepared.columns);
        if let Some((crate::parse::CopyDirection::FromStdin, _)) = ready.prepared.copy() {
            let mut copy = session.begin_copy(&ready.prepared)?;
            let done = session.run_copy(&mut copy, b"", true)?;
            return Ok(done.expect("a COPY ends with its data"));
        }
        session.execute_ready(&ready, rows)
    }
}
