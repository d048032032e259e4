//! The commit queue and the writer word under a model checker: the same source files, compiled against shuttle's
//! atomics, run under many random schedules. A lost wake-up shows as a deadlock, which shuttle reports.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::group_commit::{self, GroupCommit, LogServer};

/// `super::sync` as the model sees it.
mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use super::{Condvar, Duration, Mutex};

    #[derive(Debug)]
    pub(crate) struct Futex {
        word: AtomicU32,
        lock: Mutex<()>,
        changed: Condvar,
    }

    impl Futex {
        pub(crate) fn new(value: u32) -> Futex {
            Futex { word: AtomicU32::new(value), lock: Mutex::new(()), changed: Condvar::new() }
        }

        pub(crate) fn load(&self) -> u32 {
            self.word.load(Ordering::SeqCst)
        }

        pub(crate) fn fetch_add(&self, by: u32) -> u32 {
            self.word.fetch_add(by, Ordering::SeqCst)
        }

        pub(crate) fn fetch_max(&self, with: u32) -> u32 {
            self.word.fetch_max(with, Ordering::SeqCst)
        }

        pub(crate) fn exchange(&self, old: u32, new: u32) -> bool {
            self.word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        }

        /// A sleep with a time limit may end at any time; one without ends only by a wake.
        pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) {
            let lock = self.lock.lock().unwrap();
            if self.load() != expected {
                return;
            }
            match timeout {
                Some(_) => shuttle::thread::yield_now(),
                None => drop(self.changed.wait(lock).unwrap()),
            }
        }

        pub(crate) fn wake_all(&self) {
            let _lock = self.lock.lock().unwrap();
            self.changed.notify_all();
        }
    }
}

#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "queue.rs"]
mod queue;
#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "turn.rs"]
mod turn;

use queue::{CommitQueue, Links, NO_SLOT};
use sync::{AtomicU32, AtomicU64, Ordering};
use turn::{Turn, Waited, Writer};

/// Schedules tried per model.
const SCHEDULES: usize = 3000;

struct Slots(Vec<(AtomicU32, AtomicU64)>);

impl Links for Slots {
    fn next(&self, slot: u32) -> &AtomicU32 {
        &self.0[slot as usize].0
    }

    fn lsn(&self, slot: u32) -> &AtomicU64 {
        &self.0[slot as usize].1
    }
}

#[test]
fn places_are_dense_and_drained_in_order() {
    const PUSHERS: u32 = 3;
    const EACH: u32 = 2;
    let model = || {
        let slots = (0..PUSHERS * EACH).map(|_| (AtomicU32::new(NO_SLOT), AtomicU64::new(0))).collect();
        let shared = Arc::new((CommitQueue::new(crate::Lsn(40)), Slots(slots)));
        let pushers: Vec<_> = (0..PUSHERS)
            .map(|pusher| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut last = 0;
                    for slot in pusher * EACH..(pusher + 1) * EACH {
                        let lsn = shared.0.push(&shared.1, slot).0;
                        assert!(lsn > last && lsn <= shared.0.place().0);
                        last = lsn;
                    }
                })
            })
            .collect();
        let mut next = 41;
        while next <= 40 + u64::from(PUSHERS * EACH) {
            let Some(mut slot) = shared.0.drain() else {
                thread::yield_now();
                continue;
            };
            let mut chain = Vec::new();
            while slot != NO_SLOT {
                chain.push(shared.1.lsn(slot).load(Ordering::Relaxed));
                slot = shared.1.next(slot).load(Ordering::Relaxed);
            }
            for lsn in chain.into_iter().rev() {
                assert_eq!(lsn, next, "dense, oldest first");
                next += 1;
            }
        }
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        assert_eq!(shared.0.place().0, next - 1);
    };
    shuttle::check_random(model, SCHEDULES);
}

/// A log without bytes: a place is a count, a write is nothing.
struct World {
    writer: Writer,
    place: AtomicU64,
    writes: AtomicU64,
    fails_at: u64,
}

impl World {
    fn new(fails_at: u64) -> Arc<World> {
        let (place, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(World { writer: Writer::new(0), place, writes, fails_at })
    }

    fn place(&self) -> u64 {
        self.place.load(Ordering::SeqCst)
    }

    fn write(&self, turn: Turn<'_>) {
        let target = self.place();
        turn.begin(target);
        thread::yield_now();
        if self.writes.fetch_add(1, Ordering::SeqCst) + 1 == self.fails_at {
            self.writer.stop();
        } else if !self.writer.stopped() {
            turn.publish(target);
        }
        turn.release(|| self.place());
    }

    fn commit(&self) -> (u64, Waited) {
        let lsn = self.place.fetch_add(1, Ordering::SeqCst) + 1;
        let choose = |view: &group_commit::View| LogServer.choose(view);
        (lsn, self.writer.wait(lsn, || self.place(), choose, |turn| self.write(turn)))
    }

    fn serve(&self) {
        while let Some(turn) = self.writer.next_for_server(Duration::from_millis(1)) {
            self.write(turn);
        }
    }
}

fn committers_and_server(fails_at: u64, tickets: bool) {
    let world = World::new(fails_at);
    let server = thread::spawn({
        let world = world.clone();
        move || world.serve()
    });
    let committers: Vec<_> = (0..3)
        .map(|_| {
            let world = world.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let (lsn, waited) = world.commit();
                    match waited {
                        Waited::Durable => assert!(world.writer.durable() >= lsn),
                        Waited::Stopped => assert!(fails_at > 0 && world.writer.stopped()),
                    }
                }
            })
        })
        .collect();
    if tickets {
        let lsn = world.place.fetch_add(1, Ordering::SeqCst) + 1;
        world.writer.ask_now();
        while world.writer.durable() < lsn {
            thread::yield_now();
        }
        let lsn = world.place.fetch_add(1, Ordering::SeqCst) + 1;
        world.writer.ask_soon();
        while world.writer.durable() < lsn {
            thread::yield_now();
        }
    }
    committers.into_iter().for_each(|committer| committer.join().unwrap());
    world.writer.close();
    server.join().unwrap();
    if fails_at == 0 {
        assert_eq!(world.writer.durable(), world.place());
    }
}

#[test]
fn no_committer_sleeps_for_ever() {
    shuttle::check_random(|| committers_and_server(0, false), SCHEDULES);
    shuttle::check_pct(|| committers_and_server(0, false), SCHEDULES, 3);
}

#[test]
fn what_nobody_waits_for_is_written() {
    shuttle::check_random(|| committers_and_server(0, true), SCHEDULES);
}

#[test]
fn a_failed_write_releases_everybody() {
    shuttle::check_random(|| committers_and_server(1, false), SCHEDULES);
    shuttle::check_random(|| committers_and_server(2, false), SCHEDULES);
}

#[test]
fn committers_write_for_themselves_once_the_log_server_is_gone() {
    let model = || {
        let world = World::new(0);
        let server = thread::spawn({
            let world = world.clone();
            move || world.serve()
        });
        let committers: Vec<_> = (0..3)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || assert_eq!(world.commit().1, Waited::Durable))
            })
            .collect();
        world.writer.close();
        server.join().unwrap();
        committers.into_iter().for_each(|committer| committer.join().unwrap());
    };
    shuttle::check_random(model, SCHEDULES);
}
