//! dora-10: which thread accesses which record, over time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rialto_measure::RunError;
use rialto_measure::chart::{Look, Panel, Picture, Series};
use rialto_measure::text::{row, say};
use rialto_workloads::tpcc;

use super::super::{Figure, FigureError, Lab, markdown};
use super::System;
use super::run::{Clients, measure, warmup};
use super::workload::{Kind, Loaded, Sizes, Way};
use crate::point::machine;

/// The paper's: 10 warehouses, 10 workers, 20 clients, 0.7 seconds.
const WAREHOUSES: u32 = 10;
const WORKERS: u32 = 10;
const IN_FLIGHT: usize = 2;
const TIME: Duration = Duration::from_millis(700);
/// Payments do not touch items and stocks, so there are few.
const ITEMS: u32 = 1_000;
/// Districts of a warehouse, and in all.
const DISTRICTS: u32 = 10;
const RECORDS: u32 = WAREHOUSES * DISTRICTS;
/// The most accesses that are traced, and that are drawn.
const TRACED_MAX: usize = 1 << 20;
const DRAWN: usize = 1_500;

thread_local! {
    /// This thread's number among those that were ever traced.
    static THREAD: Cell<Option<u32>> = const { Cell::new(None) };
}

fn thread_number() -> u32 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    THREAD.get().unwrap_or_else(|| {
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        THREAD.set(Some(number));
        number
    })
}

/// An access to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    /// Microseconds since the trace began.
    at_us: u32,
    thread: u32,
    /// Counted from 0.
    record: u32,
}

/// Accesses, each in one word: microseconds, thread, record.
struct Trace {
    began: Instant,
    taken: AtomicUsize,
    accesses: Box<[AtomicU64]>,
}

impl Trace {
    fn new() -> Trace {
        let accesses = (0..TRACED_MAX).map(|_| AtomicU64::new(u64::MAX)).collect();
        Trace { began: Instant::now(), taken: AtomicUsize::new(0), accesses }
    }

    /// The calling thread accesses a district.
    fn see(&self, warehouse: i16, district: i16) {
        let record = (warehouse as u64 - 1) * u64::from(DISTRICTS) + (district as u64 - 1);
        let at_us = self.began.elapsed().as_micros() as u64;
        if let Some(access) = self.accesses.get(self.taken.fetch_add(1, Ordering::Relaxed)) {
            access.store(at_us << 32 | u64::from(thread_number() & 0xffff) << 16 | record, Ordering::Relaxed);
        }
    }

    /// How far the clock is.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Those of a time, in its order, counted from its begin; no thread writes any more.
    fn between(&self, from: Duration, to: Duration) -> Vec<Access> {
        let (from, to) = (from.as_micros() as u64, to.as_micros() as u64);
        let words = self.accesses.iter().map(|access| access.load(Ordering::Relaxed));
        let mut found: Vec<u64> = words.filter(|&word| (from..to).contains(&(word >> 32))).collect();
        found.sort_unstable();
        let access = |word: u64| Access {
            at_us: ((word >> 32) - from) as u32,
            thread: (word >> 16) as u32 & 0xffff,
            record: word as u32 & 0xffff,
        };
        found.into_iter().map(access).collect()
    }
}

/// What the accesses have in common.
#[derive(Debug, Clone, PartialEq)]
struct Regularity {
    /// Of each thread: its accesses, and how many records they are to.
    threads: BTreeMap<u32, (u64, usize)>,
    /// Threads of a record, on average.
    threads_per_record: f64,
    /// Accesses to a record whose last access was another thread's, in percent.
    moved_percent: f64,
}

impl Regularity {
    fn of(accesses: &[Access]) -> Regularity {
        let mut by_thread: BTreeMap<u32, (u64, BTreeSet<u32>)> = BTreeMap::new();
        let mut by_record: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut moved, mut again) = (0u64, 0u64);
        for Access { thread, record, .. } in accesses {
            let (count, records) = by_thread.entry(*thread).or_default();
            *count += 1;
            records.insert(*record);
            by_record.entry(*record).or_default().insert(*thread);
            if let Some(before) = last.insert(*record, *thread) {
                again += 1;
                moved += u64::from(before != *thread);
            }
        }
        let threads_of_records: usize = by_record.values().map(BTreeSet::len).sum();
        Regularity {
            threads: by_thread
                .into_iter()
                .map(|(thread, (count, records))| (thread, (count, records.len())))
                .collect(),
            threads_per_record: threads_of_records as f64 / by_record.len().max(1) as f64,
            moved_percent: moved as f64 * 100.0 / again.max(1) as f64,
        }
    }
}

fn traced(lab: &Lab, system: System) -> Result<Vec<Access>, RunError> {
    let window = if lab.is_small() { lab.on_the_clock()? } else { TIME };
    let trace = Arc::new(Trace::new());
    let see = Arc::clone(&trace);
    let way = Way {
        instead: vec![tpcc::seen_payment(move |warehouse, district| see.see(warehouse, district))],
        executors: Some(WORKERS as usize),
        ..Way::default()
    };
    let mut sizes = Sizes::of(lab);
    let full = tpcc::Shape { warehouses: WAREHOUSES, items: ITEMS, customers: tpcc::CUSTOMERS };
    sizes.tpcc = if lab.is_small() { tpcc::Shape { warehouses: WAREHOUSES, ..sizes.tpcc } } else { full };
    let mut loaded = Loaded::new(system, Kind::TpcC(tpcc::Name::Payment), &sizes, &way)?;
    let from = trace.now() + warmup(window);
    let clients = Clients { count: WORKERS, in_flight: IN_FLIGHT, profiled: false };
    let sample = measure(lab, &mut loaded, clients, window)?;
    say(&format!("  {}: {:.0} payments/s", system.name(), sample.per_s()));
    loaded.finish()?;
    Ok(trace.between(from, from + window))
}

/// Figure 10.
///
/// # Errors
/// A run that fails.
pub fn by_thread(lab: &Lab) -> Result<Figure, FigureError> {
    let mut table = vec![row([
        "system",
        "thread",
        "accesses",
        "records of 100",
        "threads of a record, mean",
        "accesses after another thread's %",
    ])];
    let (mut panels, mut words) = (Vec::new(), Vec::new());
    for system in System::ALL {
        let accesses = traced(lab, system)?;
        let found = Regularity::of(&accesses);
        let numbers: BTreeMap<u32, usize> = found.threads.keys().copied().zip(0..).collect();
        for (thread, (count, records)) in &found.threads {
            let mut cells = vec![system.name().to_owned(), (numbers[thread] + 1).to_string()];
            cells.extend([count.to_string(), records.to_string()]);
            cells.push(format!("{:.1}", found.threads_per_record));
            cells.push(format!("{:.1}", found.moved_percent));
            table.push(cells);
        }
        words.push(format!(
            "{}: {} accesses by {} threads, {:.1} threads a record, {:.0}% of the accesses after another thread's",
            system.name(),
            accesses.len(),
            found.threads.len(),
            found.threads_per_record,
            found.moved_percent
        ));
        panels.push(panel(system, &accesses, &numbers));
    }
    let time = if lab.is_small() { lab.on_the_clock()? } else { TIME };
    let text = format!(
        "Figure 10: accesses to the 100 districts of 10 warehouses by payments, 20 at a time, {} s; a colour is a thread. The paper: \
         10 workers and 20 clients; the accesses of its Baseline are uncoordinated, those of DORA show that each record has its thread. \
         Here the conventional engine's workers are 10 threads with two payments in flight each, and the data-oriented engine has \
         10 executors: in place, where a colour is the thread that had the executor in its hands, which may be any; and with a thread for \
         each, as in the paper, where one that stands in for a thread that waits has a colour of its own. \
         The pictures show the first {DRAWN} accesses of the time. In the table: {}. Districts are seen by the \
         body of the payment's action, not by the engine. There are {ITEMS} items, not 100,000: payments do not touch them. {} {}\n\n{}",
        time.as_secs_f64(),
        words.join("; "),
        System::LEGEND,
        format!("Log and data in memory, {} s. On {}.", time.as_secs_f64(), machine()),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

fn panel(system: System, accesses: &[Access], numbers: &BTreeMap<u32, usize>) -> Panel {
    let mut of_threads: Vec<Vec<(f64, f64)>> = vec![Vec::new(); numbers.len()];
    for access in accesses.iter().take(DRAWN) {
        of_threads[numbers[&access.thread]]
            .push((f64::from(access.at_us) / 1e3, f64::from(access.record + 1)));
    }
    let threads = of_threads.into_iter().enumerate();
    let series = threads.map(|(colour, points)| Series::new("", Look::Dots, colour, points)).collect();
    let title = format!("Accesses to districts by thread: {}", system.name());
    Panel { y_to: Some(f64::from(RECORDS)), ..Panel::new(&title, "time, ms", "district", series) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_gives_the_accesses_of_a_time_with_their_threads() {
        let trace = Trace::new();
        trace.see(1, 1);
        let from = trace.now() + Duration::from_millis(1);
        std::thread::sleep(Duration::from_millis(2));
        trace.see(2, 3);
        std::thread::scope(|scope| {
            scope.spawn(|| trace.see(10, 10));
        });
        let found = trace.between(from, trace.now() + Duration::from_secs(1));
        assert_eq!(found.iter().map(|access| access.record).collect::<Vec<_>>(), [12, 99]);
        assert_ne!(found[0].thread, found[1].thread);
        assert!(found[0].at_us <= found[1].at_us);
    }

    #[test]
    fn a_record_that_stays_with_its_thread_is_told_from_one_that_moves() {
        let access = |thread, record| Access { at_us: 0, thread, record };
        let coordinated = [access(0, 1), access(1, 2), access(0, 1), access(1, 2), access(0, 3)];
        let found = Regularity::of(&coordinated);
        assert_eq!((found.threads_per_record, found.moved_percent), (1.0, 0.0));
        assert_eq!(found.threads, BTreeMap::from([(0, (3, 2)), (1, (2, 1))]));
        let any = [access(0, 1), access(1, 1), access(1, 1), access(0, 1)];
        let found = Regularity::of(&any);
        assert_eq!(found.threads_per_record, 2.0);
        assert!((found.moved_percent - 200.0 / 3.0).abs() < 1e-9, "{found:?}");
    }
}
