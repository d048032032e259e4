//! Two lives of one database, which began as copies of one directory and have the same identity: no part of one is ever
//! accepted in the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::archives::{
    add, archiving, contents, copied, disk_of, full, ids, loaded, plan, refused, restored,
};
use crate::common::quiet::{options, put, thing, things};
use crate::kept_disks::KeptDisks;
use rialto::backup::{Archive, RestoreTo};
use rialto::io::{Caching, Disk, FaultyDisk, MemoryDisk, Open};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType};
use rialto::{Checkpointing, Database, Lsn, OpenError, Options, TableDef};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A database with ten rows, and a copy of its directory: of a closed one, or of one that goes on.
fn forked(while_open: bool, options: impl Fn() -> Options) -> (Database, Arc<MemoryDisk>, Arc<MemoryDisk>) {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    things(&db);
    put(&db, 0..10);
    if while_open {
        let copy = copied(&*disk);
        return (db, disk, copy);
    }
    db.close().unwrap();
    let copy = copied(&*disk);
    let db = Database::open_on(disk.clone(), options()).unwrap();
    (db, disk, copy)
}

/// The result of one life.
struct Life {
    archive: Arc<dyn Disk>,
    backup: Vec<u8>,
    place: Lsn,
    at_backup: BTreeSet<i32>,
    /// A moment after the backup, and the rows that were there by then.
    moment: SystemTime,
    at_moment: BTreeSet<i32>,
    rows: BTreeSet<i32>,
}

impl Life {
    fn keep(&self, kept: &KeptDisks, name: &str) {
        kept.add(&format!("archive of the {name}"), &*self.archive);
        kept.add_files(&format!("backup of the {name}"), vec![("b".to_owned(), self.backup.clone())]);
    }
}

/// Keeps what both lives have left, if the test fails.
fn keep_lives(lives: &[Life; 2]) -> KeptDisks {
    let kept = KeptDisks::default();
    lives.iter().zip(["first", "second"]).for_each(|(life, name)| life.keep(&kept, name));
    kept
}

/// Adds rows before a backup and after it, and closes.
fn live(
    db: Database,
    archive: &Arc<dyn Disk>,
    first: i32,
    (before, after): (i32, i32),
    bytes: usize,
) -> Life {
    let ahead = first + before;
    (first..ahead).for_each(|id| _ = add(&db, id, bytes));
    db.checkpoint().unwrap();
    let ((backup, place), at_backup) = (full(&db), ids(&db));
    (ahead..ahead + after).for_each(|id| _ = add(&db, id, bytes));
    db.checkpoint().unwrap();
    // Longer than the ticks of the log's times.
    let (tick, at_moment) = (Duration::from_millis(30), ids(&db));
    std::thread::sleep(tick);
    let moment = SystemTime::now();
    std::thread::sleep(tick);
    add(&db, ahead + after, bytes);
    let rows = ids(&db);
    db.close().unwrap();
    Life { archive: archive.clone(), backup, place, at_backup, moment, at_moment, rows }
}

/// Two lives, each with an archive of its own. Where their rows are equal in number and length, their logs differ only
/// in contents.
fn two_lives(while_open: bool, sizes: [(i32, i32); 2], bytes: usize, writes_in_flight: u32) -> [Life; 2] {
    let archives: [Arc<dyn Disk>; 2] = [MemoryDisk::new(), MemoryDisk::new()];
    let options =
        |nth: usize| Options { log_writes_in_flight: Some(writes_in_flight), ..archiving(&archives[nth]) };
    let (first, _, copy) = forked(while_open, || options(0));
    let second = Database::open_on(copy, options(1)).unwrap();
    [(first, 1_000), (second, 5_000)].map(|(db, id)| {
        let nth = usize::from(id > 1_000);
        live(db, &archives[nth], id, sizes[nth], bytes)
    })
}

#[test]
fn a_backup_is_restored_with_the_archive_of_its_own_life_alone() {
    for (nth, (before, after, bytes)) in
        [(1, 1, 400), (3, 5, 400), (3, 5, 30_000), (200, 40, 30_000)].into_iter().enumerate()
    {
        for while_open in [false, true] {
            let writes_in_flight = 1 + 2 * (nth as u32 % 2);
            let lives = two_lives(while_open, [(before, after); 2], bytes, writes_in_flight);
            let _kept = keep_lives(&lives);
            for (life, other) in [(&lives[0], &lives[1]), (&lives[1], &lives[0])] {
                let (next, time) = (RestoreTo::Place(life.place.next()), RestoreTo::Time(life.moment));
                let own = |to| ids(&restored(plan(&life.backup, &life.archive, to)).0);
                assert!(own(RestoreTo::End) == life.rows);
                assert!(own(time) == life.at_moment);
                assert!(own(RestoreTo::Place(life.place)) == life.at_backup);
                for to in [RestoreTo::End, next, time] {
                    let (text, code) = refused(plan(&life.backup, &other.archive, to));
                    let begins = "the archive memory (lost when the process ends) is another life's than \"b\" (of a copy of \
                                  the same directory), or damaged: at offset ";
                    assert!(text.starts_with(begins) && code == 3, "{code}: {text}");
                    let expected =
                        format!("\" expected a block up to place {} that ends at position ", life.place);
                    assert!(text.contains(&expected), "{text}");
                    let ends = "; give the archive of the life that \"b\" was taken of";
                    assert!(text.contains(", found a block up to place ") && text.ends_with(ends), "{text}");
                }
            }
        }
    }
}

/// An archive that ends before the backup has nothing that could follow it, of whichever life it is. It has no time.
#[test]
fn an_archive_that_ends_before_the_backup_adds_nothing() {
    let lives = two_lives(false, [(40, 5), (3, 5)], 400, 1);
    let _kept = keep_lives(&lives);
    let [long, short] = lives;
    let (text, code) = refused(plan(&short.backup, &long.archive, RestoreTo::End));
    assert!(text.contains(" is another life's than \"b\"") && code == 3, "{text}");
    let (db, report, _) = restored(plan(&long.backup, &short.archive, RestoreTo::End));
    assert!(report.packets == 0 && ids(&db) == long.at_backup);
    for to in [RestoreTo::Place(long.place.next()), RestoreTo::Time(long.moment)] {
        let (text, code) = refused(plan(&long.backup, &short.archive, to));
        assert!(text.contains(" reaches place ") && code == 3, "{text}");
    }
}

/// The home file and the copies of one life beside the log files of another: under each kind of checkpoint, with logs
/// that differ only in contents, and with others.
#[test]
fn a_home_file_beside_the_log_of_another_life_is_refused() {
    for checkpoint in Checkpointing::ALL {
        for (while_open, more, bytes) in [(false, 0, 400), (true, 0, 400), (false, 7, 30_000)] {
            let (first, disk, copy) = forked(while_open, options);
            let second = Database::open_on(copy.clone(), options()).unwrap();
            let lives = [(first, disk, 1_000..1_020), (second, copy, 5_000..5_020 + more)];
            let lives = lives.map(|(db, disk, ids_of)| {
                db.set_checkpoint(checkpoint).unwrap();
                for id in ids_of {
                    add(&db, id, bytes);
                    if id % 8 == 0 {
                        db.checkpoint().unwrap();
                    }
                }
                db.sync().unwrap();
                let rows = ids(&db);
                db.close().unwrap();
                (contents(&*disk), rows)
            });
            let kept = KeptDisks::default();
            kept.add_files("first", lives[0].0.clone());
            kept.add_files("second", lives[1].0.clone());
            for (own, other) in [(0, 1), (1, 0)] {
                let is_log = |(name, _): &&(String, Vec<u8>)| name.starts_with("log-0");
                let with_log_of = |life: usize| {
                    let rest = lives[own].0.iter().filter(|file| !is_log(file));
                    disk_of(rest.chain(lives[life].0.iter().filter(is_log)))
                };
                let about = format!("{checkpoint:?}, {while_open}, {more}, {own}");
                let db = Database::open_on(with_log_of(own), options()).unwrap();
                assert!(ids(&db) == lives[own].1, "{about}");
                let mixed = with_log_of(other);
                let error = Database::open_on(mixed.clone(), options()).unwrap_err();
                let OpenError::Corrupt { file, offset, what } = &error else { panic!("{about}: {error}") };
                // The log of a life with fewer commits ends before the place of clearance.
                let (begins, ends) = match more > 0 && own == 1 {
                    true => ("checkpoint ", "log files are missing"),
                    false => {
                        ("expected a block up to place ", "put the log back that was there with \"home\"")
                    }
                };
                assert!(what.starts_with(begins) && what.ends_with(ends), "{about}: {error}");
                let is_of_log = file == "log-0000000001" && *offset > 0;
                assert!(
                    is_of_log && what.contains(", as \"home\" says, found ") || more > 0,
                    "{about}: {error}"
                );
                let shared: Arc<dyn Disk> = mixed;
                let checked = check(&shared, 64 << 20, 2).unwrap();
                assert!(!checked.is_sound() && checked.to_string().contains(what), "{about}: {checked}");
            }
        }
    }
}

/// Directories and backups of programs without points of the log: they are accepted, and say nothing of their life.
#[test]
fn a_home_file_and_a_backup_without_a_point_are_read() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    things(&db);
    put(&db, 0..10);
    db.checkpoint().unwrap();
    let (backup, place) = full(&db);
    put(&db, 10..20);
    db.close().unwrap();

    let kept = KeptDisks::default();
    kept.add("archive", &*archive);
    kept.add("database", &*disk);
    kept.add_files("backup", vec![("b".to_owned(), backup.clone())]);
    let old = version_2(&backup);
    assert!(old.len() < backup.len());
    let (db, report, _) = restored(plan(&old, &archive, RestoreTo::End));
    assert_eq!((ids(&db).len(), report.packets), (20, 1));
    let (db, ..) = restored(plan(&old, &archive, RestoreTo::Place(place)));
    assert_eq!(ids(&db).len(), 10);
    for version in [1, 5] {
        let (text, code) = refused(plan(&with_version(&backup, version), &archive, RestoreTo::End));
        let expected = format!(
            "\"b\" has backup format {version}, this program reads formats 2 to 4: use a matching version"
        );
        assert_eq!((text, code), (expected, 3));
    }

    let home = disk.open("home", Open::Existing, Caching::Buffered).unwrap();
    for at in [0, 4096] {
        let mut block = vec![0; 4096];
        home.read_at(&mut block, at).unwrap();
        assert_eq!(block[12] & 16, 16, "the block names a point");
        block[12] &= !16;
        block[80..96].fill(0);
        let checksum = xxh3_64(&block[..4088]);
        block[4088..].copy_from_slice(&checksum.to_le_bytes());
        home.write_at(&block, at).unwrap();
    }
    assert_eq!(ids(&Database::open_on(disk, options()).unwrap()).len(), 20);
}

/// The backup's frames, with another first one.
fn with_begin(backup: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let frame = |kind: u32, number: u64, payload: &[u8], seed: u64| {
        let mut frame = b"RLBF".to_vec();
        frame.extend(kind.to_le_bytes());
        frame.extend((payload.len() as u32).to_le_bytes());
        frame.extend([0; 4]);
        frame.extend(number.to_le_bytes());
        let mut hash = Xxh3::with_seed(seed);
        hash.update(&frame);
        hash.update(payload);
        frame.extend(hash.digest().to_le_bytes());
        frame.extend(payload);
        frame
    };
    let number = |at: usize| u64::from_le_bytes(backup[at..at + 8].try_into().unwrap());
    let length = |at: usize| u32::from_le_bytes(backup[at + 8..at + 12].try_into().unwrap()) as usize;
    let (mut payload, end) = (backup[32..32 + length(0)].to_vec(), backup.len() - 48);
    change(&mut payload);
    let mut changed = frame(1, 0, &payload, 0);
    changed.extend(&backup[32 + length(0)..end]);
    let mut last = backup[end + 32..].to_vec();
    last[8..].copy_from_slice(&(changed.len() as u64).to_le_bytes());
    let seed = number(32 + 24) ^ number(32 + 32);
    changed.extend(frame(3, number(end + 16), &last, seed));
    changed
}

/// The backup in the format of programs without points.
fn version_2(backup: &[u8]) -> Vec<u8> {
    with_begin(backup, |payload| {
        payload.truncate(88);
        payload[..4].copy_from_slice(&2u32.to_le_bytes());
    })
}

fn with_version(backup: &[u8], version: u32) -> Vec<u8> {
    with_begin(backup, |payload| payload[..4].copy_from_slice(&version.to_le_bytes()))
}

/// A directory that was copied while closed has two lives with one identity. The archive keeps the log of the first
/// one. The second one, shorter or longer, and with load files or without, is refused, keeps its log, and can be
/// archived elsewhere.
#[test]
fn another_life_of_the_database_does_not_reach_the_archive() {
    for (added, with_load) in [(0, false), (3, false), (40, false), (220, false), (3, true)] {
        let archive: Arc<dyn Disk> = MemoryDisk::new();
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
        things(&db);
        put(&db, 0..10);
        db.close().unwrap();
        let cold = copied(&*disk);

        let first = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
        let (backup, _) = full(&first);
        loaded(&first, "loaded");
        for id in 1_000..1_030 {
            add(&first, id, 30_000);
        }
        let expected = ids(&first);
        first.close().unwrap();
        let (has, kept) = (contents(&*archive), KeptDisks::default());
        kept.add_files("archive", has.clone());
        kept.add("first", &*disk);
        kept.add("second", &*cold);

        let second = Database::open_on(cold.clone(), archiving(&archive)).unwrap();
        if with_load {
            loaded(&second, "loaded");
        }
        for id in 2_000..2_000 + added {
            add(&second, id, 30_000);
        }
        let told = second.archive_log().unwrap_err().to_string();
        assert!(told.contains("\"log-0000000001\" there differs from the database's from offset "), "{told}");
        assert!(told.contains("give this life an archive of its own and take a full backup"), "{told}");
        assert_eq!(second.metrics().archive.unwrap().failure, Some(told.clone()));
        for id in 3_000..3_002 {
            put(&second, id..id + 1);
            second.checkpoint().unwrap();
        }
        assert!(cold.list().unwrap().contains(&"log-0000000001".to_owned()), "it is kept");
        let expected_of_second = ids(&second);
        // The exact position of the difference may change: with more of the log a byte can be the same by chance.
        let before_offset = |text: &str| text.split(" from offset ").next().unwrap().to_owned();
        let at_close = second.close().unwrap_err().to_string();
        assert_eq!(before_offset(&at_close), before_offset(&told));
        assert!(contents(&*archive) == has, "nothing of the first one's is replaced, and nothing is added");

        let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
        assert_eq!(ids(&db), expected);
        Database::open_on(disk, archiving(&archive)).unwrap().close().unwrap();
        let own: Arc<dyn Disk> = MemoryDisk::new();
        let second = Database::open_on(cold, archiving(&own)).unwrap();
        let (backup, _) = full(&second);
        second.close().unwrap();
        let (db, ..) = restored(plan(&backup, &own, RestoreTo::End));
        assert_eq!(ids(&db), expected_of_second);
    }
}

/// Makes the table "loaded" by a bulk load.
fn load(db: &Database, ids: std::ops::Range<i32>) {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("loaded", columns.clone()).with_primary_key(&["id"]))?;
        ids.clone().try_for_each(|id| tx.insert(&table, &thing(id, 300)))
    })
    .unwrap();
}

/// Whether the table "loaded" has these rows.
fn has_loaded(db: &Database, ids: std::ops::Range<i32>) -> bool {
    let table = db.table("loaded").unwrap();
    db.transact(|tx| {
        let all = ids.clone().map(|id| tx.get(&table, id)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.iter().all(Option::is_some) && tx.count(&table)? == ids.len() as u64)
    })
    .unwrap()
}

fn is_load(name: &str) -> bool {
    name.starts_with("load-")
}

/// Two lives give different bulk loads the same number.
#[test]
fn a_load_file_beside_the_log_of_another_life_is_refused() {
    let (first, disk, copy) = forked(false, options);
    let second = Database::open_on(copy.clone(), options()).unwrap();
    for (db, ids) in [(first, 0..400), (second, 1_000..1_400)] {
        load(&db, ids);
        db.close().unwrap();
    }
    let (own, other) = (contents(&*disk), contents(&*copy));
    let kept = KeptDisks::default();
    kept.add_files("first", own.clone());
    kept.add_files("second", other.clone());
    let with_loads_of = |life: &[(String, Vec<u8>)]| {
        let rest = own.iter().filter(|(name, _)| !is_load(name));
        disk_of(rest.chain(life.iter().filter(|(name, _)| is_load(name))))
    };
    assert!(has_loaded(&Database::open_on(with_loads_of(&own), options()).unwrap(), 0..400));
    let mixed = with_loads_of(&other);
    let error = Database::open_on(mixed.clone(), options()).unwrap_err();
    let OpenError::Corrupt { file, what, .. } = &error else { panic!("{error}") };
    assert!(is_load(file) && what.contains("it is of another life of the same database"), "{error}");
    let shared: Arc<dyn Disk> = mixed;
    let checked = check(&shared, 64 << 20, 2).unwrap();
    assert!(!checked.is_sound() && checked.to_string().contains(what), "{checked}");
}

/// The archive has the load file of one life, and none of its log yet.
#[test]
fn a_load_file_of_another_life_does_not_reach_the_archive() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    things(&db);
    db.close().unwrap();
    archive.list().unwrap().iter().for_each(|name| archive.remove(name).unwrap());
    let copy = copied(&*disk);
    let load_and_free = |db: &Database, ids| {
        load(db, ids);
        for id in 0..3 {
            put(db, id..id + 1);
            db.checkpoint().unwrap();
        }
    };

    let first = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    let (backup, _) = full(&first);
    load_and_free(&first, 0..400);
    disk.kill();
    drop(first);
    let (has, kept) = (contents(&*archive), KeptDisks::default());
    kept.add_files("archive", has.clone());
    kept.add("first", &*disk.copied().restart());
    kept.add("second", &*copy);
    assert!(has.iter().any(|(name, _)| is_load(name)), "the test's own premise");
    assert!(!has.iter().any(|(name, _)| name.starts_with("log-")), "the test's own premise");

    let second = Database::open_on(copy.clone(), archiving(&archive)).unwrap();
    load_and_free(&second, 1_000..1_400);
    let told = second.metrics().archive.unwrap().failure.expect("it is told of");
    assert!(told.contains("\"load-") && told.contains(" there differs from the database's from "), "{told}");
    assert_eq!(second.close().unwrap_err().to_string(), told);
    assert!(contents(&*archive) == has);

    Database::open_on(disk.restart(), archiving(&archive)).unwrap().close().unwrap();
    let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
    assert!(has_loaded(&db, 0..400));

    for (name, bytes) in contents(&*copy).iter().filter(|(name, _)| is_load(name)) {
        archive.open(name, Open::Existing, Caching::Buffered).unwrap().write_at(bytes, 0).unwrap();
    }
    let (text, code) = refused(plan(&backup, &archive, RestoreTo::End));
    assert!(text.starts_with("\"memory (lost when the process ends)/load-") && code == 1, "{text}");
    assert!(text.contains("it is of another life of the same database"), "{text}");
}

/// One life archives its first log files. The other life frees its own without an archive, and would continue the
/// archive after them.
#[test]
fn the_log_of_another_life_does_not_follow_in_the_archive() {
    does_not_follow(16 << 20, "\"log-0000000002\" there ends with the block of checksum ");
    // Log files of another length.
    does_not_follow(24 << 20, "\"log-0000000002\" there ends at position ");
}

/// The other life's log has this bound, and is refused with a text that contains this.
fn does_not_follow(log_bytes_max: u64, expected_text: &str) {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let small = || Options { log_bytes_max, ..options() };
    let archiving = || Options { log_bytes_max: 16 << 20, ..archiving(&archive) };
    let logs = |disk: &dyn Disk| -> Vec<String> {
        let mut names = disk.list().unwrap();
        names.retain(|name| name.starts_with("log-0"));
        names.sort_unstable();
        names
    };
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), archiving()).unwrap();
    things(&db);
    db.close().unwrap();
    archive.list().unwrap().iter().for_each(|name| archive.remove(name).unwrap());
    let copy = copied(&*disk);
    let fill = |db: &Database, first: i32, is_done: &dyn Fn() -> bool| {
        for round in 0.. {
            if is_done() {
                break;
            }
            (0..10).for_each(|id| _ = add(db, first + 10 * round + id, 30_000));
            db.checkpoint().unwrap();
        }
    };

    let first = Database::open_on(disk.clone(), archiving()).unwrap();
    let (backup, _) = full(&first);
    fill(&first, 1_000, &|| logs(&*archive).len() >= 2);
    first.sync().unwrap();
    let expected = ids(&first);
    disk.kill();
    drop(first);
    let (has, kept) = (contents(&*archive), KeptDisks::default());
    kept.add_files("archive", has.clone());
    kept.add("first", &*disk.copied().restart());

    let second = Database::open_on(copy.clone(), small()).unwrap();
    fill(&second, 500_000, &|| logs(&*copy)[0] > logs(&*archive)[1]);
    assert_eq!(logs(&*copy)[0], "log-0000000003", "the test's own premise");
    second.close().unwrap();
    kept.add("second", &*copy);
    let second = Database::open_on(copy.clone(), Options { log_bytes_max, ..archiving() }).unwrap();
    let told = second.archive_log().unwrap_err().to_string();
    assert!(
        told.contains(expected_text) && told.contains("it is another life's of the same database"),
        "{told}"
    );
    add(&second, 1, 400);
    second.checkpoint().unwrap();
    fill(&second, 600_000, &|| second.metrics().archive.unwrap().failure.as_ref() == Some(&told));
    assert_eq!(logs(&*copy)[0], "log-0000000003", "it is kept");
    assert_eq!(second.close().unwrap_err().to_string(), told);
    assert!(contents(&*archive) == has);

    Database::open_on(disk.restart(), archiving()).unwrap().close().unwrap();
    let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
    assert!(ids(&db) == expected);
    let gap: Arc<dyn Disk> = MemoryDisk::new();
    let second = Database::open_on(copy, Options { archive: Some(Archive::on(gap)), ..small() }).unwrap();
    second.archive_log().unwrap();
}
