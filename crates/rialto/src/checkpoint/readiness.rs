//! [`Readiness`]: how long a recovery from now would take, and what the checkpointer has to do about it.
//!
//! It knows what a recovery's parts cost on this machine ([`RecoveryRates`]), follows how fast the log grows and how
//! fast sweeps go, and asks the policy ([`RecoveryTarget`]).

use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::recovery_target::{Growth, Outlook, RecoveryTarget, RecoveryTime, SweepPlan};
use super::{CheckpointOptions, CheckpointSource};
use crate::checkpoint::{RecoveryEstimate, RecoveryRates, RecoveryWork};
use crate::ids::Lsn;
use crate::io::{Caching, Disk, FOR_EVER, Open};
use crate::store::memory::SEGMENT_BYTES;
use crate::store::memory::load_file::load_file_name;

/// How fast a sweep writes without pauses, until one is measured.
const SWEEP_BYTES_PER_S: f64 = 200e6;
/// The time of a sweep beside its writes: the home block, twice, and the wait for the log.
const SWEEP_OVERHEAD: Duration = Duration::from_millis(50);
/// Packets between two assumptions of the cost of redoing a packet.
const PACKETS_PER_ASSUMPTION: u64 = 10_000;
/// An outlook is told once it has lasted this long.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// What a recovery that began now would take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RecoveryForecast {
    /// What it would have to do.
    pub work: RecoveryWork,
    /// How long that would take.
    pub estimate: RecoveryEstimate,
    /// The longest that it can become until the next checkpoint completes, if that began now.
    pub until_checkpoint: Duration,
    /// The longest time that it should take ([`Options::recovery_within`](crate::Options::recovery_within)).
    pub within: Option<Duration>,
    /// Whether it can be kept within that.
    pub outlook: Outlook,
    /// The costs of the parts.
    pub rates: RecoveryRates,
}

/// See the [module](self).
pub(crate) struct Readiness {
    target: Option<RecoveryTarget>,
    sweep_max: Duration,
    /// The bound on a sweep's bytes a second.
    pace: f64,
    state: Mutex<ReadinessState>,
}

struct ReadinessState {
    rates: RecoveryRates,
    /// The last place when an assumption was made; at first the first place.
    assumed_at: Option<u64>,
    growth: Growth,
    /// The log's position and last place at the last check, and the seconds of redo that had accumulated by then.
    looked: Option<(u64, u64)>,
    redo_s: f64,
    /// How fast sweeps write, and how much the last one wrote.
    sweep_bytes_per_s: Option<f64>,
    swept_bytes: Option<u64>,
    /// Bytes of load files, by number.
    loads: HashMap<u64, u64>,
    /// The outlook, since when it holds, and the one that was told last.
    outlook: (Outlook, Duration),
    told: Outlook,
}

impl Readiness {
    /// For a checkpointer with these options.
    pub fn new(options: &CheckpointOptions) -> Readiness {
        let sweep_max = options.interval;
        Readiness {
            target: options.recovery_within.map(|within| RecoveryTarget { within, sweep_max }),
            sweep_max,
            pace: options
                .sweep_bytes_per_s
                .filter(|pace| *pace > 0)
                .map_or(f64::INFINITY, |pace| pace as f64),
            state: Mutex::new(ReadinessState {
                rates: options.recovery_rates,
                assumed_at: None,
                growth: Growth::default(),
                looked: None,
                redo_s: 0.0,
                sweep_bytes_per_s: None,
                swept_bytes: None,
                loads: HashMap::new(),
                outlook: (Outlook::Kept, Duration::ZERO),
                told: Outlook::Kept,
            }),
        }
    }

    /// Measures how fast the log grows, and plans for the target, if there is one; tells the user when it cannot be
    /// kept.
    pub fn look(
        &self,
        now: Duration,
        source: &dyn CheckpointSource,
        disk: &dyn Disk,
        redo_start: Lsn,
    ) -> Option<SweepPlan> {
        let mut state = self.state.lock();
        state.sample(now, source);
        state.assume(source, disk);
        let target = self.target?;
        let work = state.work(source, disk, redo_start);
        let plan = target.plan(&state.standing(&work, self.pace));
        if state.outlook.0 != plan.outlook {
            state.outlook = (plan.outlook, now);
        }
        let mut line = None;
        if state.told != plan.outlook && now >= state.outlook.1 + TOLD_AFTER {
            state.told = plan.outlook;
            line = Some(state.words(&target, &work, &plan, self.pace));
        }
        // The user's code, which is told, may ask for a forecast.
        drop(state);
        if let Some(line) = line {
            source.tell(&line);
        }
        Some(plan)
    }

    /// The share, 0 to 1, of a plan's room for redo that is used, if the [`Readiness::redo_clock`] showed `began` when
    /// the plan was made.
    pub fn used(&self, plan: &SweepPlan, began: f64, source: &dyn CheckpointSource) -> f64 {
        let came_up = self.redo_clock(source) - began;
        came_up / plan.room.as_secs_f64().max(1e-6)
    }

    /// The seconds of redo that have accumulated so far.
    pub fn redo_clock(&self, source: &dyn CheckpointSource) -> f64 {
        self.state.lock().redo_clock(source)
    }

    /// Notes that a sweep wrote so many bytes, and was busy for so long.
    pub fn swept(&self, now: Duration, source: &dyn CheckpointSource, written_bytes: u64, busy: Duration) {
        let mut state = self.state.lock();
        state.sample(now, source);
        state.swept_bytes = Some(written_bytes);
        if written_bytes >= 16 * SEGMENT_BYTES as u64 && !busy.is_zero() {
            let rate = written_bytes as f64 / busy.as_secs_f64();
            state.sweep_bytes_per_s = Some(state.sweep_bytes_per_s.map_or(rate, |old| (old + rate) / 2.0));
        }
    }

    /// What a recovery that began now would take.
    pub fn forecast(
        &self,
        source: &dyn CheckpointSource,
        disk: &dyn Disk,
        redo_start: Lsn,
    ) -> RecoveryForecast {
        let mut state = self.state.lock();
        let work = state.work(source, disk, redo_start);
        let target = self.target.unwrap_or(RecoveryTarget { within: FOR_EVER, sweep_max: self.sweep_max });
        let plan = target.plan(&state.standing(&work, self.pace));
        RecoveryForecast {
            work,
            estimate: state.rates.estimate(&work),
            until_checkpoint: plan.until_checkpoint,
            within: self.target.map(|target| target.within),
            outlook: if self.target.is_some() { plan.outlook } else { Outlook::Kept },
            rates: state.rates,
        }
    }
}

impl ReadinessState {
    fn sample(&mut self, now: Duration, source: &dyn CheckpointSource) {
        self.redo_s = self.redo_clock(source);
        self.looked = Some((source.log_position(), source.place().0));
        self.growth.sample(now, self.redo_s);
    }

    /// Until a recovery has measured the cost of redoing a packet, the time that running its transaction took stands
    /// for it, in the record too: the next recovery may be the first.
    fn assume(&mut self, source: &dyn CheckpointSource, disk: &dyn Disk) {
        let place = source.place().0;
        let assumed_at = *self.assumed_at.get_or_insert(place);
        if self.rates.packet.is_measured || place < assumed_at + PACKETS_PER_ASSUMPTION {
            return;
        }
        self.assumed_at = Some(place);
        if let Some(ns) = source.forward_ns()
            && self.rates.assume_packet(ns, source.pages_read())
            && disk.has_speed()
        {
            // It is only an assumption: without a record another one is made.
            let _ = self.rates.record(disk);
        }
    }

    /// What accumulated is counted with the costs of that time.
    fn redo_clock(&self, source: &dyn CheckpointSource) -> f64 {
        let Some((position, place)) = self.looked else { return self.redo_s };
        let bytes = source.log_position().saturating_sub(position);
        self.redo_s + self.rates.redo(bytes, source.place().0.saturating_sub(place)).as_secs_f64()
    }

    fn work(&mut self, source: &dyn CheckpointSource, disk: &dyn Disk, redo_start: Lsn) -> RecoveryWork {
        let bytes = u64::from(source.segments().high_water()) * SEGMENT_BYTES as u64;
        let mut bulk_bytes = 0;
        for load in source.loads().lock().iter().filter(|load| load.is_needed_from(redo_start)) {
            bulk_bytes += *self.loads.entry(load.number).or_insert_with(|| {
                let file = disk.open(&load_file_name(load.number), Open::ReadOnly, Caching::Buffered);
                file.and_then(|file| file.length()).unwrap_or(0)
            });
        }
        RecoveryWork {
            // The rows of bulk loads are not in the copy.
            copy_bytes: bytes.saturating_sub(bulk_bytes),
            memory_bytes: bytes,
            log_bytes: source.log_bytes_since(redo_start),
            packets: (source.place().0 + 1).saturating_sub(redo_start.0),
            bulk_bytes,
        }
    }

    fn sweep_min(&self, work: &RecoveryWork, pace: f64) -> Duration {
        let bytes = self.swept_bytes.map_or(work.memory_bytes, |swept| swept.min(work.memory_bytes));
        let rate = self.sweep_bytes_per_s.unwrap_or(SWEEP_BYTES_PER_S).min(pace);
        SWEEP_OVERHEAD + Duration::from_secs_f64(bytes as f64 / rate)
    }

    fn standing(&self, work: &RecoveryWork, pace: f64) -> RecoveryTime {
        let estimate = self.rates.estimate(work);
        RecoveryTime {
            fixed: estimate.fixed(),
            redo: estimate.redo,
            growth: self.growth.rate(),
            sweep_min: self.sweep_min(work, pace),
        }
    }

    fn words(&self, target: &RecoveryTarget, work: &RecoveryWork, plan: &SweepPlan, pace: f64) -> String {
        let seconds = |time: Duration| time.as_secs_f64();
        let (within, estimate) = (seconds(target.within), self.rates.estimate(work));
        let sweep_min = seconds(self.sweep_min(work, pace));
        match plan.outlook {
            Outlook::Kept => {
                format!("recovery within {within:.1} s can be kept again: it would take {estimate}")
            }
            Outlook::Load => format!(
                "warning: recovery within {within:.1} s cannot be kept: loading and indexing alone take about {:.1} s \
                 (load {:.1} s, indexes {:.1} s, for {} MB); checkpoints keep redo short; beyond that only a longer \
                 recovery_within or a faster machine helps",
                seconds(estimate.fixed()),
                seconds(estimate.load),
                seconds(estimate.primary + estimate.secondary),
                work.memory_bytes / 1_000_000,
            ),
            Outlook::Growth => format!(
                "warning: recovery within {within:.1} s cannot be kept while the log grows so fast: {:.2} s of redo come \
                 up in a second, and a sweep takes {:.1} s at full speed; recovery would take about {:.1} s, of which \
                 load and indexes are {:.1} s",
                self.growth.rate(),
                sweep_min,
                seconds(estimate.fixed()) + 2.0 * self.growth.rate() * sweep_min,
                seconds(estimate.fixed()),
            ),
        }
    }
}
