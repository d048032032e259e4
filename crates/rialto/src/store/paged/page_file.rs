//! [`PageFile`]: the file with the images of pages.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::file_space::FileAddress;
use super::image;
use super::page_map::{PageId, Saved};
use crate::error::{Error, Result};
use crate::io::{AlignedBuffer, Caching, Clock, Disk, DiskError, DiskResult, File, Open};

/// The file's name.
pub(crate) const PAGE_FILE: &str = "pages";

/// The file grows by this many bytes at a time, or by a sixteenth of its length if that is more.
pub(super) const GROWTH_BYTES: u64 = 4 << 20;

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
    /// Counted, not held under a lock: a call of a simulated disk waits by the clock.
    calls: Mutex<FileCalls>,
    /// The last call has ended.
    is_idle: Condvar,
}

/// The calls of the disk that read or write the file.
#[derive(Debug, Default)]
struct FileCalls {
    in_progress: usize,
    /// Whether the database is closed: another process may have its directory. No call begins any more.
    are_refused: bool,
}

/// A call in progress, until this is dropped.
struct FileCall<'a>(&'a PageFile);

impl Drop for FileCall<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock();
        calls.in_progress -= 1;
        if calls.are_refused && calls.in_progress == 0 {
            self.0.is_idle.notify_all();
        }
    }
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
            calls: Mutex::default(),
            is_idle: Condvar::new(),
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
        let call = self.begin_call()?;
        self.file.read_at(buffer, self.offset(saved.address))?;
        drop(call);
        self.check(page, saved, buffer, damage)
    }

    /// Reads images, side by side. None is checked.
    pub fn read_each<'a>(&self, images: impl Iterator<Item = (Saved, &'a mut AlignedBuffer)>) -> Result<()> {
        let mut reads: Vec<(u64, &mut [u8])> =
            images.map(|(saved, buffer)| (self.offset(saved.address), &mut **buffer)).collect();
        let _call = self.begin_call()?;
        Ok(self.file.read_each(&mut reads)?)
    }

    /// Checks an image that was read, as [`PageFile::read`] does.
    pub fn check(
        &self,
        page: PageId,
        saved: Saved,
        image: &[u8],
        damage: impl Fn(&[u8]) -> Option<String>,
    ) -> Result<()> {
        let damaged = image::check(image, page, saved.stamp, self.seed).err().or_else(|| damage(image));
        match damaged {
            None => Ok(()),
            Some(what) => Err(self.corrupt(saved.address, what)),
        }
    }

    /// The error for an image that is not what it should be.
    pub fn corrupt(&self, address: FileAddress, what: String) -> Error {
        Error::Corrupt { file: PAGE_FILE.to_owned(), offset: self.offset(address), what }
    }

    /// Writes adjacent images, sealed, from this address on. They are durable after [`PageFile::sync`].
    pub fn write(&self, first: FileAddress, images: &[u8]) -> Result<()> {
        self.write_each(&[(first, images)])
    }

    /// Writes sealed images, side by side: each time adjacent ones, from an address on. They are durable after
    /// [`PageFile::sync`].
    pub fn write_each(&self, writes: &[(FileAddress, &[u8])]) -> Result<()> {
        let _call = self.begin_call()?;
        let writes: Vec<(u64, &[u8])> =
            writes.iter().map(|&(first, images)| (self.offset(first), images)).collect();
        let end = writes.iter().map(|(offset, images)| offset + images.len() as u64).max();
        self.make_room(end.unwrap_or(0))?;
        Ok(self.file.write_each(&writes)?)
    }

    fn begin_call(&self) -> Result<FileCall<'_>> {
        let mut calls = self.calls.lock();
        if calls.are_refused {
            return Err(Error::Closed);
        }
        calls.in_progress += 1;
        Ok(FileCall(self))
    }

    /// Returns when nothing reads or writes any more. Waits by this clock.
    pub fn close(&self, clock: &Clock) {
        let mut calls = self.calls.lock();
        calls.are_refused = true;
        while calls.in_progress > 0 {
            clock.wait(&self.is_idle, &mut calls, None);
        }
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::io::{MemoryDisk, Moment, Processor, SimulatedDisk};
    use crate::store::paged::image::Stamp;

    /// A read of the simulated disk gives the only processor to the thread that closes.
    #[test]
    fn a_close_waits_by_the_clock_for_a_read_in_progress() {
        let (tells, ended) = mpsc::channel();
        let run = thread::spawn(move || {
            let (processor, hands) = Processor::new(Duration::ZERO);
            let clock = Clock::from(hands.clone());
            let disk = SimulatedDisk::named("charm", MemoryDisk::new(), clock.clone()).unwrap();
            let file = PageFile::open(&*disk, Open::Create, 4_096, 7).unwrap();
            file.write(FileAddress(0), &AlignedBuffer::zeroed(4_096)).unwrap();
            let read = || {
                let (mut buffer, saved) =
                    (AlignedBuffer::zeroed(4_096), Saved { address: FileAddress(0), stamp: Stamp(0) });
                file.read(PageId(0), saved, &mut buffer, |_| None)
            };
            let (began, read_at, closed_at) = (clock.now(), Mutex::new(None), Mutex::new(None));
            let reads = || {
                assert!(!matches!(read(), Err(Error::Closed)), "it began before the close");
                *read_at.lock() = Some(clock.now());
            };
            let closes = || {
                file.close(&clock);
                *closed_at.lock() = Some(clock.now());
            };
            processor.run(&hands, vec![Box::new(reads), Box::new(closes)], || ());
            let moment = |at: Mutex<Option<Moment>>| at.into_inner().unwrap();
            let (read_at, closed_at) = (moment(read_at), moment(closed_at));
            assert!(began < read_at && read_at <= closed_at, "{began:?} {read_at:?} {closed_at:?}");
            assert!(matches!(read(), Err(Error::Closed)));
            tells.send(()).unwrap();
        });
        // A thread that waits beside the clock for one that waits by it never ends.
        if ended.recv_timeout(Duration::from_secs(60)) != Err(mpsc::RecvTimeoutError::Timeout) {
            return run.join().unwrap();
        }
        panic!("the close hangs");
    }
}
