//! Work beside the clients: tables and indexes change, keys and data move between executors, transactions are
//! cancelled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rialto::io::Random;
use rialto::{Canceller, Error, Options};

use super::clients::{Client, Site, ended};
use super::engines::change_engine;
use super::observed::{Attempt, EXTRA, ROWS, TABLES};

/// An index is made or dropped, or the index on the tags is made anew.
fn change_index(site: &Site<'_>, random: &mut Random) {
    let table = random.below(TABLES as u64) as usize;
    let (rows, by_tag) = (ROWS[table], format!("{}_by_tag", ROWS[table]));
    let outcome = match random.chance(1, 2) {
        true => site.db.transact(|tx| match tx.create_index(rows, EXTRA[table], &["part"], false) {
            Err(Error::NameTaken { .. }) => tx.drop_index(EXTRA[table]),
            outcome => outcome,
        }),
        false => site.db.transact(|tx| {
            tx.drop_index(&by_tag)?;
            tx.create_index(rows, &by_tag, &["tag"], table == 0)
        }),
    };
    match outcome {
        Ok(()) => {
            site.defined.fetch_add(1, Ordering::Relaxed);
        }
        // The tables are in heavy use, and the disk may have ended: no other error is expected.
        Err(error) => drop(ended(&error, site.about)),
    }
}

/// Changes the database until the clients have ended. Gives the attempts that changed rows.
pub fn change(site: &Site<'_>, options: &Options, mut random: Random, over: &AtomicBool) -> Vec<Attempt> {
    let mut client = Client::new(site, random.fork());
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        match random.below(8) {
            // A wide table has too many rows for the versions of one attempt.
            0 if !client.is_over() && !site.space.is_wide() => client.truncate(),
            0 => {}
            1..3 => change_index(site, &mut random),
            _ => change_engine(site.db, options, &mut random)
                .unwrap_or_else(|error| panic!("{}: {error}", site.about)),
        }
    }
    client.end()
}

/// Cancels transactions from time to time until the clients have ended.
pub fn cancel(cancellers: &Mutex<Vec<Canceller>>, mut random: Random, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(2_000)));
        if let Some(canceller) = cancellers.lock().pop() {
            canceller.cancel();
        }
    }
}
