//! One client against ordered maps: random definitions, bulk loads, changes, scans, savepoints, aborts, with plenty of
//! memory and at small bounds. From time to time the database ends by a close, a kill or a crash, and is opened again
//! with other options.

use std::sync::Arc;
use std::time::Duration;

use crate::common::engines;
use crate::common::seeds::for_a_while;
use crate::tables::{Contents, Drawer, any_logging, assert_sound, one_of};
use rialto::io::{FaultyDisk, Random};
use rialto::{Checkpointing, Database, Error, Options};

fn options(random: &mut Random, memory_bytes: u64, write_set_bytes_max: usize) -> Options {
    let (logging, checkpoint) = any_logging(random);
    Options {
        memory_bytes,
        write_set_bytes_max,
        logging,
        checkpoint,
        // Sweeps all the time, or seldom.
        checkpoint_interval: Duration::from_millis(one_of(random, &[1, 20, 200])),
        sweep_bytes_per_s: one_of(random, &[Some(0), Some(4 << 20)]),
        log_bytes_max: one_of(random, &[16 << 20, 256 << 20]),
        backup_copies: 2 + random.below(2) as u32,
        spool: random.chance(1, 2),
        engine: engines::any(random, 4, 2),
        recovery_threads: 1 + random.below(3) as usize,
        ..Options::default()
    }
}

#[derive(Default)]
struct Tally {
    transactions: u64,
    operations: u64,
    reopened: u64,
}

fn history(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let is_tight = random.chance(1, 2);
    let memory = if is_tight { 5 << 20 } else { 64 << 20 };
    let writes = if is_tight && random.chance(1, 2) { 100_000 } else { 8 << 20 };
    let about = format!("RIALTO_SEED={seed}, {memory} bytes, write sets of {writes}");
    let mut drawer = Drawer::new(random.fork(), about.clone());
    if is_tight {
        drawer.come_to_bounds(2_000);
    }
    let mut disk = FaultyDisk::new(random.next());
    let mut db = Database::open_on(disk.clone(), options(&mut random, memory, writes)).unwrap();
    Contents::prepare(&db);
    let mut contents = Contents::default();
    for _ in 0..4 + random.below(8) {
        let mut tx = db.begin().unwrap();
        tally.transactions += 1;
        match drawer.transaction(&mut tx, &contents) {
            Ok(after) if random.chance(3, 4) => match tx.commit() {
                Ok(()) => contents = after,
                Err(error) => panic!("{about}: commit: {error}"),
            },
            Ok(_) => tx.abort().unwrap(),
            Err(Error::Aborted { .. }) => drop(tx),
            Err(error) => panic!("{about}: {error}"),
        }
        contents.assert_in(&db, &about);
        if random.chance(1, 5) {
            db.checkpoint().unwrap_or_else(|error| panic!("{about}: checkpoint: {error}"));
        }
        if random.chance(1, 3) {
            tally.reopened += 1;
            match random.below(3) {
                0 => db.clone().close().unwrap(),
                1 => disk.kill(),
                _ => disk.crash(),
            }
            drop(db);
            if !disk.is_down() {
                disk.kill();
            }
            disk = disk.restart();
            assert_sound(disk.clone(), &about);
            let options = options(&mut random, memory, writes);
            let about = format!("{about}, opened again with {:?}, {:?}", options.logging, options.checkpoint);
            db = Database::open_on(disk.clone(), options).unwrap_or_else(|error| panic!("{about}: {error}"));
            contents.assert_in(&db, &about);
        }
    }
    tally.operations += drawer.operations;
    db.close().unwrap();
    let again = Database::open_on(Arc::clone(&disk) as _, options(&mut random, memory, writes));
    contents.assert_in(&again.unwrap_or_else(|error| panic!("{about}: {error}")), &about);
}

#[test]
fn the_database_does_what_ordered_maps_do() {
    let mut tally = Tally::default();
    let (first, seeds) = for_a_while(|seed| history(seed, &mut tally));
    println!(
        "tally: databases against maps, {seeds} seeds, {} transactions, {} operations, {} recoveries, RIALTO_SEED={first}",
        tally.transactions, tally.operations, tally.reopened
    );
}

/// Rows of one size replace rows of another, in other tables, again and again, each time up to the bound of memory. A
/// recovery of all this has no more memory.
fn refilled(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let memory = 4 << 20;
    let about = format!("RIALTO_SEED={seed}, refilled");
    let mut drawer = Drawer::new(random.fork(), about.clone());
    drawer.come_to_bounds(0);
    let mut disk = FaultyDisk::new(random.next());
    let any = |random: &mut Random| Options {
        checkpoint: Checkpointing::None,
        log_bytes_max: 256 << 20,
        ..options(random, memory, 64 << 20)
    };
    let mut db = Database::open_on(disk.clone(), any(&mut random)).unwrap();
    Contents::prepare(&db);
    let mut contents = Contents::default();
    for _ in 0..3 {
        for _ in 0..2 + random.below(8) {
            tally.transactions += 1;
            let mut tx = db.begin().unwrap();
            match drawer.refill(&mut tx, &contents) {
                Ok(after) => {
                    tx.commit().unwrap_or_else(|error| panic!("{about}: commit: {error}"));
                    contents = after;
                }
                Err(Error::Aborted { .. } | Error::MemoryLimit { .. }) => drop(tx),
                Err(error) => panic!("{about}: {error}"),
            }
        }
        contents.assert_in(&db, &about);
        if random.chance(1, 2) {
            disk.kill()
        } else {
            disk.crash()
        }
        drop(db);
        disk = disk.restart();
        db = Database::open_on(disk.clone(), any(&mut random))
            .unwrap_or_else(|error| panic!("{about}: {error}"));
        contents.assert_in(&db, &about);
        tally.reopened += 1;
    }
    tally.operations += drawer.operations;
}

#[test]
fn a_recovery_at_the_memory_bound_gives_back_what_is_empty() {
    let mut tally = Tally::default();
    let (first, seeds) = for_a_while(|seed| refilled(seed, &mut tally));
    println!(
        "tally: recoveries at the memory bound, {seeds} seeds, {} transactions, {} operations, {} recoveries, RIALTO_SEED={first}",
        tally.transactions, tally.operations, tally.reopened
    );
}
