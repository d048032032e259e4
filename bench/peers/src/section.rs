//! [`Section`]: all engines under one guarantee.

use std::path::Path;

use rialto::io::Random;

use crate::args::{Args, Step};
use crate::engine::{Engine, EngineName};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::size::disk_bytes;
use crate::slice::{Slice, slice};
use crate::step::in_own_process;

/// The same orders in each run.
const ORDER_SEED: u64 = 1;

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

/// The slices of one engine with one number of clients.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Which engine.
    pub engine: EngineName,
    /// How many clients.
    pub clients: u32,
    /// One for each round.
    pub slices: Vec<Slice>,
}

/// All engines under one guarantee.
#[derive(Debug, Clone)]
pub struct Section {
    /// Which.
    pub guarantee: Guarantee,
    /// Each engine's bank.
    pub banks: Vec<Bank>,
    /// By clients, then by engine.
    pub cells: Vec<Cell>,
}

/// A bank that is open.
struct Open {
    name: EngineName,
    engine: Box<dyn Engine>,
    bank: Bank,
    committed: u64,
}

fn files<T>(during: impl FnOnce() -> String, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|cause| PeerError::Files { during: during(), cause })
}

fn say(text: &str) {
    eprintln!("{text}");
}

impl Section {
    /// Loads a bank into each engine, runs all slices, and checks all banks. Engines alternate, in another order in each
    /// round: what an engine still does in the background falls on no other one alone.
    ///
    /// # Errors
    /// If an engine fails. A bank that does not add up is a result.
    pub fn measure(args: &Args, guarantee: Guarantee, directory: &Path) -> Result<Section> {
        let mut open = Vec::new();
        for name in args.engines() {
            open.push(prepare(args, guarantee, name, &directory.join(name.name()))?);
        }
        let mut cells = Vec::new();
        let mut places: Vec<usize> = (0..open.len()).collect();
        let mut order = Random::new(ORDER_SEED);
        for &clients in &args.clients {
            let mut these: Vec<Cell> =
                open.iter().map(|open| Cell { engine: open.name, clients, slices: Vec::new() }).collect();
            for round in 0..args.rounds {
                order.shuffle(&mut places);
                for &place in &places {
                    let seed = (u64::from(clients) << 40) | (u64::from(round) << 8) | 1;
                    let measured = slice(&*open[place].engine, clients, args.seconds, seed)?;
                    say(&format!(
                        "  {}, {clients} clients, round {} of {}: {:>9.0} transactions/s",
                        open[place].name.name(),
                        round + 1,
                        args.rounds,
                        measured.per_s
                    ));
                    open[place].committed += measured.committed;
                    these[place].slices.push(measured);
                }
            }
            cells.append(&mut these);
        }
        let mut banks = Vec::new();
        for open in open {
            let own = directory.join(open.name.name());
            banks.push(finish(args, open, &own)?);
        }
        Ok(Section { guarantee, banks, cells })
    }
}

fn prepare(args: &Args, guarantee: Guarantee, name: EngineName, directory: &Path) -> Result<Open> {
    say(&format!("loading {} ({})", name.name(), guarantee.name()));
    files(|| format!("creating {}", directory.display()), std::fs::create_dir_all(directory))?;
    let shape = args.shape()?;
    in_own_process(Step::Load, name, guarantee, shape, directory)?;
    let resident_bytes = in_own_process(Step::Memory, name, guarantee, shape, directory)?.unwrap_or_default();
    let loaded_disk_bytes = files(|| format!("reading {}", directory.display()), disk_bytes(directory))?;
    let engine = name.open(directory, guarantee, shape)?;
    let sums = engine.audit()?;
    let bank = Bank {
        engine: name,
        loaded_rows: sums.all_rows(),
        resident_bytes,
        loaded_disk_bytes,
        rows: sums.all_rows(),
        disk_bytes: loaded_disk_bytes,
        problem: sums.problem(shape, 0),
    };
    Ok(Open { name, engine, bank, committed: 0 })
}

fn finish(args: &Args, open: Open, directory: &Path) -> Result<Bank> {
    let Open { engine, mut bank, committed, .. } = open;
    let sums = engine.audit()?;
    bank.rows = sums.all_rows();
    bank.disk_bytes = files(|| format!("reading {}", directory.display()), disk_bytes(directory))?;
    bank.problem = bank.problem.or(sums.problem(args.shape()?, committed));
    engine.close()?;
    Ok(bank)
}
