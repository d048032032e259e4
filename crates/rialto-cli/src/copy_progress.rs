//! How far a backup or a restore has come, on stderr: on a terminal one line that is rewritten, else a line every ten
//! seconds.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rialto::backup::{BytesDone, CopyObserver};

use crate::output::rewrite;

/// The least time between two lines, on a terminal and elsewhere.
const EVERY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
const MIB: f64 = (1 << 20) as f64;

/// Whether a command says how far it has come.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ProgressArgs {
    /// Do not say on stderr how far it has come
    #[arg(long, short)]
    quiet: bool,
}

impl ProgressArgs {
    pub fn is_quiet(self) -> bool {
        self.quiet
    }

    /// What prints how far a command has come that does this ("backed up"), unless it is to be quiet.
    pub fn observer(self, does: &'static str) -> Option<CopyObserver> {
        let is_terminal = io::stderr().is_terminal();
        let (began, lines) = (Instant::now(), Mutex::new(Lines::new(does, is_terminal)));
        let tell = move |progress: BytesDone| {
            let mut lines = lines.lock().expect("no thread panics while it has the lock");
            if let Some(text) = lines.at(began.elapsed(), progress) {
                rewrite(&text);
            }
        };
        (!self.quiet).then(|| CopyObserver::new(tell))
    }
}

/// Decides which lines there are, and their text; it knows no clock and no terminal.
struct Lines {
    does: &'static str,
    is_terminal: bool,
    last: Duration,
    /// The length of the line that stands on the terminal.
    stands: usize,
}

impl Lines {
    fn new(does: &'static str, is_terminal: bool) -> Lines {
        Lines { does, is_terminal, last: Duration::ZERO, stands: 0 }
    }

    /// What to write now, if something is due.
    fn at(&mut self, now: Duration, progress: BytesDone) -> Option<String> {
        let is_end = progress.total == Some(progress.done);
        let every = EVERY[usize::from(!self.is_terminal)];
        // Elsewhere than on a terminal a short command says nothing: its report follows.
        let is_due = now >= self.last + every || is_end && self.is_terminal;
        if !is_due {
            return None;
        }
        self.last = now;
        let line = self.line(now, progress);
        if !self.is_terminal {
            return Some(format!("  {line}\n"));
        }
        let width = self.stands.max(line.len());
        self.stands = line.len();
        let end = if is_end { "\n" } else { "" };
        Some(format!("\r{line:width$}{end}"))
    }

    fn line(&self, now: Duration, progress: BytesDone) -> String {
        let BytesDone { done, total } = progress;
        let mib = |bytes: u64| bytes as f64 / MIB;
        let per_s = mib(done) / now.as_secs_f64().max(1e-3);
        let does = self.does;
        match total {
            Some(total) => {
                let left = mib(total - done) / per_s.max(1e-9);
                format!(
                    "{does} {:.1} of {:.1} MiB, {per_s:.1} MiB/s, about {left:.0} s left",
                    mib(done),
                    mib(total)
                )
            }
            None => format!("{does} {:.1} MiB, {per_s:.1} MiB/s", mib(done)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 100 << 20;

    /// What is written of a copy of 100 MiB that takes so many seconds.
    fn written(is_terminal: bool, seconds: f64, total: Option<u64>) -> Vec<String> {
        let mut lines = Lines::new("backed up", is_terminal);
        let at = |mib: u64| {
            let done = mib << 20;
            let total = if done == TOTAL { Some(TOTAL) } else { total };
            lines.at(Duration::from_secs_f64(seconds * mib as f64 / 100.0), BytesDone { done, total })
        };
        (1..=100).filter_map(at).collect()
    }

    #[test]
    fn a_terminal_has_one_line_that_is_rewritten() {
        let written = written(true, 50.0, Some(TOTAL));
        assert_eq!(written.len(), 100);
        assert!(written.iter().all(|text| text.starts_with('\r')));
        assert!(written[..99].iter().all(|text| !text.contains('\n')), "{written:?}");
        assert!(
            written[49].contains("backed up 50.0 of 100.0 MiB, 2.0 MiB/s, about 25 s left"),
            "{}",
            written[49]
        );
        assert!(written[99].ends_with('\n') && written[99].contains("100.0 of 100.0 MiB"), "{}", written[99]);
        // A shorter line covers the longer one before it.
        assert!(written.windows(2).all(|pair| pair[1].len() >= pair[0].trim_end().len()), "{written:?}");
        let mut lines = Lines::new("backed up", true);
        let mut at = |seconds: f64, done: u64| {
            lines.at(Duration::from_secs_f64(seconds), BytesDone { done, total: Some(TOTAL) }).unwrap()
        };
        let long = at(1_000.0, 1);
        assert!(at(1_001.0, TOTAL - 1).len() >= long.len());
    }

    #[test]
    fn elsewhere_there_is_a_line_every_ten_seconds() {
        let lines = written(false, 50.0, Some(TOTAL));
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines.iter().all(|line| line.ends_with('\n') && !line.contains('\r')), "{lines:?}");
        assert_eq!(written(false, 9.0, Some(TOTAL)), [""; 0], "a short one says nothing");
        let of_stream = written(false, 20.0, None);
        assert_eq!(of_stream[0], "  backed up 50.0 MiB, 5.0 MiB/s\n");
    }
}
