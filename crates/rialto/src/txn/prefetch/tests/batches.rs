//! Keys of a batch of calls, looked up ahead of them ([`PreparedCall::send_all`](crate::PreparedCall::send_all)).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::{Arguments, Error, Executors, Outputs, Sent};

/// Conventional and data-oriented ones, without threads and with them.
const ENGINES: [Engine; 4] =
    [Engine::thin(), Engine::central(), Engine::data_oriented(), Engine::DataOriented(Executors::of(64, 2))];

fn outcomes(sent: Vec<Result<Sent>>) -> Vec<Result<Vec<Value>>> {
    sent.into_iter().map(|sent| sent?.wait()).collect()
}

#[test]
fn no_key_of_a_batch_is_looked_up_twice() {
    // More than go side by side.
    const KEYS: usize = 13 * 2;
    for engine in Engine::ALL {
        for of in USES {
            if of == Use::Probe && engine != Engine::thin() {
                continue;
            }
            for actions in [1, 2] {
                let looked = Arc::new(AtomicU64::new(0));
                let flow = Flow::new().phase((0..actions).map(|nth| of.action(nth, &looked)));
                let (db, table) =
                    filled(engine, vec![Procedure::new("p", vec![ColumnType::Int4; actions], flow)]);
                // Of so many leaves, or twice.
                let arguments = [of.arguments::<{ KEYS / 2 }>(), of.arguments()].concat();
                let mut calls: Vec<Vec<Value>> = arguments.chunks(actions).map(<[Value]>::to_vec).collect();
                if of == Use::Insert {
                    calls.truncate(KEYS / 2 / actions);
                }
                let keys = (calls.len() * actions) as u64;
                for read_only in [false, true] {
                    if read_only && !matches!(of, Use::Look | Use::LookForAbsent | Use::Probe) {
                        continue;
                    }
                    let about = format!("{engine}, {of:?}, {actions} actions, read-only {read_only}");
                    let options = TxOptions { read_only, ..TxOptions::default() };
                    let mut call = db.prepare_call_with(&options, "p").unwrap();
                    for arguments in &calls {
                        call.call(arguments).unwrap();
                    }
                    assert!(looked.swap(0, Ordering::Relaxed) >= keys, "{about}: one by one");
                    if of == Use::Insert {
                        let ids: [i32; KEYS / 2] = of.ids();
                        db.transact(|tx| ids.iter().try_for_each(|id| tx.delete(&table, *id).map(drop)))
                            .unwrap();
                    }
                    let before = descents();
                    for outcome in outcomes(call.send_all(&calls)) {
                        outcome.unwrap();
                    }
                    // In the other index an insert looks for the key, and puts it in: nothing names that ahead.
                    let in_other = if of == Use::Insert { 2 * keys } else { 0 };
                    assert_eq!(looked.swap(0, Ordering::Relaxed), in_other, "{about}: in the bodies");
                    assert!(descents() - before >= keys, "{about}: ahead of them");
                }
            }
        }
    }
}

/// When arguments are asked for, counted: before the keys of their window are looked up, and as their call is sent.
const BEFORE_LOOKUPS: u32 = 1;
const BEFORE_CALL: u32 = 2;

/// Arguments that do something when they are asked for.
struct Asked<'a> {
    values: [Value; 1],
    times: Cell<u32>,
    /// At which of these times.
    at: u32,
    happen: &'a dyn Fn(),
}

impl<'a> Asked<'a> {
    fn new(id: i32, at: u32, happen: &'a dyn Fn()) -> Asked<'a> {
        Asked { values: [Value::Int4(id)], times: Cell::new(0), at, happen }
    }
}

impl AsRef<[Value]> for Asked<'_> {
    fn as_ref(&self) -> &[Value] {
        self.times.set(self.times.get() + 1);
        if self.times.get() == self.at {
            (self.happen)();
        }
        &self.values
    }
}

/// A procedure that reads, changes or inserts the row of a key, and gives whether it was there.
fn using(how: &'static str) -> Procedure {
    let body = move |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
        let (table, id) = (arguments.table()?, arguments.get::<i32>(0)?);
        let there = match how {
            "change" => tx.update(table, id, &[(2, row(id, 60)[2].clone())])?,
            "insert" => tx.insert(table, &row(id, 60)).is_err(),
            _ => length_of(tx, table, id)?.is_some(),
        };
        outputs.push(there);
        Ok(())
    };
    let action =
        if how.starts_with("read") { Action::shared("t", body) } else { Action::exclusive("t", body) };
    Procedure::new(how, [ColumnType::Int4], Flow::from(action.by_argument(0)))
}

#[test]
fn what_another_thread_changes_between_the_lookups_and_the_calls_is_seen_by_them() {
    for engine in Engine::ALL {
        for between in BETWEEN {
            for how in ["read", "read only", "change", "insert"] {
                let about = format!("{engine}, {between:?}, {how}");
                let (db, table) = filled(engine, vec![using(how)]);
                let options = TxOptions { read_only: how == "read only", ..TxOptions::default() };
                let mut call = db.prepare_call_with(&options, how).unwrap();
                let lengths =
                    || db.transact(|tx| Ok(WATCHED.map(|id| length_of(tx, &table, id).unwrap()))).unwrap();
                let there = Cell::new([None; WATCHED.len()]);
                let happen = || {
                    aside(|| between.happen(&db, &table));
                    there.set(lengths());
                };
                let before = |nth| -> &dyn Fn() { if nth == 0 { &happen } else { &|| () } };
                let calls: Vec<_> = WATCHED
                    .iter()
                    .enumerate()
                    .map(|(nth, id)| Asked::new(*id, BEFORE_CALL, before(nth)))
                    .collect();
                let seen = outcomes(call.send_all(&calls));
                assert!(calls.iter().all(|call| call.times.get() == 2), "{about}: not looked up ahead");
                for (nth, (before, after)) in there.get().into_iter().zip(lengths()).enumerate() {
                    let about = format!("{about}: {}", WATCHED[nth]);
                    assert_eq!(seen[nth], Ok(vec![Value::Bool(before.is_some())]), "{about}");
                    let expected = match how {
                        "change" => before.map(|_| 60),
                        "insert" => before.or(Some(60)),
                        _ => before,
                    };
                    assert_eq!(after, expected, "{about}");
                }
            }
        }
    }
}

/// A definition replaces the table before the keys of a window are looked up, or between its calls: those behind it are
/// of the new one.
#[test]
fn what_was_found_in_a_table_that_is_no_more_is_not_taken() {
    for engine in Engine::ALL {
        for at in [BEFORE_LOOKUPS, BEFORE_CALL] {
            let (db, table) = filled(engine, vec![using("read")]);
            let columns = table.version().schema.columns().to_vec();
            let mut call = db.prepare_call("read").unwrap();
            let replace = || {
                let replace = |tx: &mut Transaction| {
                    tx.drop_table("t")?;
                    let definition = TableDef::new("t", columns.clone()).with_primary_key(&["id"]);
                    let table = tx.create_table(&definition)?;
                    (0..END).filter(|id| id % 2 == 1).try_for_each(|id| tx.insert(&table, &row(id, 100)))
                };
                aside(|| db.transact(replace).unwrap());
            };
            let before = |nth| -> &dyn Fn() { if nth == 8 { &replace } else { &|| () } };
            let calls: Vec<_> = (0..16).map(|nth| Asked::new(400 + nth, at, before(nth))).collect();
            for (nth, seen) in outcomes(call.send_all(&calls)).into_iter().enumerate() {
                let is_of_new_table = at == BEFORE_LOOKUPS || nth >= 8;
                let there = nth % 2 == usize::from(is_of_new_table);
                assert_eq!(seen, Ok(vec![Value::Bool(there)]), "{engine}: call {nth}, replaced at {at}");
            }
        }
    }
}

/// A procedure that does with the row of a key what its second argument says, and gives the length that it found.
fn changing() -> Procedure {
    let action = Action::exclusive("t", |tx, arguments, outputs| {
        let (table, id, what) = (arguments.table()?, arguments.get::<i32>(0)?, arguments.get::<i32>(1)?);
        let length = length_of(tx, table, id)?;
        outputs.push(length.map_or(-1, |length| length as i32));
        if (1..=3).contains(&what) {
            tx.delete(table, id)?;
        }
        match what {
            0 | 1 => Ok(()),
            2 => Err(Error::aborted("what it deleted is there again")),
            3 => panic!("a body's panic"),
            to if length.is_some() => tx.update(table, id, &[(2, row(id, to as usize)[2].clone())]).map(drop),
            to => tx.insert(table, &row(id, to as usize)),
        }
    });
    Procedure::new("changing", [ColumnType::Int4; 2], Flow::from(action.by_argument(0)))
}

/// What becomes of a call; its panic, too.
fn told(sent: Result<Sent>) -> std::result::Result<Result<Vec<Value>>, String> {
    catch_unwind(AssertUnwindSafe(|| sent?.wait()))
        .map_err(|panic| panic.downcast_ref::<&str>().map_or_else(String::new, |text| (*text).to_owned()))
}

#[test]
fn each_call_of_a_batch_is_a_transaction_and_sees_those_before_it() {
    let two = |id, what| vec![Value::Int4(id), Value::Int4(what)];
    let mut calls = vec![
        two(400, 0),
        two(400, 1),
        two(400, 0),
        two(400, 3_000),
        two(402, 2),
        two(402, 0),
        vec![Value::Int4(402)],
        vec![Value::Text("no number".to_owned()), Value::Int4(0)],
        two(402, 3),
        two(402, 0),
        two(401, 70),
        two(401, 2_000),
        two(401, 0),
        two(401, 1),
        two(400, 0),
    ];
    // Rows take the slots of those that have moved and gone; leaves split and merge.
    calls.extend((0..200).map(|nth| two(401 + 2 * nth, 100)));
    calls.extend((0..200).flat_map(|nth| [two(400 + 2 * nth, 900), two(400 + 2 * nth, 0)]));
    calls.extend((0..400).flat_map(|nth| [two(400 + nth, 1), two(400 + nth, 0)]));
    for engine in Engine::ALL {
        let by_batches_of = |batch: usize| {
            let (db, _) = filled(engine, vec![changing()]);
            let mut call = db.prepare_call("changing").unwrap();
            let told: Vec<_> = calls.chunks(batch).flat_map(|some| call.send_all(some)).map(told).collect();
            told
        };
        let (one_by_one, together) = (by_batches_of(1), by_batches_of(calls.len()));
        assert_eq!((one_by_one.len(), together.len()), (calls.len(), calls.len()), "{engine}");
        for (nth, (one, of_many)) in one_by_one.iter().zip(&together).enumerate() {
            assert_eq!(of_many, one, "{engine}: call {nth}, {:?}", calls[nth]);
        }
        for (nth, length) in [(0, 100), (2, -1), (5, 100), (9, 100), (11, 70), (12, 2_000), (14, 3_000)] {
            assert_eq!(together[nth], Ok(Ok(vec![Value::Int4(length)])), "{engine}: call {nth}");
        }
        assert!(matches!(together[4], Ok(Err(Error::Aborted { .. }))), "{engine}: {:?}", together[4]);
        for wrong in [6, 7] {
            assert!(matches!(together[wrong], Ok(Err(Error::Procedure { .. }))), "{engine}: {wrong}");
        }
        assert_eq!(together[8], Err("a body's panic".to_owned()), "{engine}");
    }
}

/// Threads that own executors run the calls in any order, but no two of these are about the same row.
#[test]
fn what_becomes_of_each_call_of_a_batch_is_told_at_its_position() {
    for engine in ENGINES {
        let (db, table) = filled(engine, vec![changing()]);
        let mut call = db.prepare_call("changing").unwrap();
        // What becomes of a row of each kind, if it is there, and if it is not.
        let kinds = [0, 1, 2, 3, 200];
        let calls: Vec<_> =
            (0..600).map(|id| [id, kinds[id as usize / 2 % kinds.len()]].map(Value::Int4)).collect();
        let sent = call.send_all(&calls);
        assert_eq!(sent.len(), calls.len());
        for (id, told) in (0..).zip(sent.into_iter().map(told)) {
            let (kind, is_there) = (kinds[id as usize / 2 % kinds.len()], id % 2 == 0);
            let about = format!("{engine}, kind {kind}: {id}");
            match kind {
                2 => assert!(matches!(told, Ok(Err(Error::Aborted { .. }))), "{about}: {told:?}"),
                3 => assert_eq!(told, Err("a body's panic".to_owned()), "{about}"),
                _ => {
                    let length = if is_there { 100 } else { -1 };
                    assert_eq!(told, Ok(Ok(vec![Value::Int4(length)])), "{about}");
                }
            }
            let length = db.transact(|tx| length_of(tx, &table, id)).unwrap();
            let expected = match kind {
                200 => Some(200),
                1 => None,
                _ => is_there.then_some(100),
            };
            assert_eq!(length, expected, "{about}");
        }
    }
}

#[test]
fn a_batch_in_a_body_or_of_a_closed_database_is_refused_call_by_call() {
    for engine in ENGINES {
        let (db, _) = filled(engine, vec![changing()]);
        let mut call = db.prepare_call("changing").unwrap();
        let calls: [[Value; 2]; 20] =
            std::array::from_fn(|nth| [Value::Int4(2 * nth as i32), Value::Int4(1)]);
        let mut all_are = |error: Error| {
            let outcomes = outcomes(call.send_all(&calls));
            assert_eq!(outcomes, vec![Err(error); calls.len()], "{engine}");
        };
        db.transact(|_| {
            all_are(Error::Nested);
            Ok(())
        })
        .unwrap();
        db.close().unwrap();
        all_are(Error::Closed);
        assert!(call.send_all(&calls[..0]).is_empty());
    }
}
