//! Transactions of handles beside calls. Each is a transfer that also changes other rows, or a definition, or it sums
//! many rows. It may be cancelled, by itself or from another thread, go on after that, or be dropped.

use std::time::Duration;

use parking_lot::Mutex;
use rialto::io::Random;
use rialto::row::Value;
use rialto::{Canceller, Database, Error, Result, ScanMode, Transaction};

use super::TABLES;
use super::ledger::{SUMS, Transfer};
use super::many;

/// Transactions for another thread to cancel.
#[derive(Default)]
pub struct Cancels(Mutex<Vec<Canceller>>);

impl Cancels {
    pub fn ask_for(&self, tx: &mut Transaction) {
        self.0.lock().push(tx.canceller());
    }

    /// Cancels all of them.
    pub fn cancel_all(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        all.iter().for_each(Canceller::cancel);
    }
}

/// The outcome of a transaction of a handle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Committed,
    /// Its commit was refused.
    Cancelled,
    Dropped,
}

/// Runs one. `may_be_cancelled` says whether another thread is asked to cancel it.
pub fn run(
    db: &Database,
    transfer: Transfer,
    random: &mut Random,
    cancels: &Cancels,
    may_be_cancelled: &mut bool,
    about: &str,
) -> Result<End> {
    let mut tx = db.begin()?;
    if random.chance(1, 6) {
        *may_be_cancelled = true;
        cancels.ask_for(&mut tx);
    }
    transfer.begin(&mut tx)?;
    std::thread::sleep(Duration::from_micros(random.below(300)));
    if random.chance(1, 4) {
        make_or_drop_index(&mut tx)?;
    }
    if random.chance(1, 3) {
        change_row(&mut tx, random)?;
    }
    if random.chance(1, 16) {
        let mode = if random.chance(1, 2) { ScanMode::Share } else { ScanMode::Update };
        many::adds_up_twice(&mut tx, mode, about)?;
    }
    if random.chance(1, 8) && cancel(&mut tx, transfer, random, about) == Then::Commits {
        let refused = tx.commit();
        assert!(is_cancelled(&refused), "{about}: a commit behind cancel(): {refused:?}");
        return Ok(End::Cancelled);
    }
    transfer.end(&mut tx)?;
    match random.chance(3, 4) {
        true => tx.commit().map(|()| End::Committed),
        false => Ok(End::Dropped),
    }
}

/// What a cancelled transaction does next.
#[derive(PartialEq)]
enum Then {
    Commits,
    GoesOn,
}

fn cancel(tx: &mut Transaction, transfer: Transfer, random: &mut Random, about: &str) -> Then {
    let canceller = tx.canceller();
    canceller.cancel();
    let checked = tx.check();
    assert!(is_cancelled(&checked), "{about}: a look behind cancel(): {checked:?}");
    if random.chance(1, 2) {
        let written = transfer.end(tx);
        assert!(is_cancelled(&written), "{about}: a write behind cancel(): {written:?}");
    }
    if random.chance(1, 2) {
        return Then::Commits;
    }
    tx.clear_cancellation();
    Then::GoesOn
}

/// A closed database may give its own error instead.
fn is_cancelled(outcome: &Result<()>) -> bool {
    matches!(outcome, Err(Error::Cancelled | Error::Closed))
}

fn make_or_drop_index(tx: &mut Transaction) -> Result<()> {
    match tx.drop_index("sums_more") {
        Err(Error::NoSuchIndex { .. }) => tx.create_index(SUMS, "sums_more", &["amount"], false),
        dropped => dropped,
    }
}

/// Inserts a row of another table, or deletes the existing one, and may roll that back.
fn change_row(tx: &mut Transaction, random: &mut Random) -> Result<()> {
    let table = tx.table(TABLES[random.below(2) as usize])?;
    let savepoint = tx.savepoint();
    let (a, b) = (random.below(8) as i32, random.below(3) as i32);
    let row = [a.into(), b.into(), Value::Int4(b), a.into(), Value::Text("of a handle".to_owned())];
    match tx.insert(&table, &row) {
        Err(Error::DuplicateKey { .. }) => drop(tx.delete(&table, (a, b))?),
        inserted => inserted?,
    }
    match random.chance(1, 2) {
        true => tx.rollback_to(&savepoint),
        false => Ok(()),
    }
}
