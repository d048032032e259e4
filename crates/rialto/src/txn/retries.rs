//! [`Retries`]: whether and when a transaction runs again after a run without effect. The policy is the same for
//! closures, calls, servers' requests, and handles.

use std::time::Duration;

use crate::commit::sweep_side::STRADDLING_RETRIES_MAX;

/// After this many deadlocks the next run begins at once; each later back-off is twice the one before, up to about 50
/// ms.
const AT_ONCE: u32 = 4;

/// How many runs of a transaction have had no effect so far. For handles: see
/// [`Database::begin_again`](crate::Database::begin_again).
#[derive(Debug, Clone, Default)]
pub struct Retries {
    deadlocks: u32,
    straddles: u32,
}

impl Retries {
    /// After a run that was a deadlock's victim: the back-off before the next run, which may be zero. It gives the
    /// transaction that won some time. `None` if there were `max` such runs before.
    pub(crate) fn after_deadlock(&mut self, max: u32) -> Option<Duration> {
        if self.deadlocks >= max {
            return None;
        }
        let backoff = match self.deadlocks {
            ..AT_ONCE => Duration::ZERO,
            deadlocks => Duration::from_micros(50 << deadlocks.min(10)),
        };
        self.deadlocks += 1;
        Some(backoff)
    }

    /// Notes a run that straddled a black/white checkpoint and was aborted for it.
    pub(crate) fn after_straddling(&mut self) {
        self.straddles += 1;
    }

    /// Whether the next run waits at its commit if it straddles a checkpoint, and is not aborted again.
    pub(crate) fn waits_for_sweep(&self) -> bool {
        self.straddles >= STRADDLING_RETRIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_begin_at_zero_and_grow_up_to_the_last_retry() {
        let mut retries = Retries::default();
        let backoffs: Vec<_> = std::iter::from_fn(|| retries.after_deadlock(20)).collect();
        assert_eq!(backoffs.len(), 20);
        assert!(backoffs[..4].iter().all(Duration::is_zero) && !backoffs[4].is_zero(), "{backoffs:?}");
        assert!(backoffs.is_sorted(), "{backoffs:?}");
        assert_eq!(backoffs[19], Duration::from_micros(51_200));
    }

    #[test]
    fn after_so_many_straddles_the_commit_waits() {
        let mut retries = Retries::default();
        for _ in 0..STRADDLING_RETRIES_MAX {
            assert!(!retries.waits_for_sweep());
            retries.after_straddling();
        }
        assert!(retries.waits_for_sweep());
    }
}
