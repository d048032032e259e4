//! What a [`LogCursor`](crate::log::LogCursor) asks the log for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Log;
use crate::io::File;
use crate::log::log_file::LogFile;
use crate::log::subscriptions::Subscription;
use crate::log::wakers::{Listener, RegisteredListener};
use crate::log::{Durability, LogPoint};
use crate::{Error, Lsn, Result, fault_injection};

impl Log {
    pub(in crate::log) fn subscribe(&self, position: u64, bytes_max: u64) -> Result<Arc<Subscription>> {
        let subscription = self.core.files.subscribe(position, bytes_max);
        subscription.ok_or_else(|| Error::LogTrimmed { position, oldest: self.oldest_position() })
    }

    /// Ends a cursor.
    pub(in crate::log) fn unsubscribe(
        &self,
        subscription: &Arc<Subscription>,
        registered: Option<RegisteredListener>,
    ) {
        self.core.files.subscriptions.remove(subscription);
        if let Some(registered) = registered {
            self.core.listeners.remove(Durability::Memory, registered);
        }
    }

    /// The place from which on the log's files stay, where packets from this place on are needed: an earlier one if files stay for
    /// cursors.
    pub(crate) fn kept_from(&self, needed: Lsn) -> Lsn {
        let files = &self.core.files;
        let is_kept =
            files.subscriptions.is_any() && !fault_injection::is_on("load-files-freed-under-a-cursor");
        let oldest = if is_kept { files.oldest_place() } else { None };
        oldest.map_or(needed, |oldest| oldest.min(needed))
    }

    /// Whether anything waits for a place at this level.
    #[cfg(test)]
    pub(in crate::log) fn has_listeners(&self, durability: Durability) -> bool {
        self.core.listeners.wait_for(durability)
    }

    /// The number of its ring ([`ring`](crate::log::ring)).
    pub(crate) fn life(&self) -> u64 {
        self.core.ring.life()
    }

    /// Where the log ends now.
    pub(crate) fn end(&self) -> LogPoint {
        self.core.gatherer.lock().end()
    }

    /// The end of a block up to which all is on the disk: the last one, once everything was written.
    pub(crate) fn on_disk_point(&self) -> LogPoint {
        self.core.on_disk_point()
    }

    /// Whether the log is closed, and everything that it will ever have is on the disk.
    pub(in crate::log) fn has_ended(&self) -> bool {
        self.core.ended.load(Ordering::SeqCst)
    }

    /// The position up to which the ring is filled.
    pub(in crate::log) fn filled(&self) -> u64 {
        self.core.ring.filled()
    }

    /// The position up to which the log is on the disk.
    pub(in crate::log) fn released(&self) -> u64 {
        self.core.ring.released()
    }

    /// As [`RingView::copy`](crate::log::ring::RingView::copy).
    pub(in crate::log) fn copy_from_ring(&self, from: u64, to: u64, out: &mut Vec<u8>) -> bool {
        self.core.ring.copy(from, to, out)
    }

    /// The log file that holds this position.
    pub(in crate::log) fn file_at(&self, position: u64) -> Option<Arc<LogFile>> {
        self.core.files.at(position)
    }

    pub(in crate::log) fn open_to_read(&self, file: &LogFile) -> Result<Arc<dyn File>> {
        Ok(self.core.files.open_to_read(file)?)
    }

    /// The oldest position that is still in the log's files.
    pub(in crate::log) fn oldest_position(&self) -> u64 {
        self.core.files.extent().0
    }

    /// Has a listener woken when this place, which no packet may have yet, is durable; in the place of the one that was registered, if
    /// that still waits.
    pub(in crate::log) fn listen(
        &self,
        lsn: Lsn,
        durability: Durability,
        listener: impl Fn() -> Listener,
        registered: &mut Option<RegisteredListener>,
    ) {
        let core = &*self.core;
        if !registered.is_some_and(|earlier| core.listeners.replace(durability, earlier, listener())) {
            *registered = Some(core.listeners.add(lsn, durability, listener()));
        }
        // A thread that advances a position from here on sees this listener; this thread sees what was advanced before.
        if core.is_done(lsn, durability).is_some() {
            core.hand_over_listeners(durability);
        }
        core.waker_threads.wake_here();
    }
}
