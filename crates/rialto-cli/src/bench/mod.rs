//! `rialto bench`: one call of it, from the options to the exit code.
//!
//! - [`args`]: the command line, and what does not go together;
//! - [`session`]: a run of a workload on tables; [`commit`]: of bare commit sequences;
//! - [`versus`]: a run against another, in pairs;
//! - [`cluster`]: a run against the nodes of a cluster, over the network;
//! - [`smallbase`]: clusters of processes that the run starts, with clients in each node;
//! - [`interactive`]: the prompt for people.

pub mod args;
mod cluster;
mod commit;
mod interactive;
mod session;
mod smallbase;
mod versus;

use std::io::Write;

use clap::{Args, FromArgMatches, Subcommand};
use rialto::Database;
use rialto_measure::RunError;
use rialto_smallbase::spec::WorkloadName as SmallbaseName;
use rialto_workloads::card::{self, Card, CardServers};
use rialto_workloads::tatp::{self, Tatp};
use rialto_workloads::tpcb::{self, Tpcb};
use rialto_workloads::tpcc::Tpcc;

use self::args::{BenchArgs, WorkloadName};
use self::cluster::ClusterBenchArgs;
use self::session::run_on_tables;
use self::smallbase::{NodeArgs, SmallbaseArgs};

/// The command line of `rialto bench`: a workload on a database in this process, or on a cluster.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct BenchCommand {
    // Before the subcommand, which takes itself out of what was matched.
    #[command(flatten)]
    here: Here,
    #[command(subcommand)]
    nodes: Option<OverNodes>,
}

/// The options of a workload in this process; none if there is one on a cluster.
#[derive(Debug)]
struct Here(Option<BenchArgs>);

impl FromArgMatches for Here {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Here, clap::Error> {
        match matches.subcommand_name() {
            Some(_) => Ok(Here(None)),
            None => BenchArgs::from_arg_matches(matches).map(|args| Here(Some(args))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Here::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Here {
    fn augment_args(command: clap::Command) -> clap::Command {
        BenchArgs::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        BenchArgs::augment_args_for_update(command)
    }
}

/// Workloads on databases of other processes.
#[derive(Debug, Subcommand)]
enum OverNodes {
    Cluster(ClusterBenchArgs),
    Smallbase(Box<SmallbaseArgs>),
    /// Run the requests of a service control point, mostly reads, on a cluster of processes on this machine, with the
    /// options of smallbase
    Scp(Box<SmallbaseArgs>),
    SmallbaseNode(NodeArgs),
}

impl BenchCommand {
    /// Whether an interrupt asks the run to end, so that it cleans up. A prompt, a run in virtual time and a node of
    /// another process have nothing to clean up.
    pub fn is_cleaned_up(&self) -> bool {
        match (&self.nodes, &self.here.0) {
            (Some(OverNodes::SmallbaseNode(_)), _) => false,
            (_, args) => args.as_ref().is_none_or(|args| !args.interactive && args.regime().is_none()),
        }
    }
}

/// Runs a command line, as [`run`] does.
///
/// # Errors
/// [`RunError`], each with its exit code.
pub fn run_command(command: &BenchCommand, out: &mut dyn Write) -> Result<bool, RunError> {
    match (&command.nodes, &command.here.0) {
        (Some(OverNodes::Cluster(args)), _) => cluster::run(args, out),
        (Some(OverNodes::Smallbase(args)), _) => smallbase::run(args, SmallbaseName::Tpcb, out),
        (Some(OverNodes::Scp(args)), _) => smallbase::run(args, SmallbaseName::Scp, out),
        (Some(OverNodes::SmallbaseNode(args)), _) => smallbase::run_node(args),
        (None, Some(args)) => run(args, out),
        (None, None) => Err(RunError::Usage("name a workload; --help lists them".to_owned())),
    }
}

/// Runs the workload and writes the result to `out`; progress goes to stderr. Returns whether the data was consistent
/// at the end. Call it before the program has other threads: they would not be counted.
///
/// # Errors
/// [`RunError`], each with its exit code.
fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool, RunError> {
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
