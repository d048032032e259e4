//! What an action can be: on an index, identified by an earlier phase's output, a claim; and that it touches nothing
//! else, with locks of every form.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, ActionMode, Arguments, Database, Engine, Error, Flow, KeyBound, LockPolicy, Options, Outputs,
    Procedure, Result, RowKey, Scan, ScanMode, TableDef, Transaction,
};

use crate::common::engines;

mod definitions;
mod out_of_scope;
mod stale;

const BY_EMAIL: WhichIndex = WhichIndex::Secondary(0);

/// The conventional engines, and the data-oriented engine with four executors, in place and on two threads.
const ENGINES: [Engine; 4] = engines::each(4);
const IN_PLACE: Engine = ENGINES[2];
const ON_THREADS: Engine = ENGINES[3];

/// People by number, with a unique address (or none), a town and an age.
fn database(engine: Engine) -> Database {
    let options = Options { memory_bytes: 64 << 20, engine, check_determinism: true, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    db.transact(|tx| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::nullable("email", ColumnType::Text),
            Column::new("town", ColumnType::Text),
            Column::new("age", ColumnType::Int4),
        ];
        let people = tx.create_table(&TableDef::new("people", columns).with_primary_key(&["id"]))?;
        tx.create_index("people", "people_by_email", &["email"], true)?;
        tx.create_index("people", "people_by_town", &["town"], false)?;
        let log = vec![Column::new("id", ColumnType::Int4), Column::new("what", ColumnType::Text)];
        tx.create_table(&TableDef::new("log", log))?;
        for id in 0..6 {
            tx.insert(&people, &person(id, ["Ulm", "Bonn"][id as usize % 2]))?;
        }
        Ok(())
    })
    .unwrap();
    db
}

fn person(id: i32, town: &str) -> [Value; 4] {
    let email = if id == 0 { Value::Null } else { Value::Text(format!("{id}@example.org")) };
    [Value::Int4(id), email, Value::Text(town.to_owned()), Value::Int4(20)]
}

fn each_in_place(test: impl Fn(Engine, &Database)) {
    for engine in ENGINES.into_iter().filter(|engine| *engine != ON_THREADS) {
        test(engine, &database(engine));
    }
}

/// The reason that a call is refused for.
fn reason(result: Result<impl Sized>) -> String {
    match result {
        Err(Error::Procedure { reason, .. }) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// Finds the person with the address in the argument; gives NULL if there is none.
fn find(mode: ScanMode) -> Action {
    let find = move |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
        let (table, email) = (arguments.table()?, arguments.get_str(0)?);
        let id = tx.probe(table, arguments.index(), email, mode, |entry| entry.get("id"))?;
        outputs.push(id.transpose()?);
        Ok(())
    };
    let find = match mode {
        ScanMode::Share => Action::shared("people", find),
        ScanMode::Update => Action::exclusive("people", find),
    };
    find.on_index("people_by_email").by_argument(0)
}

/// Makes the person in the first output a year older; gives the age.
fn age() -> Action {
    let age = Action::exclusive("people", |tx, arguments, outputs| {
        let id = outputs.get::<i32>(0).expect("a number");
        let mut age = 0;
        let found = tx.modify(arguments.table()?, id, |row| {
            age = row.add_i32(3, 1)?;
            Ok(())
        })?;
        assert!(found, "its entry was there");
        outputs.push(age);
        Ok(())
    });
    age.by_output(0)
}

fn birthday() -> Procedure {
    let flow = Flow::new().phase([find(ScanMode::Update)]).phase([age().when_output(0)]);
    Procedure::new("birthday", [ColumnType::Text], flow).deterministic(1)
}

#[test]
fn what_an_index_finds_a_later_phase_changes() {
    each_in_place(|engine, db| {
        db.register(birthday()).unwrap();
        let call = |email: &str| db.call("birthday", &[email.into()]);
        assert_eq!(call("3@example.org"), Ok(vec![Value::Int4(3), Value::Int4(21)]), "{engine}");
        assert_eq!(call("3@example.org"), Ok(vec![Value::Int4(3), Value::Int4(22)]), "{engine}");
        // No person has it: the actions that depend on it are left out.
        assert_eq!(call("x@example.org"), Ok(vec![Value::Null]), "{engine}");
    });
}

/// The entries of a town, by a prefix of the key; within the transaction, as its own writes leave them.
#[test]
fn entries_are_those_that_the_transaction_would_see() {
    let list = || {
        let list = Action::shared("people", |tx, arguments, outputs| {
            let town = arguments.values()[0].clone();
            let scan = Scan::prefix(arguments.index(), vec![town.clone()]);
            tx.entries(arguments.table()?, &scan, |key, entry| {
                assert_eq!(entry.get("town")?, town);
                assert_ne!(*key, rialto::RowKey::default());
                outputs.push(entry.read::<i32>("id")?);
                Ok(ControlFlow::Continue(()))
            })
        });
        list.on_index("people_by_town").by_argument(0)
    };
    let mix = Action::exclusive("people", |tx, arguments, _| {
        let people = arguments.table()?;
        tx.delete(people, 0)?;
        tx.update(people, 2, &[(2, "Bonn".into())])?;
        tx.update(people, 4, &[(3, Value::Int4(1))])?;
        tx.update(people, 1, &[(2, "Ulm".into())])?;
        tx.insert(people, &person(9, "Ulm"))
    });
    each_in_place(|engine, db| {
        let flow = Flow::new().phase([list()]).phase([mix.clone()]).phase([list()]);
        db.register(Procedure::new("twice", [ColumnType::Text], flow)).unwrap();
        db.register(Procedure::new("once", [ColumnType::Text], list())).unwrap();
        let ids = |outputs: Result<Vec<Value>>| -> Vec<Value> { outputs.unwrap() };
        let int4 = |numbers: &[i32]| numbers.iter().copied().map(Value::Int4).collect::<Vec<_>>();
        let ulm = || [Value::Text("Ulm".to_owned())];
        assert_eq!(ids(db.call("once", &ulm())), int4(&[0, 2, 4]), "{engine}");
        assert_eq!(ids(db.call("twice", &ulm())), int4(&[0, 2, 4, 1, 4, 9]), "{engine}");
        assert_eq!(ids(db.call("once", &ulm())), int4(&[1, 4, 9]), "{engine}");
        assert_eq!(ids(db.call("once", &["Bonn".into()])), int4(&[2, 3, 5]), "{engine}");
        assert_eq!(ids(db.call("once", &["nowhere".into()])), [], "{engine}");
    });
}

/// NULLs are not equal: all people without an address have an entry of the same value.
#[test]
fn a_probe_of_a_unique_index_finds_no_row_by_null_alone() {
    each_in_place(|engine, db| {
        let count = Action::shared("people", |tx, arguments, outputs| {
            let mut found = 0;
            tx.entries(arguments.table()?, &Scan::prefix(BY_EMAIL, vec![Value::Null]), |_, entry| {
                assert_eq!(entry.read::<Option<String>>("email")?, None);
                found += 1;
                Ok(ControlFlow::Continue(()))
            })?;
            outputs.push(found);
            Ok(())
        });
        let count = count.on_index("people_by_email").by(|_| Value::Null);
        db.register(Procedure::new("without", [], count)).unwrap();
        assert_eq!(db.call("without", &[]), Ok(vec![Value::Int4(1)]), "{engine}");
        let people = db.table("people").unwrap();
        db.transact(|tx| tx.update(&people, 1, &[(1, Value::Null)])).unwrap();
        assert_eq!(db.call("without", &[]), Ok(vec![Value::Int4(2)]), "{engine}");
    });
}

#[test]
fn an_identifier_by_an_output_that_is_none_is_named() {
    each_in_place(|_, db| {
        let register = |name: &str, give: fn(&mut Outputs), action: Action| {
            let first = Action::shared("people", move |_, _, outputs| {
                give(outputs);
                Ok(())
            });
            let flow = Flow::new().phase([first]).phase([action]);
            db.register(Procedure::new(name, [], flow)).unwrap();
        };
        register("too few", |outputs| outputs.push(1), age().by_output(7));
        register("text", |outputs| outputs.push("Ulm"), age());
        register("null", |outputs| outputs.push(Value::Null), age());
        let too_few = reason(db.call("too few", &[]));
        assert!(too_few.contains("the identifier of its action on table \"people\""), "{too_few}");
        let text = reason(db.call("text", &[]));
        assert!(
            text.contains("action on table \"people\": part 1 is output 0 of earlier phases, Ulm:"),
            "{text}"
        );
        assert!(text.contains("\"id\" is of type int4"), "{text}");
        let null = reason(db.call("null", &[]));
        assert!(null.contains("part 1 is output 0 of earlier phases, NULL:"), "{null}");
    });
    // A claim's identifier is checked where identifiers are locked.
    let db = database(IN_PLACE);
    let claim = Action::claim("people", ActionMode::Shared).by_output(3);
    let nothing = Action::shared("people", |_, _, _| Ok(()));
    db.register(Procedure::new("claims", [], Flow::new().phase([nothing]).phase([claim]))).unwrap();
    let missing = reason(db.call("claims", &[]));
    assert!(missing.contains("part 1 is output 3, but earlier phases gave 0"), "{missing}");
    assert!(missing.contains("Action::when_output"), "{missing}");
    let absent = Action::shared("people", |_, _, _| Ok(())).on_index("by_height");
    db.register(Procedure::new("absent", [], absent)).unwrap();
    let absent = reason(db.call("absent", &[]));
    assert!(absent.contains("action on index \"by_height\" of table \"people\""), "{absent}");
    assert!(absent.contains("does not exist"), "{absent}");
}

#[test]
fn a_first_phase_has_no_outputs_to_go_by() {
    let db = database(Engine::thin());
    let refused = |action: Action| reason(db.register(Procedure::new("p", [ColumnType::Text], action)));
    let by = refused(age());
    assert!(by.contains("the action on table \"people\" in phase 1 is identified by output 0"), "{by}");
    let without = refused(find(ScanMode::Share).when_output(2));
    assert!(without.contains("in phase 1 is left out without output 2"), "{without}");
}

/// A call that waits in its last phase, with all its earlier locks.
struct Held<'a> {
    db: &'a Database,
}

impl Held<'_> {
    fn during(&self, name: &str, flow: Flow, arguments: &[Value], check: impl FnOnce()) {
        let reached = std::sync::Arc::new((AtomicBool::new(false), AtomicBool::new(false)));
        let told = reached.clone();
        let pause = Flow::of(move |_, _, _| {
            told.0.store(true, Ordering::SeqCst);
            while !told.1.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(())
        });
        let types = vec![ColumnType::Text; arguments.len()];
        let flow = flow.phase(pause.phases()[0].clone());
        self.db.register(Procedure::new(name, types, flow)).unwrap();
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| self.db.call(name, arguments).unwrap());
            while !reached.0.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            check();
            reached.1.store(true, Ordering::SeqCst);
            holder.join().unwrap();
        });
    }

    /// Whether another transaction would have to wait.
    fn waits<T>(&self, work: impl FnOnce(&mut Transaction) -> Result<T>) -> bool {
        let mut tx = self.db.begin().unwrap();
        tx.set_lock_policy(LockPolicy::Refuse);
        match work(&mut tx) {
            Ok(_) => false,
            Err(Error::WouldWait { .. }) => true,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The locks of an action on an index: with local locks its entries, present or not, and no row.
#[test]
fn an_action_on_an_index_locks_its_keys() {
    each_in_place(|engine, db| {
        let (held, people) = (Held { db }, db.table("people").unwrap());
        let local = engine.is_data_oriented();
        held.during("there", find(ScanMode::Share).into(), &["3@example.org".into()], || {
            assert!(held.waits(|tx| tx.delete(&people, 3)));
            assert!(held.waits(|tx| tx.update(&people, 3, &[(1, "other".into())])));
            assert_eq!(held.waits(|tx| tx.update(&people, 3, &[(3, Value::Int4(1))])), !local, "its age");
            assert!(!held.waits(|tx| tx.update(&people, 4, &[(1, "other".into())])));
        });
        held.during("absent", find(ScanMode::Share).into(), &["x@example.org".into()], || {
            assert!(held.waits(|tx| tx.update(&people, 3, &[(1, "x@example.org".into())])));
            assert!(!held.waits(|tx| tx.update(&people, 3, &[(1, "y@example.org".into())])));
        });
        // A shared lock in the index, whatever the action does with what it finds.
        held.during("twice", find(ScanMode::Update).into(), &["3@example.org".into()], || {
            let probe = |tx: &mut Transaction| {
                tx.probe(&people, BY_EMAIL, "3@example.org", ScanMode::Share, |entry| entry.get("id"))
            };
            assert_eq!(held.waits(probe), !local);
            assert!(held.waits(|tx| tx.delete(&people, 3)));
        });
        let town = Action::shared("people", |tx, arguments, _| {
            let scan = Scan::prefix(arguments.index(), arguments.values().to_vec());
            tx.entries(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Continue(())))
        });
        let town = town.on_index("people_by_town").by_argument(0);
        held.during("town", town.into(), &["Ulm".into()], || {
            assert!(held.waits(|tx| tx.delete(&people, 2)), "no row leaves");
            assert!(held.waits(|tx| tx.update(&people, 2, &[(2, "Bonn".into())])));
            assert!(held.waits(|tx| tx.insert(&people, &person(9, "Ulm"))), "no row comes");
            assert!(held.waits(|tx| tx.update(&people, 1, &[(2, "Ulm".into())])));
            assert!(!held.waits(|tx| tx.insert(&people, &person(9, "Bonn"))));
            assert_eq!(held.waits(|tx| tx.update(&people, 2, &[(3, Value::Int4(1))])), !local);
        });
    });
}

#[test]
fn a_claim_locks_its_identifier_where_identifiers_are_locked() {
    each_in_place(|engine, db| {
        let (held, people) = (Held { db }, db.table("people").unwrap());
        let claim = Action::claim("people", ActionMode::Exclusive).by(|_| Value::Int4(2));
        assert!(claim.is_claim() && !age().is_claim());
        held.during("claims", claim.into(), &[], || {
            assert_eq!(held.waits(|tx| tx.get(&people, 2)), engine.is_data_oriented());
            assert!(!held.waits(|tx| tx.get(&people, 3)));
        });
    });
}

/// People move from town to town, by flows; their number never changes. They are counted by the index alone, while
/// their ages change, which are not in the index, and while the index's keys move from executor to executor.
#[test]
fn those_in_all_towns_are_as_many_as_ever() {
    const PEOPLE: i32 = 40;
    const TOWNS: [&str; 4] = ["Aachen", "Bonn", "Chemnitz", "Ulm"];
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let seconds = std::env::var("RIALTO_TEST_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let share = Duration::from_secs_f64(seconds / ENGINES.len() as f64);
    for engine in ENGINES {
        let db = database(engine);
        let people = db.table("people").unwrap();
        db.transact(|tx| {
            (6..PEOPLE).try_for_each(|id| tx.insert(&people, &person(id, TOWNS[id as usize % 4])))
        })
        .unwrap();
        towns(&db);
        let end = Instant::now() + share;
        let (moved, counted) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (db, moved, counted) = (&db, &moved, &counted);
            for thread in 0..2u64 {
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ thread);
                    let mut own = 0;
                    while own == 0 || Instant::now() < end {
                        own += 1;
                        let [from, to] = [0; 2].map(|_| Value::from(TOWNS[random.below(4) as usize]));
                        let outputs = db.call("move", &[from, to]).unwrap();
                        moved.fetch_add(u64::from(!outputs[0].is_null()), Ordering::Relaxed);
                        if random.chance(1, 3) {
                            let email = format!("{}@example.org", random.below(PEOPLE as u64));
                            db.call("birthday", &[Value::Text(email)]).unwrap();
                        }
                    }
                });
            }
            scope.spawn(move || {
                while counted.load(Ordering::Relaxed) == 0 || Instant::now() < end {
                    let outputs = db.call("count", &TOWNS.map(Value::from)).unwrap();
                    let counts: Vec<_> = outputs.iter().map(|count| count.to_string()).collect();
                    let [before, after] = [&outputs[..4], &outputs[4..]];
                    assert_eq!(before, after, "{engine}, RIALTO_SEED={seed}");
                    let sum: i32 = before
                        .iter()
                        .map(|count| if let Value::Int4(count) = count { *count } else { 0 })
                        .sum();
                    assert_eq!(sum, PEOPLE, "{engine}, RIALTO_SEED={seed}: {counts:?}");
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            if engine.is_data_oriented() {
                let mut random = Random::new(seed ^ 77);
                while Instant::now() < end {
                    let bounds: Vec<_> = (1..TOWNS.len()).filter(|_| random.chance(1, 2)).collect();
                    let bounds: Vec<_> = bounds.iter().map(|&town| vec![Value::from(TOWNS[town])]).collect();
                    db.set_routing("people", WhichIndex::Secondary(1), &bounds).unwrap();
                    std::thread::sleep(Duration::from_millis(1 + random.below(4)));
                }
            }
        });
        let (moved, counted) = (moved.into_inner(), counted.into_inner());
        println!(
            "tally: towns counted by their index, {engine}, {moved} moves, {counted} counts, RIALTO_SEED={seed}"
        );
        assert!(moved > 0 && counted > 0, "{engine}: {moved} moves, {counted} counts");
    }
}

/// `move` (from, to): the first person of one town moves to the other. `count` of four towns: how many are in each,
/// twice.
fn towns(db: &Database) {
    let first = Action::exclusive("people", |tx, arguments, outputs| {
        let town = arguments.values()[0].clone();
        let mode = ScanMode::Update;
        let scan = Scan { limit: Some(1), mode, ..Scan::prefix(arguments.index(), vec![town]) };
        let mut found = Value::Null;
        tx.entries(arguments.table()?, &scan, |_, entry| {
            found = entry.get(0)?;
            Ok(ControlFlow::Break(()))
        })?;
        outputs.push(found);
        Ok(())
    });
    let go = Action::exclusive("people", |tx, arguments, outputs| {
        let id = outputs.get::<i32>(0).expect("a number");
        tx.update(arguments.table()?, id, &[(2, arguments.values()[1].clone())]).map(drop)
    });
    let first = first.on_index("people_by_town").by_argument(0);
    let flow = Flow::new().phase([first]).phase([go.by_output(0).when_output(0)]);
    let text = ColumnType::Text;
    db.register(Procedure::new("move", [text, text], flow).deterministic(1)).unwrap();
    db.register(birthday()).unwrap();
    let count = |town: usize| {
        let count = Action::shared("people", move |tx, arguments, outputs| {
            let scan = Scan::prefix(arguments.index(), vec![arguments.values()[town].clone()]);
            let mut count = 0;
            tx.entries(arguments.table()?, &scan, |_, _| {
                count += 1;
                Ok(ControlFlow::Continue(()))
            })?;
            outputs.push(count);
            Ok(())
        });
        count.on_index("people_by_town").by_argument(town)
    };
    let all = || (0..4).map(count);
    db.register(Procedure::new("count", [text; 4], Flow::new().phase(all()).phase(all()))).unwrap();
}

/// Calls the procedure once with each of several contexts, all of which used the tables before the definition.
fn calls_after(
    engine: Engine,
    definition: fn(&mut Transaction) -> Result<()>,
    procedure: Procedure,
    arguments: &[Value],
) -> Vec<Result<Vec<Value>>> {
    let db = database(engine);
    let tables = ["people", "log"].map(|name| db.table(name).unwrap());
    let mut before: Vec<_> = (0..3).map(|_| db.begin().unwrap()).collect();
    for tx in &mut before {
        tables.iter().for_each(|table| assert_eq!(tx.get_at(table, &RowKey::default()), Ok(None)));
    }
    before.into_iter().for_each(|tx| tx.commit().unwrap());
    db.transact(definition).unwrap();
    let name = procedure.name.clone();
    db.register(procedure).unwrap();
    let mut kept = Vec::new();
    let calls = (0..3).map(|_| {
        let outcome = db.call(&name, arguments);
        // The next call has another context.
        kept.push(db.begin().unwrap());
        outcome
    });
    calls.collect()
}

/// Gives the number of entries that its identifier names.
fn count_entries(table: &str, index: &str) -> Action {
    let count = Action::shared(table, |tx, arguments, outputs| {
        let mut found = 0;
        let scan = Scan::prefix(arguments.index(), arguments.values()[..1].to_vec());
        tx.entries(arguments.table()?, &scan, |_, _| {
            found += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        outputs.push(found);
        Ok(())
    });
    count.on_index(index).by_argument(0)
}

#[test]
fn an_action_on_an_index_finds_one_made_since_its_context_used_the_table() {
    for engine in ENGINES {
        let procedure = Procedure::new("count", [ColumnType::Text], count_entries("log", "log_by_what"));
        let definition = |tx: &mut Transaction| tx.create_index("log", "log_by_what", &["what"], false);
        let outcomes = calls_after(engine, definition, procedure, &["x".into()]);
        assert_eq!(outcomes, vec![Ok(vec![Value::Int4(0)]); 3], "{engine:?}");
    }
}

#[test]
fn an_action_is_identified_by_a_key_given_since_its_context_used_the_table() {
    for engine in ENGINES {
        let get = Action::shared("log", |tx, arguments, outputs| {
            outputs.push(tx.get(arguments.table()?, arguments.get_str(0)?)?.is_some());
            Ok(())
        });
        let procedure = Procedure::new("get", [ColumnType::Text], get.by_argument(0));
        let definition = |tx: &mut Transaction| tx.add_primary_key("log", &["what"]);
        let outcomes = calls_after(engine, definition, procedure, &["x".into()]);
        assert_eq!(outcomes, vec![Ok(vec![Value::Bool(false)]); 3], "{engine:?}");
    }
}

/// Without "people_by_email" the index "people_by_town" has another position in the table's list.
#[test]
fn all_actions_of_a_phase_are_identified_by_one_version_of_their_table() {
    for engine in ENGINES {
        let actions = || (0..2).map(|_| count_entries("people", "people_by_town"));
        let before = Procedure::new("count", [ColumnType::Text], Flow::new().phase(actions()));
        let outcomes = calls_after(engine, |tx| tx.drop_index("people_by_email"), before, &["Ulm".into()]);
        assert_eq!(outcomes, vec![Ok(vec![Value::Int4(3); 2]); 3], "{engine:?}");
        // The identifier of the second action is wrong only by the old version.
        let behind = count_entries("people", "people_by_town_and_age");
        let actions = || [count_entries("people", "people_by_town"), behind.clone()];
        let both = Procedure::new("count", [ColumnType::Text], Flow::new().phase(actions()));
        let definition = |tx: &mut Transaction| {
            tx.drop_index("people_by_email")?;
            tx.create_index("people", "people_by_town_and_age", &["town", "age"], false)
        };
        let outcomes = calls_after(engine, definition, both, &["Ulm".into()]);
        assert_eq!(outcomes, vec![Ok(vec![Value::Int4(3); 2]); 3], "{engine:?}");
    }
}

#[test]
fn an_error_of_an_identifier_is_that_of_the_table_as_it_is() {
    for engine in ENGINES {
        let procedure =
            Procedure::new("count", [ColumnType::Text], count_entries("people", "people_by_town"));
        let definition = |tx: &mut Transaction| tx.drop_index("people_by_town");
        for outcome in calls_after(engine, definition, procedure, &["Ulm".into()]) {
            let reason = reason(outcome);
            assert!(reason.contains("index \"people_by_town\" does not exist"), "{engine:?}: {reason}");
        }
    }
}

/// A closure makes the table, or the index, of a later action of the same phase, on every engine.
#[test]
fn an_action_finds_what_a_closure_before_it_in_its_phase_has_made() {
    for engine in ENGINES {
        let db = database(engine);
        let make = Flow::of(|tx, _, _| {
            let columns = vec![Column::new("id", ColumnType::Int4)];
            tx.create_table(&TableDef::new("new", columns).with_primary_key(&["id"]))?;
            tx.create_index("people", "people_by_age", &["age"], false)
        });
        let make = make.phases()[0][0].clone();
        let fill =
            Action::exclusive("new", |tx, arguments, _| tx.insert(arguments.table()?, arguments.values()));
        let first = Action::shared("people", |tx, arguments, outputs| {
            let of_age = Scan::prefix(arguments.index(), arguments.values().to_vec());
            tx.entries(arguments.table()?, &of_age, |_, entry| {
                outputs.push(entry.read::<i32>("id")?);
                Ok(ControlFlow::Break(()))
            })
        });
        let flow =
            Flow::new().phase([make, fill.by_argument(0), first.on_index("people_by_age").by_argument(0)]);
        db.register(Procedure::new("p", [ColumnType::Int4], flow)).unwrap();
        assert_eq!(db.call("p", &[Value::Int4(20)]), Ok(vec![Value::Int4(0)]), "{engine}");
        let new = db.table("new").unwrap();
        assert_eq!(db.transact(|tx| tx.count(&new)), Ok(1), "{engine}");
    }
}
