//! Scans as iterators (`Transaction::rows`, `rows_by`) and lookups by an index's name (`get_by`): they give what scans give, and keep from
//! other transactions what scans keep.

use std::ops::ControlFlow;

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Row, Value, WhichIndex};
use rialto::{
    Database, Direction, Engine, Error, KeyBound, LockPolicy, Options, Record, Result, Scan, ScanMode, Table,
    TableDef, Transaction, TxOptions,
};

use crate::common::seeds::for_a_while;

/// More than an iterator reads ahead at most, several times.
const ROWS: i32 = 600;

fn open(engine: Engine, has_key: bool) -> (Database, Table) {
    let options = Options { memory_bytes: 64 << 20, engine, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("tens", ColumnType::Int4),
        Column::nullable("name", ColumnType::Text),
    ];
    let mut def = TableDef::new("things", columns).with_index("by_tens", &["tens"], false).with_index(
        "by_name",
        &["name"],
        true,
    );
    if has_key {
        def = def.with_primary_key(&["id"]);
    }
    let table = db.transact(|tx| tx.create_table(&def)).unwrap();
    (db, table)
}

fn thing(id: i32) -> [Value; 3] {
    let name = if id % 3 == 0 { Value::Null } else { Value::Text(format!("name {id}")) };
    [Value::Int4(id), Value::Int4(id / 10), name]
}

fn fill(db: &Database, table: &Table) {
    db.transact(|tx| (0..ROWS).try_for_each(|id| tx.insert(table, &thing(id)))).unwrap();
}

fn scanned(tx: &mut Transaction, table: &Table, scan: &Scan) -> Result<Vec<Vec<Value>>> {
    let mut rows = Vec::new();
    tx.scan(table, scan, |_, row| {
        rows.push(row.values());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}

fn iterated(tx: &mut Transaction, table: &Table, scan: &Scan) -> Result<Vec<Vec<Value>>> {
    tx.rows(table, scan)?.map(|row| Ok(row?.view().values())).collect()
}

fn ids(rows: impl Iterator<Item = Result<Row>>) -> Result<Vec<i32>> {
    rows.map(|row| row?.read("id")).collect()
}

fn drawn_bound(random: &mut Random, index: WhichIndex) -> KeyBound {
    let value = match index {
        WhichIndex::Secondary(0) => Value::Int4(random.below(ROWS as u64 / 10) as i32),
        WhichIndex::Secondary(_) if random.below(4) == 0 => Value::Null,
        WhichIndex::Secondary(_) => Value::Text(format!("name {}", random.below(ROWS as u64))),
        WhichIndex::Primary => Value::Int4(random.below(ROWS as u64) as i32),
    };
    match random.below(3) {
        0 => KeyBound::Unbounded,
        1 => KeyBound::Included(vec![value]),
        _ => KeyBound::Excluded(vec![value]),
    }
}

fn drawn_scan(random: &mut Random) -> Scan {
    let index =
        [WhichIndex::Primary, WhichIndex::Secondary(0), WhichIndex::Secondary(1)][random.below(3) as usize];
    Scan {
        index,
        lower: drawn_bound(random, index),
        upper: drawn_bound(random, index),
        direction: if random.below(2) == 0 { Direction::Forward } else { Direction::Backward },
        mode: if random.below(4) == 0 { ScanMode::Update } else { ScanMode::Share },
        limit: (random.below(2) == 0).then(|| random.below(ROWS as u64 / 2)),
    }
}

/// Of random ranges beside the transaction's own changes: the rows of a scan, in its order, none left out and none twice.
#[test]
fn an_iterator_gives_the_rows_of_its_scan() {
    let dbs = Engine::ALL.map(|engine| {
        let (db, table) = open(engine, true);
        fill(&db, &table);
        (db, table)
    });
    for_a_while(|seed| {
        let mut random = Random::new(seed);
        let (db, table) = &dbs[random.below(dbs.len() as u64) as usize];
        let read_only = random.below(3) == 0;
        let options = TxOptions { read_only, ..TxOptions::default() };
        let mut tx = db.begin_with(&options).unwrap();
        if !read_only {
            for _ in 0..random.below(20) {
                let id = random.below(2 * ROWS as u64) as i32;
                match random.below(3) {
                    0 => drop(tx.delete(table, id).unwrap()),
                    1 => drop(tx.update(table, id, &[(1, Value::Int4(id % 7))]).unwrap()),
                    _ => drop(tx.insert(table, &thing(id))),
                }
            }
        }
        let mut scan = drawn_scan(&mut random);
        if read_only {
            scan.mode = ScanMode::Share;
        }
        let (expected, found) = (scanned(&mut tx, table, &scan), iterated(&mut tx, table, &scan));
        assert_eq!(found, expected, "{scan:?}, RIALTO_SEED={seed}");
        tx.abort().unwrap();
    });
}

#[test]
fn a_table_without_a_primary_key_is_iterated_in_the_order_of_its_row_numbers() {
    let (db, table) = open(Engine::default(), false);
    fill(&db, &table);
    db.transact(|tx| {
        assert_eq!(ids(tx.rows(&table, &Scan::all())?)?, (0..ROWS).collect::<Vec<_>>());
        assert_eq!(ids(tx.rows_by(&table, "by_tens", 7)?)?, (70..80).collect::<Vec<_>>());
        Ok(())
    })
    .unwrap();
}

#[test]
fn rows_are_found_by_the_name_of_an_index() {
    for engine in Engine::ALL {
        let (db, table) = open(engine, true);
        fill(&db, &table);
        for read_only in [true, false] {
            let options = TxOptions { read_only, ..TxOptions::default() };
            db.transact_with(&options, |tx| {
                assert_eq!(ids(tx.rows_by(&table, "by_tens", 3)?)?, (30..40).collect::<Vec<_>>());
                assert_eq!(ids(tx.rows_by(&table, "by_tens", ROWS)?)?, []);
                assert_eq!(ids(tx.rows_by(&table, WhichIndex::Secondary(0), ())?)?.len(), ROWS as usize);
                assert_eq!(ids(tx.rows_by(&table, "things_pkey", 5)?)?, [5]);
                // NULL is no name: its rows are all found, and each name has one row.
                assert_eq!(ids(tx.rows_by(&table, "by_name", None::<&str>)?)?.len(), ROWS as usize / 3);
                assert_eq!(tx.get_by(&table, "by_name", "name 4")?.unwrap().read::<i32>("id")?, 4);
                assert!(tx.get_by(&table, "by_name", "name 3")?.is_none());
                assert_eq!(tx.get_by(&table, "things_pkey", 8)?.unwrap().read::<i32>("tens")?, 0);
                Ok(())
            })
            .unwrap();
        }
    }
}

#[test]
fn an_index_that_is_not_there_or_not_unique_is_an_error_with_its_name() {
    let (db, table) = open(Engine::default(), true);
    let told = |error: Error| error.to_string();
    let found = db.transact(|tx| tx.get_by(&table, "by_colour", 1)).unwrap_err();
    assert!(matches!(&found, Error::NoSuchIndex { index } if index == "by_colour"), "{found}");
    let found = db.transact(|tx| tx.rows_by(&table, "by_size", 1).map(drop)).unwrap_err();
    assert!(told(found).contains("by_size"));
    let found = told(db.transact(|tx| tx.get_by(&table, "by_tens", 1)).unwrap_err());
    assert!(found.contains("\"by_tens\"") && found.contains("rows_by"), "{found}");
    let found = db.transact(|tx| tx.rows_by(&table, "by_tens", "one").map(drop)).unwrap_err();
    assert!(told(found).contains("tens"));
}

/// A name is looked up in each call, so it means the same index after another one was dropped.
#[test]
fn a_name_finds_its_index_after_another_one_was_dropped() {
    let (db, table) = open(Engine::default(), true);
    fill(&db, &table);
    db.transact(|tx| tx.drop_index("by_tens")).unwrap();
    let found = db.transact(|tx| tx.get_by(&table, "by_name", "name 7")).unwrap();
    assert_eq!(found.unwrap().read::<i32>("id"), Ok(7));
}

/// Serializability: no row comes into what was read, neither between two rows nor between two parts that were read ahead.
#[test]
fn what_was_read_is_locked_against_new_rows_and_changes() {
    for engine in Engine::ALL {
        let (db, table) = open(engine, true);
        db.transact(|tx| (0..ROWS).step_by(2).try_for_each(|id| tx.insert(&table, &thing(id)))).unwrap();
        let refusing = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        let mut reader = db.begin().unwrap();
        let scan = Scan { upper: KeyBound::Included(vec![Value::Int4(400)]), ..Scan::all() };
        let read = iterated(&mut reader, &table, &scan).unwrap();
        assert_eq!(read.len(), 201);
        for id in (1..400).step_by(2) {
            let told = db.transact_with(&refusing, |tx| tx.insert(&table, &thing(id)));
            assert!(matches!(told, Err(Error::WouldWait { .. })), "{engine}: {id} came into it: {told:?}");
        }
        for id in [0, 4, 6, 128, 400] {
            let told = db.transact_with(&refusing, |tx| tx.delete(&table, id));
            assert!(matches!(told, Err(Error::WouldWait { .. })), "{engine}: {id} was deleted: {told:?}");
        }
        // Behind the range nothing is locked.
        db.transact_with(&refusing, |tx| tx.insert(&table, &thing(ROWS + 1))).unwrap();
        assert_eq!(iterated(&mut reader, &table, &scan).unwrap(), read);
        reader.commit().unwrap();
    }
}

/// An iterator that is dropped has read ahead a little, and no more.
#[test]
fn what_an_iterator_has_not_reached_is_free() {
    let (db, table) = open(Engine::default(), true);
    fill(&db, &table);
    let refusing = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    let mut reader = db.begin().unwrap();
    let first = Scan { lower: KeyBound::Included(vec![Value::Int4(10)]), ..Scan::all() };
    let found = reader.rows(&table, &first).unwrap().next().unwrap().unwrap();
    assert_eq!(found.read::<i32>("id"), Ok(10));
    assert!(db.transact_with(&refusing, |tx| tx.delete(&table, 10)).is_err());
    assert!(db.transact_with(&refusing, |tx| tx.delete(&table, 100)).unwrap());
    reader.commit().unwrap();
}

/// A scan without bounds locks the table once, not its rows, however it is read.
#[test]
fn an_iterator_over_all_rows_locks_the_table() {
    let (db, table) = open(Engine::default(), true);
    fill(&db, &table);
    let before = db.metrics().locks.row;
    db.transact(|tx| ids(tx.rows(&table, &Scan::all())?)).unwrap();
    assert_eq!(db.metrics().locks.row, before);
}

/// The count of rows at which a scan asks for the table goes on from one part that is read ahead to the next.
#[test]
fn an_iterator_escalates_as_a_scan_does() {
    let (db, table) = open(Engine::default(), true);
    let many = 12_000;
    db.transact(|tx| (0..many).try_for_each(|id| tx.insert(&table, &thing(id)))).unwrap();
    let but_one = Scan { lower: KeyBound::Included(vec![Value::Int4(1)]), ..Scan::all() };
    let before = db.metrics().locks.row;
    let found = db.transact(|tx| ids(tx.rows(&table, &but_one)?)).unwrap();
    assert_eq!(found.len() as i32, many - 1);
    let locked = db.metrics().locks.row - before;
    assert!((4_096..5_000).contains(&locked), "{locked} rows were locked");
}

#[test]
fn an_iterator_ends_after_its_first_error() {
    let (db, table) = open(Engine::default(), true);
    fill(&db, &table);
    let mut holder = db.begin().unwrap();
    holder.delete(&table, 50).unwrap();
    let refusing = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    let mut reader = db.begin_with(&refusing).unwrap();
    let but_one = Scan { lower: KeyBound::Included(vec![Value::Int4(1)]), ..Scan::all() };
    let mut rows = reader.rows(&table, &but_one).unwrap();
    let error = rows.find_map(Result::err).expect("row 50 is locked");
    assert!(matches!(error, Error::WouldWait { .. }), "{error}");
    assert!(rows.next().is_none() && rows.next().is_none());
}

#[derive(Record, Debug, Clone, PartialEq)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: i64,
    #[record(index)]
    branch: i32,
    #[record(unique = "by_email")]
    email: Option<String>,
}

#[test]
fn records_are_iterated_and_found_by_the_names_of_indexes() {
    let db = Database::open_on(MemoryDisk::new(), Options::default()).unwrap();
    let accounts = db.records::<Account>().unwrap();
    let account = |id: i64| Account { id, branch: id as i32 % 3, email: Some(format!("{id}@bank.example")) };
    db.transact(|tx| (0..50).try_for_each(|id| accounts.insert(tx, &account(id)))).unwrap();
    db.read(|tx| {
        let of_branch: Vec<Account> =
            accounts.rows_by(tx, "accounts_branch_idx", 1)?.collect::<Result<_>>()?;
        assert_eq!(of_branch, (0..50).filter(|id| id % 3 == 1).map(account).collect::<Vec<_>>());
        let all = accounts.rows(tx, &Scan::all())?.collect::<Result<Vec<_>>>()?;
        assert_eq!(all, (0..50).map(account).collect::<Vec<_>>());
        assert_eq!(accounts.get_by(tx, "by_email", "7@bank.example")?, Some(account(7)));
        assert_eq!(accounts.get_by(tx, "by_email", "7@bank")?, None);
        Ok(())
    })
    .unwrap();
    // The table is the one that the derived definition says.
    let def = TableDef::of::<Account>();
    assert_eq!((def.name.as_str(), def.primary_key), ("accounts", Some(vec!["id".to_owned()])));
    let indexes: Vec<_> = def.indexes.iter().map(|index| (index.name.as_str(), index.unique)).collect();
    assert_eq!(indexes, [("accounts_branch_idx", false), ("by_email", true)]);
}
