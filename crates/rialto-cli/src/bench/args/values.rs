//! The values that options take by name.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use rialto::io::SimulatedDisk;
use rialto::log::virtual_time::{REGIMES, Regime};
use rialto::{Logging, Residence};

/// What clients run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkloadName {
    /// TPC-B: one transaction, which changes an account, a teller and a branch, and inserts a row of history; in 85
    /// of 100 the account is one of the teller's branch
    Tpcb,
    /// The credit cards of System M: four tables, eight transactions (BAL, CCCK, CLCK, DEBIT and PAY are the
    /// paper's, MOVE, LOST and FOUND our own)
    Card,
    /// TATP, which the DORA paper calls TM1: the subscribers of a mobile network, four tables, seven short
    /// transactions, of which three only read. A quarter of the transactions roll back, because they ask for rows
    /// that do not exist or insert rows that do
    Tatp,
    /// TPC-C: the orders of warehouses, five transactions (new-order, payment, order-status, delivery, stock-level)
    /// in the specification's mix, without think times
    Tpcc,
    /// Bare commit sequences, as in KODA's experiments: no database work, each client writes a packet of 180 bytes
    /// to the log and waits until it is durable. With --disk sim:koda, sim:ssd-30us, sim:ssd-100us or sim:ssd-1ms
    /// it runs in virtual time
    Commit,
}

impl WorkloadName {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            WorkloadName::Tpcb => "tpcb",
            WorkloadName::Card => "card",
            WorkloadName::Tatp => "tatp",
            WorkloadName::Tpcc => "tpcc",
            WorkloadName::Commit => "commit",
        }
    }

    /// The disks that it runs on.
    pub fn disks(self) -> String {
        let regimes = REGIMES.iter().filter(|_| self == WorkloadName::Commit);
        let regimes = regimes.map(|regime| (regime.name, format!("{}, in virtual time", regime.meaning)));
        // A regime stands for more than a disk: it takes the place of the disk of its name.
        let simulated = SimulatedDisk::names().map(|(name, meaning)| (name, meaning.to_owned()));
        let simulated = simulated.filter(|(name, _)| self != WorkloadName::Commit || regime(name).is_none());
        let names = regimes.chain(simulated).map(|(name, meaning)| format!("\n  sim:{name}: {meaning}"));
        format!("\n  file\n  memory{}", names.collect::<String>())
    }
}

/// The regime of virtual time of this name.
pub fn regime(name: &str) -> Option<&'static Regime> {
    REGIMES.iter().find(|regime| regime.name == name)
}

/// What goes into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoggingName {
    /// What has changed: of a row the changed columns if they all have a fixed length, otherwise the whole row
    Value,
    /// The same, but of an addition to an integer column only the amount
    Action,
    /// Calls of procedures, which recovery runs again; needs --checkpoint tccou, tcbw or none
    Transaction,
    /// Nothing, to measure what logging costs: nothing is durable until the end of the run, which makes a checkpoint;
    /// needs --checkpoint none
    None,
}

impl From<LoggingName> for Logging {
    fn from(name: LoggingName) -> Logging {
        match name {
            LoggingName::Value => Logging::Value,
            LoggingName::Action => Logging::Action,
            LoggingName::Transaction => Logging::Transaction,
            LoggingName::None => Logging::None,
        }
    }
}

/// Where the tables live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ResidenceName {
    /// In memory
    Memory,
    /// On disk, with as many pages in memory as --cache-bytes has room for
    Disk,
}

impl From<ResidenceName> for Residence {
    fn from(name: ResidenceName) -> Residence {
        match name {
            ResidenceName::Memory => Residence::Memory,
            ResidenceName::Disk => Residence::Disk,
        }
    }
}

/// Where the database's files lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskName {
    /// In a directory.
    File,
    /// In memory.
    Memory,
    /// On a simulated device.
    Simulated(String),
}

impl FromStr for DiskName {
    type Err = String;

    fn from_str(text: &str) -> Result<DiskName, String> {
        let simulated =
            |name: &str| SimulatedDisk::names().any(|(preset, _)| preset == name) || regime(name).is_some();
        match text {
            "file" => Ok(DiskName::File),
            "memory" => Ok(DiskName::Memory),
            _ => match text.strip_prefix("sim:") {
                Some(name) if simulated(name) => Ok(DiskName::Simulated(name.to_owned())),
                _ => {
                    let [tpcb, commit] = [WorkloadName::Tpcb, WorkloadName::Commit].map(WorkloadName::disks);
                    Err(format!(
                        "no such disk; available for tpcb, card, tatp and tpcc:{tpcb}\nfor commit:{commit}"
                    ))
                }
            },
        }
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskName::File => f.write_str("file"),
            DiskName::Memory => f.write_str("memory"),
            DiskName::Simulated(name) => write!(f, "sim:{name}"),
        }
    }
}

/// The load that an open loop offers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Transactions a second.
    PerSecond(f64),
    /// Percent of what a closed loop reaches, measured first.
    PercentOfPeak(f64),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let (number, rate): (&str, fn(f64) -> Rate) = match text.strip_suffix('%') {
            Some(number) => (number, Rate::PercentOfPeak),
            None => (text, Rate::PerSecond),
        };
        match number.parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => Ok(rate(number)),
            _ => {
                Err("expected transactions a second (12000), or a share of the peak (80%), above zero"
                    .to_owned())
            }
        }
    }
}
