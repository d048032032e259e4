//! [`Checkpointer`]: one checkpoint from begin to home block, and the thread that makes them.

mod demand;
mod room;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::demand::Demand;
use super::black_white::BlackWhite;
use super::catalog_copy::{CatalogCopy, ImageTarget};
use super::copy_on_update::CopyOnUpdate;
use super::fuzzy::Fuzzy;
use super::home::{HomeFile, HomePages, NewHome};
use super::image_sums::ImageSums;
use super::options::CheckpointOptions;
use super::readiness::{Readiness, RecoveryForecast};
use super::report::{CheckpointReport, CheckpointStats};
use super::source::{CheckpointSource, Cut, CutGuard, HeldDefinitions, LeftRoom};
use super::sweep::{Pace, Sweep, SweepControl, SweepPolicy, SweepStats};
use crate::account::processor;
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::checkpoint::Checkpointing;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::foreign::catch;
use crate::ids::Lsn;
use crate::io::{Caching, Clock, Disk, DiskResult, FOR_EVER, File, Moment, Open, remove_in_steps};
use crate::store::Consistency;
use crate::store::memory::image::{backup_name, seed_of};
use crate::store::memory::segments::Copy;
use crate::store::paged::{DiskTables, PageCheckpoint};

/// How often the thread checks whether a checkpoint is due.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a sweep that makes pauses checks the log's room, for a bound on the log of 1 GiB or more. For a smaller
/// bound it checks more often, in proportion, so that the room is not used up between two checks.
const LOOK_AT_LOG_EVERY: Duration = Duration::from_millis(250);
/// How many checks a sweep makes at least while it keeps a recovery target, in the time that it may take; but not more
/// often than every [`LOOK_AT_LOG_MIN`].
const LOOKS_IN_A_SWEEP: u32 = 20;
const LOOK_AT_LOG_MIN: Duration = Duration::from_millis(5);
/// After a failure, or while the archive fails, the least time until the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often a backup that waits for a checkpoint, or for another backup, checks whether it is cancelled.
const LOOK_AT_CANCEL_EVERY: Duration = Duration::from_millis(100);

/// How a sweep gets its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Fuzzy,
    CopyOnUpdate(Consistency),
    BlackWhite(Consistency),
}

impl Method {
    fn of(strategy: Checkpointing) -> Method {
        match strategy {
            Checkpointing::Fuzzy | Checkpointing::None => Method::Fuzzy,
            Checkpointing::ActionCopyOnUpdate => Method::CopyOnUpdate(Consistency::Action),
            Checkpointing::TransactionCopyOnUpdate => Method::CopyOnUpdate(Consistency::Transaction),
            Checkpointing::ActionBlackWhite => Method::BlackWhite(Consistency::Action),
            Checkpointing::TransactionBlackWhite => Method::BlackWhite(Consistency::Transaction),
        }
    }
}

/// Makes checkpoints: on its thread when one is due, and on demand.
pub(crate) struct Checkpointer {
    disk: Arc<dyn Disk>,
    clock: Clock,
    /// When it was made; its times count from then.
    opened: Moment,
    source: Arc<dyn CheckpointSource>,
    options: CheckpointOptions,
    /// Held for the length of a checkpoint.
    home: Mutex<HomeFile>,
    /// The checksums of the images in the copies.
    sums: ImageSums,
    /// How many checkpoints on demand wait for `home`, or run.
    demands: AtomicU64,
    /// The number of the last sweep that was begun; the number of a failed sweep is not used again.
    sweeps: AtomicU32,
    control: Arc<SweepControl>,
    /// Whether transactions wait for room in the log.
    room_wanted: AtomicBool,
    readiness: Readiness,
    state: Mutex<CheckpointerState>,
    wake: Condvar,
}

#[derive(Default)]
struct CheckpointerState {
    /// How the next checkpoint is made.
    strategy: Checkpointing,
    stats: CheckpointStats,
    redo_start: Lsn,
    /// The place before which the log was freed between checkpoints.
    freed_before: Lsn,
    /// When the last checkpoint began; and when one last failed, or the archive last kept the log that one would have
    /// freed.
    began: Option<Duration>,
    failed: Option<Duration>,
    thread: Option<JoinHandle<()>>,
    /// The copy whose file was made while its name is not known to be durable.
    unnamed: Option<Copy>,
    /// Whether a checkpoint has panicked: then no checkpoint is made by itself any more.
    is_over: bool,
}

impl Checkpointer {
    /// A checkpointer for the database of this home file, with the checksums of the images in the copy in force. It has
    /// no thread yet.
    pub fn new(
        disk: Arc<dyn Disk>,
        clock: Clock,
        (home, sums): (HomeFile, ImageSums),
        source: Arc<dyn CheckpointSource>,
        options: CheckpointOptions,
    ) -> Arc<Checkpointer> {
        let options = CheckpointOptions { interval: options.interval.min(FOR_EVER), ..options };
        let state = CheckpointerState { redo_start: home.block().redo_start, ..CheckpointerState::default() };
        let control = Arc::new(SweepControl::default());
        let nudged = control.clone();
        source.segments().painting().when_asked(move || nudged.nudge());
        Arc::new(Checkpointer {
            disk,
            opened: clock.now(),
            clock,
            source,
            options,
            sweeps: AtomicU32::new(home.last_sweep()),
            home: Mutex::new(home),
            sums,
            demands: AtomicU64::new(0),
            control,
            room_wanted: AtomicBool::new(false),
            readiness: Readiness::new(&options),
            state: Mutex::new(state),
            wake: Condvar::new(),
        })
    }

    /// The time since it was made.
    fn now(&self) -> Duration {
        self.clock.now() - self.opened
    }

    /// Sets how checkpoints are made, from the next one on.
    pub fn choose(&self, strategy: Checkpointing) {
        let mut state = self.state.lock();
        state.strategy = strategy;
        // Not taken back before the present sweep is over.
        if strategy == Checkpointing::TransactionBlackWhite {
            self.source.segments().painting().note_reads(true);
        }
    }

    /// Starts the thread that makes checkpoints in the background, if there is none yet.
    pub fn start(self: &Arc<Checkpointer>) -> Result<()> {
        let mut state = self.state.lock();
        if state.thread.is_some() {
            return Ok(());
        }
        let checkpointer = self.clone();
        let thread = std::thread::Builder::new()
            .name("rialto-checkpoint".to_owned())
            .spawn(move || checkpointer.serve())
            .map_err(|error| Error::Io {
                file: "rialto-checkpoint".to_owned(),
                offset: 0,
                operation: "start of the thread".to_owned(),
                cause: error.to_string(),
            })?;
        state.thread = Some(thread);
        Ok(())
    }

    /// Stops a checkpoint that is being made, and the thread.
    pub fn stop(&self) {
        self.control.stop();
        let thread = {
            let mut state = self.state.lock();
            self.wake.notify_all();
            state.thread.take()
        };
        if let Some(thread) = thread {
            // Its panic counts as a failed checkpoint: the last complete one stays in force.
            let _ = thread.join();
        }
    }

    /// Makes a checkpoint that begins after this call, without pauses, and waits for it.
    pub fn run_now(&self) -> Result<CheckpointReport> {
        self.run_now_unless(None)
    }

    /// The same; `cancelled` ends the wait until it can begin.
    pub fn run_now_unless(&self, cancelled: Option<&AtomicBool>) -> Result<CheckpointReport> {
        // Transactions in progress may have to go on before the checkpoint can begin.
        let _waiting = WaitGuard::enter(&self.clock, Awaited::Checkpoint);
        let _demand = Demand::of(self);
        self.run(cancelled)
    }

    /// Takes back the hurry of a caller that has what it asked for. Others may still wait: for a checkpoint on demand,
    /// or for room in the log. They announce that before they hurry the sweep, so either this sees them, or they hurry
    /// it after this.
    fn calm(&self) {
        self.control.set_urgent(false);
        if self.demands.load(Ordering::SeqCst) > 0 || self.room_wanted.load(Ordering::SeqCst) {
            self.control.set_urgent(true);
        }
    }

    /// Whether checkpoints are made by themselves, and not only on demand.
    pub fn is_on(&self) -> bool {
        self.state.lock().strategy != Checkpointing::None
    }

    /// Runs `take` while no checkpoint runs and none begins; `take` can see that the database closes. A sweep in
    /// progress is hurried. `cancelled` ends the wait for it, and the wait for another caller of this.
    pub fn between_checkpoints<T>(
        &self,
        cancelled: &AtomicBool,
        take: impl FnOnce(&dyn CheckpointSource, &dyn Fn() -> bool) -> Result<T>,
    ) -> Result<T> {
        let _waiting = WaitGuard::enter(&self.clock, Awaited::Checkpoint);
        let _demand = Demand::of(self);
        let _home = self.lock_home(Some(cancelled))?;
        take(&*self.source, &|| self.control.is_stopped())
    }

    /// Waits until no checkpoint runs, nor a backup, or until it is `cancelled` or the database closes.
    fn lock_home(&self, cancelled: Option<&AtomicBool>) -> Result<MutexGuard<'_, HomeFile>> {
        loop {
            let mut home = self.home.try_lock();
            if home.is_none() {
                self.clock.wait_by(Some(LOOK_AT_CANCEL_EVERY), |limit| {
                    home = self.home.try_lock_for(limit.unwrap_or_default());
                });
            }
            if self.control.is_stopped() {
                return Err(Error::Closed);
            }
            if cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                return Err(Error::Cancelled);
            }
            if let Some(home) = home {
                return Ok(home);
            }
        }
    }

    /// Waits until no checkpoint runs, nor a backup or a copy. Once it is stopped none begins any more.
    pub fn wait_until_idle(&self) {
        let _waiting = WaitGuard::enter(&self.clock, Awaited::Checkpoint);
        let mut is_idle = self.home.try_lock().is_some();
        while !is_idle {
            self.clock.wait_by(Some(LOOK_AT_CANCEL_EVERY), |limit| {
                is_idle = self.home.try_lock_for(limit.unwrap_or_default()).is_some();
            });
        }
    }

    /// The sums over checkpoints so far.
    pub fn stats(&self) -> CheckpointStats {
        self.state.lock().stats.clone()
    }

    /// Processor time of the threads that made checkpoints, the one in progress included.
    pub fn server_time(&self) -> Duration {
        self.control.server_time.read()
    }

    /// How long a recovery from now would take.
    pub fn forecast(&self) -> RecoveryForecast {
        let redo_start = self.state.lock().redo_start;
        self.readiness.forecast(&*self.source, &*self.disk, redo_start)
    }

    fn serve(&self) {
        loop {
            let mut state = self.state.lock();
            // By the machine's clock: no thread makes checkpoints where the clock is virtual.
            self.wake.wait_for(&mut state, LOOK_EVERY.min(self.options.interval));
            if self.control.is_stopped() {
                return;
            }
            drop(state);
            if !self.look_and_survive() {
                return;
            }
        }
    }

    /// Does what is due in the caller's thread, without pauses, where no thread does it. It does nothing while another
    /// caller makes a checkpoint or keeps checkpoints off, such as a backup whose stream's code may be the caller of
    /// this.
    pub(crate) fn drive(&self) {
        let is_free = self.home.try_lock().is_some();
        if is_free && !self.control.is_stopped() {
            let _demand = Demand::of(self);
            self.look_and_survive();
        }
    }

    /// As [`Checkpointer::look`]; false if it has panicked: then no checkpoint is made by itself any more.
    fn look_and_survive(&self) -> bool {
        let is_alive = catch(|| self.look()).is_ok();
        if !is_alive {
            // The last complete checkpoint stays in force. It is not known how far this one came, so no other is begun.
            let what = "a checkpoint panicked: none is made by itself until the database is opened again";
            let mut state = self.state.lock();
            state.stats.failure = Some(what.to_owned());
            state.is_over = true;
        }
        is_alive
    }

    /// Does what is due.
    pub(super) fn look(&self) {
        let (began, failed, redo_start) = {
            let state = self.state.lock();
            if state.strategy == Checkpointing::None || state.is_over {
                return;
            }
            (state.began, state.failed, state.redo_start)
        };
        // However long transactions wait for room: a step that has just failed would be repeated without a pause and
        // keep a processor busy.
        if failed.is_some_and(|failed| self.now() < failed + RETRY_AFTER) {
            return;
        }
        let room_wanted = self.room_wanted.load(Ordering::SeqCst);
        if room_wanted || self.source.log_bytes_used() > self.options.log_bytes_pressing() {
            self.make_room(redo_start, room_wanted);
        }
        if self.is_due(began, failed, redo_start) {
            // A failure is noted in the state; the next checkpoint is tried when it is due.
            let _ = self.run(None);
        }
    }

    /// The value of [`CheckpointerState::failed`] after an attempt: the present moment if it failed or was of no use.
    fn failed(&self, is_failure: bool) -> Option<Duration> {
        (is_failure || self.source.archive_failure().is_some()).then(|| self.now())
    }

    fn is_due(&self, began: Option<Duration>, failed: Option<Duration>, redo_start: Lsn) -> bool {
        let now = self.now();
        let log_bytes = self.source.log_bytes_since(redo_start);
        let pressing = log_bytes > self.options.log_bytes_due();
        let plan = self.readiness.look(now, &*self.source, &*self.disk, redo_start);
        let room_wanted = self.room_wanted.load(Ordering::SeqCst);
        // After a failure the next attempt is not made for places before its time.
        let places_wanted = failed.is_none_or(|failed| now >= failed + self.options.interval)
            && self.source.disk_tables().is_some_and(DiskTables::wants_checkpoint);
        if room_wanted || places_wanted || log_bytes > self.options.log_bytes_pressing() {
            self.control.set_urgent(true);
        }
        // The first interval counts from the opening.
        let rested = now >= began.unwrap_or_default() + self.options.interval;
        let due = plan.map_or(rested, |plan| plan.begin);
        pressing || room_wanted || (places_wanted || due) && self.source.place() >= redo_start
    }

    fn run(&self, cancelled: Option<&AtomicBool>) -> Result<CheckpointReport> {
        let mut home = self.lock_home(cancelled)?;
        let _left_room = LeftRoom::of(&*self.source);
        let began = self.now();
        let cpu_before = thread_cpu();
        processor::begin();
        self.state.lock().began = Some(began);
        let outcome = self.checkpoint(&mut home, began).map(|mut report| {
            report.cpu = thread_cpu().saturating_sub(cpu_before);
            report
        });
        // A transaction that still waits asks again.
        self.room_wanted.store(false, Ordering::SeqCst);
        self.control.server_time.lap();
        self.calm();
        let failed = self.failed(outcome.is_err());
        let mut state = self.state.lock();
        let noted = state.strategy == Checkpointing::TransactionBlackWhite;
        self.source.segments().painting().note_reads(noted);
        match &outcome {
            Ok(report) => {
                state.redo_start = report.redo_start;
                state.failed = failed;
                state.stats.failure = None;
                if !report.skipped {
                    state.stats.completed += 1;
                    state.stats.written_bytes += report.written_bytes;
                    state.stats.copied_bytes += report.copied_bytes;
                    state.stats.cpu += report.cpu;
                    state.stats.latches += report.latches;
                    state.stats.latch_conflicts += report.busy;
                    state.stats.hold_max = state.stats.hold_max.max(report.hold_max);
                    state.stats.last = Some(*report);
                }
            }
            Err(Error::Closed) => {}
            Err(error) => {
                state.failed = failed;
                state.stats.failed += 1;
                state.stats.failure = Some(error.to_string());
            }
        }
        outcome
    }

    /// Counts the cut of a checkpoint or of a backup: how long it kept commits from their places, and how many bytes
    /// were kept for it.
    pub fn note_cut(&self, held: Duration, snapshot_bytes: u64) {
        let stats = &mut self.state.lock().stats;
        stats.cuts += 1;
        stats.cut_held_max = stats.cut_held_max.max(held);
        stats.snapshot_bytes_max = stats.snapshot_bytes_max.max(snapshot_bytes);
    }

    /// Makes a checkpoint, in the order of I5.
    fn checkpoint(&self, home: &mut HomeFile, began: Duration) -> Result<CheckpointReport> {
        let current = *home.block();
        let redo_start = self.source.redo_start();
        let room_wanted = self.room_wanted.load(Ordering::SeqCst);
        if redo_start <= current.redo_start && !(room_wanted && self.keeps_log(home)) {
            if room_wanted {
                self.free_all_but_newest(home)?;
            }
            return Ok(self.report(current.sequence, true, SweepStats::default(), began, current.redo_start));
        }

        let next = |last: u32| last.checked_add(1);
        let last = self.sweeps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = last.map_err(|limit| Error::NumbersUsedUp { what: "checkpoints", limit })? + 1;
        // With two copies, what only the older checkpoint needs is freed once that checkpoint can no longer be
        // believed; with three, what neither checkpoint needs.
        let needed = home.make_way(self.options.copies)?;
        self.free_all_but(needed)?;
        if self.options.copies == 2 && current.copy != Some(Copy::Third) {
            self.remove_third_copy()?;
        }

        let disk_tables = self.source.disk_tables();
        disk_tables.iter().for_each(|tables| tables.free_gone());
        let copy = home.next_copy(self.options.copies);
        let file = self.open_copy(copy)?;
        let log_bytes = || self.source.log_bytes_used();
        let (log_begins, log_ends) = (log_bytes(), self.options.log_bytes_pressing());
        // The time that the recovery target leaves for this sweep.
        let plan = self.readiness.look(began, &*self.source, &*self.disk, current.redo_start);
        let redo_began = self.readiness.redo_clock(&*self.source);
        let places_press = || self.source.disk_tables().is_some_and(DiskTables::wants_checkpoint);
        let log_presses = || log_bytes() > log_ends || places_press();
        let room_used = || match log_ends.checked_sub(log_begins) {
            Some(room) if room > 0 => log_bytes().saturating_sub(log_begins) as f64 / room as f64,
            _ => 1.0,
        };
        let log_used = || {
            let of_target = plan.map_or(0.0, |plan| self.readiness.used(&plan, redo_began, &*self.source));
            let of_places = if places_press() { 1.0 } else { 0.0 };
            room_used().max(of_target).max(of_places)
        };
        let (segments, strategy) = (self.source.segments(), self.state.lock().strategy);
        let strategy = if strategy == Checkpointing::None { self.options.on_demand } else { strategy };
        let method = Method::of(strategy);
        let mut uncut = CutGuard { source: &*self.source, is_cut: false };
        let target = ImageTarget {
            copy,
            file: &*file,
            seed: seed_of(current.database_id),
            sequence: home.next_sequence(),
            sums: &self.sums,
        };
        // The catalog in the copy is the one at the redo start. It is taken as late as possible, because redo is
        // shorter then.
        let held = HeldDefinitions::hold(&*self.source);
        let heaps = &held.defined.heaps;
        let catalog = CatalogCopy::take(segments, heaps.clone(), self.options.snapshot_bytes_max, &target)?;
        let redo_start = held.defined.redo_start;
        // The definitions are those of the copy's catalog until the redo start. With three copies the older block stays in
        // force.
        let older_is_kept = home.older().is_some();
        let mut pages = disk_tables.and_then(|tables| tables.begin_checkpoint(older_is_kept));
        let page_place = pages.as_mut().map(|pages| pages.cut(|cut| self.source.cut_pages(cut)));
        let cut = match method {
            Method::CopyOnUpdate(consistency) => {
                uncut.is_cut = true;
                segments.whiten(copy, self.options.snapshot_bytes_max);
                // Before the cut, because segments that are white at the cut are kept before they change.
                catalog.paint();
                let cut = self.source.cut(consistency, heaps);
                // An entry that was made meanwhile may show an earlier place than it takes.
                Cut { redo_start: cut.redo_start.max(redo_start), ..cut }
            }
            Method::BlackWhite(consistency) => {
                uncut.is_cut = true;
                // The number is set first: a commit that finds a white segment is held by this sweep.
                segments.painting().begin(number, consistency);
                segments.whiten(copy, 0);
                let begun = self.source.paint(consistency);
                catalog.paint();
                Cut { redo_start: begun.redo_start.max(redo_start), ..begun }
            }
            Method::Fuzzy => {
                let redo_start = self.source.redo_start().max(redo_start);
                Cut { redo_start, end: segments.high_water(), held: Duration::ZERO }
            }
        };
        drop(held);
        let mut write_pages = || pages.as_mut().map(PageCheckpoint::write).transpose();
        // A sweep at a cut comes first: commits may wait until it has copied what they change.
        let sweeps_first = matches!(method, Method::CopyOnUpdate(_));
        let written_pages = if sweeps_first { None } else { write_pages()? };
        let look_at_log_every =
            LOOK_AT_LOG_EVERY.mul_f64((self.options.log_bytes_max as f64 / (1 << 30) as f64).clamp(0.1, 1.0));
        let look_at_log_every = match plan {
            Some(plan) => look_at_log_every.min((plan.sweep / LOOKS_IN_A_SWEEP).max(LOOK_AT_LOG_MIN)),
            None => look_at_log_every,
        };
        let swept_from = self.now();
        let rested_before = self.control.rested();
        let sweep = Sweep {
            segments,
            target,
            end: cut.end,
            pace: match self.options.sweep_bytes_per_s {
                Some(0) => Pace::Unpaced,
                Some(a_second) => {
                    Pace::Bytes { a_second, look_every: look_at_log_every, log_presses: &log_presses }
                }
                None => Pace::Follow {
                    within: plan.map_or(self.options.interval, |plan| plan.sweep),
                    look_every: look_at_log_every,
                    log_used: &log_used,
                },
            },
            run: self.options.run,
            spool: self.options.spool,
            clock: &self.clock,
            control: &self.control,
        };
        let policy: &mut dyn SweepPolicy = match method {
            Method::CopyOnUpdate(_) => &mut CopyOnUpdate::default(),
            Method::BlackWhite(_) => &mut BlackWhite::default(),
            Method::Fuzzy => &mut Fuzzy::default(),
        };
        let swept = sweep.run(catalog, policy);
        let snapshot_bytes = segments.snapshots().most_bytes();
        drop(uncut);
        if matches!(method, Method::CopyOnUpdate(_)) {
            self.note_cut(cut.held, snapshot_bytes);
        }
        let swept = swept?;
        let written_pages = if sweeps_first { write_pages()? } else { written_pages };
        let now = self.now();
        let busy = (now - swept_from).saturating_sub(self.control.rested() - rested_before);
        self.readiness.swept(now, &*self.source, swept.written_bytes, busy);

        // Clearance: everything that was applied before the sweep ended has a place by now.
        let next_id = self.source.next_id();
        let clearance = self.source.point()?;
        if !fault_injection::is_on("home-before-its-clearance") {
            self.source.wait_durable(clearance.lsn)?;
        }

        let (segments, redo_start) = (swept.end, cut.redo_start);
        let transaction_consistent = matches!(
            method,
            Method::CopyOnUpdate(Consistency::Transaction) | Method::BlackWhite(Consistency::Transaction)
        );
        let new = NewHome {
            copy,
            segments,
            redo_start,
            next_id,
            sweep: number,
            clearance,
            transaction_consistent,
            logged: self.options.unlogged_behind.is_none_or(|opened_at| redo_start <= opened_at.next()),
            digest: swept.digest,
            redone: self.source.redone(),
            pages: written_pages.zip(page_place).map(|(pages, place)| HomePages::new(pages, place)),
        };
        pages.iter_mut().for_each(PageCheckpoint::begin_naming);
        home.publish(new)?;
        if let Some(pages) = pages {
            pages.complete();
        }
        self.source.published(home.block());
        if self.options.copies > 2 || self.room_wanted.load(Ordering::SeqCst) {
            // Done now, because commits may wait for the room. If this fails, the next checkpoint meets the failure and
            // reports it.
            let _ = self.free_all_but_newest(home);
        }
        let mut report = self.report(home.block().sequence, false, swept, began, cut.redo_start);
        report.cut_held = cut.held;
        report.snapshot_bytes = if matches!(method, Method::CopyOnUpdate(_)) { snapshot_bytes } else { 0 };
        Ok(report)
    }

    /// Opens the file of the copy that is swept next. Invariant: **the name of a file that a home block will name is
    /// durable.** For a file that an opening finds this holds because the opening syncs the directory. For a file that
    /// is made here it holds once the directory is synced. If that sync fails, no later one makes up for it: the next
    /// checkpoint removes the file and makes it anew.
    fn open_copy(&self, copy: Copy) -> DiskResult<Arc<dyn File>> {
        let name = backup_name(copy);
        if self.state.lock().unnamed == Some(copy) {
            self.disk.remove(&name).or_else(|error| if error.is_missing() { Ok(()) } else { Err(error) })?;
        }
        match self.disk.open(&name, Open::Existing, Caching::Direct) {
            Err(error) if error.is_missing() => {
                self.state.lock().unnamed = Some(copy);
                let file = self.disk.open(&name, Open::Create, Caching::Direct)?;
                self.disk.sync_directory()?;
                self.state.lock().unnamed = None;
                Ok(file)
            }
            opened => opened,
        }
    }

    fn report(
        &self,
        sequence: u64,
        skipped: bool,
        swept: SweepStats,
        began: Duration,
        redo_start: Lsn,
    ) -> CheckpointReport {
        CheckpointReport {
            sequence,
            skipped,
            segments: swept.segments,
            latches: swept.latches,
            busy: swept.busy,
            written_bytes: swept.written_bytes,
            copied_bytes: swept.copied_bytes,
            hold_max: swept.hold_max,
            cut_held: Duration::ZERO,
            snapshot_bytes: 0,
            took: self.now() - began,
            // Known once the checkpoint is over.
            cpu: Duration::ZERO,
            redo_start,
        }
    }

    /// For a change from three copies to two: no block names the third.
    fn remove_third_copy(&self) -> Result<()> {
        let name = backup_name(Copy::Third);
        match remove_in_steps(&*self.disk, &name) {
            Err(error) if !error.is_missing() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Processor time of the calling thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("options", &self.options).finish_non_exhaustive()
    }
}
