//! Counts what one transaction of each kind takes, and holds it to gates. For `.ci/run`; see `rialto_figures::steady`.
//!
//! ```text
//! steady                                     prints the figures
//! steady FILE                                and exits 1 if a gate in the file does not hold
//! steady run TRANSACTIONS memory|disk [DIR]  what the tools run
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mimalloc::MiMalloc;
use rialto::Durability;
use rialto_figures::steady::count::{Counted, Scratch, broken, read_gates, table};
use rialto_measure::alloc::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator<MiMalloc> = CountingAllocator::new(MiMalloc);

/// Transactions of each kind: few enough for one log file.
const TRANSACTIONS: u32 = 2_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["run", transactions, durability] => run(transactions, durability, None),
        ["run", transactions, durability, data] => run(transactions, durability, Some(Path::new(data))),
        [] => count(None),
        [gates] => count(Some(gates)),
        _ => Err("usage: steady [GATES]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(transactions: &str, durability: &str, data: Option<&Path>) -> Result<(), String> {
    let transactions = transactions.parse().map_err(|_| format!("\"{transactions}\" is no number"))?;
    let durability = match durability {
        "memory" => Durability::Memory,
        "disk" => Durability::Disk,
        other => return Err(format!("\"{other}\" is no durability; there are memory and disk")),
    };
    for window in rialto_figures::steady::run(durability, data, transactions)? {
        println!("{window}");
    }
    Ok(())
}

fn count(gates: Option<&str>) -> Result<(), String> {
    let gates = match gates {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            read_gates(&text).map_err(|problem| format!("{path}: {problem}"))?
        }
    };
    // Not in /tmp, which may lie in memory and takes no direct writes there.
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let parent = here.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
    let scratch = Scratch::below(&parent)?;
    let counted = Counted { program: here, scratch: scratch.path().to_owned(), transactions: TRANSACTIONS };
    let figures = counted.figures()?;
    println!("{}", table(&figures));
    let broken = broken(&gates, &figures);
    if broken.is_empty() {
        println!("{} gates hold", gates.len());
        return Ok(());
    }
    Err(broken.join("\n"))
}
