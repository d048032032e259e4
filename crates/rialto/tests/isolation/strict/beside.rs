//! What goes on beside the clients: tables and indexes change, keys and data move between executors, transactions are cancelled.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::io::Random;
use rialto::row::{Value, WhichIndex};
use rialto::{Canceller, Database, Error, LockForm, Options};

use super::clients::{Client, Site};
use super::kernel::{EXTRA, GRAVES, ROWS};
use super::observed::{Attempt, KEYS, PARTS, TABLES, TAGS};

/// Ends what runs beside the clients, also when one of them panics.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An index that comes or goes.
fn change_index(db: &Database, random: &mut Random) {
    let table = random.below(TABLES as u64) as usize;
    let outcome = db.transact(|tx| match tx.create_index(ROWS[table], EXTRA[table], &["part"], false) {
        Err(Error::NameTaken { .. }) => tx.drop_index(EXTRA[table]),
        outcome => outcome,
    });
    // The disk may be gone, and the tables are in much use.
    drop(outcome);
}

fn route(db: &Database, random: &mut Random) {
    let table = random.below(TABLES as u64) as usize;
    let (name, which, values) = match random.below(4) {
        0 => (ROWS[table], WhichIndex::Secondary(0), PARTS),
        1 => (ROWS[table], WhichIndex::Secondary(1), TAGS),
        2 => (GRAVES[table], WhichIndex::Primary, KEYS),
        _ => (ROWS[table], WhichIndex::Primary, KEYS),
    };
    let mut bounds: Vec<i32> = (0..random.below(4)).map(|_| random.below(values as u64) as i32).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let bounds: Vec<_> = bounds.into_iter().map(|bound| vec![Value::Int4(bound)]).collect();
    db.set_routing(name, which, &bounds).unwrap();
}

/// Changes the database until it is over; the attempts at what it does to rows.
pub fn change(site: &Site<'_>, options: &Options, mut random: Random, over: &AtomicBool) -> Vec<Attempt> {
    let mut client = Client::new(site, random.fork());
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        let is_local = options.locks == LockForm::Local;
        match random.below(8) {
            0 if !client.is_over() => client.truncate(),
            1..3 => change_index(site.db, &mut random),
            3..6 if is_local => route(site.db, &mut random),
            6 if is_local => {
                let executors = 1 + random.below(8) as usize;
                site.db.set_executors(executors..=executors).unwrap();
            }
            7 if options.executor_threads > 0 => {
                let threads = 1 + random.below(4) as usize;
                site.db.set_executor_threads(threads..=threads).unwrap();
            }
            _ => {}
        }
    }
    client.end()
}

/// Cancels transactions now and then until it is over.
pub fn cancel(cancellers: &Mutex<Vec<Canceller>>, mut random: Random, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(2_000)));
        if let Some(canceller) = cancellers.lock().unwrap().pop() {
            canceller.cancel();
        }
    }
}
