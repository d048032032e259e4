//! Disk-resident tables beside memory-resident ones: transactions on both, checkpoints, and openings after a close, a kill
//! or a crash. What was answered is there, in both kinds or in none.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::disk_tables::{
    Model, NAMES, assert_same, change, change_some, contents, definition, options, redefine,
};
use crate::common::seeds::for_a_while;
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, Open, Random};
use rialto::recovery::check;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Error, Logging, Options, Procedure, Residence, TableDef, Transaction,
};

fn history(seed: u64) {
    let mut random = Random::new(seed);
    let about = format!("RIALTO_SEED={seed}");
    let mut disk = FaultyDisk::new(random.next());
    let mut db = Database::open_on(disk.clone(), options(&mut random)).unwrap();
    let mut model = Model::new();
    for round in 0..12 {
        for _ in 0..1 + random.below(12) {
            let (script, commits) = (random.next(), random.chance(4, 5));
            let mut now = Model::new();
            let mut run = |tx: &mut Transaction<'_>| {
                now = model.clone();
                change_some(tx, &mut Random::new(script), &mut now)
            };
            let ended = match random.chance(1, 2) {
                true => {
                    let mut tx = db.begin().unwrap();
                    run(&mut tx).and_then(|()| if commits { tx.commit() } else { tx.abort() })
                }
                // In stages.
                false => {
                    db.transact(|tx| {
                        run(tx)?;
                        if commits { Ok(()) } else { Err(Error::aborted("by the test")) }
                    })
                    .or_else(|error| if error == Error::aborted("by the test") { Ok(()) } else { Err(error) })
                }
            };
            ended.unwrap_or_else(|error| panic!("{about}, round {round}: {error}"));
            if commits {
                model = now;
            }
            if random.chance(1, 6) {
                db.checkpoint().unwrap_or_else(|error| panic!("{about}, round {round}: checkpoint: {error}"));
            }
        }
        assert_same(&contents(&db), &model, &format!("{about}, round {round}"));
        let end = random.below(3);
        match end {
            0 => db.clone().close().unwrap(),
            1 => disk.kill(),
            _ => disk.crash(),
        }
        drop(db);
        if !disk.is_down() {
            disk.kill();
        }
        disk = disk.restart();
        let as_disk: Arc<dyn Disk> = disk.clone();
        let report = check::check(&as_disk, 64 << 20, 2).unwrap();
        assert!(report.is_sound(), "{about}, round {round}, after end {end}: {report}");
        db = Database::open_on(disk.clone(), options(&mut random))
            .unwrap_or_else(|error| panic!("{about}, round {round}, after end {end}: {error}"));
        assert_same(&contents(&db), &model, &format!("{about}, round {round}, opened after end {end}"));
    }
    db.close().unwrap();
    let again = Database::open_on(Arc::clone(&disk) as _, options(&mut random)).unwrap();
    assert_same(&contents(&again), &model, &about);
}

#[test]
fn tables_of_both_kinds_survive_crashes_together() {
    let (first, seeds) = for_a_while(history);
    println!("tally: disk-resident tables, {seeds} seeds, RIALTO_SEED={first}");
}

#[test]
fn transaction_logging_is_refused_beside_disk_resident_tables() {
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), Options::default()).unwrap();
    db.transact(|tx| tx.create_table(&definition("on_disk"))).unwrap();
    db.close().unwrap();
    let options = Options { logging: Logging::Transaction, ..Options::default() };
    let options = Options { checkpoint: Checkpointing::TransactionCopyOnUpdate, ..options };
    let Err(error) = Database::open_on(disk.clone(), options.clone()) else { panic!("it is refused") };
    assert!(error.to_string().contains("a call that runs again would not find them"), "{error}");

    let db = Database::open_on(disk.clone(), Options::default()).unwrap();
    db.transact(|tx| tx.set_residence("on_disk", Residence::Memory)).unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, options).unwrap();
    let moved = db.transact(|tx| tx.set_residence("on_disk", Residence::Disk));
    let Err(Error::Unsupported { what }) = moved else { panic!("it is refused: {moved:?}") };
    assert!(what.starts_with("the disk-resident table \"on_disk\" with logging transaction"), "{what}");
}

/// Transactions with checkpoints between them, until the disk is down. Gives the rows after the last commit that was
/// answered, and after the one that was not, if there is one.
fn until_down(disk: &Arc<FaultyDisk>, seed: u64) -> (Model, Option<Model>) {
    let mut random = Random::new(seed);
    let options = Options { checkpoint: Checkpointing::None, ..options(&mut random) };
    let mut model = Model::new();
    let Ok(db) = Database::open_on(disk.clone(), options) else { return (model, None) };
    for round in 0..40 {
        let mut now = model.clone();
        let mut change_all = |tx: &mut Transaction<'_>| -> Result<(), Error> {
            for name in NAMES {
                if !now.contains_key(name) {
                    tx.create_table(&definition(name))?;
                    now.insert(name, BTreeMap::new());
                }
                if random.chance(1, 12) {
                    redefine(tx, name, &mut random, now.get_mut(name).unwrap())?;
                }
                let table = tx.table(name)?;
                for _ in 0..random.below(5) {
                    change(tx, &table, &mut random, now.get_mut(name).unwrap())?;
                }
            }
            Ok(())
        };
        let Ok(mut tx) = db.begin() else { return (model, None) };
        if change_all(&mut tx).is_err() {
            return (model, None);
        }
        if tx.commit().is_err() {
            return (model, Some(now));
        }
        model = now;
        if round % 7 == 6 && db.checkpoint().is_err() {
            return (model, None);
        }
    }
    _ = db.close();
    (model, None)
}

/// A crash at a step of the disk: of a commit, of a page that leaves, of any part of a checkpoint. Then a second one, while
/// the next opening makes a checkpoint of its own.
#[test]
fn a_crash_at_any_step_loses_nothing() {
    let (first, seeds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let whole = FaultyDisk::new(seed);
        until_down(&whole, seed);
        let steps = whole.steps();
        for _ in 0..8 {
            let (step, about) = (random.below(steps), format!("RIALTO_SEED={seed}"));
            let disk = FaultyDisk::new(seed);
            disk.crash_at(step);
            let (answered, asked) = until_down(&disk, seed);
            let about = format!("{about}, a crash at step {step} of {steps}");
            let open = |disk: &Arc<FaultyDisk>| {
                Database::open_on(disk.clone(), Options { memory_bytes: 32 << 20, ..Options::default() })
                    .unwrap_or_else(|error| panic!("{about}: {error}"))
            };
            let assert_one_of = |db: &Database, when: &str| {
                let found = contents(db);
                if Some(&found) != asked.as_ref() {
                    assert_same(&found, &answered, &format!("{about}, {when}"));
                }
                found
            };
            disk.crash();
            let disk = disk.restart();
            let db = open(&disk);
            let found = assert_one_of(&db, "opened");
            let second = disk.steps() + random.below(60);
            disk.crash_at(second);
            _ = db.checkpoint();
            disk.crash();
            drop(db);
            let db = open(&disk.restart());
            assert_same(&contents(&db), &found, &format!("{about}, and at step {second} of the next"));
        }
    });
    println!("tally: crashes of disk-resident tables, {seeds} seeds of 8, RIALTO_SEED={first}");
}

/// A database with a disk-resident table of so many rows, and the same rows in memory.
fn filled(disk: &Arc<FaultyDisk>, options: Options, rows: i32) -> Database {
    let db = Database::open_on(disk.clone(), options).unwrap();
    db.transact(|tx| {
        ["on_disk", "in_memory"].into_iter().try_for_each(|name| tx.create_table(&definition(name)).map(drop))
    })
    .unwrap();
    fill(&db, 0, rows);
    db
}

fn fill(db: &Database, from: i32, to: i32) {
    for name in ["on_disk", "in_memory"] {
        let table = db.table(name).unwrap();
        let text = || Value::Text("x".repeat(200));
        let row = |id| [Value::Int4(id), Value::Int4(id % 5), Value::Int4(id), text()];
        let insert = |tx: &mut Transaction<'_>, id: i32| tx.insert(&table, &row(id));
        for ids in (from..to).collect::<Vec<_>>().chunks(500) {
            db.transact(|tx| ids.iter().try_for_each(|id| insert(tx, *id))).unwrap();
        }
    }
}

fn quiet() -> Options {
    Options {
        memory_bytes: 8 << 20,
        cache_bytes: 4 << 20,
        checkpoint: Checkpointing::None,
        ..Options::default()
    }
}

/// The table on the disk is several times as large as the pages in memory.
#[test]
fn a_table_is_larger_than_the_memory_for_pages() {
    let disk = FaultyDisk::new(1);
    let options = Options { memory_bytes: 64 << 20, page_bytes: 4096, ..quiet() };
    let db = filled(&disk, options.clone(), 60_000);
    let pages = db.metrics().pages;
    assert!(pages.pages * pages.page_bytes > 3 * options.cache_bytes, "{pages:?}");
    let mut model = contents(&db);
    let pages = db.metrics().pages;
    assert!(pages.reads > 0 && pages.writes > 0, "{pages:?}");
    assert_eq!(model["on_disk"], model["in_memory"]);
    drop(db);
    let mut disk = disk;
    for end in ["without a checkpoint", "with one", "with two"] {
        disk.crash();
        disk = disk.restart();
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        assert_same(&contents(&db), &model, end);
        let on_disk = db.table("on_disk").unwrap();
        db.transact(|tx| (0..500).try_for_each(|id| tx.delete(&on_disk, id * 7).map(drop))).unwrap();
        db.checkpoint().unwrap();
        let in_memory = db.table("in_memory").unwrap();
        db.transact(|tx| (0..500).try_for_each(|id| tx.delete(&in_memory, id * 7).map(drop))).unwrap();
        model.values_mut().for_each(|rows| rows.retain(|id, _| id % 7 != 0 || *id >= 3_500));
    }
}

/// Where memory is short, a recovery makes its indexes smaller: those in memory.
#[test]
fn a_recovery_is_short_of_memory_beside_a_disk_resident_table() {
    let disk = FaultyDisk::new(1);
    let db = filled(&disk, quiet(), 10);
    let table = db.table("in_memory").unwrap();
    let mut id = 1_000;
    while db.metrics().memory_used < db.metrics().memory_limit / 8 * 7 {
        let row = |id| [Value::Int4(id), Value::Int4(0), Value::Int4(id), Value::Text("y".repeat(500))];
        db.transact(|tx| (id..id + 100).try_for_each(|id| tx.insert(&table, &row(id)))).unwrap();
        id += 100;
    }
    let model = contents(&db);
    db.close().unwrap();
    let db = Database::open_on(disk.clone(), quiet()).unwrap();
    let metrics = db.metrics();
    assert!(metrics.memory_used > metrics.memory_limit / 4 * 3, "the test's own premise");
    assert_same(&contents(&db), &model, "opened");
}

/// What a sync that failed may have lost is not named by a later checkpoint.
#[test]
fn a_failed_sync_of_pages_is_not_made_up_for_by_the_next() {
    for kind in [FaultKind::Sync, FaultKind::SyncReverts] {
        let disk = FaultyDisk::new(3);
        let db = filled(&disk, quiet(), 3_000);
        db.checkpoint().unwrap();
        fill(&db, 3_000, 4_000);
        disk.fail(kind, "pages", 0);
        db.checkpoint().unwrap_err();
        disk.mend();
        let error = db.checkpoint().unwrap_err().to_string();
        assert!(error.contains("pages"), "{error}");
        disk.crash();
        drop(db);
        let db = Database::open_on(disk.restart(), quiet()).unwrap();
        let found = contents(&db);
        assert_eq!(found["on_disk"].len(), 4_000, "{kind:?}");
        assert_eq!(found["on_disk"], found["in_memory"], "{kind:?}");
        db.checkpoint().unwrap();
    }
}

/// Bytes of an image that were damaged at rest are an error that names them, and not a row.
#[test]
fn a_damaged_page_is_named() {
    let disk = FaultyDisk::new(5);
    let options = Options { page_bytes: 4096, ..quiet() };
    let db = filled(&disk, options.clone(), 3_000);
    db.checkpoint().unwrap();
    db.close().unwrap();
    disk.kill();
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), options).unwrap();
    for page in 0..200 {
        disk.damage("pages", page * 4096 + 100, 8).unwrap();
    }
    let table = db.table("on_disk").unwrap();
    let found = db.transact(|tx| tx.count(&table));
    let Err(Error::Corrupt { file, what, .. }) = &found else { panic!("{found:?}") };
    assert!(file == "pages" && what.contains("checksum"), "{found:?}");
    // What is in memory goes on.
    let table = db.table("in_memory").unwrap();
    assert_eq!(db.transact(|tx| tx.count(&table)), Ok(3_000));
}

/// A look at a database changes nothing in it.
#[test]
fn a_check_writes_nothing() {
    let disk = FaultyDisk::new(7);
    let db = filled(&disk, quiet(), 3_000);
    db.checkpoint().unwrap();
    fill(&db, 3_000, 9_000);
    disk.kill();
    drop(db);
    let disk = disk.restart();
    let bytes = |disk: &FaultyDisk| {
        let file = disk.open("pages", Open::ReadOnly, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let before = bytes(&disk);
    let as_disk: Arc<dyn Disk> = disk.clone();
    let report = check::check(&as_disk, 64 << 20, 2).unwrap();
    assert!(report.is_sound(), "{report}");
    let verified = "table \"on_disk\": 3000 rows in 3 indexes, in pages as of the checkpoint".to_owned();
    assert!(report.verified.contains(&verified), "{report}");
    assert!(bytes(&disk) == before, "the page file is as it was");
}

/// Threads write the same number to a row on the disk and to one in memory, beside checkpoints. After a crash the pairs are
/// equal, and what was answered is there.
#[test]
fn a_cut_beside_commits_has_each_of_them_whole() {
    const PAIRS: i32 = 40;
    let (first, seeds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let about = format!("RIALTO_SEED={seed}");
        let checkpoint_interval = std::time::Duration::from_millis(1);
        let mut options = Options { checkpoint_interval, ..options(&mut random) };
        if options.checkpoint == Checkpointing::None {
            options.checkpoint = Checkpointing::Fuzzy;
        }
        let disk = FaultyDisk::new(seed);
        let db = filled(&disk, options.clone(), PAIRS);
        disk.crash_at(disk.steps() + 20 + random.below(600));
        let answered: Vec<i32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let db = &db;
                    scope.spawn(move || {
                        let tables = ["on_disk", "in_memory"].map(|name| db.table(name).unwrap());
                        let mut last = 0;
                        for number in 1.. {
                            let (id, code) = (thread, 1_000 * (thread + 1) + number % 1_000);
                            let change = |tx: &mut Transaction<'_>| {
                                tables.iter().try_for_each(|table| {
                                    tx.update(table, id, &[(1, Value::Int4(number)), (2, Value::Int4(code))])
                                        .map(drop)
                                })
                            };
                            if db.transact(change).is_err() {
                                break;
                            }
                            last = number;
                        }
                        last
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        drop(db);
        disk.crash();
        let disk = disk.restart();
        let db = Database::open_on(disk, options).unwrap_or_else(|error| panic!("{about}: {error}"));
        let found = contents(&db);
        assert_eq!(found["on_disk"], found["in_memory"], "{about}");
        for (thread, &last) in (0..).zip(&answered) {
            let number = found["on_disk"][&thread].0;
            assert!(number == last || number == last + 1 || last == 0, "{about}: {number}, answered {last}");
        }
    });
    println!("tally: cuts beside commits, {seeds} seeds, RIALTO_SEED={first}");
}

/// The newest copy cannot be read, and the older one stands in. What the newest checkpoint has written stays whole until its
/// block is retired, whether the older one has pages or not.
#[test]
fn a_recovery_that_falls_back_leaves_the_newest_pages_as_they_are() {
    for checkpoints in [1, 2] {
        let disk = FaultyDisk::new(9);
        let options = Options { memory_bytes: 64 << 20, page_bytes: 4096, ..quiet() };
        let db = filled(&disk, options.clone(), 20_000);
        (0..checkpoints).for_each(|_| {
            fill(&db, 20_000 + db.table("on_disk").unwrap().rows_estimate() as i32, 20_500);
            db.checkpoint().unwrap();
            let table = db.table("on_disk").unwrap();
            db.transact(|tx| tx.update(&table, 5, &[(3, Value::Text("y".repeat(150)))]).map(drop)).unwrap();
        });
        let model = contents(&db);
        disk.kill();
        drop(db);
        let disk = disk.restart();
        disk.fail(FaultKind::Read, "backup-", 0);
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        assert!(db.recovery().unwrap().fell_back.is_some(), "the test's own premise");
        assert_same(&contents(&db), &model, "fallen back");
        // Pages leave, and others are written in their place.
        let table = db.table("on_disk").unwrap();
        for ids in (0..20_000).collect::<Vec<_>>().chunks(500) {
            db.transact(|tx| {
                ids.iter().try_for_each(|id| tx.update(&table, *id, &[(1, Value::Int4(9))]).map(drop))
            })
            .unwrap();
        }
        let model = contents(&db);
        disk.kill();
        drop(db);
        let db = Database::open_on(disk.restart(), options).unwrap();
        assert!(db.recovery().unwrap().fell_back.is_none());
        assert_same(&contents(&db), &model, "with the newest copy");
    }
}

/// The pages of a table that is dropped are used again, and the file becomes shorter.
#[test]
fn the_pages_of_a_dropped_table_are_given_back() {
    let disk = FaultyDisk::new(11);
    let options = Options { memory_bytes: 64 << 20, page_bytes: 4096, ..quiet() };
    let db = filled(&disk, options.clone(), 60_000);
    db.checkpoint().unwrap();
    let before = db.metrics().pages;
    db.transact(|tx| tx.drop_table("on_disk")).unwrap();
    let table = db.table("in_memory").unwrap();
    let checkpoint = |number: i32| {
        db.transact(|tx| tx.update(&table, 1, &[(1, Value::Int4(number))]).map(drop)).unwrap();
        db.checkpoint().unwrap();
    };
    (0..4).for_each(checkpoint);
    let after = db.metrics().pages;
    assert!(after.pages == 0 && after.used_bytes < 100_000, "{after:?}");
    assert!(
        before.file_bytes > 15_000_000 && after.file_bytes < before.file_bytes / 4,
        "{before:?}, {after:?}"
    );
    // What was dropped is used again.
    db.transact(|tx| tx.create_table(&definition("on_disk")).map(drop)).unwrap();
    let in_memory = contents(&db)["in_memory"].clone();
    let on_disk = db.table("on_disk").unwrap();
    for rows in in_memory.iter().take(20_000).collect::<Vec<_>>().chunks(500) {
        let row = |(id, (part, code, text)): &(&i32, &(i32, i32, String))| {
            [Value::Int4(**id), Value::Int4(*part), Value::Int4(*code), Value::Text(text.clone())]
        };
        db.transact(|tx| rows.iter().try_for_each(|one| tx.insert(&on_disk, &row(one)))).unwrap();
    }
    checkpoint(5);
    assert!(db.metrics().pages.file_bytes < before.file_bytes, "{:?}", db.metrics().pages);
    let model = contents(&db);
    disk.crash();
    drop(db);
    assert_same(&contents(&Database::open_on(disk.restart(), options).unwrap()), &model, "opened");
}

/// A transaction that changes more pages than there is memory for is refused, and leaves nothing.
#[test]
fn a_transaction_that_claims_all_pages_is_refused() {
    let disk = FaultyDisk::new(13);
    let options = Options { memory_bytes: 64 << 20, page_bytes: 65_536, ..quiet() };
    let db = filled(&disk, options, 30_000);
    let table = db.table("on_disk").unwrap();
    let model = contents(&db);
    let mut tx = db.begin().unwrap();
    let update = |tx: &mut Transaction<'_>, id: i32| tx.update(&table, id, &[(1, Value::Int4(7))]);
    let refused = (0..30_000).step_by(20).map(|id| update(&mut tx, id)).find(Result::is_err);
    assert!(matches!(refused, Some(Err(Error::CacheFull { .. }))), "{refused:?}");
    tx.abort().unwrap();
    assert_same(&contents(&db), &model, "after the abort");
    for id in (0..30_000).step_by(500) {
        assert_eq!(db.transact(|tx| update(tx, id)), Ok(true));
    }
    db.checkpoint().unwrap();
}

/// One transaction fills a table that is several times as large as the memory for pages and as its write set may be, gives it an
/// index, and moves it. What redo makes of that is the same, and what is taken back leaves no page.
#[test]
fn a_transaction_may_fill_a_table_that_is_larger_than_memory() {
    const ROWS: i32 = 40_000;
    let mut disk = FaultyDisk::new(17);
    let options = Options {
        memory_bytes: 64 << 20,
        page_bytes: 4096,
        write_set_bytes_max: 1 << 20,
        log_bytes_max: 64 << 20,
        ..quiet()
    };
    let open = |disk: &Arc<FaultyDisk>| Database::open_on(disk.clone(), options.clone()).unwrap();
    let mut db = open(&disk);
    let fill = |tx: &mut Transaction<'_>| {
        let table = tx.create_table(&TableDef { indexes: Vec::new(), ..definition("on_disk") })?;
        (0..ROWS).try_for_each(|n| {
            let id = (i64::from(n) * 7_919 % i64::from(ROWS)) as i32;
            let text = Value::Text("x".repeat(200 + if n % 1_000 == 0 { 20_000 } else { 0 }));
            tx.insert(&table, &[Value::Int4(id), Value::Int4(id % 5), Value::Int4(ROWS - id), text])
        })
    };
    let index = |tx: &mut Transaction<'_>| tx.create_index("on_disk", "by_code", &["code"], true);
    // What is taken back is given back.
    let mut tx = db.begin().unwrap();
    fill(&mut tx).unwrap();
    index(&mut tx).unwrap();
    tx.abort().unwrap();
    let spend = |db: &Database| {
        db.transact(|tx| tx.create_table(&definition("in_memory")).map(drop)).unwrap();
        db.checkpoint().unwrap();
        db.transact(|tx| tx.drop_table("in_memory")).unwrap();
        db.checkpoint().unwrap();
    };
    (0..2).for_each(|_| spend(&db));
    let pages = db.metrics().pages;
    assert!(pages.pages == 0 && pages.used_bytes < 100_000, "{pages:?}");

    db.transact(fill).unwrap();
    let pages = db.metrics().pages;
    assert!(pages.pages * pages.page_bytes > 2 * options.cache_bytes, "{pages:?}");
    let model = contents(&db);
    assert_eq!(model["on_disk"].len(), ROWS as usize);
    type Step<'a> = &'a dyn Fn(&mut Transaction<'_>) -> Result<(), Error>;
    let steps: [(&str, Step<'_>); 6] = [
        ("filled", &|_| Ok(())),
        ("indexed", &index),
        ("moved to memory", &|tx| tx.set_residence("on_disk", Residence::Memory)),
        ("moved to the disk", &|tx| tx.set_residence("on_disk", Residence::Disk)),
        ("without its index", &|tx| tx.drop_index("by_code")),
        ("with another index", &|tx| tx.create_index("on_disk", "by_part", &["part"], false)),
    ];
    for (step, (what, work)) in steps.into_iter().enumerate() {
        db.transact(work).unwrap();
        if step == 2 {
            db.checkpoint().unwrap();
        }
        assert_same(&contents(&db), &model, what);
        disk.crash();
        drop(db);
        disk = disk.restart();
        let as_disk: Arc<dyn Disk> = disk.clone();
        let report = check::check(&as_disk, 64 << 20, 2).unwrap();
        assert!(report.is_sound(), "{what}: {report}");
        db = open(&disk);
        assert_same(&contents(&db), &model, &format!("{what}, opened"));
    }
    (0..2).for_each(|_| spend(&db));
    let (pages, file) = (db.metrics().pages, db.metrics().pages.file_bytes);
    assert!(pages.used_bytes < 4 * pages.pages * pages.page_bytes / 2, "{pages:?}, {file} bytes");
}

/// A refused index or move leaves nothing, and the transaction goes on.
#[test]
fn a_refused_definition_of_a_disk_resident_table_leaves_nothing() {
    let disk = FaultyDisk::new(19);
    let db = filled(&disk, Options { memory_bytes: 8 << 20, page_bytes: 4096, ..quiet() }, 15_000);
    db.transact(|tx| tx.drop_table("in_memory")).unwrap();
    let model = contents(&db);
    let settle = || {
        db.checkpoint().unwrap();
        db.transact(|tx| tx.create_table(&definition("in_memory")).map(drop)).unwrap();
        db.checkpoint().unwrap();
        db.transact(|tx| tx.drop_table("in_memory")).unwrap();
        db.checkpoint().unwrap();
    };
    settle();
    let before = db.metrics().pages.pages;
    db.transact(|tx| {
        let twice = tx.create_index("on_disk", "twice", &["part"], true);
        assert!(matches!(&twice, Err(Error::DuplicateKey { key, .. }) if key.contains('(')), "{twice:?}");
        let missing = tx.create_index("on_disk", "missing", &["nothing"], true);
        assert!(matches!(missing, Err(Error::NoSuchColumn { .. })), "{missing:?}");
        Ok(())
    })
    .unwrap();
    let mut tx = db.begin().unwrap();
    tx.canceller().cancel();
    let cancelled = tx.create_index("on_disk", "again", &["text"], false);
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    drop(tx);
    settle();
    assert_eq!(db.metrics().pages.pages, before);
    assert_same(&contents(&db), &model, "afterwards");
}

/// A table of few long rows moves with less memory for pages than its rows take.
#[test]
fn a_table_of_long_rows_moves_through_a_small_cache() {
    const ROWS: i32 = 240;
    let disk = FaultyDisk::new(23);
    let db =
        Database::open_on(disk, Options { memory_bytes: 32 << 20, page_bytes: 65_536, ..quiet() }).unwrap();
    let table = db.transact(|tx| tx.create_table(&definition("on_disk"))).unwrap();
    for id in 0..ROWS {
        let text = Value::Text("x".repeat(31_000));
        let row = [Value::Int4(id), Value::Int4(id % 5), Value::Int4(-id), text];
        db.transact(|tx| tx.insert(&table, &row)).unwrap();
    }
    let model = contents(&db);
    for residence in [Residence::Memory, Residence::Disk] {
        db.transact(|tx| tx.set_residence("on_disk", residence)).unwrap();
        assert_same(&contents(&db), &model, &format!("{residence:?}"));
    }
}

/// The log has a call, of an opening that logged calls. Recovery goes on with a replay behind it, and rows of a disk-resident table
/// that come there have their entries in its indexes.
#[test]
fn rows_of_a_disk_resident_table_behind_a_call_have_their_entries() {
    let add = Action::exclusive("in_memory", |tx, arguments, _| {
        let id = Value::Int4(arguments.get(0)?);
        tx.insert(arguments.table()?, &[id.clone(), Value::Int4(0), id, Value::Text("called".to_owned())])
    });
    let add = Procedure::new("add", [ColumnType::Int4], add.by_argument(0)).deterministic(1);
    let options = |logging| Options { logging, procedures: vec![add.clone()], ..quiet() };
    let disk = FaultyDisk::new(21);
    let db = Database::open_on(disk.clone(), options(Logging::Transaction)).unwrap();
    db.transact(|tx| tx.create_table(&definition("in_memory")).map(drop)).unwrap();
    db.call("add", &[Value::Int4(1)]).unwrap();
    db.close().unwrap();

    let db = Database::open_on(disk.clone(), options(Logging::Value)).unwrap();
    assert_eq!(db.recovery().unwrap().calls, 1, "the test's own premise");
    db.transact(|tx| tx.create_table(&definition("on_disk")).map(drop)).unwrap();
    let table = db.table("on_disk").unwrap();
    let row = |id| [Value::Int4(id), Value::Int4(id % 5), Value::Int4(id), Value::Text("x".to_owned())];
    for id in 0..50 {
        db.transact(|tx| tx.insert(&table, &row(id))).unwrap();
    }
    // A table that the replay has had in memory goes to the disk.
    db.transact(|tx| tx.set_residence("in_memory", Residence::Disk)).unwrap();
    let moved = db.table("in_memory").unwrap();
    db.transact(|tx| tx.insert(&moved, &row(2))).unwrap();
    let model = contents(&db);
    disk.kill();
    drop(db);
    let db = Database::open_on(disk.restart(), options(Logging::Value)).unwrap();
    assert_same(&contents(&db), &model, "opened");
    for (name, code) in [("on_disk", 7), ("in_memory", 2)] {
        let table = db.table(name).unwrap();
        let twice = [Value::Int4(900), Value::Int4(0), Value::Int4(code), Value::Text(String::new())];
        let twice = db.transact(|tx| tx.insert(&table, &twice));
        assert!(matches!(twice, Err(Error::DuplicateKey { .. })), "{name}: {twice:?}");
    }
}

/// Rows keep their hidden numbers when their table gets a primary key, whose values are no numbers of rows.
#[test]
fn the_highest_primary_key_is_no_row_number() {
    for from in [Residence::Disk, Residence::Memory] {
        let disk = FaultyDisk::new(22);
        let db = Database::open_on(disk.clone(), quiet()).unwrap();
        db.transact(|tx| {
            let columns = vec![Column::new("id", ColumnType::Int8)];
            let table = tx.create_table(&TableDef::new("t", columns).with_residence(from))?;
            tx.insert(&table, &[Value::Int8(i64::MAX)])?;
            tx.add_primary_key("t", &["id"])?;
            tx.set_residence("t", Residence::Disk)
        })
        .unwrap();
        disk.kill();
        drop(db);
        let db = Database::open_on(disk.restart(), quiet()).unwrap();
        let table = db.table("t").unwrap();
        db.transact(|tx| tx.insert(&table, &[Value::Int8(5)])).unwrap();
        assert_eq!(table.rows_estimate(), 2);
    }
}

/// What can be opened can be checked, with the same memory.
#[test]
fn a_load_that_is_larger_than_memory_is_checked() {
    const ROWS: i32 = 60_000;
    let disk = FaultyDisk::new(23);
    let options = Options { page_bytes: 4096, write_set_bytes_max: 1 << 20, ..quiet() };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    db.transact(|tx| {
        let table = tx.create_table(&TableDef { indexes: Vec::new(), ..definition("on_disk") })?;
        let text = || Value::Text("x".repeat(200));
        (0..ROWS)
            .try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0), Value::Int4(id), text()]))
    })
    .unwrap();
    disk.crash();
    drop(db);
    let disk = disk.restart();
    let as_disk: Arc<dyn Disk> = disk.clone();
    let report = check::check(&as_disk, options.memory_bytes, 2).unwrap();
    assert!(report.is_sound(), "{report}");
    let db = Database::open_on(disk, options).unwrap();
    assert_eq!(db.table("on_disk").unwrap().rows_estimate(), ROWS as u64);
}
