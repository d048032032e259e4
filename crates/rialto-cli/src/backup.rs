//! `rialto backup` and `rialto restore`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args};
use rialto::backup::{Archive, Backup, Restore, RestoreTo};
use rialto::recovery::RecoveryReport;
use rialto::row::Timestamp;
use rialto::{BackupKind, BackupReport, Checkpointing, Database, Error, Lsn, OpenError, Options};

use crate::client::{self, Failure};
use crate::output::{fail, print, tell};

/// Take a backup: of a directory that nobody has open, or of a server's database while it serves
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("of").required(true).args(["data", "connect", "socket"]))]
pub struct BackupArgs {
    /// The data directory, which nobody has open
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The server that has the database open
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// The same, by its socket file
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A directory for the backup, of the machine that has the data; - is standard output, with --data only
    #[arg(long, value_name = "DIR|-")]
    to: PathBuf,
    /// Only what has changed since the server's last backup; a full one if it took none since it began
    #[arg(long, conflicts_with = "data")]
    incremental: bool,
    /// The bound on the memory that a directory's tables may take [default: three quarters of the machine's]
    #[arg(long, value_name = "N", requires = "data")]
    memory_bytes: Option<u64>,
}

/// Make a database of a backup, the increments on it, and the archived log
///
/// Calls in an archived log (transaction logging) are run again by their procedures: those of `rialto bench` it knows, others
/// a program restores by the library (Restore::procedures).
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory of a full backup; - is standard input
    #[arg(long, value_name = "DIR|-")]
    from: PathBuf,
    /// The directory of an increment on it; several in the order in which they were taken
    #[arg(long, value_name = "DIR")]
    incremental: Vec<PathBuf>,
    /// The archive with the log that follows: restores to its end, unless told otherwise
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Up to this time, in UTC: "2026-11-21 20:15:00", or with a fraction of a second; refused if the log comes to it twice,
    /// because the machine's clock was set back
    #[arg(long, value_name = "TIME", conflicts_with = "to_lsn")]
    to_time: Option<Timestamp>,
    /// Up to this place in the log
    #[arg(long, value_name = "N")]
    to_lsn: Option<u64>,
    /// The directory for the database, new or empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The bound on the memory that redoing the archived log may take [default: three quarters of the machine's]
    #[arg(long, value_name = "N")]
    memory_bytes: Option<u64>,
}

fn failed_to_open(path: &Path, error: &OpenError) -> ExitCode {
    fail(format_args!("{}: {error}", path.display()), error.exit_code())
}

/// Takes a backup.
pub fn backup(args: &BackupArgs) -> ExitCode {
    match (&args.data, &args.connect, &args.socket) {
        (Some(data), ..) => offline(args, data),
        (_, Some(address), _) => online(args, address, client::at_address(address)),
        (_, _, Some(path)) => online(args, &path.display().to_string(), client::at_socket(path)),
        (None, None, None) => unreachable!("one of the three is required"),
    }
}

fn offline(args: &BackupArgs, data: &Path) -> ExitCode {
    let defaults = Options::default();
    let options = Options {
        create: false,
        checkpoint: Checkpointing::None,
        memory_bytes: args.memory_bytes.unwrap_or(defaults.memory_bytes),
        // Calls that are in the log can only be run again by who knows them.
        procedures: rialto_bench::procedures(),
        ..defaults
    };
    let database = match Database::open_with(data, options) {
        Ok(database) => database,
        Err(error) => return failed_to_open(data, &error),
    };
    for warning in database.recovery().into_iter().flat_map(RecoveryReport::warnings) {
        tell(format_args!("warning: {}: {warning}", data.display()));
    }
    let taken = match args.to.as_os_str() == "-" {
        true => {
            let mut out = io::stdout().lock();
            database.backup_to(&mut out, BackupKind::Full).and_then(|report| flushed(&mut out, report))
        }
        false => database.backup(&args.to, BackupKind::Full),
    };
    let closed = database.close();
    match taken.and_then(|report| closed.map(|()| report)) {
        // Standard output may be the backup.
        Ok(report) => {
            tell(report);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let code = if matches!(error, Error::Unsupported { .. }) { 3 } else { 4 };
            fail(&error, code)
        }
    }
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

fn online(args: &BackupArgs, server: &str, stream: io::Result<Box<dyn client::Stream>>) -> ExitCode {
    if args.to.as_os_str() == "-" {
        return fail("--to - needs --data: a server writes its backup to a directory of its machine", 2);
    }
    let to = match std::path::absolute(&args.to) {
        Ok(to) => to,
        Err(error) => return fail(format_args!("--to {}: {error}", args.to.display()), 2),
    };
    let Some(path) = to.to_str() else {
        let what = "the path is not UTF-8, and a server is told of no other; use another directory";
        return fail(format_args!("--to {}: {what}", to.display()), 2);
    };
    let incremental = if args.incremental { " INCREMENTAL" } else { "" };
    let path = path.replace('\'', "''");
    let statement = format!("BACKUP{incremental} TO '{path}'");
    let done = stream.map_err(Failure::from).and_then(|mut stream| client::execute(&mut *stream, &statement));
    match done {
        Ok(notices) => {
            notices.iter().for_each(tell);
            ExitCode::SUCCESS
        }
        Err(Failure::Refused(why)) => fail(format_args!("the server at {server} says: {why}"), 3),
        Err(Failure::Connection(error)) => fail(format_args!("no connection to {server}: {error}"), 4),
    }
}

fn source(path: &Path) -> Result<Backup, OpenError> {
    match path.as_os_str() == "-" {
        true => Ok(Backup::stream("standard input", io::stdin())),
        false => Backup::in_directory(path),
    }
}

/// Restores.
pub fn restore(args: &RestoreArgs) -> ExitCode {
    let paths = std::iter::once(&args.from).chain(&args.incremental);
    let backups = match paths.map(|path| source(path)).collect::<Result<Vec<_>, _>>() {
        Ok(backups) => backups,
        Err(error) => return fail(&error, error.exit_code()),
    };
    let mut plan = Restore::new(backups);
    plan.archive = args.archive.as_ref().map(Archive::directory);
    plan.memory_bytes = args.memory_bytes.unwrap_or(plan.memory_bytes);
    plan.procedures = rialto_bench::procedures();
    plan.to = match (args.to_time, args.to_lsn) {
        (Some(time), _) => RestoreTo::Time(system_time(time)),
        (_, Some(place)) => RestoreTo::Place(Lsn(place)),
        (None, None) => RestoreTo::End,
    };
    match plan.to_directory(&args.data) {
        Ok(report) => print(report, ExitCode::SUCCESS),
        Err(error) => fail(&error, error.exit_code()),
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time.0.max(0) as u64)
}
