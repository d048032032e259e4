//! A database without threads of its own ([`Background::Driven`]): its caller does what is due.

use super::Database;
use crate::engine::data_oriented::ResourceManager;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::options::Background;

impl Database {
    /// Does what is due of a database that has no threads of its own ([`Background::Driven`]), here and now: writes the log up to the last
    /// commit, makes a checkpoint if one is due ([`Options::checkpoint_interval`](crate::Options::checkpoint_interval), or the log's
    /// room), and has routing rules and numbers of executors follow the load. Call it as often as a commit at level memory may stay
    /// off the disk. Of a database with threads it does nothing.
    ///
    /// # Errors
    /// [`Error::Nested`] inside of a body; [`Error::Closed`]. Why a checkpoint or a write of the log has failed, [`Database::metrics`] and
    /// the next commits tell.
    pub fn drive(&self) -> Result<()> {
        if self.running.options().background == Background::Threads {
            return Ok(());
        }
        let core = self.core();
        if InBody::is_inside(core.storage.catalog.opening()) {
            return Err(Error::Nested);
        }
        core.storage.check_open()?;
        core.commits.log.write_queued();
        core.releases.release_all();
        self.running.with_resources(ResourceManager::look);
        self.running.look_after_checkpoints();
        Ok(())
    }
}
