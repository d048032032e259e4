//! The election: which of the waiting committers writes the group that forms. It is the first that waited since the
//! last group began, or one whose own wait is over before that one's.

use std::time::Duration;

use super::{Committer, Machine, Ordering, View, Writer};

impl<M: Machine> Writer<M> {
    /// The elected committer's place; `None` if none is elected.
    pub(super) fn elected(&self) -> Option<u64> {
        let elected = self.elected.load(Ordering::SeqCst);
        (elected > self.group_word.load(Ordering::SeqCst) >> 16).then_some(elected)
    }

    /// Elects this committer if none is elected; returns whether it is elected now.
    pub(super) fn elect(&self, lsn: u64) -> bool {
        let before = self.elected.load(Ordering::SeqCst);
        let target = self.group_word.load(Ordering::SeqCst) >> 16;
        if before > target || lsn <= target {
            return before == lsn && lsn > target;
        }
        self.elected.compare_exchange(before, lsn, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The elected committer, which has this place, announces when it begins.
    pub(super) fn say_begin(&self, lsn: u64, begins: Duration) {
        let begins = (begins.as_nanos() as u64) << 16 | lsn & 0xffff;
        self.begins.store(begins, Ordering::SeqCst);
    }

    /// When the elected committer begins: at the time that it announced, or now if that has passed; `None` if none is
    /// elected, or it has not announced a time yet.
    pub(super) fn committer_begins(&self, now: Duration) -> Option<Duration> {
        let elected = self.elected()?;
        let begins = self.begins.load(Ordering::SeqCst);
        if (begins ^ elected) & 0xffff != 0 {
            return None;
        }
        // The upper bits of the time are lost. It is less than a day away, so the lower bits suffice.
        let ahead_ns = ((begins & !0xffff).wrapping_sub((now.as_nanos() as u64) << 16) as i64) >> 16;
        Some(now + Duration::from_nanos(ahead_ns.max(0) as u64))
    }

    /// Whether a committer goes first: it is not elected, its own wait was over when the writer word could not be
    /// taken, and it is to be woken as soon as the word is free. If the elected committer stalls for longer, this one
    /// takes over the election: otherwise its packet would not be written before that stall is over.
    pub(super) fn goes_first(&self, committer: &Committer, view: &View) -> bool {
        if self.has_server() {
            // The log server, which looks after all others, may wait for more packets.
            return committer.stall.is_some() || committer.willing_to_wait.is_some();
        }
        let lsn = committer.lsn;
        while lsn > self.group_word.load(Ordering::SeqCst) >> 16 {
            let elected = self.elected.load(Ordering::SeqCst);
            if self.committer_begins(view.now).is_some_and(|begins| begins <= view.now) {
                return false;
            }
            if self.elected.compare_exchange(elected, lsn, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.say_begin(lsn, view.now);
                return true;
            }
        }
        false
    }
}
