//! [`NodeClock`]: the clock of a node.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::protocol::Moment;

/// The clock of a node: the time since the machine started. It runs through suspension, since a promise that a standby has
/// given runs out meanwhile (C1), and it is one clock for all processes of a boot.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeClock;

impl NodeClock {
    /// This moment.
    pub fn now(self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Moment(Duration::new(seconds, time.tv_nsec as u32))
    }
}
