//! What is refused, or detected, so that nothing is lost: missing or changed procedures, combinations that cannot
//! recover, procedures that are not deterministic.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use rialto::io::{Disk, MemoryDisk, Random};
use rialto::recovery::{check::check, inspect::inspect};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Error, Executors, Flow, Logging, OpenError, Options, Procedure,
    TableDef, TxOptions,
};

use super::{
    ACCOUNTS, Step, calls, done_in, exclusive, int8, options, prepare, procedures, rename, transfer,
};

/// A database with three calls in its log, and nothing after them.
fn with_calls() -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), calls()).unwrap();
    prepare(&db);
    let arguments = |n: i64| [Value::Int8(n), Value::Int4(1), Value::Int4(2), Value::Int8(5 * n)];
    (1..4).for_each(|n| db.call("transfer", &arguments(n)).map(drop).unwrap());
    db.close().unwrap();
    disk
}

fn refusal(disk: &Arc<MemoryDisk>, procedures: Vec<Procedure>) -> OpenError {
    Database::open_on(disk.clone(), Options { procedures, ..calls() })
        .expect_err("the log needs another procedure")
}

#[test]
fn a_log_that_needs_another_procedure_is_refused_and_loses_nothing() {
    let disk = with_calls();
    let unsupported = |error: OpenError| match error {
        OpenError::Unsupported { what } => what,
        other => panic!("{other:?}"),
    };
    let place = "place 3 of the log is a call of procedure \"transfer\" version 1 (Logging::Transaction), ";
    assert_eq!(
        unsupported(refusal(&disk, vec![rename()])),
        format!(
            "{place}which is not there: open the database with it in Options::procedures, or the log cannot be \
             replayed"
        )
    );
    assert_eq!(
        unsupported(refusal(&disk, vec![transfer().deterministic(2)])),
        format!(
            "{place}of which only version 2 is there: open the database with version 1 in Options::procedures, too; after a \
             checkpoint it is needed no longer"
        )
    );
    let undeclared = Procedure { deterministic: false, ..transfer() };
    assert_eq!(
        unsupported(refusal(&disk, vec![undeclared])),
        format!(
            "{place}which is there, but not as deterministic: give Options::procedures the procedure that made the \
             call (Procedure::deterministic)"
        )
    );
    let bad = Procedure::new("", [], Flow::of(|_, _, _| Ok(())));
    for (procedures, why) in
        [(vec![bad], "a procedure needs a name"), (vec![transfer(), transfer()], "version 1 is there twice")]
    {
        match refusal(&disk, procedures) {
            OpenError::Options { what } => assert!(what.contains(why), "{what}"),
            other => panic!("{other:?}"),
        }
    }
    // Everything is still there, whatever is logged from now on.
    let db = Database::open_on(disk.clone(), options(Logging::Value)).unwrap();
    assert_eq!((db.recovery().unwrap().calls, done_in(&db)), (3, 3));
    // After a checkpoint, of any kind, they are no longer needed.
    db.transact(|tx| {
        let done = tx.table("done")?;
        tx.insert(&done, &[Value::Int8(4)])
    })
    .unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, Options { procedures: Vec::new(), ..calls() }).unwrap();
    assert_eq!((db.recovery().unwrap().calls, done_in(&db)), (0, 4));
}

/// A procedure that was changed but kept its version has another result than before.
#[test]
fn a_changed_procedure_is_found_by_its_write_set() {
    let disk = with_calls();
    let other = exclusive("done", |tx, table, values| tx.insert(table, &[Value::Int8(int8(&values[0]) + 1)]));
    let types = [ColumnType::Int8, ColumnType::Int4, ColumnType::Int4, ColumnType::Int8];
    let changed = Procedure::new("transfer", types, Flow::from(other)).deterministic(1);
    let error = refusal(&disk, vec![changed]);
    assert_eq!(error.exit_code(), 1);
    let OpenError::Replay { what } = error else { panic!("{error:?}") };
    let begins = "replaying place 3 of the log, procedure \"transfer\" version 1 with (1, 1, 2, 5): it writes something else \
                  than it did then (checksum ";
    assert!(what.starts_with(begins), "{what}");
    // One that fails where it did not fail before.
    let fails = Flow::of(|_, _, _| Err(Error::aborted("not today")));
    let error = refusal(&disk, vec![Procedure::new("transfer", types, fails).deterministic(1)]);
    assert!(
        error.to_string().ends_with("it committed then, and now it gives an error: aborted: not today"),
        "{error}"
    );
    assert_eq!(done_in(&Database::open_on(disk, calls()).unwrap()), 3);
}

/// Without the procedures, a check verifies what it can, and says what it cannot.
#[test]
fn a_check_without_the_procedures_says_what_it_cannot_verify() {
    let disk: Arc<dyn Disk> = with_calls();
    let report = check(&disk, 64 << 20, 2).unwrap();
    assert!(report.is_sound(), "{report}");
    let says = "the last 3 transactions, from place 3 on, begin with a call of a procedure (Logging::Transaction) that only a \
                program with its procedures can run again (\"transfer\" version 1)";
    assert!(report.to_string().contains(&format!("note: {says}")), "{report}");
    let text = inspect(&disk, 64 << 20, 2).unwrap();
    assert!(text.contains(says), "{text}");
}

/// Calls are logged as such only beside a transaction-consistent copy.
#[test]
fn calls_are_values_until_a_checkpoint_fits_them() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options(Logging::Action)).unwrap();
    prepare(&db);
    db.checkpoint().unwrap();
    db.close().unwrap();
    let arguments = |n: i64| [Value::Int8(n), Value::Int4(1), Value::Int4(2), Value::Int8(1)];
    let db = Database::open_on(disk.clone(), calls()).unwrap();
    (1..3).for_each(|n| db.call("transfer", &arguments(n)).map(drop).unwrap());
    db.close().unwrap();
    // Nothing in the log needs a procedure.
    let db = Database::open_on(disk.clone(), Options { procedures: Vec::new(), ..calls() }).unwrap();
    assert_eq!((db.recovery().unwrap().packets, done_in(&db)), (2, 2));
    db.close().unwrap();
    let db = Database::open_on(disk.clone(), calls()).unwrap();
    db.checkpoint().unwrap();
    db.call("transfer", &arguments(3)).unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, calls()).unwrap();
    assert_eq!((db.recovery().unwrap().calls, done_in(&db)), (1, 3));
}

/// The same version has other arguments: the actions' identifiers are not even computed from those of the log.
#[test]
fn a_procedure_with_other_arguments_is_refused_by_an_error() {
    let mark = |types: &[ColumnType]| {
        let last = types.len() - 1;
        let mark = exclusive("done", move |tx, table, values| tx.insert(table, &values[last..]));
        Procedure::new("mark", types.to_vec(), mark.by_argument(last)).deterministic(1)
    };
    let disk = MemoryDisk::new();
    let of = |types: &[ColumnType]| Options { procedures: vec![mark(types)], ..calls() };
    let db = Database::open_on(disk.clone(), of(&[ColumnType::Int4])).unwrap();
    prepare(&db);
    db.call("mark", &[Value::Int4(1)]).unwrap();
    db.close().unwrap();
    for (types, expected) in
        [(&[ColumnType::Int4, ColumnType::Int4][..], "int4, int4"), (&[ColumnType::Text], "text")]
    {
        let OpenError::Replay { what } = Database::open_on(disk.clone(), of(types)).unwrap_err() else {
            panic!("{expected}: it is refused otherwise");
        };
        let expected = format!(
            "replaying place 3 of the log, procedure \"mark\" version 1 with (1): procedure \"mark\": expected \
             arguments ({expected}), found (int4)"
        );
        assert!(what.starts_with(&expected), "{what}");
    }
    // A procedure with the same signature is accepted.
    let db = Database::open_on(disk, of(&[ColumnType::Int8])).unwrap();
    assert_eq!((db.recovery().unwrap().calls, done_in(&db)), (1, 1));
}

#[test]
fn combinations_that_cannot_recover_are_refused_with_the_reason() {
    use Checkpointing::{Fuzzy, None as Never, TransactionBlackWhite, TransactionCopyOnUpdate};
    for logging in Logging::ALL {
        for checkpoint in Checkpointing::ALL.into_iter().chain([Never]) {
            let opened = Database::open_on(MemoryDisk::new(), Options { checkpoint, ..options(logging) });
            match (logging, checkpoint) {
                (Logging::Transaction, TransactionCopyOnUpdate | TransactionBlackWhite | Never)
                | (Logging::Value | Logging::Action, _) => {
                    let db = opened.unwrap();
                    for other in Checkpointing::ALL {
                        match (logging.refuses(other), db.set_checkpoint(other)) {
                            (None, Ok(())) => {}
                            (Some(reason), Err(Error::Unsupported { what })) => assert_eq!(what, reason),
                            (refuses, set) => panic!("{logging:?}, {other:?}: {refuses:?}, {set:?}"),
                        }
                    }
                }
                _ => match (opened, logging.refuses(checkpoint)) {
                    (Err(OpenError::Options { what }), Some(reason)) => assert_eq!(what, reason),
                    (opened, refuses) => panic!("{logging:?}, {checkpoint:?}: {opened:?}, {refuses:?}"),
                },
            }
        }
    }
    assert_eq!(
        Logging::Transaction.refuses(Fuzzy).unwrap(),
        "logging is Transaction and checkpoint Fuzzy: its copy can hold a part of a transaction, and a call that is run \
         again does all of it; expected checkpoint TransactionCopyOnUpdate, TransactionBlackWhite or None"
    );
    assert_eq!(
        Logging::None.refuses(Fuzzy).unwrap(),
        "logging is none and checkpoint Fuzzy: a copy made while transactions run is made whole by the log; expected \
         checkpoint none (closing makes one)"
    );
}

/// Reads something that is neither an argument nor a row: here a counter of the process, in place of a clock.
#[test]
fn the_debug_mode_finds_procedures_that_are_not_what_they_say() {
    static CLOCK: AtomicI64 = AtomicI64::new(0);
    let stamped = exclusive("history", |tx, table, values| {
        tx.insert(table, &[values[0].clone(), Value::Int8(1)])?;
        tx.insert(table, &[values[0].clone(), Value::Int8(CLOCK.fetch_add(1, Ordering::Relaxed))])
    });
    let asked = Action::shared("accounts", |_, _, outputs| {
        outputs.push(CLOCK.fetch_add(1, Ordering::Relaxed));
        Ok(())
    });
    let once = exclusive("done", |tx, table, _| match CLOCK.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => tx.insert(table, &[Value::Int8(77)]),
        _ => Err(Error::aborted("odd")),
    });
    for logging in Logging::ALL {
        CLOCK.store(0, Ordering::Relaxed);
        let mut all = procedures();
        all.push(Procedure::new("stamped", [ColumnType::Int4], stamped.clone()).deterministic(1));
        all.push(Procedure::new("asked", [], asked.clone()).deterministic(1));
        all.push(Procedure::new("once", [], once.clone()).deterministic(1));
        all.push(Procedure::new("honest", [ColumnType::Int4], stamped.clone()));
        let options = Options { check_determinism: true, procedures: all, ..options(logging) };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        prepare(&db);
        let refused = |name: &str, arguments: &[Value]| match db.call(name, arguments) {
            Err(Error::Procedure { name: named, reason }) if named == name => reason,
            other => panic!("{name}: {other:?}"),
        };
        let reason = refused("stamped", &[Value::Int4(1)]);
        assert!(
            reason.starts_with(
                "it says that it is deterministic, but two runs on the same rows wrote different things: record 1, a put \
                 of the row (row number)=("
            ) && reason.ends_with("of table \"history\", has other contents the second time"),
            "{reason}"
        );
        let reason = refused("asked", &[]);
        assert!(reason.contains("gave different outputs: [Int8(2)], then [Int8(3)]"), "{reason}");
        CLOCK.store(0, Ordering::Relaxed);
        let reason = refused("once", &[]);
        assert!(
            reason.ends_with("it gave an error when it ran again on the same rows: aborted: odd"),
            "{reason}"
        );
        // A procedure that does not claim to be deterministic is not checked, and correct ones pass.
        db.call("honest", &[Value::Int4(1)]).unwrap();
        let mut random = Random::new(1);
        for n in 1..60 {
            let step = Step::any(&mut random, n, ACCOUNTS);
            step.run(&db, n, &TxOptions::default()).unwrap().wait().unwrap();
        }
        assert_eq!(done_in(&db), 59);
    }
}

/// The number of calls of [`today`], and the call from which on it is another day.
static ASKED: AtomicU32 = AtomicU32::new(0);
static MIDNIGHT: AtomicU32 = AtomicU32::new(0);

fn today(_: &[Value]) -> Value {
    let is_over = ASKED.fetch_add(1, Ordering::SeqCst) >= MIDNIGHT.load(Ordering::SeqCst);
    Value::Int4(i32::from(is_over))
}

/// A part of an identifier is computed by the user's function, which should give the same each time. Whenever it
/// changes, a body never changes a row that another transaction has locked.
#[test]
fn an_identifier_that_changes_in_a_call_is_never_taken_for_locked() {
    for (threads, defines, midnight) in (0..8).flat_map(|at| [(0, false, at), (2, false, at), (0, true, at)])
    {
        let options =
            Options { engine: Executors::of(2, threads).handing_over().into(), ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4)];
        let table = db
            .transact(|tx| {
                let table =
                    tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
                (0..200).try_for_each(|id| tx.insert(&table, &[Value::Int4(id)]))?;
                Ok(table)
            })
            .unwrap();
        db.set_routing("t", WhichIndex::Primary, &[vec![Value::Int4(100)]]).unwrap();
        let define = Flow::of(|tx, _, _| {
            tx.create_table(&TableDef::new("new", vec![Column::new("id", ColumnType::Int4)])).map(drop)
        });
        let define = define.phases()[0].clone().into_iter().filter(|_| defines);
        let delete = Action::exclusive("t", |tx, arguments, _| tx.delete(arguments.table()?, 1).map(drop));
        let other = Action::exclusive("t", |tx, arguments, _| {
            tx.delete(arguments.table()?, arguments.get::<i32>(0)?).map(drop)
        });
        let actions = define.chain([delete.by(today), other.by_argument(0)]);
        db.register(Procedure::new("p", [ColumnType::Int4], Flow::new().phase(actions))).unwrap();
        let mut holder = db.begin().unwrap();
        assert!(holder.delete(&table, 1).unwrap());
        ASKED.store(0, Ordering::SeqCst);
        MIDNIGHT.store(midnight, Ordering::SeqCst);
        let impatient = TxOptions { lock_timeout: Some(Duration::from_millis(50)), ..TxOptions::default() };
        let called = db.call_with(&impatient, "p", &[Value::Int4(150)]);
        let about = format!("{threads} threads, defines: {defines}, midnight at {midnight}");
        assert!(
            matches!(called, Err(Error::LockTimeout { .. } | Error::Procedure { .. })),
            "{about}: {called:?}"
        );
        holder.commit().unwrap();
        assert_eq!(db.read(|tx| tx.count(&table)).unwrap(), 199, "{about}");
    }
}
