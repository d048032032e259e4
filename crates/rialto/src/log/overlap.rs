//! Overlapping syncs of log files, where several groups may be in flight.
//!
//! A failed sync loses what it covers. An operating system may report that once for an open file: to one of the callers
//! that are in `fdatasync` at that time. Therefore a sync that succeeds while another one is under way does not yet
//! prove that its writes are durable. Invariant: **a sync counts only when every sync that began before its end has
//! reported, and none has ever failed.** A sync that begins later reports on later writes, or on what is durable by
//! then.

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::io::{DiskError, DiskResult, File};

/// The syncs of a log's files.
#[derive(Debug, Default)]
pub(super) struct OverlappingSyncs {
    state: Mutex<OverlapState>,
    reported: Condvar,
}

#[derive(Debug, Default)]
struct OverlapState {
    /// How many have begun; that also numbers them.
    begun: u64,
    under_way: SmallVec<[u64; 4]>,
    /// The first failure.
    failure: Option<DiskError>,
}

impl OverlapState {
    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.under_way.push(self.begun);
        self.begun
    }

    fn report(&mut self, number: u64, failure: Option<DiskError>) {
        self.under_way.retain(|other| *other != number);
        self.failure = self.failure.take().or(failure);
    }

    /// The outcome of a sync at whose end so many syncs had begun, once it is known.
    fn verdict(&self, begun: u64) -> Option<DiskResult<()>> {
        match &self.failure {
            Some(failure) => Some(Err(failure.clone())),
            None => self.under_way.iter().all(|number| *number > begun).then_some(Ok(())),
        }
    }
}

impl OverlappingSyncs {
    /// Syncs a file.
    pub(super) fn sync(&self, file: &dyn File) -> DiskResult<()> {
        let number = self.state.lock().begin();
        let mut report = Report { syncs: self, file, number, outcome: None };
        report.outcome = Some(file.sync());
        drop(report);
        let mut state = self.state.lock();
        let begun = state.begun;
        loop {
            if let Some(verdict) = state.verdict(begun) {
                return verdict;
            }
            self.reported.wait(&mut state);
        }
    }
}

/// Reports when it is dropped. A sync without an outcome (it panicked) has failed.
struct Report<'a> {
    syncs: &'a OverlappingSyncs,
    file: &'a dyn File,
    number: u64,
    outcome: Option<DiskResult<()>>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        let panicked =
            || Err(DiskError::new(self.file.name(), 0, "sync", std::io::Error::other("it panicked")));
        let failure = self.outcome.take().unwrap_or_else(panicked).err();
        self.syncs.state.lock().report(self.number, failure);
        self.syncs.reported.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Option<DiskError> {
        Some(DiskError::new("log-0000000001", 0, "sync", rustix::io::Errno::IO))
    }

    #[test]
    fn a_sync_counts_when_those_that_began_before_its_end_have_reported() {
        let mut state = OverlapState::default();
        let (first, second) = (state.begin(), state.begin());
        state.report(first, None);
        let end = state.begun;
        let third = state.begin();
        assert!(state.verdict(end).is_none(), "the second one is under way");
        state.report(third, None);
        assert!(state.verdict(end).is_none(), "that the third one has reported says nothing of the second");
        let fourth = state.begin();
        state.report(second, None);
        assert!(state.verdict(end).is_some_and(|verdict| verdict.is_ok()), "the fourth one began later");
        state.report(fourth, None);
        assert!(state.under_way.is_empty());
    }

    #[test]
    fn after_a_failure_none_counts() {
        let mut state = OverlapState::default();
        let (first, second) = (state.begin(), state.begin());
        state.report(first, None);
        state.report(second, failure());
        assert!(
            state.verdict(first).is_some_and(|verdict| verdict.is_err()),
            "it may have lost what the first one covers"
        );
        let third = state.begin();
        state.report(third, None);
        assert!(state.verdict(third).is_some_and(|verdict| verdict.is_err()));
    }
}
