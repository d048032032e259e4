//! The handshakes with machines that have connected to this node, as many as there are now.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;

use parking_lot::Mutex;

use super::event::Failure;
use super::stream::Ender;

/// The most handshakes at a time. Machines that connect and say nothing take no more threads than this, and each of them
/// for the time of a handshake at most.
const HANDSHAKES_MAX: usize = 256;

/// The handshakes that there are now.
#[derive(Default)]
pub(super) struct Handshakes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sockets: BTreeMap<u64, Ender>,
    next: u64,
    is_closed: bool,
}

/// The number of a handshake.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandshakeId(u64);

impl Handshakes {
    /// Counts a handshake, until [`Handshakes::end`].
    pub(super) fn begin(&self, socket: &TcpStream) -> Result<HandshakeId, Failure> {
        let ender = Ender::of(socket).map_err(|error: io::Error| Failure::Busy(error.to_string()))?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Failure::Unreachable("this node has ended it".to_owned()));
        }
        if state.sockets.len() >= HANDSHAKES_MAX {
            return Err(Failure::Busy("too many handshakes at a time".to_owned()));
        }
        let number = state.next;
        state.next += 1;
        state.sockets.insert(number, ender);
        Ok(HandshakeId(number))
    }

    /// A handshake is over.
    pub(super) fn end(&self, handshake: HandshakeId) {
        self.state.lock().sockets.remove(&handshake.0);
    }

    /// Ends all handshakes at once, for good: no other one begins.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        for ender in state.sockets.values() {
            ender.end();
        }
    }
}
