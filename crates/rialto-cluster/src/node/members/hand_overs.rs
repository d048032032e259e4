//! [`HandOvers`]: when a primary that is to go is asked to hand over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rialto::fault_injection;

use crate::protocol::PartitionId;

/// After so long a primary that is to go is asked again: transactions may have kept it. The pauses double up to [`AT_MOST`],
/// since each attempt takes no new transactions for as long as a promise holds.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest such pause.
const AT_MOST: Duration = Duration::from_secs(80);

/// When the primaries of partitions were asked last to hand over, and how often.
#[derive(Debug, Default)]
pub struct HandOvers(BTreeMap<PartitionId, (Instant, u32)>);

impl HandOvers {
    /// Only these partitions are still to be handed over.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(PartitionId) -> bool) {
        self.0.retain(|partition, _| is_wanted(*partition));
    }

    /// How many times the primary of a partition was asked.
    pub fn times(&self, partition: PartitionId) -> u32 {
        self.0.get(&partition).map_or(0, |(_, times)| *times)
    }

    /// How long the primary is left in peace after it was asked last.
    pub fn pause(&self, partition: PartitionId) -> Duration {
        if fault_injection::is_on("hand-overs-without-pauses") {
            return Duration::ZERO;
        }
        (AGAIN * 2_u32.pow(self.times(partition).saturating_sub(1).min(8))).min(AT_MOST)
    }

    /// Whether it is to be asked now.
    pub fn is_due(&self, partition: PartitionId, now: Instant) -> bool {
        let asked = self.0.get(&partition);
        asked.is_none_or(|(at, _)| now.duration_since(*at) >= self.pause(partition))
    }

    /// It is asked now.
    pub fn asked(&mut self, partition: PartitionId, now: Instant) {
        let times = self.times(partition) + 1;
        self.0.insert(partition, (now, times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_that_is_kept_is_asked_ever_less_often() {
        let (mut asked, partition, begin) = (HandOvers::default(), PartitionId(3), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut found = Vec::new();
        for second in 0..400 {
            if asked.is_due(partition, at(second)) {
                asked.asked(partition, at(second));
                found.push(second);
            }
        }
        assert_eq!(found, [0, 10, 30, 70, 150, 230, 310, 390]);
        assert_eq!(asked.times(partition), 8);
        // The pause is a partition's own, and ends with the move.
        assert!(asked.is_due(PartitionId(4), at(391)) && !asked.is_due(partition, at(391)));
        asked.retain(|partition| partition != PartitionId(3));
        assert!(asked.is_due(partition, at(391)));
    }
}
