//! Calls that do not return until they are released.

use parking_lot::{Condvar, Mutex};

use super::FaultKind;

/// The calls that hang, and those that are to hang. Its lock is the disk's innermost, and a thread that hangs holds no
/// other lock.
#[derive(Debug, Default)]
pub(super) struct Hangs {
    waits: Mutex<HangState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HangState {
    /// The calls that are to hang: their kind, and the beginning of their file's name.
    armed: Vec<(FaultKind, String)>,
    /// The number of calls that hang.
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

    /// Hangs as long as calls of this kind on this file are to hang.
    pub(super) fn pass(&self, kind: FaultKind, name: &str) {
        let mut waits = self.waits.lock();
        let hangs = |waits: &HangState| {
            waits.armed.iter().any(|(armed, prefix)| *armed == kind && name.starts_with(prefix))
        };
        if hangs(&waits) {
            waits.hanging += 1;
            self.changed.wait_while(&mut waits, |waits| hangs(waits));
            waits.hanging -= 1;
        }
    }
}
