//! The copy of a load file: read in one database, written in another that follows its log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::load_file::{LoadFileReader, load_file_name};
use crate::error::{Error, Result};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};

/// How the name of a file begins that is being received.
const UNFINISHED: &str = "load-unfinished-";
/// Numbers the receipts of this process.
static RECEIPTS: AtomicU64 = AtomicU64::new(0);
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

/// A load file that was received, under a name of its own: it is removed unless it is taken.
#[derive(Debug)]
pub(crate) struct ReceivedLoad<'d> {
    disk: &'d dyn Disk,
    name: String,
    number: u64,
}

impl ReceivedLoad<'_> {
    /// Writes and checks the bytes of the load file of this number.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that are no load file of this number; those of the disk; [`Error::Io`] if `from`
    /// fails.
    pub fn receive<'d>(
        disk: &'d dyn Disk,
        database_id: u128,
        number: u64,
        from: &mut dyn io::Read,
    ) -> Result<ReceivedLoad<'d>> {
        let nth = RECEIPTS.fetch_add(1, Ordering::Relaxed);
        let received = ReceivedLoad { disk, name: format!("{UNFINISHED}{nth}"), number };
        received.write(from)?;
        let read = LoadFileReader::open_as(disk, &received.name, database_id, number, None);
        match read.and_then(|reader| reader.verify()) {
            Err(Error::Corrupt { offset, what, .. }) => {
                Err(Error::Corrupt { file: format!("{}, as received", load_file_name(number)), offset, what })
            }
            checked => checked.map(|()| received),
        }
    }

    fn write(&self, from: &mut dyn io::Read) -> Result<()> {
        let file = self.disk.open(&self.name, Open::Create, Caching::Buffered)?;
        file.set_length(0)?;
        let (mut piece, mut at) = (AlignedBuffer::zeroed(PIECE), 0);
        loop {
            let bytes = from.read(&mut piece).map_err(|error| Error::Io {
                file: load_file_name(self.number),
                offset: at,
                operation: "read of the received bytes".to_owned(),
                cause: error.to_string(),
            })?;
            if bytes == 0 {
                return Ok(file.sync()?);
            }
            file.write_at(&piece[..bytes], at)?;
            at += bytes as u64;
        }
    }

    /// Gives it the name of its number, durably.
    pub fn take(self) -> Result<()> {
        self.disk.rename(&self.name, &load_file_name(self.number))?;
        Ok(self.disk.sync_directory()?)
    }
}

impl Drop for ReceivedLoad<'_> {
    fn drop(&mut self) {
        // It is missing if it was taken. What is left is removed by the next opening.
        let _ = self.disk.remove(&self.name);
    }
}

/// Removes what interrupted receipts have left.
pub(crate) fn remove_received(disk: &dyn Disk) -> DiskResult<()> {
    let names = disk.list()?;
    names.iter().filter(|name| name.starts_with(UNFINISHED)).try_for_each(|name| disk.remove(name))
}
