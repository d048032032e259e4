//! Bare commit sequences on a log.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use rialto::log::{Log, PacketKind, Patience};
use rialto::{Durability, Lsn, Result};
use rialto_measure::driver::{Pending, Workload};

use super::PACKET_BYTES;

/// What one client has done; only its thread writes it.
#[derive(Debug)]
pub struct Own {
    log: Arc<Log>,
    /// Packets written.
    packets: AtomicU64,
    /// The highest place that was answered.
    answered: AtomicU64,
}

impl Own {
    fn answer(&self, lsn: Lsn) {
        // Tickets are harvested in order, but a client may drop one.
        if self.answered.load(Ordering::Relaxed) < lsn.0 {
            self.answered.store(lsn.0, Ordering::Relaxed);
        }
    }
}

/// The workload.
#[derive(Debug)]
pub struct Sequences {
    log: Arc<Log>,
    own: Vec<Arc<CachePadded<Own>>>,
}

/// A client's state.
#[derive(Debug)]
pub struct Client {
    number: u32,
    own: Arc<CachePadded<Own>>,
}

/// A commit on its way.
#[derive(Debug)]
pub struct Ticket {
    own: Arc<CachePadded<Own>>,
    lsn: Lsn,
}

/// A client's packet: which client wrote it, which of its packets it is, and bytes that follow from both.
pub fn write_packet(number: u32, packet: u64, into: &mut Vec<u8>) {
    into.extend_from_slice(&number.to_le_bytes());
    into.extend_from_slice(&packet.to_le_bytes());
    into.resize(PACKET_BYTES, number as u8 ^ packet as u8);
}

/// The client that wrote a packet, and which of its packets it is; `None` for bytes that no client writes.
pub fn read_packet(bytes: &[u8]) -> Option<(u32, u64)> {
    let number = u32::from_le_bytes(*bytes.first_chunk()?);
    let packet = u64::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
    let filler = number as u8 ^ packet as u8;
    let is_whole = bytes.len() == PACKET_BYTES && bytes[12..].iter().all(|byte| *byte == filler);
    is_whole.then_some((number, packet))
}

impl Sequences {
    /// For so many clients.
    pub fn new(log: Arc<Log>, clients: u32) -> Sequences {
        let own = |_| {
            Arc::new(CachePadded::new(Own {
                log: log.clone(),
                packets: AtomicU64::new(0),
                answered: AtomicU64::new(0),
            }))
        };
        Sequences { own: (0..clients).map(own).collect(), log: log.clone() }
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The highest place that any client was answered for.
    pub fn answered(&self) -> Lsn {
        Lsn(self.own.iter().map(|own| own.answered.load(Ordering::SeqCst)).max().unwrap_or(0))
    }

    /// Packets of each client.
    pub fn packets(&self) -> Vec<u64> {
        self.own.iter().map(|own| own.packets.load(Ordering::SeqCst)).collect()
    }

    fn place(client: &Client) -> Result<Lsn> {
        let own = &**client.own;
        let mut packet = own.log.borrow_packet()?;
        let count = own.packets.load(Ordering::Relaxed) + 1;
        write_packet(client.number, count, packet.bytes_mut());
        own.log.reserve(&mut packet, 0)?;
        let lsn = own.log.push(&mut packet, PacketKind::Commit);
        own.packets.store(count, Ordering::Relaxed);
        own.log.applied(packet);
        Ok(lsn)
    }
}

impl Workload for Sequences {
    type Client = Client;
    type Ticket = Ticket;

    fn procedures(&self) -> &'static [&'static str] {
        &["commit"]
    }

    fn client(&self, number: u32, _seed: u64) -> Client {
        Client { number, own: self.own[number as usize].clone() }
    }

    #[inline]
    fn run_one(&self, client: &mut Client, now: Instant) -> Result<usize> {
        let lsn = Sequences::place(client)?;
        let patience = Patience { began: Some(now.into()), ..Patience::default() };
        self.log.wait(lsn, Durability::Disk, &patience)?;
        client.own.answer(lsn);
        Ok(0)
    }

    #[inline]
    fn submit_one(&self, client: &mut Client, _now: Instant) -> Result<(usize, Ticket)> {
        let lsn = Sequences::place(client)?;
        self.log.leave(lsn, Durability::Disk);
        Ok((0, Ticket { own: client.own.clone(), lsn }))
    }

    fn settle(&self, _: &mut Client, outcome: Result<()>) -> Result<()> {
        outcome
    }
}

impl Ticket {
    fn note(&self, outcome: Result<()>) -> Result<()> {
        outcome.inspect(|()| self.own.answer(self.lsn))
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.own.log.register_waker(self.lsn, Durability::Disk, context.waker()) {
            Some(outcome) => Poll::Ready(self.note(outcome)),
            None => Poll::Pending,
        }
    }
}

impl Pending for Ticket {
    type Answer = Result<()>;

    #[inline]
    fn is_done(&mut self) -> bool {
        let log = &self.own.log;
        log.has_reached(self.lsn, Durability::Disk) || log.is_done(self.lsn, Durability::Disk).is_some()
    }

    fn wait(self) -> Result<()> {
        self.note(self.own.log.wait(self.lsn, Durability::Disk, &Patience::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_told_from_damaged_ones() {
        let mut bytes = Vec::new();
        write_packet(7, 1 << 40, &mut bytes);
        assert_eq!(bytes.len(), PACKET_BYTES);
        assert_eq!(read_packet(&bytes), Some((7, 1 << 40)));
        for damaged in [0, 4, 12, PACKET_BYTES - 1] {
            let mut other = bytes.clone();
            other[damaged] ^= 1;
            assert_ne!(read_packet(&other), Some((7, 1 << 40)), "{damaged}");
        }
        assert_eq!(read_packet(&bytes[..PACKET_BYTES - 1]), None);
    }
}
