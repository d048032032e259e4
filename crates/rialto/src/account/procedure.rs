//! The names under which accounts are kept, and the accounts as callers see them.

use std::time::Duration;

use parking_lot::RwLock;

use super::histogram::TimeHistogram;

/// How many accounts a database keeps, including that of transactions without a name. Further names share that one.
pub const PROCEDURES_MAX: usize = 64;

/// The name of the account of transactions without a name.
pub const UNNAMED: &str = "(unnamed)";

/// The account that a transaction's time goes to; [`Database::procedure_id`](crate::Database::procedure_id) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ProcedureId(u16);

impl ProcedureId {
    #[inline]
    pub(crate) fn position(self) -> usize {
        usize::from(self.0)
    }
}

/// The names given so far.
#[derive(Debug, Default)]
pub(super) struct ProcedureNames {
    /// The names after the unnamed one.
    named: RwLock<Vec<String>>,
}

impl ProcedureNames {
    pub fn id(&self, name: &str) -> ProcedureId {
        let find = |named: &[String]| {
            named.iter().position(|known| known == name).map(|position| ProcedureId(position as u16 + 1))
        };
        if let Some(id) = find(&self.named.read()) {
            return id;
        }
        let mut named = self.named.write();
        if let Some(id) = find(&named) {
            return id;
        }
        if named.len() + 1 == PROCEDURES_MAX {
            return ProcedureId::default();
        }
        named.push(name.to_owned());
        ProcedureId(named.len() as u16)
    }

    /// All names, in the order of their positions.
    pub fn all(&self) -> Vec<String> {
        std::iter::once(UNNAMED.to_owned()).chain(self.named.read().iter().cloned()).collect()
    }
}

/// How some transactions spent their time, in nanoseconds; the parts add up to their response times. `None` is a part
/// that does not apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeAccount {
    /// Waiting on an executor's queue; always `None`. A transaction's account begins with its first run, when it has
    /// left the queue.
    pub queue_ns: Option<u64>,
    /// Waiting for pages of disk-resident tables that were not in memory; `None` if there was no such wait.
    pub fetch_io_ns: Option<u64>,
    /// Waiting for locks.
    pub lock_wait_ns: u64,
    /// Of that, the time in which others waited for the disk ([`LockCounters::wait_for_disk_ns`](crate::isolate::LockCounters)); it is
    /// no part of its own.
    pub lock_wait_for_disk_ns: u64,
    /// Waiting for latches of segments and index nodes.
    pub latch_wait_ns: u64,
    /// Running: the rest of the response time.
    pub run_ns: u64,
    /// Waiting for the log: for room in it before the place, and for its writes after it.
    pub log_wait_ns: u64,
    /// Waiting for a standby database; always `None`, because there are none.
    pub standby_wait_ns: Option<u64>,
}

impl TimeAccount {
    /// The sum of all parts.
    pub fn response(&self) -> Duration {
        let applicable = self.queue_ns.into_iter().chain(self.fetch_io_ns).chain(self.standby_wait_ns);
        let sum = applicable.sum::<u64>() + self.lock_wait_ns + self.latch_wait_ns;
        Duration::from_nanos(sum + self.run_ns + self.log_wait_ns)
    }
}

/// What transactions have done with pages of disk-resident tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageCounts {
    /// Data accesses: look-ups and changes of single entries, and leaves of scans.
    pub accesses: u64,
    /// Those of the accesses that have read the disk.
    pub misses: u64,
    /// Pages that they have read: inner nodes, leaves, and pages of long values.
    pub reads: u64,
    /// How often an access has waited for a place in memory until another page, which had changed, was written and had left it.
    pub room_waits: u64,
}

/// The account of one procedure, since the database was opened.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ProcedureAccount {
    /// Its name, or [`UNNAMED`].
    pub name: String,
    /// Transactions committed, read-only ones included.
    pub committed: u64,
    /// Transactions aborted, runs that ended as a deadlock's victim included.
    pub aborted: u64,
    /// Those of the aborted runs that a deadlock ended and that were tried again.
    pub deadlocks: u64,
    /// Those of the aborted runs that a black/white checkpoint ended, because they touched both of its sides.
    pub straddling: u64,
    /// How the committed transactions spent their time.
    pub time: TimeAccount,
    /// What all runs, aborted ones and fetch stages included, have done with pages of disk-resident tables.
    pub pages: PageCounts,
    /// Response times of the transactions whose end the database saw: all but tickets that no thread waited for.
    pub response: TimeHistogram,
    /// Runs of the committed transactions, tickets included.
    pub run: TimeHistogram,
    /// Lock waits of the transactions that waited for locks, each transaction's in sum.
    pub lock_wait: TimeHistogram,
    /// The same for latches.
    pub latch_wait: TimeHistogram,
    /// The same for the log.
    pub log_wait: TimeHistogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_accounts_and_too_many_share_one() {
        let names = ProcedureNames::default();
        let first = names.id("first");
        assert_ne!(first, ProcedureId::default());
        assert_eq!(names.id("first"), first);
        let ids: Vec<_> = (0..PROCEDURES_MAX * 2).map(|nth| names.id(&format!("p{nth}"))).collect();
        assert_eq!(ids.iter().filter(|id| **id != ProcedureId::default()).count(), PROCEDURES_MAX - 2);
        assert!(ids.iter().all(|id| id.position() < PROCEDURES_MAX));
        assert_eq!(names.all().len(), PROCEDURES_MAX);
        assert_eq!(names.all()[first.position()], "first");
    }

    #[test]
    fn the_parts_add_up() {
        let account = TimeAccount {
            queue_ns: Some(1),
            fetch_io_ns: None,
            lock_wait_ns: 20,
            lock_wait_for_disk_ns: 7,
            latch_wait_ns: 300,
            run_ns: 4_000,
            log_wait_ns: 50_000,
            standby_wait_ns: Some(600_000),
        };
        assert_eq!(account.response(), Duration::from_nanos(654_321));
    }
}
