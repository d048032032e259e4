//! The error of a failed disk operation: the file, the offset, the operation and the system's own error.

use std::io;
use std::sync::Arc;

use super::DirectoryHolder;

/// The result of a disk operation.
pub type DiskResult<T> = Result<T, DiskError>;

/// A disk operation that failed.
///
/// Cheap to clone, because an error of the log is sticky (I4) and returned to every transaction that waits.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation} of \"{file}\" at offset {offset} failed: {source}")]
pub struct DiskError {
    /// The file's name in the data directory; `.` is the directory itself.
    pub file: String,
    /// The byte offset; 0 where the operation has none.
    pub offset: u64,
    /// The operation that failed, as a noun: `read`, `write`, `sync`, `open`, …
    pub operation: &'static str,
    /// The operating system's error.
    pub source: Arc<io::Error>,
}

impl DiskError {
    /// An error of `operation` on `file` at `offset`.
    pub fn new(file: &str, offset: u64, operation: &'static str, source: impl Into<io::Error>) -> DiskError {
        DiskError { file: file.to_owned(), offset, operation, source: Arc::new(source.into()) }
    }

    /// Whether the disk, or the user's quota, has no room left.
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether there is no file of this name.
    pub fn is_missing(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// Whether another process (or another handle in this one) holds the directory's lock.
    pub fn is_locked(&self) -> bool {
        self.operation == "lock" && self.kind() == io::ErrorKind::WouldBlock
    }

    /// The process that holds the directory's lock, if it is known.
    pub fn holder(&self) -> Option<&DirectoryHolder> {
        self.source.get_ref()?.downcast_ref()
    }

    /// The kind of the system's error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl From<DiskError> for crate::Error {
    fn from(error: DiskError) -> crate::Error {
        if error.is_full() {
            let operation = error.operation.to_owned();
            return crate::Error::DiskFull { file: error.file, offset: error.offset, operation };
        }
        crate::Error::Io {
            file: error.file,
            offset: error.offset,
            operation: error.operation.to_owned(),
            cause: error.source.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_file_place_operation_and_cause() {
        let error = DiskError::new("log.3", 4096, "write", io::ErrorKind::StorageFull);
        assert!(error.is_full() && !error.is_missing());
        assert_eq!(error.to_string(), "write of \"log.3\" at offset 4096 failed: no storage space");
        let full = "write of \"log.3\" at offset 4096 failed: the disk is full; make room on it";
        assert_eq!(crate::Error::from(error.clone()).to_string(), full);
        assert_eq!(crate::OpenError::from(error).to_string(), full);
        let error = DiskError::new("log.3", 4096, "write", io::ErrorKind::PermissionDenied);
        assert_eq!(crate::Error::from(error.clone()).to_string(), error.to_string());
    }
}
