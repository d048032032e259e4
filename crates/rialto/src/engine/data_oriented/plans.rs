//! [`Plans`]: how a procedure's phases are run on threads that own executors, and what tells how they should be.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::planner::{Counted, Plan, Planner};
use crate::engine::flow::Flow;
use crate::error::Error;

/// Threads whose numbers differ by a multiple of this count in the same cells; of two that do so at one time one count may
/// be lost, which a rate bears.
const SETS: usize = 16;

/// How many calls run a phase whole after one whose parts could not go on alone. If all calls are such, few run twice; if few are,
/// few run whole.
const WHOLE_CALLS: u32 = 63;

/// Counters of an action or a phase.
#[derive(Debug, Default)]
struct Cell {
    runs: AtomicU64,
    /// Runs of an action that aborted, or of a phase that ran in parts.
    of_these: AtomicU64,
}

/// No two threads' cells share a line of the cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([Cell; 4]);

/// Where one thread counts: one cell for each phase, then one for each action.
#[derive(Debug, Default)]
struct Set(OnceLock<Box<[Line]>>);

/// The plan of each phase of a flow, and counts of how its actions end. Each thread counts in lines of its own; the resource
/// manager adds them up, asks the [`Planner`] of each phase, and puts the plan into a word that is written when it
/// changes.
#[derive(Debug)]
pub(crate) struct Plans {
    phases: Box<[Phase]>,
    sets: Box<[Set]>,
    planners: Mutex<Vec<Planner>>,
    cells: usize,
}

#[derive(Debug)]
struct Phase {
    plan: AtomicU64,
    /// How many of the next calls run the phase whole.
    whole: AtomicU32,
    /// Where its actions' cells begin.
    first: usize,
    actions: usize,
}

/// Counters of the thread that runs a phase.
#[derive(Clone, Copy)]
pub(super) struct PhaseCounts<'a> {
    set: &'a [Line],
    phase: usize,
    first: usize,
}

fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn cell(set: &[Line], at: usize) -> &Cell {
    &set[at / 4].0[at % 4]
}

impl PhaseCounts<'_> {
    /// The phase is begun, as a whole.
    pub fn begun(&self) {
        add_one(&cell(self.set, self.phase).runs);
    }

    /// The phase is begun, in parts.
    pub fn begun_in_parts(&self) {
        self.begun();
        add_one(&cell(self.set, self.phase).of_these);
    }

    /// The action at this position has run.
    #[inline]
    pub fn ran(&self, position: u16, error: Option<&Error>) {
        let cell = cell(self.set, self.first + usize::from(position));
        add_one(&cell.runs);
        if error.is_some_and(is_abort) {
            add_one(&cell.of_these);
        }
    }
}

/// Whether it tells of the action, and not of what others did or of the database's state.
fn is_abort(error: &Error) -> bool {
    !matches!(
        error,
        Error::Deadlock { .. }
            | Error::LockTimeout { .. }
            | Error::WouldWait { .. }
            | Error::Cancelled
            | Error::Timeout { .. }
            | Error::Closed
            | Error::Stopped { .. }
    )
}

impl Plans {
    /// For a flow, all of whose phases are run in parallel at first.
    pub fn new(flow: &Flow) -> Plans {
        let mut cells = flow.phases().len();
        let phase = |actions: &Vec<_>| {
            let first = cells;
            cells += actions.len();
            Phase {
                plan: AtomicU64::new(Plan::Parallel.pack()),
                whole: AtomicU32::new(0),
                first,
                actions: actions.len(),
            }
        };
        let phases: Box<[Phase]> = flow.phases().iter().map(phase).collect();
        let planners = phases.iter().map(|phase| Planner::new(phase.actions)).collect();
        let sets = (0..SETS).map(|_| Set::default()).collect();
        Plans { phases, sets, planners: Mutex::new(planners), cells }
    }

    /// How to run a phase now.
    #[inline]
    pub fn plan(&self, phase: usize) -> Plan {
        match self.phases[phase].plan.load(Ordering::Relaxed) {
            0 => Plan::Parallel,
            word => Plan::unpack(word),
        }
    }

    /// The parts of a call could not go on alone: the next calls run the phase whole.
    pub fn run_whole(&self, phase: usize) {
        self.phases[phase].whole.store(WHOLE_CALLS, Ordering::Relaxed);
    }

    /// Whether a call is to run the phase whole. Counts the call.
    #[inline]
    pub fn takes_whole(&self, phase: usize) -> bool {
        let whole = &self.phases[phase].whole;
        match whole.load(Ordering::Relaxed) {
            0 => false,
            left => {
                whole.store(left - 1, Ordering::Relaxed);
                true
            }
        }
    }

    /// The counters of a thread for a phase.
    pub(super) fn counts(&self, thread: usize, phase: usize) -> PhaseCounts<'_> {
        let set = self.sets[thread % SETS]
            .0
            .get_or_init(|| (0..self.cells.div_ceil(4)).map(|_| Line::default()).collect());
        PhaseCounts { set, phase, first: self.phases[phase].first }
    }

    /// What was counted of each phase so far.
    fn counted(&self) -> Vec<Counted> {
        let mut counted: Vec<Counted> = self.phases.iter().map(|phase| Counted::of(phase.actions)).collect();
        for set in self.sets.iter().filter_map(|set| set.0.get()) {
            for (at, (phase, counted)) in self.phases.iter().zip(&mut counted).enumerate() {
                let of_phase = cell(set, at);
                counted.calls += of_phase.runs.load(Ordering::Relaxed);
                counted.in_parts += of_phase.of_these.load(Ordering::Relaxed);
                for (nth, action) in counted.actions.iter_mut().enumerate() {
                    let cell = cell(set, phase.first + nth);
                    action.runs += cell.runs.load(Ordering::Relaxed);
                    action.aborts += cell.of_these.load(Ordering::Relaxed);
                }
            }
        }
        counted
    }

    /// Has the plans follow what was counted.
    pub fn adapt(&self) {
        let mut planners = self.planners.lock();
        for ((phase, planner), counted) in self.phases.iter().zip(planners.iter_mut()).zip(self.counted()) {
            if let Some(plan) = planner.look(&counted) {
                phase.plan.store(plan.pack(), Ordering::Relaxed);
            }
        }
    }

    /// The plan of each phase, and what was counted of it, in the flow's order.
    pub(in crate::engine) fn read(&self) -> impl Iterator<Item = (Plan, Counted)> {
        self.counted().into_iter().enumerate().map(|(at, counted)| (self.plan(at), counted))
    }
}
