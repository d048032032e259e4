//! [`FellBack`]: a damaged newest backup copy, and the older one that stands in for it.

use std::fmt;

use crate::checkpoint::home::{HomeBlock, HomeFile};
use crate::checkpoint::image::backup_name;
use crate::error::{Error, Result};
use crate::ids::Lsn;

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

/// Recovers with `run` what the home file says; if the backup copy of the newest checkpoint is damaged, from the older one,
/// as long as that is in force. `run` begins anew each time.
///
/// # Errors
/// What `run` gives; if both copies are damaged, one that names both.
pub(crate) fn recover_either<T>(
    home: &mut HomeFile,
    mut run: impl FnMut(&HomeBlock) -> Result<T>,
) -> Result<(T, Option<FellBack>)> {
    let newest = *home.block();
    let error = match run(&newest) {
        Ok(done) => return Ok((done, None)),
        Err(error) => error,
    };
    let Some((offset, what)) = damage_of_copy(&error, &newest) else { return Err(error) };
    let file = newest.copy.map(backup_name).unwrap_or_default();
    let neither = |why: String| {
        let what = format!("{what}; the older checkpoint cannot stand in for it: {why}");
        Err(Error::Corrupt { file: file.clone(), offset, what })
    };
    if !home.fall_back() {
        return neither("a later one may have begun to overwrite its copy, or there is none".to_owned());
    }
    let older = *home.block();
    match run(&older) {
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
        Err(error @ (Error::MemoryLimit { .. } | Error::Unsupported { .. })) => Err(error),
        Err(error) => neither(error.to_string()),
    }
}
