//! `peers`: the same TPC-B on Rialto and its peers, in one process and one run.
//!
//! | file | what |
//! |---|---|
//! | [`args`] | the command line |
//! | [`engine`] | the engines, one file each, behind two small traits |
//! | [`tpcb`], [`table`], [`record`] | the bank, as far as engines share it |
//! | [`guarantee`] | what a commit survives: a section of the result each |
//! | [`section`] | banks, rounds, alternation, checks |
//! | [`slice`] | one engine's clients for some seconds |
//! | [`step`], [`size`] | loads and memory in processes of their own |
//! | [`report`], [`spread`] | the table, the ratios, the JSON |
//!
//! Results go to stdout, progress and errors to stderr.

mod args;
mod engine;
mod error;
mod guarantee;
mod record;
mod report;
mod section;
mod size;
mod slice;
mod spread;
mod step;
mod table;
mod tpcb;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use crate::args::Args;
use crate::error::{PeerError, Result};
use crate::report::Report;
use crate::section::Section;

// As in the program of the engine; C and C++ engines have the C library's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The directory of this run, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(args: &Args) -> Result<Scratch> {
        let path = args.data.join(format!("run-{}", std::process::id()));
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

fn run(args: &Args) -> Result<bool> {
    if let (Some(step), Some(bank)) = (args.step, &args.bank) {
        return step::perform(args, step, bank).map(|()| true);
    }
    args.shape()?;
    let scratch = Scratch::new(args)?;
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
    print!("{}", report.table());
    if args.json {
        println!("{}", report.json());
    }
    Ok(report.consistent())
}

fn main() -> ExitCode {
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
