//! [`StoreRequests`]: a replica's requests to the control store.

use super::configuration::{Configuration, Known};
use super::event::{Effect, Ticket};
use super::options::ReplicationOptions;
use crate::protocol::Moment;

/// A swap whose outcome is not known yet. It was sent at least once, and may be done at any later time, too: only a
/// configuration of its epoch or a later one shows that it was done or is lost. So it is sent again, the same, until it gets
/// a definite answer.
#[derive(Debug)]
pub(super) struct OpenSwap {
    pub from: Known,
    pub to: Configuration,
}

/// Requests to the control store: at most one read or swap is waited for, and at most one swap is open. An answer with
/// another ticket than that of the request that is waited for is ignored.
#[derive(Debug)]
pub(super) struct StoreRequests {
    last: Ticket,
    waited_for: Option<Ticket>,
    open: Option<OpenSwap>,
    next_read: Moment,
    next_sync: Moment,
}

impl StoreRequests {
    pub fn none() -> StoreRequests {
        let (next_read, next_sync) = (Moment::ZERO, Moment::ZERO);
        StoreRequests { last: Ticket(0), waited_for: None, open: None, next_read, next_sync }
    }

    pub fn open_swap(&self) -> Option<&OpenSwap> {
        self.open.as_ref()
    }

    pub fn open(&mut self, from: Known, to: Configuration) -> Effect {
        self.open = Some(OpenSwap { from, to });
        self.send_again().expect("a swap that has just been opened")
    }

    /// Forgets the open swap: a configuration has shown its outcome.
    pub fn conclude(&mut self) {
        (self.open, self.waited_for) = (None, None);
    }

    /// The open swap, once more.
    pub fn send_again(&mut self) -> Option<Effect> {
        self.open.as_ref()?;
        let ticket = self.next_ticket();
        let OpenSwap { from, to } = self.open.as_ref()?;
        let (store, expected) = (from.store, from.revision);
        Some(Effect::Swap { ticket, store, expected, configuration: to.clone() })
    }

    /// A read, unless a request is waited for or the last read was just now.
    pub fn want_read(&mut self, now: Moment, options: &ReplicationOptions) -> Option<Effect> {
        if self.waited_for.is_some() || now < self.next_read {
            return None;
        }
        self.next_read = now + options.retry;
        Some(Effect::Read(self.next_ticket()))
    }

    /// Has the next read go out without waiting.
    pub fn read_soon(&mut self) {
        self.next_read = Moment::ZERO;
    }

    /// An answer has come. False if it is not waited for.
    pub fn answered(&mut self, ticket: Ticket) -> bool {
        let is_waited_for = self.waited_for == Some(ticket);
        if is_waited_for {
            self.waited_for = None;
        }
        is_waited_for
    }

    /// Whether the disk may be asked again to sync.
    pub fn may_sync(&mut self, now: Moment, options: &ReplicationOptions) -> bool {
        let may = now >= self.next_sync;
        if may {
            self.next_sync = now + options.retry;
        }
        may
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last = Ticket(self.last.0 + 1);
        self.waited_for = Some(self.last);
        self.last
    }
}
