//! [`Step`]: a transaction that is a call, the same by a closure, DDL or a bulk load. [`Contents`]: its result on plain
//! data.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, RowView, Value, WhichIndex};
use rialto::{Database, Error, Result, Scan, Table, TableDef, Ticket, TxOptions};

/// An index that is made and dropped.
const BY_BALANCE: &str = "by_balance";

#[derive(Debug, Clone)]
pub enum Step {
    Transfer {
        from: i32,
        to: i32,
        amount: i64,
    },
    Rename(i32, String),
    /// The account that has this text gets another one.
    TakeOver(i32, String),
    Forget,
    Renew(i32),
    /// The first two accounts exchange their texts.
    Exchange,
    /// Makes a table with this many rows.
    Make(i32),
    Index,
    DropIndex,
    /// Sets a balance, and notes it in the history.
    Set(i32, i64),
}

impl Step {
    /// A random step as transaction `n`.
    pub fn any(random: &mut Random, n: i64, accounts: i32) -> Step {
        let account = |random: &mut Random| random.below(accounts as u64) as i32;
        match random.below(20) {
            0..9 => {
                let (from, to) = (account(random), account(random));
                Step::Transfer { from, to, amount: random.below(2_000) as i64 - 1_000 }
            }
            9 | 10 => {
                let length = if random.chance(1, 8) { 900 } else { random.below(40) as usize };
                Step::Rename(account(random), format!("{n} {}", "x".repeat(length)))
            }
            11 => Step::TakeOver(account(random), format!("the {}", random.below(3))),
            12 => Step::Forget,
            13 => Step::Renew(account(random)),
            14 => Step::Exchange,
            15 => Step::Make(random.below(600) as i32),
            16 => [Step::Index, Step::DropIndex][random.below(2) as usize].clone(),
            _ => Step::Set(account(random), random.below(100) as i64),
        }
    }

    /// Runs it, up to its place.
    pub fn run(&self, db: &Database, n: i64, options: &TxOptions) -> Result<Ticket> {
        let call = |name: &str, rest: &[Value]| {
            let arguments = [&[Value::Int8(n)], rest].concat();
            db.submit_call_with(options, name, &arguments).map(|(_, ticket)| ticket)
        };
        match self {
            Step::Transfer { from, to, amount } => {
                return call("transfer", &[Value::Int4(*from), Value::Int4(*to), Value::Int8(*amount)]);
            }
            Step::Rename(id, text) => return call("rename", &[Value::Int4(*id), Value::Text(text.clone())]),
            Step::TakeOver(id, text) => {
                return call("take over", &[Value::Int4(*id), Value::Text(text.clone())]);
            }
            Step::Forget => return call("forget", &[]),
            Step::Renew(id) => return call("renew", &[Value::Int4(*id)]),
            _ => {}
        }
        let body = |tx: &mut rialto::Transaction| {
            match self {
                Step::Exchange => {
                    let accounts = tx.table("accounts")?;
                    let texts = [0, 1].map(|id| tx.get(&accounts, id).map(|row| row.unwrap().view().get(2)));
                    let [first, second] = texts;
                    let (first, second) = (first?, second?);
                    tx.update(&accounts, 0, &[(2, Value::Text(format!("{n} meanwhile")))])?;
                    tx.update(&accounts, 1, &[(2, first)])?;
                    tx.update(&accounts, 0, &[(2, second)])?;
                }
                Step::Make(rows) => {
                    let name = format!("t{n}");
                    tx.create_table(&TableDef::new(&name, vec![Column::new("id", ColumnType::Int4)]))?;
                    let table = tx.table(&name)?;
                    (0..*rows).try_for_each(|id| tx.insert(&table, &[Value::Int4(id)]))?;
                }
                // The index may exist, or not.
                Step::DropIndex => tx.drop_index(BY_BALANCE).or(Ok::<_, Error>(()))?,
                Step::Index => {
                    tx.create_index("accounts", BY_BALANCE, &["balance"], false).or(Ok::<_, Error>(()))?;
                }
                Step::Set(id, balance) => {
                    let (accounts, history) = (tx.table("accounts")?, tx.table("history")?);
                    tx.update(&accounts, *id, &[(1, Value::Int8(*balance))])?;
                    tx.insert(&history, &[Value::Int4(*id), Value::Int8(*balance)])?;
                }
                other => unreachable!("{other:?} is a call"),
            }
            let done = tx.table("done")?;
            tx.insert(&done, &[Value::Int8(n)])
        };
        db.submit_with(options, body).map(|((), ticket)| ticket)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// Balance and text, by id.
    accounts: BTreeMap<i32, (i64, String)>,
    has_by_balance: bool,
    /// Account and amount, in the order of the row numbers.
    pub history: Vec<(i32, i64)>,
    /// The number of rows of each table that was made, by name.
    made: BTreeMap<String, i32>,
    pub done: Vec<i64>,
}

impl Contents {
    /// The contents with this many accounts before the first transaction.
    pub fn prepared(accounts: i32) -> Contents {
        Contents {
            accounts: (0..accounts).map(|id| (id, (0, format!("account {id}")))).collect(),
            has_by_balance: true,
            history: Vec::new(),
            made: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    /// The contents after transaction `n`.
    pub fn after(&self, n: i64, step: &Step) -> Contents {
        let mut after = self.clone();
        after.take(n, step);
        after
    }

    fn account(&mut self, id: i32) -> &mut (i64, String) {
        self.accounts.get_mut(&id).expect("each account is there")
    }

    pub fn take(&mut self, n: i64, step: &Step) {
        match step {
            Step::Transfer { from, to, amount } => {
                self.account(*from).0 -= amount;
                self.account(*to).0 += amount;
                self.history.extend([(*from, *amount), (*to, -*amount)]);
            }
            Step::Rename(id, text) => self.account(*id).1.clone_from(text),
            Step::TakeOver(id, text) => {
                let holder = self.accounts.values_mut().find(|(_, other)| other == text);
                if let Some((_, other)) = holder {
                    *other = format!("{n} free");
                }
                self.account(*id).1.clone_from(text);
            }
            Step::Forget => {
                let least = (0..self.history.len()).min_by_key(|at| self.history[*at]);
                least.map(|at| self.history.remove(at));
            }
            Step::Renew(id) => self.account(*id).0 = 0,
            Step::Exchange => {
                let first = self.account(0).1.clone();
                let second = std::mem::replace(&mut self.account(1).1, first);
                self.account(0).1 = second;
            }
            Step::Make(rows) => drop(self.made.insert(format!("t{n}"), *rows)),
            Step::Index => self.has_by_balance = true,
            Step::DropIndex => self.has_by_balance = false,
            Step::Set(id, balance) => {
                self.account(*id).0 = *balance;
                self.history.push((*id, *balance));
            }
        }
        self.done.push(n);
    }

    /// The contents of the database. Checks that each index gives the same, in its order.
    pub fn of(db: &Database, about: &str) -> Contents {
        let mut contents = Contents { has_by_balance: false, ..Contents::prepared(0) };
        let accounts = db.table("accounts").unwrap();
        contents.accounts = rows(db, &accounts, WhichIndex::Primary, about, |row| {
            Ok((row.get_i32(0)?, (row.get_i64(1)?, row.get_str(2)?.to_owned())))
        })
        .into_iter()
        .collect();
        for (nth, index) in accounts.schema().indexes().iter().enumerate() {
            contents.has_by_balance |= index.name == BY_BALANCE;
            let about = &format!("{about}: accounts by {}", index.name);
            let found = rows(db, &accounts, WhichIndex::Secondary(nth), about, |row| {
                Ok((row.get_i32(0)?, (row.get_i64(1)?, row.get_str(2)?.to_owned())))
            });
            let is_sorted = match index.name == BY_BALANCE {
                true => found.is_sorted_by_key(|(_, (balance, _))| *balance),
                false => found.is_sorted_by(|(_, (_, one)), (_, (_, other))| one <= other),
            };
            assert!(is_sorted, "{about}: out of order");
            assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), contents.accounts, "{about}");
        }
        let primary = WhichIndex::Primary;
        let history = db.table("history").unwrap();
        contents.history = rows(db, &history, primary, about, |row| Ok((row.get_i32(0)?, row.get_i64(1)?)));
        contents.done = rows(db, &db.table("done").unwrap(), primary, about, |row| row.get_i64(0));
        for table in db.tables().into_iter().filter(|table| table.name().starts_with('t')) {
            let found = rows(db, &table, primary, about, |row| row.get_i32(0));
            assert!(found.iter().copied().eq(0..found.len() as i32), "{about}: {}: {found:?}", table.name());
            contents.made.insert(table.name().to_owned(), found.len() as i32);
        }
        contents
    }

    /// Fails unless the found contents are the expected ones. The order of the transactions, and the numbers of the
    /// history's rows, are not determined.
    pub fn assert_is(&self, expected: &Contents, about: &str) {
        let in_order = |of: &Contents| {
            let mut of = of.clone();
            of.history.sort_unstable();
            of.done.sort_unstable();
            of
        };
        assert_eq!(in_order(self), in_order(expected), "{about}: found, and expected");
    }
}

/// The rows of a table by one of its indexes. Checks their number.
fn rows<T>(
    db: &Database,
    table: &Table,
    index: WhichIndex,
    about: &str,
    row_of: impl Fn(RowView<'_>) -> Result<T>,
) -> Vec<T> {
    let (mut tx, mut rows) = (db.begin().unwrap(), Vec::new());
    tx.scan(table, &Scan { index, ..Scan::all() }, |_, row| {
        rows.push(row_of(row)?);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    // The log may have stopped.
    let _ = tx.abort();
    assert_eq!(
        rows.len() as u64,
        table.rows_estimate(),
        "{about}: rows of {} are counted wrong",
        table.name()
    );
    rows
}
