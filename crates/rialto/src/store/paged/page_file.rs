//! [`PageFile`]: the file with the images of pages.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::file_space::FileAddress;
use super::image;
use super::page_map::{PageId, Saved};
use crate::error::{Error, Result};
use crate::io::{AlignedBuffer, Caching, Disk, DiskError, DiskResult, File, Open};

/// The file's name.
pub(crate) const PAGE_FILE: &str = "pages";

/// The file grows by this many bytes at a time, or by a sixteenth of its length if that is more.
const GROWTH_BYTES: u64 = 4 << 20;

/// The page file: any number of threads read and write in it.
pub(super) struct PageFile {
    file: Arc<dyn File>,
    page_bytes: usize,
    /// Of the images' checksums.
    seed: u64,
    /// The length for which there is room on the disk, in bytes.
    length: Mutex<u64>,
    /// Why a sync has failed. What was written before it may be lost, even if a later sync succeeds; so none does.
    sync_failure: Mutex<Option<DiskError>>,
    /// Whether the database is closed: another process may have its directory. Held by what reads or writes.
    is_closed: RwLock<bool>,
}

impl PageFile {
    /// Opens the file. If it is created, its name is durable after the next sync of the directory.
    pub fn open(disk: &dyn Disk, how: Open, page_bytes: usize, seed: u64) -> DiskResult<PageFile> {
        let file = disk.open(PAGE_FILE, how, Caching::Direct)?;
        let length = Mutex::new(file.length()?);
        Ok(PageFile {
            file,
            page_bytes,
            seed,
            length,
            sync_failure: Mutex::default(),
            is_closed: RwLock::new(false),
        })
    }

    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn offset(&self, address: FileAddress) -> u64 {
        u64::from(address.0) * self.page_bytes as u64
    }

    /// Reads a page's image, and checks it; `damage` says what is wrong with a page whose checksum is right.
    pub fn read(
        &self,
        page: PageId,
        saved: Saved,
        buffer: &mut AlignedBuffer,
        damage: impl Fn(&[u8]) -> Option<String>,
    ) -> Result<()> {
        let offset = self.offset(saved.address);
        let closed = self.is_closed.read();
        if *closed {
            return Err(Error::Closed);
        }
        self.file.read_at(buffer, offset)?;
        drop(closed);
        let damaged = image::check(buffer, page, saved.stamp, self.seed).err().or_else(|| damage(buffer));
        match damaged {
            None => Ok(()),
            Some(what) => Err(self.corrupt(saved.address, what)),
        }
    }

    /// The error for an image that is not what it should be.
    pub fn corrupt(&self, address: FileAddress, what: String) -> Error {
        Error::Corrupt { file: PAGE_FILE.to_owned(), offset: self.offset(address), what }
    }

    /// Writes sealed images, side by side: each time adjacent ones, from an address on. They are durable after
    /// [`PageFile::sync`].
    pub fn write_each(&self, writes: &[(FileAddress, &[u8])]) -> Result<()> {
        let closed = self.is_closed.read();
        if *closed {
            return Err(Error::Closed);
        }
        let writes: Vec<(u64, &[u8])> =
            writes.iter().map(|&(first, images)| (self.offset(first), images)).collect();
        let end = writes.iter().map(|(offset, images)| offset + images.len() as u64).max();
        self.make_room(end.unwrap_or(0))?;
        Ok(self.file.write_each(&writes)?)
    }

    /// Returns when nothing reads or writes any more.
    pub fn close(&self) {
        *self.is_closed.write() = true;
    }

    /// Makes the file at least so long. A full disk shows here, and not in a write.
    fn make_room(&self, bytes: u64) -> DiskResult<()> {
        let mut length = self.length.lock();
        if *length >= bytes {
            return Ok(());
        }
        let much = (*length + GROWTH_BYTES.max(*length / 16)).max(bytes);
        let much = much.next_multiple_of(self.page_bytes as u64);
        // On a disk that is nearly full the file grows by what is needed.
        *length = match self.file.allocate(much) {
            Ok(()) => much,
            Err(error) if error.is_full() && much > bytes => {
                self.file.allocate(bytes)?;
                bytes
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Gives the end of the file back to the disk, if that is more than it soon grows by: no address from `end` on is in use,
    /// nor will one be before this returns.
    pub fn cut_to(&self, end: u32) -> DiskResult<()> {
        let mut length = self.length.lock();
        let bytes = self.offset(FileAddress(end));
        if *length > bytes + 2 * GROWTH_BYTES.max(bytes / 16) {
            self.file.set_length(bytes)?;
            *length = bytes;
        }
        Ok(())
    }

    /// Makes everything written durable. After a failure it fails until the database is opened again.
    pub fn sync(&self) -> DiskResult<()> {
        let mut failure = self.sync_failure.lock();
        if let Some(failure) = &*failure {
            return Err(failure.clone());
        }
        self.file.sync().inspect_err(|error| *failure = Some(error.clone()))
    }

    /// The file's length, in bytes.
    pub fn length(&self) -> u64 {
        *self.length.lock()
    }
}
