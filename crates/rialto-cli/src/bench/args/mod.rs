//! The command line of `rialto bench`.
//!
//! A value that is not built yet is no value of its option here, so that `--help` does not show it and clap answers
//! with those that are. An option that is not built at all, or that no workload here takes, is known but hidden, and
//! [`BenchArgs::check`] answers with what is available.

mod check;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args, FromArgMatches};
use rialto::log::LogOptions;
use rialto::log::virtual_time::Regime;
use rialto::{Options, TransactionServerOptions};
use rialto_workloads::mix::{Mix, Names};
use rialto_workloads::{card, tatp, tpcc};

use self::values::regime;
pub use self::values::{DiskName, LoggingName, Rate, ResidenceName, WorkloadName};
use crate::args::{DatabaseArgs, EngineName, seconds};

/// The branches, unless told otherwise.
pub const SCALE: u32 = 10;
/// The accounts, unless told otherwise.
pub const ACCOUNTS: u32 = 1_000_000;
/// Where the data is, unless told otherwise: a directory for each workload in this one.
pub const DATA: &str = "./rialto-data";

/// The options that are given on the command line, by their names, whatever their value: most have one that says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Given(Vec<String>);

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Given, clap::Error> {
        let given = matches.ids().map(clap::Id::as_str).filter(|id| {
            // The groups that clap makes have the names of types.
            id.starts_with(|first: char| first.is_ascii_lowercase())
                && matches.value_source(id) == Some(ValueSource::CommandLine)
        });
        Ok(Given(given.map(|id| id.replace('_', "-")).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl Given {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|given| given == name)
    }
}

/// Run a workload and measure it.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    // The first, because those behind it take their values away.
    #[command(flatten)]
    given: Given,
    /// What the clients run
    #[arg(value_enum)]
    pub workload: WorkloadName,
    /// Clients; each is a thread
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// Transactions that each client keeps outstanding: 1 blocks, more use tickets, and with --executor-threads calls that executor threads run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub in_flight: u32,
    /// Open loop: this many transactions a second, or percent of a peak that is measured first; latencies count from
    /// the intended start
    #[arg(long, value_name = "TPS|PCT%")]
    pub rate: Option<Rate>,
    /// How long to measure
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// How long to run before measuring (at least 0.2 s, in which the growth is judged)
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub warmup: Duration,
    /// Measure so often, and print the median by throughput
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repeat: u32,
    /// TPC-B: branches [default: 10]; card: times the paper's sizes [default: 1]; tatp: ten thousands of subscribers
    /// [default: 10]; tpcc: warehouses [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub scale: Option<u32>,
    /// Accounts in all, at any scale [default: 1000000; card: 40000 times the scale]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_000_000_000))]
    pub accounts: Option<u32>,
    /// Subscribers in all, in place of --scale (tatp) [default: 10000 times the scale]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_000_000_000))]
    pub subscribers: Option<u32>,
    /// Items, and stocks of each warehouse, for a smaller TPC-C than the specification's (tpcc) [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub items: Option<u32>,
    /// Customers of each district, and orders that it is loaded with, for a smaller TPC-C than the specification's (tpcc)
    /// [default: 3000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=3_000))]
    pub customers: Option<u32>,
    /// How often each transaction is run, in percent that add up to 100; what is not named is not run [default of card:
    /// BAL=17,CCCK=20,CLCK=20,DEBIT=20,PAY=20,MOVE=1,LOST=1,FOUND=1; of tatp: GetSubscriberData=35,GetNewDestination=10,
    /// GetAccessData=35,UpdateSubscriberData=2,UpdateLocation=14,InsertCallForwarding=2,DeleteCallForwarding=2;
    /// of tpcc: new-order=45,payment=43,order-status=4,delivery=4,stock-level=4]
    #[arg(long, value_name = "NAME=PCT,...")]
    pub mix: Option<String>,
    /// Put the load on System M's servers: message servers put requests on one queue, a transaction server runs them one at a
    /// time (card). Without it each client runs its own transactions
    #[arg(long)]
    pub servers: bool,
    /// With --servers: how many message servers; each is a thread with a response queue of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub message_servers: Option<u32>,
    /// With --servers: the length of the request queue [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue: Option<u32>,
    /// With --servers: executors that stand by for when the one that runs is blocked [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub standbys: Option<u32>,
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// What goes into the log
    #[arg(long, value_enum, default_value = "value")]
    pub logging: LoggingName,
    /// Run each transaction twice, as the procedure that --logging transaction logs, and end the run if the two write
    /// different things
    #[arg(long)]
    pub check_determinism: bool,
    /// Run each transaction as a call of a registered procedure, written once for both engines. Calls they are anyhow with
    /// --engine data-oriented, --logging transaction and --check-determinism, and in tpcc; what else runs on the
    /// conventional engine is closures
    #[arg(long)]
    pub calls: bool,
    /// Where the tables live
    #[arg(long, value_enum, default_value = "memory")]
    pub residence: ResidenceName,
    /// Where the files lie: file, memory, or sim:NAME, a simulated device over --data, or over memory without it; commit on
    /// sim:koda and sim:ssd-30us, -100us, -1ms has no files and runs in virtual time
    #[arg(long, value_name = "file|memory|sim:NAME", default_value_t = DiskName::File)]
    pub disk: DiskName,
    /// The data directory; one that holds the workload already is used (commit leaves nothing in it) [default:
    /// ./rialto-data/WORKLOAD]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where the random choices come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Measure after each window what bare code reaches with the same log bytes: a write, a group commit, a map with a
    /// log thread
    #[arg(long)]
    pub limits: bool,
    /// Compare with the same run with these options changed ('--clients 1'): pairs of runs that take turns, as many as
    /// --repeat, or 6; prints the ratios with their intervals. The other run has a directory of its own beside this one's
    #[arg(long, value_name = "OTHER ARGS", allow_hyphen_values = true)]
    pub versus: Option<String>,
    /// Compare with this program, another build of rialto; with the same options, or those changed by --versus
    #[arg(long, value_name = "PATH")]
    pub versus_binary: Option<PathBuf>,
    /// Measure nothing: read requests from the input, one a line, and answer each (card; "help" lists them)
    #[arg(long)]
    pub interactive: bool,
    /// Print the result as one JSON object, too, on the last line
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    unbuilt: Unbuilt,
}

/// What the contract names and this program does not take yet.
#[derive(Debug, Clone, Default, Args)]
struct Unbuilt {
    #[arg(long, hide = true, num_args = 0..=1)]
    cache_bytes: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1)]
    two_stage: Option<Option<String>>,
}

impl Unbuilt {
    /// The first option given, and what there is instead.
    fn given(&self) -> Option<(&'static str, &'static str)> {
        let options = [
            (self.cache_bytes.is_some(), "--cache-bytes", "--residence memory, which has no cache"),
            (self.two_stage.is_some(), "--two-stage", "--residence memory, which needs no fetch stage"),
        ];
        options.into_iter().find(|(given, ..)| *given).map(|(_, option, instead)| (option, instead))
    }
}

/// Packet slots beyond those that the clients may fill.
const PACKETS_SPARE: usize = 1_024;
const PACKETS_MAX: usize = 60_000;
const CLIENTS_SPARE: usize = 16;

impl BenchArgs {
    /// The regime of virtual time that the run is in, if it is.
    pub fn regime(&self) -> Option<&'static Regime> {
        match (self.workload, &self.disk) {
            (WorkloadName::Commit, DiskName::Simulated(name)) => regime(name),
            _ => None,
        }
    }

    /// Whether an option is on the command line, by its name without the dashes.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.has(name)
    }

    /// Reads a command line, the words behind `bench`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(line: &[String]) -> Result<BenchArgs, String> {
        let command = BenchArgs::augment_args(clap::Command::new("bench")).no_binary_name(true);
        let matches = command.try_get_matches_from(line).map_err(|error| error.to_string())?;
        BenchArgs::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    /// Whether this is a comparison of two runs.
    pub fn compares(&self) -> bool {
        self.versus.is_some() || self.versus_binary.is_some()
    }

    /// The branches, or how many times the paper's sizes.
    pub fn scale(&self) -> u32 {
        self.scale.unwrap_or(match self.workload {
            WorkloadName::Card => 1,
            WorkloadName::Tpcb | WorkloadName::Tatp | WorkloadName::Tpcc | WorkloadName::Commit => SCALE,
        })
    }

    /// The accounts.
    pub fn accounts(&self) -> u32 {
        self.accounts.unwrap_or(match self.workload {
            WorkloadName::Card => card::ACCOUNTS.saturating_mul(self.scale()),
            WorkloadName::Tpcb | WorkloadName::Tatp | WorkloadName::Tpcc | WorkloadName::Commit => ACCOUNTS,
        })
    }

    /// The subscribers.
    pub fn subscribers(&self) -> u32 {
        self.subscribers.unwrap_or_else(|| self.scale().saturating_mul(tatp::SUBSCRIBERS_PER_SCALE))
    }

    /// The sizes of TPC-C.
    pub fn tpcc_shape(&self) -> tpcc::Shape {
        tpcc::Shape {
            warehouses: self.scale(),
            items: self.items.unwrap_or(tpcc::ITEMS),
            customers: self.customers.unwrap_or(tpcc::CUSTOMERS),
        }
    }

    /// How often each of a workload's transactions is run.
    ///
    /// # Errors
    /// What is wrong with `--mix`.
    pub fn mix_of<N: Names>(&self) -> Result<Mix<N>, String> {
        self.mix.as_deref().map_or(Ok(Mix::default()), str::parse)
    }

    /// The message servers, if there are some.
    pub fn message_servers(&self) -> u32 {
        self.message_servers.unwrap_or(1)
    }

    /// The threads that make the load: clients, or message servers.
    pub fn load_threads(&self) -> u32 {
        if self.servers { self.message_servers() } else { self.clients }
    }

    /// How the transaction server is set.
    pub fn transaction_server_options(&self) -> TransactionServerOptions {
        let defaults = TransactionServerOptions::default();
        TransactionServerOptions {
            queue: self.queue.map_or(defaults.queue, |queue| queue as usize),
            standbys: self.standbys.map_or(defaults.standbys, |standbys| standbys as usize),
        }
    }

    /// Transactions in flight, over all clients.
    pub fn outstanding(&self) -> usize {
        self.clients as usize * self.in_flight as usize
    }

    /// How many transactions can be open: one a client; all in flight, where they are run by threads that own executors,
    /// each with room for a part.
    fn transactions_max(&self, default: usize) -> usize {
        let open = match self.database.executor_threads {
            None | Some(0) => self.clients as usize,
            Some(_) => (2 * self.outstanding()).min(Options::TRANSACTIONS_MAX - CLIENTS_SPARE),
        };
        default.max(open + CLIENTS_SPARE)
    }

    /// The directory, if there is one.
    pub fn directory(&self) -> Option<PathBuf> {
        match (&self.disk, &self.data) {
            (DiskName::Memory, _) | (DiskName::Simulated(_), None) => None,
            (_, Some(data)) => Some(data.clone()),
            (DiskName::File, None) => Some(PathBuf::from(DATA).join(self.workload.name())),
        }
    }

    /// What a log without a database is made with.
    pub fn log_options(&self) -> LogOptions {
        LogOptions {
            group_commit: self.database.group_commit.options(),
            caching: self.database.log_writes.caching(),
            writes_in_flight: self.database.log_writes.in_flight(),
            ..LogOptions::default()
        }
    }

    /// Whether transactions run as calls of procedures.
    pub fn runs_calls(&self) -> bool {
        self.calls
            || self.logging == LoggingName::Transaction
            || self.check_determinism
            || self.database.engine == EngineName::DataOriented
    }

    /// What the database is opened with.
    pub fn options(&self) -> Options {
        let options = self.database.options();
        Options {
            logging: self.logging.into(),
            check_determinism: self.check_determinism,
            // Whatever is logged now: what an earlier run has logged may have to be run again.
            procedures: rialto_workloads::procedures(),
            transactions_max: self.transactions_max(options.transactions_max),
            packets_max: options.packets_max.max(self.outstanding() + PACKETS_SPARE),
            ..options
        }
    }
}

#[cfg(test)]
mod tests;
