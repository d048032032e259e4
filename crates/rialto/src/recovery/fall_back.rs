//! [`FellBack`]: a damaged newest backup copy, and the older one that stands in for it.
//!
//! The older copy and the log from its redo start make the newest copy's state, if that log has everything that the
//! newest copy has. It does not if the newest checkpoint is that of a close with logging none: only its copy has the
//! writes of the transactions before the close. So a checkpoint's home block says whether the log has everything that
//! its copy has ([`HomeBlock::logged`]).
//!
//! A block of a program that did not know this flag does not say so. A close with logging none makes the only
//! checkpoint of its opening, so the packet before its redo start is unlogged: it has only a place
//! ([`PacketKind::Unlogged`](crate::log::PacketKind)). Therefore the older checkpoint does not stand in for a newest
//! one whose block does not say that it is logged if that packet is unlogged. (Before a block without the flag this can
//! be a false alarm: the writes may have been lost before the checkpoint, if that was the first action after the loss.)
//!
//! All other unlogged packets before the newest redo start are of processes that did not close the database: no copy
//! has their writes. The opening after the loss has reported it, so an opening that falls back does not report it
//! again.

use std::fmt;

use crate::checkpoint::home::{HOME_FILE, HomeBlock};
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::log::Witness;
use crate::store::memory::image::backup_name;

/// A recovery from the older checkpoint, because the backup copy of the newest is damaged. Its text is a warning for
/// the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FellBack {
    /// The checkpoint whose copy is damaged.
    pub newest: u64,
    /// The damaged file.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What was expected and found there.
    pub what: String,
    /// The checkpoint that was recovered from.
    pub older: u64,
    /// The file of its copy; `None` if it is the checkpoint of a new database, all of which is in the log.
    pub older_file: Option<String>,
    /// Where redo began.
    pub redo_start: Lsn,
    /// How many more packets were redone than from the newest copy.
    pub longer_by: u64,
}

impl fmt::Display for FellBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FellBack { newest, file, offset, what, older, older_file, redo_start, longer_by } = self;
        write!(f, "\"{file}\" of checkpoint {newest} is damaged at offset {offset}: {what}; ")?;
        match older_file {
            Some(older_file) => write!(f, "recovered from checkpoint {older} in \"{older_file}\" instead")?,
            None => write!(f, "recovered from the log alone instead")?,
        }
        write!(
            f,
            ", with redo from place {redo_start} on, {longer_by} packets longer; the next checkpoint writes the damaged \
             copy anew"
        )
    }
}

/// The offset and the text of the damage, if the error is about the copy that the block names.
fn damage_of_copy(error: &Error, block: &HomeBlock) -> Option<(u64, String)> {
    let name = backup_name(block.copy?);
    match error {
        Error::Corrupt { file, offset, what } if *file == name => Some((*offset, what.clone())),
        Error::Io { file, offset, operation, cause } if *file == name => {
            Some((*offset, format!("{operation} failed: {cause}")))
        }
        _ => None,
    }
}

/// Where a recovery begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// The checkpoint.
    pub home: HomeBlock,
    /// The newest checkpoint, whose damaged copy this one stands in for.
    pub instead_of: Option<HomeBlock>,
}

impl Start {
    /// A start from the newest checkpoint.
    pub fn newest(home: &HomeBlock) -> Start {
        Start { home: *home, instead_of: None }
    }

    /// A start from an older checkpoint, in place of the newest.
    pub fn older(home: &HomeBlock, newest: &HomeBlock) -> Start {
        Start { home: *home, instead_of: Some(*newest) }
    }

    /// How far the log has to reach. The newest block proves how far it was durable, whatever happened to its copy
    /// (I4).
    pub fn clearance(&self) -> Lsn {
        self.instead_of.map_or(self.home.clearance, |newest| newest.clearance.max(self.home.clearance))
    }

    /// The point that the log goes through: the newest block's, which lies after the older one's, if that block names
    /// one.
    pub fn witness(&self) -> Option<Witness> {
        let point = self.instead_of.and_then(|newest| newest.point).or(self.home.point)?;
        Some(Witness { name: HOME_FILE.to_owned(), point })
    }

    /// Whether an opening from the newest checkpoint would report that the writes of the unlogged packet at this place
    /// are lost.
    pub fn tells_of_loss(&self, lsn: Lsn) -> bool {
        self.instead_of.is_none_or(|newest| lsn >= newest.redo_start)
    }

    /// Refuses an unlogged packet whose writes are in the damaged copy.
    pub fn check_unlogged(&self, lsn: Lsn) -> Result<()> {
        match self.instead_of {
            Some(newest) if !newest.logged && newest.redo_start == lsn.next() => {
                let what = "the commits before the newest checkpoint ran with logging none: what they wrote is in the damaged \
                            copy alone";
                Err(Error::Corrupt {
                    file: format!("the log, place {lsn}"),
                    offset: 0,
                    what: what.to_owned(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// Recovers with `run` from the newest checkpoint; if its backup copy is damaged, from the older one, as long as that
/// is in force. `run` begins anew each time. An opening, `check` and `inspect` all recover in this way.
///
/// # Errors
/// The error of `run`. If both copies are damaged, the error names both; if the older one is refused, the error says
/// why recovery fell back to it.
pub(crate) fn recover_either<T>(
    newest: &HomeBlock,
    older: Option<&HomeBlock>,
    mut run: impl FnMut(&Start) -> Result<T>,
) -> Result<(T, Option<FellBack>)> {
    let error = match run(&Start::newest(newest)) {
        Ok(done) => return Ok((done, None)),
        Err(error) => error,
    };
    let Some((offset, what)) = damage_of_copy(&error, newest) else { return Err(error) };
    let file = newest.copy.map(backup_name).unwrap_or_default();
    let neither = |why: String| {
        let what = format!("{what}; the older checkpoint cannot stand in for it: {why}");
        Err(Error::Corrupt { file: file.clone(), offset, what })
    };
    let Some(older) = older else {
        return neither("a later one may have begun to overwrite its copy, or there is none".to_owned());
    };
    match run(&Start::older(older, newest)) {
        Ok(done) => {
            let fell_back = FellBack {
                newest: newest.sequence,
                file,
                offset,
                what,
                older: older.sequence,
                older_file: older.copy.map(backup_name),
                redo_start: older.redo_start,
                longer_by: newest.redo_start.0.saturating_sub(older.redo_start.0),
            };
            Ok((done, Some(fell_back)))
        }
        Err(error @ Error::MemoryLimit { .. }) => Err(error),
        Err(Error::Unsupported { what: reason }) => {
            let what = format!(
                "falling back to checkpoint {}, since \"{file}\" of checkpoint {} is damaged at offset {offset} ({what}): \
                 {reason}",
                older.sequence, newest.sequence
            );
            Err(Error::Unsupported { what })
        }
        Err(error) => neither(error.to_string()),
    }
}
