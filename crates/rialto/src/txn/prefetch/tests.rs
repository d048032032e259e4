//! Lookups after a prefetch: a lookup uses what was prefetched if that has not changed since, and descends the index
//! again if it has. In tests every index counts as large.

mod batches;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::io::MemoryDisk;
use crate::probes::DESCENTS;
use crate::row::{Column, ColumnType, Value, WhichIndex};
use crate::{
    Action, Checkpointing, Database, Engine, Flow, Options, Procedure, ScanMode, Table, TableDef,
    Transaction, TxOptions,
};

/// The even identifiers below this have rows. The leaves of both indexes are about half full.
const END: i32 = 6_000;

fn row(id: i32, length: usize) -> [Value; 3] {
    // A text that tells whose it is.
    [Value::Int4(id), Value::Int4(-id), Value::Text(format!("{id:<length$}"))]
}

fn filled(engine: Engine, procedures: Vec<Procedure>) -> (Database, Table) {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        engine,
        procedures,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("minus", ColumnType::Int4),
        Column::new("text", ColumnType::Text),
    ];
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
            tx.create_index("t", "by_minus", &["minus"], true)?;
            (0..END).try_for_each(|id| tx.insert(&table, &row(id, 100)))?;
            Ok(table)
        })
        .unwrap();
    db.transact(|tx| (0..END).step_by(2).try_for_each(|id| tx.delete(&table, id + 1).map(drop))).unwrap();
    (db, table)
}

/// The row's length, if it is there. Fails if it is another one's.
fn length_of(tx: &mut Transaction, table: &Table, id: i32) -> Result<Option<usize>> {
    tx.look(table, id, |row| {
        assert_eq!(row.get_i32(0).unwrap(), id);
        let text = row.get_str(2).unwrap();
        assert_eq!(text.trim_end(), id.to_string(), "the text of {id}");
        text.len()
    })
}

fn descents() -> u64 {
    DESCENTS.get()
}

/// What the actions of a phase of known keys do with theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Look,
    LookForAbsent,
    Change,
    LookAndChange,
    Insert,
    /// By the other index.
    Probe,
}

const USES: [Use; 6] =
    [Use::Look, Use::LookForAbsent, Use::Change, Use::LookAndChange, Use::Insert, Use::Probe];

impl Use {
    /// An action on the key of an argument. `looked` counts the descents of its body.
    fn action(self, nth: usize, looked: &Arc<AtomicU64>) -> Action {
        let looked = looked.clone();
        let body = move |tx: &mut Transaction, table: &Table, id: i32| {
            let before = descents();
            match self {
                Use::Look => assert!(length_of(tx, table, id)?.is_some()),
                Use::LookForAbsent => assert_eq!(length_of(tx, table, id)?, None),
                Use::Change => assert!(tx.update(table, id, &[(2, row(id, 90)[2].clone())])?),
                Use::LookAndChange => {
                    assert!(length_of(tx, table, id)?.is_some());
                    assert!(tx.update(table, id, &[(2, row(id, 90)[2].clone())])?);
                }
                Use::Insert => tx.insert(table, &row(id, 100))?,
                Use::Probe => {
                    let which = WhichIndex::Secondary(0);
                    let seen =
                        tx.probe(table, which, -id, ScanMode::Share, |entry| entry.get_i32(0).unwrap())?;
                    assert_eq!(seen, Some(id));
                }
            }
            looked.fetch_add(descents() - before, Ordering::Relaxed);
            Ok(())
        };
        let action = match self {
            Use::Probe => {
                return Action::shared("t", move |tx, arguments, _| {
                    let minus: i32 = arguments.get(nth)?;
                    body(tx, arguments.table()?, -minus)
                })
                .on_index("by_minus")
                .by_argument(nth);
            }
            Use::Look | Use::LookForAbsent => {
                Action::shared("t", move |tx, arguments, _| body(tx, arguments.table()?, arguments.get(nth)?))
            }
            Use::Change | Use::LookAndChange | Use::Insert => {
                Action::exclusive("t", move |tx, arguments, _| {
                    body(tx, arguments.table()?, arguments.get(nth)?)
                })
            }
        };
        action.by_argument(nth)
    }

    /// Of so many leaves.
    fn ids<const N: usize>(self) -> [i32; N] {
        let odd = i32::from(matches!(self, Use::LookForAbsent | Use::Insert));
        std::array::from_fn(|nth| nth as i32 * 450 + 200 + odd)
    }

    fn arguments<const N: usize>(self) -> [Value; N] {
        self.ids().map(|id| Value::Int4(if self == Use::Probe { -id } else { id }))
    }
}

#[test]
fn no_key_of_a_phase_is_looked_up_twice() {
    const KEYS: usize = 12;
    for engine in Engine::ALL {
        for of in USES {
            // By a secondary index the other forms of locks scan, or follow the entry under a latch.
            if of == Use::Probe && engine != Engine::thin() {
                continue;
            }
            let (few, many) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let one_by_one = (0..KEYS).fold(Flow::new(), |flow, nth| flow.phase([of.action(nth, &few)]));
            let together = Flow::new().phase((0..KEYS).map(|nth| of.action(nth, &many)));
            let procedures = [("one by one", one_by_one), ("together", together)]
                .map(|(name, flow)| Procedure::new(name, [ColumnType::Int4; KEYS], flow));
            let (db, table) = filled(engine, procedures.into());
            let arguments: [Value; KEYS] = of.arguments();
            for read_only in [false, true] {
                if read_only && !matches!(of, Use::Look | Use::LookForAbsent | Use::Probe) {
                    continue;
                }
                let options = TxOptions { read_only, ..TxOptions::default() };
                let about = format!("{engine}, {of:?}, read-only {read_only}");
                db.call_with(&options, "one by one", &arguments).unwrap();
                assert!(few.swap(0, Ordering::Relaxed) >= KEYS as u64, "{about}: one by one");
                if of == Use::Insert {
                    db.transact(|tx| {
                        of.ids::<KEYS>().iter().try_for_each(|id| tx.delete(&table, *id).map(drop))
                    })
                    .unwrap();
                }
                let before = descents();
                db.call_with(&options, "together", &arguments).unwrap();
                // In the other index an insert looks for the key, and puts it in: nothing names that ahead.
                let in_other = if of == Use::Insert { 2 * KEYS as u64 } else { 0 };
                assert_eq!(many.swap(0, Ordering::Relaxed), in_other, "{about}: in the bodies");
                assert!(descents() - before >= KEYS as u64, "{about}: ahead of them");
            }
        }
    }
}

/// What another transaction does between a prefetch and the lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    /// Rows move, and others get their slots.
    Moves,
    /// Rows go, and others get their slots.
    Deletes,
    /// They come back, in other slots.
    DeletesAndInserts,
    /// Their leaves split.
    Splits,
    /// Their leaves get other neighbours or none.
    Merges,
    /// All rows go, with their indexes, and some come back.
    Truncates,
}

const BETWEEN: [Between; 7] = [
    Between::Nothing,
    Between::Moves,
    Between::Deletes,
    Between::DeletesAndInserts,
    Between::Splits,
    Between::Merges,
    Between::Truncates,
];

/// The rows of the tests of what comes between, in some leaves, and identifiers of which there is none.
const WATCHED: [i32; 8] = [400, 402, 1_300, 2_200, 401, 403, 1_301, 2_201];

impl Between {
    fn happen(self, db: &Database, table: &Table) {
        let rows = || WATCHED.into_iter().filter(|id| id % 2 == 0);
        // Rows that take any slot of the usual length.
        let heirs = || db.transact(|tx| (END..END + 300).try_for_each(|id| tx.insert(table, &row(id, 100))));
        match self {
            Between::Nothing => {}
            Between::Moves => {
                let moved =
                    |tx: &mut Transaction, id| tx.update(table, id, &[(2, row(id, 3_000)[2].clone())]);
                db.transact(|tx| rows().try_for_each(|id| moved(tx, id).map(drop))).unwrap();
                heirs().unwrap();
            }
            Between::Deletes | Between::DeletesAndInserts => {
                db.transact(|tx| rows().try_for_each(|id| tx.delete(table, id).map(drop))).unwrap();
                heirs().unwrap();
                if self == Between::DeletesAndInserts {
                    db.transact(|tx| rows().try_for_each(|id| tx.insert(table, &row(id, 500)))).unwrap();
                }
            }
            Between::Splits => {
                let near = || WATCHED.into_iter().flat_map(|id| id - 350..id + 350).filter(|id| id % 2 == 1);
                for id in near().filter(|id| !WATCHED.contains(id)) {
                    // Some of them are there twice.
                    db.transact(|tx| tx.insert(table, &row(id, 100))).ok();
                }
            }
            Between::Merges => {
                let others = (0..END).step_by(2).filter(|id| !WATCHED.contains(id));
                db.transact(|tx| others.clone().try_for_each(|id| tx.delete(table, id).map(drop))).unwrap();
            }
            Between::Truncates => {
                db.transact(|tx| tx.truncate(table)).unwrap();
                let rows = rows().filter(|id| *id > 1_000);
                db.transact(|tx| rows.clone().try_for_each(|id| tx.insert(table, &row(id, 70)))).unwrap();
            }
        }
    }
}

/// Runs transactions beside the one of this thread.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn what_changes_between_a_prefetch_and_the_lookups_is_seen_by_them() {
    for engine in Engine::ALL {
        for between in BETWEEN {
            for how in ["read", "read only", "change", "insert"] {
                let about = format!("{engine}, {between:?}, {how}");
                let (db, table) = filled(engine, Vec::new());
                let (mut happened, options) =
                    (false, TxOptions { read_only: how == "read only", ..TxOptions::default() });
                let expected = |tx: &mut Transaction| WATCHED.map(|id| length_of(tx, &table, id).unwrap());
                db.transact_with(&options, |tx| {
                    tx.prefetch(&table, WATCHED);
                    if !std::mem::replace(&mut happened, true) {
                        aside(|| between.happen(&db, &table));
                    }
                    // By a transaction that has prefetched nothing.
                    let there = aside(|| db.transact_with(&options, |other| Ok(expected(other))))?;
                    for (id, there) in WATCHED.into_iter().zip(there) {
                        match how {
                            "change" => {
                                let changed = tx.update(&table, id, &[(2, row(id, 60)[2].clone())])?;
                                assert_eq!(changed, there.is_some(), "{about}: {id}");
                            }
                            "insert" => {
                                let inserted = tx.insert(&table, &row(id, 60));
                                assert_eq!(inserted.is_ok(), there.is_none(), "{about}: {id}: {inserted:?}");
                            }
                            _ => assert_eq!(length_of(tx, &table, id)?, there, "{about}: {id}"),
                        }
                    }
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("{about}: {error}"));
                let now = db.transact(|tx| Ok(expected(tx))).unwrap();
                let all = now.iter().all(Option::is_some);
                assert!(all || how != "insert", "{about}: {now:?}");
                let read = |tx: &mut Transaction| {
                    let all = [
                        crate::Scan::all(),
                        crate::Scan { index: WhichIndex::Secondary(0), ..crate::Scan::all() },
                    ];
                    all.map(|scan| {
                        let mut rows = 0;
                        tx.scan(&table, &scan, |_, row| {
                            let id = row.get_i32(0)?;
                            assert_eq!(row.get_str(2)?.trim_end(), id.to_string(), "{about}");
                            rows += 1;
                            Ok(std::ops::ControlFlow::Continue(()))
                        })
                        .unwrap();
                        rows
                    })
                };
                let [by_id, by_minus] = db.transact(|tx| Ok(read(tx))).unwrap();
                assert_eq!(by_id, by_minus, "{about}");
            }
        }
    }
}

/// The transaction's own changes between the prefetch and the lookups.
#[test]
fn own_changes_between_a_prefetch_and_the_lookups_are_seen_by_them() {
    for engine in Engine::ALL {
        let (db, table) = filled(engine, Vec::new());
        let mut tx = db.begin().unwrap();
        let ids = [400, 401, 402, 403];
        let lengths = |tx: &mut Transaction| ids.map(|id| length_of(tx, &table, id).unwrap());
        let start = [Some(100), None, Some(100), None];
        tx.prefetch(&table, ids);
        let savepoint = tx.savepoint();
        assert!(tx.delete(&table, 400).unwrap());
        tx.insert(&table, &row(401, 10)).unwrap();
        assert!(
            tx.update(
                &table,
                402,
                &[(0, Value::Int4(403)), (1, Value::Int4(-403)), (2, row(403, 20)[2].clone())]
            )
            .unwrap()
        );
        assert_eq!(lengths(&mut tx), [None, Some(10), None, Some(20)], "{engine}");
        tx.insert(&table, &row(400, 30)).unwrap();
        assert_eq!(lengths(&mut tx), [Some(30), Some(10), None, Some(20)], "{engine}");
        tx.prefetch(&table, ids);
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(lengths(&mut tx), start, "{engine}");
        // Definitions: the table has other indexes then, and its own again.
        tx.prefetch(&table, ids);
        let savepoint = tx.savepoint();
        tx.truncate(&table).unwrap();
        assert_eq!(lengths(&mut tx), [None; 4], "{engine}");
        tx.insert(&table, &row(401, 40)).unwrap();
        tx.prefetch(&table, ids);
        assert_eq!(lengths(&mut tx), [None, Some(40), None, None], "{engine}");
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(lengths(&mut tx), start, "{engine}");
        tx.prefetch(&table, ids);
        tx.drop_index("by_minus").unwrap();
        assert_eq!(lengths(&mut tx), start, "{engine}");
        tx.abort().unwrap();
        // The next transaction has nothing of this one's.
        db.transact(|tx| {
            assert!(tx.context().prefetched.is_empty());
            assert_eq!(lengths(tx), start, "{engine}");
            Ok(())
        })
        .unwrap();
    }
}

/// More keys than are kept, out of their order, and others than were prefetched.
#[test]
fn what_was_prefetched_need_not_be_asked_for() {
    for engine in Engine::ALL {
        let (db, table) = filled(engine, Vec::new());
        db.transact(|tx| {
            for round in 0..20 {
                tx.prefetch(&table, (0..20 * round).map(|nth| nth * 7 % END));
                for nth in (0..500).rev() {
                    let id = nth * (1 + round % 8) % END;
                    assert_eq!(length_of(tx, &table, id)?.is_some(), id % 2 == 0, "{engine}: {id}");
                }
            }
            Ok(())
        })
        .unwrap();
    }
}
