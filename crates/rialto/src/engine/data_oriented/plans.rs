//! [`Plans`]: how a procedure's phases run on threads that own executors, and the counts that decide it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::planner::{Counted, Plan, Planner};
use crate::engine::flow::Flow;
use crate::error::Error;

/// Threads whose numbers differ by a multiple of this share their cells. If two of them count at one time, one count
/// may be lost, which a rate tolerates.
const SETS: usize = 16;

/// How many calls run a phase whole after a call whose parts could not go on alone. If all calls are such, few of
/// them run twice; if few are, few run whole.
const WHOLE_CALLS: u32 = 63;

/// Counters of an action or a phase.
#[derive(Debug, Default)]
struct RunCounters {
    runs: AtomicU64,
    /// Runs of an action that aborted, or of a phase in parts.
    of_these: AtomicU64,
}

/// The cells of two threads never share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CounterLine([RunCounters; 4]);

/// The cells of one thread: one for each phase, then one for each action.
#[derive(Debug, Default)]
struct ThreadCounters(OnceLock<Box<[CounterLine]>>);

/// The plan of each phase of a flow, and counts of how its actions end. Each thread counts in cache lines of its own.
/// The resource manager adds these up, asks the [`Planner`] of each phase, and stores the plan in a word that is
/// written only when the plan changes.
#[derive(Debug)]
pub(crate) struct Plans {
    phases: Box<[Phase]>,
    sets: Box<[ThreadCounters]>,
    planners: Mutex<Vec<Planner>>,
    cells: usize,
}

#[derive(Debug)]
struct Phase {
    plan: AtomicU64,
    /// How many of the next calls run the phase whole.
    whole: AtomicU32,
    /// The first cell of its actions.
    first: usize,
    actions: usize,
}

/// Counters of the thread that runs a phase.
#[derive(Clone, Copy)]
pub(super) struct PhaseCounts<'a> {
    set: &'a [CounterLine],
    phase: usize,
    first: usize,
}

fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn cell(set: &[CounterLine], at: usize) -> &RunCounters {
    &set[at / 4].0[at % 4]
}

impl PhaseCounts<'_> {
    /// Counts a phase that is begun as a whole.
    pub fn begun(&self) {
        add_one(&cell(self.set, self.phase).runs);
    }

    /// Counts a phase that is begun in parts.
    pub fn begun_in_parts(&self) {
        self.begun();
        add_one(&cell(self.set, self.phase).of_these);
    }

    /// Counts a run of the action at this position.
    #[inline]
    pub fn ran(&self, position: u16, error: Option<&Error>) {
        let cell = cell(self.set, self.first + usize::from(position));
        add_one(&cell.runs);
        if error.is_some_and(is_abort) {
            add_one(&cell.of_these);
        }
    }
}

/// Whether the error says something about the action, not about other transactions or the state of the database.
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
    /// For a flow. All its phases run in parallel at first.
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
        let sets = (0..SETS).map(|_| ThreadCounters::default()).collect();
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

    /// Notes that the parts of a call could not go on alone: the next calls run the phase whole.
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
            .get_or_init(|| (0..self.cells.div_ceil(4)).map(|_| CounterLine::default()).collect());
        PhaseCounts { set, phase, first: self.phases[phase].first }
    }

    /// The counts of each phase so far.
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

    /// Adapts the plans to the counts.
    pub fn adapt(&self) {
        let mut planners = self.planners.lock();
        for ((phase, planner), counted) in self.phases.iter().zip(planners.iter_mut()).zip(self.counted()) {
            if let Some(plan) = planner.decide(&counted) {
                phase.plan.store(plan.pack(), Ordering::Relaxed);
            }
        }
    }

    /// The plan and the counts of each phase, in the flow's order.
    pub(in crate::engine) fn read(&self) -> impl Iterator<Item = (Plan, Counted)> {
        self.counted().into_iter().enumerate().map(|(at, counted)| (self.plan(at), counted))
    }
}
