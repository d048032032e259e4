//! A bare map: TPC-B on plain arrays by one thread, and a second thread that writes its log.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::{Backoff, CachePadded};
use rialto::io::{DiskResult, Random};

use super::{Bank, Beside, ProbeFile, Reached, WRITE_BYTES_MAX};

/// Tellers of each branch.
const TELLERS_PER_BRANCH: u32 = 10;
/// Rows of the history, used again and again.
const HISTORY_ROWS: usize = 1 << 20;
const HISTORY_WORDS: usize = 50_usize.div_ceil(8);
/// A record of 100 bytes.
const RECORD_WORDS: usize = 100_usize.div_ceil(8);

/// The bank's tables.
struct Tables {
    bank: Bank,
    branches: Vec<[i64; RECORD_WORDS]>,
    tellers: Vec<[i64; RECORD_WORDS]>,
    accounts: Vec<[i64; RECORD_WORDS]>,
    history: Vec<[i64; HISTORY_WORDS]>,
    random: Random,
}

impl Tables {
    fn new(bank: Bank) -> Tables {
        let records = |count: u32| vec![[1; RECORD_WORDS]; count as usize];
        Tables {
            bank,
            branches: records(bank.branches),
            tellers: records(bank.branches * TELLERS_PER_BRANCH),
            accounts: records(bank.accounts),
            history: vec![[1; HISTORY_WORDS]; HISTORY_ROWS],
            random: Random::new(1),
        }
    }

    #[inline]
    fn transaction(&mut self, number: u64) {
        let mut below = |count: u32| self.random.below(u64::from(count)) as usize;
        let (teller, account) = (below(self.bank.branches * TELLERS_PER_BRANCH), below(self.bank.accounts));
        let (branch, delta) = (teller / TELLERS_PER_BRANCH as usize, below(2_000_000) as i64 - 1_000_000);
        self.accounts[account][1] += delta;
        self.tellers[teller][1] += delta;
        self.branches[branch][1] += delta;
        let row = &mut self.history[number as usize % HISTORY_ROWS];
        (row[0], row[1], row[2]) = ((teller << 32 | branch) as i64, account as i64, delta);
    }
}

/// What the two threads share. The log thread owns `handed` while `busy`.
#[derive(Default)]
struct Shared {
    /// Bytes to write, and the number of the last transaction among them.
    handed: Mutex<(usize, u64)>,
    busy: CachePadded<AtomicBool>,
    durable: CachePadded<AtomicU64>,
    over: AtomicBool,
}

/// Ends the other thread's waiting, whatever ends this one.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn write_log(shared: &Shared, mut file: ProbeFile) -> DiskResult<()> {
    let _end = EndOnDrop(&shared.over);
    let backoff = Backoff::new();
    while !shared.over.load(Ordering::Relaxed) {
        if !shared.busy.load(Ordering::Acquire) {
            backoff.snooze();
            continue;
        }
        backoff.reset();
        let (bytes, last) = *shared.handed.lock().expect("no thread panics with it");
        file.write(bytes)?;
        shared.durable.store(last, Ordering::Release);
        shared.busy.store(false, Ordering::Release);
    }
    Ok(())
}

pub(super) fn run(file: ProbeFile, beside: &Beside) -> DiskResult<Reached> {
    let shared = Shared::default();
    let mut tables = Tables::new(beside.bank.expect("it is asked for with a bank"));
    let record = vec![7u8; beside.log_bytes.max(1.0) as usize];
    let in_flight = match beside.waits_for_disk {
        true => u64::from(beside.clients) * u64::from(beside.in_flight),
        false => u64::MAX,
    };
    std::thread::scope(|scope| {
        let log = scope.spawn(|| write_log(&shared, file));
        let end = EndOnDrop(&shared.over);
        let mut buffer = vec![0u8; WRITE_BYTES_MAX];
        let (mut filled, mut done) = (0, 0u64);
        let began = Instant::now();
        while !shared.over.load(Ordering::Relaxed) {
            // Not a clock read for each.
            if done.is_multiple_of(64) && began.elapsed() >= beside.time {
                break;
            }
            tables.transaction(done);
            done += 1;
            buffer[filled..filled + record.len()].copy_from_slice(&record);
            filled += record.len();
            let backoff = Backoff::new();
            loop {
                if filled > 0 && !shared.busy.load(Ordering::Acquire) {
                    *shared.handed.lock().expect("no thread panics with it") = (filled, done);
                    shared.busy.store(true, Ordering::Release);
                    filled = 0;
                }
                let outstanding = done - shared.durable.load(Ordering::Acquire);
                let room = filled + record.len() <= buffer.len();
                if outstanding < in_flight && room || shared.over.load(Ordering::Relaxed) {
                    break;
                }
                if began.elapsed() >= beside.time {
                    break;
                }
                backoff.snooze();
            }
            if filled + record.len() > buffer.len() {
                // The time is over, or the log thread is.
                break;
            }
        }
        let time = began.elapsed();
        // A commit without a waiter counts when it is done, the others when they are durable.
        let committed = if beside.waits_for_disk { shared.durable.load(Ordering::Acquire) } else { done };
        std::hint::black_box(&tables.accounts);
        drop(end);
        log.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Reached { per_s: committed as f64 / time.as_secs_f64().max(1e-9), latency: None })
    })
}
