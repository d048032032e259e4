//! [`Tally`]: counts of the events of a suite, so that the suite can require them.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;
use rialto::Database;

use crate::common::many_seeds::for_a_while_until_by;

/// Phases of calls that ran in parts, on more than one thread at a time.
pub const IN_PARTS: &str = "phases in parts";

/// Counts by name.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub fn note(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn add(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    pub fn add_all(&mut self, other: Tally) {
        other.0.into_iter().for_each(|(what, times)| self.add(what, times));
    }

    /// Notes how many phases of this database's calls ran in parts.
    pub fn note_parts(&mut self, db: &Database) {
        self.add(IN_PARTS, db.metrics().plans.iter().map(|phase| phase.in_parts).sum());
    }

    fn has(&self, what: &str) -> bool {
        self.0.get(what).is_some_and(|times| *times > 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (what, times)) in self.0.iter().enumerate() {
            write!(f, "{}{times} {what}", if nth > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Runs rounds, three at a time, because their threads sleep most of it, for as long as random tests may take, and
/// until each of these events has come. Prints the counts.
pub fn rounds_until_met(suite: &str, expected: &[&str], round: impl Fn(u64, &mut Tally) + Sync) {
    let all = Mutex::new(Tally::default());
    let (first, rounds) = for_a_while_until_by(3, |seed| {
        let mut tally = Tally::default();
        round(seed, &mut tally);
        let mut all = all.lock();
        all.add_all(tally);
        expected.iter().all(|what| all.has(what))
    });
    let tally = all.into_inner();
    let missing: Vec<_> = expected.iter().filter(|what| !tally.has(what)).collect();
    println!("tally: {suite}, {rounds} rounds, {tally}, RIALTO_SEED={first}");
    assert!(missing.is_empty(), "RIALTO_SEED={first}: not met in {rounds} rounds: {missing:?}");
}
