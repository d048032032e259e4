//! [`Rendezvous`]: the point at which the parts of a phase meet.

use super::sync::Mutex;

/// A rendezvous point (the DORA paper, section 4.1.2). Each part of a phase arrives once. The part that arrives last
/// takes what all parts have brought, and goes on with it.
pub(super) struct Rendezvous<T> {
    state: Mutex<RendezvousState<T>>,
}

struct RendezvousState<T> {
    /// How many parts have not arrived yet.
    remaining: usize,
    there: Vec<T>,
}

impl<T> Rendezvous<T> {
    /// For so many parts.
    pub fn new(parts: usize) -> Rendezvous<T> {
        Rendezvous {
            state: Mutex::new(RendezvousState { remaining: parts, there: Vec::with_capacity(parts) }),
        }
    }

    /// One part arrives. The last one gets what all of them have brought.
    pub fn arrive(&self, with: T) -> Option<Vec<T>> {
        let mut state = self.state.lock();
        state.there.push(with);
        state.remaining -= 1;
        (state.remaining == 0).then(|| std::mem::take(&mut state.there))
    }
}
