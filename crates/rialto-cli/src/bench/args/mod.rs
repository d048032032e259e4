//! The command line of `rialto bench`.
//!
//! clap knows the options and their values; [`BenchArgs::check`] refuses what does not go together, and answers with what is
//! available.

mod check;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args, FromArgMatches};
use rialto::log::LogOptions;
use rialto::log::virtual_time::Regime;
use rialto::{Engine, LockGrain, Options, TransactionServerOptions};
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

/// The names of the options that are given on the command line. Most options have a default, so their value does not
/// tell whether they are given.
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

/// Run a workload, measure it, and verify its data
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    // The first, because those behind it take their values away.
    #[command(flatten)]
    given: Given,
    /// The workload, which the clients run
    #[arg(value_enum)]
    pub workload: WorkloadName,
    /// The number of clients, each a thread
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// How many transactions each client keeps outstanding. With 1 it waits for each commit; with more it keeps
    /// their tickets, and with --executor-threads it sends calls to these threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub in_flight: u32,
    /// The rate of an open loop: transactions a second, or a percentage of the peak, which a closed loop of the
    /// same clients measures first. A latency counts from the moment at which its transaction was due
    #[arg(long, value_name = "TPS|PCT%")]
    pub rate: Option<Rate>,
    /// The length of the measured window, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// How long the clients run before the window, in seconds; at least 0.2. From the growth in this time the
    /// program judges whether the run fits into memory and log, and refuses it if not
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub warmup: Duration,
    /// How many windows are measured; the one with the median throughput is printed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repeat: u32,
    /// The size of the database. tpcb: branches [default: 10]; card: multiples of the paper's sizes [default: 1];
    /// tatp: subscribers, in units of 10000 [default: 10]; tpcc: warehouses [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub scale: Option<u32>,
    /// The number of accounts, whatever the scale (tpcb, card) [default: 1000000; card: 40000 times the scale]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_000_000_000))]
    pub accounts: Option<u32>,
    /// The number of subscribers, in place of --scale (tatp) [default: 10000 times the scale]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_000_000_000))]
    pub subscribers: Option<u32>,
    /// The number of items, and of stocks of each warehouse; fewer make a smaller database than the specification's
    /// (tpcc) [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub items: Option<u32>,
    /// The number of customers of each district, and of the orders that it is loaded with; fewer make a smaller
    /// database than the specification's (tpcc) [default: 3000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=3_000))]
    pub customers: Option<u32>,
    /// The percentage of each transaction; together they are 100, and a transaction that is not named does not run
    /// [default of card: BAL=17,CCCK=20,CLCK=20,DEBIT=20,PAY=20,MOVE=1,LOST=1,FOUND=1; of tatp:
    /// GetSubscriberData=35,GetNewDestination=10,
    /// GetAccessData=35,UpdateSubscriberData=2,UpdateLocation=14,InsertCallForwarding=2,DeleteCallForwarding=2; of
    /// tpcc: new-order=45,payment=43,order-status=4,delivery=4,stock-level=4]
    #[arg(long, value_name = "NAME=PCT,...")]
    pub mix: Option<String>,
    /// Run the load on System M's servers: message servers put requests on one queue, and a transaction server runs
    /// them one at a time (card). Without this option each client runs its own transactions
    #[arg(long)]
    pub servers: bool,
    /// With --servers: the number of message servers; each is a thread with a response queue of its own [default:
    /// 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub message_servers: Option<u32>,
    /// With --servers: the length of the request queue [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue: Option<u32>,
    /// With --servers: the number of standby threads of the transaction server; one runs the next request while the
    /// one before waits, for a lock for instance [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub standbys: Option<u32>,
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// What a commit writes to the log
    #[arg(long, value_enum, default_value = "value")]
    pub logging: LoggingName,
    /// Run each transaction twice, as the call that --logging transaction would log, and end the run if the two
    /// executions write different things
    #[arg(long)]
    pub check_determinism: bool,
    /// Run each transaction as a call of a registered procedure instead of a closure. This is always so with --engine
    /// data-oriented, --logging transaction and --check-determinism, and in tpcc
    #[arg(long)]
    pub calls: bool,
    /// Where the tables are kept
    #[arg(long, value_enum, default_value = "memory")]
    pub residence: ResidenceName,
    /// Where the files are kept. sim:NAME is a simulated device: it keeps them in the directory of --data, or in
    /// memory if that is not given. The workload commit keeps no files on sim:koda and sim:ssd-30us, -100us, -1ms;
    /// it runs there in virtual time. An unknown NAME is answered with all names
    #[arg(long, value_name = "file|memory|sim:NAME", default_value_t = DiskName::File)]
    pub disk: DiskName,
    /// With --disk sim:charm: the processor time that each run of a transaction takes, in microseconds [default: 1000]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub run_us: Option<u64>,
    /// The data directory. If it already holds the workload, that is used; commit leaves nothing in it [default:
    /// ./rialto-data/WORKLOAD]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// After each window, measure the throughput of bare code with the same log bytes: a write and its sync, a group
    /// commit, or a map whose log a second thread writes; with --residence disk also with the same reads and writes of
    /// pages
    #[arg(long)]
    pub limits: bool,
    /// Compare with the same run with these options changed ('--clients 1'). The two sides take turns, in as many pairs
    /// as
    /// --repeat says (6 if that is not given); the ratios are printed with their intervals. The other side has a directory of
    /// its own beside this one's
    #[arg(long, value_name = "OTHER ARGS", allow_hyphen_values = true)]
    pub versus: Option<String>,
    /// Compare with the program at PATH, another build of rialto, with the same options, or with those changed by
    /// --versus
    #[arg(long, value_name = "PATH")]
    pub versus_binary: Option<PathBuf>,
    /// Measure nothing: read requests from the standard input, one a line, and answer each (card; "help" lists them)
    #[arg(long)]
    pub interactive: bool,
    /// Also print the result as one JSON object, on the last line
    #[arg(long)]
    pub json: bool,
}

/// Packet slots beyond those that the clients may fill.
const PACKETS_SPARE: usize = 1_024;
const PACKETS_MAX: usize = 60_000;
const CLIENTS_SPARE: usize = 16;

impl BenchArgs {
    /// Whether the run is on a virtual machine: its seconds are virtual ones.
    pub fn is_virtual(&self) -> bool {
        self.workload != WorkloadName::Commit && self.disk == DiskName::Simulated("charm".to_owned())
    }

    /// The processor time of a run of a transaction, on a virtual machine.
    pub fn run_time(&self) -> Duration {
        Duration::from_micros(self.run_us.unwrap_or(1_000))
    }

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

    /// How many transactions can be open: one for each client, or, where threads own executors, all that are
    /// outstanding, each with room for a part.
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
            ..match self.is_virtual()
                && self.database.locks.is_none()
                && self.database.pages.lock_grain.is_none()
            {
                // As the paper has them.
                true => Options { engine: Engine::central(), lock_grain: LockGrain::Page, ..options },
                false => options,
            }
        }
    }
}

#[cfg(test)]
mod tests;
