//! `peers`: the same TPC-B on Rialto and its peers, in one process and one run.
//!
//! | file | what |
//! |---|---|
//! | [`args`] | the command line |
//! | [`engine`] | the engines, one file each, behind two small traits |
//! | [`tpcb`], [`table`], [`record`] | the bank, as far as engines share it |
//! | [`guarantee`] | what a commit survives: a section of the result each |
//! | [`bank`] | each engine's bank in a run, and whose turn it is |
//! | [`slice`](mod@slice) | one engine's clients for some seconds |
//! | [`section`], [`report`] | throughputs: the rounds; the table, the ratios, the JSON |
//! | [`curve`], [`picture`] | latency against offered load: the open loops; what is drawn |
//! | [`recovery`] | memory, recovery after SIGKILL, the first commit |
//! | [`disk`] | tables much larger than memory, each engine within the same memory limit |
//! | [`performance`] | the figures of `docs/performance.md` |
//! | [`step`], [`size`] | loads, memory and kills in processes of their own |
//!
//! Histograms, medians, tables, JSON and pictures are those of `rialto-measure`.
//!
//! Results go to stdout, progress and errors to stderr.

mod args;
mod bank;
mod curve;
mod disk;
mod engine;
mod error;
mod guarantee;
mod performance;
mod picture;
mod record;
mod recovery;
mod report;
mod section;
mod size;
mod slice;
mod step;
mod table;
mod tpcb;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use serde_json::Value as Json;

use crate::args::{Args, Command, CurveArgs, PerformanceArgs, RecoveryArgs};
use crate::curve::Curve;
use crate::disk::Measurement;
use crate::disk::args::DiskArgs;
use crate::error::{PeerError, Result};
use crate::recovery::Recovery;
use crate::report::Report;
use crate::section::Section;

// As in the program of the engine; C and C++ engines have the C library's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The directory of this run, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(data: &Path) -> Result<Scratch> {
        let path = data.join(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|cause| PeerError::Files { during: format!("creating {}", path.display()), cause })?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} is left over: {error}", self.0.display());
        }
    }
}

/// Prints a result; gives whether all banks add up.
fn print(has_json: bool, table: &str, json: impl FnOnce() -> Json, consistent: bool) -> bool {
    print!("{table}");
    if has_json {
        println!("{}", rialto_measure::json::line(&json()));
    }
    consistent
}

fn throughputs(args: &Args) -> Result<bool> {
    args.common.shape()?;
    let scratch = Scratch::new(&args.common.data)?;
    let mut sections = Vec::new();
    for &guarantee in args.guarantees() {
        let directory = scratch.0.join(guarantee.name());
        sections.push(Section::measure(args, guarantee, &directory)?);
        std::fs::remove_dir_all(&directory).map_err(|cause| PeerError::Files {
            during: format!("removing {}", directory.display()),
            cause,
        })?;
    }
    let report = Report::new(args, sections)?;
    Ok(print(args.common.json, &report.table(), || report.json(), report.consistent()))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|cause| PeerError::Named { during: format!("reading {}", path.display()), cause })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|cause| PeerError::Named { during: format!("writing {}", path.display()), cause })
}

/// The last line of a file.
fn read_curve(path: &Path) -> Result<Curve> {
    let text = read(path)?;
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|problem| {
        PeerError::Usage(format!("{}: its last line is no curve: {problem}", path.display()))
    })
}

fn curve(args: &CurveArgs) -> Result<bool> {
    let curve = match &args.from {
        Some(path) => read_curve(path)?,
        None => Curve::measure(args, &Scratch::new(&args.common.data)?.0)?,
    };
    if let Some(path) = &args.svg {
        let picture = picture::draw(&curve)
            .ok_or_else(|| PeerError::Usage("there is no point to draw (--engines, --rates)".to_owned()))?;
        write(path, &picture.svg()?)?;
    }
    Ok(print(args.common.json, &curve.table(), || curve.json(), curve.consistent()))
}

fn recovery(args: &RecoveryArgs) -> Result<bool> {
    let recovery = Recovery::measure(args, &Scratch::new(&args.common.data)?.0)?;
    Ok(print(args.common.json, &recovery.table(), || recovery.json(), recovery.consistent()))
}

fn disk(args: &DiskArgs) -> Result<bool> {
    if let Some(directory) = &args.serve {
        return disk::serve(args, directory).map(|()| true);
    }
    let measurement = Measurement::measure(args, &Scratch::new(&args.data)?.0)?;
    Ok(print(args.json, &measurement.table(), || measurement.json(), measurement.consistent()))
}

fn performance(args: &PerformanceArgs) -> Result<bool> {
    let figures = performance::Parts::new(&args.directory).markdown();
    match &args.into {
        None => print!("{figures}"),
        Some(path) => {
            let page = performance::replaced(&read(path)?, &figures);
            let page = page.map_err(|problem| PeerError::Usage(format!("{}: {problem}", path.display())))?;
            write(path, &page)?;
        }
    }
    Ok(true)
}

fn run(args: &Args) -> Result<bool> {
    match &args.command {
        Some(Command::Curve(args)) => curve(args),
        Some(Command::Recovery(args)) => recovery(args),
        Some(Command::Disk(args)) => disk(args),
        Some(Command::Performance(args)) => performance(args),
        None => match (args.step, &args.bank) {
            (Some(step), Some(bank)) => step::perform(args, step, bank).map(|()| true),
            _ => throughputs(args),
        },
    }
}

fn main() -> ExitCode {
    if let Err(error) = rialto_measure::alloc::keep_small_pages() {
        eprintln!("warning: the memory figures are some 15 MB too high: {error}");
    }
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: a bank does not add up; the table says which");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
