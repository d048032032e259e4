//! A follower: a copy of a database takes its log as it is written, answers reads, and takes over.
//!
//! `cargo run -p rialto --example follower`
//!
//! Both databases are in this process. Between two machines the program sends the blocks, which are plain bytes.

use std::time::Duration;

use rialto::backup::CopyOptions;
use rialto::log::LogCursor;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Follower, Options, TableDef};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("rialto-follower-{}", std::process::id()));
    let (first, second) = (directory.join("first"), directory.join("second"));
    let primary = Database::open(&first)?;
    let columns = vec![Column::new("id", ColumnType::Int8), Column::new("what", ColumnType::Text)];
    primary.transact(|tx| {
        tx.create_table(&TableDef::new("events", columns.clone()).with_primary_key(&["id"])).map(drop)
    })?;

    let events = primary.table("events")?;
    let insert = |ids: std::ops::Range<i64>| {
        ids.into_iter().try_for_each(|id| {
            let row = [Value::Int8(id), Value::Text(format!("event {id}"))];
            primary.transact(|tx| tx.insert(&events, &row))
        })
    };
    insert(0..500)?;

    // The follower begins as a copy, which is made while the primary is used. Here it lies in memory on its way.
    let mut copy = Vec::new();
    let (report, mut cursor) = primary.copy_to(&mut copy, &CopyOptions::default())?;
    insert(500..1_000)?;
    Follower::receive(&second, &mut &copy[..])?;
    let follower = Follower::open(&second, Options::default())?;
    println!("a copy of {} bytes, up to place {}", report.bytes, report.point.lsn);

    // The cursor goes on where the copy ends, and has kept the log from there on.
    send_all(&primary, &mut cursor, &follower)?;

    // What it has received it redoes in the background; then it can be read there.
    let is_redone = follower.wait_redone(follower.received(), Duration::from_secs(60))?;
    assert!(is_redone, "nothing is in the way of the redo");
    let read_only = follower.database();
    let events = read_only.table("events")?;
    println!("the follower has {} events", read_only.read(|tx| tx.count(&events))?);
    let refused = read_only.transact(|tx| tx.delete(&events, 1_i64));
    println!("a write there: {}", refused.expect_err("it follows"));

    // The primary ends in good order; nothing was written since the last blocks were sent. The follower takes over.
    drop(cursor);
    primary.close()?;
    let db = follower.lead(Duration::from_secs(60))?;
    db.transact(|tx| tx.delete(&events, 1_i64))?;
    println!("it leads, and has {} events", db.read(|tx| tx.count(&events))?);
    db.close()?;
    drop(follower);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Gives the follower what the primary's log has.
fn send_all(primary: &Database, cursor: &mut LogCursor, follower: &Follower) -> rialto::Result<()> {
    while let Some(blocks) = cursor.next_blocks(1 << 20, Duration::ZERO)? {
        // Rows of bulk loads are not in the log but in files that it names.
        while let Err(error) = follower.append(&blocks) {
            let Error::LoadFileMissing { number } = error else { return Err(error) };
            follower.take_load_file(number, &mut primary.load_file(number)?)?;
        }
        // The primary keeps its log for the cursor from here on. (To go on after a crash of this machine, too, call
        // `Follower::sync` before.)
        cursor.release(follower.point().position);
    }
    Ok(())
}
