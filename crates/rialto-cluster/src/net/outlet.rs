//! [`Outlet`]: the end of a connection that this node writes to.
//!
//! Invariants:
//! 1. Bytes are taken from the queue and written under one lock. So they are written in the order in which they are taken,
//!    whichever thread does it, and to the connection that they belong to.
//! 2. A sender's thread never blocks here. It writes what the connection takes at once; the link's thread writes the rest.
//! 3. If no thread writes, the queue says so to the next sender, which then writes, or rings the bell for the link's
//!    thread.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::counters::Counters;
use super::queue::Queue;
use super::stream::Stream;

/// The most writes that a sender makes while others send. Then the link's thread goes on.
const WRITES_MAX: usize = 4;

/// The end of a connection, for the link's thread and for those that send.
#[derive(Default)]
pub(super) struct Outlet(Mutex<Option<Open>>);

/// A connection that is there.
struct Open {
    stream: Stream,
    /// What was taken from the queue for one write,
    bytes: Vec<u8>,
    /// and how much of it the connection has taken.
    written: usize,
    /// Whether the link's thread has to go on with it.
    is_behind: bool,
    failed: Option<io::Error>,
}

impl Outlet {
    /// A connection is there. Gives its socket, to be slept at.
    pub fn open(&self, stream: Stream) -> io::Result<TcpStream> {
        let socket = stream.socket().try_clone()?;
        let open = Open { stream, bytes: Vec::new(), written: 0, is_behind: false, failed: None };
        *self.0.lock() = Some(open);
        Ok(socket)
    }

    /// The connection has ended.
    pub fn close(&self) {
        *self.0.lock() = None;
    }

    /// A sender writes what is queued, without waiting.
    pub fn write_now(&self, queue: &Queue, counters: &Counters) {
        let is_done = match self.0.try_lock().as_deref_mut() {
            Some(Some(open)) => open.write_now(queue, counters),
            _ => false,
        };
        if !is_done && !rialto::fault_injection::is_on("left-bytes-unwritten") {
            counters.wake_ups.fetch_add(1, Ordering::Relaxed);
            queue.bell().ring();
        }
    }

    /// The link's thread writes all that is queued, and waits until the connection has taken it.
    pub fn write_all(&self, queue: &Queue, counters: &Counters) -> io::Result<()> {
        let mut guard = self.0.lock();
        let Some(open) = &mut *guard else { return Ok(()) };
        loop {
            if let Some(error) = open.failed.take() {
                return Err(error);
            }
            if open.is_behind {
                open.stream.write_all(&open.bytes[open.written..])?;
                open.stream.flush()?;
            }
            if !open.take(queue, counters) {
                return Ok(());
            }
            // It is behind until it is written.
            open.is_behind = true;
        }
    }

    /// The other end of the connection has nothing to say: bytes, or an end, are an error.
    pub fn check(&self) -> io::Result<()> {
        self.0.lock().as_mut().map_or(Ok(()), |open| open.stream.check())
    }
}

impl Open {
    /// Takes what goes by the next write. False if nothing is queued; then the next sender is told that nothing is written.
    fn take(&mut self, queue: &Queue, counters: &Counters) -> bool {
        self.bytes.clear();
        (self.written, self.is_behind) = (0, false);
        let messages = queue.take(&mut self.bytes);
        if self.bytes.is_empty() {
            return false;
        }
        counters.messages_sent.fetch_add(messages, Ordering::Relaxed);
        counters.bytes_sent.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
        counters.writes.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// False if the link's thread has to go on.
    fn write_now(&mut self, queue: &Queue, counters: &Counters) -> bool {
        if self.is_behind || self.failed.is_some() {
            return false;
        }
        for _ in 0..WRITES_MAX {
            if !self.take(queue, counters) {
                return true;
            }
            match self.stream.write_now(&self.bytes) {
                Ok((written, is_flushed)) => {
                    self.written = written;
                    self.is_behind = written < self.bytes.len() || !is_flushed;
                }
                Err(error) => self.failed = Some(error),
            }
            if self.is_behind || self.failed.is_some() {
                return false;
            }
        }
        false
    }
}
