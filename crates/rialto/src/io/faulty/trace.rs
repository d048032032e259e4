//! The trace: what a crash would have left at each step of a run.

use std::fmt;
use std::sync::Arc;

use super::folder::Folder;
use super::{FaultyDisk, FaultyDiskState, Power, number};

/// A step of a run, and the disk as it would be if the power had been lost in it.
#[derive(Debug)]
pub struct TracedStep {
    number: u64,
    operation: &'static str,
    name: String,
    offset: u64,
    crashed: Arc<FaultyDisk>,
}

impl TracedStep {
    /// The step's number, as [`FaultyDisk::steps`] counts.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The disk, without power. Of what was not synced when the step had begun, and of the step's own changes, each
    /// [`restart`](FaultyDisk::restart) keeps some. Its shared maps are gone.
    pub fn crashed(&self) -> &Arc<FaultyDisk> {
        &self.crashed
    }
}

impl fmt::Display for TracedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {} of {} at {}", self.number, self.operation, self.name, self.offset)
    }
}

impl FaultyDiskState {
    /// The same state without shared maps, injected errors and a step at which it ends; its power is off, and it draws
    /// its own choices.
    pub(super) fn without_maps(&mut self) -> FaultyDiskState {
        let mut random = self.random.fork();
        let boot = number(&mut random);
        FaultyDiskState {
            random,
            power: Power::Crashed,
            steps: self.steps,
            end: None,
            faults: Vec::new(),
            folders: self.folders.iter().map(Folder::without_maps).collect(),
            boot,
            room: self.room,
            has_speed: self.has_speed,
            trace: None,
            strays: Vec::new(),
        }
    }

    /// Keeps a step that has succeeded, if a trace is asked for.
    pub(super) fn keep_trace(&mut self, name: &str, offset: u64, operation: &'static str) {
        if self.trace.is_none() {
            return;
        }
        let crashed = self.without_maps();
        let seed = self.random.next();
        let crashed = FaultyDisk::with(seed, crashed);
        let step = TracedStep { number: self.steps, operation, name: name.to_owned(), offset, crashed };
        self.trace.as_mut().expect("it is asked for").push(step);
    }
}

impl FaultyDisk {
    /// Keeps each step from now on, until [`take_trace`](Self::take_trace). The cost in memory for each step: the
    /// names, the unsynced changes, and a word for each page of each file.
    pub fn trace(&self) {
        self.state.lock().trace = Some(Vec::new());
    }

    /// Returns the steps since [`trace`](Self::trace), in order, without those that failed; keeps none from now on.
    pub fn take_trace(&self) -> Vec<TracedStep> {
        self.state.lock().trace.take().unwrap_or_default()
    }
}
