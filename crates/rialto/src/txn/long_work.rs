//! [`LongWork`]: reports the progress of a long definition.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use crate::foreign;
use crate::io::Moment;

/// What takes no longer than this says nothing.
const FIRST: Duration = Duration::from_secs(2);
/// The time from one line to the next.
const EVERY: Duration = Duration::from_secs(10);
/// The clock is sampled once for so many rows.
const ROWS_PER_SAMPLE: u64 = 256;

/// The rows that a definition goes through, and how many of them are done. Lines about that go to
/// [`Options::progress`](crate::Options::progress): the first after two seconds, then one each ten, and one at the end.
pub(crate) struct LongWork {
    core: Arc<Core>,
    /// What is done, as "building index \"i\" of table \"t\"".
    what: String,
    total: u64,
    done: u64,
    next_sample: u64,
    began: Moment,
    /// How long after the begin the next line is due.
    next_line: Duration,
}

impl LongWork {
    pub fn begin(core: &Arc<Core>, what: String, total: u64) -> LongWork {
        let (core, began) = (core.clone(), core.clock.now());
        LongWork { core, what, total, done: 0, next_sample: ROWS_PER_SAMPLE, began, next_line: FIRST }
    }

    /// Counts rows that are done.
    pub fn step(&mut self, rows: u64) {
        self.done += rows;
        if self.done >= self.next_sample {
            self.next_sample = self.done + ROWS_PER_SAMPLE;
            self.sample();
        }
    }

    /// Says that all rows are done, if it has said anything.
    pub fn end(self) {
        if self.next_line > FIRST {
            let rows = rows(self.done);
            self.tell(&format!("{}: all {rows} are done", self.what));
        }
    }

    fn sample(&mut self) {
        self.core.redo_steps.step();
        let taken = Duration::from_nanos(self.core.clock.now().ns_since(self.began));
        if self.core.defaults.progress.is_none() || taken < self.next_line {
            return;
        }
        self.next_line = taken + EVERY;
        // Rows may come meanwhile.
        let total = self.total.max(self.done);
        let percent = (self.done * 100) / total.max(1);
        self.tell(&format!("{}: {percent}% of {}", self.what, rows(total)));
    }

    fn tell(&self, line: &str) {
        if let Some(tell) = &self.core.defaults.progress {
            foreign::tell(self.core.storage.catalog.opening(), &**tell, line);
        }
    }
}

/// A number of rows in words: `1,234,567 rows`.
fn rows(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|three| std::str::from_utf8(three).expect("digits")).collect();
    format!("{} row{}", groups.join(","), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::io::{Clock, MemoryDisk, VirtualClock};
    use crate::row::{Column, ColumnType, Value};
    use crate::{Background, Database, Options, Residence, TableDef};

    /// A database on a virtual clock, and the lines that it tells.
    fn opened() -> (Database, Arc<VirtualClock>, Arc<Mutex<Vec<String>>>) {
        let (clock, lines) = (Arc::new(VirtualClock::new()), Arc::new(Mutex::new(Vec::new())));
        let said = lines.clone();
        let options = Options {
            background: Background::Driven,
            clock: Clock::Virtual(clock.clone()),
            progress: Some(Arc::new(move |line: &str| said.lock().unwrap().push(line.to_owned()))),
            ..Options::default()
        };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        (db, clock, lines)
    }

    #[test]
    fn lines_come_after_two_seconds_and_then_each_ten() {
        let (db, clock, lines) = opened();
        let begin = || LongWork::begin(db.core(), "copying".to_owned(), 2_000_000);
        let mut short = begin();
        short.step(2_000_000);
        short.end();
        assert_eq!(*lines.lock().unwrap(), [""; 0]);
        let mut long = begin();
        for _ in 0..20 {
            clock.advance(Duration::from_secs(1));
            long.step(100_000);
        }
        long.step(1);
        long.end();
        let expected = [
            "copying: 10% of 2,000,000 rows",
            "copying: 60% of 2,000,000 rows",
            "copying: all 2,000,001 rows are done",
        ];
        assert_eq!(*lines.lock().unwrap(), expected);
        assert_eq!([0, 1, 999, 1_000].map(rows), ["0 rows", "1 row", "999 rows", "1,000 rows"]);
    }

    /// The clock runs away meanwhile: each step of the work takes long.
    #[test]
    fn index_builds_and_moves_say_how_far_they_have_come() {
        let (db, clock, lines) = opened();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
        db.transact(|tx| {
            let table = tx.create_table(&definition)?;
            (0..20_000).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(-id)]))
        })
        .unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    clock.advance(Duration::from_secs(1));
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            let has_said = |what: &str| lines.lock().unwrap().iter().any(|line| line.starts_with(what));
            let work: [(&str, &dyn Fn()); 2] = [
                ("building index \"by_n\" of table \"t\": ", &|| {
                    db.transact(|tx| tx.create_index("t", "by_n", &["n"], true)).unwrap();
                    db.transact(|tx| tx.drop_index("by_n")).unwrap();
                }),
                ("moving table \"t\" to disk: ", &|| {
                    db.set_residence("t", Residence::Disk).unwrap();
                    db.set_residence("t", Residence::Memory).unwrap();
                }),
            ];
            for (what, step) in work {
                for _ in 0..100 {
                    step();
                    if has_said(what) {
                        break;
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(work.iter().all(|(what, _)| has_said(what)), "{:?}", lines.lock().unwrap());
        });
    }
}
