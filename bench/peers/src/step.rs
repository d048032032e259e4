//! The steps that have a process of their own: making a bank, and measuring the memory that it takes; and, for a test,
//! running until it is killed, and checking what is left.
//!
//! In the process of the run the memory of one engine could not be told from what another one left behind.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::args::{Args, Step};
use crate::engine::{Engine, EngineName};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::size::resident_bytes;
use crate::tpcb::Shape;

/// As on the command line.
const fn name(step: Step) -> &'static str {
    match step {
        Step::Load => "load",
        Step::Memory => "memory",
        Step::Churn => "churn",
        Step::Check => "check",
    }
}

/// Does a step in a process of its own; gives the number that it printed, if any.
///
/// # Errors
/// If the process fails; it has said why on stderr.
pub fn in_own_process(
    step: Step,
    engine: EngineName,
    guarantee: Guarantee,
    shape: Shape,
    bank: &Path,
) -> Result<Option<u64>> {
    let during =
        format!("{} of {}", if step == Step::Load { "the load" } else { "the memory" }, engine.name());
    let failed = |cause: String| PeerError::Child { during: during.clone(), cause };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["--step", name(step)]).arg("--bank").arg(bank);
    command.args(["--engines", engine.name(), "--accounts", &shape.accounts.to_string()]);
    command.args(["--branches", &shape.branches.to_string()]);
    if guarantee == Guarantee::Machine {
        command.arg("--durable-only");
    }
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim() {
        "" => Ok(None),
        text => {
            let number = text.parse();
            number.map(Some).map_err(|_| failed(format!("it printed \"{text}\", expected a number")))
        }
    }
}

/// What the process does.
///
/// # Errors
/// If the engine fails, or the bank is not what it must be.
pub fn perform(args: &Args, step: Step, bank: &Path) -> Result<()> {
    let shape = args.shape()?;
    let engine = match args.engines()[..] {
        [engine] => engine,
        _ => return Err(PeerError::Usage("a step is of one engine (--engines NAME)".to_owned())),
    };
    let guarantee = if args.durable_only { Guarantee::Machine } else { Guarantee::Process };
    let resident =
        || resident_bytes().map_err(|cause| PeerError::Files { during: "measuring".to_owned(), cause });
    let before = resident()?;
    let opened = engine.open(bank, guarantee, shape)?;
    if step == Step::Churn {
        return churn(&*opened);
    }
    let sums = opened.audit()?;
    let committed = match step {
        Step::Check => sums.history_rows,
        _ => 0,
    };
    if let Some(cause) = sums.problem(shape, committed) {
        return Err(PeerError::Child { during: "the check of a bank".to_owned(), cause });
    }
    match step {
        Step::Memory => println!("{}", resident()?.saturating_sub(before)),
        Step::Check => println!("{}", sums.history_rows),
        Step::Load | Step::Churn => {}
    }
    opened.close()
}

fn churn(engine: &dyn Engine) -> Result<()> {
    let mut client = engine.client(1)?;
    for committed in 1u64.. {
        client.transact(Instant::now())?;
        // At once, by one write: what is told last before a kill must be there after it.
        let told = writeln!(std::io::stdout(), "{committed}").and_then(|()| std::io::stdout().flush());
        told.map_err(|cause| PeerError::Files { during: "telling the commits".to_owned(), cause })?;
    }
    Ok(())
}
