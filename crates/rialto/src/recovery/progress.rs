//! Lines that tell a user how a long recovery goes on: how much of a step is done, and about how long the rest will
//! take.
//!
//! The work is known before it begins: the bytes of the backup copy from its home block, the bytes of the log from its
//! files ([`LogReader::extent`](crate::log::LogReader::extent)). The time left of a step follows from its own speed,
//! once it has one; the time of the later steps is their expected time ([`RecoveryRates`](super::RecoveryRates)).
//!
//! A recovery of less than a second prints nothing. A step has at most one line for each tenth of it, and at least a
//! second lies between two lines; so a recovery of minutes or hours prints few lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::foreign::run_caught;
use crate::store::memory::SEGMENT_BYTES;

/// The least time between two lines.
const EVERY: Duration = Duration::from_secs(1);
/// The share of a step that has to be done before its own speed counts.
const OWN_SPEED_FROM: f64 = 0.02;

/// The parts of a recovery, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reading the backup copy.
    Load,
    /// Building the primary indexes of what was loaded.
    Primary,
    /// Redoing the log.
    Redo,
    /// Building the secondary indexes.
    Secondary,
}

impl Step {
    const COUNT: usize = 4;

    fn does(self) -> &'static str {
        match self {
            Step::Load => "loading the backup copy",
            Step::Primary => "building the primary indexes",
            Step::Redo => "redoing the log",
            Step::Secondary => "building the secondary indexes",
        }
    }
}

/// Decides which lines there are, and their text; it knows no clock and no terminal.
#[derive(Debug)]
struct Lines {
    /// How long each step is expected to take.
    expected: [Duration; Step::COUNT],
    step: Step,
    step_began: Duration,
    /// The work of the step; 0 if it is unknown.
    total: u64,
    /// When the last line was told, and its step and tenths.
    last: Duration,
    last_at: Option<(Step, u64)>,
    said: u64,
}

impl Lines {
    fn new() -> Lines {
        Lines {
            expected: [Duration::ZERO; Step::COUNT],
            step: Step::Load,
            step_began: Duration::ZERO,
            total: 0,
            last: Duration::ZERO,
            last_at: None,
            said: 0,
        }
    }

    fn begin(&mut self, now: Duration, step: Step, total: u64) {
        (self.step, self.step_began, self.total) = (step, now, total);
    }

    /// The line for `done` of the step, if one is due.
    fn at(&mut self, now: Duration, done: u64, of: impl FnOnce(u64, u64) -> String) -> Option<String> {
        if now < self.last + EVERY || self.total == 0 {
            return None;
        }
        let done = done.min(self.total);
        let share = done as f64 / self.total as f64;
        let at = Some((self.step, (share * 10.0) as u64));
        if at == self.last_at {
            return None;
        }
        (self.last, self.last_at) = (now, at);
        self.said += 1;
        let left = self.left(now, share);
        Some(format!(
            "recovery: {}, {:.0}% of {}; about {} left in all",
            self.step.does(),
            share * 100.0,
            of(done, self.total),
            coarse(left)
        ))
    }

    fn left(&self, now: Duration, share: f64) -> Duration {
        let number = self.step as usize;
        let spent = now - self.step_began;
        let here = match share >= OWN_SPEED_FROM {
            true => spent.mul_f64((1.0 - share) / share),
            false => self.expected[number].saturating_sub(spent),
        };
        here + self.expected[number + 1..].iter().sum::<Duration>()
    }
}

/// A time in round figures.
pub(super) fn coarse(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if seconds < 119.5 {
        format!("{seconds:.0} s")
    } else if seconds < 7170.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// Bytes in round figures.
pub(super) fn bytes(bytes: u64) -> String {
    if bytes < 1_000_000 {
        format!("{:.0} kB", bytes as f64 / 1e3)
    } else if bytes < 1_000_000_000 {
        format!("{:.0} MB", bytes as f64 / 1e6)
    } else {
        format!("{:.2} GB", bytes as f64 / 1e9)
    }
}

/// The code that receives the lines.
pub(crate) type Tell<'a> = &'a (dyn Fn(&str) + Sync);

/// Tells the lines of a recovery in progress. A panic of the code that is told ends its line, and not the recovery.
pub(crate) struct RecoveryProgress<'a> {
    tell: Option<Tell<'a>>,
    began: Instant,
    lines: Mutex<Lines>,
    /// What earlier calls have done for this step.
    before: AtomicU64,
}

impl<'a> RecoveryProgress<'a> {
    /// Lines go to `tell`, if it is given.
    pub fn new(tell: Option<Tell<'a>>) -> RecoveryProgress<'a> {
        RecoveryProgress {
            tell,
            began: Instant::now(),
            lines: Mutex::new(Lines::new()),
            before: AtomicU64::new(0),
        }
    }

    /// Whether the lines go anywhere.
    pub fn is_told(&self) -> bool {
        self.tell.is_some()
    }

    /// How long a step is expected to take.
    pub fn expect(&self, step: Step, time: Duration) {
        self.lines.lock().expected[step as usize] = time;
    }

    /// Begins a step with so much work.
    pub fn begin(&self, step: Step, total: u64) {
        self.before.store(0, Ordering::Relaxed);
        self.lines.lock().begin(self.began.elapsed(), step, total);
    }

    /// Notes that so many segments of a table are indexed. Tells nothing while the log is redone.
    pub fn indexed(&self, segments: usize) {
        if self.is_indexing() {
            self.at(self.before.load(Ordering::Relaxed) + (segments * SEGMENT_BYTES) as u64);
        }
    }

    /// Notes that all segments of a table, `segments` of them, are indexed.
    pub fn indexed_all(&self, segments: usize) {
        if self.is_indexing() {
            self.before.fetch_add((segments * SEGMENT_BYTES) as u64, Ordering::Relaxed);
        }
    }

    fn is_indexing(&self) -> bool {
        self.is_told() && self.lines.lock().step != Step::Redo
    }

    /// Notes how much of the step is done. Each call may cost a system call, so do not call it much more often than
    /// that is worth.
    pub fn at(&self, done: u64) {
        self.at_of(done, |_, total| bytes(total));
    }

    /// As [`RecoveryProgress::at`]; `of` puts what is done and the whole into words.
    pub fn at_of(&self, done: u64, of: impl FnOnce(u64, u64) -> String) {
        let Some(tell) = self.tell else { return };
        let line = self.lines.lock().at(self.began.elapsed(), done, of);
        if let Some(line) = line {
            run_caught(|| tell(&line));
        }
    }

    /// Tells the last line, if there was one before it.
    pub fn end(&self, line: impl FnOnce() -> String) {
        if let Some(tell) = self.tell
            && self.lines.lock().said > 0
        {
            let line = line();
            run_caught(|| tell(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn of(_: u64, total: u64) -> String {
        bytes(total)
    }

    #[test]
    fn the_time_left_is_the_steps_own_and_what_the_next_ones_are_expected_to_take() {
        let mut lines = Lines::new();
        lines.expected = [8.0, 4.0, 20.0, 1.0].map(seconds);
        lines.begin(seconds(0.0), Step::Load, 1_000_000_000);
        assert_eq!(lines.at(seconds(0.9), 500_000_000, of), None, "a short recovery says nothing");
        // Nothing to judge by yet: as expected, 8 s less the one that has passed.
        let line = lines.at(seconds(1.0), 1_000_000, of).unwrap();
        assert_eq!(line, "recovery: loading the backup copy, 0% of 1.00 GB; about 32 s left in all");
        // A quarter in two seconds: six more, and 25 for the rest.
        let line = lines.at(seconds(2.0), 250_000_000, of).unwrap();
        assert!(line.ends_with("25% of 1.00 GB; about 31 s left in all"), "{line}");
        lines.begin(seconds(10.0), Step::Redo, 400_000_000);
        let line = lines.at(seconds(15.0), 100_000_000, of).unwrap();
        assert!(line.ends_with("redoing the log, 25% of 400 MB; about 16 s left in all"), "{line}");
        lines.begin(seconds(30.0), Step::Secondary, 10);
        let line = lines.at(seconds(31.0), 10, |done, _| format!("{done} tables")).unwrap();
        assert!(line.ends_with("100% of 10 tables; about 0.0 s left in all"), "{line}");
    }

    #[test]
    fn there_are_at_most_eleven_lines_of_a_step_however_long_it_takes() {
        for hours in [0.01, 0.1, 1.0, 100.0] {
            let mut lines = Lines::new();
            lines.begin(Duration::ZERO, Step::Redo, 1_000_000);
            let mut said = 0;
            for done in 0..=1_000_000u64 {
                let now = seconds(hours * 3600.0 * done as f64 / 1e6);
                said += u64::from(lines.at(now, done, of).is_some());
            }
            assert!((10..=11).contains(&said), "{said} lines in {hours} h");
        }
        let mut lines = Lines::new();
        lines.begin(Duration::ZERO, Step::Redo, 1_000_000);
        let said =
            (0..=1_000u64).filter(|ms| lines.at(seconds(*ms as f64 / 400.0), ms * 1_000, of).is_some());
        assert_eq!(said.count(), 2, "a second lies between two lines");
    }

    #[test]
    fn what_there_is_to_do_need_not_be_known_nor_right() {
        let mut lines = Lines::new();
        lines.begin(Duration::ZERO, Step::Redo, 0);
        assert_eq!(lines.at(seconds(5.0), 7, of), None);
        lines.begin(Duration::ZERO, Step::Redo, 10);
        let line = lines.at(seconds(5.0), 70, of).unwrap();
        assert!(line.contains("100%") && line.ends_with("about 0.0 s left in all"), "{line}");
        assert_eq!(
            [0.04, 9.96, 119.0, 150.0, 7200.0].map(|s| coarse(seconds(s))),
            ["0.0 s", "10 s", "119 s", "2 min", "2.0 h"]
        );
    }
}
