//! The archived log, and restores to a place or a time in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::common::archives::{add, archiving, contents, copied, full, ids, loaded, plan, refused, restored};
use crate::common::quiet::{count, options, put, thing, things};
use rialto::backup::{Restore, RestoreTo, restore};
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, MemoryDisk, Open, Random};
use rialto::recovery::check::check;
use rialto::row::{ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Durability, Error, Logging, Lsn, OpenError, Options, Procedure,
    TxOptions,
};

mod loads;

/// To each place from the backup to the end, across log files that checkpoints have freed, under each kind of
/// checkpoint: the restore has exactly what had been committed by then, and the database goes on from there.
#[test]
fn a_database_is_restored_to_any_place() {
    let mut random = Random::new(Random::seed_from_environment());
    for checkpoint in Checkpointing::ALL {
        let archive: Arc<dyn Disk> = MemoryDisk::new();
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
        db.set_checkpoint(checkpoint).unwrap();
        things(&db);
        put(&db, 0..50);
        let (backup, place) = full(&db);
        let mut added = Vec::new();
        for id in 100..250 {
            added.push((add(&db, id, 30_000), id));
            if id % 50 == 0 {
                db.checkpoint().unwrap();
            }
        }
        // Definitions and a bulk load, whose file is gone from the directory when the database is closed.
        loaded(&db, "loaded");
        for id in 250..253 {
            added.push((add(&db, id, 30_000), id));
            db.checkpoint().unwrap();
        }
        assert!(
            !disk.list().unwrap().iter().any(|name| name.starts_with("load-")),
            "it is in the archive alone"
        );
        assert!(!disk.list().unwrap().contains(&"log-0000000001".to_owned()), "the test's own premise");
        let stats = db.metrics().archive.unwrap();
        assert!(stats.files >= 1 && stats.failure.is_none() && stats.bytes > 4 << 20, "{stats:?}");
        db.close().unwrap();

        let end = added.last().unwrap().0;
        let mut places: Vec<Lsn> = (0..3).map(|_| Lsn(place.0 + random.below(end.0 - place.0))).collect();
        places.extend([place, end]);
        for at in places {
            let (db, report, target) = restored(plan(&backup, &archive, RestoreTo::Place(at)));
            assert_eq!(report.place, at);
            let expected: BTreeSet<i32> =
                (0..50).chain(added.iter().filter(|(lsn, _)| *lsn <= at).map(|(_, id)| *id)).collect();
            assert!(ids(&db) == expected, "{checkpoint:?}: to {at}");
            // Its own log goes on, and is recovered.
            assert_eq!(add(&db, 9_000, 100), Lsn(at.0 + 1));
            db.checkpoint().unwrap();
            add(&db, 9_001, 100);
            db.sync().unwrap();
            drop(db);
            target.remove("log-tail").unwrap();
            let db = Database::open_on(target, options()).unwrap();
            assert_eq!(ids(&db).len(), expected.len() + 2);
        }
        let (db, report, _) = restored(plan(&backup, &archive, RestoreTo::End));
        assert_eq!(report.place, end);
        let loaded = db.table("loaded").unwrap();
        assert_eq!(db.read(|tx| tx.count(&loaded)).unwrap(), 400);
    }
}

#[test]
fn a_database_is_restored_to_a_time() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(MemoryDisk::new(), archiving(&archive)).unwrap();
    things(&db);
    put(&db, 0..50);
    let (backup, _) = full(&db);
    let mut moments = Vec::new();
    for round in 0..4 {
        std::thread::sleep(Duration::from_millis(40));
        moments.push((SystemTime::now(), 50 + round * 10));
        std::thread::sleep(Duration::from_millis(40));
        put(&db, 100 + round * 10..110 + round * 10);
        // Level 3, so its group is gathered before the answer.
        db.sync().unwrap();
    }
    db.archive_log().unwrap();
    for (time, rows) in moments {
        let (db, report, _) = restored(plan(&backup, &archive, RestoreTo::Time(time)));
        assert_eq!(count(&db), rows as u64);
        assert!(report.time.is_none_or(|last| last <= time));
    }
    // In a minute, and beyond what milliseconds in 64 bits can express.
    for (ahead, year) in [(60, "20"), (i64::MAX as u64 / 2, "294247")] {
        let late = RestoreTo::Time(SystemTime::now() + Duration::from_secs(ahead));
        let (text, code) = refused(plan(&backup, &archive, late));
        assert!(text.starts_with(&format!("cannot restore to {year}")) && code == 3, "{text}");
        assert!(
            text.contains(" UTC: the archive memory (lost when the process ends) reaches place 6 at 20"),
            "{text}"
        );
    }
    let early = RestoreTo::Time(SystemTime::now() - Duration::from_secs(60));
    let (text, _) = refused(plan(&backup, &archive, early));
    assert!(text.contains(" UTC: \"b\" holds everything up to place 2 at 20"), "{text}");
    assert!(text.ends_with(" UTC already; give an earlier backup"), "{text}");
}

/// The tables, with their rows and the names of their indexes.
fn tables(db: &Database) -> Vec<(String, u64, Vec<String>)> {
    let there = ["things", "loaded"].into_iter().filter_map(|name| db.table(name).ok());
    let described = there.map(|table| {
        let indexes = table.schema().indexes().iter().map(|index| index.name.clone()).collect();
        (table.schema().table().to_owned(), db.read(|tx| tx.count(&table)).unwrap(), indexes)
    });
    described.collect()
}

/// A commit after a backup has no earlier time than the backup, however small a part of a millisecond, or of a tick of
/// the machine's clock, lies between them.
#[test]
fn a_commit_right_behind_a_backup_is_restored_to_by_its_time() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(MemoryDisk::new(), archiving(&archive)).unwrap();
    things(&db);
    for id in 0..10 {
        let (backup, place) = full(&db);
        put(&db, id..id + 1);
        db.archive_log().unwrap();
        let to = |to| restored(plan(&backup, &archive, to));
        let (_, report, _) = to(RestoreTo::Place(Lsn(place.0 + 1)));
        let time = report.time.expect("the log says it");
        let (restored, ..) = to(RestoreTo::Time(time));
        assert_eq!(count(&restored), id as u64 + 1);
    }
}

/// A commit's time is the first at which a restore has it, to the millisecond; and a definition's time is its commit's.
#[test]
fn a_restore_to_the_time_of_a_commit_has_it_and_one_to_just_before_does_not() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(MemoryDisk::new(), archiving(&archive)).unwrap();
    let table = things(&db);
    put(&db, 0..10);
    let (backup, first) = full(&db);
    let steps: [&dyn Fn(); 9] = [
        &|| put(&db, 10..20),
        &|| loaded(&db, "loaded"),
        &|| put(&db, 20..30),
        &|| db.transact(|tx| tx.create_index("things", "by_text", &["text", "id"], false)).unwrap(),
        &|| put(&db, 30..40),
        &|| db.transact(|tx| tx.truncate(&table)).unwrap(),
        &|| put(&db, 40..50),
        &|| db.transact(|tx| tx.drop_table("loaded")).unwrap(),
        &|| db.transact(|tx| tx.drop_index("by_text")).unwrap(),
    ];
    let mut states = vec![tables(&db)];
    // Longer than the ticks of the log's times.
    let tick = Duration::from_millis(50);
    for (nth, step) in steps.into_iter().enumerate() {
        std::thread::sleep(tick);
        step();
        states.push(tables(&db));
        if nth == 4 {
            db.checkpoint().unwrap();
        }
    }
    std::thread::sleep(tick);
    db.transact(|tx| tx.create_index("things", "last", &["id"], false)).unwrap();
    db.close().unwrap();
    let millisecond = Duration::from_millis(1);
    for (nth, state) in states.iter().enumerate().skip(1) {
        let place = Lsn(first.0 + nth as u64);
        let (db, report, _) = restored(plan(&backup, &archive, RestoreTo::Place(place)));
        assert_eq!((&tables(&db), report.place), (state, place));
        let time = report.time.expect("the log says it");
        for (at, which) in [(time - millisecond, nth - 1), (time, nth), (time + millisecond, nth)] {
            let (db, report, _) = restored(plan(&backup, &archive, RestoreTo::Time(at)));
            assert_eq!(report.place, Lsn(first.0 + which as u64), "step {nth}");
            assert_eq!(tables(&db), states[which], "step {nth}, to place {}", report.place);
        }
    }
}

/// Log files of two databases; the second has freed its first one.
fn two_files(archive: &Arc<dyn Disk>) -> (Vec<u8>, Vec<u8>, Lsn) {
    let db = Database::open_on(MemoryDisk::new(), archiving(archive)).unwrap();
    things(&db);
    put(&db, 0..50);
    let (early, _) = full(&db);
    for id in 100..260 {
        add(&db, id, 30_000);
        if id % 80 == 0 {
            db.checkpoint().unwrap();
        }
    }
    let (late, _) = full(&db);
    let end = add(&db, 300, 10);
    db.close().unwrap();
    let names = archive.list().unwrap();
    assert!(
        names.contains(&"log-0000000001".to_owned()) && names.contains(&"log-0000000002".to_owned()),
        "{names:?}"
    );
    (early, late, end)
}

#[test]
fn what_an_archive_lacks_is_named() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let (early, late, end) = two_files(&archive);
    let place = |place: u64| RestoreTo::Place(Lsn(place));
    let (text, code) = refused(plan(&early, &archive, place(end.0 + 5)));
    let expected = format!(
        "cannot restore to place {}: the archive memory (lost when the process ends) reaches place {end} at ",
        end.0 + 5
    );
    assert!(text.starts_with(&expected) && code == 3, "{text}");
    assert!(
        text.ends_with(
            " UTC; what was committed later is in the database's own log until a checkpoint frees it or the database is closed"
        ),
        "{text}"
    );
    let (text, _) = refused(plan(&early, &archive, place(1)));
    assert!(
        text.starts_with("cannot restore to place 1: \"b\" holds everything up to place 2 at "),
        "{text}"
    );
    let mut alone = plan(&early, &archive, place(3));
    alone.archive = None;
    let (text, _) = refused(alone);
    assert!(text.starts_with("cannot restore to place 3: \"b\" reaches place 2 at "), "{text}");
    assert!(text.ends_with(" UTC, and no archive of the log that follows is given"), "{text}");

    // Of another database.
    let other: Arc<dyn Disk> = MemoryDisk::new();
    let (foreign, ..) = two_files(&other);
    let (text, code) = refused(plan(&foreign, &archive, RestoreTo::End));
    assert!(
        text.starts_with("\"memory (lost when the process ends)/log-0000000001\" is corrupt at offset 0: belongs to database "),
        "{text}"
    );
    assert_eq!(code, 1);
    let empty: Arc<dyn Disk> = MemoryDisk::new();
    let (text, code) = refused(plan(&early, &empty, RestoreTo::End));
    assert!(
        text.starts_with("the archive memory (lost when the process ends) holds no log of database ")
            && code == 3,
        "{text}"
    );
    assert!(text.ends_with(", which \"b\" is of: give that database's archive"), "{text}");

    // A missing file is named if it is in the middle or at the beginning; after the end it is unknown.
    archive.remove("log-0000000001").unwrap();
    let (text, code) = refused(plan(&early, &archive, RestoreTo::End));
    let expected = "\"memory (lost when the process ends)/log-0000000001\" is corrupt at offset 0: the archived log file is \
                    missing: the log from place 3 on is needed, and \"log-0000000002\", the oldest that is there, begins \
                    with place ";
    assert!(text.starts_with(expected) && code == 1, "{text}");
    let (db, report, _) = restored(plan(&late, &archive, RestoreTo::End));
    assert_eq!((report.place, count(&db)), (end, 211));

    // Damage.
    let file = archive.open("log-0000000002", Open::Existing, Caching::Buffered).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 4096 + 200_000).unwrap();
    file.write_at(&[byte[0] ^ 4], 4096 + 200_000).unwrap();
    let (text, code) = refused(plan(&late, &archive, RestoreTo::End));
    assert!(
        text.starts_with("\"memory (lost when the process ends)/log-0000000002\" is corrupt at offset ")
            && code == 1,
        "{text}"
    );
    assert!(text.contains("it is damaged, and was durable"), "{text}");
}

/// A gap between archived files is named.
#[test]
fn a_missing_file_between_others_is_named() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let (early, ..) = two_files(&archive);
    archive.rename("log-0000000002", "away").unwrap();
    // As if there were a third.
    let away = archive.open("away", Open::ReadOnly, Caching::Buffered).unwrap();
    let mut header = vec![0; 4096];
    away.read_at(&mut header, 0).unwrap();
    let start = u64::from_le_bytes(header[40..48].try_into().unwrap());
    let capacity = u64::from_le_bytes(header[48..56].try_into().unwrap());
    header[32..40].copy_from_slice(&3u64.to_le_bytes());
    header[40..48].copy_from_slice(&(start + capacity).to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&header[..56]);
    header[56..64].copy_from_slice(&checksum.to_le_bytes());
    let third = archive.open("log-0000000003", Open::Create, Caching::Buffered).unwrap();
    third.write_at(&header, 0).unwrap();
    third.set_length(4096 + capacity).unwrap();
    assert_eq!(
        refused(plan(&early, &archive, RestoreTo::End)),
        (
            "\"memory (lost when the process ends)/log-0000000002\" is corrupt at offset 0: the log file is missing: \
             \"log-0000000003\" comes after it"
                .to_owned(),
            1
        )
    );
}

/// The tail that a restore gave up, copied to where the new database's log goes on, is not accepted as its log.
#[test]
fn a_given_up_tail_never_chains_on() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    things(&db);
    put(&db, 0..50);
    let (backup, _) = full(&db);
    let places: Vec<Lsn> = (100..140).map(|id| add(&db, id, 500)).collect();
    db.close().unwrap();
    let (new, _, target) = restored(plan(&backup, &archive, RestoreTo::Place(places[4])));
    drop(new);
    let read = |disk: &dyn Disk, name: &str| {
        let file = disk.open(name, Open::ReadOnly, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let (old, new) = (read(&*disk, "log-0000000001"), read(&*target, "log-0000000001"));
    target.remove("log-tail").unwrap();
    // From each page on.
    for page in 1..64 {
        let forged = MemoryDisk::new();
        for name in target.list().unwrap() {
            let file = forged.open(&name, Open::Create, Caching::Buffered).unwrap();
            file.write_at(&read(&*target, &name), 0).unwrap();
        }
        let file = forged.open("log-0000000001", Open::Existing, Caching::Buffered).unwrap();
        let used = new.iter().rposition(|&byte| byte != 0).unwrap().next_multiple_of(4096);
        let from = used + (page - 1) * 4096;
        file.write_at(&old[page * 4096..old.len() - from + page * 4096], from as u64).unwrap();
        let db = Database::open_on(forged, options()).unwrap();
        assert_eq!(count(&db), 55);
    }
}

/// While the archive fails the log keeps its files, up to its bound. Nothing is lost, and the log goes on when the
/// archive does.
#[test]
fn a_failing_archive_keeps_the_log() {
    let archive = FaultyDisk::new(Random::seed_from_environment());
    let shared: Arc<dyn Disk> = archive.clone();
    let disk = MemoryDisk::new();
    let options =
        Options { log_bytes_max: 80 << 20, log_wait_max: Duration::from_millis(200), ..archiving(&shared) };
    let db = Database::open_on(disk.clone(), options).unwrap();
    things(&db);
    let (backup, _) = full(&db);
    archive.fail_always(FaultKind::Write, "log-", 0);
    let table = db.table("things").unwrap();
    let level_1 = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    let (mut committed, began) = (0, Instant::now());
    let refused = loop {
        match db.submit_with(&level_1, |tx| {
            if committed >= 100 {
                tx.delete(&table, committed - 100)?;
            }
            tx.insert(&table, &thing(committed, 30_000))
        }) {
            Ok(_) => committed += 1,
            // A loaded machine has not attempted it yet.
            Err(error @ Error::LogFull { .. }) if db.metrics().archive.unwrap().failure.is_none() => {
                assert!(began.elapsed() < Duration::from_secs(60), "{error}");
                continue;
            }
            Err(error) => break error,
        }
        if committed % 100 == 0 {
            db.checkpoint().unwrap();
        }
    };
    assert!(matches!(refused, Error::LogFull { .. }), "{refused}");
    let text = refused.to_string();
    let expected = "; the archive takes none: set length of \"log-0000000001.unfinished\" at offset 0 failed: Input/output error \
                    (os error 5); no checkpoint is made by itself (Checkpointing::None): make one";
    assert!(text.ends_with(expected), "{text}");
    let failure = db.metrics().archive.unwrap().failure.unwrap();
    assert!(failure.starts_with("set length of \"log-0000000001.unfinished\""), "{failure}");
    assert!(disk.list().unwrap().contains(&"log-0000000001".to_owned()), "it is kept");
    archive.mend();
    // Two checkpoints: the first finds no changes, or frees what the older one needed.
    let went_on = |round| {
        let _ = db.checkpoint();
        let deleted = db.submit_with(&level_1, |tx| tx.delete(&table, committed - 1).map(drop)).is_ok();
        deleted && round > 1 && db.metrics().archive.unwrap().failure.is_none()
    };
    let mended = Instant::now();
    let is_patient = |_: &i32| mended.elapsed() < Duration::from_secs(60);
    assert!((0..).take_while(is_patient).any(went_on), "it goes on");
    add(&db, 1_000_000, 100);
    assert_eq!(db.metrics().archive.unwrap().failure, None);
    let expected = ids(&db);
    db.close().unwrap();
    let (db, ..) = restored(plan(&backup, &shared, RestoreTo::End));
    assert_eq!(ids(&db), expected);
}

/// A database that is closed, or killed, and opened again continues the files that its archive has in part.
#[test]
fn an_archive_goes_on_behind_what_it_has_in_part() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let mut disk = FaultyDisk::new(Random::seed_from_environment());
    let mut db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    things(&db);
    let (backup, _) = full(&db);
    for round in 0..12 {
        for n in 0..20 {
            add(&db, round * 100 + n, 30_000);
        }
        db.archive_log().unwrap();
        put(&db, round * 100 + 50..round * 100 + 51);
        if round % 3 == 0 {
            db.close().unwrap();
        } else {
            db.sync().unwrap();
            disk.kill();
            drop(db);
            disk = disk.restart();
        }
        db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
        if round % 4 == 0 {
            db.checkpoint().unwrap();
        }
        assert_eq!(db.metrics().archive.unwrap().failure, None);
    }
    let expected = ids(&db);
    assert_eq!(expected.len(), 12 * 21);
    db.close().unwrap();
    let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
    assert_eq!(ids(&db), expected);
}

/// The machine of the database, or that of the archive, crashes at any step: nothing that was durable is missing in
/// both.
#[test]
fn a_crash_at_any_step_of_archiving_loses_nothing() {
    let base = Random::seed_from_environment();
    let until = std::time::Instant::now() + Random::test_time_from_environment();
    let (mut rounds, mut archived, mut rows) = (0, 0, 0);
    while rounds < 6 || std::time::Instant::now() < until {
        let seed = base.wrapping_add(rounds);
        rounds += 1;
        let mut random = Random::new(seed);
        let mut archive = FaultyDisk::new(random.next());
        let mut disk = FaultyDisk::new(random.next());
        let about = format!("RIALTO_SEED={seed}");
        let with = |archive: &Arc<FaultyDisk>| {
            let archive: Arc<dyn Disk> = archive.clone();
            archiving(&archive)
        };
        let mut db = Database::open_on(disk.clone(), with(&archive)).unwrap();
        things(&db);
        let (backup, _) = full(&db);
        let (mut id, mut acknowledged) = (0, 0);
        for _ in 0..3 {
            // Past the end of the first file, once.
            if random.chance(1, 2) {
                archive.crash_at(archive.steps() + 1 + random.below(20));
            } else {
                disk.crash_at(disk.steps() + 20 + random.below(120));
            }
            for _ in 0..60 {
                let table = db.table("things").unwrap();
                id += 1;
                match db.transact(|tx| tx.insert(&table, &thing(id - 1, 30_000))) {
                    Ok(()) => acknowledged = id,
                    Err(_) if disk.is_down() => break,
                    Err(error) => panic!("{about}: {error}"),
                }
                if id % 15 == 0 {
                    let _ = db.checkpoint();
                }
                if id % 20 == 0 {
                    archived += u64::from(db.archive_log().is_ok());
                }
            }
            disk.crash();
            archive.crash();
            drop(db);
            (disk, archive) = (disk.restart(), archive.restart());
            db = Database::open_on(disk.clone(), with(&archive))
                .unwrap_or_else(|error| panic!("{about}: {error}"));
            // Everything that was acknowledged, and perhaps the transaction with the unknown outcome.
            let found = ids(&db);
            let possible: [BTreeSet<i32>; 2] = [(0..acknowledged).collect(), (0..id).collect()];
            assert!(
                possible.contains(&found),
                "{about}: {acknowledged} of {id} acknowledged, found {found:?}"
            );
            id = found.len() as i32;
            acknowledged = id;
        }
        let expected: BTreeSet<i32> = (0..id).collect();
        db.close().unwrap();
        let shared: Arc<dyn Disk> = archive.clone();
        let (db, ..) = restored(plan(&backup, &shared, RestoreTo::End));
        assert_eq!(ids(&db), expected, "{about}");
        rows += expected.len();
    }
    println!(
        "tally: archives under crashes, {rounds} seeds, {} losses of power, {rows} rows, {archived} times archived, RIALTO_SEED={base}",
        3 * rounds
    );
    assert!(rows > 0 && archived > 0, "RIALTO_SEED={base}: {rows} rows, {archived} times archived");
}

/// An archived log of calls: they run again, by their procedures, on the backup, which is transaction-consistent.
#[test]
fn archived_calls_are_restored_by_their_procedures() {
    let add = Action::exclusive("things", |transaction, arguments, _| {
        let id = arguments.get::<i32>(0)?;
        transaction.insert(arguments.table()?, &thing(id, 30_000))
    });
    let add = Procedure::new("add", [ColumnType::Int4], add.by_argument(0)).deterministic(1);
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let options = Options {
        logging: Logging::Transaction,
        checkpoint: Checkpointing::TransactionCopyOnUpdate,
        procedures: vec![add.clone()],
        ..archiving(&archive)
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    things(&db);
    // Calls are logged as such only on a consistent copy.
    db.checkpoint().unwrap();
    let (backup, place) = full(&db);
    for id in 0..200 {
        db.call("add", &[Value::Int4(id)]).unwrap();
        if id % 80 == 0 {
            db.checkpoint().unwrap();
        }
    }
    let calls = db.metrics().log.bytes;
    assert!(calls < 200 * 30_000 / 4, "the test's own premise: {calls} bytes are calls, not rows");
    db.close().unwrap();

    let half = Lsn(place.0 + 100);
    for (to, last) in [(RestoreTo::Place(half), 99), (RestoreTo::End, 199)] {
        let plan = Restore { procedures: vec![add.clone()], ..plan(&backup, &archive, to) };
        let (db, report, _) = restored(plan);
        assert_eq!(ids(&db), (0..=last).collect(), "{report}");
    }
    let (why, code) = refused(plan(&backup, &archive, RestoreTo::End));
    assert!(why.contains("\"add\"") && code == 3, "{code}: {why}");
}

/// A backup with options that do not name the archive, of a directory that no process has open, leaves the log there.
#[test]
fn a_backup_without_the_archive_frees_no_log() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let disk = FaultyDisk::new(1);
    let bound = 16 << 20;
    let db =
        Database::open_on(disk.clone(), Options { log_bytes_max: bound, ..archiving(&archive) }).unwrap();
    things(&db);
    let (backup, _) = full(&db);
    for id in 0..495 {
        add(&db, id, 30_000);
    }
    db.sync().unwrap();
    assert!(db.metrics().log.bytes > bound / 8 * 7, "the test's own premise");
    disk.kill();
    drop(db);
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), Options { log_bytes_max: bound, ..options() }).unwrap();
    let (another, _) = full(&db);
    db.close().unwrap();
    Database::open_on(disk, archiving(&archive)).unwrap().close().unwrap();
    for backup in [backup, another] {
        let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
        assert_eq!(count(&db), 495);
    }
}

/// An archive's directory belongs to one process: another process that archives there meanwhile gets an error, and
/// keeps its log.
#[test]
fn an_archive_serves_one_process_at_a_time() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let disk = MemoryDisk::new();
    let first = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    things(&first);
    put(&first, 0..10);
    let (backup, _) = full(&first);
    let second = Database::open_on(copied(&*disk), archiving(&archive)).unwrap();
    first.archive_log().unwrap();
    let has = contents(&*archive);
    put(&second, 10..20);
    let told = second.archive_log().unwrap_err().to_string();
    let expected = "not supported: this log in the archive memory (lost when the process ends): another process archives there; \
                    wait for it, or give this database an archive of its own";
    assert_eq!((told.as_str(), second.metrics().archive.unwrap().failure), (expected, Some(told.clone())));
    assert!(contents(&*archive) == has);
    let handle = first.clone();
    first.close().unwrap();
    // The first one has got no further than the copy. A handle of it that is left keeps no other waiting.
    second.archive_log().unwrap();
    second.close().unwrap();
    drop(handle);
    let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
    assert_eq!(count(&db), 20);
}

/// An incomplete copy is removed: after an error, such as a full disk, at once; after a crash when the next process
/// archives there.
#[test]
fn nothing_unfinished_stays_in_an_archive() {
    let archive = FaultyDisk::new(Random::seed_from_environment());
    let shared: Arc<dyn Disk> = archive.clone();
    let unfinished = || archive.list().unwrap().iter().any(|name| name.ends_with(".unfinished"));
    let db = Database::open_on(MemoryDisk::new(), archiving(&shared)).unwrap();
    things(&db);
    let (backup, _) = full(&db);
    (0..60).for_each(|id| _ = add(&db, id, 30_000));
    // A crash has left it.
    archive.open("load-0000000099.unfinished", Open::Create, Caching::Buffered).unwrap();
    for (kind, after) in [(FaultKind::Full, 1), (FaultKind::Write, 1), (FaultKind::Sync, 0)] {
        archive.fail_always(kind, "log-", after);
        let told = db.archive_log().unwrap_err().to_string();
        assert!(told.contains("log-0000000001"), "{told}");
        archive.mend();
        assert!(!unfinished(), "{kind:?}: {told}");
    }
    db.close().unwrap();
    assert!(!unfinished());
    let (db, ..) = restored(plan(&backup, &shared, RestoreTo::End));
    assert_eq!(count(&db), 60);
}

/// A restore and a check that are given no thread, or more than any opening may have, use as many as an opening may.
#[test]
fn a_restore_and_a_check_use_as_many_threads_as_there_may_be() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(MemoryDisk::new(), archiving(&archive)).unwrap();
    things(&db);
    put(&db, 0..10);
    let (backup, _) = full(&db);
    put(&db, 10..20);
    db.close().unwrap();
    for threads in [0, usize::MAX] {
        let target = MemoryDisk::new();
        let given = Restore { threads, ..plan(&backup, &archive, RestoreTo::End) };
        restore(given, target.clone()).unwrap();
        let shared: Arc<dyn Disk> = target.clone();
        let checked = check(&shared, 64 << 20, threads).unwrap();
        assert!(checked.is_sound(), "{threads} threads: {checked}");
        assert_eq!(count(&Database::open_on(target, options()).unwrap()), 20);
    }
}

#[test]
fn archiving_needs_an_archive() {
    let db = Database::open_on(MemoryDisk::new(), options()).unwrap();
    let error = db.archive_log().unwrap_err();
    assert_eq!(error.to_string(), "not supported: archive_log without Options::archive");
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let none = Restore { backups: Vec::new(), ..plan(&[], &archive, RestoreTo::End) };
    assert!(matches!(restore(none, MemoryDisk::new()), Err(OpenError::Options { .. })));
}
