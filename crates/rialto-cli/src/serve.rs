//! `rialto serve`: a database behind the PostgreSQL protocol.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rialto::recovery::RecoveryReport;
use rialto::{Database, Options};
use rialto_server::ServeOptions;
use tracing::info;

use crate::args::{DatabaseArgs, seconds};
use crate::event_log::{EventFilter, QUIET};
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
    /// The port of 127.0.0.1 if --listen is not given, and the number in the name of the socket file
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The directory of the socket file; without this option there is no socket file
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
    /// The most connections at a time, including those that have not sent their start-up packets yet
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_connections: usize,
    /// The time in seconds that a client has to read 256 KiB, or all that is waiting for it, and to send each 256 KiB
    /// of a message or line of more than 1 MiB. A session that takes longer is ended; 0 for no limit
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    write_timeout_s: Duration,
    /// The time in seconds that a client has for its start-up packets
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    startup_timeout_s: Duration,
    /// Which events are printed on stderr: a level (off, error, warn, info, debug, trace), or TARGET=LEVEL, several of
    /// them with commas
    #[arg(long, value_name = "LEVEL|FILTER", default_value = QUIET)]
    log: EventFilter,
}

impl ServeArgs {
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
        let options = self.database.options();
        Options {
            transactions_max: options
                .transactions_max
                .max(self.max_connections.saturating_add(TRANSACTIONS_SPARE))
                // The server refuses too many connections.
                .min(Options::TRANSACTIONS_MAX),
            progress: Some(Arc::new(|text: &str| tell(format_args!("  {text}")))),
            ..options
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub fn serve(args: &ServeArgs) -> ExitCode {
    if let Some(misuse) = args.database.misuse() {
        return fail(misuse, 2);
    }
    let log = match args.log.print() {
        Ok(log) => log,
        Err(error) => return fail(format_args!("starting the log: {error}"), 4),
    };
    args.database.memory.warn();
    info!(bound = &*args.database.memory.describe(), "memory of tables and indexes");
    // Before the log opens its files.
    rialto_server::raise_open_files();
    let database = match Database::open_with(&args.data, args.database_options()) {
        Ok(database) => database,
        Err(error) => {
            drop(log);
            let text = format_args!("cannot open {}: {}", args.data.display(), cannot_open(&error));
            return fail(text, error.exit_code());
        }
    };
    for warning in database.recovery().into_iter().flat_map(RecoveryReport::warnings) {
        tell(format_args!("warning: {}: {warning}", args.data.display()));
    }
    let served = rialto_server::serve(database, args.serve_options());
    // The last word is the program's.
    drop(log);
    match served {
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
    fn options_of_the_database_and_connections() {
        let options = |line: &str| arguments(line).database_options();
        let defaults = Options::default();
        assert_eq!(options("").log_bytes_max, defaults.log_bytes_max);
        for wrong in ["--two-stage never", "--page-bytes 5000", "--cache-bytes 5000"] {
            assert!(Command::try_parse_from(std::iter::once("serve").chain(wrong.split(' '))).is_err());
        }
        let given = options("--log-bytes-max 20000000 --memory-bytes 30000000 --max-connections 2000");
        assert_eq!((given.log_bytes_max, given.memory_bytes), (20_000_000, 30_000_000));
        assert_eq!(
            (options("").transactions_max, given.transactions_max),
            (defaults.transactions_max, 2_016)
        );
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
