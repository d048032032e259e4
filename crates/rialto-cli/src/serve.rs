//! `rialto serve`: a database behind the PostgreSQL protocol.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rialto::backup::Archive;
use rialto::recovery::RecoveryReport;
use rialto::{Database, Engine, Executors, Options};
use rialto_server::ServeOptions;

use crate::args::{DurabilityName, EngineName, GroupCommitArgs, LogWritesArgs, seconds};
use crate::output::{cannot_open, fail, tell};

/// The default data directory.
const DATA: &str = "./rialto-data/server";
/// Transactions beyond one for each connection.
const TRANSACTIONS_SPARE: usize = 16;

/// An address, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Listen {
    Nowhere,
    At(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        if text == "none" {
            return Ok(Listen::Nowhere);
        }
        let addresses =
            text.to_socket_addrs().map_err(|error| format!("{error}; expected HOST:PORT or none"))?;
        let address = addresses.into_iter().next();
        address
            .map(Listen::At)
            .ok_or_else(|| "the name has no address; expected HOST:PORT or none".to_owned())
    }
}

/// Serve a database to PostgreSQL clients
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The data directory; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// The loopback address to listen on; port 0 picks a free one [default: 127.0.0.1:5432]
    #[arg(long, value_name = "HOST:PORT|none")]
    listen: Option<Listen>,
    /// The port of 127.0.0.1 if there is no --listen, and the number in the name of the socket file
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The directory of the socket file; without this option there is no socket file
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// The durability of commits in sessions that do not set rialto.durability
    #[arg(long, value_enum, default_value = "disk")]
    durability: DurabilityName,
    /// The engine that runs transactions
    #[arg(long, value_enum, default_value = "conventional")]
    engine: EngineName,
    /// With --engine data-oriented: the number of executors among which the keys of each index are divided [default:
    /// 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    executors: Option<u16>,
    #[command(flatten)]
    group_commit: GroupCommitArgs,
    #[command(flatten)]
    log_writes: LogWritesArgs,
    /// The number of backup copies of the tables; with three, the database can always do without a damaged one
    #[arg(long, value_name = "2|3", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=3))]
    backup_copies: u32,
    /// The longest time that a recovery should take, in seconds: a checkpoint begins when the log to redo requires
    /// one [default: none]
    #[arg(long, value_name = "S", value_parser = seconds)]
    recovery_within_s: Option<Duration>,
    /// The bound on the log on disk, in bytes: at half of it a checkpoint begins, at the bound transactions wait
    /// [default: 4 GiB]
    #[arg(long, value_name = "N")]
    log_bytes_max: Option<u64>,
    /// The bound on the memory of tables and indexes, in bytes [default: three quarters of the machine's]
    #[arg(long, value_name = "N")]
    memory_bytes: Option<u64>,
    /// The directory to which log files are copied before a checkpoint frees them; the rest is copied when the server
    /// ends
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// The most connections at a time, including those that have not sent their start-up packets yet
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_connections: usize,
    /// The time in seconds that a client has to read 256 KiB, or all that is waiting for it. It also has this time
    /// to send each 256 KiB of a message or line of more than 1 MiB. A session that takes longer is ended; 0 for no
    /// limit
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    write_timeout_s: Duration,
    /// The time in seconds that a client has for its start-up packets
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    startup_timeout_s: Duration,
}

impl ServeArgs {
    /// The error of options that exclude each other, if they do.
    fn misuse(&self) -> Option<&'static str> {
        (self.executors.is_some() && self.engine == EngineName::Conventional).then_some(
            "--executors does not apply to the conventional engine; available: --engine data-oriented",
        )
    }

    fn serve_options(&self) -> ServeOptions {
        let defaults = ServeOptions::default();
        let listen = match (self.listen, self.port) {
            (Some(Listen::Nowhere), _) => None,
            (Some(Listen::At(address)), _) => Some(address),
            (None, Some(port)) => Some(SocketAddr::from(([127, 0, 0, 1], port))),
            (None, None) => defaults.listen,
        };
        ServeOptions {
            listen,
            socket_dir: self.socket_dir.clone(),
            port: self.port.unwrap_or(0),
            max_connections: self.max_connections,
            startup_timeout: self.startup_timeout_s,
            write_timeout: self.write_timeout_s,
            drain_timeout: ServeOptions::default().drain_timeout,
            data_label: self.data.display().to_string(),
        }
    }

    fn database_options(&self) -> Options {
        let defaults = Options::default();
        Options {
            durability: self.durability.into(),
            log_bytes_max: self.log_bytes_max.unwrap_or(defaults.log_bytes_max),
            memory_bytes: self.memory_bytes.unwrap_or(defaults.memory_bytes),
            engine: match self.engine {
                EngineName::Conventional => defaults.engine,
                EngineName::DataOriented => {
                    let defaults = Executors::default();
                    let count = self.executors.map_or(defaults.count, usize::from);
                    Engine::DataOriented(Executors { count, ..defaults })
                }
            },
            group_commit: self.group_commit.options(),
            recovery_within: self.recovery_within_s,
            log_writes: self.log_writes.caching(),
            log_writes_in_flight: self.log_writes.in_flight(),
            transactions_max: defaults
                .transactions_max
                .max(self.max_connections.saturating_add(TRANSACTIONS_SPARE))
                // The server refuses too many connections.
                .min(Options::TRANSACTIONS_MAX),
            backup_copies: self.backup_copies,
            archive: self.archive.as_ref().map(Archive::directory),
            progress: Some(Arc::new(|text: &str| tell(format_args!("  {text}")))),
            ..defaults
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub fn serve(args: &ServeArgs) -> ExitCode {
    if let Some(misuse) = args.misuse() {
        return fail(misuse, 2);
    }
    // Before the log opens its files.
    rialto_server::raise_open_files();
    let database = match Database::open_with(&args.data, args.database_options()) {
        Ok(database) => database,
        Err(error) => {
            let text = format_args!("cannot open {}: {}", args.data.display(), cannot_open(&error));
            return fail(text, error.exit_code());
        }
    };
    for warning in database.recovery().into_iter().flat_map(RecoveryReport::warnings) {
        tell(format_args!("warning: {}: {warning}", args.data.display()));
    }
    match rialto_server::serve(database, args.serve_options()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, error.exit_code()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn arguments(line: &str) -> ServeArgs {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).serve
    }

    fn options(line: &str) -> ServeOptions {
        arguments(line).serve_options()
    }

    #[test]
    fn bounds_of_log_and_memory() {
        let bounds = |line: &str| {
            let options = arguments(line).database_options();
            (options.log_bytes_max, options.memory_bytes)
        };
        let defaults = Options::default();
        assert_eq!(bounds(""), (defaults.log_bytes_max, defaults.memory_bytes));
        assert_eq!(bounds("--log-bytes-max 20000000 --memory-bytes 30000000"), (20_000_000, 30_000_000));
    }

    #[test]
    fn engines() {
        let engine = |line: &str| arguments(line).database_options().engine;
        assert_eq!(engine(""), Engine::thin());
        assert_eq!(engine("--engine data-oriented"), Engine::data_oriented());
        assert_eq!(engine("--engine data-oriented --executors 7"), Executors::of(7, 0).into());
    }

    #[test]
    fn where_it_listens() {
        let at = |line: &str| {
            let options = options(line);
            (options.listen.map(|address| address.to_string()), options.port)
        };
        let text = |address: &str| Some(address.to_owned());
        assert_eq!(at(""), (text("127.0.0.1:5432"), 0));
        assert_eq!(at("--port 6000"), (text("127.0.0.1:6000"), 6000));
        assert_eq!(at("--listen [::1]:7000 --port 6000"), (text("[::1]:7000"), 6000));
        assert_eq!(at("--listen none --port 6000 --socket-dir /tmp"), (None, 6000));
        assert!("nowhere".parse::<Listen>().unwrap_err().contains("HOST:PORT"));
    }
}
