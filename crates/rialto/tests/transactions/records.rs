//! Typed tables.

use std::ops::ControlFlow;
use std::sync::Barrier;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Database, Error, KeyBound, Options, Record, Records, Scan, TableDef, Transaction};

#[derive(Record, Debug, Clone, PartialEq)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: i64,
    #[record(index)]
    branch: i32,
    balance: i64,
    #[record(unique = "by_email")]
    email: Option<String>,
}

#[derive(Record, Debug, Clone, PartialEq)]
struct Line {
    text: String,
}

fn open(disk: std::sync::Arc<MemoryDisk>) -> Database {
    Database::open_on(disk, Options { memory_bytes: 64 << 20, ..Options::default() }).unwrap()
}

fn database() -> Database {
    open(MemoryDisk::new())
}

fn account(id: i64) -> Account {
    Account { id, branch: id as i32 % 3, balance: 10 * id, email: Some(format!("a{id}@bank")) }
}

fn ids(tx: &mut Transaction, accounts: &Records<Account>, scan: &Scan) -> Vec<i64> {
    let mut ids = Vec::new();
    accounts
        .scan(tx, scan, |account| {
            ids.push(account.id);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    ids
}

#[test]
fn records_are_stored_found_changed_and_deleted() {
    let db = database();
    let accounts = db.records::<Account>().unwrap();
    db.transact(|tx| (0..10).try_for_each(|id| accounts.insert(tx, &account(id)))).unwrap();
    db.transact(|tx| {
        assert_eq!(accounts.get(tx, 3)?, Some(account(3)));
        assert_eq!(accounts.get(tx, 10)?, None);
        // A fixed column; a variable and an indexed one; nothing.
        let richer = Account { balance: 1, ..account(3) };
        let moved = Account { branch: 7, email: None, ..account(4) };
        assert!(
            accounts.update(tx, &richer)?
                && accounts.update(tx, &moved)?
                && accounts.update(tx, &account(5))?
        );
        assert!(!accounts.update(tx, &account(10))?);
        assert!(accounts.delete(tx, 6)? && !accounts.delete(tx, 6)?);
        assert_eq!(accounts.get(tx, 3)?, Some(richer));
        assert_eq!(accounts.get(tx, 4)?, Some(moved));
        Ok(())
    })
    .unwrap();
    db.read(|tx| {
        assert_eq!(ids(tx, &accounts, &Scan::all()), [0, 1, 2, 3, 4, 5, 7, 8, 9]);
        let branch = accounts.index("accounts_branch_idx")?;
        let of_branch = |branch_id: i32| Scan::prefix(branch, vec![Value::Int4(branch_id)]);
        assert_eq!(ids(tx, &accounts, &of_branch(1)), [1, 7]);
        assert_eq!(ids(tx, &accounts, &of_branch(7)), [4]);
        let upper = Scan { lower: KeyBound::Included(vec![Value::Int8(8)]), ..Scan::all() };
        assert_eq!(ids(tx, &accounts, &upper), [8, 9]);
        assert!(accounts.get(tx, 3)?.is_some_and(|account| account.balance == 1));
        Ok(())
    })
    .unwrap();
    assert_eq!(accounts.index("absent"), Err(Error::NoSuchIndex { index: "absent".to_owned() }));
}

#[test]
fn a_scan_ends_when_its_visitor_says_so() {
    let db = database();
    let accounts = db.records::<Account>().unwrap();
    db.transact(|tx| (0..10).try_for_each(|id| accounts.insert(tx, &account(id)))).unwrap();
    let mut seen = 0;
    db.read(|tx| {
        accounts.scan(tx, &Scan::all(), |account| {
            seen = account.id;
            Ok(if account.id == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    })
    .unwrap();
    assert_eq!(seen, 4);
    let failed = db.read(|tx| accounts.scan(tx, &Scan::all(), |_| Err(Error::aborted("enough"))));
    assert_eq!(failed, Err(Error::aborted("enough")));
}

#[test]
fn an_update_that_a_unique_index_forbids_changes_nothing() {
    let db = database();
    let accounts = db.records::<Account>().unwrap();
    db.transact(|tx| (0..2).try_for_each(|id| accounts.insert(tx, &account(id)))).unwrap();
    db.transact(|tx| {
        let taken = Account { balance: -1, email: account(0).email, ..account(1) };
        assert!(matches!(accounts.update(tx, &taken), Err(Error::DuplicateKey { .. })));
        assert!(matches!(accounts.insert(tx, &account(1)), Err(Error::DuplicateKey { .. })));
        assert_eq!(accounts.get(tx, 1)?, Some(account(1)));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_table_that_is_there_is_checked() {
    let db = database();
    let columns = || {
        vec![
            Column::new("id", ColumnType::Int8),
            Column::new("branch", ColumnType::Int4),
            Column::new("balance", ColumnType::Int8),
            Column::nullable("email", ColumnType::Text),
        ]
    };
    let mismatch = || match db.records::<Account>() {
        Err(error @ Error::SchemaMismatch { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    db.transact(|tx| tx.create_table(&TableDef::new("accounts", columns()))).unwrap();
    assert!(mismatch().contains("the primary key of the table is none"));
    db.transact(|tx| tx.add_primary_key("accounts", &["id"])).unwrap();
    assert_eq!(
        mismatch(),
        "record \"Account\" does not fit table \"accounts\": the record has index \"accounts_branch_idx\" on (branch), \
         but that of the table is none: create it with Transaction::create_index"
    );
    db.transact(|tx| {
        tx.create_index("accounts", "accounts_branch_idx", &["branch"], false)?;
        tx.create_index("accounts", "by_email", &["email"], false)
    })
    .unwrap();
    assert!(mismatch().contains("\"by_email\" on (email) unique, but that of the table is (email)"));
    db.transact(|tx| {
        tx.drop_index("by_email")?;
        tx.create_index("accounts", "by_email", &["email"], true)?;
        tx.create_index("accounts", "one_more", &["balance"], false)
    })
    .unwrap();
    db.records::<Account>().unwrap();
    db.transact(|tx| {
        tx.drop_table("accounts")?;
        let mut fewer = columns();
        fewer.pop();
        tx.create_table(&TableDef::new("accounts", fewer))
    })
    .unwrap();
    assert!(mismatch().contains("column 4 of the table is none"));
}

#[test]
fn many_ask_at_once_and_one_creates() {
    let db = database();
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for id in 0..4 {
            let (db, start) = (&db, &start);
            scope.spawn(move || {
                start.wait();
                let accounts = db.records::<Account>().unwrap();
                db.transact(|tx| accounts.insert(tx, &account(id))).unwrap();
            });
        }
    });
    let accounts = db.records::<Account>().unwrap();
    assert_eq!(db.read(|tx| Ok(ids(tx, &accounts, &Scan::all()))), Ok(vec![0, 1, 2, 3]));
}

#[test]
fn records_without_a_key_are_appended_and_scanned() {
    let db = database();
    let lines = db.records::<Line>().unwrap();
    let line = |text: &str| Line { text: text.to_owned() };
    db.transact(|tx| {
        lines.insert(tx, &line("first"))?;
        lines.insert(tx, &line("second"))?;
        assert!(matches!(lines.update(tx, &line("third")), Err(Error::Unsupported { .. })));
        Ok(())
    })
    .unwrap();
    let mut texts = Vec::new();
    db.read(|tx| {
        lines.scan(tx, &Scan::all(), |line| {
            texts.push(line.text);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    assert_eq!(texts, ["first", "second"]);
    let mut keys = Vec::new();
    db.read(|tx| {
        tx.scan(lines.table(), &Scan::all(), |key, _| {
            keys.push(key.clone());
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    db.transact(|tx| {
        assert!(tx.delete_at(lines.table(), &keys[0])?);
        Ok(())
    })
    .unwrap();
    assert_eq!(lines.table().schema().key_shape(WhichIndex::Primary).columns().len(), 0);
}

#[test]
fn records_are_there_after_a_reopening() {
    let disk = MemoryDisk::new();
    let db = open(disk.clone());
    let accounts = db.records::<Account>().unwrap();
    db.transact(|tx| (0..3).try_for_each(|id| accounts.insert(tx, &account(id)))).unwrap();
    let changed = Account { balance: 77, branch: 9, ..account(1) };
    db.transact(|tx| accounts.update(tx, &changed)).unwrap();
    db.close().unwrap();
    let db = open(disk);
    let accounts = db.records::<Account>().unwrap();
    db.read(|tx| {
        assert_eq!(accounts.get(tx, 1)?, Some(changed.clone()));
        let branch = accounts.index("accounts_branch_idx")?;
        assert_eq!(ids(tx, &accounts, &Scan::prefix(branch, vec![Value::Int4(9)])), [1]);
        Ok(())
    })
    .unwrap();
}
