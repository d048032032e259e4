//! Redoes an archived log on a restored backup.

use std::sync::Arc;

use hashbrown::HashSet;

use super::redo::Redo;
use super::{Recovery, RecoveryProgress, Start, Step, load};
use crate::checkpoint::home::HomeBlock;
use crate::error::{Error, Result};
use crate::ids::{HeapId, Lsn};
use crate::io::Disk;
use crate::log::LogReader;
use crate::store::paged::DiskTables;

/// The result of a replay.
pub(crate) struct Replayed {
    /// An identifier that nothing has; nor does anything have a higher one.
    pub next_id: u32,
    /// Packets redone.
    pub packets: u64,
    /// The storage of the existing tables.
    pub heaps: HashSet<HeapId>,
    /// The disk-resident tables, whose pages are not all written.
    pub disk_tables: Arc<DiskTables>,
}

impl Recovery<'_> {
    /// Loads the copy that `home` names, and redoes the log that the reader gives. The log is of the database of this
    /// identity, whose load files lie on the disk. The segments that have changed are dirty for the copy.
    ///
    /// # Errors
    /// As [`Recovery::run`]; [`Error::Unsupported`] if the log lacks the writes of commits.
    pub fn replay(
        &self,
        home: &HomeBlock,
        loads: &dyn Disk,
        database: u128,
        reader: &mut LogReader,
    ) -> Result<Replayed> {
        let progress = RecoveryProgress::new(self.tell);
        let loaded = load::load(&**self.disk, home, self.segments, self.threads.max(1), &progress)?;
        let disk_tables = Arc::new(self.pages.open(self.disk, home)?);
        let mut redo = Redo::new(self, &Start::newest(home), (loaded, &disk_tables), &progress)?;
        redo.loads_from(loads, database);
        if progress.is_told() {
            progress.begin(Step::Redo, reader.extent().unwrap_or_default().bytes);
        }
        redo.run(reader, Lsn::MAX)?;
        if redo.unlogged > 0 {
            let what = format!(
                "the archived log lacks what {} commits wrote: they ran with logging none; restore to a place before them, or a \
                 later backup",
                redo.unlogged
            );
            return Err(Error::Unsupported { what });
        }
        let (next_id, packets) = (redo.next_id, redo.packets);
        let tables = redo.finish(reader.lsn())?;
        let heaps = tables.iter().map(|table| table.store.heap()).collect();
        Ok(Replayed { next_id, packets, heaps, disk_tables })
    }
}
