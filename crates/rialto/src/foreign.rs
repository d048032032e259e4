//! Foreign code: what users give the database to run, such as a waker, a destructor or a line of progress. It may
//! panic, and it may call the database. Therefore the database calls it only while the thread holds no latch, lock or
//! barrier that the code could need; where that is not possible, what the code would wait for is refused ([`Amid`]).
//! Its panic ends nothing but itself, except that the panic of a backup's stream also ends its backup.
//!
//! Bodies are not of this kind: a body's panic ends its transaction and reaches its caller. (A body that a recovery
//! runs again has no caller: its panic is an outcome that differs from the logged one, and gives an error that names
//! the call.) The payload of a body's panic is foreign code again ([`Panic`]): it may be any value, and its destructor
//! may panic once more.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::inside::Amid;
use crate::opening::Opening;

/// The payload of a caught panic. Its destructor may panic; that panic is caught too, so the thread that drops this
/// goes on.
pub(crate) struct Panic(Option<Box<dyn Any + Send>>);

impl Panic {
    /// Goes on unwinding with the payload.
    pub fn resume(mut self) -> ! {
        resume_unwind(self.0.take().expect("until it is resumed or dropped"))
    }

    /// The text of the panic, if its payload is one.
    pub fn text(&self) -> Option<&str> {
        let payload = self.0.as_ref()?;
        let text = payload.downcast_ref::<&str>().copied();
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl From<Box<dyn Any + Send>> for Panic {
    fn from(payload: Box<dyn Any + Send>) -> Panic {
        Panic(Some(payload))
    }
}

impl Drop for Panic {
    fn drop(&mut self) {
        let Some(payload) = self.0.take() else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            // The payload of the destructor's own panic may have such a destructor again, and so on without an end.
            std::mem::forget(panic);
        }
    }
}

/// Runs `run` and catches its panic, which the panic hook has reported.
#[inline]
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> std::result::Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(run)).map_err(Panic::from)
}

/// As [`catch`], for code that returns nothing and whose panic has no reader.
pub(crate) fn run_caught(run: impl FnOnce()) {
    drop(catch(run));
}

/// Receives lines about the progress of long work: a recovery, or a definition that goes through the rows of a table.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// Gives a line to `tell` amid a checkpoint of this database.
pub(crate) fn tell(database: Opening, tell: &dyn Fn(&str), text: &str) {
    let _amid = Amid::enter(database);
    run_caught(|| tell(text));
}

/// The stream to which a backup of this database is written.
pub(crate) struct Stream<'a>(pub &'a mut dyn Write, pub Opening);

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _amid = Amid::enter(self.1);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let _amid = Amid::enter(self.1);
        self.0.flush()
    }
}
