//! One row by a unique index (`Transaction::look_by`): what it finds, and what it keeps from other transactions.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Database, Engine, Error, Executors, Flow, LockPolicy, Lsn, Options, Procedure, Result, Scan,
    ScanMode, Table, TableDef, Transaction, TxOptions,
};

const BY_CODE: WhichIndex = WhichIndex::Secondary(0);
const BY_NAME: WhichIndex = WhichIndex::Secondary(1);
const BY_SUM: WhichIndex = WhichIndex::Secondary(2);

fn open(engine: Engine) -> (Database, Table) {
    open_with(Options { memory_bytes: 64 << 20, engine, ..Options::default() })
}

fn open_with(options: Options) -> (Database, Table) {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = db.transact(|tx| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("code", ColumnType::Text),
            Column::nullable("name", ColumnType::Text),
            Column::new("sum", ColumnType::Int8),
        ];
        let table = tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"]))?;
        tx.create_index("things", "by_code", &["code"], true)?;
        tx.create_index("things", "by_name", &["name"], true)?;
        tx.create_index("things", "by_sum", &["sum"], false)?;
        Ok(table)
    });
    (db, table.unwrap())
}

fn row(id: i32, code: &str, name: Option<&str>, sum: i64) -> [Value; 4] {
    let name = name.map_or(Value::Null, |name| Value::Text(name.to_owned()));
    [Value::Int4(id), Value::Text(code.to_owned()), name, Value::Int8(sum)]
}

fn id_of(tx: &mut Transaction, table: &Table, code: &str) -> Result<Option<i32>> {
    tx.look_by(table, BY_CODE, code, ScanMode::Share, |row| row.get_i32(0))?.transpose()
}

#[test]
fn a_row_is_found_by_its_key_as_the_transaction_sees_it() {
    for engine in Engine::ALL {
        let (db, table) = open(engine);
        db.transact(|tx| {
            tx.insert(&table, &row(1, "one", Some("first"), 5))?;
            tx.insert(&table, &row(2, "two", None, 5))
        })
        .unwrap();
        for read_only in [true, false] {
            let options = TxOptions { read_only, ..TxOptions::default() };
            db.transact_with(&options, |tx| {
                assert_eq!(id_of(tx, &table, "one")?, Some(1));
                assert_eq!(id_of(tx, &table, "two")?, Some(2));
                assert_eq!(id_of(tx, &table, "three")?, None);
                assert_eq!(id_of(tx, &table, "on")?, None, "the beginning of a key is none");
                let named = tx.look_by(&table, BY_NAME, "first", ScanMode::Share, |row| row.get_i32(0))?;
                assert_eq!(named.transpose()?, Some(1));
                let by_id =
                    tx.look_by(&table, WhichIndex::Primary, 2, ScanMode::Share, |row| row.get_i64(3))?;
                assert_eq!(by_id.transpose()?, Some(5));
                Ok(())
            })
            .unwrap();
        }
        // Its own changes, and none of them once it is rolled back.
        let mut tx = db.begin().unwrap();
        tx.update(&table, 1, &[(1, Value::Text("uno".to_owned()))]).unwrap();
        tx.insert(&table, &row(3, "one", None, 7)).unwrap();
        assert!(tx.delete(&table, 2).unwrap());
        assert_eq!(id_of(&mut tx, &table, "uno"), Ok(Some(1)));
        assert_eq!(id_of(&mut tx, &table, "one"), Ok(Some(3)));
        assert_eq!(id_of(&mut tx, &table, "two"), Ok(None));
        tx.abort().unwrap();
        let found = |code: &str| db.transact(|tx| id_of(tx, &table, code)).unwrap();
        assert_eq!((found("one"), found("uno"), found("two")), (Some(1), None, Some(2)));
        // Requests that are refused.
        let refused =
            db.transact(|tx| tx.look_by(&table, BY_SUM, 5i64, ScanMode::Share, |_| ())).unwrap_err();
        assert!(
            matches!(&refused, Error::Unsupported { what } if what.contains("by_sum") && what.contains("rows_by")),
            "{refused}"
        );
        let refused = db.transact(|tx| tx.look_by(&table, BY_CODE, ("one", 2), ScanMode::Share, |_| ()));
        assert!(matches!(refused, Err(Error::KeyColumns { .. })), "{refused:?}");
        let read_only = db.read(|tx| tx.look_by(&table, BY_CODE, "one", ScanMode::Update, |_| ()));
        assert_eq!(read_only, Err(Error::ReadOnly));
    }
}

#[test]
fn what_was_found_and_what_was_not_stays_so_until_the_end() {
    for engine in Engine::ALL {
        let (db, table) = open(engine);
        db.transact(|tx| tx.insert(&table, &row(1, "one", None, 5))).unwrap();
        let impatient = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        let other = |work: &mut dyn FnMut(&mut Transaction) -> Result<()>| {
            let mut tx = db.begin_with(&impatient).unwrap();
            let outcome = work(&mut tx);
            tx.abort().unwrap();
            match outcome {
                Ok(()) => true,
                Err(Error::WouldWait { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        };
        let mut change = |tx: &mut Transaction| tx.update(&table, 1, &[(3, Value::Int8(6))]).map(drop);
        let mut rename =
            |tx: &mut Transaction| tx.update(&table, 1, &[(1, Value::Text("uno".to_owned()))]).map(drop);
        let mut delete = |tx: &mut Transaction| tx.delete(&table, 1).map(drop);
        let mut look = |tx: &mut Transaction| id_of(tx, &table, "one").map(drop);
        let mut insert = |tx: &mut Transaction| tx.insert(&table, &row(2, "two", None, 1));
        let mut elsewhere = |tx: &mut Transaction| tx.insert(&table, &row(3, "zzz", None, 1));

        let mut reader = db.begin().unwrap();
        assert_eq!(id_of(&mut reader, &table, "one"), Ok(Some(1)));
        assert!(!other(&mut change) && !other(&mut rename) && !other(&mut delete), "{engine}: it is read");
        assert!(other(&mut look) && other(&mut insert), "{engine}: others may read it, and insert");
        assert_eq!(id_of(&mut reader, &table, "two"), Ok(None));
        assert!(!other(&mut insert), "{engine}: its absence is read");
        assert!(other(&mut elsewhere), "{engine}: that of others is not");
        reader.commit().unwrap();
        assert!(other(&mut change) && other(&mut insert));

        let mut writer = db.begin().unwrap();
        let found = writer.look_by(&table, BY_CODE, "one", ScanMode::Update, |row| row.get_i32(0)).unwrap();
        assert_eq!(found, Some(Ok(1)));
        assert!(!other(&mut look), "{engine}: it is locked for a change");
        writer.commit().unwrap();
        assert!(other(&mut look));
    }
}

/// Pairs of codes, of which at most one may exist; and while it does, its sum may not fall below zero. Every
/// transaction keeps to that if it runs alone. Between its reads and its writes there is a moment.
struct Pairs<'a> {
    table: &'a Table,
    next_id: &'a AtomicU64,
}

const PAIRS: u64 = 3;

impl Pairs<'_> {
    fn code(pair: u64, of: u64) -> String {
        format!("code-{pair}-{of}")
    }

    fn run(&self, tx: &mut Transaction, random: &mut Random) -> Result<()> {
        let pair = random.below(PAIRS);
        let codes = [0, 1].map(|of| Pairs::code(pair, of));
        let mode = if random.chance(1, 2) { ScanMode::Share } else { ScanMode::Update };
        let mut found = None;
        for code in &codes {
            let seen = tx.look_by(self.table, BY_CODE, &**code, mode, |row| {
                Ok::<_, Error>((row.get_i32(0)?, row.get_i64(3)?, row.get_str(1)? == code))
            })?;
            if let Some((id, sum, is_it)) = seen.transpose()? {
                assert!(is_it, "the row of another code was found by {code}");
                assert!(found.is_none(), "both of pair {pair} are there");
                assert!(sum >= 0, "the sum of {code} is {sum}");
                found = Some((id, sum));
            }
        }
        std::thread::yield_now();
        match found {
            None => {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed) as i32;
                tx.insert(self.table, &row(id, &codes[random.below(2) as usize], None, 3))
            }
            Some((id, 0)) if random.chance(1, 2) => tx.delete(self.table, id).map(drop),
            // To the other code of the pair, with a new sum.
            Some((id, 0)) => {
                let code = codes[random.below(2) as usize].clone();
                tx.update(self.table, id, &[(1, Value::Text(code)), (3, Value::Int8(2))]).map(drop)
            }
            Some((id, sum)) => tx.update(self.table, id, &[(3, Value::Int8(sum - 1))]).map(drop),
        }
    }

    fn look(&self, tx: &mut Transaction) -> Result<()> {
        for pair in 0..PAIRS {
            let mut there = 0;
            for of in [0, 1] {
                let code = Pairs::code(pair, of);
                let sum = tx.look_by(self.table, BY_CODE, &*code, ScanMode::Share, |row| row.get_i64(3))?;
                if let Some(sum) = sum.transpose()? {
                    there += 1;
                    assert!(sum >= 0, "the sum of {code} is {sum}");
                }
            }
            assert!(there < 2, "both of pair {pair} are there");
        }
        Ok(())
    }
}

#[test]
fn transactions_that_meet_by_unique_keys_are_serializable() {
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    for engine in Engine::ALL {
        let (db, table) = open(engine);
        let next_id = AtomicU64::new(1);
        let pairs = Pairs { table: &table, next_id: &next_id };
        let end = Instant::now() + Random::test_time_from_environment().min(Duration::from_secs(10)) / 2;
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (db, pairs, done) = (&db, &pairs, &done);
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ (number << 32));
                    while Instant::now() < end {
                        let outcome = match random.chance(1, 4) {
                            true => db.read(|tx| pairs.look(tx)),
                            false => db.transact(|tx| pairs.run(tx, &mut random)),
                        };
                        match outcome {
                            Ok(()) => _ = done.fetch_add(1, Ordering::Relaxed),
                            // Two transactions that insert one code, or move to it, meet at the index.
                            Err(Error::DuplicateKey { .. }) => {}
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                    }
                });
            }
        });
        assert!(done.load(Ordering::Relaxed) > 100, "{engine}");
        db.transact(|tx| pairs.look(tx)).unwrap();
    }
}

/// I3: an error that a key is in use is told when the row that has the key is durable, though that row is not locked,
/// moves, and leaves its slots to other rows.
#[test]
fn an_error_of_a_duplicate_depends_on_the_row_that_has_the_key() {
    let db = Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..Options::default() });
    let db = db.unwrap();
    let table = db.transact(|tx| {
        let column = |name: &str, column_type| Column::new(name, column_type);
        let columns = vec![
            column("id", ColumnType::Int4),
            column("code", ColumnType::Text),
            // In no index, so a transaction that changes it locks the row and no key.
            column("text", ColumnType::Text),
        ];
        let table = tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"]))?;
        tx.create_index("things", "by_code", &["code"], true)?;
        Ok(table)
    });
    let table = table.unwrap();
    // The row that grows now, and its last place.
    let grows = Mutex::new((0, Lsn::ZERO));
    let stop = AtomicBool::new(false);
    let text = |length: usize| Value::Text("x".repeat(length));
    let code = |id: i32| format!("taken {id}");
    let insert = |id: i32, length: usize| {
        let row = [Value::Int4(id), Value::Text(code(id)), text(length)];
        let ((), ticket) = db.submit(|tx| tx.insert(&table, &row)).unwrap();
        ticket.lsn()
    };
    *grows.lock().unwrap() = (0, insert(0, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = Stop(&stop);
            for id in (0..).step_by(100).take_while(|_| !stop.load(Ordering::Relaxed)) {
                if id > 0 {
                    let lsn = insert(id, 0);
                    *grows.lock().unwrap() = (id, lsn);
                }
                for step in 1..30 {
                    let longer = text(30 * step);
                    let (_, ticket) = db.submit(|tx| tx.update(&table, id, &[(2, longer.clone())])).unwrap();
                    grows.lock().unwrap().1 = ticket.lsn();
                    // From now on other rows have its slots.
                    insert(id + step as i32, 30 * (step - 1));
                }
                db.transact(|tx| (0..30).try_for_each(|nth| tx.delete(&table, id - 100 + nth).map(drop)))
                    .unwrap();
            }
        });
        let _stop = Stop(&stop);
        let (began, time) = (Instant::now(), Random::test_time_from_environment());
        let mut refused = 0;
        while refused < 1_000 || began.elapsed() < time {
            let (id, written) = *grows.lock().unwrap();
            let mut tx = db.begin().unwrap();
            let outcome = tx.insert(&table, &[Value::Int4(-1), Value::Text(code(id)), text(0)]);
            let told_at = tx.settled().lsn();
            match outcome {
                Err(Error::DuplicateKey { .. }) => {
                    assert!(
                        told_at >= written,
                        "row {id} was written at {written}, its error told at {told_at}"
                    );
                    refused += 1;
                }
                // It is deleted by now.
                Ok(()) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

/// Stops the others when it is dropped, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Actions lock keys of an index as they write them, in no order: equal flows may meet there, each with the key that
/// the other one wants. One of them is a victim, runs again, and finds what the other has made.
#[test]
fn equal_flows_that_want_each_others_keys_of_an_index_both_end() {
    for threads in [0, 2] {
        let options = Options {
            memory_bytes: 64 << 20,
            engine: Executors::of(4, threads).handing_over().into(),
            ..Options::default()
        };
        let (db, table) = open_with(options);
        db.transact(|tx| (0..4).try_for_each(|id| tx.insert(&table, &row(id, &format!("{id}"), None, 0))))
            .unwrap();
        let rename = |nth: usize| {
            let rename = Action::exclusive("things", move |tx, arguments, _| {
                let (id, code) = (arguments.get::<i32>(2 * nth)?, arguments.values()[2 * nth + 1].clone());
                assert!(tx.update(arguments.table()?, id, &[(1, code)])?);
                Ok(())
            });
            rename.by_argument(2 * nth)
        };
        let arguments = [ColumnType::Int4, ColumnType::Text, ColumnType::Int4, ColumnType::Text];
        db.register(Procedure::new("rename", arguments, Flow::new().phase([rename(0), rename(1)]))).unwrap();
        // A panic of one does not leave the other waiting: errors are reported in the end.
        let (both, renamed, wrong) = (Barrier::new(2), AtomicU64::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for client in 0..2 {
                let (db, both, renamed, wrong) = (&db, &both, &renamed, &wrong);
                scope.spawn(move || {
                    for n in 0..200 {
                        let mut codes = [format!("a{n}"), format!("b{n}")];
                        if client == 1 {
                            codes.reverse();
                        }
                        let [first, second] = codes.map(Value::Text);
                        let ids = [2 * client, 2 * client + 1].map(Value::Int4);
                        let [one, other] = ids;
                        both.wait();
                        match db.call("rename", &[one, first, other, second]) {
                            Ok(_) => {
                                renamed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(Error::DuplicateKey { .. }) => {}
                            Err(error) => wrong.lock().unwrap().push(error),
                        }
                    }
                });
            }
        });
        assert!(wrong.lock().unwrap().is_empty(), "{wrong:?}");
        // Both wanted both keys.
        assert_eq!(renamed.into_inner(), 200, "{threads} threads");
    }
}

/// An index is named by its position. A dropped index is an error of all reads by it, for the transaction that reads to
/// handle.
#[test]
fn reads_by_an_index_that_has_gone_are_refused() {
    for engine in Engine::ALL {
        let (db, table) = open(engine);
        db.transact(|tx| tx.insert(&table, &row(1, "one", Some("first"), 10))).unwrap();
        db.transact(|tx| tx.drop_index("by_sum")).unwrap();
        let is_refused = |outcome: Result<()>| {
            assert!(matches!(outcome, Err(Error::NoSuchIndex { .. })), "{engine}: {outcome:?}");
        };
        let scan = Scan { index: BY_SUM, ..Scan::all() };
        for mode in [ScanMode::Share, ScanMode::Update] {
            is_refused(db.transact(|tx| tx.look_by(&table, BY_SUM, 10_i64, mode, |_| ()).map(drop)));
            let scan = Scan { mode, ..scan.clone() };
            is_refused(db.transact(|tx| tx.scan(&table, &scan, |_, _| Ok(ControlFlow::Continue(())))));
        }
        is_refused(db.transact(|tx| tx.entries(&table, &scan, |_, _| Ok(ControlFlow::Continue(())))));
        let found = db.transact(|tx| tx.look_by(&table, BY_CODE, "one", ScanMode::Share, |_| ()));
        assert_eq!(found.unwrap(), Some(()));
    }
}
