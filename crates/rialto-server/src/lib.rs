//! `rialto serve`: the PostgreSQL protocol, spoken to any PostgreSQL client.
//!
//! [`serve`] opens the sockets, says that it is ready, and serves until SIGTERM or SIGINT. There are no roles yet, and
//! any user and database name are accepted, so it listens only on loopback and on a Unix socket. `protocol` reads and
//! writes bytes, `connection` does what messages ask for, and [`rialto_sql`] runs SQL.
//!
//! What happens to connections, to the database and at the end is told as [`tracing`] events (`events`).
//!
//! This crate reads and writes the protocol's messages itself: see
//! `docs/decisions/2026-11-21-own-protocol-messages.md`.

pub mod connection;
mod events;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod listen;
mod open_files;
pub mod protocol;
mod shared;
mod startup;

use std::future::Future;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rialto::Database;
use rialto_sql::partitions::Partitions;
use tokio::signal::unix::{SignalKind, signal};

use connection::Stream;
use listen::{Listeners, SocketFile};
pub use open_files::raise_open_files;
pub use shared::Shared;

/// How long the accepting thread may wait for a client that is turned away.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_millis(10);
/// How long connections may take to end after that. Those that are left wait for clients that do not read.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long connections may take to end whose sockets were shut down.
const CUT_TIMEOUT: Duration = Duration::from_secs(5);
/// Stack of the threads that run statements: an expression's tree is at most 500 levels high (`HEIGHT_MAX` of
/// rialto-sql).
const STACK_BYTES: usize = 8 << 20;

/// The options of `rialto serve`. A time beyond [`FOR_EVER`](rialto::io::FOR_EVER) is no limit.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The loopback address to listen on; `None` for no TCP. Port 0 picks a free one.
    pub listen: Option<SocketAddr>,
    /// The directory for the socket file `.s.PGSQL.PORT`; `None` for none.
    pub socket_dir: Option<PathBuf>,
    /// The port in the socket file's name; 0 for that of the TCP socket.
    pub port: u16,
    /// The most connections at a time, from the moment that they are accepted; at most
    /// [`Options::TRANSACTIONS_MAX`](rialto::Options::TRANSACTIONS_MAX). Each has a thread.
    pub max_connections: usize,
    /// The time that a client has for its start-up packets.
    pub startup_timeout: Duration,
    /// The time in which a client has to read 256 KiB, or all that is waiting for it, and to send 256 KiB, or the rest,
    /// of input that takes room shared by all connections; otherwise its session is ended. Zero for no limit.
    pub write_timeout: Duration,
    /// How long open transactions may take to finish when the server ends.
    pub drain_timeout: Duration,
    /// The name of the data directory in the ready line.
    pub data_label: String,
}

impl Default for ServeOptions {
    /// 127.0.0.1:5432, no socket file, 100 connections, a minute to start up and a minute to read.
    fn default() -> ServeOptions {
        ServeOptions {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 5432))),
            socket_dir: None,
            port: 0,
            max_connections: 100,
            startup_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(5),
            data_label: "memory".to_string(),
        }
    }
}

/// Why a server did not start, or failed at its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address that other machines can reach.
    #[error(
        "--listen {address}: only loopback addresses are served until there are roles; use 127.0.0.1, ::1 or a Unix socket (--listen none --socket-dir DIR)"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// No TCP and no socket file.
    #[error("--listen none without --socket-dir: there is nowhere to listen; give one of the two")]
    Nowhere,
    /// No connections, or more than there can be transactions.
    #[error("--max-connections {connections}: expected 1 to {}", rialto::Options::TRANSACTIONS_MAX)]
    Connections {
        /// As given.
        connections: usize,
    },
    /// More connections than the process may have open sockets.
    #[error(
        "--max-connections {connections}: the process may have {limit} files open (ulimit -n), which is enough for {most} connections beside the database; give at most so many, or raise the limit"
    )]
    TooManyConnections {
        /// As given.
        connections: usize,
        /// The limit on open files.
        limit: u64,
        /// The most connections under it.
        most: usize,
    },
    /// A socket directory whose name is too long.
    #[error(
        "--socket-dir: the path {} has {bytes} bytes, and a socket's has at most {}; give a shorter directory", path.display(), listen::SOCKET_PATH_BYTES_MAX
    )]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// A socket could not be opened.
    #[error("cannot listen on {place}: {cause}")]
    Listen {
        /// The address or path.
        place: String,
        /// Why.
        cause: io::Error,
    },
    /// The server's threads or signals could not be set up.
    #[error("cannot start the server: {0}")]
    Start(io::Error),
    /// The database stopped: its log could not be written. What it acknowledged is recovered when it is opened again.
    #[error("the server ends: {0}")]
    Stopped(rialto::Error),
    /// The database failed at the end.
    #[error("closing the database failed: {0}")]
    Database(#[from] rialto::Error),
}

impl ServeError {
    /// The program's exit code: 2 for usage, 4 for I/O.
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::NotLoopback { .. }
            | ServeError::Nowhere
            | ServeError::Connections { .. }
            | ServeError::TooManyConnections { .. }
            | ServeError::SocketPathTooLong { .. } => 2,
            ServeError::Listen { .. }
            | ServeError::Start(_)
            | ServeError::Stopped(_)
            | ServeError::Database(_) => 4,
        }
    }
}

/// A server whose sockets are open.
pub struct Server {
    listeners: Listeners,
    shared: Arc<Shared>,
    tcp: Option<SocketAddr>,
    drain_timeout: Duration,
    data_label: String,
}

impl Server {
    /// Opens the sockets. Call it in the runtime that will serve.
    pub async fn bind(database: Database, options: &ServeOptions) -> Result<Server, ServeError> {
        Server::bind_shared(Shared::with(database, options), options).await
    }

    /// As [`Server::bind`], for sessions over partitions. The server's end leaves the partitions as they are.
    pub async fn bind_over_partitions(
        partitions: Arc<dyn Partitions>,
        options: &ServeOptions,
    ) -> Result<Server, ServeError> {
        Server::bind_shared(Shared::over_partitions(partitions, options), options).await
    }

    async fn bind_shared(shared: Arc<Shared>, options: &ServeOptions) -> Result<Server, ServeError> {
        let connections = options.max_connections;
        let are_possible = (1..=rialto::Options::TRANSACTIONS_MAX).contains(&connections);
        if connections > 0 {
            open_files::check(connections)?;
        }
        if !are_possible {
            return Err(ServeError::Connections { connections });
        }
        let mut port = options.port;
        let tcp_only = Listeners::open(options.listen, None, 0);
        let mut listeners = match options.listen {
            Some(_) => tcp_only.await?,
            None => Listeners { tcp: None, unix: None },
        };
        let tcp =
            listeners.tcp.as_ref().map(|tcp| tcp.local_addr()).transpose().map_err(ServeError::Start)?;
        if port == 0 {
            port = tcp.map_or(5432, |address| address.port());
        }
        if options.socket_dir.is_some() || options.listen.is_none() {
            listeners.unix = Listeners::open(None, options.socket_dir.as_deref(), port).await?.unix;
        }
        // A process that finds the directory in use names the address.
        let socket = listeners.unix.as_ref().map(|(_, file)| file.path().display().to_string());
        shared
            .database
            .announce(&tcp.map_or_else(|| socket.unwrap_or_default(), |address| address.to_string()));
        let (drain_timeout, data_label) = (options.drain_timeout, options.data_label.clone());
        Ok(Server { listeners, shared, tcp, drain_timeout, data_label })
    }

    /// The address of the TCP socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// The path of the socket file.
    pub fn socket(&self) -> Option<PathBuf> {
        self.listeners.unix.as_ref().map(|(_, file)| file.path().to_path_buf())
    }

    /// `ready tcp=HOST:PORT socket=PATH data=DIR`.
    pub fn ready_line(&self) -> String {
        let tcp = self.tcp.map_or_else(|| "none".to_string(), |address| address.to_string());
        let socket = self.socket().map_or_else(|| "none".to_string(), |path| path.display().to_string());
        format!("ready tcp={tcp} socket={socket} data={}", self.data_label)
    }

    /// Serves until `stop` is done; then refuses new work, lets open transactions finish for a while, ends all
    /// connections, syncs and closes the database. If the database stops, all connections are told and ended at once.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        tracing::info!(at = self.ready_line().trim_start_matches("ready "), "serving");
        let Server { listeners, shared, drain_timeout, .. } = self;
        let watch = tokio::spawn(events::watch(shared.database.clone()));
        let stop = async {
            tokio::select! {
                () = stop => {}
                error = shared.stopped() => {
                    tracing::error!(cause = &*error.to_string(), "the database has stopped: the server ends");
                }
            }
        };
        let unix_file = accept_until(listeners, &shared, stop).await;
        tracing::info!(
            connections = shared.count(),
            "draining: new work is refused, open transactions may finish"
        );
        shared.drain();
        // An open transaction cannot commit on a database that has stopped, before now or meanwhile.
        let ended = tokio::select! {
            ended = tokio::time::timeout(drain_timeout, all_ended(&shared)) => ended.is_ok(),
            _ = shared.stopped() => false,
        };
        if !ended {
            tracing::info!(connections = shared.count(), "ending connections that are left");
            shared.end();
            if tokio::time::timeout(END_TIMEOUT, all_ended(&shared)).await.is_err() {
                tracing::info!(connections = shared.count(), "cutting off connections that do not read");
                shared.cut();
                let _ = tokio::time::timeout(CUT_TIMEOUT, all_ended(&shared)).await;
            }
        }
        drop(unix_file);
        let database = shared.database.clone();
        let stopped = database.stopped();
        watch.abort();
        let closed = match shared.closes_database() {
            true => {
                tracing::info!("syncing and closing the database");
                tokio::task::block_in_place(|| database.sync().and(database.close()))
            }
            false => Ok(()),
        };
        match &closed {
            Ok(()) if shared.closes_database() => events::shutdown!("the database is closed"),
            Ok(()) => events::shutdown!("the server has ended"),
            Err(error) => tracing::error!(cause = &*error.to_string(), "closing the database failed"),
        }
        match stopped {
            Some(error) => Err(ServeError::Stopped(error)),
            None => Ok(closed?),
        }
    }
}

async fn all_ended(shared: &Shared) {
    while shared.count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Accepts connections until `stop` is done. Then the listening sockets close; the socket file stays until it is
/// dropped.
async fn accept_until(
    listeners: Listeners,
    shared: &Arc<Shared>,
    stop: impl Future<Output = ()>,
) -> Option<SocketFile> {
    let Listeners { tcp, unix } = listeners;
    let (unix, file) = unix.unzip();
    tokio::pin!(stop);
    loop {
        let accept_tcp = async {
            match &tcp {
                Some(tcp) => tcp.accept().await,
                None => std::future::pending().await,
            }
        };
        let accept_unix = async {
            match &unix {
                Some(unix) => unix.accept().await.map(|(stream, _)| stream),
                None => std::future::pending().await,
            }
        };
        let accepted = tokio::select! {
            () = &mut stop => return file,
            accepted = accept_tcp => accepted.and_then(|(stream, peer)| {
                // Each write is a whole answer already, so the system need not gather more.
                let _ = stream.set_nodelay(true);
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                spawn(stream, peer.to_string(), shared)
            }),
            accepted = accept_unix => accepted.and_then(|stream| {
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                spawn(stream, "a Unix socket".to_owned(), shared)
            }),
        };
        if let Err(error) = accepted {
            events::not_accepted(&error);
            // Most likely file descriptors or threads have run out: other connections have to end first.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Serves a client on a thread of its own, if there is a place for it. So threads are bounded, too.
fn spawn(mut stream: impl Stream + 'static, peer: String, shared: &Arc<Shared>) -> io::Result<()> {
    let Some(place) = shared.admit(stream.closer()?) else {
        // Such a short answer fits in the socket's buffer. If the client is gone, nothing is lost.
        stream.set_write_timeout(Some(TURN_AWAY_TIMEOUT))?;
        let _ = startup::turn_away(&mut stream, shared);
        return Ok(());
    };
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name("rialto-session".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || connection::serve_admitted(stream, &peer, &shared, &place)).map(drop)
}

/// Serves the database until SIGTERM or SIGINT. Prints the ready line to stdout.
pub fn serve(database: Database, options: ServeOptions) -> Result<(), ServeError> {
    let runtime = runtime()?;
    runtime.block_on(async {
        // The server is a task of its own, so that it runs on a thread that may hand its work over.
        let serving = tokio::spawn(async move {
            let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Start)?;
            let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Start)?;
            let server = Server::bind(database, &options).await?;
            // The server serves without a reader of this line, too.
            let _ = writeln!(io::stdout(), "{}", server.ready_line());
            let stop = async {
                tokio::select! {
                    _ = terminate.recv() => events::shutdown!("shutting down: SIGTERM"),
                    _ = interrupt.recv() => events::shutdown!("shutting down: SIGINT"),
                }
            };
            server.run(stop).await
        });
        serving.await.map_err(|error| ServeError::Start(io::Error::other(error)))?
    })
}

/// A runtime for everything but connections: it accepts them, and handles signals.
pub fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("rialto-server")
        .build()
        .map_err(ServeError::Start)
}
