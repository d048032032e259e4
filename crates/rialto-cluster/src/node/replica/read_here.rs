//! How a transaction comes to read at a replica that follows.

use std::time::{Duration, Instant};

use rialto::{Lsn, fault_injection};

use super::driver::Input;
use super::hosted::HostedReplica;
use super::read_permit::ReadPermit;
use super::reads::{Begun, Renewal, Wanted};
use crate::protocol::Epoch;
use crate::protocol::replication::Replica;

/// How often a replica is asked again for the age of its tables while a transaction waits for it.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// A place in a partition's log that a client was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldPlace {
    /// The opening in which it was told: the epoch in which the primary had begun to lead.
    pub opening: Epoch,
    /// The place.
    pub place: Lsn,
}

/// Why a transaction does not read at a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHere {
    /// The replica leads, or has no tables to be read.
    Closed,
    /// Its tables are not as young as is wanted.
    TooOld,
    /// What was answered before this epoch may be lost, and the place was told before it.
    Lost(Epoch),
}

impl HostedReplica {
    /// Begins a transaction that reads at this replica, which follows. Its tables have everything that was answered longer ago
    /// than this, and everything up to a place. Waits for that for at most so long.
    ///
    /// # Errors
    /// [`NotHere`].
    pub fn read_here(
        &self,
        staleness: Duration,
        after: Option<ToldPlace>,
        patience: Duration,
    ) -> Result<ReadPermit, NotHere> {
        if let Some(after) = after
            && let Some(lost_before) = self.lost_since(after.opening)
            && !fault_injection::is_on("lost-place-believed")
        {
            return Err(NotHere::Lost(lost_before));
        }
        let wanted = Wanted { staleness, after: after.map_or(Lsn::ZERO, |after| after.place) };
        let until = Instant::now() + patience;
        loop {
            match self.shared.reads.begin(wanted, || self.shared.clock.now()) {
                Begun::Yes(permit, renewal) => {
                    if renewal == Renewal::Due {
                        self.ask_end();
                    }
                    return Ok(permit);
                }
                Begun::Closed => return Err(NotHere::Closed),
                Begun::TooOld => {
                    // If this transaction does not wait, the next one finds the answer.
                    self.ask_end();
                    if Instant::now() >= until {
                        return Err(NotHere::TooOld);
                    }
                    self.shared.reads.wait(ASK_AGAIN);
                }
            }
        }
    }

    /// Whether the tables have everything that was answered longer ago than this, for what a transaction that has begun here reads
    /// next. Waits for that for at most so long.
    pub(in crate::node) fn is_young(&self, staleness: Duration, patience: Duration) -> bool {
        let (wanted, until) = (Wanted { staleness, after: Lsn::ZERO }, Instant::now() + patience);
        while !self.shared.reads.is_young(wanted, || self.shared.clock.now()) {
            self.ask_end();
            if Instant::now() >= until {
                return false;
            }
            self.shared.reads.wait(ASK_AGAIN);
        }
        true
    }

    /// Whether the tables have everything that was answered before this moment. Waits for that for at most so long.
    pub(in crate::node) fn is_as_of(&self, moment: Instant, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while !self.is_young(moment.elapsed(), ASK_AGAIN) {
            if Instant::now() >= until {
                return false;
            }
        }
        true
    }

    /// Has the primary asked where its log ends, unless it is about to be.
    fn ask_end(&self) {
        if self.shared.reads.ask() {
            self.tell(Input::AskEnd);
        }
    }

    /// Ends the transactions that read here if the redo has been behind for too long.
    pub(in crate::node) fn give_way(&self) {
        self.shared.reads.give_way();
    }

    /// The epoch before which answers may be lost, if this opening is before it.
    fn lost_since(&self, opening: Epoch) -> Option<Epoch> {
        let state = self.shared.state.lock();
        let known = state.machine.as_ref().and_then(Replica::known)?;
        Some(known.configuration.lost_before.memories).filter(|lost_before| opening < *lost_before)
    }

    /// How many transactions read at this replica while it follows.
    pub fn readers(&self) -> usize {
        self.shared.reads.readers()
    }

    /// How many transactions that read here were told to end, since the redo had waited for them.
    pub fn reads_ended(&self) -> u64 {
        self.shared.reads.ended()
    }
}
