//! What an action may touch, and may not: the same on every engine.

use super::*;

/// A database with procedures of one action each that do something forbidden, on person 2 if they have an identifier.
fn refused(action: fn(Body) -> Action, body: Body) -> Vec<String> {
    ENGINES
        .into_iter()
        .filter(|engine| *engine != ON_THREADS)
        .map(|engine| {
            let db = database(engine);
            db.register(Procedure::new("leaves_scope", [], action(body))).unwrap();
            let before = rows(&db);
            let refused = reason(db.call("leaves_scope", &[]));
            assert_eq!(rows(&db), before, "what is refused leaves nothing");
            // The body ignores the error.
            let swallowed = move |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
                let _ = body(tx, arguments, outputs);
                Ok(())
            };
            let mode = action(body).mode();
            let swallows = match (mode, action(body).index(), action(body).identifier().is_empty()) {
                (ActionMode::Shared, Some(index), _) => {
                    Action::shared("people", swallowed).on_index(index).by(|_| "Ulm".into())
                }
                (ActionMode::Shared, None, false) => {
                    Action::shared("people", swallowed).by(|_| Value::Int4(2))
                }
                (ActionMode::Shared, None, true) => Action::shared("people", swallowed),
                (ActionMode::Exclusive, ..) => Action::exclusive("people", swallowed).by(|_| Value::Int4(2)),
            };
            db.register(Procedure::new("swallows", [], swallows)).unwrap();
            assert_eq!(reason(db.call("swallows", &[])), refused, "{engine}");
            refused
        })
        .collect()
}

type Body = fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()>;

fn rows(db: &Database) -> Vec<String> {
    let mut all = Vec::new();
    for name in ["people", "log"] {
        let table = db.table(name).unwrap();
        db.transact(|tx| {
            tx.scan(&table, &Scan::all(), |_, row| {
                all.push(row.to_string());
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
    }
    all
}

fn reads(body: Body) -> Vec<String> {
    refused(|body| Action::shared("people", body).by(|_| Value::Int4(2)), body)
}

fn writes(body: Body) -> Vec<String> {
    refused(|body| Action::exclusive("people", body).by(|_| Value::Int4(2)), body)
}

fn reads_all(body: Body) -> Vec<String> {
    refused(|body| Action::shared("people", body), body)
}

fn reads_town(body: Body) -> Vec<String> {
    refused(|body| Action::shared("people", body).on_index("people_by_town").by(|_| "Ulm".into()), body)
}

/// All forms give the same error, and this one.
#[track_caller]
fn says(refused: Vec<String>, expected: &[&str]) {
    assert!(refused.iter().all(|text| *text == refused[0]), "{refused:?}");
    for expected in expected {
        assert!(refused[0].contains(expected), "expected {expected:?} in {:?}", refused[0]);
    }
}

const ON_ROW: &str = "its action on table \"people\", identified by (id)=(2),";

#[test]
fn an_action_reads_no_row_that_its_identifier_does_not_begin() {
    let outside = [ON_ROW, "read the row (id)=(3), which its identifier does not begin"];
    says(reads(|tx, arguments, _| tx.get(arguments.table()?, 3).map(drop)), &outside);
    says(reads(|tx, arguments, _| tx.look(arguments.table()?, 3, |_| ()).map(drop)), &outside);
    let absent = "read the row (id)=(77)";
    says(reads(|tx, arguments, _| tx.get(arguments.table()?, 77).map(drop)), &[ON_ROW, absent]);
    says(writes(|tx, arguments, _| tx.get_for_update(arguments.table()?, 3).map(drop)), &outside);
    let found = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        tx.look_by(arguments.table()?, BY_EMAIL, "2@example.org", ScanMode::Share, |_| ()).map(drop)
    };
    let by_index = "read by \"people_by_email\", whose keys do not begin with the columns of its identifier";
    says(reads(found), &[ON_ROW, by_index, "Action::on_index"]);
}

#[test]
fn an_action_scans_nothing_that_its_identifier_does_not_begin() {
    let whole = "read keys of \"people_pkey\" from the beginning to the end";
    says(reads(|tx, arguments, _| tx.count(arguments.table()?).map(drop)), &[ON_ROW, whole]);
    let from_two_on = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        let scan = Scan { lower: KeyBound::Included(vec![Value::Int4(2)]), ..Scan::all() };
        tx.scan(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Break(())))
    };
    says(reads(from_two_on), &[ON_ROW, "read keys of \"people_pkey\" from (id)=(2) to the end"]);
    let beyond = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        let (lower, upper) =
            (KeyBound::Included(vec![Value::Int4(2)]), KeyBound::Included(vec![Value::Int4(3)]));
        let scan = Scan { lower, upper, ..Scan::all() };
        tx.scan(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Continue(())))
    };
    says(reads(beyond), &[ON_ROW, "from (id)=(2) to (id)=(4), which its identifier does not all begin"]);
    let by_town = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        let scan = Scan::prefix(WhichIndex::Secondary(1), vec!["Ulm".into()]);
        tx.scan(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Continue(())))
    };
    says(reads(by_town), &[ON_ROW, "read by \"people_by_town\""]);
    let entries = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        let scan = Scan::prefix(WhichIndex::Secondary(1), vec!["Ulm".into()]);
        tx.entries(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Continue(())))
    };
    says(reads(entries), &[ON_ROW, "read by \"people_by_town\""]);
}

#[test]
fn an_action_writes_no_row_that_its_identifier_does_not_begin() {
    let outside = "wrote the row (id)=(3), which its identifier does not begin";
    let three = [ON_ROW, outside];
    says(
        writes(|tx, arguments, _| tx.update(arguments.table()?, 3, &[(3, Value::Int4(1))]).map(drop)),
        &three,
    );
    says(writes(|tx, arguments, _| tx.delete(arguments.table()?, 3).map(drop)), &three);
    let absent = "wrote the row (id)=(77), which its identifier does not begin";
    says(writes(|tx, arguments, _| tx.delete(arguments.table()?, 77).map(drop)), &[ON_ROW, absent]);
    says(writes(|tx, arguments, _| tx.insert(arguments.table()?, &person(77, "Ulm"))), &[ON_ROW, absent]);
    // Its own row, but to another key.
    let moved = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        tx.update(arguments.table()?, 2, &[(0, Value::Int4(77))]).map(drop)
    };
    says(writes(moved), &[ON_ROW, absent]);
}

#[test]
fn an_action_keeps_to_its_table_even_without_an_identifier() {
    let other = "read table \"log\": make that an action of its own";
    let log = |tx: &mut Transaction, _: &Arguments<'_>, _: &mut Outputs| {
        let log = tx.table("log")?;
        tx.count(&log).map(drop)
    };
    says(reads(log), &[ON_ROW, other]);
    says(reads_all(log), &["its action on table \"people\", identified by all of it,", other]);
    let write = |tx: &mut Transaction, _: &Arguments<'_>, _: &mut Outputs| {
        let log = tx.table("log")?;
        tx.insert(&log, &[Value::Int4(2), "x".into()])
    };
    says(writes(write), &[ON_ROW, "wrote to table \"log\": make that an action of its own"]);
    // A part of a phase would have that lock, and release it when the phase is over.
    let lock = |tx: &mut Transaction, _: &Arguments<'_>, _: &mut Outputs| {
        let log = tx.table("log")?;
        tx.lock_for_writes(&log, &log.schema())
    };
    says(writes(lock), &[ON_ROW, "wrote to table \"log\": make that an action of its own"]);
    let drop_table = |tx: &mut Transaction, _: &Arguments<'_>, _: &mut Outputs| tx.drop_table("log");
    says(writes(drop_table), &[ON_ROW, "changed definitions, which only a plain closure may (Flow::of)"]);
}

#[test]
fn an_action_on_an_index_has_entries_of_its_keys_only() {
    let on_index = "its action on index \"people_by_town\" of table \"people\", identified by (town)=(Ulm),";
    let instead = "read rows in an action of a later phase";
    let row = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        tx.get(arguments.table()?, 2).map(drop)
    };
    says(reads_town(row), &[on_index, "read the row (id)=(2)", instead]);
    let rows = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        let scan = Scan::prefix(arguments.index(), vec!["Ulm".into()]);
        tx.scan(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Continue(())))
    };
    says(reads_town(rows), &[on_index, "read rows by \"people_by_town\"", instead]);
    let elsewhere = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        let scan = Scan::prefix(arguments.index(), vec!["Bonn".into()]);
        tx.entries(arguments.table()?, &scan, |_, _| Ok(ControlFlow::Continue(())))
    };
    says(reads_town(elsewhere), &[on_index, "from (town)=(Bonn)", "which its identifier does not all begin"]);
    let other = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        tx.probe(arguments.table()?, BY_EMAIL, "2@example.org", ScanMode::Share, |_| ()).map(drop)
    };
    says(reads_town(other), &[on_index, "by \"people_by_email\"", instead]);
    each_in_place(|_, db| {
        let age = Action::shared("people", |tx, arguments, outputs| {
            let (table, index) = (arguments.table()?, arguments.index());
            let age = tx.probe(table, index, "2@example.org", ScanMode::Share, |entry| entry.get("age"))?;
            outputs.push(age.transpose()?);
            Ok(())
        });
        let age = age.on_index("people_by_email").by(|_| "2@example.org".into());
        db.register(Procedure::new("age", [], age)).unwrap();
        let error = db.call("age", &[]).unwrap_err().to_string();
        assert!(
            error.contains("column \"age\" of table \"people\" from an entry of \"people_by_email\""),
            "{error}"
        );
    });
}

/// A table by its position, with an index that begins as its key does; and rows without a key.
#[test]
fn what_lies_inside_is_open() {
    each_in_place(|engine, db| {
        db.transact(|tx| {
            let columns = ["town", "house", "floor", "rent"].map(|name| Column::new(name, ColumnType::Int4));
            let def = TableDef::new("flats", columns.to_vec()).with_primary_key(&["town", "house", "floor"]);
            let flats = tx.create_table(&def)?;
            tx.create_index("flats", "flats_by_rent", &["town", "rent"], false)?;
            for n in 0..27 {
                tx.insert(&flats, &[n / 9, n / 3 % 3, n % 3, 100 - n].map(Value::Int4))?;
            }
            Ok(())
        })
        .unwrap();
        let cheapest = Action::exclusive("flats", |tx, arguments, outputs| {
            let (table, town) = (arguments.table()?, arguments.get::<i32>(0)?);
            let by_rent = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(town)]);
            let mut found = None;
            tx.scan(table, &Scan { limit: Some(1), ..by_rent }, |_, row| {
                found = Some((row.get_i32(0)?, row.get_i32(1)?, row.get_i32(2)?));
                Ok(ControlFlow::Break(()))
            })?;
            let found = found.expect("a town has flats");
            tx.update(table, found, &[(3, Value::Int4(7))])?;
            let house = Scan::prefix(WhichIndex::Primary, vec![Value::Int4(town), Value::Int4(found.1)]);
            tx.scan(table, &house, |_, row| {
                outputs.push(row.get_i32(3)?);
                Ok(ControlFlow::Continue(()))
            })?;
            let above = Scan {
                lower: KeyBound::Excluded(vec![Value::Int4(town), Value::Int4(1)]),
                upper: KeyBound::Included(vec![Value::Int4(town)]),
                ..Scan::all()
            };
            let mut count = 0;
            tx.scan(table, &above, |_, _| {
                count += 1;
                Ok(ControlFlow::Continue(()))
            })?;
            outputs.push(count);
            Ok(())
        });
        db.register(Procedure::new("cheapest", [ColumnType::Int4], cheapest.by_argument(0))).unwrap();
        let expected = [Value::Int4(85), Value::Int4(84), Value::Int4(7), Value::Int4(3)].to_vec();
        assert_eq!(db.call("cheapest", &[Value::Int4(1)]), Ok(expected), "{engine}");
        let whole = Action::shared("flats", |tx, arguments, outputs| {
            outputs.push(tx.count(arguments.table()?)? as i64);
            tx.get(arguments.table()?, (0, 0, 0)).map(drop)
        });
        db.register(Procedure::new("whole", [], whole)).unwrap();
        assert_eq!(db.call("whole", &[]), Ok(vec![Value::Int8(27)]), "{engine}");
    });
}

/// Rows without a primary key belong to the identifier in their first columns, and are reached by nothing else.
#[test]
fn rows_without_a_key_are_held_against_their_first_columns() {
    each_in_place(|engine, db| {
        let insert = Action::exclusive("log", |tx, arguments, _| {
            tx.insert(arguments.table()?, &[arguments.values()[1].clone(), "x".into()])
        });
        let int4 = ColumnType::Int4;
        db.register(Procedure::new("insert", [int4, int4], insert.by_argument(0))).unwrap();
        db.call("insert", &[Value::Int4(4), Value::Int4(4)]).unwrap();
        let elsewhere = reason(db.call("insert", &[Value::Int4(4), Value::Int4(5)]));
        assert_eq!(
            elsewhere,
            "its action on table \"log\", identified by (id)=(4), wrote a row (id)=(5), which its identifier does not \
             begin",
            "{engine}"
        );
        let clear = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
            let mut keys = Vec::new();
            tx.scan(arguments.table()?, &Scan::all(), |key, _| {
                keys.push(key.clone());
                Ok(ControlFlow::Continue(()))
            })?;
            keys.iter().try_for_each(|key| tx.delete_at(arguments.table()?, key).map(drop))
        };
        let of_one = Action::exclusive("log", clear).by_argument(0);
        db.register(Procedure::new("clear one", [int4], of_one)).unwrap();
        let refused = reason(db.call("clear one", &[Value::Int4(4)]));
        assert!(refused.contains("read keys of") || refused.contains("read by"), "{refused}");
        db.register(Procedure::new("clear", [], Action::exclusive("log", clear))).unwrap();
        db.call("clear", &[]).unwrap();
        let log = db.table("log").unwrap();
        assert_eq!(db.read(|tx| tx.count(&log)), Ok(0), "{engine}");
    });
}

/// An access out of scope is refused before it locks: beside another transaction, which has locked a row of it, and in a
/// part of a phase, whose transaction has the table's intention.
#[test]
fn a_scan_of_the_whole_table_is_refused_before_it_waits() {
    let counts = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
        let _ = tx.count(arguments.table()?);
        Ok(())
    };
    let two = || {
        let changes = Action::exclusive("people", |tx, arguments, _| {
            tx.update(arguments.table()?, 1, &[(3, Value::Int4(7))]).map(drop)
        });
        let leaves_scope = Action::exclusive("people", counts).by(|_| Value::Int4(2));
        Procedure::new("two", [], Flow::new().phase([changes.by(|_| Value::Int4(1)), leaves_scope]))
    };
    for engine in ENGINES {
        let db = database(engine);
        if engine.is_data_oriented() {
            db.set_routing("people", WhichIndex::Primary, &[vec![Value::Int4(2)]]).unwrap();
        }
        db.register(two()).unwrap();
        let people = db.table("people").unwrap();
        let mut other = db.begin().unwrap();
        assert!(other.update(&people, 5, &[(3, Value::Int4(1))]).unwrap());
        let refused = reason(db.call("two", &[]));
        assert!(refused.contains("which its identifier does not all begin"), "{engine}: {refused}");
    }
}
