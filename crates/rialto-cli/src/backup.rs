//! `rialto backup` and `rialto restore`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args};
use rialto::backup::{Archive, Backup, Restore, RestoreTo};
use rialto::io::DirectoryHolder;
use rialto::recovery::RecoveryReport;
use rialto::row::Timestamp;
use rialto::{
    BackupOptions, BackupReport, Checkpointing, Database, Error, Lsn, OpenError, Options, Procedure,
};

use crate::args::{CacheArgs, MemoryArgs};
use crate::client::{self, Failure, Session, Stream};
use crate::copy_progress::ProgressArgs;
use crate::interrupt::{INTERRUPTED, Interrupts};
use crate::output::{cannot_open, fail, print, tell};

/// The time between two requests to cancel: a server ignores a request that comes before the statement.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);
/// The SQLSTATE of a statement that was cancelled.
const CANCELLED: &str = "57014";

/// Take a backup: of a directory that no program has open, or of a server's database while it serves
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("of").required(true).args(["data", "connect", "socket"]))]
pub struct BackupArgs {
    /// The data directory, which no program has open
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The server that has the database open
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// The server, by its socket file
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The directory for the backup, on the machine that has the data; - is standard output, with --data only
    #[arg(long, value_name = "DIR|-")]
    to: PathBuf,
    /// Back up only the changes since the server's last backup; a full backup if the server has taken none since
    /// its start
    #[arg(long, conflicts_with = "data")]
    incremental: bool,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    progress: ProgressArgs,
}

/// Make a database from a backup, the increments on it, and the archived log
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory of a full backup; - is standard input
    #[arg(long, value_name = "DIR|-")]
    from: PathBuf,
    /// The directory of an increment on the full backup; several are given in the order in which they were taken
    #[arg(long, value_name = "DIR")]
    incremental: Vec<PathBuf>,
    /// The archive with the log that follows the backup; it is restored to its end unless --to-time or --to-lsn is
    /// given
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Restore up to this time, in UTC: "2026-11-21 20:15:00", or with a fraction of a second; refused if the log has
    /// this time twice, because the machine's clock was set back
    #[arg(long, value_name = "TIME", conflicts_with = "to_lsn")]
    to_time: Option<Timestamp>,
    /// Restore up to this place in the log (an LSN)
    #[arg(long, value_name = "N")]
    to_lsn: Option<u64>,
    /// The directory for the database, new or empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    progress: ProgressArgs,
}

fn failed_to_open(path: &Path, error: &OpenError) -> ExitCode {
    fail(format_args!("{}: {}", path.display(), cannot_open(error)), error.exit_code())
}

fn no_signals(error: &io::Error) -> ExitCode {
    fail(format_args!("waiting for Ctrl-C: {error}"), 4)
}

/// Takes a backup.
pub fn backup(args: &BackupArgs, procedures: Vec<Procedure>) -> ExitCode {
    let is_stream = args.to.as_os_str() == "-";
    let interrupts = match Interrupts::end(move || match is_stream {
        true => "interrupted: the stream is not complete, and is no backup".to_owned(),
        false => "interrupted: no backup was begun".to_owned(),
    }) {
        Ok(interrupts) => interrupts,
        Err(error) => return no_signals(&error),
    };
    if args.data.is_none() && args.memory.is_given() {
        return fail("--memory-bytes needs --data: a server has a bound of its own", 2);
    }
    if args.data.is_none() && args.cache.is_given() {
        return fail("--cache-bytes needs --data: a server has a cache of its own", 2);
    }
    match (&args.data, &args.connect, &args.socket) {
        (Some(data), ..) => offline(args, procedures, data, &interrupts),
        (_, Some(address), _) => {
            let address = address.clone();
            online(args, &address.clone(), &interrupts, move || client::at_address(&address))
        }
        (_, _, Some(path)) => {
            let path = path.clone();
            online(args, &path.display().to_string(), &interrupts, move || client::at_socket(&path))
        }
        (None, None, None) => unreachable!("one of the three is required"),
    }
}

fn offline(args: &BackupArgs, procedures: Vec<Procedure>, data: &Path, interrupts: &Interrupts) -> ExitCode {
    args.memory.warn();
    let options = Options {
        create: false,
        checkpoint: Checkpointing::None,
        memory_bytes: args.memory.bytes(),
        cache_bytes: args.cache.bytes(),
        // Calls in the log can run again only by their procedures.
        procedures,
        ..Options::default()
    };
    let database = match Database::open_with(data, options) {
        Ok(database) => database,
        Err(error @ OpenError::Locked { .. }) => {
            let online = online_instead(&error);
            return fail(format_args!("{}: {error}{online}", data.display()), error.exit_code());
        }
        Err(error) => return failed_to_open(data, &error),
    };
    let observer = args.progress.observer("backed up");
    for warning in database.recovery().into_iter().flat_map(RecoveryReport::warnings) {
        tell(format_args!("warning: {}: {warning}", data.display()));
    }
    let taken = match args.to.as_os_str() == "-" {
        true => {
            let mut out = io::stdout().lock();
            let options = BackupOptions { observer, ..BackupOptions::default() };
            database.backup_to(&mut out, options).and_then(|report| flushed(&mut out, report))
        }
        false => {
            let cancelled = Arc::new(AtomicBool::new(false));
            let cancels = cancelled.clone();
            interrupts
                .ask("interrupted: the backup is given up", move || cancels.store(true, Ordering::SeqCst));
            let options = BackupOptions { cancelled: Some(&cancelled), observer, ..BackupOptions::default() };
            database.backup(&args.to, options)
        }
    };
    let closed = database.close();
    match taken.and_then(|report| closed.map(|()| report)) {
        // The report goes to stderr: standard output may be the backup.
        Ok(report) => {
            tell(report);
            ExitCode::SUCCESS
        }
        Err(Error::Cancelled) if interrupts.has_asked() => fail(
            format_args!("interrupted: nothing is left of the backup in {}", args.to.display()),
            INTERRUPTED,
        ),
        Err(error) => {
            let code = if matches!(error, Error::Unsupported { .. }) { 3 } else { 4 };
            fail(&error, code)
        }
    }
}

/// How the directory of a process that serves it is backed up.
fn online_instead(error: &OpenError) -> String {
    let OpenError::Locked { holder: Some(DirectoryHolder { address: Some(address), .. }), .. } = error else {
        return "; a program that has it open can take the backup itself".to_owned();
    };
    let option = if address.starts_with('/') { "--socket" } else { "--connect" };
    format!("; back it up while it serves: rialto backup {option} {address} --to DIR")
}

fn flushed(out: &mut impl Write, report: BackupReport) -> rialto::Result<BackupReport> {
    let failed = |error: io::Error| Error::Io {
        file: "standard output".to_owned(),
        offset: report.bytes,
        operation: "write".to_owned(),
        cause: error.to_string(),
    };
    out.flush().map_err(failed)?;
    Ok(report)
}

/// `connect` connects to the server.
fn online(
    args: &BackupArgs,
    server: &str,
    interrupts: &Interrupts,
    connect: impl Fn() -> io::Result<Box<dyn Stream>> + Send + 'static,
) -> ExitCode {
    if args.to.as_os_str() == "-" {
        return fail("--to - needs --data: a server writes its backup to a directory of its machine", 2);
    }
    let to = match std::path::absolute(&args.to) {
        Ok(to) => to,
        Err(error) => return fail(format_args!("--to {}: {error}", args.to.display()), 2),
    };
    let Some(path) = to.to_str() else {
        let what = "the path is not UTF-8, as the statement to the server has to be; use another directory";
        return fail(format_args!("--to {}: {what}", to.display()), 2);
    };
    let incremental = if args.incremental { " INCREMENTAL" } else { "" };
    let path = path.replace('\'', "''");
    let statement = format!("BACKUP{incremental} TO '{path}'");
    let session = connect().map_err(Failure::from).and_then(|stream| Session::begin(stream, "rialto backup"));
    let done = session.and_then(|session| {
        let key = session.key().to_owned();
        interrupts.ask("interrupted: the server is asked to give the backup up", move || {
            std::thread::spawn(move || cancel_until_answered(connect, &key));
        });
        // The last notice is the report, those before it say how far the backup has come.
        let mut report = None;
        session.execute(&statement, |notice| match args.progress.is_quiet() {
            true => report = Some(notice),
            false => tell(notice),
        })?;
        report.iter().for_each(tell);
        Ok(())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Refused { code, .. }) if code == CANCELLED && interrupts.has_asked() => {
            let nothing =
                format_args!("interrupted: the server has given the backup up, and nothing is left of it");
            fail(nothing, INTERRUPTED)
        }
        Err(Failure::Refused { message, .. }) => {
            fail(format_args!("the server at {server} says: {message}"), 3)
        }
        Err(Failure::Connection(error)) => fail(format_args!("no connection to {server}: {error}"), 4),
    }
}

/// Repeats a request to cancel the session's statement until the program ends, which it does on the server's answer.
fn cancel_until_answered(connect: impl Fn() -> io::Result<Box<dyn Stream>>, key: &[u8]) {
    loop {
        if let Err(error) = connect().and_then(|mut stream| client::cancel(&mut *stream, key)) {
            tell(format_args!("the request to cancel did not reach the server: {error}"));
        }
        std::thread::sleep(CANCEL_AGAIN);
    }
}

fn source(path: &Path) -> Result<Backup, OpenError> {
    match path.as_os_str() == "-" {
        true => Ok(Backup::stream("standard input", io::stdin())),
        false => Backup::in_directory(path),
    }
}

/// The message of an interrupted restore: what it has left.
fn left_in(data: &Path) -> String {
    let has = |name: &str| data.join(name).exists();
    match (has("restore-unfinished"), has("home")) {
        (true, false) => format!(
            "interrupted: {} holds an unfinished restore (\"restore-unfinished\"), and no database; restore to it again, which \
             starts over, or remove it",
            data.display()
        ),
        (true, true) => {
            format!("interrupted at the end of the restore: {} holds the whole database", data.display())
        }
        (false, _) => "interrupted: nothing was restored".to_owned(),
    }
}

/// Restores.
pub fn restore(args: &RestoreArgs, procedures: Vec<Procedure>) -> ExitCode {
    let data = args.data.clone();
    if let Err(error) = Interrupts::end(move || left_in(&data)) {
        return no_signals(&error);
    }
    let paths = std::iter::once(&args.from).chain(&args.incremental);
    let backups = match paths.map(|path| source(path)).collect::<Result<Vec<_>, _>>() {
        Ok(backups) => backups,
        Err(error) => return fail(cannot_open(&error), error.exit_code()),
    };
    let mut plan = Restore::new(backups);
    plan.archive = args.archive.as_ref().map(Archive::directory);
    args.memory.warn();
    plan.memory_bytes = args.memory.bytes();
    plan.cache_bytes = args.cache.bytes();
    plan.observer = args.progress.observer("restored");
    if plan.observer.is_some() {
        plan.progress = Some(Arc::new(|text: &str| tell(format_args!("  {text}"))));
    }
    plan.procedures = procedures;
    plan.to = match (args.to_time, args.to_lsn) {
        (Some(time), _) => RestoreTo::Time(system_time(time)),
        (_, Some(place)) => RestoreTo::Place(Lsn(place)),
        (None, None) => RestoreTo::End,
    };
    match plan.to_directory(&args.data) {
        Ok(report) => print(report, ExitCode::SUCCESS),
        Err(error) => fail(cannot_open(&error), error.exit_code()),
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time.0.max(0) as u64)
}
