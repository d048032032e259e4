//! A lock time-out is for everything that one operation waits for, however often it is turned away and asks again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{engines, quiet};
use rialto::io::MemoryDisk;
use rialto::row::{Value, WhichIndex};
use rialto::{Database, Durability, Engine, Error, Options, Result, Table};

const TIMEOUT: Duration = Duration::from_millis(200);
/// A waiter is turned away this many times within its time-out.
const TURNS: u32 = 4;
/// This many times in all, if the waiter does not give up: far longer than a machine keeps a runnable thread from
/// running.
const TURNS_MAX: u32 = 40 * TURNS;

fn open(engine: Engine) -> (Database, Table) {
    let options =
        Options { durability: Durability::Memory, lock_timeout: TIMEOUT, engine, ..quiet::options() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = quiet::numbers(&db);
    (db, table)
}

/// Runs `wait` beside `turn`, which turns it away again and again. It has to time out long before the turns end.
fn times_out(wait: impl FnOnce() -> Result<()>, mut turn: impl FnMut(u32) + Send) {
    let (turns, is_done) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) && turns.load(Ordering::SeqCst) < TURNS_MAX {
                turn(turns.fetch_add(1, Ordering::SeqCst));
                std::thread::sleep(TIMEOUT / TURNS);
            }
        });
        let outcome = wait();
        is_done.store(true, Ordering::SeqCst);
        assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
    });
    let turns = turns.into_inner();
    assert!(turns < TURNS_MAX, "it has waited for all {turns} turns, of which {TURNS} are its time-out");
}

#[test]
fn a_wait_times_out_while_routing_rules_change() {
    let (db, table) = open(engines::of(4, 0));
    let mut holder = db.begin().unwrap();
    assert_eq!(holder.update(&table, 5, &[(1, Value::Int4(1))]), Ok(true));
    times_out(
        || db.transact(|tx| tx.update(&table, 5, &[(1, Value::Int4(2))]).map(drop)),
        |nth| {
            let from = vec![Value::Int4(1 + (nth % 8) as i32)];
            db.set_routing("t", WhichIndex::Primary, &[from]).unwrap();
        },
    );
}
