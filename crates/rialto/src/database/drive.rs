//! A database without threads of its own ([`Background::Driven`]): its caller does the background work that is due.

use super::Database;
use crate::engine::data_oriented::ResourceManager;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::options::Background;

impl Database {
    /// Does the background work that is due in a database without threads of its own ([`Background::Driven`]), in the
    /// caller's thread:
    ///
    /// - It writes the log up to the last commit, syncs it, and wakes the tickets that waited for this.
    /// - It makes a checkpoint if one is due ([`Options::checkpoint_interval`](crate::Options::checkpoint_interval),
    ///   [`Options::recovery_within`](crate::Options::recovery_within), or the log's room), without pauses. Therefore a
    ///   call may take as long as a checkpoint.
    /// - It writes changed pages of disk-resident tables, and lets pages leave, if places for pages have become few.
    /// - It makes the next log file, and adapts the routing rules to the load.
    ///
    /// [`Options::memory_flush_interval`](crate::Options::memory_flush_interval) is without effect: a commit at level
    /// memory is not on the disk until the next call, or until a commit at level disk is written with it. For a
    /// database with threads this does nothing.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a body; [`Error::Closed`]; [`Error::Stopped`] if the log cannot be written. The error
    /// of a failed checkpoint is in [`Database::metrics`].
    pub fn drive(&self) -> Result<()> {
        if self.running.options().background == Background::Threads {
            return Ok(());
        }
        let core = self.core();
        if InBody::is_inside(core.storage.catalog.opening()) {
            return Err(Error::Nested);
        }
        core.storage.check_open()?;
        let log = &core.commits.log;
        let written = log.sync();
        log.wake_listeners();
        written?;
        core.releases.release_all();
        self.running.with_resources(ResourceManager::run_once);
        log.prepare_next_file();
        core.storage.disk_tables.write_behind_once();
        self.running.look_after_checkpoints();
        log.wake_listeners();
        Ok(())
    }
}
