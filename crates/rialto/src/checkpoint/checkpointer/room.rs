//! Room in the log: checkpoints that transactions wait for, and the log that checkpoints free.

use std::sync::atomic::Ordering;

use crate::checkpoint::home::{HomeBlock, HomeFile};
use crate::checkpoint::{Checkpointer, Checkpointing};
use crate::error::Result;
use crate::ids::Lsn;
use crate::io::remove_in_steps;
use crate::log::{LogNeeded, LogPoint};
use crate::store::memory::LoadCommit;
use crate::store::memory::load_file::load_file_name;

impl Checkpointer {
    /// Called when a transaction waits for room in the log: a checkpoint in progress makes no pauses, and the next one
    /// begins at once, whatever is due. Returns the reason if it is known that none will make room.
    pub fn want_room(&self) -> Option<String> {
        let is_new = !self.room_wanted.swap(true, Ordering::SeqCst);
        let (strategy, failure) = {
            let state = self.state.lock();
            (state.strategy, state.stats.failure.clone())
        };
        let why_none = match (strategy, failure) {
            (Checkpointing::None, _) => {
                Some("no checkpoint is made by itself (Checkpointing::None): make one".to_owned())
            }
            (_, failure) => failure.map(|failure| format!("the last checkpoint failed: {failure}")),
        };
        if strategy != Checkpointing::None && is_new {
            self.control.set_urgent(true);
            self.wake.notify_all();
        }
        let kept = self.source.archive_failure().map(|failure| format!("the archive takes none: {failure}"));
        match (kept, why_none) {
            (Some(kept), Some(why_none)) => Some(format!("{kept}; {why_none}")),
            (kept, why_none) => kept.or(why_none),
        }
    }

    /// Gives up the older checkpoint, which keeps log that the newer one does not need, before the next sweep does.
    /// With three copies the older one is kept, and the log before it is freed. It is not done twice, unless room is
    /// wanted: the archive may now take what it did not take the last time.
    pub(super) fn make_room(&self, redo_start: Lsn, room_wanted: bool) {
        if self.options.copies > 2 && !room_wanted {
            return;
        }
        let Some(mut home) = self.home.try_lock() else { return };
        let freed_before = std::mem::replace(&mut self.state.lock().freed_before, redo_start);
        if freed_before >= redo_start && !room_wanted {
            return;
        }
        let freed = self.free_all_but_newest(&mut home);
        let failed = self.failed(freed.is_err());
        let mut state = self.state.lock();
        state.failed = failed;
        if let Err(error) = freed {
            state.freed_before = Lsn::ZERO;
            state.stats.failure = Some(error.to_string());
        }
    }

    /// Frees the log that the newest checkpoint does not need; with three copies, only what the older one does not need
    /// either. It frees only what no block in force on disk needs: see the crash argument in `home.rs`.
    pub(super) fn free_all_but_newest(&self, home: &mut HomeFile) -> Result<()> {
        let needed = home.make_way(self.options.copies)?;
        self.free_all_but(needed)
    }

    /// Whether another checkpoint of the same state would free log. This is log that is kept for the older of three
    /// copies; or log that holds only the pads of many openings, after the point of the newest checkpoint or, with
    /// three copies, of the older one.
    pub(super) fn keeps_log(&self, home: &HomeFile) -> bool {
        let current = home.block();
        let is_far = |point: LogPoint| {
            let behind = self.source.log_position().saturating_sub(point.position.0);
            behind > self.options.log_bytes_pressing() / 4
        };
        let is_kept_for =
            |older: &HomeBlock| older.redo_start < current.redo_start || older.point.is_some_and(is_far);
        self.options.copies > 2 && home.older().is_some_and(is_kept_for) || current.point.is_some_and(is_far)
    }

    /// Frees the log that a checkpoint does not need, and the files of bulk loads that only this log names.
    pub(super) fn free_all_but(&self, log: LogNeeded) -> Result<()> {
        let Some(kept_from) = self.source.free_log_but(log)? else { return Ok(()) };
        let mut going = Vec::new();
        for load in self.source.loads().lock().iter_mut().filter(|load| !load.is_needed_from(kept_from)) {
            load.committed = LoadCommit::Going;
            going.push(load.number);
        }
        for number in going {
            // A crash may leave the file cut. No recovery reads it; a recovery only finds it, and it is removed after
            // the next checkpoint, as it is after an error here.
            match remove_in_steps(&*self.disk, &load_file_name(number)) {
                Err(error) if !error.is_missing() => {
                    for load in self.source.loads().lock().iter_mut() {
                        if load.committed == LoadCommit::Going {
                            load.committed = LoadCommit::Never;
                        }
                    }
                    return Err(error.into());
                }
                _ => self.source.loads().lock().retain(|load| load.number != number),
            }
        }
        Ok(())
    }
}
