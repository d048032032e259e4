//! Routing rules, and the numbers of executors and threads: made once, or changed at random while calls run.

use rialto::io::Random;
use rialto::row::{Value, WhichIndex};
use rialto::{Database, Error, Result};

use super::{TABLES, many};

/// Routing bounds of one column.
fn bounds(of: impl Iterator<Item = i32>) -> Vec<Vec<Value>> {
    of.map(|bound| vec![Value::Int4(bound)]).collect()
}

/// Divides the tables' keys among the executors, where there are some, so that neighbours belong to different
/// executors.
pub fn route(db: &Database) -> Result<()> {
    if db.executors() < 2 {
        return Ok(());
    }
    for table in TABLES {
        for which in indexes(db, table)? {
            let step = if which == WhichIndex::Primary { 1 } else { 2 };
            db.set_routing(table, which, &bounds((1..8).map(|nth| nth * step)))?;
        }
    }
    many::route(db)
}

/// Changes the rules of these tables, and the numbers of executors and threads.
pub fn change_rules(db: &Database, tables: &[&str], random: &mut Random) -> Result<()> {
    if db.executors() == 0 {
        return Ok(());
    }
    for table in tables {
        match any_rules(db, table, random) {
            // A transaction has made the table anew, or dropped an index.
            Ok(()) | Err(Error::NoSuchTable { .. } | Error::BadDefinition { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if db.executor_threads() > 0 && random.chance(1, 2) {
        let threads = 1 + random.below(8) as usize;
        db.set_executor_threads(threads..=threads)?;
    }
    if random.chance(1, 2) {
        let executors = 1 + random.below(16) as usize;
        db.set_executors(executors..=executors)?;
    }
    Ok(())
}

/// Rules of each index of the table, by ranges of its first column or by its hash.
fn any_rules(db: &Database, table: &str, random: &mut Random) -> Result<()> {
    for which in indexes(db, table)? {
        match random.below(4) {
            0 => db.set_routing_by_hash(table, which, 1)?,
            _ => {
                let keys = if which == WhichIndex::Primary { 8 } else { 16 };
                let of: Vec<_> = (1..keys).filter(|_| random.chance(1, 2)).collect();
                db.set_routing(table, which, &bounds(of.into_iter()))?;
            }
        }
    }
    Ok(())
}

fn indexes(db: &Database, table: &str) -> Result<impl Iterator<Item = WhichIndex>> {
    let secondaries = db.table(table)?.schema().indexes().len();
    Ok([WhichIndex::Primary].into_iter().chain((0..secondaries).map(WhichIndex::Secondary)))
}
