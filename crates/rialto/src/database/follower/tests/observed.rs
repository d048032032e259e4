//! An observer of a row sees the tables as they were at the place of each change of it.

use std::sync::Mutex;

use super::*;
use crate::{RangeSum, SumRange, TxOptions};

/// What the primary has in table `t` at the place of this transaction is written into the row 1 of `marks`.
fn mark(db: &Database, number: i64) -> Result<()> {
    let (t, marks) = (db.table("t")?, db.table("marks")?);
    db.transact(|tx| {
        let of = tx.sum_range(&t, &SumRange::all())?;
        tx.delete(&marks, 1)?;
        tx.insert(&marks, &[Value::Int4(1), Value::Int8(number), Value::Text(format!("{of:?}"))])
    })?;
    // Other rows of the table tell nothing.
    db.transact(|tx| {
        tx.delete(&marks, 2)?;
        tx.insert(&marks, &[Value::Int4(2), Value::Int8(number), Value::Text(String::new())])
    })
}

fn seen(db: &Database) -> (Vec<Value>, RangeSum) {
    let (t, marks) = (db.table("t").unwrap(), db.table("marks").unwrap());
    let in_memory = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    db.transact_with(&in_memory, |tx| {
        let mark = tx.get(&marks, 1)?.map(|row| row.values());
        Ok((mark.unwrap_or_default(), tx.sum_range(&t, &SumRange::all())?))
    })
    .unwrap()
}

fn create(db: &Database) {
    let marks = TableDef::new(
        "marks",
        vec![
            Column::new("id", ColumnType::Int4),
            Column::new("number", ColumnType::Int8),
            Column::new("sum", ColumnType::Text),
        ],
    )
    .with_primary_key(&["id"]);
    db.transact(|tx| {
        tx.create_table(&two_columns("t"))?;
        tx.create_table(&marks).map(drop)
    })
    .unwrap();
}

#[test]
fn an_observer_of_a_row_sees_the_tables_at_the_place_of_each_change() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), create);
    let follower = Follower::open_on(to, options()).unwrap();
    let all_seen = Arc::new(Mutex::new(Vec::new()));
    let told = all_seen.clone();
    follower.observe("marks", &[Value::Int4(1)], move |db, place| {
        let (mark, sum) = seen(db);
        told.lock().unwrap().push((place, mark, sum));
    });
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for writer in 0..2 {
            let (primary, is_over) = (&primary, &is_over);
            threads.spawn(move || {
                let t = primary.table("t").unwrap();
                let mut random = Random::new(writer);
                while !is_over.load(Ordering::SeqCst) {
                    let id = random.below(60) as i32;
                    primary
                        .transact(|tx| match tx.delete(&t, id)? {
                            true => Ok(()),
                            false => tx.insert(&t, &[Value::Int4(id), Value::Int8(random.next() as i64)]),
                        })
                        .unwrap();
                    // The follower is to keep up.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        for number in 1..=30 {
            mark(&primary, number).unwrap();
            ship(&primary, &follower, 3_000).unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    ship(&primary, &follower, 1 << 20).unwrap();
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    {
        let told = all_seen.lock().unwrap();
        assert_eq!(told.len(), 30);
        for (nth, (place, mark, sum)) in told.iter().enumerate() {
            let expected = [Value::Int4(1), Value::Int8(nth as i64 + 1), Value::Text(format!("{sum:?}"))];
            assert_eq!(mark, &expected, "at place {place}");
        }
        assert!(told.is_sorted_by_key(|(place, ..)| *place));
    }
    // What a database redoes that is to lead does not wait for it.
    follower.redo_up_to(follower.redone());
    mark(&primary, 101).unwrap();
    ship(&primary, &follower, 1 << 20).unwrap();
    let leading = follower.lead(SOON).unwrap();
    assert_eq!(seen(&leading).0[1], Value::Int8(101));
    mark(&leading, 102).unwrap();
    assert_eq!(all_seen.lock().unwrap().len(), 30);
}

/// A copy that was made before the table was: its definition comes with the log.
#[test]
fn an_observer_of_a_table_that_is_yet_to_be_redone_is_told_of_its_row() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |_| {});
    let follower = Follower::open_on(to, options()).unwrap();
    let places = Arc::new(Mutex::new(Vec::new()));
    let told = places.clone();
    follower.observe("marks", &[Value::Int4(1)], move |_, place| told.lock().unwrap().push(place));
    create(&primary);
    mark(&primary, 1).unwrap();
    ship(&primary, &follower, 1 << 20).unwrap();
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_eq!(places.lock().unwrap().len(), 1);
}
