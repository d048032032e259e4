//! What clients were told: for each writer, how many of its transactions have to be there after a crash, and how many
//! may be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use rialto::io::FaultyDisk;
use rialto::{Durability, Lsn};
use rustix::time::{ClockId, clock_gettime};

/// Later than every step.
pub const END: u64 = u64::MAX;

/// The moment of an event: after which step of the disk, and in which millisecond of the clock that the log's times
/// come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub step: u64,
    pub ms: u64,
}

/// The largest number that was acknowledged in each step, or millisecond. The step is the last one that had ended by
/// then.
#[derive(Default)]
struct Numbers(Mutex<BTreeMap<u64, i64>>);

impl Numbers {
    fn raise(&self, at: u64, number: i64) {
        let mut all = self.0.lock();
        let largest = all.entry(at).or_insert(number);
        *largest = number.max(*largest);
    }

    /// When a number larger than this was first told.
    fn first_behind(&self, number: i64) -> Option<u64> {
        self.0.lock().iter().find(|(_, told)| **told > number).map(|(at, _)| *at)
    }

    /// The largest number that was told before a step, or a millisecond, began.
    fn before(&self, at: u64) -> i64 {
        self.0.lock().range(..at).map(|(_, number)| *number).max().unwrap_or(0)
    }
}

/// The ledger of one writer, whose transactions are numbered from 1 in the order of their places.
#[derive(Default)]
pub struct Told {
    traced: Option<Arc<FaultyDisk>>,
    /// The last that may be there, by its beginning: it was committed, or its outcome is unknown.
    issued: Numbers,
    issued_by_time: Numbers,
    /// The last that an answer told with a promise for a loss of power.
    on_disk: Numbers,
    on_disk_by_time: Numbers,
    /// The numbers of transactions with a known place in the log.
    placed: Mutex<BTreeMap<Lsn, i64>>,
    /// The last that any answer told.
    in_memory: AtomicI64,
    /// A transaction's number, with the writer and number of one that it saw: if the former is there, the latter is.
    saw: Mutex<Vec<(i64, usize, i64)>>,
}

impl Told {
    /// With this number of transactions that are there for good. If a disk is given, its steps are traced.
    pub fn at(number: i64, traced: Option<&Arc<FaultyDisk>>) -> Told {
        let told = Told { traced: traced.cloned(), ..Told::default() };
        let before = Moment { step: 0, ms: 0 };
        told.issue(number, before);
        told.acknowledge_at(number, Durability::Disk, before);
        told
    }

    /// The last step that has ended, and the time.
    pub fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
        Moment { step: self.traced.as_ref().map_or(0, |disk| disk.steps()), ms }
    }

    /// This transaction, which began at that moment, may be there from now on.
    pub fn issue(&self, number: i64, began: Moment) {
        self.issued.raise(began.step, number);
        self.issued_by_time.raise(began.ms, number);
    }

    /// An answer of this level tells this transaction.
    pub fn acknowledge(&self, number: i64, durability: Durability) {
        self.acknowledge_at(number, durability, self.now());
    }

    fn acknowledge_at(&self, number: i64, durability: Durability, at: Moment) {
        self.in_memory.fetch_max(number, Ordering::SeqCst);
        if durability == Durability::Disk {
            self.on_disk.raise(at.step, number);
            self.on_disk_by_time.raise(at.ms, number);
        }
    }

    /// This transaction has this place in the log.
    pub fn place(&self, number: i64, place: Lsn) {
        self.placed.lock().insert(place, number);
    }

    /// The writer's transaction has seen another's.
    pub fn saw(&self, number: i64, writer: usize, seen: i64) {
        self.saw.lock().push((number, writer, seen));
    }

    /// The last one that has to be there after a kill or, with `power_lost`, a loss of power.
    pub fn least(&self, power_lost: bool) -> i64 {
        if power_lost { self.least_before(END) } else { self.in_memory.load(Ordering::SeqCst) }
    }

    /// The last one that has to be there after a loss of power in this step.
    pub fn least_before(&self, step: u64) -> i64 {
        self.on_disk.before(step)
    }

    /// The step after which an answer first told, with a promise for a loss of power, of one after this number.
    pub fn first_told_behind(&self, number: i64) -> Option<u64> {
        self.on_disk.first_behind(number)
    }

    /// The last one that may be there after an end in this step.
    pub fn most_before(&self, step: u64) -> i64 {
        self.issued.before(step)
    }

    /// The last one that an answer told, with a promise for a loss of power, by the end of this millisecond.
    pub fn least_by(&self, ms: u64) -> i64 {
        self.on_disk_by_time.before(ms + 1)
    }

    /// The last one that had begun by the end of this millisecond.
    pub fn most_by(&self, ms: u64) -> i64 {
        self.issued_by_time.before(ms + 1)
    }

    /// Among transactions with a known place: the last one up to a place of the log, and the first one after it.
    fn around(&self, place: Lsn) -> (Option<i64>, Option<i64>) {
        let placed = self.placed.lock();
        let first_behind = placed.range(place.next()..).next();
        (
            placed.range(..=place).next_back().map(|(_, number)| *number),
            first_behind.map(|(_, number)| *number),
        )
    }
}

/// What has to be there and what may be, of each writer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bounds {
    pub least: Vec<i64>,
    pub most: Vec<i64>,
    /// A writer, the number of its transaction, and the writer and number of one that it saw.
    pub saw: Vec<(usize, i64, usize, i64)>,
}

impl Bounds {
    /// After an end in this step, given how many of each writer's transactions have to be there.
    pub fn of(all: &[Told], least: Vec<i64>, step: u64) -> Bounds {
        let most = all.iter().map(|told| told.most_before(step)).collect();
        let saw = all.iter().enumerate().flat_map(|(writer, told)| {
            let saw = told.saw.lock().clone();
            saw.into_iter().map(move |(number, other, seen)| (writer, number, other, seen))
        });
        Bounds { least, most, saw: saw.collect() }
    }

    /// The bounds of contents that have the log exactly up to this place.
    pub fn up_to(mut self, place: Lsn, all: &[Told]) -> Bounds {
        for (writer, told) in all.iter().enumerate() {
            let (last, first_behind) = told.around(place);
            self.least[writer] = self.least[writer].max(last.unwrap_or(0));
            self.most[writer] = self.most[writer].min(first_behind.map_or(i64::MAX, |number| number - 1));
        }
        self
    }

    /// Checks what is there, given the last number of each writer.
    pub fn check(&self, found: &[i64], about: &str) {
        for (writer, &found_of) in found.iter().enumerate() {
            let (least, most) = (self.least[writer], self.most[writer]);
            assert!(
                found_of >= least,
                "{about}: an answer told of writer {writer}'s {least}, found {found_of}"
            );
            assert!(found_of <= most, "{about}: writer {writer} made {most} transactions, found {found_of}");
        }
        for &(writer, number, other, seen) in &self.saw {
            assert!(
                number > found[writer] || found[other] >= seen,
                "{about}: writer {writer}'s {number} is there, which saw {other}'s {seen}; found {}",
                found[other]
            );
        }
    }
}
