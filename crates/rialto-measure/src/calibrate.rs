//! [`Calibrator`]: small measurements of the machine itself, taken beside a run, that tell its calm spells from noisy
//! ones.
//!
//! The machines that this runs on change their speed in spells of seconds: another guest takes the disk, a wake-up across
//! cores takes three times as long. So about every 250 ms of a window ([`SLICE`]) three things are measured that no
//! change of ours can make faster or slower: waking a thread and being woken, a 4 KiB write with its sync to a file like
//! the log's, and dependent loads from 64 MiB. Each is taken several times and the least counts, so that the load of the
//! run itself matters little. A slice in which one of them is [`NOISY`] times its lower quartile over the window is
//! *noisy*, any other *calm*.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use rialto::io::{AlignedBuffer, Caching, Disk, File, Open, Random};
use serde_json::{Value as Json, json};

use crate::usage::Usage;

/// How long a slice is, about.
pub const SLICE: Duration = Duration::from_millis(250);
/// From so many times the lower quartile on, a figure is a noisy spell's.
pub const NOISY: f64 = 1.5;

const WAKES: u32 = 8;
const WRITES: u32 = 3;
const WRITE_BYTES: usize = 4096;
const WALKS: u32 = 4;
const LOADS: u32 = 300;
/// Cache lines of the memory that is loaded from: 64 MiB.
const LINES: usize = 1 << 20;
const LINE_WORDS: usize = 8;
const FILE: &str = "calibration";

/// What one calibration found; the least of several tries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Waking a thread and being woken by it, in microseconds.
    pub wake_us: f64,
    /// A 4 KiB write and its sync, in microseconds; `None` if the disk is not a device of this machine.
    pub write_us: Option<f64>,
    /// One of a chain of dependent loads, in nanoseconds.
    pub load_ns: f64,
}

/// A stretch of a window, and the sample at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice {
    /// How long it was.
    pub took: Duration,
    /// Transactions that committed in it.
    pub committed: u64,
    /// What the machine was like.
    pub sample: Sample,
}

/// Takes samples.
#[derive(Debug)]
pub struct Calibrator {
    echo: Echo,
    file: Option<Arc<dyn File>>,
    buffer: AlignedBuffer,
    chain: Chain,
    written_bytes: u64,
}

impl Calibrator {
    /// One that writes to a file of its own on `disk`, if there is one.
    ///
    /// # Errors
    /// If the file cannot be made, or the thread that is woken.
    pub fn new(disk: Option<&dyn Disk>) -> Result<Calibrator, String> {
        let file = disk.map(|disk| preallocated(disk, FILE, WRITE_BYTES as u64)).transpose()?;
        Ok(Calibrator {
            echo: Echo::start().map_err(|error| format!("a thread for calibration: {error}"))?,
            file,
            buffer: AlignedBuffer::zeroed(WRITE_BYTES),
            chain: Chain::new(LINES),
            written_bytes: 0,
        })
    }

    /// Measures the machine now.
    ///
    /// # Errors
    /// A failed write.
    pub fn sample(&mut self) -> Result<Sample, String> {
        let wake_us = least((0..WAKES).map(|_| self.echo.round_trip()));
        let load_ns = least((0..WALKS).map(|_| self.chain.walk(LOADS))) * 1e3 / f64::from(LOADS);
        let mut write_us: Option<f64> = None;
        if let Some(file) = &self.file {
            for _ in 0..WRITES {
                let began = Instant::now();
                file.write_at(&self.buffer, 0)
                    .and_then(|()| file.sync())
                    .map_err(|error| error.to_string())?;
                let us = micros(began.elapsed());
                write_us = Some(write_us.map_or(us, |least| least.min(us)));
                self.written_bytes += WRITE_BYTES as u64;
            }
        }
        Ok(Sample { wake_us, write_us, load_ns })
    }

    /// Context switches of the thread that is woken, so far: they are not the run's.
    pub fn echo_switches(&self) -> Usage {
        Usage {
            voluntary: self.echo.shared.voluntary.load(Ordering::Relaxed),
            involuntary: self.echo.shared.involuntary.load(Ordering::Relaxed),
        }
    }

    /// Bytes written so far: they are not the run's either.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}

/// A file as the log's are: zeroed to its length, written past the page cache.
pub fn preallocated(disk: &dyn Disk, name: &str, bytes: u64) -> Result<Arc<dyn File>, String> {
    let make = || {
        let file = disk.open(name, Open::Create, Caching::Direct)?;
        let zeros = AlignedBuffer::zeroed((1 << 20).min(bytes as usize));
        let mut at = 0;
        while at < bytes {
            file.write_at(&zeros, at)?;
            at += zeros.len() as u64;
        }
        file.sync()?;
        Ok(file)
    };
    make().map_err(|error: rialto::io::DiskError| error.to_string())
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn least(times: impl Iterator<Item = Duration>) -> f64 {
    times.map(micros).fold(f64::INFINITY, f64::min)
}

const QUIET: u32 = 0;
const CALLED: u32 = 1;
const OVER: u32 = 2;

#[derive(Debug, Default)]
struct EchoShared {
    word: AtomicU32,
    voluntary: AtomicU64,
    involuntary: AtomicU64,
}

/// A thread that, when woken, wakes the thread that woke it.
#[derive(Debug)]
struct Echo {
    shared: Arc<EchoShared>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start() -> std::io::Result<Echo> {
        let shared = Arc::new(EchoShared::default());
        let (theirs, caller) = (shared.clone(), std::thread::current());
        let run = move || Echo::answer(&theirs, &caller);
        let thread = std::thread::Builder::new().name("calibration".to_owned()).spawn(run)?;
        Ok(Echo { shared, thread: Some(thread) })
    }

    fn answer(shared: &EchoShared, caller: &Thread) {
        loop {
            match shared.word.load(Ordering::Acquire) {
                QUIET => std::thread::park(),
                CALLED => {
                    if let Some(usage) = Usage::of_thread() {
                        shared.voluntary.store(usage.voluntary, Ordering::Relaxed);
                        shared.involuntary.store(usage.involuntary, Ordering::Relaxed);
                    }
                    // Not over a word that says that all is over.
                    let _ = shared.word.compare_exchange(CALLED, QUIET, Ordering::Release, Ordering::Relaxed);
                    caller.unpark();
                }
                _ => return,
            }
        }
    }

    /// Called only by the thread that started it.
    fn round_trip(&self) -> Duration {
        let echo = self.thread.as_ref().expect("it runs until dropped").thread();
        let began = Instant::now();
        self.shared.word.store(CALLED, Ordering::Release);
        echo.unpark();
        while self.shared.word.load(Ordering::Acquire) == CALLED {
            // Not for ever: a thread that panicked never answers.
            std::thread::park_timeout(Duration::from_secs(1));
        }
        began.elapsed()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.shared.word.store(OVER, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// Memory in which each cache line says which is next: one cycle through all of them.
#[derive(Debug)]
struct Chain {
    next: Vec<usize>,
    at: usize,
}

impl Chain {
    fn new(lines: usize) -> Chain {
        let mut order: Vec<usize> = (0..lines).collect();
        let mut random = Random::new(1);
        // Sattolo's shuffle: what comes out is one cycle.
        for last in (1..lines).rev() {
            order.swap(last, random.below(last as u64) as usize);
        }
        let mut next = vec![0; lines * LINE_WORDS];
        for (line, to) in order.into_iter().enumerate() {
            next[line * LINE_WORDS] = to * LINE_WORDS;
        }
        Chain { next, at: 0 }
    }

    fn walk(&mut self, loads: u32) -> Duration {
        let began = Instant::now();
        for _ in 0..loads {
            self.at = self.next[self.at];
        }
        std::hint::black_box(self.at);
        began.elapsed()
    }
}

/// A window's slices, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Spells {
    slices: Vec<(Slice, bool)>,
}

impl Spells {
    /// Tells calm slices from noisy ones.
    pub fn judge(slices: &[Slice]) -> Spells {
        let limit = |figure: fn(&Sample) -> Option<f64>| {
            let figures = slices.iter().filter_map(|slice| figure(&slice.sample));
            quantile(figures, 0.25).map(|quartile| quartile * NOISY)
        };
        let figures: [fn(&Sample) -> Option<f64>; 3] =
            [|sample| Some(sample.wake_us), |sample| sample.write_us, |sample| Some(sample.load_ns)];
        let limits = figures.map(limit);
        let is_noisy = |slice: &Slice| {
            figures.iter().zip(limits).any(|(figure, limit)| {
                figure(&slice.sample).zip(limit).is_some_and(|(figure, limit)| figure > limit)
            })
        };
        Spells { slices: slices.iter().map(|slice| (*slice, is_noisy(slice))).collect() }
    }

    /// How many slices there were, and how many of them were noisy.
    pub fn counts(&self) -> (usize, usize) {
        (self.slices.len(), self.slices.iter().filter(|(_, noisy)| *noisy).count())
    }

    fn of(&self, noisy: bool) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |(_, is)| *is == noisy).map(|(slice, _)| slice)
    }

    /// Transactions a second in the calm slices, or in the noisy ones.
    pub fn committed_per_s(&self, noisy: bool) -> Option<f64> {
        let seconds: f64 = self.of(noisy).map(|slice| slice.took.as_secs_f64()).sum();
        let committed: u64 = self.of(noisy).map(|slice| slice.committed).sum();
        (seconds > 0.0).then(|| committed as f64 / seconds)
    }

    /// The median of a figure in the calm slices, or in the noisy ones.
    pub fn median(&self, noisy: bool, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        quantile(self.of(noisy).filter_map(|slice| figure(&slice.sample)), 0.5)
    }

    /// Each slice, in their order: its spell, what it committed, and what the machine was like.
    pub fn slices_json(&self) -> Json {
        let one = |(slice, is_noisy): &(Slice, bool)| {
            let Slice { took, committed, sample } = slice;
            let seconds = took.as_secs_f64();
            json!({
                "spell": if *is_noisy { "noisy" } else { "calm" },
                "seconds": seconds,
                "committed_per_s": (seconds > 0.0).then(|| *committed as f64 / seconds),
                "wake_us": sample.wake_us,
                "write_us": sample.write_us,
                "load_ns": sample.load_ns,
            })
        };
        Json::Array(self.slices.iter().map(one).collect())
    }

    /// For the result.
    pub fn json(&self) -> Json {
        let (slices, noisy) = self.counts();
        let both =
            |figure: &dyn Fn(bool) -> Option<f64>| json!({ "calm": figure(false), "noisy": figure(true) });
        let median = |figure: fn(&Sample) -> Option<f64>| both(&|noisy| self.median(noisy, figure));
        json!({
            "slices": slices as u64,
            "noisy": noisy as u64,
            "committed_per_s": both(&|noisy| self.committed_per_s(noisy)),
            "wake_us": median(|sample| Some(sample.wake_us)),
            "write_us": median(|sample| sample.write_us),
            "load_ns": median(|sample| Some(sample.load_ns)),
        })
    }
}

/// The figure that a share of all are at or below; of two in the middle, the lower.
pub fn quantile(figures: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let last = figures.len().checked_sub(1)?;
    figures.get((last as f64 * share).floor() as usize).copied()
}

#[cfg(test)]
mod tests {
    use rialto::io::MemoryDisk;

    use super::*;

    fn slice(committed: u64, wake_us: f64, write_us: Option<f64>, load_ns: f64) -> Slice {
        Slice { took: SLICE, committed, sample: Sample { wake_us, write_us, load_ns } }
    }

    #[test]
    fn a_slice_is_noisy_if_one_of_its_figures_is() {
        let calm = slice(100, 5.0, Some(30.0), 100.0);
        let noisy = [
            slice(50, 13.0, Some(30.0), 100.0),
            slice(30, 5.0, Some(90.0), 100.0),
            slice(10, 5.0, Some(30.0), 170.0),
        ];
        let spells = Spells::judge(&[calm, calm, calm, noisy[0], noisy[1], calm, noisy[2]]);
        assert_eq!(spells.counts(), (7, 3));
        assert_eq!((spells.committed_per_s(false), spells.committed_per_s(true)), (Some(400.0), Some(120.0)));
        assert_eq!(spells.median(true, |sample| sample.write_us), Some(30.0));
        let json = spells.json();
        assert_eq!(json.pointer("/wake_us/calm").and_then(Json::as_f64), Some(5.0));
        let Json::Array(slices) = spells.slices_json() else { panic!("slices are a list") };
        let tags: Vec<_> = slices.iter().map(|slice| slice.get("spell").cloned()).collect();
        let tag = |text: &str| Some(Json::from(text));
        let (calm, noisy) = (|| tag("calm"), || tag("noisy"));
        assert_eq!(tags, [calm(), calm(), calm(), noisy(), noisy(), calm(), noisy()]);
        assert_eq!(slices[4].get("committed_per_s").and_then(Json::as_f64), Some(120.0));
        assert_eq!(slices[4].get("write_us").and_then(Json::as_f64), Some(90.0));
        // A little more is not another spell, and without a device there is no write.
        let even = Spells::judge(&[slice(1, 5.0, None, 100.0), slice(1, 7.0, None, 140.0)]);
        assert_eq!((even.counts().1, even.median(false, |sample| sample.write_us)), (0, None));
        assert_eq!(even.committed_per_s(true), None);
    }

    #[test]
    fn a_chain_is_one_cycle_through_all_lines() {
        let mut chain = Chain::new(1_000);
        for load in 1..=1_000 {
            chain.walk(1);
            assert_eq!(chain.at == 0, load == 1_000);
        }
    }

    #[test]
    fn samples_are_taken_and_what_they_cost_is_known() {
        let disk = MemoryDisk::new();
        let mut calibrator = Calibrator::new(Some(&*disk)).unwrap();
        for _ in 0..3 {
            let sample = calibrator.sample().unwrap();
            assert!(
                sample.wake_us > 0.0 && sample.load_ns > 0.0 && sample.write_us.unwrap() > 0.0,
                "{sample:?}"
            );
        }
        assert_eq!(calibrator.written_bytes(), 3 * 3 * 4096);
        assert!(calibrator.echo_switches().voluntary > 0);
        assert_eq!(Calibrator::new(None).unwrap().sample().unwrap().write_us, None);
    }
}
