//! Bare pages: what the device gives to threads that read pages and one that writes pages, without an engine.
//!
//! It has no rows, no index, no log and no locks, and nothing of it could be recovered: it is a bound, not a peer.
//! The threads are those of `rialto bench --limits` ([`BarePages`]). A transaction of bare pages reads and writes as
//! many pages as one of Rialto's did in its first slice ([`Mix`]), at random places of a file as large as the table.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rialto::io::{AlignedBuffer, Caching, Disk, DiskError, DiskResult, File, FileDisk, Open};
use rialto_measure::limits::{BarePages, PageMix, PageSpace, Reader};

use super::change::Sums;
use super::table::{DiskTable, Mix, Updates};
use crate::error::{PeerError, Result};

pub const NAME: &str = "bare";

pub const SETTINGS: &str = "no engine: each client reads random pages of 4 KiB (direct I/O), a thread writes pages at random \
    places, 32 at a time; as many of each for a transaction as Rialto had in its first slice";

const PAGE_BYTES: usize = 4096;
const ROW_BYTES: u64 = 100;
/// One write of the load.
const LOAD_BYTES: usize = 1 << 20;
const NO_PANIC: &str = "no thread panics with it";

/// A file of pages, and the thread that writes.
pub struct Bare {
    file: Arc<dyn File>,
    places: u64,
    pages: Arc<BarePages>,
    mix: Mutex<Mix>,
    writer: JoinHandle<DiskResult<()>>,
}

fn at(during: &'static str) -> impl FnOnce(DiskError) -> PeerError {
    PeerError::engine(NAME, during)
}

/// Writes all of a file: a hole would be read without the device.
fn written(directory: &Path, bytes: u64) -> DiskResult<Arc<dyn File>> {
    let file = FileDisk::open(directory)?.open("pages", Open::Create, Caching::Direct)?;
    let mut buffer = AlignedBuffer::zeroed(LOAD_BYTES);
    // Not zeros, which some devices keep as holes.
    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    for part in 0..bytes / LOAD_BYTES as u64 {
        file.write_at(&buffer, part * LOAD_BYTES as u64)?;
    }
    file.sync()?;
    Ok(file)
}

impl Bare {
    pub fn load(directory: &Path, rows: u32) -> Result<Bare> {
        let bytes = (u64::from(rows) * ROW_BYTES).next_multiple_of(LOAD_BYTES as u64);
        let file = written(directory, bytes).map_err(at("loading"))?;
        let pages = Arc::new(BarePages::new(PageSpace { file: file.clone(), bytes }, PAGE_BYTES));
        let of_writer = pages.clone();
        let writer = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || of_writer.write())
            .map_err(PeerError::engine(NAME, "starting the writer"))?;
        let mix = Mutex::new(Mix::POOL_OF_A_TENTH);
        Ok(Bare { file, places: bytes / PAGE_BYTES as u64, pages, mix, writer })
    }
}

impl DiskTable for Bare {
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Updates + 'a>> {
        let Mix { reads, writes } = *self.mix.lock().expect(NO_PANIC);
        let (file, places) = (self.file.clone(), self.places);
        let mix = PageMix { file, places, page_bytes: PAGE_BYTES, reads, writes };
        Ok(Box::new(Reader::new(&self.pages, mix, seed)))
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn audit(&self) -> Result<Option<Sums>> {
        Ok(None)
    }

    fn set_mix(&self, mix: Mix) {
        *self.mix.lock().expect(NO_PANIC) = mix;
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.pages.end();
        let written = self.writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.map_err(at("writing"))
    }
}

impl Updates for Reader<'_> {
    fn add(&mut self, _key: u32, _amount: i64) -> Result<()> {
        match self.transact().map_err(at("reading"))? {
            true => Ok(()),
            false => Err(PeerError::engine(NAME, "writing")("the thread that writes has ended")),
        }
    }
}
