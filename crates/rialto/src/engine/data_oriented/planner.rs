//! [`Planner`]: whether the actions of a phase run at the same time or one after the other, and in which order (the
//! DORA paper, appendix A.4). A policy: it gets counts and returns a plan, and does nothing itself.
//!
//! Actions that run at the same time end sooner. But if one of them aborts, the work of all others was needless. If
//! they run one after the other, with the one most likely to abort first, most of that work is never begun. So the
//! planner estimates how many runs of actions a serial plan would save, from how often each action was part of a call
//! and how often it then aborted.

use smallvec::SmallVec;

/// If at least this share of all actions that run at the same time is needless, they are run one after the other.
const NEEDLESS_MAX: f64 = 0.10;
/// If the share is below this, they are run at the same time again.
const NEEDLESS_MIN: f64 = 0.05;
/// An action that aborts less often than this, by call, has no position of its own in an order.
const ABORTS_MIN: f64 = 0.01;
/// The fewest calls of a phase for a decision: fewer say little.
const CALLS_MIN: u64 = 400;
/// The most actions that can stand at the beginning of an order.
const FIRST_MAX: usize = 7;

/// How the actions of a phase are run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Plan {
    /// Actions of different threads run at the same time.
    #[default]
    Parallel,
    /// One after the other. First those at these positions in the phase, with the most likely to abort in front, then
    /// the others as they stand in the flow. Actions whose identifiers overlap keep the flow's order.
    Serial {
        /// Positions in the phase, counted from 0; at most seven.
        first: SmallVec<[u8; 8]>,
    },
}

impl Plan {
    /// Packed into one word, which each call reads.
    pub(super) fn pack(&self) -> u64 {
        let Plan::Serial { first } = self else { return 0 };
        let mut bytes = [0; 8];
        bytes[0] = 1 + first.len() as u8;
        bytes[1..=first.len()].copy_from_slice(first);
        u64::from_le_bytes(bytes)
    }

    pub(super) fn unpack(word: u64) -> Plan {
        match word.to_le_bytes() {
            [0, ..] => Plan::Parallel,
            [more, first @ ..] => {
                Plan::Serial { first: SmallVec::from_slice(&first[..usize::from(more) - 1]) }
            }
        }
    }
}

/// How often an action was run, and how often it ended its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActionRuns {
    /// Runs of its body, including those that a deadlock ended.
    pub runs: u64,
    /// Runs that failed: by [`Error::aborted`](crate::Error::aborted), or with an error that does not make the
    /// transaction run again.
    pub aborts: u64,
}

/// The counts of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::engine) struct Counted {
    /// How often the phase was begun.
    pub calls: u64,
    /// Of these, how often it was run in parts.
    pub in_parts: u64,
    /// By action.
    pub actions: Vec<ActionRuns>,
}

impl Counted {
    pub fn of(actions: usize) -> Counted {
        Counted { calls: 0, in_parts: 0, actions: vec![ActionRuns::default(); actions] }
    }

    fn since(&self, earlier: &Counted) -> Counted {
        let actions = self.actions.iter().zip(&earlier.actions);
        let actions = actions.map(|(now, earlier)| ActionRuns {
            runs: now.runs.saturating_sub(earlier.runs),
            aborts: now.aborts.saturating_sub(earlier.aborts),
        });
        Counted {
            calls: self.calls.saturating_sub(earlier.calls),
            in_parts: self.in_parts.saturating_sub(earlier.in_parts),
            actions: actions.collect(),
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Planner {
    plan: Plan,
    /// The counts at the last decision.
    decided: Counted,
    /// The shares before the last decision, under the same plan, and the number of calls that they stand for. Half of
    /// that number is forgotten at each decision.
    before: Option<(f64, Vec<Share>)>,
}

/// For an action of a phase: the share of the calls that it was part of, and the share of those in which it aborted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share {
    present: f64,
    aborts: f64,
}

impl Planner {
    /// For a phase of so many actions.
    pub fn new(actions: usize) -> Planner {
        Planner { plan: Plan::Parallel, decided: Counted::of(actions), before: None }
    }

    /// Gets the counts so far. Returns the plan if it changes.
    pub fn decide(&mut self, counted: &Counted) -> Option<&Plan> {
        let since = counted.since(&self.decided);
        if since.calls < CALLS_MIN {
            return None;
        }
        self.decided = counted.clone();
        let shares = self.shares(&since);
        let chosen = self.choose(&shares);
        if chosen == self.plan {
            let weight = self.before.as_ref().map_or(0.0, |(weight, _)| *weight);
            self.before = Some(((since.calls as f64 + weight) / 2.0, shares));
            return None;
        }
        // Later counts are made under another plan.
        self.before = None;
        self.plan = chosen;
        Some(&self.plan)
    }

    /// The shares in the calls since the last decision, averaged with earlier ones by their weight.
    fn shares(&self, since: &Counted) -> Vec<Share> {
        let calls = since.calls as f64;
        let mut shares = vec![Share { present: 0.0, aborts: 0.0 }; since.actions.len()];
        // One after the other, an action runs only in calls that no action before it has aborted.
        let mut reached = calls;
        for at in self.order(since.actions.len()) {
            let ActionRuns { runs, aborts } = since.actions[at];
            let present = (runs as f64 / reached.max(1.0)).min(1.0);
            shares[at] = Share { present, aborts: (aborts as f64 / runs.max(1) as f64).min(1.0) };
            if self.plan != Plan::Parallel {
                reached -= aborts as f64;
            }
        }
        if let Some((weight, before)) = &self.before {
            for (share, before) in shares.iter_mut().zip(before) {
                let mean = |now: f64, before: f64| (now * calls + before * weight) / (calls + weight);
                share.present = mean(share.present, before.present);
                share.aborts = mean(share.aborts, before.aborts);
            }
        }
        shares
    }

    /// The order in force.
    fn order(&self, actions: usize) -> Vec<usize> {
        let first: Vec<usize> = match &self.plan {
            Plan::Parallel => Vec::new(),
            Plan::Serial { first } => first.iter().map(|&at| usize::from(at)).collect(),
        };
        let others = (0..actions).filter(|at| !first.contains(at));
        first.iter().copied().chain(others).collect()
    }

    fn choose(&self, shares: &[Share]) -> Plan {
        let likely = |share: &Share| share.present * share.aborts;
        let mut order: Vec<usize> = (0..shares.len()).collect();
        order.sort_by(|&one, &other| likely(&shares[other]).total_cmp(&likely(&shares[one])));
        let all: f64 = shares.iter().map(|share| share.present).sum();
        let (mut one_by_one, mut reached) = (0.0, 1.0);
        for &at in &order {
            one_by_one += reached * shares[at].present;
            reached *= 1.0 - likely(&shares[at]);
        }
        let needless = (all - one_by_one) / all.max(f64::MIN_POSITIVE);
        let bound = if self.plan == Plan::Parallel { NEEDLESS_MAX } else { NEEDLESS_MIN };
        if needless < bound {
            return Plan::Parallel;
        }
        let first = order.into_iter().filter(|&at| likely(&shares[at]) >= ABORTS_MIN);
        let first = first.filter_map(|at| u8::try_from(at).ok()).take(FIRST_MAX);
        Plan::Serial { first: first.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Random;

    /// A phase whose actions are part of some calls and abort in some of those, in percent. It runs as the planner
    /// says.
    struct Phase {
        actions: Vec<(u64, u64)>,
        planner: Planner,
        counted: Counted,
        plan: Plan,
        random: Random,
    }

    impl Phase {
        fn new(actions: &[(u64, u64)]) -> Phase {
            let counted = Counted::of(actions.len());
            let planner = Planner::new(actions.len());
            Phase {
                actions: actions.to_vec(),
                planner,
                counted,
                plan: Plan::Parallel,
                random: Random::new(1),
            }
        }

        /// Returns how often the plan has changed, and how many actions were run.
        fn run(&mut self, calls: u64) -> (u32, u64) {
            let (mut changes, mut run) = (0, 0);
            for call in 0..calls {
                self.counted.calls += 1;
                let is_serial = self.plan != Plan::Parallel;
                for at in self.planner.order(self.actions.len()) {
                    let (present, aborts) = self.actions[at];
                    if !self.random.chance(present, 100) {
                        continue;
                    }
                    run += 1;
                    self.counted.actions[at].runs += 1;
                    if self.random.chance(aborts, 100) {
                        self.counted.actions[at].aborts += 1;
                        if is_serial {
                            break;
                        }
                    }
                }
                if call % 50 == 0
                    && let Some(plan) = self.planner.decide(&self.counted)
                {
                    self.plan = plan.clone();
                    changes += 1;
                }
            }
            (changes, run)
        }
    }

    fn serial(first: &[u8]) -> Plan {
        Plan::Serial { first: SmallVec::from_slice(first) }
    }

    #[test]
    fn a_phase_that_aborts_often_is_run_one_by_one_and_at_the_same_time_again_when_it_does_not() {
        // UpdateSubscriberData.
        let mut phase = Phase::new(&[(100, 0), (100, 38)]);
        assert_eq!(phase.run(2_000).0, 1);
        assert_eq!(phase.plan, serial(&[1]));
        let (changes, run) = phase.run(10_000);
        assert_eq!(changes, 0, "it goes to and fro");
        assert!((15_500..17_000).contains(&run), "{run}");
        phase.actions[1].1 = 1;
        phase.run(4_000);
        assert_eq!(phase.plan, Plan::Parallel);
        assert_eq!(phase.run(10_000), (0, 20_000));
        // Now the other action aborts.
        phase.actions[0].1 = 60;
        phase.run(4_000);
        assert_eq!(phase.plan, serial(&[0]));
    }

    #[test]
    fn the_most_likely_to_abort_is_first_also_when_that_changes_in_a_serial_plan() {
        let mut phase = Phase::new(&[(100, 5), (100, 0), (100, 40)]);
        phase.run(2_000);
        assert_eq!(phase.plan, serial(&[2, 0]));
        phase.actions = vec![(100, 5), (100, 50), (100, 2)];
        phase.run(6_000);
        assert_eq!(phase.plan, serial(&[1, 0, 2]));
    }

    /// An action that always aborts but is seldom part of a call makes little work needless. Between the bounds the
    /// plan stays.
    #[test]
    fn rare_aborts_change_nothing_and_neither_do_rates_between_the_bounds() {
        let mut phase = Phase::new(&[(100, 0), (100, 0), (5, 100)]);
        assert_eq!(phase.run(20_000).0, 0);
        for (percent, plan) in [(15, Plan::Parallel), (40, serial(&[0])), (15, serial(&[0]))] {
            phase.actions = vec![(100, percent), (100, 0)];
            if phase.counted.actions.len() == 3 {
                phase = Phase::new(&phase.actions.clone());
            }
            phase.run(4_000);
            assert_eq!(phase.plan, plan, "{percent}");
        }
    }

    #[test]
    fn few_calls_change_nothing_and_an_action_alone_has_nothing_to_save() {
        let mut phase = Phase::new(&[(100, 0), (100, 90)]);
        assert_eq!(phase.run(CALLS_MIN - 1).0, 0);
        let mut alone = Phase::new(&[(100, 90)]);
        assert_eq!(alone.run(10_000).0, 0);
        let mut never = Phase::new(&[(0, 0), (0, 0)]);
        assert_eq!(never.run(10_000).0, 0);
    }

    #[test]
    fn a_plan_is_a_word() {
        for plan in [Plan::Parallel, serial(&[]), serial(&[200]), serial(&[6, 5, 4, 3, 2, 1, 0])] {
            assert_eq!(Plan::unpack(plan.pack()), plan);
        }
        assert_eq!(Plan::Parallel.pack(), 0);
    }
}
