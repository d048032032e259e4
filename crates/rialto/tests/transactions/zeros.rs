//! Values whose bytes differ and that are one key: 0 and -0, and all NaNs. Rows keep the bits that they were given;
//! keys, locks, routing and recovery see one value.

use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Engine, Error, Flow, Logging, Options, Procedure, Table,
    TableDef, TxOptions,
};

fn options() -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

/// Pairs that are one key each.
fn pairs() -> [(f64, f64); 3] {
    [(0.0, -0.0), (-0.0, 0.0), (f64::NAN, -f64::NAN)]
}

fn made(db: &Database) -> Table {
    let columns = vec![Column::new("x", ColumnType::Float8), Column::new("v", ColumnType::Int8)];
    db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["x"]))).unwrap()
}

fn bits_of(db: &Database, x: f64) -> u64 {
    let table = db.table("t").unwrap();
    let row = db.transact(|tx| tx.get(&table, x)).unwrap().expect("a row of this key");
    row.read::<f64>("x").unwrap().to_bits()
}

#[test]
fn a_key_that_changes_its_bits_alone_is_kept_by_a_recovery() {
    for (one, other) in pairs() {
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options()).unwrap();
        let table = made(&db);
        db.transact(|tx| tx.insert(&table, &[Value::Float8(one), Value::Int8(1)])).unwrap();
        let changes = [(0, Value::Float8(other)), (1, Value::Int8(2))];
        assert!(db.transact(|tx| tx.update(&table, one, &changes)).unwrap());
        assert_eq!(bits_of(&db, one), other.to_bits());
        db.close().unwrap();
        let db = Database::open_on(disk, options()).unwrap();
        assert_eq!((bits_of(&db, one), bits_of(&db, other)), (other.to_bits(), other.to_bits()));
    }
}

#[test]
fn one_of_them_is_locked_when_the_other_is() {
    for engine in Engine::ALL {
        for by_hash in [false, true] {
            let db = Database::open_on(MemoryDisk::new(), Options { engine, ..options() }).unwrap();
            let table = made(&db);
            match by_hash {
                _ if !engine.is_data_oriented() => {}
                true => db.set_routing_by_hash("t", WhichIndex::Primary, 1).unwrap(),
                false => db.set_routing("t", WhichIndex::Primary, &[vec![Value::Float8(-0.0)]]).unwrap(),
            }
            for (one, other) in pairs() {
                let mut tx = db.begin().unwrap();
                tx.insert(&table, &[Value::Float8(one), Value::Int8(1)]).unwrap();
                let patience = TxOptions { timeout: Some(Duration::from_millis(20)), ..TxOptions::default() };
                let mut reader = db.begin_with(&patience).unwrap();
                let read = reader.get(&table, other);
                assert!(
                    matches!(read, Err(Error::LockTimeout { .. } | Error::Timeout { .. })),
                    "{engine}: {read:?}"
                );
            }
        }
    }
}

/// Each call's outcome depends on the one before.
#[test]
fn calls_on_one_of_them_and_the_other_are_replayed_in_the_order_of_the_log() {
    let action = Action::exclusive("t", |tx, arguments, _| {
        let (x, n) = (arguments.get::<f64>(0)?, arguments.get::<i64>(1)?);
        let there = tx.modify(arguments.table()?, x, |fields| {
            let v = fields.get_i64(1)?;
            fields.set_i64(1, v.wrapping_mul(31).wrapping_add(n))
        })?;
        assert!(there);
        Ok(())
    });
    let flow = Flow::new().phase([action.by_argument(0)]);
    let mix = Procedure::new("mix", [ColumnType::Float8, ColumnType::Int8], flow).deterministic(1);
    let options = || Options {
        logging: Logging::Transaction,
        procedures: vec![mix.clone()],
        recovery_threads: 5,
        durability: Durability::Memory,
        ..options()
    };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let table = made(&db);
    db.transact(|tx| tx.insert(&table, &[Value::Float8(0.0), Value::Int8(1)])).unwrap();
    for n in 0..2_000 {
        let x = if n % 2 == 0 { 0.0 } else { -0.0 };
        db.call("mix", &[Value::Float8(x), Value::Int8(n)]).unwrap();
    }
    let value = |db: &Database| {
        let table = db.table("t").unwrap();
        db.transact(|tx| tx.get(&table, 0.0)).unwrap().expect("the row").get("v").unwrap()
    };
    let before = value(&db);
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    assert!(db.recovery().unwrap().calls > 0, "the test's own premise");
    assert_eq!(value(&db), before);
}
