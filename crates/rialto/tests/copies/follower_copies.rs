//! Copies for followers beside transactions that need the log's room.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rialto::backup::CopyOptions;
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Error, Options, TableDef};

/// A stream that lets transactions go on at its first write until they make no progress.
struct Stalled<'a> {
    steps: &'a AtomicU64,
    has_stalled: bool,
}

impl Write for Stalled<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // As many as half of the log has room for, and then until none has gone on for a while.
        let now = || self.steps.load(Ordering::SeqCst);
        let (least, mut seen) = (now() + 500, u64::MAX);
        while !self.has_stalled && (now() < least || now() != seen) {
            seen = now();
            std::thread::sleep(Duration::from_millis(300));
        }
        self.has_stalled = true;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log_in_a_copy(db: &Database) -> u64 {
    let (report, _cursor) = db.copy_to(&mut io::sink(), &CopyOptions::default()).unwrap();
    report.log_bytes
}

/// The segments of the database fit into one write, so the stream stalls where the copy has come to the log.
#[test]
fn a_copy_is_given_up_for_transactions_that_need_the_log() {
    let options = Options {
        log_bytes_max: 32 << 20,
        log_wait_max: Duration::from_secs(60),
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::Fuzzy,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let table = TableDef::new("texts", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&table)).unwrap();
    let text = |nth: u64| Value::Text(char::from(b'a' + (nth % 26) as u8).to_string().repeat(30_000));
    db.transact(|tx| tx.insert(&table, &[Value::Int4(0), text(0)])).unwrap();
    let write = |nth: u64| db.transact(|tx| tx.update(&table, 0, &[(1, text(nth))]).map(drop));
    let mut nth = 0;
    while log_in_a_copy(&db) < 3 << 20 {
        (0..20).for_each(|_| write(nth).unwrap());
        nth += 1;
    }
    let (is_over, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                write(steps.fetch_add(1, Ordering::SeqCst))?;
            }
            Ok::<(), Error>(())
        });
        let mut out = Stalled { steps: &steps, has_stalled: false };
        let given_up = db.copy_to(&mut out, &CopyOptions::default()).err();
        is_over.store(true, Ordering::SeqCst);
        assert!(matches!(given_up, Some(Error::LogFull { .. })), "{given_up:?}");
        worker.join().unwrap().unwrap();
    });
    db.close().unwrap();
}
