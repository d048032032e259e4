//! What clients were told: for each writer how many of its transactions have to be there after a crash, and how many may be.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use rialto::Durability;
use rialto::io::FaultyDisk;

/// Behind each step: of the disk if its steps are traced, else of all there is.
pub const END: u64 = u64::MAX;

/// The largest number by the last step of the disk that had ended when it was told of.
#[derive(Default)]
struct Numbers(Mutex<BTreeMap<u64, i64>>);

impl Numbers {
    fn raise(&self, step: u64, number: i64) {
        let mut all = self.0.lock().unwrap();
        let largest = all.entry(step).or_insert(number);
        *largest = number.max(*largest);
    }

    /// The largest of those that were told of before a step began.
    fn before(&self, step: u64) -> i64 {
        self.0.lock().unwrap().range(..step).map(|(_, number)| *number).max().unwrap_or(0)
    }
}

/// Of one writer, whose transactions are numbered from 1 in the order of their places.
#[derive(Default)]
pub struct Told {
    traced: Option<Arc<FaultyDisk>>,
    /// The last that may be there, by when it began: it was committed, or its outcome is unknown.
    issued: Numbers,
    /// The last that an answer told of with a promise for a loss of power.
    on_disk: Numbers,
    /// The last that any answer told of.
    in_memory: AtomicI64,
    /// A transaction's number, and the writer and number of one that it saw: where the former is, the latter is.
    saw: Mutex<Vec<(i64, usize, i64)>>,
}

impl Told {
    /// One of which so many are there for good. If a disk is named, its steps are traced.
    pub fn at(number: i64, traced: Option<&Arc<FaultyDisk>>) -> Told {
        let told = Told::default();
        told.issue(number, 0);
        told.acknowledge(number, Durability::Disk);
        Told { traced: traced.cloned(), ..told }
    }

    /// The last step that has ended.
    pub fn now(&self) -> u64 {
        self.traced.as_ref().map_or(0, |disk| disk.steps())
    }

    /// This transaction, which began after this step, may be there from now on.
    pub fn issue(&self, number: i64, began: u64) {
        self.issued.raise(began, number);
    }

    /// An answer of this level tells of this transaction.
    pub fn acknowledge(&self, number: i64, durability: Durability) {
        self.in_memory.fetch_max(number, Ordering::SeqCst);
        if durability == Durability::Disk {
            self.on_disk.raise(self.now(), number);
        }
    }

    /// The writer's transaction has seen another's.
    pub fn saw(&self, number: i64, writer: usize, seen: i64) {
        self.saw.lock().unwrap().push((number, writer, seen));
    }

    /// The last one that has to be there after a kill or, if that is what happened, a loss of power.
    pub fn least(&self, power_lost: bool) -> i64 {
        if power_lost { self.least_before(END) } else { self.in_memory.load(Ordering::SeqCst) }
    }

    /// The last one that has to be there after a loss of power in this step.
    pub fn least_before(&self, step: u64) -> i64 {
        self.on_disk.before(step)
    }

    /// The last one that may be there after an end in this step.
    pub fn most_before(&self, step: u64) -> i64 {
        self.issued.before(step)
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
    /// After an end in this step, where so many of each writer's transactions have to be there.
    pub fn of(all: &[Told], least: Vec<i64>, step: u64) -> Bounds {
        let most = all.iter().map(|told| told.most_before(step)).collect();
        let saw = all.iter().enumerate().flat_map(|(writer, told)| {
            let saw = told.saw.lock().unwrap().clone();
            saw.into_iter().map(move |(number, other, seen)| (writer, number, other, seen))
        });
        Bounds { least, most, saw: saw.collect() }
    }

    /// Checks what is there: of each writer up to which number.
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
