//! A disk that holds a sync of the log, so that definitions change while a session waits for it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rialto::io::{FaultKind, FaultyDisk};

use super::hooked::{About, HookedDisk};

/// The state of the next sync of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Syncs pass.
    No,
    /// The next one will wait.
    Next,
    /// One waits.
    Waiting,
    /// It may go on, and the syncs behind it fail.
    Last,
}

pub struct HeldDisk {
    pub disk: Arc<HookedDisk>,
    gate: Arc<Gate>,
}

struct Gate {
    disk: Arc<FaultyDisk>,
    held: Mutex<Held>,
    changed: Condvar,
}

impl HeldDisk {
    pub fn new() -> HeldDisk {
        let faulty = FaultyDisk::new(7);
        let disk = HookedDisk::new(faulty.clone());
        let gate = Arc::new(Gate { disk: faulty, held: Mutex::new(Held::No), changed: Condvar::new() });
        disk.before({
            let gate = gate.clone();
            move |file: &str, about| {
                if about == About::Sync && file.starts_with("log-") {
                    gate.pass();
                }
            }
        });
        HeldDisk { disk, gate }
    }

    /// Makes the next sync of the log wait.
    pub fn hold(&self) {
        self.gate.set(Held::Next);
    }

    /// Waits until a sync of the log is waiting.
    pub fn wait_until_held(&self) {
        self.gate.wait_for(Held::Waiting);
    }

    /// Lets that sync go on; no later one succeeds.
    pub fn let_the_last_one_go(&self) {
        self.gate.set(Held::Last);
    }
}

impl Gate {
    fn set(&self, held: Held) {
        *self.held.lock().unwrap() = held;
        self.changed.notify_all();
    }

    fn wait_for(&self, wanted: Held) {
        let held = self.held.lock().unwrap();
        let (held, _) =
            self.changed.wait_timeout_while(held, Duration::from_secs(60), |held| *held != wanted).unwrap();
        assert_eq!(*held, wanted);
    }

    fn pass(&self) {
        let mut held = self.held.lock().unwrap();
        if *held == Held::Next {
            *held = Held::Waiting;
            self.changed.notify_all();
            drop(held);
            self.wait_for(Held::Last);
            // After this sync, which is spared.
            self.disk.fail_always(FaultKind::Sync, "log-0", 1);
        }
    }
}
