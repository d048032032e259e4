//! Sums against each other: the same rows give the same sum wherever they lie, others another one.

use crate::io::{MemoryDisk, Random};
use crate::row::{Column, ColumnType, Value, WhichIndex};
use crate::{
    Checkpointing, Database, Error, LockPolicy, Options, RangeSum, Residence, Result, SumRange, Table,
    TableDef, Transaction, TxOptions,
};

fn database() -> Database {
    let options = Options { checkpoint: Checkpointing::None, ..Options::default() };
    Database::open_on(MemoryDisk::new(), options).unwrap()
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", ColumnType::Int8),
        Column::nullable("part", ColumnType::Int4),
        Column::new("weight", ColumnType::Float8),
        Column::new("text", ColumnType::Text),
    ]
}

fn values(id: i64, random: &mut Random) -> [Value; 4] {
    let part = if random.chance(1, 4) { Value::Null } else { Value::Int4(random.below(5) as i32) };
    let text = "x".repeat(random.below(40) as usize);
    [Value::Int8(id), part, Value::Float8(id as f64 / 3.0), Value::Text(text)]
}

/// A table with a key and an index.
fn table_in(db: &Database, name: &str, residence: Residence) -> Table {
    let def = TableDef::new(name, columns()).with_primary_key(&["id"]).with_residence(residence);
    db.transact(|tx| {
        let table = tx.create_table(&def)?;
        tx.create_index(name, &format!("{name}_by_part"), &["part"], false)?;
        Ok(table)
    })
    .unwrap()
}

fn sum(db: &Database, table: &Table, range: &SumRange) -> RangeSum {
    db.transact(|tx| tx.sum_range(table, range)).unwrap()
}

fn by(index: WhichIndex) -> SumRange {
    SumRange { index, ..SumRange::all() }
}

const BOTH: [WhichIndex; 2] = [WhichIndex::Primary, WhichIndex::Secondary(0)];

#[test]
fn the_same_rows_have_the_same_sum_wherever_they_lie() {
    let db = database();
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let mut random = Random::new(first);
    let tables = [table_in(&db, "a", Residence::Memory), table_in(&db, "b", Residence::Disk)];
    let mut ids: Vec<i64> = (0..500).collect();
    let rows: Vec<[Value; 4]> = ids.iter().map(|id| values(*id, &mut random)).collect();
    for table in &tables {
        for at in (1..ids.len()).rev() {
            ids.swap(at, random.below(at as u64 + 1) as usize);
        }
        for chunk in ids.chunks(50) {
            // Rows that come and go leave nothing behind.
            db.transact(|tx| tx.insert(table, &values(1_000, &mut random))).unwrap();
            db.transact(|tx| {
                tx.delete(table, 1_000_i64)?;
                chunk.iter().try_for_each(|id| tx.insert(table, &rows[*id as usize]))
            })
            .unwrap();
        }
    }
    for index in BOTH {
        let whole = sum(&db, &tables[0], &by(index));
        assert_eq!((whole.rows, whole.is_whole), (500, true));
        assert_eq!(sum(&db, &tables[1], &by(index)), whole, "{index:?}");
    }
}

#[test]
fn each_change_changes_the_sum() {
    let db = database();
    let table = table_in(&db, "t", Residence::Memory);
    let row = |text: &str, part| [Value::Int8(7), part, Value::Float8(0.5), Value::Text(text.to_owned())];
    let put = |tx: &mut Transaction<'_>, values: &[Value]| {
        tx.delete(&table, 7_i64)?;
        tx.insert(&table, values)
    };
    let mut seen = vec![sum(&db, &table, &SumRange::all())];
    for values in [
        row("", Value::Null),
        row("", Value::Int4(0)),
        row("a", Value::Int4(0)),
        row("b", Value::Int4(0)),
        row("b", Value::Int4(1)),
    ] {
        db.transact(|tx| put(tx, &values)).unwrap();
        let now = sum(&db, &table, &SumRange::all());
        assert!(!seen.contains(&now), "{values:?}");
        seen.push(now);
    }
    let shown = sum(&db, &table, &SumRange { show: 2, ..SumRange::all() }).shown;
    assert_eq!(shown, ["t(id: 7, part: 1, weight: 0.5, text: b)"]);
    // The index has its own: it does not know the text.
    let before = sum(&db, &table, &by(BOTH[1]));
    db.transact(|tx| put(tx, &row("c", Value::Int4(1)))).unwrap();
    assert_eq!(sum(&db, &table, &by(BOTH[1])), before);
    db.transact(|tx| put(tx, &row("c", Value::Int4(2)))).unwrap();
    assert_ne!(sum(&db, &table, &by(BOTH[1])), before);
}

#[test]
fn ranges_follow_one_another_through_the_whole_table() {
    let db = database();
    let mut random = Random::new(5);
    let keyed = table_in(&db, "keyed", Residence::Memory);
    let numbered = db.transact(|tx| tx.create_table(&TableDef::new("numbered", columns()))).unwrap();
    for id in 0..300 {
        db.transact(|tx| {
            let values = values(id, &mut random);
            tx.insert(&keyed, &values)?;
            tx.insert(&numbered, &values)
        })
        .unwrap();
    }
    for (table, index) in [(&keyed, BOTH[0]), (&keyed, BOTH[1]), (&numbered, BOTH[0])] {
        for (rows_max, bytes_max) in [(70, u64::MAX), (u64::MAX, 2_000), (1, u64::MAX), (300, u64::MAX)] {
            let (mut after, mut rows) = (None, 0);
            loop {
                let range = SumRange { after: after.clone(), rows_max, bytes_max, ..by(index) };
                let part = sum(&db, table, &range);
                rows += part.rows;
                assert!(part.rows <= rows_max);
                // The same range, by its ends.
                let again = SumRange { to: part.last.clone(), after, ..by(index) };
                if part.rows > 0 {
                    let same = sum(&db, table, &again);
                    assert_eq!((same.rows, same.sum, &same.last), (part.rows, part.sum, &part.last));
                    assert!(same.is_whole);
                }
                if part.is_whole {
                    break;
                }
                after = part.last;
            }
            assert_eq!(rows, 300);
        }
    }
    let too_long = SumRange { after: Some(vec![0; 2_000]), ..SumRange::all() };
    let refused = db.transact(|tx| tx.sum_range(&keyed, &too_long));
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    let no_index = db.transact(|tx| tx.sum_range(&numbered, &by(BOTH[1])));
    assert!(matches!(no_index, Err(Error::NoSuchIndex { .. })), "{no_index:?}");
}

#[test]
fn a_range_that_was_summed_stays_as_it_is_until_the_end() {
    for residence in [Residence::Memory, Residence::Disk] {
        let db = database();
        let mut random = Random::new(6);
        let table = table_in(&db, "t", residence);
        for id in (0..100).map(|id| id * 2) {
            db.transact(|tx| tx.insert(&table, &values(id, &mut random))).unwrap();
        }
        let range = SumRange { rows_max: 50, ..SumRange::all() };
        let mut summing = db.begin().unwrap();
        let before = summing.sum_range(&table, &range).unwrap();
        let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        type Change<'a> = (&'static str, &'a dyn Fn(&mut Transaction<'_>) -> Result<()>);
        let tried: [Change<'_>; 4] = [
            ("a new row", &|tx| tx.insert(&table, &values(21, &mut Random::new(1)))),
            ("another value", &|tx| tx.update(&table, 20_i64, &[(3, Value::Text("!".into()))]).map(drop)),
            ("no row", &|tx| tx.delete(&table, 40_i64).map(drop)),
            ("a row before the first", &|tx| tx.insert(&table, &values(-1, &mut Random::new(1)))),
        ];
        for (what, change) in &tried {
            let changed = db.transact_with(&refuse, |tx| change(tx));
            assert!(matches!(changed, Err(Error::WouldWait { .. })), "{what}: {changed:?}");
        }
        assert_eq!(summing.sum_range(&table, &range).unwrap(), before);
        summing.commit().unwrap();
        for (what, change) in &tried {
            db.transact_with(&refuse, |tx| change(tx)).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert_ne!(sum(&db, &table, &range), before);
    }
}
