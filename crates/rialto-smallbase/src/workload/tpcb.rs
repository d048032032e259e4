//! [`Tpcb`]: TPC-B over partitions, as the paper has it (its section 3).
//!
//! A branch lies in a partition with its ten tellers, its accounts and its history. A client draws a branch and a teller of
//! its own node, and in 85 of 100 cases an account of that branch; otherwise the account of a branch at another node. As in
//! the paper a transaction is remote as often as its account is of another branch: this is the worst case of TPC-B.
//!
//! The account is changed and read first, then the history, the teller and the branch, so that the row that most
//! transactions want is locked for the shortest time. Over two nodes both parts run at the same time.
//!
//! Consistency: the deltas of the history of each branch add up to the balance of the branch, and to those of its tellers;
//! all of them, over the cluster, to the balances of all accounts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Result, TableDef, Transaction};
use rialto_cluster::node::{Call, Procedure, ProcedureAction, Procedures};

use super::arguments::{bytes, numbers};
use super::{Audit, Drawn, Place, Told, Workload, each, load_rows, missing};
use crate::spec::{Data, Protocol};

/// Tellers of each branch.
const TELLERS: u32 = 10;
/// The largest amount that a transaction moves, either way.
const DELTA_MAX: i64 = 999_999;
/// The fillers that make records about 100 bytes long, and a history row 50.
const FILLER: usize = 82;
const HISTORY_FILLER: usize = 20;

/// The transaction as a whole, and its parts, for a run without a commit protocol.
const WHOLE: &str = "tpcb";
const ACCOUNT: &str = "tpcb-account";
const REST: &str = "tpcb-rest";

/// The workload.
pub struct Tpcb {
    data: Data,
    whole: Arc<str>,
    account: Arc<str>,
    rest: Arc<str>,
}

impl Tpcb {
    /// With these sizes.
    pub fn new(data: Data) -> Tpcb {
        Tpcb { data, whole: WHOLE.into(), account: ACCOUNT.into(), rest: REST.into() }
    }

    fn has_one_history_row(&self) -> bool {
        self.data.protocol == Protocol::AsPaper
    }
}

/// The arguments, in their order.
struct Movement {
    branch: i32,
    teller: i32,
    account_branch: i32,
    account: i32,
    delta: i64,
    time_us: i64,
}

impl Movement {
    fn read(arguments: &[u8]) -> Result<Movement> {
        let [branch, teller, account_branch, account, delta, time_us] = numbers(arguments)?;
        let [branch, teller, account_branch, account] =
            [branch, teller, account_branch, account].map(|number| number as i32);
        Ok(Movement { branch, teller, account_branch, account, delta, time_us })
    }

    fn bytes(&self) -> Vec<u8> {
        let Movement { branch, teller, account_branch, account, delta, time_us } = self;
        let [branch, teller, account_branch, account] =
            [branch, teller, account_branch, account].map(|number| i64::from(*number));
        bytes([branch, teller, account_branch, account, *delta, *time_us])
    }

    /// Statements (1) and (2): changes the account's balance, and reads it.
    fn change_account(&self, tx: &mut Transaction<'_>) -> Result<Vec<u8>> {
        let table = tx.table("accounts")?;
        let (mut balance, key) = (0, (self.account_branch, self.account));
        let is_there = tx.modify(&table, key, |row| row.add_i64(2, self.delta).map(|now| balance = now))?;
        match is_there {
            true => Ok(balance.to_le_bytes().to_vec()),
            false => Err(missing("accounts", self.account_branch, self.account)),
        }
    }

    /// Statements (5), (3) and (4): the history, the teller and the branch.
    fn change_rest(&self, tx: &mut Transaction<'_>, has_one_history_row: bool) -> Result<Vec<u8>> {
        let history = tx.table("history")?;
        if has_one_history_row {
            let is_there = tx.modify(&history, self.branch, |row| {
                row.set_i32(1, self.teller)?;
                row.set_i32(2, self.account)?;
                row.set_i64(4, self.time_us)?;
                row.add_i64(3, self.delta).map(drop)
            })?;
            if !is_there {
                return Err(missing("history", self.branch, 0));
            }
        } else {
            tx.insert(&history, &self.history_row())?;
        }
        let tellers = tx.table("tellers")?;
        if !tx.modify(&tellers, (self.branch, self.teller), |row| row.add_i64(2, self.delta).map(drop))? {
            return Err(missing("tellers", self.branch, self.teller));
        }
        let branches = tx.table("branches")?;
        if !tx.modify(&branches, self.branch, |row| row.add_i64(1, self.delta).map(drop))? {
            return Err(missing("branches", self.branch, 0));
        }
        Ok(Vec::new())
    }

    fn history_row(&self) -> [Value; 6] {
        [
            Value::Int4(self.branch),
            Value::Int4(self.teller),
            Value::Int4(self.account),
            Value::Int8(self.delta),
            Value::Int8(self.time_us),
            Value::Text("x".repeat(HISTORY_FILLER)),
        ]
    }
}

impl Workload for Tpcb {
    fn kinds(&self) -> &'static [&'static str] {
        &[WHOLE]
    }

    fn procedures(&self) -> Procedures {
        let has_one_history_row = self.has_one_history_row();
        let account =
            || ProcedureAction::writes(|tx, input| Movement::read(input.arguments)?.change_account(tx));
        let rest = || {
            ProcedureAction::writes(move |tx, input| {
                Movement::read(input.arguments)?.change_rest(tx, has_one_history_row)
            })
        };
        Procedures::new()
            .with(Procedure::new(self.whole.clone()).phase([account().by_key(1), rest()]))
            .with(Procedure::new(self.account.clone()).phase([account()]))
            .with(Procedure::new(self.rest.clone()).phase([rest()]))
    }

    fn make(&self, db: &Database) -> Result<()> {
        let int4 = |name: &str| Column::new(name, ColumnType::Int4);
        let int8 = |name: &str| Column::new(name, ColumnType::Int8);
        let filler = || Column::new("filler", ColumnType::Text);
        let mut history = TableDef::new(
            "history",
            vec![int4("bid"), int4("tid"), int4("aid"), int8("delta"), int8("mtime"), filler()],
        );
        if self.has_one_history_row() {
            history = history.with_primary_key(&["bid"]);
        }
        let tables = [
            TableDef::new("branches", vec![int4("bid"), int8("balance"), filler()])
                .with_primary_key(&["bid"]),
            TableDef::new("tellers", vec![int4("bid"), int4("tid"), int8("balance"), filler()])
                .with_primary_key(&["bid", "tid"]),
            TableDef::new("accounts", vec![int4("bid"), int4("aid"), int8("balance"), filler()])
                .with_primary_key(&["bid", "aid"]),
            history,
        ];
        db.transact(|tx| tables.iter().try_for_each(|table| tx.create_table(table).map(drop)))
    }

    fn load(&self, db: &Database, branches: &[i32]) -> Result<()> {
        let text = || Value::Text("a".repeat(FILLER));
        for branch in branches {
            let row =
                |number: u32| [Value::Int4(*branch), Value::Int4(number as i32), Value::Int8(0), text()];
            db.transact(|tx| {
                let (tables, tellers) = (tx.table("branches")?, tx.table("tellers")?);
                tx.insert(&tables, &[Value::Int4(*branch), Value::Int8(0), text()])?;
                if self.has_one_history_row() {
                    let history = tx.table("history")?;
                    let first = Movement {
                        branch: *branch,
                        teller: 0,
                        account_branch: 0,
                        account: 0,
                        delta: 0,
                        time_us: 0,
                    };
                    tx.insert(&history, &first.history_row())?;
                }
                (0..TELLERS).try_for_each(|teller| tx.insert(&tellers, &row(teller)))
            })?;
            load_rows(db, self.data.accounts, |tx, account| {
                let accounts = tx.table("accounts")?;
                tx.insert(&accounts, &row(account))
            })?;
        }
        Ok(())
    }

    fn writes(&self, _kind: usize) -> bool {
        true
    }

    fn run(&self, tx: &mut Transaction<'_>, _kind: usize, arguments: &[u8]) -> Result<()> {
        let movement = Movement::read(arguments)?;
        movement.change_account(tx)?;
        movement.change_rest(tx, self.has_one_history_row()).map(drop)
    }

    fn draw(&self, random: &mut Random, place: &Place<'_>) -> Drawn {
        let (branch, elsewhere) = place.draw(random);
        let movement = Movement {
            branch,
            teller: random.below(u64::from(TELLERS)) as i32,
            account_branch: elsewhere.unwrap_or(branch),
            account: random.below(u64::from(self.data.accounts)) as i32,
            delta: random.below(2 * DELTA_MAX as u64 + 1) as i64 - DELTA_MAX,
            time_us: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64),
        };
        let (own, other) = ([Value::Int4(branch)], [Value::Int4(movement.account_branch)]);
        let arguments = movement.bytes();
        let calls = match (elsewhere, self.data.protocol) {
            (Some(_), Protocol::AsPaper) => vec![
                Call::new(self.account.clone(), arguments.clone()).key(other),
                Call::new(self.rest.clone(), arguments.clone()).key(own),
            ],
            _ => vec![Call::new(self.whole.clone(), arguments.clone()).key(own).key(other)],
        };
        Drawn { calls, arguments, is_remote: elsewhere.is_some(), kind: 0 }
    }

    fn audit(&self, db: &Database, audit: &mut Audit) -> Result<()> {
        // By branch: what the branch, its tellers and its history have.
        let mut branches: BTreeMap<i32, [i64; 3]> = BTreeMap::new();
        let (mut accounts, mut counts) = (0, [0; 4]);
        db.read(|tx| {
            (branches, accounts) = (BTreeMap::new(), 0);
            let of = |nth: usize,
                      column: usize,
                      branches: &mut BTreeMap<i32, [i64; 3]>,
                      row: rialto::row::RowView<'_>| {
                branches.entry(row.get_i32(0)?).or_default()[nth] += row.get_i64(column)?;
                Ok(())
            };
            counts = [
                each(tx, "branches", |row| of(0, 1, &mut branches, row))?,
                each(tx, "tellers", |row| of(1, 2, &mut branches, row))?,
                each(tx, "history", |row| of(2, 3, &mut branches, row))?,
                each(tx, "accounts", |row| row.get_i64(2).map(|balance| accounts += balance))?,
            ];
            Ok(())
        })?;
        for (branch, [own, tellers, history]) in &branches {
            if own != tellers || own != history {
                audit
                    .problems
                    .push(format!("branch {branch} has {own}, its tellers {tellers}, its history {history}"));
            }
            audit.add("balances of branches", *own);
        }
        audit.add("balances of accounts", accounts);
        for (name, count) in ["branches", "tellers", "history", "accounts"].into_iter().zip(counts) {
            audit.add(&format!("rows of {name}"), count);
        }
        Ok(())
    }

    fn problems(&self, audit: &Audit, told: &Told, partitions: u32) -> Vec<String> {
        let mut problems = audit.problems.clone();
        let (branches, accounts) = (audit.sum("balances of branches"), audit.sum("balances of accounts"));
        if branches != accounts {
            problems.push(format!("branches have {branches}, accounts {accounts}"));
        }
        let all_branches = i64::from(self.data.branches) * i64::from(partitions);
        let history = if self.has_one_history_row() { all_branches..=all_branches } else { told.effects(0) };
        for (name, expected) in [
            ("rows of branches", all_branches..=all_branches),
            ("rows of tellers", all_branches * i64::from(TELLERS)..=all_branches * i64::from(TELLERS)),
            ("rows of accounts", {
                let all = all_branches * i64::from(self.data.accounts);
                all..=all
            }),
            ("rows of history", history),
        ] {
            audit.expect(name, expected, &mut problems);
        }
        problems
    }
}
