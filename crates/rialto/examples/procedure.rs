//! A registered procedure: a flow of two phases, called by name with arguments.
//!
//! `cargo run -p rialto --example procedure`

use rialto::row::{ColumnType, Value};
use rialto::{Action, Database, Error, Flow, Procedure, Record};

#[derive(Record)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: i32,
    balance: i64,
}

#[derive(Record)]
#[record(table = "branches")]
struct Branch {
    #[record(key)]
    id: i32,
    balance: i64,
}

#[derive(Record)]
#[record(table = "history")]
struct Payment {
    account: i32,
    delta: i64,
    balance: i64,
}

const BALANCE: usize = 1;
const ACCOUNTS_PER_BRANCH: i32 = 100;

/// `pay(account, delta)`: the first phase changes the account and its branch, which are different rows. The second
/// phase inserts the account's new balance into the history. The call returns the new balance.
fn pay() -> Procedure {
    let account = Action::exclusive("accounts", |tx, arguments, outputs| {
        let (id, delta) = (arguments.get::<i32>(0)?, arguments.get::<i64>(1)?);
        let mut balance = 0;
        let there = tx.modify(arguments.table()?, id, |row| {
            balance = row.add_i64(BALANCE, delta)?;
            Ok(())
        })?;
        outputs.push(balance);
        if there { Ok(()) } else { Err(Error::aborted(format!("there is no account {id}"))) }
    })
    .by_argument(0);

    let branch = Action::exclusive("branches", |tx, arguments, _| {
        let (id, delta) = (arguments.get::<i32>(0)? / ACCOUNTS_PER_BRANCH, arguments.get::<i64>(1)?);
        tx.modify(arguments.table()?, id, |row| row.add_i64(BALANCE, delta).map(drop)).map(drop)
    })
    .by(|arguments| match arguments[0] {
        Value::Int4(account) => Value::Int4(account / ACCOUNTS_PER_BRANCH),
        _ => Value::Null,
    });

    let history = Action::exclusive("history", |tx, arguments, outputs| {
        let balance = outputs.get::<i64>(0).expect("the account's action gave it");
        let (account, delta) = (arguments.get::<i32>(0)?, arguments.get::<i64>(1)?);
        tx.insert(arguments.table()?, &[account.into(), delta.into(), balance.into()])
    })
    .by_argument(0);

    let flow = Flow::new().phase([account, branch]).phase([history]);
    Procedure::new("pay", [ColumnType::Int4, ColumnType::Int8], flow)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("rialto-procedure-{}", std::process::id()));
    let db = Database::open(&directory)?;
    let (accounts, branches) = (db.records::<Account>()?, db.records::<Branch>()?);
    let history = db.records::<Payment>()?;
    db.transact(|tx| {
        (0..2).try_for_each(|id| branches.insert(tx, &Branch { id, balance: 0 }))?;
        (0..200).try_for_each(|id| accounts.insert(tx, &Account { id, balance: 0 }))
    })?;

    db.register(pay())?;
    println!("pay(142, 50) gives {:?}", db.call("pay", &[Value::Int4(142), Value::Int8(50)])?);
    let outputs = db.call("pay", &[Value::Int4(142), Value::Int8(-20)])?;
    println!("pay(142, -20) gives {outputs:?}");
    assert_eq!(outputs, [Value::Int8(30)]);

    let (outputs, ticket) = db.submit_call("pay", &[Value::Int4(7), Value::Int8(1)])?;
    println!("submitted pay(7, 1) gives {outputs:?}; durable: {:?}", ticket.wait());

    for (name, arguments) in
        [("pay", vec![Value::Int4(7)]), ("pays", vec![]), ("pay", vec![999.into(), 1i64.into()])]
    {
        let refused = db.call(name, &arguments).expect_err("a wrong call");
        println!("refused: {refused}");
    }
    let branch = db.read(|tx| branches.get(tx, 1))?.expect("inserted above");
    assert_eq!(branch.balance, 30);
    assert_eq!(db.read(|tx| tx.count(history.table()))?, 3);
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
