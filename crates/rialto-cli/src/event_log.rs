//! `--log`: which of the server's events are printed on stderr, one a line, with the time in UTC.

use std::io;
use std::str::FromStr;

#[cfg(test)]
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// What is printed unless something else is asked for: errors, and why the server ends.
pub const QUIET: &str = "error,rialto_server::shutdown=info";

/// Which events are printed.
#[derive(Debug, Clone, PartialEq)]
pub struct EventFilter(Targets);

impl FromStr for EventFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<EventFilter, String> {
        let expected = "expected off, error, warn, info, debug or trace, or TARGET=LEVEL, several of them with commas: \
                        info,rialto_server::events=debug";
        for part in text.split(',') {
            let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
            if level.is_empty() || level.parse::<u8>().is_ok() || level.parse::<LevelFilter>().is_err() {
                return Err(expected.to_owned());
            }
        }
        text.parse().map(EventFilter).map_err(|error| format!("{error}; {expected}"))
    }
}

impl EventFilter {
    /// Prints these events from now on. A program calls this once.
    pub fn print(&self) {
        // A reader of stderr that has gone is no reason to say so on stderr.
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
        let subscriber = registry().with(self.0.clone()).with(lines);
        // Another subscriber would be this program's own: there is none.
        let _ = tracing::subscriber::set_global_default(subscriber);
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
        for wrong in ["loud", "", "rialto_server", "info,loud", "rialto_server=", "3", "a=b"] {
            let refused = wrong.parse::<EventFilter>().unwrap_err();
            assert!(refused.contains("expected off, error"), "{wrong}: {refused}");
        }
    }
}
