//! The steps of a run that have a process of their own: making a bank, and measuring the memory that it takes.
//!
//! In the process of the run the memory of one engine could not be told from what another one left behind.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::args::{Args, Step};
use crate::engine::EngineName;
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::size::resident_bytes;
use crate::tpcb::Shape;

/// Does a step in a process of its own; a step that measures gives its bytes.
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
    command.args(["--step", if step == Step::Load { "load" } else { "memory" }]).arg("--bank").arg(bank);
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
    match step {
        Step::Load => Ok(None),
        Step::Memory => {
            let bytes = text.trim().parse();
            bytes.map(Some).map_err(|_| failed(format!("it printed \"{}\", expected a number", text.trim())))
        }
    }
}

/// What the process does.
///
/// # Errors
/// If the engine fails, or the bank is not what was loaded.
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
    let sums = opened.audit()?;
    if step == Step::Memory {
        println!("{}", resident()?.saturating_sub(before));
    }
    if let Some(problem) = sums.problem(shape, 0) {
        return Err(PeerError::Child { during: "the check of a new bank".to_owned(), cause: problem });
    }
    opened.close()
}
