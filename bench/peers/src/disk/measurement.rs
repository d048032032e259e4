//! [`Measurement`]: all engines, from the load to the last check.

use std::path::Path;

use rialto_measure::machine::Machine;
use rialto_measure::spread::Spread;
use rialto_measure::text::{say, thousands, time};

use super::args::DiskArgs;
use super::process::Process;
use super::protocol::{Audited, Closed, Loaded, Request, Sliced};
use super::table::{DiskEngine, Mix};
use crate::bank::{Order, files};
use crate::error::Result;
use crate::size::disk_bytes;
use crate::slice::Offer;

/// What one engine did.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Which.
    pub engine: DiskEngine,
    /// How long its load took, in seconds.
    pub load_s: f64,
    /// Slices in a closed loop, one a round.
    pub closed: Vec<Sliced>,
    /// Half of what it reached in them: what is offered in the open loops.
    pub half_per_s: f64,
    /// Slices in an open loop, one a round.
    pub open: Vec<Sliced>,
    /// Bytes of its files at the end.
    pub disk_bytes: u64,
    /// The most memory that its group had, page cache included.
    pub peak_bytes: Option<u64>,
    /// The most of it that was no page cache at the end of a slice.
    pub anonymous_bytes: Option<u64>,
    /// What does not add up in its table, if anything.
    pub problem: Option<String>,
}

/// All engines.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// What was asked for.
    pub args: DiskArgs,
    /// What it ran on.
    pub machine: Machine,
    /// Pages that a transaction of bare pages read and wrote.
    pub mix: Mix,
    /// One for each engine.
    pub engines: Vec<Measured>,
}

/// An engine, while it is measured.
struct Running {
    process: Process,
    measured: Measured,
    /// What its transactions have added in all.
    added: i64,
}

impl Running {
    fn start(engine: DiskEngine, args: &DiskArgs, directory: &Path) -> Result<Running> {
        say(&format!("loading {}", engine.name()));
        files(|| format!("creating {}", directory.display()), std::fs::create_dir_all(directory))?;
        let mut process = Process::start(engine, args, directory)?;
        let Loaded { load_s } = process.ask(Request::Load)?;
        let measured = Measured {
            engine,
            load_s,
            closed: Vec::new(),
            half_per_s: 0.0,
            open: Vec::new(),
            disk_bytes: 0,
            peak_bytes: None,
            anonymous_bytes: None,
            problem: None,
        };
        Ok(Running { process, measured, added: 0 })
    }

    fn slice(&mut self, offer: Offer, mix: Mix) -> Result<Sliced> {
        let slice: Sliced = self.process.ask(Request::Slice(offer, mix))?;
        self.added += slice.added;
        let anonymous = self.process.group().anonymous_bytes();
        self.measured.anonymous_bytes = self.measured.anonymous_bytes.max(anonymous);
        let load = offer.rate.map_or("closed loop".to_owned(), |rate| format!("{} offered", thousands(rate)));
        let [p50, p99] = [slice.latency.p50_us, slice.latency.p99_us].map(time);
        let name = self.measured.engine.name();
        say(&format!("  {name}, {load}: {} transactions/s, p50 {p50}, p99 {p99}", thousands(slice.per_s)));
        Ok(slice)
    }

    /// Checks the table, and closes it.
    fn finish(self, rows: u32, directory: &Path) -> Result<Measured> {
        let Running { mut process, mut measured, added } = self;
        let Audited { sums } = process.ask(Request::Audit)?;
        measured.problem = sums.and_then(|sums| sums.problem(rows, added));
        measured.disk_bytes = files(|| format!("reading {}", directory.display()), disk_bytes(directory))?;
        measured.peak_bytes = process.group().peak_bytes();
        let Closed {} = process.ask(Request::Close)?;
        Ok(measured)
    }
}

/// Seeds that no two slices share.
fn seed(part: u64, round: u32) -> u64 {
    (u64::from(round) << 8) | part
}

impl Measurement {
    /// Loads a table into each engine, runs all slices, and checks all tables.
    ///
    /// # Errors
    /// If an engine fails. A table that does not add up is a result.
    pub fn measure(args: &DiskArgs, directory: &Path) -> Result<Measurement> {
        let own = |engine: DiskEngine| directory.join(engine.name());
        let mut running = Vec::new();
        for engine in args.engines() {
            running.push(Running::start(engine, args, &own(engine))?);
        }
        let offer = |rate, seed| Offer { clients: args.clients, rate, time: args.seconds, seed };
        // The first slice of each fills its cache and is no result. Rialto's is the first of all: bare pages need its mix.
        let mut mix = Mix::POOL_OF_A_TENTH;
        for running in &mut running {
            let slice = running.slice(offer(None, seed(0, 0)), mix)?;
            mix = slice.mix().unwrap_or(mix);
        }
        let mut order = Order::new(running.len());
        for round in 0..args.rounds {
            say(&format!("round {} of {}", round + 1, args.rounds));
            for &place in order.round() {
                let slice = running[place].slice(offer(None, seed(1, round)), mix)?;
                running[place].measured.closed.push(slice);
            }
        }
        for running in &mut running {
            running.measured.half_per_s = running.measured.peak_per_s() / 2.0;
        }
        for round in 0..args.rounds {
            say(&format!("round {} of {}, at half", round + 1, args.rounds));
            for &place in order.round() {
                let rate = running[place].measured.half_per_s;
                let slice = running[place].slice(offer(Some(rate), seed(2, round)), mix)?;
                running[place].measured.open.push(slice);
            }
        }
        let mut engines = Vec::new();
        for running in running {
            let engine = running.measured.engine;
            say(&format!("reading all rows of {}", engine.name()));
            engines.push(running.finish(args.rows, &own(engine))?);
        }
        Ok(Measurement { args: args.clone(), machine: Machine::here(), mix, engines })
    }

    /// Whether all tables add up.
    pub fn consistent(&self) -> bool {
        self.engines.iter().all(|measured| measured.problem.is_none())
    }
}

impl Measured {
    /// What it reached in a closed loop: the median of its rounds.
    pub fn peak_per_s(&self) -> f64 {
        Spread::of(self.closed.iter().map(|slice| slice.per_s)).map_or(0.0, |spread| spread.median)
    }

    /// A figure of these slices.
    pub fn spread(slices: &[Sliced], figure: fn(&Sliced) -> f64) -> Option<Spread> {
        Spread::of(slices.iter().map(figure))
    }

    /// Pages that were read for each access that did not find them in memory; `None` if the engine does not tell.
    pub fn reads_per_miss(&self) -> Option<f64> {
        let pages = self.closed.iter().filter_map(|slice| slice.pages);
        let (reads, misses) = pages
            .fold((0, 0), |(reads, misses), pages| (reads + pages.reads_by_accesses, misses + pages.misses));
        (misses > 0).then(|| reads as f64 / misses as f64)
    }

    /// The share of accesses that found all pages in memory; `None` if the engine does not tell.
    pub fn hit_ratio(&self) -> Option<f64> {
        let pages = self.closed.iter().filter_map(|slice| slice.pages);
        let (accesses, misses) = pages
            .fold((0, 0), |(accesses, misses), pages| (accesses + pages.accesses, misses + pages.misses));
        (accesses > 0).then(|| 1.0 - misses as f64 / accesses as f64)
    }
}
