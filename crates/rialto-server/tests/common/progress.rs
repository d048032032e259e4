//! Clients that commit one transaction after another beside a test, with a count of how far each has come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A time that no passing test takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Of each client: its last request, and its last acknowledged commit.
pub struct Progress {
    asked: Vec<AtomicU64>,
    told: Vec<AtomicU64>,
    ends: AtomicBool,
}

fn all(counts: &[AtomicU64]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

impl Progress {
    pub fn asked(&self) -> Vec<u64> {
        all(&self.asked)
    }

    pub fn told(&self) -> Vec<u64> {
        all(&self.told)
    }

    fn commit(&self, client: usize, mut commit: impl FnMut(u64)) {
        for n in 1.. {
            if self.ends.load(Ordering::SeqCst) {
                return;
            }
            self.asked[client].store(n, Ordering::SeqCst);
            commit(n);
            self.told[client].store(n, Ordering::SeqCst);
        }
    }

    /// Waits until each client has committed this many more.
    pub fn wait_for(&self, more: u64) {
        let wanted: Vec<_> = self.told().into_iter().map(|told| told + more).collect();
        let began = Instant::now();
        while self.told().iter().zip(&wanted).any(|(told, wanted)| told < wanted) {
            assert!(began.elapsed() < PATIENCE, "{:?} of {wanted:?} are committed", self.told());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs `run` while each client calls its function with 1, 2, 3, and so on. The clients end when it returns. Each has
/// committed some transactions before.
pub fn while_clients_commit<T>(clients: Vec<impl FnMut(u64) + Send>, run: impl FnOnce(&Progress) -> T) -> T {
    /// Ends the clients also if `run` panics.
    struct Ends<'a>(&'a Progress);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.ends.store(true, Ordering::SeqCst);
        }
    }

    let counts = || clients.iter().map(|_| AtomicU64::new(0)).collect();
    let progress = &Progress { asked: counts(), told: counts(), ends: AtomicBool::new(false) };
    thread::scope(|scope| {
        let _ends = Ends(progress);
        for (number, client) in clients.into_iter().enumerate() {
            scope.spawn(move || progress.commit(number, client));
        }
        progress.wait_for(3);
        run(progress)
    })
}
