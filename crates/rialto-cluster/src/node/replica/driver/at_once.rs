//! What a thread that has brought an input may have the driver take at once.

use super::{Changes, Driver, Input};
use crate::node::replica::database::Kernel;
use crate::node::replica::inputs::Drives;
use crate::protocol::Epoch;

/// Blocks of at most so many bytes are taken by the thread that has received them.
const AT_ONCE_MAX: usize = 64 << 10;

impl Driver {
    /// Whether the replica has seen this epoch, and none after it.
    fn is_in_epoch(&self, epoch: Epoch) -> bool {
        self.shared.state.lock().machine.as_ref().is_some_and(|machine| machine.epoch() == epoch)
    }
}

impl Drives for Driver {
    /// A step may write the replica's own file, where the partition's configuration changes; that is seldom.
    fn takes_at_once(&self, input: &Input) -> bool {
        if self.changes != Changes::None || self.stops.is_some() {
            return false;
        }
        match input {
            // It may bring a configuration, and the replica's own file is written then.
            Input::Received(envelope, _) if !self.is_in_epoch(envelope.epoch) => false,
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
        self.stops = self.take(input).err();
        self.stops.is_none()
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
