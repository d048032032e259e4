//! Calls that do not come back until they are let go.

use parking_lot::{Condvar, Mutex};

use super::FaultKind;

/// The calls that hang, and those that will. Its lock is the disk's innermost, and a thread that hangs holds no other lock.
#[derive(Debug, Default)]
pub(super) struct Hangs {
    waits: Mutex<Waits>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waits {
    /// Of the calls that are to hang: what they do, how the name of their file begins.
    armed: Vec<(FaultKind, String)>,
    /// How many do.
    hanging: usize,
}

impl Hangs {
    pub(super) fn arm(&self, kind: FaultKind, prefix: &str) {
        self.waits.lock().armed.push((kind, prefix.to_owned()));
    }

    pub(super) fn let_go(&self) {
        self.waits.lock().armed.clear();
        self.changed.notify_all();
    }

    pub(super) fn hanging(&self) -> usize {
        self.waits.lock().hanging
    }

    /// Hangs while calls of this kind on this file do.
    pub(super) fn pass(&self, kind: FaultKind, name: &str) {
        let mut waits = self.waits.lock();
        let hangs = |waits: &Waits| {
            waits.armed.iter().any(|(armed, prefix)| *armed == kind && name.starts_with(prefix))
        };
        if hangs(&waits) {
            waits.hanging += 1;
            self.changed.wait_while(&mut waits, |waits| hangs(waits));
            waits.hanging -= 1;
        }
    }
}
