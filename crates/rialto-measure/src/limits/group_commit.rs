//! A bare group commit: clients take a number and sleep until it is durable; a writer writes for all clients that have one.
//!
//! The sleepers lie in two buckets: one for those that the group in flight covers, one for those that the next group will.
//! So one wake call wakes the clients of one group, and no others. No wake-up is lost: a client looks at the group word, then at its bucket's
//! epoch, then at the group word again before it sleeps on that epoch; the writer moves the group word on, then writes,
//! publishes, and then moves the epoch of its group's bucket.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rialto::io::DiskResult;
use rustix::thread::futex;

use super::{Beside, ProbeFile, Reached, reached};
use crate::histogram::Latencies;

#[derive(Default)]
struct Shared {
    /// Numbers taken.
    taken: CachePadded<AtomicU64>,
    /// Numbers durable.
    durable: CachePadded<AtomicU64>,
    /// The last number of the group in flight, over the low 16 bits of the group's own.
    group_word: CachePadded<AtomicU64>,
    epochs: [CachePadded<AtomicU32>; 2],
    /// Moves when a number is taken while the writer sleeps.
    work: CachePadded<AtomicU32>,
    writer_asleep: AtomicBool,
    over: AtomicBool,
}

fn sleep(word: &AtomicU32, expected: u32) {
    // Interrupted, or changed already: the caller looks again in every case.
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, None);
}

fn wake(word: &AtomicU32) {
    word.fetch_add(1, Ordering::SeqCst);
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

impl Shared {
    /// Takes a number and sleeps until it is durable; false if it never will be.
    fn commit(&self) -> bool {
        let number = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        if self.writer_asleep.swap(false, Ordering::SeqCst) {
            wake(&self.work);
        }
        while self.durable.load(Ordering::SeqCst) < number {
            if self.over.load(Ordering::SeqCst) {
                return false;
            }
            let group_word = self.group_word.load(Ordering::SeqCst);
            let group = if number <= group_word >> 16 { group_word } else { group_word + 1 };
            let epoch = &self.epochs[(group & 1) as usize];
            let before = epoch.load(Ordering::SeqCst);
            let unmoved = self.group_word.load(Ordering::SeqCst) == group_word;
            if unmoved && self.durable.load(Ordering::SeqCst) < number && !self.over.load(Ordering::SeqCst) {
                sleep(epoch, before);
            }
        }
        true
    }

    fn write_groups(&self, mut file: ProbeFile, log_bytes: f64) -> DiskResult<()> {
        let mut group = 0;
        while !self.over.load(Ordering::SeqCst) {
            let durable = self.durable.load(Ordering::SeqCst);
            let work = self.work.load(Ordering::SeqCst);
            let taken = self.taken.load(Ordering::SeqCst);
            if taken == durable {
                self.writer_asleep.store(true, Ordering::SeqCst);
                if self.taken.load(Ordering::SeqCst) == durable && !self.over.load(Ordering::SeqCst) {
                    sleep(&self.work, work);
                }
                self.writer_asleep.store(false, Ordering::SeqCst);
                continue;
            }
            group = (group + 1) & 0xffff;
            self.group_word.store(taken << 16 | group, Ordering::SeqCst);
            file.write(((taken - durable) as f64 * log_bytes) as usize)?;
            self.durable.store(taken, Ordering::SeqCst);
            wake(&self.epochs[(group & 1) as usize]);
        }
        Ok(())
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.epochs.iter().for_each(|epoch| wake(epoch));
        wake(&self.work);
    }
}

pub(super) fn run(file: ProbeFile, beside: &Beside) -> DiskResult<Reached> {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let outcome = shared.write_groups(file, beside.log_bytes);
            // After a failed write no client may sleep on.
            shared.end();
            outcome
        });
        let client = || {
            let mut latencies = Latencies::default();
            let mut now = Instant::now();
            while shared.commit() {
                let done = Instant::now();
                latencies.record(done - now);
                now = done;
            }
            latencies
        };
        let clients: Vec<_> = (0..beside.clients).map(|_| scope.spawn(client)).collect();
        let began = Instant::now();
        while began.elapsed() < beside.time && !shared.over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5).min(beside.time));
        }
        let time = began.elapsed();
        shared.end();
        let mut all = Latencies::default();
        for client in clients {
            all.merge(&client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(reached(&all, time))
    })
}
