//! One run of commit sequences, as a point of a figure.

use std::path::PathBuf;
use std::time::Duration;

use rialto::io::FileDisk;
use rialto::log::LogOptions;
use rialto::log::virtual_time::{Load, REGIMES, Regime, simulate};
use rialto::{GroupCommitDesign, GroupCommitOptions};
use rialto_measure::RunError;
use rialto_measure::calibrate::Calibrator;
use rialto_measure::counters::Counters;
use rialto_measure::driver;
use rialto_measure::machine::Machine;
use rialto_measure::text::say;

use super::Lab;
use crate::commit::Window;
use crate::commit::real::{self, Run};

/// The regime of KODA's machine.
pub fn koda() -> &'static Regime {
    REGIMES.iter().find(|regime| regime.name == "koda").expect("it is one of them")
}

/// A time in whole milliseconds.
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A design with its stall.
pub fn with_stall(design: GroupCommitDesign, stall: Duration) -> GroupCommitOptions {
    GroupCommitOptions { stall: Some(stall), ..design.into() }
}

/// A design with its willing-to-wait time.
pub fn with_wait(design: GroupCommitDesign, wait: Duration) -> GroupCommitOptions {
    GroupCommitOptions { willing_to_wait: Some(wait), ..design.into() }
}

/// What a run brought, in the paper's terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Commits a second.
    pub tps: f64,
    /// Processors busy, in percent of one, where that is known.
    pub cpu: Option<f64>,
    /// Mean packets of a group.
    pub group: f64,
    /// Packets of the largest group, where that is known: in virtual time.
    pub group_max: Option<u64>,
    /// The mean response time, in microseconds.
    pub response_us: f64,
    /// The median response time, in microseconds.
    pub p50_us: f64,
    /// Wake calls and self-wakes of a commit.
    pub wakes: f64,
}

impl Point {
    fn of(window: &Window) -> Point {
        let committed = window.committed.max(1) as f64;
        let waits = window.stats.waits;
        Point {
            tps: window.per_s(),
            cpu: window.processors_busy.map(|busy| busy * 100.0),
            group: window.group_size().unwrap_or(0.0),
            group_max: window.group_size_max,
            response_us: window.latency_mean_us,
            p50_us: window.latency.map_or(0.0, |latency| latency.p50_us),
            wakes: (waits.wakes + waits.self_wakes) as f64 / committed,
        }
    }
}

/// A cell of a table: empty where the figure is not known.
pub fn known<T>(figure: Option<T>, cell: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(String::new, cell)
}

/// How long a run in virtual time is.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// Commits before the measurement.
    pub warmup: u64,
    /// Commits of the measurement.
    pub commits: u64,
    /// Where the random choices come from.
    pub seed: u64,
}

impl Lab {
    /// As long as the command line says.
    pub fn length(&self) -> Length {
        Length { warmup: self.commits / 5, commits: self.commits, seed: self.seed }
    }

    /// Runs on KODA's machine; adaptive climbs first, for about a thousand groups by default.
    pub fn on_koda(&self, options: &GroupCommitOptions, servers: u32) -> Point {
        let mut length = self.length();
        if options.design == GroupCommitDesign::Adaptive {
            length.warmup = self.commits * 5 / 2;
        }
        run(koda(), options, servers, 1, length)
    }

    /// Runs on the disk, if that is asked for.
    ///
    /// # Errors
    /// Of the directory, and of the log.
    pub fn on_disk(&self, options: GroupCommitOptions, clients: u32) -> Result<Option<Point>, RunError> {
        let Some(window) = self.seconds else { return Ok(None) };
        let failed = |during| move |cause| RunError::Transaction { during, cause };
        let home = Home::new(self.data.join(format!("figures-{}", std::process::id())));
        let disk = FileDisk::create(&home.0).map_err(|error| {
            RunError::Directory(format!(
                "the directory cannot be used: {error}; choose another with --data DIR"
            ))
        })?;
        let counters = Counters::open();
        let mut calibrator = Calibrator::new(None).map_err(RunError::Directory)?;
        let choices = LogOptions { group_commit: options, ..LogOptions::default() };
        let run = Run::begin(disk, &choices, clients, 1).map_err(failed("making the log"))?;
        let warmup = (window / 3).max(ms(100));
        let load = driver::Load { clients, in_flight: 1, rate: None, warmup, window, seed: self.seed };
        let (measured, oldest) = run
            .while_freeing(|sequences| real::window(sequences, &load, &counters, &mut calibrator))
            .map_err(failed("freeing the log"))?;
        let measured = measured?;
        let verdict = run.verify(oldest).map_err(failed("closing the log"))?;
        if !verdict.consistent {
            return Err(RunError::Inconsistent(verdict.text));
        }
        let point = Point::of(&measured);
        say(&format!("  disk, {clients} clients, {options}: {:.0}/s", point.tps));
        Ok(Some(point))
    }
}

/// Runs in virtual time.
pub fn run(
    regime: &Regime,
    options: &GroupCommitOptions,
    clients: u32,
    in_flight: u32,
    length: Length,
) -> Point {
    let Length { warmup: warmup_commits, commits, seed } = length;
    let load = Load { clients, in_flight, warmup_commits, commits, seed, patience: &[], polls: None };
    Point::of(&Window::of_outcome(&simulate(regime, options, &load), regime))
}

/// What the runs on the disk were on.
pub fn machine() -> String {
    Machine::here().to_string()
}

/// A directory that is gone when it is dropped.
pub struct Home(pub PathBuf);

impl Home {
    /// One that is not there yet.
    pub fn new(path: PathBuf) -> Home {
        Home(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            say(&format!("{} is left over: {error}", self.0.display()));
        }
    }
}
