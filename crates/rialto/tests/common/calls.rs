//! Random calls of one procedure, each of three steps in each of two phases.

use std::ops::ControlFlow;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Arguments, Database, Error, Flow, KeyBound, Outputs, Procedure, Result, Scan, TableDef,
    Transaction,
};

/// Keys are below this.
pub const KEYS: i32 = 24;

/// Steps of a call: three in each of two phases.
pub const STEPS: usize = 6;
pub const READ: i32 = 1;
pub const WRITE: i32 = 2;
pub const DELETE: i32 = 3;
pub const SCAN: i32 = 4;
pub const FAIL: i32 = 5;

/// The value of a step's argument: the operation, the key, and the part that the row gets.
pub fn argument(step: usize, nth: usize) -> usize {
    1 + 3 * step + nth
}

fn does<const STEP: usize>(arguments: &[Value], what: &[i32]) -> bool {
    matches!(arguments[argument(STEP, 0)], Value::Int4(does) if what.contains(&does))
}

fn of_one<const STEP: usize>(arguments: &[Value]) -> bool {
    does::<STEP>(arguments, &[READ, WRITE, DELETE, FAIL])
}

fn scans<const STEP: usize>(arguments: &[Value]) -> bool {
    does::<STEP>(arguments, &[SCAN])
}

fn version_of(tx: &mut Transaction, arguments: &Arguments<'_>, key: i32) -> Result<Option<i64>> {
    tx.look(arguments.table()?, key, |row| row.get_i64(2))?.transpose()
}

/// The text of a row of this version, in tables that have one: of fewer bytes than `FILLER`, so that rows move.
fn filler<const FILLER: u64>(version: i64) -> Value {
    Value::Text("x".repeat((version as u64 * 7919 % FILLER) as usize))
}

/// Reads, writes, inserts or deletes one row, and gives what it found.
fn one<const STEP: usize, const FILLER: u64>(
    tx: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
) -> Result<()> {
    let [what, key, part] = [0, 1, 2].map(|nth| arguments.get::<i32>(argument(STEP, nth)));
    let (what, key, part, version) = (what?, key?, part?, arguments.get::<i64>(0)?);
    let table = arguments.table()?;
    let found = version_of(tx, arguments, key)?;
    for value in [Value::Int4(what), Value::Int4(key), found.map_or(Value::Null, Value::Int8)] {
        outputs.push(value);
    }
    match (what, found) {
        (WRITE, None) => {
            let mut row = vec![Value::Int4(key), Value::Int4(part), Value::Int8(version)];
            row.extend((FILLER > 0).then(|| filler::<FILLER>(version)));
            tx.insert(table, &row)?;
        }
        (WRITE, Some(_)) => {
            let mut changes = vec![(1, Value::Int4(part)), (2, Value::Int8(version))];
            changes.extend((FILLER > 0).then(|| (3, filler::<FILLER>(version))));
            assert!(tx.update(table, key, &changes)?);
        }
        (DELETE, Some(_)) => assert!(tx.delete(table, key)?),
        (FAIL, _) => return Err(Error::aborted("as it was asked to")),
        _ => {}
    }
    Ok(())
}

/// Reads the rows of some keys, in an action that may touch the whole table.
fn range<const STEP: usize>(
    tx: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
) -> Result<()> {
    let (low, high): (i32, i32) = (arguments.get(argument(STEP, 1))?, arguments.get(argument(STEP, 2))?);
    let (lower, upper) = (vec![Value::Int4(low)], vec![Value::Int4(high)]);
    let scan = Scan { lower: KeyBound::Included(lower), upper: KeyBound::Included(upper), ..Scan::all() };
    let mut seen = Vec::new();
    tx.scan(arguments.table()?, &scan, |_, row| {
        seen.push((row.get_i32(0)?, row.get_i64(2)?));
        Ok(ControlFlow::Continue(()))
    })?;
    for value in [SCAN, low, high, seen.len() as i32] {
        outputs.push(value);
    }
    for (key, version) in seen {
        outputs.push(key);
        outputs.push(version);
    }
    Ok(())
}

fn step<const STEP: usize, const FILLER: u64>() -> [Action; 2] {
    [
        Action::exclusive("things", one::<STEP, FILLER>).by_argument(argument(STEP, 1)).when(of_one::<STEP>),
        Action::shared("things", range::<STEP>).when(scans::<STEP>),
    ]
}

/// Makes a table with a secondary index, whose rows have a text of fewer bytes than `FILLER` unless that is 0, and the
/// procedure `steps` on it.
pub fn define<const FILLER: u64>(db: &Database) {
    let mut columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("part", ColumnType::Int4),
        Column::new("writer", ColumnType::Int8),
    ];
    columns.extend((FILLER > 0).then(|| Column::new("filler", ColumnType::Text)));
    db.transact(|tx| {
        tx.create_table(&TableDef::new("things", columns.clone()).with_primary_key(&["id"]))?;
        tx.create_index("things", "by_part", &["part"], false)
    })
    .unwrap();
    let flow = Flow::new()
        .phase([step::<0, FILLER>(), step::<1, FILLER>(), step::<2, FILLER>()].into_iter().flatten())
        .phase([step::<3, FILLER>(), step::<4, FILLER>(), step::<5, FILLER>()].into_iter().flatten());
    let mut arguments = vec![ColumnType::Int8];
    arguments.extend([ColumnType::Int4; 3 * STEPS]);
    db.register(Procedure::new("steps", arguments, flow)).unwrap();
    route(db, &[4, 8, 12]);
}

/// Divides the keys among the executors, where there are some.
pub fn route(db: &Database, bounds: &[i32]) {
    if db.executors_of("things", WhichIndex::Primary).is_ok() {
        let bounds: Vec<_> = bounds.iter().map(|&bound| vec![Value::Int4(bound)]).collect();
        // Only where there are executors.
        let _ = db.set_routing("things", WhichIndex::Primary, &bounds);
    }
}

/// The arguments of calls that write each row once; `version` gives each its number.
pub fn filling(mut version: impl FnMut() -> i64) -> Vec<Vec<Value>> {
    let of = |first: i32| {
        let mut arguments = vec![Value::Int8(version())];
        for key in first..first + STEPS as i32 {
            let what = if key < KEYS { WRITE } else { 0 };
            arguments.extend([what, key, key % 4].map(Value::Int4));
        }
        arguments
    };
    (0..KEYS).step_by(STEPS).map(of).collect()
}

/// The arguments of a random call.
pub fn any_call(random: &mut Random, version: i64) -> Vec<Value> {
    let mut arguments = vec![Value::Int8(version)];
    for _ in 0..STEPS {
        let key = random.below(KEYS as u64) as i32;
        let (what, last) = match random.below(8) {
            0..2 => (0, 0),
            2..4 => (READ, 0),
            4..6 => (WRITE, random.below(4) as i32),
            6 => (DELETE, 0),
            _ => (SCAN, (key + random.below(5) as i32).min(KEYS - 1)),
        };
        arguments.extend([what, key, last].map(Value::Int4));
    }
    arguments
}
