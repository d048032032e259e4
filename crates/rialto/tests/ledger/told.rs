//! What clients were told: for each writer how many of its transactions have to be there after a crash, and how many may be.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use rialto::Durability;

/// Of one writer, whose transactions are numbered from 1 in the order of their places.
#[derive(Default)]
pub struct Told {
    /// The last that may be there: it was committed, or its outcome is unknown.
    issued: AtomicI64,
    /// The last that an answer told of with a promise for a loss of power.
    on_disk: AtomicI64,
    /// The last that any answer told of.
    in_memory: AtomicI64,
    /// A transaction's number, and the writer and number of one that it saw: where the former is, the latter is.
    saw: Mutex<Vec<(i64, usize, i64)>>,
}

impl Told {
    /// One of which so many are there for good.
    pub fn at(number: i64) -> Told {
        let told = Told::default();
        told.issue(number);
        told.acknowledge(number, Durability::Disk);
        told
    }

    /// This transaction may be there from now on.
    pub fn issue(&self, number: i64) {
        self.issued.fetch_max(number, Ordering::SeqCst);
    }

    /// An answer of this level tells of this transaction.
    pub fn acknowledge(&self, number: i64, durability: Durability) {
        self.in_memory.fetch_max(number, Ordering::SeqCst);
        if durability == Durability::Disk {
            self.on_disk.fetch_max(number, Ordering::SeqCst);
        }
    }

    /// The writer's transaction has seen another's.
    pub fn saw(&self, number: i64, writer: usize, seen: i64) {
        self.saw.lock().unwrap().push((number, writer, seen));
    }

    /// The last one that has to be there after a kill or, if that is what happened, a loss of power.
    pub fn least(&self, power_lost: bool) -> i64 {
        if power_lost { self.on_disk.load(Ordering::SeqCst) } else { self.in_memory.load(Ordering::SeqCst) }
    }

    pub fn issued(&self) -> i64 {
        self.issued.load(Ordering::SeqCst)
    }

    /// Checks what is there, of each writer up to which number.
    pub fn check(all: &[Told], found: &[i64], least: &[i64], about: &str) {
        for (writer, told) in all.iter().enumerate() {
            let (found_of, least) = (found[writer], least[writer]);
            let issued = told.issued();
            assert!(
                found_of >= least,
                "{about}: an answer told of writer {writer}'s {least}, found {found_of}"
            );
            assert!(
                found_of <= issued,
                "{about}: writer {writer} made {issued} transactions, found {found_of}"
            );
            for (number, other, seen) in told.saw.lock().unwrap().iter() {
                assert!(
                    *number > found_of || found[*other] >= *seen,
                    "{about}: writer {writer}'s {number} is there, which saw {other}'s {seen}; found {}",
                    found[*other]
                );
            }
        }
    }
}
