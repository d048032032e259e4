//! Calls whose tables and indexes have been replaced since they were prepared.

use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Arguments, Database, Error, Flow, Outputs, PreparedCall, Procedure, Result, ScanMode, TableDef,
    Transaction,
};

use super::{ENGINES, database};

pub fn on_every_engine(test: impl Fn(&str, &Database)) {
    ENGINES.into_iter().for_each(|engine| test(&engine.to_string(), &database(engine)));
}

/// Makes the table `things`, of a number for an identifier of this type, with one row.
fn make(tx: &mut Transaction, id: ColumnType, number: i64) -> Result<()> {
    let columns = vec![Column::new("id", id), Column::new("number", ColumnType::Int8)];
    let table = tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"]))?;
    tx.insert(&table, &[Value::Int2(7), Value::Int8(number)])
}

/// Gives the number of the row that the first argument names.
fn read(tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
    let number = tx.look(arguments.table()?, arguments.get::<i16>(0)?, |row| row.get(1))?;
    outputs.push(number.unwrap_or(Value::Null));
    Ok(())
}

/// Gives the identifier of the entry that the first argument names.
fn probe(tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
    let (table, index, key) = (arguments.table()?, arguments.index(), arguments.get::<i16>(0)?);
    let found = tx.probe(table, index, key, ScanMode::Share, |entry| entry.get("id"))?;
    outputs.push(found.transpose()?.unwrap_or(Value::Null));
    Ok(())
}

/// The results of three calls: the later ones find their tables as the transaction before them left them.
fn thrice(call: &mut PreparedCall, argument: i16) -> Result<Vec<Value>> {
    let mut given = || call.call(&[Value::Int2(argument)]).map(<[Value]>::to_vec);
    let first = given();
    for again in [given(), given()] {
        assert_eq!(again, first);
    }
    first
}

fn prepared(db: &Database, name: &str, flow: impl Into<Flow>) -> PreparedCall {
    db.register(Procedure::new(name, [ColumnType::Int2], flow)).unwrap();
    db.prepare_call(name).unwrap()
}

#[test]
fn prepared_calls_are_of_the_table_that_has_the_name() {
    on_every_engine(|about, db| {
        let mut read = prepared(db, "read", Action::shared("things", read).by_argument(0));
        let missing = || Err(Error::NoSuchTable { table: "things".to_owned() });
        assert_eq!(thrice(&mut read, 7), missing(), "{about}");
        db.transact(|tx| make(tx, ColumnType::Int8, 1)).unwrap();
        let mut read = db.prepare_call("read").unwrap();
        assert_eq!(thrice(&mut read, 7), Ok(vec![Value::Int8(1)]), "{about}");
        assert_eq!(thrice(&mut read, 8), Ok(vec![Value::Null]), "{about}");
        // A key of another type under the same name, with other bytes.
        let replace = |tx: &mut Transaction| {
            tx.drop_table("things")?;
            make(tx, ColumnType::Int4, 2)
        };
        let undone =
            db.transact(|tx| replace(tx).and_then(|()| Err::<(), _>(Error::aborted("another time"))));
        assert_eq!(undone, Err(Error::aborted("another time")));
        assert_eq!(thrice(&mut read, 7), Ok(vec![Value::Int8(1)]), "{about}");
        db.transact(replace).unwrap();
        assert_eq!(thrice(&mut read, 7), Ok(vec![Value::Int8(2)]), "{about}");
        assert_eq!(thrice(&mut read, 8), Ok(vec![Value::Null]), "{about}");
        db.transact(|tx| tx.drop_table("things")).unwrap();
        assert_eq!(thrice(&mut read, 7), missing(), "{about}");
    });
}

#[test]
fn prepared_calls_are_of_the_index_that_has_the_name() {
    on_every_engine(|about, db| {
        db.transact(|tx| make(tx, ColumnType::Int8, 1)).unwrap();
        let probe = Action::shared("things", probe).on_index("by_number").by_argument(0);
        let mut probe = prepared(db, "probe", probe);
        let says_that_it_is_missing = |found: Result<Vec<Value>>| {
            let error = found.unwrap_err().to_string();
            assert!(error.contains("\"by_number\"") && error.contains("identifier"), "{about}: {error}");
        };
        says_that_it_is_missing(thrice(&mut probe, 1));
        db.transact(|tx| tx.create_index("things", "by_number", &["number"], true)).unwrap();
        let mut probe = db.prepare_call("probe").unwrap();
        assert_eq!(thrice(&mut probe, 1), Ok(vec![Value::Int8(7)]), "{about}");
        assert_eq!(thrice(&mut probe, 7), Ok(vec![Value::Null]), "{about}");
        db.transact(|tx| tx.drop_index("by_number")).unwrap();
        says_that_it_is_missing(thrice(&mut probe, 1));
        // Another index comes before it, and the name goes to an index on another column.
        db.transact(|tx| {
            tx.create_index("things", "another", &["number", "id"], true)?;
            tx.create_index("things", "by_number", &["id"], true)
        })
        .unwrap();
        assert_eq!(thrice(&mut probe, 7), Ok(vec![Value::Int8(7)]), "{about}");
        assert_eq!(thrice(&mut probe, 1), Ok(vec![Value::Null]), "{about}");
    });
}

#[test]
fn a_call_is_of_the_table_that_an_earlier_phase_of_it_has_made() {
    on_every_engine(|about, db| {
        db.transact(|tx| make(tx, ColumnType::Int8, 1)).unwrap();
        let mut alone = prepared(db, "read", Action::shared("things", read).by_argument(0));
        // The keys of the tables are of two types, in turn.
        let replace = |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
            let number = arguments.get::<i16>(0)?;
            tx.drop_table("things")?;
            let types = [ColumnType::Int8, ColumnType::Int4];
            make(tx, types[number as usize % 2], number.into())
        };
        let read_seven = || {
            let body = |tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs| {
                let number = tx.look(arguments.table()?, 7i16, |row| row.get(1))?;
                outputs.push(number.unwrap_or(Value::Null));
                Ok(())
            };
            Action::shared("things", body).by(|_| Value::Int2(7))
        };
        let replaces = Flow::of(replace).phases()[0].clone();
        let flow = Flow::new().phase([read_seven()]).phase(replaces).phase([read_seven()]);
        let mut replaced = prepared(db, "replaced", flow);
        for number in 2..6 {
            let (before, after) = (Value::Int8(number - 1), Value::Int8(number));
            let found = replaced.call(&[Value::Int2(number as i16)]).map(<[Value]>::to_vec);
            assert_eq!(found, Ok(vec![before, after.clone()]), "{about}");
            assert_eq!(thrice(&mut alone, 7), Ok(vec![after]), "{about}");
        }
    });
}
