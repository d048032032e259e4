//! [`ReplicationOptions`]: the times and bounds of replication.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What becomes of a commit at level 2 while fewer than [`ReplicationOptions::min_in_sync`] replicas are in sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unprotected {
    /// It is answered once it is on the primary's disk.
    #[default]
    WhenOnDisk,
    /// It is refused before it runs. One that has its place in the log already is answered once it is on the disk.
    Refused,
}

/// The times and bounds of replication. All replicas of a partition have the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicationOptions {
    /// How long a promise holds, by the clock of the standby that gives it.
    pub promise: Duration,
    /// By how much a primary counts a promise shorter. The clocks of two nodes must not drift apart by more than this in
    /// the time of a promise.
    pub drift_margin: Duration,
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// After so long without an answer to its heartbeats the primary drops a standby. It is shorter than a promise: then
    /// a partition whose control store is there loses no time when a standby fails.
    pub silent_after: Duration,
    /// A standby that lacks blocks and has taken none for so long is dropped, though it promises: its disk may be full.
    pub lag_max: Duration,
    /// The most bytes of the log on their way to a replica: more are sent once it has acknowledged some.
    pub window: u64,
    /// The least time between two requests to the control store for the same purpose, and before blocks are sent again.
    pub retry: Duration,
    /// While the control store gives no answer, the time between two requests doubles up to this.
    pub retry_max: Duration,
    /// How often a replica that hears no primary asks the control store for the configuration, if it has no other
    /// reason to.
    pub poll: Duration,
    /// How long the redo of a primary whose database is still being opened for transactions may stand still. After that
    /// the primary asks for no more promises, and its standbys may take over.
    pub opening_patience: Duration,
    /// How long the redo of a replica that follows waits for transactions that read there; then they are ended.
    pub redo_waits_max: Duration,
    /// With fewer replicas in sync, memory alone is no protection.
    pub min_in_sync: usize,
    /// What then becomes of level 2.
    pub unprotected: Unprotected,
}

impl ReplicationOptions {
    /// These options with another promise. The times that have to fit into one, or to outlast one, change with it.
    pub fn with_promise(self, promise: Duration) -> ReplicationOptions {
        ReplicationOptions {
            promise,
            drift_margin: promise / 10,
            heartbeat: promise / 8,
            silent_after: promise / 2,
            lag_max: promise * 3 / 2,
            retry: promise / 4,
            ..self
        }
    }

    /// How long a primary counts a promise, from before it asked.
    pub fn counted_promise(&self) -> Duration {
        self.promise.saturating_sub(self.drift_margin)
    }
}

impl Default for ReplicationOptions {
    fn default() -> ReplicationOptions {
        ReplicationOptions {
            promise: Duration::from_secs(2),
            drift_margin: Duration::from_millis(200),
            heartbeat: Duration::from_millis(250),
            silent_after: Duration::from_millis(1000),
            window: 16 << 20,
            lag_max: Duration::from_secs(3),
            retry: Duration::from_millis(500),
            retry_max: Duration::from_secs(4),
            poll: Duration::from_secs(5),
            opening_patience: Duration::from_secs(10),
            redo_waits_max: Duration::from_secs(1),
            min_in_sync: 2,
            unprotected: Unprotected::WhenOnDisk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_times_are_those_of_the_usual_promise() {
        let usual = ReplicationOptions::default();
        assert_eq!(usual.with_promise(usual.promise), usual);
        for ms in [100, 200, 1_000, 60_000] {
            let other = usual.with_promise(Duration::from_millis(ms));
            assert!(other.heartbeat * 3 < other.silent_after, "{other:?}");
            assert!(other.silent_after < other.counted_promise(), "{other:?}");
        }
    }
}
