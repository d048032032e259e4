//! [`FellBack`]: a damaged newest backup copy, and the older one that stands in for it.
//!
//! The older copy and the log from its redo start make the newest copy's state, if that log has all that the newest copy has. It
//! has not if the newest checkpoint is that of a close with logging none: what the transactions before the close wrote is in its
//! copy alone. So a checkpoint says in its home block whether the log has all of it ([`HomeBlock::logged`]).
//!
//! A block of a program that did not know this flag says nothing. A close with logging none is the only checkpoint of its
//! opening, so the packet before its redo start has only a place ([`PacketKind::Unlogged`](crate::log::PacketKind)). The older
//! checkpoint does not stand in for one whose block does not say that it is logged if that packet is unlogged. (Before a block
//! without the flag that can be a false alarm: the writes may have been lost before the checkpoint, if that was the first thing
//! that was done after the loss.)
//!
//! All other unlogged packets before the newest redo start are of processes that did not close the database: no copy has their
//! writes. The opening after the loss has told of it, so one that falls back does not tell again.

use std::fmt;

use crate::checkpoint::home::{HOME_FILE, HomeBlock};
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::log::Witness;
use crate::store::memory::image::backup_name;

/// A recovery from the older checkpoint, because the backup copy of the newest is damaged. As text: what a user is warned
/// of.
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
    /// The file of its copy; none if it is that of a new database, which has all in its log.
    pub older_file: Option<String>,
    /// Where redo began.
    pub redo_start: Lsn,
    /// How many packets more were redone than from the newest copy.
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

/// What is wrong with the copy that the block names, if that is what the error is about: its place, and the text.
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
    /// From the newest checkpoint.
    pub fn newest(home: &HomeBlock) -> Start {
        Start { home: *home, instead_of: None }
    }

    /// From an older one, in place of the newest.
    pub fn older(home: &HomeBlock, newest: &HomeBlock) -> Start {
        Start { home: *home, instead_of: Some(*newest) }
    }

    /// How far the log has to reach. The newest block proves how far it was durable, whatever became of its copy (I4).
    pub fn clearance(&self) -> Lsn {
        self.instead_of.map_or(self.home.clearance, |newest| newest.clearance.max(self.home.clearance))
    }

    /// Through which point the log goes: the newest block's, which is behind the older one's, if that says so.
    pub fn witness(&self) -> Option<Witness> {
        let point = self.instead_of.and_then(|newest| newest.point).or(self.home.point)?;
        Some(Witness { name: HOME_FILE.to_owned(), point })
    }

    /// Whether an opening from the newest checkpoint would find that the writes of the packet at this place, which has none, are
    /// lost.
    pub fn tells_of_loss(&self, lsn: Lsn) -> bool {
        self.instead_of.is_none_or(|newest| lsn >= newest.redo_start)
    }

    /// Refuses a packet without the writes of its transaction, if those are in the damaged copy.
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

/// Recovers with `run` from the newest checkpoint; if its backup copy is damaged, from the older one, as long as that is in
/// force. `run` begins anew each time. An opening, `check` and `inspect` all recover so.
///
/// # Errors
/// What `run` gives; if both copies are damaged, one that names both; if the older one is refused, one that says why it was
/// fallen back to.
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
