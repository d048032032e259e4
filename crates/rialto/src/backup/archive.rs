//! [`Archive`]: where log files are copied before they are freed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::io::{Disk, DiskResult, FileDisk};

/// A place for the log of databases. It has a directory for each database, named by the database's identity. The log
/// files there have the names and the form that they had in the data directory.
#[derive(Clone)]
pub struct Archive(ArchivePlace);

#[derive(Clone)]
enum ArchivePlace {
    Directory(PathBuf),
    Disk(Arc<dyn Disk>),
}

impl Archive {
    /// In a directory, which is created if it is missing.
    pub fn directory(path: impl AsRef<Path>) -> Archive {
        Archive(ArchivePlace::Directory(path.as_ref().to_owned()))
    }

    /// On a disk, for the log of one database.
    pub fn on(disk: Arc<dyn Disk>) -> Archive {
        Archive(ArchivePlace::Disk(disk))
    }

    /// The directory of a database, created if it is missing.
    pub(crate) fn make(&self, database: u128) -> DiskResult<Arc<dyn Disk>> {
        match &self.0 {
            ArchivePlace::Directory(path) => Ok(FileDisk::create(path.join(name_of(database)))?),
            ArchivePlace::Disk(disk) => Ok(disk.clone()),
        }
    }

    /// The directory of a database, if there is one.
    pub(super) fn find(&self, database: u128) -> DiskResult<Option<Arc<dyn Disk>>> {
        match &self.0 {
            ArchivePlace::Directory(path) => match FileDisk::open(path.join(name_of(database))) {
                Err(error) if error.is_missing() => Ok(None),
                disk => Ok(Some(disk?)),
            },
            ArchivePlace::Disk(disk) => Ok(Some(disk.clone())),
        }
    }
}

fn name_of(database: u128) -> String {
    format!("{database:032x}")
}

impl fmt::Display for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ArchivePlace::Directory(path) => write!(f, "{}", path.display()),
            ArchivePlace::Disk(disk) => write!(f, "{}", disk.describe()),
        }
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Archive({self})")
    }
}
