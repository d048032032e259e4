//! `--log`: which of the server's events are printed on stderr, one a line, with the time in UTC.
//!
//! A thread of its own prints them. The reader of stderr may stall, and a write to its pipe then blocks: no session, no
//! accepting of connections and no shutdown waits for that. Lines beyond [`LINES_MAX`] are left out, and counted.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

#[cfg(test)]
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// What is printed unless something else is asked for: errors, and why the server ends.
pub const QUIET: &str = "error,rialto_server::shutdown=info";

/// Whose events there are: a target is one of these, or a module of it.
const TARGETS: [&str; 2] = ["rialto", "rialto_server"];

/// The most lines that wait to be printed.
const LINES_MAX: usize = 1_024;
/// How long the end of the log waits for its lines to be printed.
const END_WAIT: Duration = Duration::from_secs(1);

/// What the printing thread does next.
enum Next {
    Print(Vec<u8>),
    /// Tells that everything before is printed.
    Tell(Sender<()>),
}

/// Hands whole lines to the printing thread.
#[derive(Clone)]
struct Lines {
    to: SyncSender<Next>,
    left_out: Arc<AtomicU64>,
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.to.try_send(Next::Print(line.to_vec())).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The printing thread.
fn print(lines: &Receiver<Next>, left_out: &AtomicU64) {
    for next in lines {
        let line = match next {
            Next::Print(line) => line,
            Next::Tell(printed) => {
                // If nothing waits for it any more, it does not matter.
                let _ = printed.send(());
                continue;
            }
        };
        // A reader of stderr that has gone is no reason to say so on stderr.
        let _ = io::stderr().write_all(&line);
        let left_out = left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = writeln!(io::stderr(), "warning: {left_out} events are left out: stderr was not read");
        }
    }
}

/// The log, until its end: then its last lines are printed, if stderr takes them.
pub struct EventLog {
    lines: SyncSender<Next>,
}

impl Drop for EventLog {
    fn drop(&mut self) {
        let (printed, is_printed) = channel();
        // If so many lines wait, stderr is not read.
        if self.lines.try_send(Next::Tell(printed)).is_ok() {
            let _ = is_printed.recv_timeout(END_WAIT);
        }
    }
}

/// Which events are printed.
#[derive(Debug, Clone, PartialEq)]
pub struct EventFilter(Targets);

impl FromStr for EventFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<EventFilter, String> {
        let expected = "expected off, error, warn, info, debug or trace, or TARGET=LEVEL, several of them with commas: \
                        info,rialto_server::events=debug";
        for part in text.split(',') {
            let (target, level) = part.rsplit_once('=').unwrap_or((TARGETS[0], part));
            let source = target.split("::").next().unwrap_or(target);
            if !TARGETS.contains(&source) {
                return Err(format!(
                    "no events are of \"{target}\": a target begins with {}",
                    TARGETS.join(" or ")
                ));
            }
            if level.is_empty() || level.parse::<u8>().is_ok() || level.parse::<LevelFilter>().is_err() {
                return Err(expected.to_owned());
            }
        }
        text.parse().map(EventFilter).map_err(|error| format!("{error}; {expected}"))
    }
}

impl EventFilter {
    /// Prints these events from now on. A program calls this once.
    pub fn print(&self) -> io::Result<EventLog> {
        let (to, lines) = sync_channel(LINES_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = left_out.clone();
        let thread = std::thread::Builder::new().name("event-log".to_owned());
        thread.spawn(move || print(&lines, &counted))?;
        let log = EventLog { lines: to.clone() };
        let writer = Lines { to, left_out };
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .log_internal_errors(false);
        let subscriber = registry().with(self.0.clone()).with(layer);
        // Another subscriber would be this program's own: there is none.
        let _ = tracing::subscriber::set_global_default(subscriber);
        Ok(log)
    }

    /// Whether an event of this target and level is printed.
    #[cfg(test)]
    fn prints(&self, target: &str, level: Level) -> bool {
        self.0.would_enable(target, &level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_and_targets() {
        let filter =
            |text: &str| text.parse::<EventFilter>().unwrap_or_else(|error| panic!("{text}: {error}"));
        let quiet = filter(QUIET);
        assert!(quiet.prints("rialto_server::events", Level::ERROR));
        assert!(!quiet.prints("rialto_server::events", Level::WARN));
        assert!(quiet.prints("rialto_server::shutdown", Level::INFO));
        assert!(!filter("off").prints("rialto_server", Level::ERROR));
        let one = filter("rialto_server=debug");
        assert!(one.prints("rialto_server::events", Level::DEBUG) && !one.prints("rialto", Level::ERROR));
        for wrong in ["loud", "", "rialto_server", "info,loud", "rialto_server=", "3", "rialto=b"] {
            let refused = wrong.parse::<EventFilter>().unwrap_err();
            assert!(refused.contains("expected off, error"), "{wrong}: {refused}");
        }
        for wrong in ["rialto_sever=debug", "info,tokio::net=debug", "=debug"] {
            let refused = wrong.parse::<EventFilter>().unwrap_err();
            assert!(refused.contains("a target begins with rialto or rialto_server"), "{wrong}: {refused}");
        }
    }
}
