//! The copy of a load file: read in one database, written in another that follows its log.

use std::io;
use std::sync::Arc;

use super::load_file::{LoadFileReader, load_file_name};
use crate::error::{Error, Result};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};

/// The name of a file that is being received.
const UNFINISHED: &str = "load-unfinished";
/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// The bytes of a load file, from its beginning.
#[derive(Debug)]
pub struct LoadFileBytes {
    file: Arc<dyn File>,
    at: u64,
    length: u64,
}

impl LoadFileBytes {
    pub(crate) fn open(disk: &dyn Disk, number: u64) -> DiskResult<LoadFileBytes> {
        let file = disk.open(&load_file_name(number), Open::ReadOnly, Caching::Buffered)?;
        let length = file.length()?;
        Ok(LoadFileBytes { file, at: 0, length })
    }
}

impl io::Read for LoadFileBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = buffer.len().min((self.length - self.at).min(PIECE as u64) as usize);
        self.file.read_at(&mut buffer[..bytes], self.at).map_err(io::Error::other)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}

/// Whether the load file of this number and digest is there, and whole.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn has_load_file(
    disk: &dyn Disk,
    database_id: u128,
    number: u64,
    digest: Option<u64>,
) -> Result<bool> {
    let found = LoadFileReader::open(disk, database_id, number, digest);
    match found.and_then(|reader| reader.verify()) {
        Ok(()) => Ok(true),
        Err(Error::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes the load file of this number, durably.
///
/// # Errors
/// Those of the disk; [`Error::Io`] with the name `load file` if `from` fails.
pub(crate) fn receive_load_file(disk: &dyn Disk, number: u64, from: &mut dyn io::Read) -> Result<()> {
    let file = disk.open(UNFINISHED, Open::Create, Caching::Buffered)?;
    file.set_length(0)?;
    let (mut piece, mut at) = (AlignedBuffer::zeroed(PIECE), 0);
    loop {
        let bytes = from.read(&mut piece).map_err(|error| Error::Io {
            file: load_file_name(number),
            offset: at,
            operation: "read of the received bytes".to_owned(),
            cause: error.to_string(),
        })?;
        if bytes == 0 {
            break;
        }
        file.write_at(&piece[..bytes], at)?;
        at += bytes as u64;
    }
    file.sync()?;
    disk.rename(UNFINISHED, &load_file_name(number))?;
    Ok(disk.sync_directory()?)
}
