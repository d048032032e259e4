//! TPC-B as the papers have it: branches, ten tellers each, accounts; records of 100 bytes, a history row of 50.
//!
//! A transaction takes a teller at random, with its branch; in 85 of 100 an account of that branch, otherwise one of
//! another branch. It adds a delta to account, teller and branch, in this order: so no two transactions can deadlock,
//! and the lock of the branch, which is the hottest, is held for the shortest time. It inserts a row that says what it
//! did into the history, which has no key.
//!
//! Consistency: the deltas of the history of each branch add up to the balance of the branch and to those of its
//! tellers, all of them to the balances of all accounts, and the history has a row for each acknowledged transaction and
//! none for one that was never begun.

mod bank;
mod flow;
mod history;
#[cfg(test)]
mod tests;
mod verify;

use std::ops::RangeInclusive;
use std::time::Instant;

use rialto::io::Random;
use rialto::row::{Row, Value};
use rialto::{Database, Error, Result, Table, Transaction, TxOptions};
use rialto_measure::driver::Workload;
use rialto_measure::limits::Bank;

pub use self::bank::Shape;
pub use self::flow::procedures;
use self::history::HistoryRow;
pub use self::verify::Audit;
use crate::calendar::Calendar;
use crate::calls::Calls;
use crate::workload::{Answer, Audited, Submitted, Verdict, random_of};

/// The name of the one transaction type.
const PROCEDURE: &str = "tpcb";
/// Tellers of each branch.
pub const TELLERS_PER_BRANCH: u32 = 10;
/// The largest amount that a transaction moves, either way.
const DELTA_MAX: u64 = 999_999;
/// Percent of transactions whose account is of the teller's branch.
const LOCAL_PERCENT: u64 = 85;

/// The position of the balance in branches.
const BRANCH_BALANCE: usize = 1;
/// The position of the balance in tellers and accounts.
const BALANCE: usize = 2;

/// The bank, open.
#[derive(Debug, Clone)]
pub struct Tpcb {
    database: Database,
    shape: Shape,
    branches: Table,
    tellers: Table,
    accounts: Table,
    history: Table,
    /// Names the time account.
    options: TxOptions,
    calendar: Calendar,
    /// Whether transactions run as calls of the procedure.
    calls: bool,
}

/// One client's own state.
#[derive(Debug)]
pub struct Client {
    random: Random,
    row: HistoryRow,
    calls: Calls,
}

/// What one transaction does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Movement {
    /// The account's number.
    pub account: i32,
    /// The teller's number.
    pub teller: i32,
    /// The number of the teller's branch, whose balance changes; the account may be of another.
    pub branch: i32,
    /// What is added.
    pub delta: i64,
}

impl Movement {
    /// The next one, at random.
    pub fn draw(shape: &Shape, random: &mut Random) -> Movement {
        let teller = random.below(u64::from(shape.branches * TELLERS_PER_BRANCH)) as u32;
        let branch = teller / TELLERS_PER_BRANCH;
        let local = shape.branches == 1 || random.below(100) < LOCAL_PERCENT;
        let accounts_of = if local {
            branch
        } else {
            // Any other branch, each as likely.
            (branch + 1 + random.below(u64::from(shape.branches - 1)) as u32) % shape.branches
        };
        let accounts = shape.accounts_of(accounts_of);
        let account = accounts.start + random.below(u64::from(accounts.end - accounts.start)) as u32;
        let delta = random.below(2 * DELTA_MAX + 1) as i64 - DELTA_MAX as i64;
        Movement { account: account as i32, teller: teller as i32, branch: branch as i32, delta }
    }
}

fn missing(table: &str, key: i32) -> Error {
    Error::aborted(format!("row {key} of table \"{table}\" is missing: this is no TPC-B bank any more"))
}

impl Tpcb {
    /// The bank's size.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same, its transactions run as calls of the [procedure](procedures), which is registered, or not.
    #[must_use]
    pub fn by_calls(mut self, calls: bool) -> Tpcb {
        self.calls = calls;
        self
    }

    /// Draws the next transaction, and its time.
    fn next_call(&self, client: &mut Client, now: Instant) {
        let Movement { account, teller, branch, delta } = Movement::draw(&self.shape, &mut client.random);
        let time_us = self.calendar.us(now);
        let [account, teller, branch] = [account, teller, branch].map(Value::Int4);
        let arguments = [account, teller, branch, Value::Int8(delta), Value::Timestamp(time_us)];
        client.calls.arguments.clear();
        client.calls.arguments.extend(arguments);
    }

    /// Draws the next transaction, and writes its history row.
    #[inline]
    fn next(&self, client: &mut Client, now: Instant) -> Result<Movement> {
        let movement = Movement::draw(&self.shape, &mut client.random);
        let time_us = self.calendar.us(now);
        client.row.set(&movement, time_us)?;
        Ok(movement)
    }

    #[inline]
    fn body(&self, transaction: &mut Transaction, movement: &Movement, row: &Row) -> Result<()> {
        let Movement { account, teller, branch, delta } = *movement;
        let add = |column| move |fields: &mut rialto::Fields<'_>| fields.add_i64(column, delta).map(drop);
        if !transaction.modify(&self.accounts, account, add(BALANCE))? {
            return Err(missing("accounts", account));
        }
        transaction.insert_row(&self.history, row)?;
        if !transaction.modify(&self.tellers, teller, add(BALANCE))? {
            return Err(missing("tellers", teller));
        }
        if !transaction.modify(&self.branches, branch, add(BRANCH_BALANCE))? {
            return Err(missing("branches", branch));
        }
        Ok(())
    }
}

impl Workload for Tpcb {
    type Client = Client;
    type Ticket = Submitted<()>;

    fn procedures(&self) -> &'static [&'static str] {
        &[PROCEDURE]
    }

    fn client(&self, number: u32, seed: u64) -> Client {
        let random = random_of(number, seed);
        Client { random, row: HistoryRow::new(self.history.schema()), calls: Calls::default() }
    }

    #[inline]
    fn run_one(&self, client: &mut Client, now: Instant) -> Result<usize> {
        if self.calls {
            self.next_call(client, now);
            return client.calls.call(&self.database, &self.options, (0, PROCEDURE)).map(|_| 0);
        }
        let movement = self.next(client, now)?;
        let row = client.row.row();
        self.database.transact_with(&self.options, |transaction| self.body(transaction, &movement, row))?;
        Ok(0)
    }

    #[inline]
    fn submit_one(&self, client: &mut Client, now: Instant) -> Result<(usize, Submitted<()>)> {
        if self.calls {
            self.next_call(client, now);
            let sent = client.calls.send(&self.database, &self.options, (0, PROCEDURE))?;
            return Ok((0, Submitted::sent(sent, ())));
        }
        let movement = self.next(client, now)?;
        let row = client.row.row();
        let ((), ticket) =
            self.database.submit_with(&self.options, |transaction| self.body(transaction, &movement, row))?;
        Ok((0, Submitted::Placed(ticket)))
    }

    #[inline]
    fn settle(&self, _: &mut Client, answer: Answer<()>) -> Result<()> {
        match answer {
            Answer::Placed(outcome) => outcome,
            Answer::Called((), outcome) => outcome.map(drop),
        }
    }
}

impl Audited for Tpcb {
    const NAME: &'static str = "tpcb";
    const TITLE: &'static str = "TPC-B";
    const DATA: &'static str = "bank";
    type Audit = Audit;

    fn memory_per_transaction(&self) -> f64 {
        // The history row with its header, and its entry in the index of row numbers.
        110.0
    }

    fn describe(&self) -> String {
        self.shape.to_string()
    }

    fn bank(&self) -> Option<Bank> {
        let Shape { branches, accounts } = self.shape;
        Some(Bank { branches, accounts })
    }

    fn audit(&self) -> Result<Audit> {
        Tpcb::audit(self)
    }

    fn verdict(&self, before: &Audit, after: &Audit, transactions: RangeInclusive<u64>) -> Verdict {
        let rows = before.history_count;
        self.judge(after, rows + transactions.start()..=rows + transactions.end())
    }
}
