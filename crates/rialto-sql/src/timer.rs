//! The timer: ends statements whose time is up (`statement_timeout`).
//!
//! One thread serves all sessions of the process. It starts with the first statement that has a time limit. A session
//! stores only the deadline of its statement; the timer checks the deadline when the time of its own entry for the
//! session has come, and goes by what it finds then. So a session has at most one entry, and a statement that ends in
//! time leaves nothing to take back: most statements find the entry of an earlier one.
//!
//! Invariant: while a session has a deadline, the timer has an entry for it at that time or before.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::cancel::{Cancel, Deadline};
use crate::error::{Result, SqlError, SqlState};

/// The time from which deadlines are counted.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

static TIMER: Timer = Timer {
    entries: Mutex::new(Entries { by_time: BTreeMap::new(), has_thread: false }),
    earlier: Condvar::new(),
};

struct Timer {
    entries: Mutex<Entries>,
    /// There is a new first entry.
    earlier: Condvar,
}

struct Entries {
    /// By their time, and the address of the [`Cancel`], which no other has while the entry is there.
    by_time: BTreeMap<(u64, usize), Weak<Cancel>>,
    has_thread: bool,
}

/// Microseconds since [`START`], at least 1.
fn now() -> u64 {
    u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX - 1).max(1)
}

/// Ends the statement that this cancels after this time, unless it has ended by then.
///
/// # Errors
/// The timer's thread cannot be started.
pub(crate) fn end_after(cancel: &Arc<Cancel>, limit: Duration) -> Result<()> {
    let limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    let deadline = now().saturating_add(limit_us).min(u64::MAX - 1);
    if cancel.set_deadline(deadline) {
        return Ok(());
    }
    let mut entries = TIMER.entries();
    if !entries.has_thread {
        let thread = std::thread::Builder::new().name("rialto-timer".to_owned());
        thread.spawn(|| TIMER.run()).map_err(|error| {
            cancel.end_deadline();
            SqlError::new(SqlState::OutOfMemory, format!("no thread for statement_timeout: {error}"))
        })?;
        entries.has_thread = true;
    }
    if entries.put(cancel, deadline) {
        TIMER.earlier.notify_one();
    }
    Ok(())
}

impl Timer {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut entries = self.entries();
        loop {
            let now = now();
            let next = entries.by_time.first_key_value().map(|((time, _), _)| *time);
            entries = match next {
                Some(time) if time <= now => {
                    entries.take_first(now);
                    entries
                }
                Some(time) => {
                    let wait = Duration::from_micros(time - now);
                    self.earlier.wait_timeout(entries, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.earlier.wait(entries).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Entries {
    /// Has an entry for a session at this time or before. Whether it is a new first one.
    fn put(&mut self, cancel: &Arc<Cancel>, time: u64) -> bool {
        let address = Arc::as_ptr(cancel) as usize;
        match cancel.entry() {
            Some(entry) if entry <= time => return false,
            Some(entry) => drop(self.by_time.remove(&(entry, address))),
            None => {}
        }
        self.by_time.insert((time, address), Arc::downgrade(cancel));
        cancel.set_entry(Some(time));
        self.by_time.first_key_value().is_some_and(|(first, _)| *first == (time, address))
    }

    /// Takes the first entry, whose time has come, and ends the statement if its deadline has.
    fn take_first(&mut self, now: u64) {
        let Some((_, cancel)) = self.by_time.pop_first() else { return };
        let Some(cancel) = cancel.upgrade() else { return };
        // A deadline that is set after this line finds no entry, and asks for one.
        cancel.set_entry(None);
        match cancel.deadline() {
            Deadline::At(deadline) if deadline <= now => cancel.expire(deadline),
            Deadline::At(deadline) => drop(self.put(&cancel, deadline)),
            Deadline::None | Deadline::Expired => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statements that end in time leave one entry, whatever their number; a shorter limit moves it.
    #[test]
    fn a_session_has_one_entry() {
        let cancel = Arc::<Cancel>::default();
        let address = Arc::as_ptr(&cancel) as usize;
        let entries = || {
            let entries = TIMER.entries();
            let of_this = entries.by_time.keys().filter(|(_, of)| *of == address);
            of_this.map(|(time, _)| *time).collect::<Vec<_>>()
        };
        for _ in 0..100 {
            end_after(&cancel, Duration::from_secs(3_600)).unwrap();
            assert!(!cancel.end_deadline());
        }
        let [long] = entries()[..] else { panic!("{:?}", entries()) };
        end_after(&cancel, Duration::from_secs(1_800)).unwrap();
        let [short] = entries()[..] else { panic!("{:?}", entries()) };
        assert!(short < long);
        assert!(!cancel.end_deadline());
    }

    /// A deadline that is later than the entry's time is kept until it has come itself.
    #[test]
    fn an_entry_goes_by_the_deadline_that_it_finds() {
        let cancel = Arc::<Cancel>::default();
        let mut entries = Entries { by_time: BTreeMap::new(), has_thread: false };
        cancel.set_deadline(100);
        assert!(entries.put(&cancel, 100));
        assert!(!cancel.end_deadline());
        assert!(cancel.set_deadline(150), "the entry is there");
        entries.take_first(100);
        assert_eq!(cancel.entry(), Some(150));
        assert!(cancel.check().is_ok());
        entries.take_first(150);
        assert_eq!(cancel.check().unwrap_err().message, "canceling statement due to statement timeout");
        assert!(entries.by_time.is_empty() && cancel.entry().is_none());
        assert!(cancel.end_deadline());
        assert!(cancel.check().is_ok());
        assert!(!cancel.set_deadline(200), "there is no entry");
    }
}
