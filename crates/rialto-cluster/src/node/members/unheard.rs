//! [`Unheard`]: since when replicas are not heard.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rialto::fault_injection;

use crate::protocol::{NodeId, PartitionId};

/// After a longer pause between two notes nothing is known of what was heard meanwhile.
const NOTES_APART: Duration = Duration::from_secs(10);

/// Since when replicas are not heard, as far as the node has looked: other time does not count.
#[derive(Debug, Default)]
pub struct Unheard {
    since: BTreeMap<(PartitionId, NodeId), Instant>,
    noted_at: Option<Instant>,
}

impl Unheard {
    /// These replicas, and no others, are not heard now. Says whether what was seen before counts.
    pub fn note(&mut self, now: Instant, unheard: impl Iterator<Item = (PartitionId, NodeId)>) -> bool {
        let mut before = std::mem::take(&mut self.since);
        let is_apart = self.noted_at.is_some_and(|at| now.duration_since(at) > NOTES_APART);
        let counts = !is_apart || fault_injection::is_on("unseen-time-counts");
        if !counts {
            before.clear();
        }
        self.noted_at = Some(now);
        self.since = unheard.map(|key| (key, before.get(&key).copied().unwrap_or(now))).collect();
        counts
    }

    /// For how long a replica is not heard.
    pub fn time(&self, partition: PartitionId, node: NodeId) -> Option<Duration> {
        self.since.get(&(partition, node)).map(Instant::elapsed)
    }

    /// The replicas of a partition that are not heard for so long.
    pub fn longer_than(&self, partition: PartitionId, time: Duration) -> impl Iterator<Item = NodeId> {
        let of_partition = self.since.iter().filter(move |((id, _), _)| *id == partition);
        of_partition.filter(move |(_, since)| since.elapsed() >= time).map(|((_, node), _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_was_not_looked_at_does_not_count() {
        let (mut unheard, now) = (Unheard::default(), Instant::now());
        let before = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let one = (PartitionId(1), NodeId(2));
        let lost = |unheard: &Unheard| unheard.longer_than(PartitionId(1), Duration::from_secs(20)).count();
        for seconds in [30, 25, 20, 15, 10, 5, 0] {
            assert!(unheard.note(before(seconds), [one].into_iter()));
        }
        assert_eq!((lost(&unheard), unheard.longer_than(PartitionId(0), Duration::ZERO).count()), (1, 0));
        // It was heard for a moment.
        assert!(unheard.note(now, [].into_iter()) && unheard.note(now, [one].into_iter()));
        assert_eq!(lost(&unheard), 0);
        // The store was away for half a minute.
        let mut unheard = Unheard::default();
        assert!(unheard.note(before(30), [one].into_iter()));
        assert!(!unheard.note(now, [one].into_iter()));
        assert_eq!(lost(&unheard), 0);
    }
}
