//! `rialto check` and `rialto inspect`, for a data directory that no program has open.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use rialto::checkpoint::home::{HOME_FILE, HomeError, HomeFile};
use rialto::io::{Disk, DiskError, FileDisk};
use rialto::recovery::{check, inspect};
use rialto::{Error, OpenError, Options};

use crate::args::MemoryArgs;
use crate::output::{fail, print};

/// The directory, and a bound.
#[derive(Debug, Args)]
pub struct OfflineArgs {
    /// The data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Why a directory could not be read, and the exit code.
struct Unusable {
    text: String,
    code: u8,
}

impl Unusable {
    fn of_disk(path: &Path, error: &DiskError) -> Unusable {
        let error = OpenError::directory(&path.display().to_string(), error);
        Unusable { text: format!("cannot use {}: {error}", path.display()), code: error.exit_code() }
    }

    fn of_home(path: &Path, error: &HomeError) -> Unusable {
        let code = match error {
            HomeError::NewerVersion { .. }
            | HomeError::OlderVersion { .. }
            | HomeError::Failed(Error::Unsupported { .. } | Error::MemoryLimit { .. }) => 3,
            HomeError::Failed(Error::Corrupt { .. }) => 1,
            HomeError::Failed(_) => 4,
        };
        let what = match error {
            HomeError::Failed(Error::MemoryLimit { limit, .. }) => {
                format!("reading it takes more than --memory-bytes ({limit} bytes): give more")
            }
            error => error.to_string(),
        };
        Unusable { text: format!("{}: {what}", path.display()), code }
    }
}

/// Runs `read` on the locked directory, and prints its result.
fn on_directory(
    args: &OfflineArgs,
    read: impl FnOnce(&Arc<dyn Disk>, u64, usize) -> Result<(String, bool), HomeError>,
) -> ExitCode {
    match locked(args, read) {
        Ok((text, sound)) => print(text.trim_end(), ExitCode::from(u8::from(!sound))),
        Err(Unusable { text, code }) => fail(text, code),
    }
}

fn locked(
    args: &OfflineArgs,
    read: impl FnOnce(&Arc<dyn Disk>, u64, usize) -> Result<(String, bool), HomeError>,
) -> Result<(String, bool), Unusable> {
    let path = &args.directory;
    let disk: Arc<dyn Disk> = FileDisk::open(path).map_err(|error| Unusable::of_disk(path, &error))?;
    // Checked before the lock, which leaves a file.
    if !HomeFile::exists(&*disk).map_err(|error| Unusable::of_disk(path, &error))? {
        let text = format!("{} holds no database: it has no file \"{HOME_FILE}\"", path.display());
        return Err(Unusable { text, code: 3 });
    }
    let _lock = disk.lock().map_err(|error| Unusable::of_disk(path, &error))?;
    args.memory.warn();
    read(&disk, args.memory.bytes(), Options::default().recovery_threads)
        .map_err(|error| Unusable::of_home(path, &error))
}

/// Verifies the directory: checksums, indexes against tables, log.
pub fn run_check(args: &OfflineArgs) -> ExitCode {
    on_directory(args, |disk, memory_bytes, threads| {
        let report = check::check(disk, memory_bytes, threads)?;
        Ok((report.to_string(), report.is_sound()))
    })
}

/// Prints the contents of the directory.
pub fn run_inspect(args: &OfflineArgs) -> ExitCode {
    on_directory(args, |disk, memory_bytes, threads| {
        inspect::inspect(disk, memory_bytes, threads).map(|text| (text, true))
    })
}
