//! The code that a thread is inside of, and therefore must not wait for: a body ([`InBody`]), or foreign code amid a
//! checkpoint or a backup ([`Amid`]).
//!
//! A body may have executors leased, whichever database it belongs to; therefore no other body begins inside it. A
//! stream or a line of progress holds up the checkpoints of one database, and bodies that may wait for these; other
//! databases are not affected.

use std::cell::{Cell, RefCell};

use crate::error::{Error, Result};
use crate::opening::Opening;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    /// Foreign code amid a checkpoint or a backup of the databases in [`AMID`], and no body inside it.
    Amid,
    Body,
}

thread_local! {
    static INSIDE: Cell<Inside> = const { Cell::new(Inside::Nothing) };
    /// The databases for which the thread runs foreign code amid a checkpoint or a backup, the innermost last. It
    /// counts as empty once it is destroyed at the thread's end.
    static AMID: RefCell<Vec<Opening>> = const { RefCell::new(Vec::new()) };
}

fn is_amid(database: Opening) -> bool {
    AMID.try_with(|databases| databases.borrow().contains(&database)).unwrap_or(false)
}

/// Marks the thread as inside a body, until dropped.
pub(crate) struct InBody {
    before: Inside,
}

impl InBody {
    /// # Errors
    /// [`Error::Nested`] inside a body of any database, and amid a checkpoint or a backup of this one.
    #[inline]
    pub fn enter(database: Opening) -> Result<InBody> {
        match INSIDE.replace(Inside::Body) {
            before @ Inside::Nothing => Ok(InBody { before }),
            before => InBody::enter_inside(before, database),
        }
    }

    /// For a body that a recovery runs again. It is never refused: the thread that opens a database may be inside a
    /// body of another one.
    #[inline]
    pub fn of_replay() -> InBody {
        InBody { before: INSIDE.replace(Inside::Body) }
    }

    #[cold]
    fn enter_inside(before: Inside, database: Opening) -> Result<InBody> {
        if before == Inside::Body || is_amid(database) {
            INSIDE.set(before);
            return Err(Error::Nested);
        }
        Ok(InBody { before })
    }

    /// Whether the thread is inside a body, or amid a checkpoint or a backup of this database. There an operation that
    /// waits for bodies, for a checkpoint or for a backup would wait for itself.
    pub fn is_inside(database: Opening) -> bool {
        match INSIDE.get() {
            Inside::Nothing => false,
            Inside::Amid => is_amid(database),
            Inside::Body => true,
        }
    }
}

impl Drop for InBody {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Marks the thread as running foreign code amid a checkpoint or a backup of a database, until dropped. Operations that
/// would wait for that checkpoint or backup get [`Error::Nested`]: a body of the same database, and the callers of
/// [`check_may_wait`].
pub(crate) struct Amid {
    before: Inside,
}

impl Amid {
    pub fn enter(database: Opening) -> Amid {
        let _ = AMID.try_with(|databases| databases.borrow_mut().push(database));
        let before = INSIDE.get();
        // A body may have asked for the checkpoint.
        if before == Inside::Nothing {
            INSIDE.set(Inside::Amid);
        }
        Amid { before }
    }
}

impl Drop for Amid {
    fn drop(&mut self) {
        INSIDE.set(self.before);
        let _ = AMID.try_with(|databases| databases.borrow_mut().pop());
    }
}

/// [`Error::Nested`] while the thread runs foreign code amid a checkpoint or a backup of this database.
pub(crate) fn check_may_wait(database: Opening) -> Result<()> {
    if is_amid(database) { Err(Error::Nested) } else { Ok(()) }
}
