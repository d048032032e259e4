//! Procedures: flows under a name, called with arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Decimal, Value};
use rialto::{
    Action, Arguments, Database, Error, Flow, Options, Outputs, Procedure, Result, TableDef, Transaction,
    TxOptions,
};

use crate::common::engines;

fn database() -> Database {
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    db.transact(|tx| {
        let columns = vec![Column::new("branch", ColumnType::Int4), Column::new("balance", ColumnType::Int8)];
        let branches = tx.create_table(&TableDef::new("branches", columns).with_primary_key(&["branch"]))?;
        let columns = vec![
            Column::new("branch", ColumnType::Int4),
            Column::new("account", ColumnType::Int4),
            Column::new("balance", ColumnType::Int8),
        ];
        let key = ["branch", "account"];
        let accounts = tx.create_table(&TableDef::new("accounts", columns).with_primary_key(&key))?;
        let columns = vec![Column::new("account", ColumnType::Int4), Column::new("delta", ColumnType::Int8)];
        tx.create_table(&TableDef::new("history", columns))?;
        for branch in 0..2 {
            tx.insert(&branches, &[Value::Int4(branch), Value::Int8(0)])?;
            for account in 0..10 {
                let account = Value::Int4(branch * 10 + account);
                tx.insert(&accounts, &[Value::Int4(branch), account, Value::Int8(0)])?;
            }
        }
        Ok(())
    })
    .unwrap();
    db
}

fn branch_of(arguments: &[Value]) -> Value {
    match arguments[0] {
        Value::Int4(account) => Value::Int4(account / 10),
        _ => Value::Null,
    }
}

fn pay_account(tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
    let (account, delta) = (arguments.get::<i32>(0)?, arguments.get::<i64>(1)?);
    let mut balance = 0;
    let there = tx.modify(arguments.table()?, (account / 10, account), |row| {
        balance = row.add_i64(2, delta)?;
        Ok(())
    })?;
    outputs.push(balance);
    if there { Ok(()) } else { Err(Error::aborted("no such account")) }
}

/// Adds to an account, to its branch and to the history. Gives the account's balance, then what the history saw.
fn pay() -> Procedure {
    let flow = Flow::new()
        .phase([
            Action::exclusive("accounts", pay_account).by(branch_of).by_argument(0),
            Action::exclusive("branches", |tx, arguments, _| {
                let (branch, delta) = (arguments.get::<i32>(0)? / 10, arguments.get::<i64>(1)?);
                tx.modify(arguments.table()?, branch, |row| row.add_i64(1, delta).map(drop)).map(drop)
            })
            .by(branch_of),
        ])
        .phase([Action::exclusive("history", |tx, arguments, outputs| {
            outputs.push(outputs.get::<i64>(0));
            tx.insert(arguments.table()?, arguments.values())
        })
        .by_argument(0)]);
    Procedure::new("pay", [ColumnType::Int4, ColumnType::Int8], flow)
}

fn reason(result: Result<impl Sized>) -> String {
    match result {
        Err(Error::Procedure { reason, .. }) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[test]
fn a_flow_runs_phase_by_phase_as_one_transaction() {
    let db = database();
    db.register(pay()).unwrap();
    let pay = |account: i32, delta: i64| db.call("pay", &[account.into(), delta.into()]);
    assert_eq!(pay(12, 5), Ok(vec![Value::Int8(5), Value::Int8(5)]));
    assert_eq!(pay(12, -2), Ok(vec![Value::Int8(3), Value::Int8(3)]));
    let (outputs, ticket) = db.submit_call("pay", &[Value::Int4(13), Value::Int8(1)]).unwrap();
    assert_eq!(outputs[0], Value::Int8(1));
    ticket.wait().unwrap();
    assert_eq!(pay(99, 1), Err(Error::aborted("no such account")));
    let (branches, history) = (db.table("branches").unwrap(), db.table("history").unwrap());
    db.read(|tx| {
        assert_eq!(tx.get(&branches, 1)?.unwrap().get("balance"), Ok(Value::Int8(4)));
        assert_eq!(tx.count(&history), Ok(3));
        Ok(())
    })
    .unwrap();
}

#[test]
fn an_action_sees_the_writes_before_it_but_no_output_of_its_own_phase() {
    let db = database();
    let add = || {
        Action::exclusive("branches", |tx, arguments, outputs: &mut Outputs| {
            assert!(outputs.get::<i64>(0).is_none());
            let mut sum = 0;
            tx.modify(arguments.table()?, arguments.get::<i32>(0)?, |row| {
                sum = row.add_i64(1, 1)?;
                Ok(())
            })?;
            outputs.push(sum);
            assert!(outputs.earlier().is_empty());
            Ok(())
        })
        .by_argument(0)
    };
    let look = Action::shared("branches", |tx, arguments, outputs| {
        assert_eq!(outputs.earlier(), [Value::Int8(1), Value::Int8(2)]);
        let row = tx.get(arguments.table()?, arguments.get::<i32>(0)?)?.expect("a branch");
        outputs.push(row.get("balance")?);
        Ok(())
    })
    .by_argument(0);
    let flow = Flow::new().phase([add(), add()]).phase([look]);
    db.register(Procedure::new("twice", [ColumnType::Int4], flow)).unwrap();
    assert_eq!(db.call("twice", &[Value::Int4(0)]), Ok([1i64, 2, 2].map(Value::Int8).to_vec()));
}

#[test]
fn a_closure_is_a_flow_of_one_action() {
    let db = database();
    let flow = Flow::of(|tx, arguments, outputs| {
        assert!(matches!(arguments.table(), Err(Error::Procedure { .. })));
        let table = tx.table(arguments.get_str(0)?)?;
        outputs.push(tx.count(&table)? as i64);
        Ok(())
    });
    db.register(Procedure::new("count", [ColumnType::Text], flow)).unwrap();
    assert_eq!(db.call("count", &["accounts".into()]), Ok(vec![Value::Int8(20)]));
    let missing = Err(Error::NoSuchTable { table: "absent".to_owned() });
    assert_eq!(db.call("count", &["absent".into()]), missing);
}

#[test]
fn wrong_names_and_arguments_say_what_was_expected() {
    let db = database();
    let unknown = reason(db.call("pay", &[]));
    assert!(unknown.contains("expected one of those registered") && unknown.contains("none"), "{unknown}");
    db.register(pay()).unwrap();
    assert!(reason(db.call("paye", &[])).contains("\"pay\""));
    assert_eq!(reason(db.call("pay", &[Value::Int4(1)])), "expected arguments (int4, int8), found (int4)");
    assert_eq!(
        reason(db.call("pay", &["1".into(), Value::Int8(1)])),
        "expected arguments (int4, int8), found (text, int8): argument \"argument 0\" is of type int4, but the value \
         is text"
    );
    assert!(reason(db.call("pay", &[Value::Int8(1 << 40), Value::Int8(1)])).contains("out of range"));
    let null = reason(db.call("pay", &[Value::Int4(1), Value::Null]));
    assert!(null.contains("its body reads argument 1 as i64, but it is"), "{null}");
    let null = reason(db.call("pay", &[Value::Null, Value::Int8(1)]));
    assert!(null.contains("the identifier of its action on table \"accounts\""), "{null}");
}

#[test]
fn arguments_become_values_of_the_declared_types() {
    let db = database();
    let flow = Flow::of(|_, arguments, outputs| {
        arguments.values().iter().for_each(|value| outputs.push(value.clone()));
        Ok(())
    });
    let types = [
        ColumnType::Int8,
        ColumnType::Decimal { precision: 8, scale: 2 },
        ColumnType::Char(3),
        ColumnType::Date,
    ];
    db.register(Procedure::new("echo", types, flow)).unwrap();
    let tenth: Decimal = "0.1".parse().unwrap();
    let outputs = db.call("echo", &[Value::Int2(7), tenth.into(), "a  ".into(), Value::Null]).unwrap();
    assert_eq!(outputs, [Value::Int8(7), tenth.into(), "a".into(), Value::Null]);
    assert!(matches!(outputs[1], Value::Decimal(decimal) if decimal.scale() == 2));
}

#[test]
fn an_action_keeps_to_its_table_identifier_and_mode() {
    let db = database();
    let set = |tx: &mut Transaction, arguments: &Arguments<'_>| {
        tx.update(arguments.table()?, 1, &[(1, Value::Int8(9))]).map(drop)
    };
    let register =
        |name: &str, flow: Action| db.register(Procedure::new(name, [ColumnType::Int4], flow)).unwrap();
    register("reads", Action::shared("branches", move |tx, arguments, _| set(tx, arguments)));
    register(
        "leaves_scope",
        Action::exclusive("branches", move |tx, arguments, _| set(tx, arguments)).by_argument(0),
    );
    register(
        "elsewhere",
        Action::exclusive("accounts", |tx, _, _| {
            let branches = tx.table("branches")?;
            tx.delete(&branches, 1).map(drop)
        }),
    );
    register("whole", Action::exclusive("branches", move |tx, arguments, _| set(tx, arguments)));
    let branch = |nth: i32| [Value::Int4(nth)];
    assert!(reason(db.call("reads", &branch(1))).contains("is in shared mode"));
    let refused = reason(db.call("leaves_scope", &branch(0)));
    assert!(refused.contains("which its identifier does not begin"), "{refused}");
    let elsewhere = reason(db.call("elsewhere", &branch(0)));
    assert!(elsewhere.contains("wrote to table \"branches\""), "{elsewhere}");
    let branches = db.table("branches").unwrap();
    let balance = || db.read(|tx| tx.get(&branches, 1)?.expect("a branch").get("balance")).unwrap();
    assert_eq!(balance(), Value::Int8(0), "what is refused leaves nothing");
    db.call("leaves_scope", &branch(1)).unwrap();
    assert_eq!(balance(), Value::Int8(9));
    db.call("whole", &branch(0)).unwrap();
    let read_only = TxOptions { read_only: true, ..TxOptions::default() };
    assert_eq!(db.call_with(&read_only, "whole", &branch(0)), Err(Error::ReadOnly));
}

#[test]
fn a_higher_version_replaces_a_lower_one() {
    let db = database();
    let procedure = |version: i32| {
        let flow = Flow::of(move |_, _, outputs| {
            outputs.push(version);
            Ok(())
        });
        Procedure::new("version", [], flow).with_version(version as u32)
    };
    db.register(procedure(2)).unwrap();
    assert!(reason(db.register(procedure(2))).contains("version 2 is registered already"));
    assert!(reason(db.register(procedure(1))).contains("give it a higher one"));
    db.register(procedure(3)).unwrap();
    assert_eq!(db.call("version", &[]), Ok(vec![Value::Int4(3)]));
}

#[test]
fn a_flow_that_makes_no_sense_is_refused() {
    let db = database();
    let refused = |flow: Flow| reason(db.register(Procedure::new("p", [ColumnType::Int4], flow)));
    assert!(refused(Flow::new()).contains("has no phase"));
    assert!(refused(Flow::of(|_, _, _| Ok(())).phase([])).contains("phase 2 of its flow has no action"));
    let action = Action::shared("t", |_, _, _| Ok(())).by_argument(1);
    assert!(refused(action.into()).contains("is identified by argument 1, but there are 1"));
    let too_many = Flow::new().phase(vec![Action::shared("t", |_, _, _| Ok(())); 65_537]);
    assert!(refused(too_many).contains("phase 1 of its flow has 65537 actions, expected at most 65536"));
    assert!(reason(db.register(Procedure::new("", [], Flow::of(|_, _, _| Ok(()))))).contains("needs a name"));
}

#[test]
fn an_action_is_left_out_of_the_calls_that_it_is_not_of() {
    let db = database();
    let give = |branch: i32| {
        Action::exclusive("branches", move |tx, arguments, outputs| {
            tx.modify(arguments.table()?, branch, |row| row.add_i64(1, 1).map(drop))?;
            outputs.push(branch);
            Ok(())
        })
    };
    // The first argument is the branch of the action that only some calls have: NULL is no branch.
    let either = give(0).by_argument(0).when(|arguments| !arguments[0].is_null());
    assert!(either.is_part_of(&[Value::Int4(0)], &[]) && !either.is_part_of(&[Value::Null], &[]));
    let or = give(1).by(|_| Value::Int4(1)).when(|arguments| arguments[0].is_null());
    let count = Action::shared("branches", |_, _, outputs| {
        outputs.push(outputs.earlier().len() as i32);
        Ok(())
    });
    db.register(Procedure::new("either", [ColumnType::Int4], Flow::new().phase([either, or]).phase([count])))
        .unwrap();
    assert_eq!(db.call("either", &[Value::Int4(0)]), Ok(vec![Value::Int4(0), Value::Int4(1)]));
    assert_eq!(db.call("either", &[Value::Null]), Ok(vec![Value::Int4(1), Value::Int4(1)]));
    // An action that is part of the call is still bound to its identifier.
    let wrong = reason(db.call("either", &[Value::Int4(1)]).map(drop));
    assert!(wrong.contains("which its identifier does not begin"), "{wrong}");
}

#[test]
fn a_procedure_outlives_its_tables() {
    let db = database();
    let count = Action::shared("history", |tx, arguments, outputs| {
        outputs.push(tx.count(arguments.table()?)? as i64);
        Ok(())
    });
    db.register(Procedure::new("count", [], count)).unwrap();
    let count = || db.call("count", &[]).map(|outputs| outputs[0].clone());
    assert_eq!(count(), Ok(Value::Int8(0)));
    db.transact(|tx| tx.drop_table("history")).unwrap();
    assert_eq!(count(), Err(Error::NoSuchTable { table: "history".to_owned() }));
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("history", vec![Column::new("n", ColumnType::Int4)]))?;
        tx.insert(&table, &[Value::Int4(1)])
    })
    .unwrap();
    assert_eq!(count(), Ok(Value::Int8(1)));
    db.transact(|tx| tx.create_index("history", "by_n", &["n"], true)).unwrap();
    assert_eq!(count(), Ok(Value::Int8(1)));
}

#[test]
fn a_flow_that_deadlocks_runs_again_and_gives_its_outputs_once() {
    let db = database();
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let visit = |order: [i32; 2]| {
        let counted = counted.clone();
        let phase = |branch: i32| {
            let counted = counted.clone();
            Action::exclusive("branches", move |tx, arguments, outputs| {
                counted.fetch_add(1, Ordering::Relaxed);
                tx.modify(arguments.table()?, branch, |row| row.add_i64(1, 1).map(drop))?;
                outputs.push(branch);
                Ok(())
            })
        };
        Flow::new().phase([phase(order[0])]).phase([phase(order[1])])
    };
    db.register(Procedure::new("up", [], visit([0, 1]))).unwrap();
    db.register(Procedure::new("down", [], visit([1, 0]))).unwrap();
    std::thread::scope(|scope| {
        for (name, order) in [("up", [0, 1]), ("down", [1, 0])] {
            let db = &db;
            scope.spawn(move || {
                for _ in 0..200 {
                    assert_eq!(db.call(name, &[]), Ok(order.map(Value::Int4).to_vec()));
                }
            });
        }
    });
    assert!(attempts.load(Ordering::Relaxed) >= 800);
    let branches = db.table("branches").unwrap();
    let balance = db.read(|tx| tx.get(&branches, 0)?.expect("a branch").get("balance"));
    assert_eq!(balance, Ok(Value::Int8(400)));
}

/// A procedure that gives its version.
fn version_of(version: u32) -> Procedure {
    let flow = Flow::of(move |_, arguments, outputs| {
        outputs.push(i64::from(version) + arguments.get::<i64>(0)?);
        if version == 3 { Err(Error::aborted("the third fails")) } else { Ok(()) }
    });
    Procedure::new("version", [ColumnType::Int8], flow).with_version(version)
}

#[test]
fn a_prepared_call_is_of_the_version_that_is_registered_when_it_is_called() {
    let db = database();
    let none = db.prepare_call("version").unwrap_err();
    assert!(none.to_string().contains("version"), "{none}");
    db.register(version_of(1)).unwrap();
    let mut call = db.prepare_call("version").unwrap();
    assert_eq!(call.name(), "version");
    assert_eq!(call.call(&[Value::Int8(10)]).unwrap(), [Value::Int8(11)]);
    db.register(version_of(2)).unwrap();
    assert_eq!(call.call(&[Value::Int4(20)]).unwrap(), [Value::Int8(22)], "an int4 stands for an int8");
    let (given, ticket) = call.submit(&[Value::Int8(30)]).unwrap();
    assert_eq!(given, [Value::Int8(32)]);
    ticket.wait().unwrap();
    // The outputs of a failed call are gone, and the next call is of the next version.
    db.register(version_of(3)).unwrap();
    assert_eq!(call.call(&[Value::Int8(40)]), Err(Error::aborted("the third fails")));
    let wrong = call.call(&[]).unwrap_err();
    assert!(wrong.to_string().contains("expected arguments (int8), found ()"), "{wrong}");
    db.register(version_of(4)).unwrap();
    assert_eq!(call.call(&[Value::Int8(50)]).unwrap(), [Value::Int8(54)]);
}

#[test]
fn prepared_calls_do_what_calls_do_on_every_engine() {
    for engine in engines::each(64) {
        let options = Options { memory_bytes: 64 << 20, engine, ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
        let definition = TableDef::new("counters", columns).with_primary_key(&["id"]);
        let counters = db.transact(|tx| tx.create_table(&definition)).unwrap();
        let rows = |tx: &mut Transaction| {
            (0..4).try_for_each(|id| tx.insert(&counters, &[Value::Int4(id), Value::Int8(0)]))
        };
        db.transact(rows).unwrap();
        let add = Action::exclusive("counters", |tx, arguments, outputs| {
            let (mut sum, delta) = (0, arguments.get::<i64>(1)?);
            tx.modify(arguments.table()?, arguments.get::<i32>(0)?, |row| {
                sum = row.add_i64(1, delta)?;
                Ok(())
            })?;
            outputs.push(sum);
            if sum < 0 { Err(Error::aborted("below zero")) } else { Ok(()) }
        });
        db.register(Procedure::new("add", [ColumnType::Int4, ColumnType::Int8], add.by_argument(0))).unwrap();
        let mut prepared = db.prepare_call_with(&TxOptions::default(), "add").unwrap();
        for round in 1..=20 {
            let arguments = [Value::Int4(round % 4), Value::Int8(1)];
            assert_eq!(prepared.call(&arguments).unwrap(), [Value::Int8(i64::from((round + 3) / 4 * 3 - 2))]);
            let (given, ticket) = prepared.submit(&arguments).unwrap();
            let given = given.to_vec();
            ticket.wait().unwrap();
            assert_eq!(db.call("add", &arguments).unwrap(), [Value::Int8(i64::from((round + 3) / 4 * 3))]);
            assert_eq!(given, [Value::Int8(i64::from((round + 3) / 4 * 3 - 1))]);
        }
        let less = [Value::Int4(0), Value::Int8(-100)];
        assert_eq!(prepared.call(&less), Err(Error::aborted("below zero")), "{engine}");
        assert_eq!(db.call("add", &[Value::Int4(0), Value::Int8(0)]).unwrap(), [Value::Int8(15)]);
    }
}
