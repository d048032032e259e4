//! The steps that have a process of their own: making a bank, and measuring the memory that it takes; running until it is
//! killed; checking or opening what is left.
//!
//! In the process of the run the memory of one engine could not be told from what another one left behind, and nobody
//! could kill it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rialto_measure::json::line;
use serde_json::{Value as Json, json};

use crate::args::{Args, Step};
use crate::engine::{Engine, EngineName};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::size::resident_bytes;
use crate::tpcb::Shape;

/// Which step of which bank.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What is done.
    pub step: Step,
    /// With which engine.
    pub engine: EngineName,
    /// Under which guarantee.
    pub guarantee: Guarantee,
    /// The bank's size.
    pub shape: Shape,
    /// Where it is.
    pub bank: &'a Path,
}

impl Step {
    /// As on the command line.
    const fn name(self) -> &'static str {
        match self {
            Step::Load => "load",
            Step::Memory => "memory",
            Step::Churn => "churn",
            Step::Check => "check",
            Step::Work => "work",
            Step::Open => "open",
        }
    }
}

/// Killed when dropped.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // By SIGKILL; a process that has ended already needs none.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Job<'_> {
    fn failed(&self, cause: String) -> PeerError {
        PeerError::Child { during: format!("{} of {}", self.step.name(), self.engine.name()), cause }
    }

    fn command(&self) -> Result<Command> {
        let program = std::env::current_exe().map_err(|error| self.failed(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["--step", self.step.name()]).arg("--bank").arg(self.bank);
        command.args(["--engines", self.engine.name(), "--accounts", &self.shape.accounts.to_string()]);
        command.args(["--branches", &self.shape.branches.to_string()]);
        if self.guarantee == Guarantee::Machine {
            command.arg("--durable-only");
        }
        command.stderr(Stdio::inherit());
        Ok(command)
    }

    /// Does the step in a process of its own; gives the number that it printed, if any.
    ///
    /// # Errors
    /// If the process fails; it has said why on stderr.
    pub fn run(&self) -> Result<Option<u64>> {
        let output = self.command()?.output().map_err(|error| self.failed(error.to_string()))?;
        if !output.status.success() {
            return Err(self.failed(output.status.to_string()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        match text.trim() {
            "" => Ok(None),
            text => {
                let number = text.parse();
                number.map(Some).map_err(|_| self.failed(format!("it printed \"{text}\", expected a number")))
            }
        }
    }

    /// Does the step in a process of its own that is killed, by SIGKILL, when it has printed what it found.
    ///
    /// # Errors
    /// If the process ends before; it has said why on stderr.
    pub fn run_and_kill(&self, transactions: u64) -> Result<Json> {
        let mut command = self.command()?;
        command
            .args(["--transactions", &transactions.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = Killed(command.spawn().map_err(|error| self.failed(error.to_string()))?);
        let mut line = String::new();
        let told = child.0.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        drop(child);
        match told {
            Some(Ok(1..)) => {
                serde_json::from_str(line.trim()).map_err(|problem| self.failed(problem.to_string()))
            }
            Some(Err(error)) => Err(self.failed(error.to_string())),
            _ => Err(self.failed("it ended and printed nothing".to_owned())),
        }
    }
}

/// What the process does.
///
/// # Errors
/// If the engine fails, or the bank is not what it must be.
pub fn perform(args: &Args, step: Step, bank: &Path) -> Result<()> {
    let shape = args.common.shape()?;
    let engine = match args.common.engines()[..] {
        [engine] => engine,
        _ => return Err(PeerError::Usage("a step is of one engine (--engines NAME)".to_owned())),
    };
    let guarantee = if args.durable_only { Guarantee::Machine } else { Guarantee::Process };
    let resident =
        || resident_bytes().map_err(|cause| PeerError::Files { during: "measuring".to_owned(), cause });
    let before = resident()?;
    let began = Instant::now();
    let opened = engine.open(bank, guarantee, shape)?;
    match step {
        Step::Churn => return churn(&*opened),
        Step::Work => return tell_and_wait(&work(&*opened, args.transactions)?),
        Step::Open => return tell_and_wait(&first_commit(&*opened, began)?),
        Step::Load | Step::Memory | Step::Check => {}
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
        _ => {}
    }
    opened.close()
}

/// By one write: what is told before a kill is told whole.
fn tell(text: &str) -> Result<()> {
    let told = writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
    told.map_err(|cause| PeerError::Files { during: "telling the result".to_owned(), cause })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn tell_and_wait(result: &Json) -> Result<()> {
    tell(&line(result))?;
    loop {
        std::thread::park();
    }
}

fn churn(engine: &dyn Engine) -> Result<()> {
    let mut client = engine.client(1)?;
    for committed in 1u64.. {
        client.transact(Instant::now())?;
        tell(&committed.to_string())?;
    }
    Ok(())
}

/// Runs transactions after a checkpoint, one thread for each core.
fn work(engine: &dyn Engine, transactions: u64) -> Result<Json> {
    engine.checkpoint_now_and_not_again()?;
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let work = |number: u64| {
            let own = transactions / threads + u64::from(number < transactions % threads);
            let mut client = engine.client(number + 1)?;
            (0..own).try_for_each(|_| client.transact(Instant::now()))
        };
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a client does not panic"))
    })?;
    Ok(json!({ "threads": threads, "work_ms": millis(began.elapsed()) }))
}

/// Runs one transaction; `began` is when the engine began to open.
fn first_commit(engine: &dyn Engine, began: Instant) -> Result<Json> {
    let open_ms = millis(began.elapsed());
    engine.client(1)?.transact(Instant::now())?;
    let commit_ms = millis(began.elapsed());
    Ok(json!({
        "open_ms": open_ms,
        "commit_ms": commit_ms,
        "history_rows": engine.audit()?.history_rows,
        "recovery": engine.recovery().unwrap_or(Json::Null),
    }))
}
