//! [`Statements`]: a client's prepared statements.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use rialto_sql::{Prepared, SqlError, SqlState, SqlType};

use super::extended::describe_rows;
use super::output::OutputFormats;

/// The most bytes of a session's prepared statements: names, texts, plans and the definitions of their tables. Each
/// counts at least [`STATEMENT_BYTES`].
const BYTES_MAX: usize = 64 << 20;
/// What a short statement counts; with its plan it takes about as much.
const STATEMENT_BYTES: usize = 4 << 10;

/// A prepared statement of a client.
pub(super) struct Statement {
    /// `None` for an empty statement.
    pub(super) prepared: Option<Arc<Prepared>>,
    /// The answer to a Describe of a portal whose columns are all text: RowDescription or NoData.
    pub(super) description: Vec<u8>,
    /// The types of parameters by PostgreSQL's numbers, as the Parse message has them.
    declared: Box<[u32]>,
    /// Its bytes, a part of the bytes of all of the session's statements.
    bytes: usize,
    all_bytes: Arc<AtomicUsize>,
}

/// Portals may keep it after the client has closed its name.
impl Drop for Statement {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Statement {
    pub(super) fn params(&self) -> &[SqlType] {
        self.prepared.as_ref().map_or(&[], |prepared| &prepared.params)
    }

    /// The types of its parameters by PostgreSQL's numbers: those that the client has declared, and the others as they
    /// were inferred. Several numbers stand for one type here, and a driver takes a number that it has not declared for
    /// another statement.
    pub(super) fn param_oids(&self) -> impl ExactSizeIterator<Item = u32> {
        self.params().iter().enumerate().map(|(index, sql_type)| match self.declared.get(index) {
            Some(oid) if SqlType::from_oid(*oid) != Some(SqlType::Unknown) => *oid,
            _ => sql_type.oid(),
        })
    }

    /// Whether it gives rows.
    pub(super) fn has_columns(&self) -> bool {
        self.prepared.as_ref().is_some_and(|prepared| !prepared.columns.is_empty())
    }
}

/// A client's prepared statements, by the bytes of their names. They are bounded.
#[derive(Default)]
pub(super) struct Statements {
    by_name: HashMap<Vec<u8>, Arc<Statement>>,
    /// Their bytes, with those of statements that only portals keep.
    bytes: Arc<AtomicUsize>,
}

impl Statements {
    #[inline]
    pub(super) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.by_name.get(name)
    }

    /// What a statement of this number of bytes counts, if there is room for it beside the others.
    pub(super) fn check_room(&self, bytes: usize) -> Result<usize, SqlError> {
        let bytes = bytes.max(STATEMENT_BYTES);
        if self.bytes.load(Ordering::Relaxed) + bytes <= BYTES_MAX {
            return Ok(bytes);
        }
        let message = format!(
            "the prepared statements of this session would take more than {} MiB: it has {}",
            BYTES_MAX >> 20,
            self.by_name.len()
        );
        let error = SqlError::new(SqlState::OutOfMemory, message);
        Err(error.hint(format!(
            "Close some, and their portals. Each counts its name, text and plan, and its table's definition, at least {} KiB.",
            STATEMENT_BYTES >> 10
        )))
    }

    /// Adds a statement, unless its name is in use, if there is room for its plan beside the others.
    pub(super) fn insert(
        &mut self,
        name: &str,
        prepared: Option<Arc<Prepared>>,
        declared: &[u32],
        text_bytes: usize,
    ) -> Result<(), SqlError> {
        if self.by_name.contains_key(name.as_bytes()) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DuplicateStatement, message));
        }
        let plan_bytes = prepared.as_ref().map_or(0, |prepared| prepared.bytes);
        let mut description = Vec::new();
        describe_rows(&mut description, prepared.as_deref(), &OutputFormats::TEXT);
        // The plan's bytes include its text.
        let more_bytes = description.capacity() + size_of_val(declared);
        let bytes = self.check_room(name.len() + plan_bytes.max(text_bytes) + more_bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let statement = Statement {
            prepared,
            description,
            declared: declared.into(),
            bytes,
            all_bytes: self.bytes.clone(),
        };
        self.by_name.insert(name.as_bytes().to_vec(), Arc::new(statement));
        Ok(())
    }

    /// Removes a statement; portals of it stay, and keep it. Whether there was one.
    #[inline]
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        self.by_name.remove(name).is_some()
    }

    /// Removes all statements that have a name.
    pub(super) fn remove_named(&mut self) {
        self.by_name.retain(|name, _| name.is_empty());
    }
}
