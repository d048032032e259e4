//! [`PendingRequests`]: a replica's requests to the control store.

use rialto::fault_injection;

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
/// another ticket than that of the request that is waited for is ignored. A store that gives no answer is asked ever less
/// often.
#[derive(Debug)]
pub(super) struct PendingRequests {
    last: Ticket,
    waited_for: Option<Ticket>,
    open: Option<OpenSwap>,
    next_read: Moment,
    /// When a read was sent last.
    read_at: Moment,
    /// When it answered last.
    seen_at: Option<Moment>,
    /// How many reads in a row had no answer.
    unanswered: u32,
    change: Change,
    next_sync: Moment,
}

/// Whether the store has told of a change that no read was sent after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Told,
}

impl PendingRequests {
    pub fn none() -> PendingRequests {
        PendingRequests {
            last: Ticket(0),
            waited_for: None,
            open: None,
            next_read: Moment::ZERO,
            read_at: Moment::ZERO,
            seen_at: None,
            unanswered: 0,
            change: Change::None,
            next_sync: Moment::ZERO,
        }
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
        (self.next_read, self.read_at, self.change) = (now + options.retry, now, Change::None);
        Some(Effect::Read(self.next_ticket()))
    }

    /// Has the next read go out without waiting.
    pub fn read_soon(&mut self) {
        self.next_read = Moment::ZERO;
    }

    /// The store says that there is another configuration: it is to be read.
    pub fn changed(&mut self) {
        self.change = Change::Told;
        self.read_soon();
    }

    /// Whether a read is due for what the store has told.
    pub fn has_change(&self) -> bool {
        self.change == Change::Told && !fault_injection::is_on("told-change-unread")
    }

    /// Whether no read was sent for so long that one is due without another reason.
    pub fn is_poll_due(&self, now: Moment, options: &ReplicationOptions) -> bool {
        now >= self.read_at + options.poll
    }

    /// An answer has come. False if it is not waited for.
    pub fn answered(&mut self, ticket: Ticket) -> bool {
        let is_waited_for = self.waited_for == Some(ticket);
        if is_waited_for {
            self.waited_for = None;
        }
        is_waited_for
    }

    /// The store has given a definite answer.
    pub fn seen(&mut self, now: Moment) {
        (self.seen_at, self.unanswered) = (Some(now), 0);
    }

    /// The store was asked, and is away.
    pub fn unavailable(&mut self, now: Moment, options: &ReplicationOptions) {
        let doubled = options.retry.saturating_mul(1 << self.unanswered.min(16));
        self.unanswered = self.unanswered.saturating_add(1);
        if !fault_injection::is_on("store-hammered") {
            self.next_read = now + doubled.min(options.retry_max);
        }
    }

    /// Whether the store has given an answer lately.
    pub fn is_there(&self, now: Moment, options: &ReplicationOptions) -> bool {
        self.seen_at.is_some_and(|seen_at| now < seen_at + options.retry * 2)
    }

    pub fn seen_at(&self) -> Option<Moment> {
        self.seen_at
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
