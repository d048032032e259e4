//! `rialto bench`: one call of it, from the options to the exit code.
//!
//! - [`args`]: the command line, and what does not go together;
//! - [`session`]: a run of a workload on tables; [`commit`]: of bare commit sequences;
//! - [`versus`]: a run against another, in pairs;
//! - [`interactive`]: the prompt for people.

pub mod args;
mod commit;
mod interactive;
mod session;
mod versus;

use std::io::Write;

use rialto::Database;
use rialto_measure::RunError;
use rialto_workloads::card::{self, Card, CardServers};
use rialto_workloads::tatp::{self, Tatp};
use rialto_workloads::tpcb::{self, Tpcb};
use rialto_workloads::tpcc::Tpcc;

pub use self::args::BenchArgs;
use self::args::WorkloadName;
use self::session::run_on_tables;

/// Runs the workload and writes the result to `out`; progress goes to stderr. Returns whether the data was consistent at
/// the end. Call it before the program has other threads: they would not be counted.
///
/// # Errors
/// [`RunError`], each with its exit code.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool, RunError> {
    args.check()?;
    if args.compares() {
        // The words behind the name of the command.
        let line: Vec<String> = std::env::args().skip_while(|word| word != "bench").skip(1).collect();
        return versus::run(args, &line, out).map(|()| true);
    }
    match args.workload {
        WorkloadName::Tpcb => {
            let shape = tpcb::Shape { branches: args.scale(), accounts: args.accounts() };
            run_on_tables(args, out, |database, progress| {
                let (bank, there) = Tpcb::open_or_load(database, args.residence.into(), shape, progress)?;
                Ok((bank.by_calls(args.runs_calls()), there))
            })
        }
        WorkloadName::Card => {
            let shape = card::Shape { scale: args.scale(), accounts: args.accounts() };
            let mix = args.mix_of().map_err(RunError::Usage)?;
            let open = |database: &Database, progress: &mut dyn FnMut(&str)| {
                let (card, there) =
                    Card::open_or_load(database, args.residence.into(), shape, mix, progress)?;
                Ok((card.by_calls(args.runs_calls()), there))
            };
            let open_servers = |database: &Database, progress: &mut dyn FnMut(&str)| {
                let options = args.transaction_server_options();
                CardServers::start(database, open(database, progress), &options, args.message_servers())
            };
            match () {
                () if args.interactive => interactive::run(args, out, open_servers),
                () if args.servers => run_on_tables(args, out, open_servers),
                () => run_on_tables(args, out, open),
            }
        }
        WorkloadName::Tatp => {
            let shape = tatp::Shape { subscribers: args.subscribers() };
            let mix = args.mix_of().map_err(RunError::Usage)?;
            run_on_tables(args, out, |database, progress| {
                let (tatp, there) =
                    Tatp::open_or_load(database, args.residence.into(), shape, mix, progress)?;
                Ok((tatp.by_calls(args.runs_calls()), there))
            })
        }
        WorkloadName::Tpcc => {
            let shape = args.tpcc_shape();
            let mix = args.mix_of().map_err(RunError::Usage)?;
            run_on_tables(args, out, |database, progress| {
                Tpcc::open_or_load(database, args.residence.into(), shape, mix, progress)
            })
        }
        WorkloadName::Commit => commit::run(args, out),
    }
}
