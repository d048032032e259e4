//! The threads of a node's links.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The number of a node's links: each time that links are opened in a process, another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinksId(u64);

thread_local! {
    static OF: Cell<Option<LinksId>> = const { Cell::new(None) };
}

impl LinksId {
    pub(super) fn next() -> LinksId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        LinksId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether this is one of the links' own threads: one that calls their handler.
    pub(super) fn is_on_own_thread(self) -> bool {
        OF.get() == Some(self)
    }

    /// Starts a thread of the links.
    ///
    /// # Errors
    /// The system has no thread left for this process.
    pub(super) fn spawn(self, what: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(format!("rialto-{what}")).spawn(move || {
            OF.set(Some(self));
            run();
        })
    }
}
