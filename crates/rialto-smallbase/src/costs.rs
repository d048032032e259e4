//! [`Costs`]: what the operations cost of which a transaction is made (the paper's section 5.2).

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rialto_measure::spread::Spread;

/// Rounds that are measured at once.
const ROUNDS: u32 = 64;
/// As long as a message of a call.
const MESSAGE_BYTES: usize = 150;

/// Costs in microseconds: the median of many, the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// A semaphore operation that lets another thread run, until it runs. The paper: 55.
    pub wake: Spread,
    /// A semaphore operation that wakes no thread. The paper: 13.
    pub no_wake: Spread,
    /// A message by TCP, from the sender's call to the receiver's return. The paper: 1,000.
    pub message: Spread,
}

impl Costs {
    /// Measures each for so long.
    ///
    /// # Errors
    /// No connection can be made.
    pub fn measure(each: Duration) -> io::Result<Costs> {
        Ok(Costs { wake: wake(each), no_wake: no_wake(each), message: message(each)? })
    }
}

/// A counting semaphore.
#[derive(Default)]
struct Semaphore {
    count: Mutex<u32>,
    raised: Condvar,
}

impl Semaphore {
    fn lock(&self) -> MutexGuard<'_, u32> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raise(&self) {
        *self.lock() += 1;
        self.raised.notify_one();
    }

    fn lower(&self) {
        let waited = self.raised.wait_while(self.lock(), |count| *count == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

/// Repeats some rounds of an operation for a time. Gives the time of one, in microseconds.
fn repeat(each: Duration, operations: u32, mut round: impl FnMut()) -> Spread {
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || began.elapsed() < each {
        let began = Instant::now();
        (0..ROUNDS).for_each(|_| round());
        times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS * operations));
    }
    Spread::of(times).expect("there is a time")
}

/// Two threads that wake each other in turn.
fn wake(each: Duration) -> Spread {
    let (there, back) = (Semaphore::default(), Semaphore::default());
    let is_over = Mutex::new(false);
    let is_at_end = || *is_over.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                there.lower();
                if is_at_end() {
                    return;
                }
                back.raise();
            }
        });
        let times = repeat(each, 2, || {
            there.raise();
            back.lower();
        });
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        there.raise();
        times
    })
}

/// One thread that raises and lowers, so that none waits.
fn no_wake(each: Duration) -> Spread {
    let semaphore = Semaphore::default();
    repeat(each, 2, || {
        semaphore.raise();
        semaphore.lower();
    })
}

/// Two threads with a connection over the loopback network.
fn message(each: Duration) -> io::Result<Spread> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    let answering = thread::spawn(move || {
        let mut bytes = [0; MESSAGE_BYTES];
        while there.read_exact(&mut bytes).is_ok() && there.write_all(&bytes).is_ok() {}
    });
    let mut bytes = [7; MESSAGE_BYTES];
    let mut lost = None;
    let times = repeat(each, 2, || {
        let sent = here.write_all(&bytes).and_then(|()| here.read_exact(&mut bytes));
        lost = lost.take().or(sent.err());
    });
    drop(here);
    // It ends with the connection.
    let _ = answering.join();
    lost.map_or(Ok(times), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cost_is_measured() {
        let costs = Costs::measure(Duration::from_millis(20)).unwrap();
        for cost in [costs.wake, costs.no_wake, costs.message] {
            assert!(cost.least > 0.0 && cost.least <= cost.median && cost.median <= cost.most, "{costs:?}");
        }
    }
}
