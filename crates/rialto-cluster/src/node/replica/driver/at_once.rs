//! What a thread that has brought an input may have the driver take at once.

use rialto::fault_injection;

use super::{Changes, Driver, Input};
use crate::node::replica::database::Kernel;
use crate::node::replica::inputs::Drives;
use crate::protocol::replication::Effect;

/// Blocks of at most so many bytes are taken by the thread that has received them.
const AT_ONCE_MAX: usize = 64 << 10;

impl Driver {
    /// Whether an effect waits for a disk, or for another thread.
    pub(super) fn may_wait(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Save(_) => !fault_injection::is_on("files-written-at-once"),
            Effect::Lead { .. } | Effect::Follow | Effect::StartOver { .. } => true,
            Effect::Ship { to, stream, begin, end } => {
                !self.shipping.ships_from_memory(*to, *stream, *begin, *end)
            }
            _ => false,
        }
    }
}

impl Drives for Driver {
    fn takes_at_once(&self, input: &Input) -> bool {
        if self.changes != Changes::None || self.stops.is_some() || self.left.is_some() {
            return false;
        }
        match input {
            Input::Received(_, beside) if beside.is_empty() => true,
            Input::Received(_, beside) => match &self.shared.state.lock().kernel {
                Kernel::Following(follower) => {
                    beside.len() <= AT_ONCE_MAX && follower.appends_at_once(beside.len())
                }
                Kernel::Leading(_) | Kernel::Closed => false,
            },
            // A replica that lacks older blocks is sent them from files.
            Input::LogMoved => !self.waits(),
            _ => false,
        }
    }

    fn take_at_once(&mut self, input: Input) -> bool {
        self.is_at_once = true;
        self.stops = self.take(input).err();
        self.is_at_once = false;
        self.stops.is_none() && self.left.is_none()
    }

    /// Whether blocks wait for room in a link.
    fn waits(&self) -> bool {
        self.shipping.waits()
    }

    /// Tells what waits for an answer, and what waits for the replica's role.
    fn tell(&mut self) {
        self.answer_waiting();
        let leads = self.shared.state.lock().leads;
        if std::mem::replace(&mut self.told_leads, leads) != leads {
            self.shared.changed.notify_all();
        }
    }
}
