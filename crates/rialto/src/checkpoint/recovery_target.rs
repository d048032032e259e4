//! [`RecoveryTarget`]: when a sweep begins, and how long it may take, so that a recovery stays within a time. It knows
//! no clock and does no I/O.
//!
//! A recovery loads the copy, builds indexes, and redoes the log since the redo start in force. The first two times are
//! *fixed*. The time of redo grows with the log until a checkpoint completes, and begins again at what accumulated
//! during its sweep:
//!
//! ```text
//!  redo   ___________________________________ room = target - fixed
//!   |         /|        /|        /|
//!   |        / |       / |       / |        A sweep begins at half of the room and may take until the room is used:
//!   |  /|   /  |      /  |      /  |        so it has all the time there is, and the next one begins when it ends.
//!   | / | .'   |   .'    |   .'    |        Where the log grows slowly a sweep takes an interval and the next one waits.
//!   |/  |/     | .'      | .'      |
//!   +---+------+---------+---------+---- time
//!   sweep  sweep   sweep
//! ```
//!
//! The sweep follows the log (`Pace::Follow`): when the log grows faster than before, the sweep hurries. If no sweep
//! can keep the target, the policy says so ([`Outlook`]) and still keeps redo short.

use std::time::Duration;

/// The share of the target that is planned with; the rest allows for errors of measurement.
const SHARE: f64 = 0.95;
/// The room for redo where the target leaves none, so that a target shorter than loading does not cause sweeps without
/// an end.
const ROOM_MIN: f64 = 0.1;
/// About how long it may take until the plan is checked again.
const LOOK: Duration = Duration::from_millis(200);
/// How long growth is remembered.
const GROWTH_MEMORY_S: f64 = 2.0;

/// Whether a recovery can be kept within the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outlook {
    /// It can.
    #[default]
    Kept,
    /// It cannot at the present growth of the log: sweeps at full speed, one after the other, are too slow.
    Growth,
    /// It cannot: loading and indexing alone take longer.
    Load,
}

/// A recovery's time at this moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecoveryTime {
    /// Loading and indexing.
    pub fixed: Duration,
    /// Redoing the log since the redo start in force.
    pub redo: Duration,
    /// Seconds of redo that accumulate in a second.
    pub growth: f64,
    /// About how long a sweep without pauses takes.
    pub sweep_min: Duration,
}

/// What the checkpointer has to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SweepPlan {
    /// Whether a sweep begins now.
    pub begin: bool,
    /// How long the sweep may take.
    pub sweep: Duration,
    /// Redo that may accumulate until it is over.
    pub room: Duration,
    /// The recovery's time at the end of a sweep that begins now.
    pub until_checkpoint: Duration,
    pub outlook: Outlook,
}

/// The longest time that a recovery should take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecoveryTarget {
    /// That time.
    pub within: Duration,
    /// The longest time that a sweep takes.
    pub sweep_max: Duration,
}

impl RecoveryTarget {
    /// The plan for this moment.
    pub fn plan(&self, standing: &RecoveryTime) -> SweepPlan {
        let RecoveryTime { fixed, redo, growth, sweep_min } = *standing;
        let room = self.within.mul_f64(SHARE).saturating_sub(fixed).max(self.within.mul_f64(ROOM_MIN));
        // Half of it accumulates before a sweep, half during it.
        let sweep = match growth > 0.0 {
            true => Duration::try_from_secs_f64(room.as_secs_f64() / 2.0 / growth).unwrap_or(Duration::MAX),
            false => self.sweep_max,
        };
        let sweep = sweep.min(self.sweep_max).max(sweep_min);
        let grows = |time: Duration| Duration::try_from_secs_f64(time.as_secs_f64() * growth).unwrap_or(time);
        let outlook = if fixed > self.within {
            Outlook::Load
        } else if fixed + grows(sweep_min) * 2 > self.within {
            Outlook::Growth
        } else {
            Outlook::Kept
        };
        SweepPlan {
            begin: redo + grows(sweep + LOOK) >= room,
            sweep,
            room: room.saturating_sub(redo),
            until_checkpoint: fixed + redo + grows(sweep),
            outlook,
        }
    }
}

/// How fast the log grows, in seconds of redo a second: a decaying mean.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Growth {
    last: Option<(Duration, f64)>,
    rate: Option<f64>,
}

impl Growth {
    /// Notes how many seconds of redo have accumulated in all at this time.
    pub fn sample(&mut self, now: Duration, redo_s: f64) {
        if let Some((then, before)) = self.last {
            let passed = now.saturating_sub(then).as_secs_f64();
            if passed <= 0.0 {
                return;
            }
            let rate = ((redo_s - before) / passed).max(0.0);
            let weight = 1.0 - (-passed / GROWTH_MEMORY_S).exp();
            self.rate = Some(self.rate.map_or(rate, |old| old + (rate - old) * weight));
        }
        self.last = Some((now, redo_s));
    }

    /// Seconds of redo a second.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_S: f64 = 0.1;

    /// A database in virtual time.
    struct Simulated {
        within_s: f64,
        fixed_s: f64,
        sweep_min_s: f64,
        /// Seconds of redo a second at a given time.
        grows: fn(f64) -> f64,
    }

    /// The result of a simulation.
    #[derive(Debug)]
    struct Ran {
        sweeps: u32,
        longest_s: f64,
        last: Outlook,
    }

    impl Simulated {
        /// Runs for so many seconds; the longest recovery counts from `settled_s` on.
        fn run(&self, seconds: f64, settled_s: f64) -> Ran {
            let duration = Duration::from_secs_f64;
            let target = RecoveryTarget { within: duration(self.within_s), sweep_max: duration(30.0) };
            let (mut growth, mut ever, mut since_start) = (Growth::default(), 0.0, 0.0);
            // For a sweep: its plan, when it began, redo since then, and the share that is done.
            let mut sweep: Option<(SweepPlan, f64, f64, f64)> = None;
            let mut ran = Ran { sweeps: 0, longest_s: 0.0, last: Outlook::Kept };
            for step in 0..(seconds / STEP_S) as u64 {
                let now = step as f64 * STEP_S;
                let more = (self.grows)(now) * STEP_S;
                ever += more;
                since_start += more;
                if now >= settled_s {
                    ran.longest_s = ran.longest_s.max(self.fixed_s + since_start);
                }
                match &mut sweep {
                    Some((plan, began, came_up, done)) => {
                        *came_up += more;
                        let used = *came_up / plan.room.as_secs_f64().max(1e-9);
                        let paced = ((now - *began) / plan.sweep.as_secs_f64()).max(used);
                        *done += (paced - *done).clamp(0.0, STEP_S / self.sweep_min_s);
                        if *done >= 1.0 {
                            since_start = *came_up;
                            sweep = None;
                            growth.sample(duration(now), ever);
                        }
                    }
                    None => {
                        growth.sample(duration(now), ever);
                        let plan = target.plan(&RecoveryTime {
                            fixed: duration(self.fixed_s),
                            redo: duration(since_start),
                            growth: growth.rate(),
                            sweep_min: duration(self.sweep_min_s),
                        });
                        ran.last = plan.outlook;
                        if plan.begin {
                            ran.sweeps += 1;
                            sweep = Some((plan, now, 0.0, 0.0));
                        }
                    }
                }
            }
            ran
        }
    }

    #[test]
    fn a_recovery_stays_within_its_time_and_sweeps_come_as_often_as_the_log_grows() {
        let base = Simulated { within_s: 10.0, fixed_s: 4.0, sweep_min_s: 1.0, grows: |_| 0.0 };
        let idle = base.run(600.0, 0.0);
        assert_eq!((idle.sweeps, idle.last), (0, Outlook::Kept), "nothing comes up: nothing is swept");
        let mut before = 0;
        for (grows, a_minute) in [
            ((|_| 0.02) as fn(f64) -> f64, 0.2..0.3),
            (|_| 0.1, 2.0..2.4),
            (|_| 0.2, 4.0..4.8),
            (|_| 0.4, 8.0..9.6),
            (|_| 0.8, 16.0..19.2),
        ] {
            let ran = Simulated { grows, ..base }.run(600.0, 0.0);
            assert!(ran.longest_s <= 10.0, "{ran:?}");
            assert_eq!(ran.last, Outlook::Kept);
            let sweeps = f64::from(ran.sweeps) / 10.0;
            assert!(a_minute.contains(&sweeps), "{sweeps} a minute: {ran:?}");
            assert!(ran.sweeps > before, "more often as the log grows faster");
            before = ran.sweeps;
            // There is no reason to sweep more often than needed.
            assert!(ran.longest_s >= 8.0, "{ran:?}");
        }
    }

    #[test]
    fn it_is_kept_while_the_log_grows_by_fits_and_starts() {
        let base = Simulated { within_s: 10.0, fixed_s: 2.0, sweep_min_s: 1.0, grows: |_| 0.0 };
        let bursts: [fn(f64) -> f64; 3] = [
            // Ten seconds of each rate.
            |now| if ((now / 10.0) as u64).is_multiple_of(2) { 0.02 } else { 1.0 },
            // All at once, after a long time without growth.
            |now| if now > 300.0 { 1.5 } else { 0.0 },
            // One second a minute in which as much accumulates as in the rest of it.
            |now| if now % 60.0 < 1.0 { 2.0 } else { 0.03 },
        ];
        for grows in bursts {
            let ran = Simulated { grows, ..base }.run(900.0, 0.0);
            assert!(ran.longest_s <= 10.0 && ran.longest_s > 6.0 && ran.sweeps > 1, "{ran:?}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_said_and_redo_is_kept_short() {
        // Loading alone takes longer.
        let load = Simulated { within_s: 10.0, fixed_s: 12.0, sweep_min_s: 0.5, grows: |_| 0.2 };
        let ran = load.run(300.0, 20.0);
        assert_eq!(ran.last, Outlook::Load);
        assert!(ran.longest_s < 13.2 && ran.sweeps < 150, "{ran:?}");
        // In each second more than a second of redo accumulates, and a sweep takes four.
        let growth = Simulated { within_s: 10.0, fixed_s: 4.0, sweep_min_s: 4.0, grows: |_| 1.2 };
        let ran = growth.run(300.0, 20.0);
        assert_eq!(ran.last, Outlook::Growth);
        assert!(ran.longest_s < 4.0 + 2.0 * 1.2 * 4.3 && ran.sweeps > 60, "{ran:?}");
    }

    #[test]
    fn growth_is_a_mean_that_forgets() {
        let mut growth = Growth::default();
        assert_eq!(growth.rate(), 0.0);
        for second in 0..20 {
            growth.sample(Duration::from_secs(second), second as f64 * 0.5);
        }
        assert!((growth.rate() - 0.5).abs() < 1e-9);
        growth.sample(Duration::from_secs(19), 1e9);
        assert!((growth.rate() - 0.5).abs() < 1e-9, "no time has passed");
        for second in 20..30 {
            growth.sample(Duration::from_secs(second), 9.5);
        }
        assert!(growth.rate() < 0.01);
    }
}
