//! A database inside a program: a table, a transfer between two of its rows, and a transfer that is taken back.
//!
//! `cargo run -p rialto --example embedded`

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Result, Table, TableDef};

const BALANCE: usize = 1;

fn transfer(db: &Database, accounts: &Table, from: i64, to: i64, amount: i64) -> Result<()> {
    db.transact(|tx| {
        for (id, delta) in [(from, -amount), (to, amount)] {
            let mut balance = 0;
            let there = tx.modify(accounts, id, |row| {
                balance = row.add_i64(BALANCE, delta)?;
                Ok(())
            })?;
            if !there {
                return Err(Error::aborted(format!("there is no account {id}")));
            }
            if balance < 0 {
                return Err(Error::aborted(format!("account {id} would be at {balance}")));
            }
        }
        Ok(())
    })
}

fn balances(db: &Database, accounts: &Table) -> Result<(i64, i64)> {
    db.read(|tx| {
        let mut balance = |id: i64| match tx.look(accounts, id, |row| row.get_i64(BALANCE))? {
            Some(balance) => balance,
            None => Err(Error::aborted(format!("there is no account {id}"))),
        };
        Ok((balance(1)?, balance(2)?))
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("rialto-embedded-{}", std::process::id()));
    let db = Database::open(&directory)?;
    println!("opened {}", directory.display());

    let accounts = db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int8), Column::new("balance", ColumnType::Int8)];
        let accounts = tx.create_table(&TableDef::new("accounts", columns).with_primary_key(&["id"]))?;
        tx.insert(&accounts, &[Value::Int8(1), Value::Int8(100)])?;
        tx.insert(&accounts, &[Value::Int8(2), Value::Int8(0)])?;
        Ok(accounts)
    })?;

    transfer(&db, &accounts, 1, 2, 30)?;
    println!("after a transfer of 30: {:?}", balances(&db, &accounts)?);
    assert_eq!(balances(&db, &accounts)?, (70, 30));

    let refused = transfer(&db, &accounts, 2, 1, 50).expect_err("account 2 has only 30");
    println!("a transfer of 50 back is refused: {refused}");
    assert_eq!(balances(&db, &accounts)?, (70, 30), "nothing of it is kept");

    db.close()?;
    let db = Database::open(&directory)?;
    let accounts = db.table("accounts")?;
    println!("after a reopening: {:?}", balances(&db, &accounts)?);
    assert_eq!(balances(&db, &accounts)?, (70, 30));
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
