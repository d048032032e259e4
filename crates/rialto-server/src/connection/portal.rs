//! [`Portals`]: a client's statements with their arguments, and the rows that are still to be sent.
//!
//! Invariant: what the portals of a session keep is bounded. A portal ends with its transaction, and with the savepoint
//! behind which it was opened.

use std::sync::Arc;

use hashbrown::HashMap;
use rialto::fault_injection;
use rialto::row::Value;
use rialto_sql::{SqlError, SqlState, Tag};

use super::extended::{arguments, describe_rows, formats};
use super::output::{OutputFormats, no_room};
use super::statements::Statement;
use crate::protocol::frontend::Bind;

/// The most bytes of rows and arguments that the portals of a session keep. A named portal counts [`PORTAL_BYTES`]
/// more.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 20;
/// The bytes of a named portal beside its arguments and rows.
const PORTAL_BYTES: usize = 1 << 10;
/// A buffer of at most this size for the unnamed portal's arguments is kept when the portal is closed, for the next
/// arguments.
const ROOM_BYTES_MAX: usize = 64 << 10;

/// A statement with its arguments.
pub(super) struct Portal {
    /// `None` if there is no such portal.
    pub(super) statement: Option<Arc<Statement>>,
    pub(super) params: Vec<Value>,
    /// The formats of its rows, for as long as the portal exists.
    pub(super) formats: OutputFormats,
    pub(super) state: PortalState,
    /// The number of the savepoint behind which it was opened; if it keeps or kept rows, of the one behind which it
    /// read them.
    savepoint: u64,
    /// Its bytes: its arguments, and the rows that it keeps; of a named portal also the name and [`PORTAL_BYTES`].
    bytes: usize,
    /// The bytes of its arguments.
    argument_bytes: usize,
}

pub(super) enum PortalState {
    New,
    /// It has run, and these DataRow messages from `at` on are left.
    Suspended {
        rows: Vec<u8>,
        at: usize,
        tag: Tag,
    },
    /// It has run to its end.
    Ran(Tag),
    /// It is running, or has failed: it cannot be run again.
    Done,
}

impl Default for Portal {
    fn default() -> Portal {
        Portal {
            statement: None,
            params: Vec::new(),
            formats: OutputFormats::TEXT,
            state: PortalState::Done,
            savepoint: 0,
            bytes: 0,
            argument_bytes: 0,
        }
    }
}

impl Portal {
    /// Closes it. The buffer for its arguments stays, unless it is large.
    pub(super) fn close(&mut self) {
        self.statement = None;
        self.state = PortalState::Done;
        self.argument_bytes = 0;
        if std::mem::take(&mut self.bytes) > ROOM_BYTES_MAX {
            self.params = Vec::new();
        }
    }

    /// Whether the portal exists.
    fn is_there(&self) -> bool {
        self.statement.is_some()
    }

    /// Whether it runs, or has failed.
    fn is_running(&self) -> bool {
        self.is_there() && matches!(self.state, PortalState::Done)
    }

    /// Whether its statement gives rows.
    pub(super) fn has_columns(&self) -> bool {
        self.statement.as_ref().is_some_and(|statement| statement.has_columns())
    }

    /// Answers a Describe of it.
    pub(super) fn describe(&self, out: &mut Vec<u8>) {
        let Some(statement) = &self.statement else { return };
        match self.formats {
            OutputFormats::TEXT => out.extend_from_slice(&statement.description),
            _ if fault_injection::is_on("described-as-text") => out.extend_from_slice(&statement.description),
            _ => describe_rows(out, statement.prepared.as_deref(), &self.formats),
        }
    }

    /// Opens it for a statement with these arguments, behind this savepoint. The second number of bytes is that of its
    /// arguments.
    fn bind(
        &mut self,
        statement: Arc<Statement>,
        bind: &Bind<'_>,
        savepoint: u64,
        (bytes, argument_bytes): (usize, usize),
    ) -> Result<(), SqlError> {
        let bound = arguments(bind, statement.params(), &mut self.params).and_then(|()| {
            let columns = statement.prepared.as_ref().map_or(0, |prepared| prepared.columns.len());
            formats(bind.result_formats, columns)
        });
        match bound {
            Ok(formats) => {
                self.formats = formats;
                (self.state, self.bytes, self.argument_bytes) = (PortalState::New, bytes, argument_bytes);
                self.savepoint = savepoint;
                self.statement = Some(statement);
                Ok(())
            }
            Err(error) => {
                self.bytes = bytes;
                self.close();
                Err(error)
            }
        }
    }

    /// Drops its arguments. Gives the bytes that they took.
    fn let_arguments_go(&mut self) -> usize {
        self.params = Vec::new();
        let bytes = std::mem::take(&mut self.argument_bytes);
        self.bytes -= bytes;
        bytes
    }

    /// The bytes of rows that it keeps.
    fn kept_bytes(&self) -> usize {
        match &self.state {
            PortalState::Suspended { rows, .. } => rows.len(),
            _ => 0,
        }
    }
}

/// A client's portals.
#[derive(Default)]
pub(super) struct Portals {
    /// The unnamed portal, which is used again and again.
    pub(super) unnamed: Portal,
    named: HashMap<String, Portal>,
    /// The bytes of the named ones.
    named_bytes: usize,
}

impl Portals {
    /// The portal of this name.
    #[inline]
    pub(super) fn get(&mut self, name: &str) -> Result<&mut Portal, SqlError> {
        let portal = if name.is_empty() { Some(&mut self.unnamed) } else { self.named.get_mut(name) };
        portal
            .filter(|portal| portal.is_there())
            .ok_or_else(|| SqlError::new(SqlState::NoSuchPortal, format!("portal \"{name}\" does not exist")))
    }

    /// Opens a portal.
    #[inline]
    pub(super) fn open(
        &mut self,
        bind: &Bind<'_>,
        statement: Arc<Statement>,
        savepoint: u64,
    ) -> Result<(), SqlError> {
        let values = bind.arguments.count() * size_of::<Value>();
        let bytes = bind.arguments.bytes() + values;
        match bind.portal {
            "" => {
                // The old arguments are dropped first.
                if self.unnamed.bytes > ROOM_BYTES_MAX {
                    self.unnamed.close();
                }
                check_room(KEPT_BYTES_MAX.saturating_sub(self.named_bytes), bytes, bytes)?;
                self.unnamed.bind(statement, bind, savepoint, (bytes, bytes))
            }
            name => self.open_named(name, bind, statement, savepoint, bytes),
        }
    }

    fn open_named(
        &mut self,
        name: &str,
        bind: &Bind<'_>,
        statement: Arc<Statement>,
        savepoint: u64,
        argument_bytes: usize,
    ) -> Result<(), SqlError> {
        let bytes = PORTAL_BYTES + name.len() + argument_bytes;
        check_room(self.room(), bytes, argument_bytes)?;
        let mut portal = Portal::default();
        portal.bind(statement, bind, savepoint, (bytes, argument_bytes))?;
        self.named.insert(name.to_string(), portal);
        self.named_bytes += bytes;
        Ok(())
    }

    /// Refuses a name that is in use.
    #[inline]
    pub(super) fn check_is_free(&self, name: &str) -> Result<(), SqlError> {
        if name.is_empty() || !self.named.contains_key(name) {
            return Ok(());
        }
        let message = format!("cursor \"{name}\" already exists");
        Err(SqlError::new(SqlState::DuplicatePortal, message))
    }

    /// The bytes that portals may take beside what they take now.
    pub(super) fn room(&self) -> usize {
        KEPT_BYTES_MAX.saturating_sub(self.named_bytes + self.unnamed.bytes)
    }

    /// Drops the arguments of a portal that has run and needs them no more, with whatever outcome.
    pub(super) fn let_arguments_go(&mut self, name: &str) {
        if name.is_empty() {
            self.unnamed.let_arguments_go();
        } else if let Some(portal) = self.named.get_mut(name) {
            self.named_bytes -= portal.let_arguments_go();
        }
    }

    /// Makes a portal that has run behind this savepoint keep the remaining rows.
    pub(super) fn keep(
        &mut self,
        name: &str,
        mut rows: Vec<u8>,
        tag: Tag,
        savepoint: u64,
    ) -> Result<(), SqlError> {
        self.let_arguments_go(name);
        rows.shrink_to_fit();
        let bytes = rows.len();
        let portal = self.get(name)?;
        portal.state = PortalState::Suspended { rows, at: 0, tag };
        portal.savepoint = savepoint;
        portal.bytes += bytes;
        if !name.is_empty() {
            self.named_bytes += bytes;
        }
        Ok(())
    }

    /// After a portal has run to its end. The unnamed portal keeps its buffer for arguments, and a named one drops it.
    #[inline]
    pub(super) fn ran(&mut self, name: &str, tag: Tag, params: Vec<Value>) {
        if name.is_empty() {
            // The portal is closed if it ended its own transaction.
            if self.unnamed.is_there() {
                self.unnamed.state = PortalState::Ran(tag);
                self.unnamed.params = params;
            }
        } else if let Some(portal) = self.named.get_mut(name) {
            portal.state = PortalState::Ran(tag);
            self.named_bytes -= portal.let_arguments_go();
        }
    }

    /// After a portal has sent its last row.
    pub(super) fn end(&mut self, name: &str, tag: Tag) -> Result<(), SqlError> {
        let portal = self.get(name)?;
        let bytes = portal.kept_bytes();
        portal.state = PortalState::Ran(tag);
        portal.bytes -= bytes;
        if !name.is_empty() {
            self.named_bytes -= bytes;
        }
        Ok(())
    }

    /// Closes one portal.
    pub(super) fn close(&mut self, name: &str) {
        match name {
            "" => self.unnamed.close(),
            name => {
                if let Some(portal) = self.named.remove(name) {
                    self.named_bytes -= portal.bytes;
                }
            }
        }
    }

    /// CLOSE of one portal.
    pub(super) fn close_by_statement(&mut self, name: &str) -> Result<(), SqlError> {
        match self.get(name) {
            Ok(portal) if portal.is_running() => {
                let message = format!("cannot drop active portal \"{name}\"");
                Err(SqlError::new(SqlState::InvalidCursorState, message))
            }
            Ok(_) if !name.is_empty() => {
                self.close(name);
                Ok(())
            }
            _ => Err(SqlError::new(SqlState::NoSuchPortal, format!("cursor \"{name}\" does not exist"))),
        }
    }

    /// CLOSE ALL: closes all portals but the one that runs it.
    pub(super) fn close_all(&mut self) {
        if !self.unnamed.is_running() {
            self.unnamed.close();
        }
        let Portals { named, named_bytes, .. } = self;
        named.retain(|_, portal| {
            let stays = portal.is_running();
            if !stays {
                *named_bytes -= portal.bytes;
            }
            stays
        });
    }

    /// Closes all of them.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.unnamed.close();
        if !self.named.is_empty() {
            self.named.clear();
            self.named_bytes = 0;
        }
    }

    /// Closes the portals that were opened, or have read the rows that they keep, behind this savepoint (0 for all):
    /// the transaction took back what they have read.
    #[inline]
    pub(super) fn close_behind(&mut self, savepoint: u64) {
        if self.unnamed.savepoint >= savepoint {
            self.unnamed.close();
        }
        if !self.named.is_empty() {
            let Portals { named, named_bytes, .. } = self;
            named.retain(|_, portal| {
                let stays = portal.savepoint < savepoint;
                if !stays {
                    *named_bytes -= portal.bytes;
                }
                stays
            });
        }
    }
}

/// Refuses a portal of this number of bytes, arguments included, for which there is no room.
#[inline]
fn check_room(room: usize, bytes: usize, argument_bytes: usize) -> Result<(), SqlError> {
    if bytes <= room { Ok(()) } else { Err(no_room_for_arguments(bytes, argument_bytes)) }
}

#[cold]
fn no_room_for_arguments(bytes: usize, argument_bytes: usize) -> SqlError {
    if bytes <= KEPT_BYTES_MAX {
        return no_room().hint("Close other portals, or run them, which lets go of their arguments.");
    }
    let message = format!(
        "arguments of {argument_bytes} bytes in one Bind: the portals of a session keep at most {} MiB",
        KEPT_BYTES_MAX >> 20
    );
    SqlError::new(SqlState::OutOfMemory, message)
        .hint("Give shorter values, share them out among several statements, or use COPY.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_that_is_closed_keeps_little() {
        for (bytes, keeps) in [(0, true), (ROOM_BYTES_MAX, true), (ROOM_BYTES_MAX + 1, false)] {
            let mut portal = Portal { params: vec![Value::Null], bytes, ..Portal::default() };
            portal.close();
            assert_eq!((portal.params.capacity() > 0, portal.bytes), (keeps, 0), "{bytes}");
        }
    }

    /// The end of a transaction closes the portal that runs in it.
    #[test]
    fn a_portal_that_was_closed_while_it_ran_keeps_no_arguments() {
        let mut portals = Portals::default();
        portals.close_behind(0);
        portals.ran("", Tag::Word("COMMIT"), vec![Value::Text("x".repeat(100))]);
        assert_eq!(portals.unnamed.params.capacity(), 0);
        assert_eq!(portals.room(), KEPT_BYTES_MAX);
    }
}
