//! Foreign code: what users give the database to run. A waker, a destructor, a line of progress may panic, and may come back
//! to the database; it runs where nothing is held that it could ask for, or is refused what it would wait for ([`Amid`]), and
//! its panic ends nothing but itself. That of a backup's stream ends its backup, too.
//!
//! Bodies are not of this kind: their panics end their transaction, and are told to its caller. (A body that a recovery runs again
//! has no caller: its panic is another outcome than it had, an error that names the call.) What such a panic carries is
//! of this kind again ([`Panic`]): it may be anything, and its destructor may panic once more.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::inside::Amid;
use crate::opening::Opening;

/// What a caught panic carries. Its destructor may panic: that panic is caught, so the thread that drops this goes on.
pub(crate) struct Panic(Option<Box<dyn Any + Send>>);

impl Panic {
    /// Goes on unwinding with it.
    pub fn resume(mut self) -> ! {
        resume_unwind(self.0.take().expect("until it is resumed or dropped"))
    }

    /// The text that it was raised with, if that is what it carries.
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
            // The destructor's own panic may carry something of this kind, and so on without an end.
            std::mem::forget(panic);
        }
    }
}

/// Runs it, and catches its panic, of which the panic hook has told.
#[inline]
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> std::result::Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(run)).map_err(Panic::from)
}

/// As [`catch`], for what gives nothing and whose panic has no reader.
pub(crate) fn run_caught(run: impl FnOnce()) {
    drop(catch(run));
}

/// Tells a user how a long recovery goes on.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// Tells a line of progress, amid a checkpoint of this database.
pub(crate) fn tell(database: Opening, tell: &dyn Fn(&str), text: &str) {
    let _amid = Amid::enter(database);
    run_caught(|| tell(text));
}

/// The stream that a backup of this database goes to.
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
