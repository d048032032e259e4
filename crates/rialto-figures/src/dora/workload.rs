//! [`Loaded`]: the paper's workloads, each loaded into a database in memory.

use std::ops::RangeInclusive;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType};
use rialto::{Checkpointing, Database, Engine, Options, Planning, Procedure, Residence, TableDef};
use rialto_measure::RunError;
use rialto_measure::driver::{Ended, Load, Observer, Outcome};
use rialto_measure::machine::memory_available;
use rialto_measure::text::say;
use rialto_workloads::data::ShapeError;
use rialto_workloads::mix::Mix;
use rialto_workloads::tatp::{self, Tatp};
use rialto_workloads::tpcb::{self, Tpcb};
use rialto_workloads::tpcc::{self, Tpcc};
use rialto_workloads::workload::{Audited, Verdict};

use super::super::Lab;
use super::System;

/// What clients run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TM1's mix.
    Tm1,
    /// One of its transactions.
    Tm1Only(tatp::Name),
    /// TPC-B's transaction.
    TpcB,
    /// One of TPC-C's transactions.
    TpcC(tpcc::Name),
}

impl Kind {
    /// For tables and pictures.
    pub fn name(self) -> String {
        match self {
            Kind::Tm1 => "TM1".to_owned(),
            Kind::Tm1Only(name) => format!("TM1 {name}"),
            Kind::TpcB => "TPC-B".to_owned(),
            Kind::TpcC(name) => format!("TPC-C {name}"),
        }
    }

    fn tm1_mix(self) -> tatp::Mix {
        match self {
            Kind::Tm1Only(name) => tatp::Mix::only(name),
            _ => tatp::Mix::default(),
        }
    }

    fn tpcc_mix(self) -> Mix<tpcc::Name> {
        match self {
            Kind::TpcC(name) => Mix::only(name),
            _ => Mix::default(),
        }
    }

    /// Whether both are of the same tables.
    pub fn shares_tables_with(self, other: Kind) -> bool {
        let family = |kind| match kind {
            Kind::Tm1 | Kind::Tm1Only(_) => 0,
            Kind::TpcB => 1,
            Kind::TpcC(_) => 2,
        };
        family(self) == family(other)
    }
}

/// The paper's sizes (section 5.1).
const PAPER_SUBSCRIBERS: u32 = 5_000_000;
const PAPER_WAREHOUSES: u32 = 150;
const BRANCHES: u32 = 100;
const PAPER_ACCOUNTS: u32 = BRANCHES * 100_000;
/// Memory of a subscriber in all tables, and of an account, in bytes, about: what has been measured.
const SUBSCRIBER_BYTES: u64 = 750;
const ACCOUNT_BYTES: u64 = 160;
/// The tables, and on the disk in memory the file of their load and two backup copies.
const COPIES: u64 = 4;

fn percent_of(size: u32, percent: u32) -> u32 {
    (u64::from(size) * u64::from(percent) / 100) as u32
}

/// The sizes of an experiment's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// TM1's.
    pub tm1: tatp::Shape,
    /// TPC-B's.
    pub tpcb: tpcb::Shape,
    /// TPC-C's.
    pub tpcc: tpcc::Shape,
}

impl Sizes {
    /// A share of the paper's; tiny, where points are so short that they mean nothing.
    pub fn of(lab: &Lab) -> Sizes {
        if lab.is_small() {
            return Sizes {
                tm1: tatp::Shape { subscribers: 1_000 },
                tpcb: tpcb::Shape { branches: BRANCHES, accounts: 2_000 },
                tpcc: tpcc::Shape { warehouses: 2, items: 200, customers: 30 },
            };
        }
        Sizes {
            tm1: tatp::Shape { subscribers: percent_of(PAPER_SUBSCRIBERS, lab.scale) },
            tpcb: tpcb::Shape { branches: BRANCHES, accounts: percent_of(PAPER_ACCOUNTS, lab.scale) },
            tpcc: tpcc::Shape::of_warehouses(percent_of(PAPER_WAREHOUSES, lab.scale).max(1)),
        }
    }

    fn bytes(&self, kind: Kind) -> u64 {
        COPIES
            * match kind {
                Kind::Tm1 | Kind::Tm1Only(_) => u64::from(self.tm1.subscribers) * SUBSCRIBER_BYTES,
                Kind::TpcB => u64::from(self.tpcb.accounts) * ACCOUNT_BYTES,
                Kind::TpcC(_) => self.tpcc.memory_bytes(),
            }
    }

    /// Of these, for a paragraph.
    pub fn describe(&self, kinds: &[Kind]) -> String {
        let mut of: Vec<String> = Vec::new();
        for (number, kind) in kinds.iter().enumerate() {
            if kinds[..number].iter().any(|before| before.shares_tables_with(*kind)) {
                continue;
            }
            of.push(match kind {
                Kind::Tm1 | Kind::Tm1Only(_) => format!("TM1 with {} (the paper: 5 million)", self.tm1),
                Kind::TpcB => format!("TPC-B with {} (the paper: 100 branches, about 2 GB)", self.tpcb),
                Kind::TpcC(_) => format!("TPC-C with {} (the paper: 150 warehouses)", self.tpcc),
            });
        }
        format!("{}; log and data in memory, commits answered when the log is written", of.join(", "))
    }
}

/// A workload with what its tables held at first, and how it is told to run other transactions.
struct Watched<W: Audited> {
    workload: W,
    before: W::Audit,
    set: fn(&mut W, Kind),
}

/// A [`Watched`] of any workload.
trait Run {
    fn drive(&self, load: &Load, observer: &mut dyn Observer) -> Result<Outcome, Ended>;
    fn set(&mut self, kind: Kind);
    fn verify(&self, transactions: RangeInclusive<u64>) -> rialto::Result<Verdict>;
}

impl<W: Audited> Run for Watched<W> {
    fn drive(&self, load: &Load, observer: &mut dyn Observer) -> Result<Outcome, Ended> {
        self.workload.drive(load, observer)
    }

    fn set(&mut self, kind: Kind) {
        (self.set)(&mut self.workload, kind);
    }

    fn verify(&self, transactions: RangeInclusive<u64>) -> rialto::Result<Verdict> {
        Ok(self.workload.verdict(&self.before, &self.workload.audit()?, transactions))
    }
}

/// A workload on its tables.
pub struct Loaded {
    /// Where they are.
    pub database: Database,
    run: Box<dyn Run>,
    /// All transactions so far, from the fewest to the most.
    transactions: (u64, u64),
    /// How many bytes had been logged when the log was last freed.
    logged: u64,
}

/// No checkpoint frees the log, so that it is freed between two points once it has grown by so much.
const LOG_BYTES: u64 = 1 << 30;
/// A point may be of a million commits with a page of the log each.
const LOG_BYTES_MAX: u64 = 8 << 30;

/// How the tables are run on.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// Procedures instead of the workload's of the same name.
    pub instead: Vec<Procedure>,
    /// Executors, if not as many as the system has by itself; and as many threads, if they have some.
    pub executors: Option<usize>,
    /// How threads that own executors run phases.
    pub planning: Planning,
}

impl Loaded {
    /// Loads the tables of a kind into a system.
    ///
    /// # Errors
    /// Too little memory; what loading can meet.
    pub fn new(system: System, kind: Kind, sizes: &Sizes, way: &Way) -> Result<Loaded, RunError> {
        // Before its log is freed a point adds to it, about as much again.
        let bytes = sizes.bytes(kind) + 2 * LOG_BYTES;
        if let Some(free) = memory_available().filter(|free| *free < bytes) {
            let mb = |bytes: u64| bytes / 1_000_000;
            return Err(RunError::Usage(format!(
                "the tables of {} would take about {} MB of memory, and there are {} MB; give a smaller --scale",
                kind.name(),
                mb(bytes),
                mb(free)
            )));
        }
        let mut procedures = [tpcb::procedures(), tatp::procedures(), tpcc::procedures()].concat();
        procedures.retain(|procedure| way.instead.iter().all(|other| other.name != procedure.name));
        procedures.extend(way.instead.iter().cloned());
        let mut engine = system.engine();
        if let Engine::DataOriented(executors) = &mut engine {
            executors.planning = way.planning;
            if let Some(count) = way.executors {
                executors.count = count;
                executors.threads = if executors.threads > 0 { count } else { 0 };
            }
        }
        let options = Options {
            procedures,
            engine,
            // In the papers' regime there is nothing beside transactions and log.
            checkpoint: Checkpointing::None,
            log_bytes_max: LOG_BYTES_MAX,
            ..Options::default()
        };
        let database = Database::open_on(MemoryDisk::new(), options)
            .map_err(|cause| RunError::Open { data: "the disk in memory".to_owned(), cause })?;
        let quiet = &mut |_: &str| {};
        let run: Result<Box<dyn Run>, ShapeError> = match kind {
            Kind::Tm1 | Kind::Tm1Only(_) => {
                Tatp::open_or_load(&database, Residence::Memory, sizes.tm1, kind.tm1_mix(), quiet).and_then(
                    |(tatp, _)| watched(tatp.by_calls(true), |tatp, kind| tatp.set_mix(kind.tm1_mix())),
                )
            }
            Kind::TpcB => Tpcb::open_or_load(&database, Residence::Memory, sizes.tpcb, quiet)
                .and_then(|(bank, _)| watched(bank.by_calls(true), |_, _| {})),
            Kind::TpcC(_) => {
                Tpcc::open_or_load(&database, Residence::Memory, sizes.tpcc, kind.tpcc_mix(), quiet)
                    .and_then(|(tpcc, _)| watched(tpcc, |tpcc, kind| tpcc.set_mix(kind.tpcc_mix())))
            }
        };
        let run = run.map_err(|error| match error {
            ShapeError::Failed(cause) => RunError::Transaction { during: "loading the data", cause },
            ShapeError::OtherShape { found, expected } => {
                RunError::Directory(format!("an empty database holds {found}, expected {expected}"))
            }
        })?;
        let mb = database.metrics().memory_used / 1_000_000;
        say(&format!("  loaded {} for {}, {mb} MB", kind.name(), system.name()));
        Ok(Loaded { database, run, transactions: (0, 0), logged: 0 })
    }

    /// Runs other transactions on the same tables from now on.
    ///
    /// # Panics
    /// If they are of other tables.
    pub fn set(&mut self, from: Kind, to: Kind) {
        assert!(from.shares_tables_with(to), "{from:?} and {to:?} have tables of their own");
        self.run.set(to);
    }

    fn free_log(&mut self) -> Result<(), RunError> {
        let logged = self.database.metrics().log.bytes;
        if logged - self.logged < LOG_BYTES {
            return Ok(());
        }
        self.logged = logged;
        let free = || {
            // Two: the log goes when the older copy does not need it any more. Nothing is copied if nothing has changed.
            self.database.checkpoint()?;
            self.database.transact(|transaction| {
                transaction
                    .create_table(&TableDef::new("spare", vec![Column::new("id", ColumnType::Int4)]))?;
                transaction.drop_table("spare")
            })?;
            self.database.checkpoint()
        };
        free().map(drop).map_err(|cause| RunError::Transaction { during: "freeing the log", cause })
    }

    /// Puts the load on it.
    ///
    /// # Errors
    /// A transaction that fails, or the observer's refusal.
    pub fn drive(&mut self, load: &Load, observer: &mut dyn Observer) -> Result<Outcome, RunError> {
        self.free_log()?;
        let outcome = self.run.drive(load, observer).map_err(RunError::of_clients("running transactions"))?;
        self.transactions.0 += outcome.acknowledged;
        self.transactions.1 += outcome.attempted;
        Ok(outcome)
    }

    /// Verifies the tables and closes the database.
    ///
    /// # Errors
    /// Tables that are inconsistent; what reading and closing can meet.
    pub fn finish(self) -> Result<(), RunError> {
        let (least, most) = self.transactions;
        let verdict = self.run.verify(least..=most).map_err(RunError::during("verifying the tables"))?;
        if !verdict.consistent {
            return Err(RunError::Inconsistent(verdict.text));
        }
        drop(self.run);
        self.database.close().map_err(RunError::during("closing the database"))
    }
}

fn watched<W: Audited + 'static>(workload: W, set: fn(&mut W, Kind)) -> Result<Box<dyn Run>, ShapeError>
where
    W::Audit: 'static,
{
    let before = workload.audit()?;
    Ok(Box::new(Watched { workload, before, set }))
}

/// Loads the tables of these workloads into a system, each kind of tables once, and visits each workload on them in turn.
///
/// # Errors
/// What loading, visiting and verifying can meet.
pub fn on_each(
    system: System,
    kinds: &[Kind],
    sizes: &Sizes,
    way: &Way,
    mut visit: impl FnMut(&mut Loaded, Kind) -> Result<(), RunError>,
) -> Result<(), RunError> {
    for kinds in kinds.chunk_by(|one, next| one.shares_tables_with(*next)) {
        let mut loaded = Loaded::new(system, kinds[0], sizes, way)?;
        for &kind in kinds {
            loaded.set(kinds[0], kind);
            visit(&mut loaded, kind)?;
        }
        loaded.finish()?;
    }
    Ok(())
}
