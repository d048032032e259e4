//! Rust structs as rows: `#[derive(Record)]`, and `Records`, the table by the type of its rows.
//!
//! `cargo run -p rialto --example derive`

use rialto::row::Decimal;
use rialto::{Database, Record, Records};

#[derive(Record, Debug, Clone, PartialEq)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: i64,
    #[record(index)]
    branch: i32,
    #[record(decimal(12, 2))]
    balance: Decimal,
    #[record(unique = "by_email")]
    email: Option<String>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("rialto-derive-{}", std::process::id()));
    let db = Database::open(&directory)?;

    // Creates the table and its two indexes; when they are there, checks that the struct fits them.
    let accounts: Records<Account> = db.records()?;
    println!("{:?} with {:?}", accounts.table(), Account::indexes());

    db.transact(|tx| {
        for (id, owner) in ["ada", "grace", "edsger", "barbara"].iter().enumerate() {
            let balance = "12.50".parse().expect("a decimal");
            let email = Some(format!("{owner}@bank.example"));
            accounts.insert(tx, &Account { id: id as i64, branch: id as i32 % 2, balance, email })?;
        }
        Ok(())
    })?;

    db.transact(|tx| {
        let mut ada = accounts.get(tx, 0)?.expect("inserted above");
        ada.balance = "99.95".parse().expect("a decimal");
        ada.email = None;
        accounts.update(tx, &ada).map(drop)
    })?;

    let of_branch: Vec<Account> =
        db.read(|tx| accounts.rows_by(tx, "accounts_branch_idx", 0)?.collect::<Result<_, _>>())?;
    for account in &of_branch {
        println!("branch 0: {account:?}");
    }
    assert_eq!(of_branch.iter().map(|account| account.id).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(of_branch[0].balance.to_string(), "99.95");

    let twice = Account { id: 9, email: of_branch[1].email.clone(), ..of_branch[1].clone() };
    let refused = db.transact(|tx| accounts.insert(tx, &twice)).expect_err("the address is taken");
    println!("refused: {refused}");

    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
