//! [`Probes`]: for how long a row could not be written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::cluster::PATIENCE;

/// The rows, each with a client of its own. With so many, each of three partitions has one: they lie by the hash of their numbers.
const ROWS: usize = 12;
/// Some time between two writes of a row.
const PAUSE: Duration = Duration::from_millis(5);

/// Clients that write one row each at level 2, one write after the other, at any node that serves. A client that is stuck is stuck
/// in the partition of its row, so that the longest time without a write is the outage of the partition that was out the longest.
pub struct Probes {
    gaps: Arc<Vec<Mutex<Gap>>>,
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

/// Of one row.
struct Gap {
    written: Instant,
    longest: Duration,
}

impl Gap {
    /// The row is written now, or looked at.
    fn ends(&mut self) -> Duration {
        let now = Instant::now();
        self.longest = self.longest.max(now - self.written);
        self.written = now;
        self.longest
    }
}

impl Probes {
    /// Makes the rows, and has clients begin.
    pub fn begin(addresses: Vec<String>) -> Probes {
        let mut session = crate::lists::begin(&addresses[0]).expect("the cluster serves");
        let mut runs = |statement: &str| session.query(statement, |_| ()).expect("the cluster serves");
        runs("CREATE TABLE probes (id int PRIMARY KEY, writes int NOT NULL)");
        (0..ROWS).for_each(|row| runs(&format!("INSERT INTO probes VALUES ({row}, 0)")));
        let gap = |_| Mutex::new(Gap { written: Instant::now(), longest: Duration::ZERO });
        let (gaps, ends) =
            (Arc::new((0..ROWS).map(gap).collect::<Vec<_>>()), Arc::new(AtomicBool::new(false)));
        let clients = (0..ROWS).map(|row| {
            let (addresses, gaps, ends) = (addresses.clone(), Arc::clone(&gaps), Arc::clone(&ends));
            thread::spawn(move || writes(row, &addresses, &gaps[row], &ends))
        });
        let clients = clients.collect();
        Probes { gaps, ends, clients }
    }

    fn gaps(&self) -> impl Iterator<Item = std::sync::MutexGuard<'_, Gap>> {
        self.gaps.iter().map(|gap| gap.lock().expect("no client panics"))
    }

    /// Forgets all gaps until now.
    pub fn reset(&self) {
        for mut gap in self.gaps() {
            gap.ends();
            gap.longest = Duration::ZERO;
        }
    }

    /// Waits until each row was written from now on.
    pub fn wait_for_a_write(&self) {
        let from = Instant::now();
        while self.gaps().any(|gap| gap.written < from) {
            assert!(from.elapsed() < PATIENCE, "a row could not be written for {PATIENCE:?}");
            thread::sleep(PAUSE);
        }
    }

    /// The longest time without a write of any row since the reset; one that goes on is in it.
    pub fn longest(&self) -> Duration {
        self.gaps().map(|gap| gap.longest.max(gap.written.elapsed())).max().unwrap_or_default()
    }
}

/// Writes a row until it ends. At a failure it goes to the next node.
fn writes(row: usize, addresses: &[String], gap: &Mutex<Gap>, ends: &AtomicBool) {
    let statement = format!("UPDATE probes SET writes = writes + 1 WHERE id = {row}");
    let (mut at, mut session) = (row, None);
    while !ends.load(Ordering::Relaxed) {
        let written = match session.take() {
            Some(session) => Ok(session),
            None => crate::lists::begin(&addresses[at % addresses.len()]).and_then(|mut session| {
                session.query("SET rialto.durability = 'standby'", |_| ()).map(|()| session)
            }),
        };
        let written = written.and_then(|mut session| session.query(&statement, |_| ()).map(|()| session));
        match written {
            Ok(serves) => {
                session = Some(serves);
                gap.lock().expect("nothing panics").ends();
            }
            Err(_) => at += 1,
        }
        thread::sleep(PAUSE);
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.clients.drain(..).for_each(|client| drop(client.join()));
    }
}
