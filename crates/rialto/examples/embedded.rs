//! A database inside a program: open, create a table, change rows in transactions, scan.
//!
//! `cargo run -p rialto --example embedded [DIR]`

use std::ops::ControlFlow;
use std::path::PathBuf;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Scan, TableDef};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BALANCE: usize = 1;

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).map_or_else(|| "./rialto-data/embedded".into(), PathBuf::from);
    let db = Database::open(&directory)?;

    let accounts = match db.table("accounts") {
        Ok(table) => table,
        Err(Error::NoSuchTable { .. }) => {
            let columns =
                vec![Column::new("owner", ColumnType::Text), Column::new("balance", ColumnType::Int8)];
            let definition = TableDef::new("accounts", columns).with_primary_key(&["owner"]);
            // Creating the table and filling it is one transaction, like any other.
            db.transact(|tx| {
                let accounts = tx.create_table(&definition)?;
                for (owner, balance) in [("ann", 100), ("bob", 20), ("cyd", 0)] {
                    tx.insert(&accounts, &[Value::Text(owner.into()), Value::Int8(balance)])?;
                }
                Ok(accounts)
            })?
        }
        Err(error) => return Err(error.into()),
    };

    // A body may run several times, after deadlocks; when `transact` returns, its outcome is on disk.
    let transfer = |from: &str, to: &str, amount: i64| {
        db.transact(|tx| {
            let mut left = 0;
            tx.modify(&accounts, from, |row| {
                left = row.add_i64(BALANCE, -amount)?;
                Ok(())
            })?;
            if left < 0 {
                return Err(Error::aborted(format!("{from} has {} only", left + amount)));
            }
            tx.modify(&accounts, to, |row| row.add_i64(BALANCE, amount).map(drop))?;
            Ok(())
        })
    };
    transfer("ann", "cyd", 30)?;
    // Nothing of a transaction that fails is kept.
    let refused = transfer("bob", "ann", 1_000_000);
    println!("{}", refused.expect_err("bob has not so much"));

    db.read(|tx| {
        tx.scan(&accounts, &Scan::all(), |_, row| {
            println!("{:>5} {:>6}", row.get_str(0)?, row.get_i64(BALANCE)?);
            Ok(ControlFlow::Continue(()))
        })
    })?;
    // And back, so that this can be run again and again.
    transfer("cyd", "ann", 30)?;
    db.close()?;
    println!("the data is in {}", directory.display());
    Ok(())
}
