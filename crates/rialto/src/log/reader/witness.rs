//! [`Witness`]: a point that a log has to go through. It tells apart the logs of two lives of a database.

use crate::log::block::BlockHeader;
use crate::log::{LogPoint, LogPosition, LogReader, files};
use crate::{Error, Lsn, Result};

/// Names a point that a log has to go through.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    /// The file that names the point.
    pub(crate) name: String,
    pub(crate) point: LogPoint,
}

impl LogReader {
    /// Checks that the log goes through the witness's point, as far as the next block tells.
    pub(super) fn check_goes_through(
        &mut self,
        header: &BlockHeader,
        checksum: u64,
        length: u64,
    ) -> Result<()> {
        let Some(witness) = &self.witness else { return Ok(()) };
        let (point, before) = (witness.point, header.first_lsn - 1);
        let end = if header.position < point.position.0 {
            let (lsn, position) = (before + u64::from(header.packets), header.position + length);
            LogPoint { lsn: Lsn(lsn), position: LogPosition(position), checksum }
        } else {
            // For the first block that is read: what it says of the block before it.
            let position = LogPosition(header.position);
            LogPoint { lsn: Lsn(before), position, checksum: header.previous }
        };
        if end == point {
            self.witness = None;
            return Ok(());
        }
        if end.position < point.position && end.lsn <= point.lsn {
            return Ok(());
        }
        Err(self.another_life(witness, &end))
    }

    /// Checks the end of the log against the witness's point. An archive may end before that point; if another log
    /// lacks places, a check elsewhere reports it.
    pub(super) fn check_ends_behind_the_point(&self) -> Result<()> {
        match &self.witness {
            Some(witness) if self.archive.is_none() && self.unpacker.lsn() >= witness.point.lsn.0 => {
                let (position, checksum) = (LogPosition(self.position), self.checksum.unwrap_or_default());
                Err(self.another_life(witness, &LogPoint { lsn: self.lsn(), position, checksum }))
            }
            _ => Ok(()),
        }
    }

    fn another_life(&self, Witness { name, point }: &Witness, found: &LogPoint) -> Error {
        let file = &self.files[self.at];
        let (log, offset) = (files::name(file.sequence), file.offset(self.position));
        match self.archive {
            None => {
                let what = format!(
                    "expected {point}, as \"{name}\" says, found {found}: they are of two lives of the same database (copies of \
                     one directory), or one is damaged; put the log back that was there with \"{name}\""
                );
                Error::Corrupt { file: log, offset, what }
            }
            Some(_) => {
                let what = format!(
                    "the archive {} is another life's than \"{name}\" (of a copy of the same directory), or damaged: at offset \
                     {offset} of \"{log}\" expected {point}, found {found}; give the archive of the life that \"{name}\" was \
                     taken of",
                    self.disk.describe()
                );
                Error::Unsupported { what }
            }
        }
    }
}
