//! Foreign code: what users give the database to run. A waker, a destructor, a line of progress may panic, and may come back
//! to the database; it runs where nothing is held that it could ask for, or is refused what it would wait for ([`Amid`]), and
//! its panic ends nothing but itself. That of a backup's stream ends its backup, too.
//!
//! Bodies are not of this kind: their panics end their transaction, and are told to its caller. What such a panic carries is
//! of this kind again ([`Panic`]): it may be anything, and its destructor may panic once more.

use std::any::Any;
use std::cell::Cell;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::database::InBody;
use crate::error::{Error, Result};

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

thread_local! {
    static AMID: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as running foreign code amid a checkpoint or a backup, until dropped. What would wait for that one to end is
/// [`Error::Nested`]: as in a body, and what asks [`check_may_wait`].
struct Amid {
    // The checkpoint may have been asked for in a body.
    _in_body: Result<InBody>,
    before: bool,
}

impl Amid {
    fn enter() -> Amid {
        Amid { _in_body: InBody::enter(), before: AMID.replace(true) }
    }
}

impl Drop for Amid {
    fn drop(&mut self) {
        AMID.set(self.before);
    }
}

/// Tells a line of progress, amid a checkpoint.
pub(crate) fn tell(tell: &dyn Fn(&str), text: &str) {
    let _amid = Amid::enter();
    run_caught(|| tell(text));
}

/// The stream that a backup goes to.
pub(crate) struct Stream<'a>(pub &'a mut dyn Write);

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _amid = Amid::enter();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let _amid = Amid::enter();
        self.0.flush()
    }
}

/// [`Error::Nested`] while the thread runs foreign code amid a checkpoint or a backup.
pub(crate) fn check_may_wait() -> Result<()> {
    if AMID.get() { Err(Error::Nested) } else { Ok(()) }
}
