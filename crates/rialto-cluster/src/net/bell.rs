//! A bell: what a thread that sleeps in `poll` is woken by.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A bell for one sleeping thread. A ring while the thread is awake is not lost.
pub(super) struct Bell {
    event: OwnedFd,
}

/// What has ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// The bell has rung, or the time is over.
    Bell,
    /// The socket has what was awaited of it, or has ended.
    Socket,
}

/// What a sleep awaits of a socket, beside the bell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Awaited<'s> {
    /// Bytes to read, a connection to accept, or its end.
    Bytes(BorrowedFd<'s>),
    /// The connection that it makes, or a failure.
    Connection(BorrowedFd<'s>),
}

impl Bell {
    pub(super) fn new() -> std::io::Result<Bell> {
        Ok(Bell { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    pub(super) fn ring(&self) {
        // It fails only if the bell has rung 2^64 times without being heard.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Sleeps until the bell rings, or until the socket has what is awaited of it; without an end if no time is given.
    pub(super) fn sleep(&self, socket: Option<Awaited<'_>>, at_most: Option<Duration>) -> Woken {
        let event = PollFd::new(&self.event, PollFlags::IN);
        let other = socket.as_ref().map(|awaited| match awaited {
            Awaited::Bytes(socket) => PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP),
            Awaited::Connection(socket) => PollFd::new(socket, PollFlags::OUT),
        });
        let mut both = [event.clone(), other.unwrap_or(event)];
        let time = at_most.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        // An interrupted sleep is as one whose bell has rung: its caller looks again.
        let _ = poll(&mut both, time.as_ref());
        let has_rung = !both[0].revents().is_empty();
        if has_rung {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.event, &mut count);
        }
        if socket.is_some() && !both[1].revents().is_empty() { Woken::Socket } else { Woken::Bell }
    }
}
