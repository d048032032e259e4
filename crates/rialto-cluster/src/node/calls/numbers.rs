//! [`CallNumbers`]: the numbers of a client's calls that run at most once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::node::random::random_number;
use crate::protocol::transactions::Request;

/// The numbers of one client's calls, for calls that run at most once (C12).
///
/// A call with a number is answered from a row that was written with its effects, if it is sent again: after a lost
/// answer, from another node, after a failover. Each sending carries the same number, keys, arguments and level: effects
/// in several partitions are as durable as the sending asked that ran. The partition
/// of the call's first key keeps, for each client, the answer of the last numbered call that was sent to it,
/// for 25 hours. So a client has one numbered call outstanding at a time; a program that has more of them has a client
/// for each.
///
/// A client costs each of its partitions one row, and the bytes of its last answer in memory, until they expire. Keep
/// it for many calls.
#[derive(Debug)]
pub struct CallNumbers {
    session: u64,
    last: u64,
}

impl CallNumbers {
    /// A new client, under a random name.
    pub fn new() -> CallNumbers {
        CallNumbers { session: random_number(), last: 0 }
    }

    /// The number of the next call. It may be sent for 24 hours from now on, by the clocks of this machine and of the
    /// primaries, which may lie an hour apart.
    pub fn next_number(&mut self) -> Request {
        self.last += 1;
        Request { session: self.session, number: self.last, issued: time_of_day() }
    }
}

impl Default for CallNumbers {
    fn default() -> CallNumbers {
        CallNumbers::new()
    }
}

/// The time since 1970, on this machine's clock: the clock that answers expire by.
pub(in crate::node) fn time_of_day() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
