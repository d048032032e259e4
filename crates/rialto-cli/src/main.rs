//! The `rialto` program.
//!
//! Results go to stdout, progress and errors to stderr. Exit codes: 0 ok; 1 inconsistent or corrupt; 2 usage; 3
//! directory unusable; 4 I/O; 130 interrupted.

// These macros panic if the output is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]
// The macro for a JSON object recurses for each of its members.
#![recursion_limit = "512"]

mod args;
mod backup;
mod bench;
mod client;
#[cfg(feature = "etcd")]
mod cluster;
#[cfg(not(feature = "etcd"))]
#[path = "cluster/left_out.rs"]
mod cluster;
mod copy_progress;
mod event_log;
mod figures;
mod interrupt;
mod offline;
mod output;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use interrupt::Interrupts;
use mimalloc::MiMalloc;
use output::{Results, fail, tell};
use rialto::Procedure;
use rialto_measure::alloc::{CountingAllocator, keep_small_pages};
use rialto_measure::interrupt::ask as interrupt_run;

#[global_allocator]
static ALLOCATOR: CountingAllocator<MiMalloc> = CountingAllocator::new(MiMalloc);

/// A memory-resident, durable, serializable transaction processing engine
#[derive(Debug, Parser)]
#[command(
    name = "rialto",
    version,
    after_help = "Exit codes: 0 ok; 1 inconsistent or corrupt; 2 usage; \
    3 directory unusable (locked, of another version, missing, with other tables, or too large for the memory); \
    4 I/O; 130 interrupted (Ctrl-C)."
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a workload, measure it, and verify its data
    Bench(Box<bench::BenchCommand>),
    /// Run the papers' experiments: tables, pictures, and the papers' figures beside Rialto's
    Figures(figures::FiguresArgs),
    /// Serve a database to PostgreSQL clients
    Serve(Box<serve::ServeArgs>),
    /// Verify a data directory that no program has open: checksums, log, and that indexes agree with tables
    Check(offline::OfflineArgs),
    /// Print the contents of a data directory that no program has open
    Inspect(offline::OfflineArgs),
    /// Take a backup: of a directory that no program has open, or of a server's database while it serves
    Backup(backup::BackupArgs),
    /// Make a database from a backup, the increments on it, and the archived log
    ///
    /// Calls in an archived log (transaction logging) run again, by their procedures. This command knows those of
    /// `rialto bench`; with other procedures, restore in a program, by the library's Restore::procedures.
    Restore(backup::RestoreArgs),
    /// Run a database on several nodes: make a cluster, run its nodes, see and change what it does
    Cluster(cluster::ClusterArgs),
}

fn run_bench(command: &bench::BenchCommand) -> ExitCode {
    let interrupts = match Interrupts::end(|| "interrupted".to_owned()) {
        Ok(interrupts) => interrupts,
        Err(error) => return fail(format_args!("waiting for Ctrl-C: {error}"), 4),
    };
    if command.is_cleaned_up() {
        interrupts.ask("interrupted: the run ends; Ctrl-C again ends the program at once", interrupt_run);
    }
    match bench::run_command(command, &mut Results::new()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => fail("the data are inconsistent, or something is lost: see the table", 1),
        Err(error) => fail(&error, error.exit_code()),
    }
}

fn run_figures(args: &figures::FiguresArgs) -> ExitCode {
    let interrupts = match Interrupts::end(|| "interrupted".to_owned()) {
        Ok(interrupts) => interrupts,
        Err(error) => return fail(format_args!("waiting for Ctrl-C: {error}"), 4),
    };
    interrupts.ask("interrupted: the run ends; Ctrl-C again ends the program at once", interrupt_run);
    match figures::run(args, &mut Results::new()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, error.exit_code()),
    }
}

/// The procedures that this program knows. The log of a directory that is backed up or restored may have calls of them.
fn procedures() -> Vec<Procedure> {
    rialto_workloads::procedures()
}

fn main() -> ExitCode {
    if let Err(error) = keep_small_pages() {
        tell(format_args!("warning: the program takes some 15 MB more than it needs: {error}"));
    }
    match Program::parse().command {
        Command::Bench(command) => run_bench(&command),
        Command::Figures(args) => run_figures(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Check(args) => offline::run_check(&args),
        Command::Inspect(args) => offline::run_inspect(&args),
        Command::Backup(args) => backup::backup(&args, procedures()),
        Command::Restore(args) => backup::restore(&args, procedures()),
        Command::Cluster(args) => cluster::run(&args),
    }
}
