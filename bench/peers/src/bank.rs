//! [`Bank`] and [`Open`]: each engine's bank in a run, from its load to the last check.

use std::path::Path;

use rialto::io::Random;
use rialto_measure::text::say;

use crate::args::{Common, Step};
use crate::engine::{Engine, EngineName};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::size::disk_bytes;
use crate::step::Job;

/// The same orders in each run.
const ORDER_SEED: u64 = 1;

/// In which order engines take their turns: another one in each round, so that what an engine still does in the
/// background falls on no other one alone.
pub struct Order {
    random: Random,
    places: Vec<usize>,
}

impl Order {
    /// Of so many engines.
    pub fn new(engines: usize) -> Order {
        Order { random: Random::new(ORDER_SEED), places: (0..engines).collect() }
    }

    /// That of the next round.
    pub fn round(&mut self) -> &[usize] {
        self.random.shuffle(&mut self.places);
        &self.places
    }
}

/// What a bank took, and whether it adds up.
#[derive(Debug, Clone)]
pub struct Bank {
    /// Whose.
    pub engine: EngineName,
    /// Rows when it was loaded.
    pub loaded_rows: u64,
    /// Resident bytes of a process that opened it and read all rows.
    pub resident_bytes: u64,
    /// Bytes on disk after the load.
    pub loaded_disk_bytes: u64,
    /// Rows at the end, history included.
    pub rows: u64,
    /// Bytes on disk at the end, open.
    pub disk_bytes: u64,
    /// What does not add up, if anything.
    pub problem: Option<String>,
}

/// A bank that is open.
pub struct Open {
    /// Whose.
    pub name: EngineName,
    /// The bank.
    pub engine: Box<dyn Engine>,
    /// Transactions that were acknowledged; whoever runs some adds them.
    pub committed: u64,
    bank: Bank,
}

/// For what is done to files.
pub fn files<T>(during: impl FnOnce() -> String, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|cause| PeerError::Files { during: during(), cause })
}

impl Open {
    /// Makes an engine's bank, in a process of its own.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn load(common: &Common, guarantee: Guarantee, name: EngineName, directory: &Path) -> Result<()> {
        say(&format!("loading {} ({})", name.name(), guarantee.name()));
        files(|| format!("creating {}", directory.display()), std::fs::create_dir_all(directory))?;
        let job = Job { step: Step::Load, engine: name, guarantee, shape: common.shape()?, bank: directory };
        job.run().map(drop)
    }

    /// Measures the memory of a bank that was made, and opens it.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn measured(
        common: &Common,
        guarantee: Guarantee,
        name: EngineName,
        directory: &Path,
    ) -> Result<Open> {
        let shape = common.shape()?;
        let job = Job { step: Step::Memory, engine: name, guarantee, shape, bank: directory };
        let resident_bytes = job.run()?;
        let loaded_disk_bytes = files(|| format!("reading {}", directory.display()), disk_bytes(directory))?;
        let engine = name.open(directory, guarantee, shape)?;
        let sums = engine.audit()?;
        let bank = Bank {
            engine: name,
            loaded_rows: sums.all_rows(),
            resident_bytes: resident_bytes.unwrap_or_default(),
            loaded_disk_bytes,
            rows: sums.all_rows(),
            disk_bytes: loaded_disk_bytes,
            problem: sums.problem(shape, 0),
        };
        Ok(Open { name, engine, bank, committed: 0 })
    }

    /// Checks it, and closes it.
    ///
    /// # Errors
    /// If the engine fails. A bank that does not add up is a result.
    pub fn finish(self, common: &Common, directory: &Path) -> Result<Bank> {
        let Open { engine, mut bank, committed, .. } = self;
        let sums = engine.audit()?;
        bank.rows = sums.all_rows();
        bank.disk_bytes = files(|| format!("reading {}", directory.display()), disk_bytes(directory))?;
        bank.problem = bank.problem.or(sums.problem(common.shape()?, committed));
        engine.close()?;
        Ok(bank)
    }
}
