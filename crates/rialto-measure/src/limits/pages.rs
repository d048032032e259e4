//! Bare pages: threads that read pages at random, as many as the run's transactions read, and a thread that writes as many
//! as these wrote.
//!
//! A reader waits only for its own read, and for the writer if that falls far behind, as transactions wait for a frame.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rialto::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open, Random};

use super::{Beside, FILE, FILE_BYTES, Reached, reached};
use crate::calibrate::preallocated;
use crate::histogram::Latencies;

/// The writer writes so many pages at a time.
const TOGETHER: usize = 32;
/// Readers wait while so many pages are to be written.
const TO_WRITE_MAX: usize = 256;
/// More readers say no more about a device.
const READERS_MAX: u32 = 256;

/// The pages that a run's transactions read and wrote.
#[derive(Clone)]
pub struct PageMix {
    /// The page file. It is only read here.
    pub file: Arc<dyn File>,
    /// So many of its places, from the first on, have been written.
    pub places: u64,
    /// A page's bytes.
    pub page_bytes: usize,
    /// Pages that a transaction read, on the average.
    pub reads: f64,
    /// Pages that were written for a transaction, on the average.
    pub writes: f64,
}

/// Where the writer writes.
#[derive(Clone)]
pub struct PageSpace {
    /// A file that has been written to its length.
    pub file: Arc<dyn File>,
    /// Its bytes: at least 32 pages.
    pub bytes: u64,
}

/// Pages that any number of threads read, each by a [`Reader`] of its own, and that one thread writes
/// ([`BarePages::write`]).
pub struct BarePages {
    space: PageSpace,
    page_bytes: usize,
    state: Mutex<State>,
    /// There is something to write.
    work: Condvar,
    /// There is room for more.
    room: Condvar,
}

#[derive(Default)]
struct State {
    to_write: usize,
    is_over: bool,
}

const NO_PANIC: &str = "no thread panics with it";

impl BarePages {
    /// Pages of so many bytes that are written into a space.
    pub fn new(space: PageSpace, page_bytes: usize) -> BarePages {
        let (state, work, room) = (Mutex::default(), Condvar::new(), Condvar::new());
        BarePages { space, page_bytes, state, work, room }
    }

    /// Hands pages to the writer. False: the run is over.
    fn hand_over(&self, pages: usize) -> bool {
        let mut state = self.state.lock().expect(NO_PANIC);
        let before = state.to_write;
        state.to_write += pages;
        if before < TOGETHER && state.to_write >= TOGETHER {
            self.work.notify_one();
        }
        while state.to_write >= TO_WRITE_MAX && !state.is_over {
            state = self.room.wait(state).expect(NO_PANIC);
        }
        !state.is_over
    }

    fn is_over(&self) -> bool {
        self.state.lock().expect(NO_PANIC).is_over
    }

    /// Ends the run: the writer returns, and readers do nothing any more.
    pub fn end(&self) {
        self.state.lock().expect(NO_PANIC).is_over = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Writes what is handed over, at random places of the space, until the run is over. However it returns, the run is over.
    ///
    /// # Errors
    /// A failed write.
    pub fn write(&self) -> DiskResult<()> {
        let _over = EndOnDrop(self);
        let (file, page_bytes) = (&self.space.file, self.page_bytes);
        let mut buffer = AlignedBuffer::zeroed(TOGETHER * page_bytes);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        // As many parts as pages are written together, so that no two of these are at one place.
        let places = self.space.bytes / page_bytes as u64 / TOGETHER as u64;
        let mut random = Random::new(1);
        loop {
            {
                let mut state = self.state.lock().expect(NO_PANIC);
                while state.to_write < TOGETHER && !state.is_over {
                    state = self.work.wait(state).expect(NO_PANIC);
                }
                if state.is_over {
                    return Ok(());
                }
            }
            let writes: Vec<(u64, &[u8])> = (0..)
                .zip(buffer.chunks_exact(page_bytes))
                .map(|(part, page)| ((part * places + random.below(places)) * page_bytes as u64, page))
                .collect();
            file.write_each(&writes)?;
            self.state.lock().expect(NO_PANIC).to_write -= TOGETHER;
            self.room.notify_all();
        }
    }
}

/// One thread that does what transactions do with pages.
pub struct Reader<'a> {
    pages: &'a BarePages,
    mix: PageMix,
    buffer: AlignedBuffer,
    random: Random,
    to_read: f64,
    to_write: f64,
}

impl<'a> Reader<'a> {
    /// A reader of these pages; another seed reads other ones.
    pub fn new(pages: &'a BarePages, mix: PageMix, seed: u64) -> Reader<'a> {
        let (buffer, random) = (AlignedBuffer::zeroed(mix.page_bytes), Random::new(seed));
        Reader { pages, mix, buffer, random, to_read: 0.0, to_write: 0.0 }
    }

    /// Reads the pages of one transaction, and hands over those that it writes. False: the run is over.
    ///
    /// # Errors
    /// A failed read.
    pub fn transact(&mut self) -> DiskResult<bool> {
        let mix = &self.mix;
        self.to_read += mix.reads;
        while self.to_read >= 1.0 {
            self.to_read -= 1.0;
            mix.file.read_at(&mut self.buffer, self.random.below(mix.places) * mix.page_bytes as u64)?;
        }
        self.to_write += mix.writes;
        let whole = self.to_write as usize;
        self.to_write -= whole as f64;
        Ok(whole == 0 || self.pages.hand_over(whole))
    }

    /// Does what transactions do, until the run is over.
    fn run(&mut self) -> DiskResult<Latencies> {
        let mut latencies = Latencies::default();
        while !self.pages.is_over() {
            let began = Instant::now();
            if !self.transact()? {
                break;
            }
            latencies.record(began.elapsed());
        }
        Ok(latencies)
    }
}

/// Ends the run, whatever ends its thread.
struct EndOnDrop<'a>(&'a BarePages);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

pub(super) fn run(disk: &dyn Disk, mix: &PageMix, beside: &Beside) -> Result<Reached, String> {
    let text = |error: rialto::io::DiskError| error.to_string();
    preallocated(disk, FILE, FILE_BYTES)?;
    let file = disk.open(FILE, Open::Existing, Caching::Direct).map_err(text)?;
    let readers = beside.clients.saturating_mul(beside.in_flight).min(READERS_MAX);
    let pages = BarePages::new(PageSpace { file, bytes: FILE_BYTES }, mix.page_bytes);
    let outcome: DiskResult<(Latencies, Duration)> = std::thread::scope(|scope| {
        let over = EndOnDrop(&pages);
        // After a failed write no reader may wait on.
        let writer = scope.spawn(|| pages.write());
        let read = |seed| {
            let (pages, mix) = (&pages, mix.clone());
            scope.spawn(move || {
                let end = EndOnDrop(pages);
                let latencies = Reader::new(pages, mix, seed).run()?;
                std::mem::forget(end);
                Ok(latencies)
            })
        };
        let readers: Vec<_> = (0..u64::from(readers)).map(read).collect();
        let began = Instant::now();
        while began.elapsed() < beside.time && !pages.is_over() {
            std::thread::sleep(Duration::from_millis(5).min(beside.time));
        }
        let time = began.elapsed();
        drop(over);
        let mut all = Latencies::default();
        for reader in readers {
            all.merge(&reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((all, time))
    });
    outcome.map(|(latencies, time)| reached(&latencies, time)).map_err(text)
}
