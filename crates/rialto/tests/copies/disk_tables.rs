//! Backups and restores of databases with disk-resident tables beside memory-resident ones.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::disk_tables::{Model, assert_same, change_some, contents, definition, options};
use crate::common::seeds::for_a_while;
use rialto::backup::{Archive, BACKUP_FILE, Backup, Restore, RestoreReport, RestoreTo, restore};
use rialto::io::{Disk, FaultKind, FaultyDisk, MemoryDisk, Random};
use rialto::recovery::check::check;
use rialto::row::Value;
use rialto::{
    BackupKind, BackupOptions, BackupReport, Checkpointing, Database, Durability, Error, Lsn, OpenError,
    Options, Table, Transaction, TxOptions,
};

/// The rows that fill more pages than there is memory for, of `on_disk` and of `in_memory`.
const BALLAST: Range<i32> = 1_000..1_250;

fn sound(disk: &Arc<dyn Disk>, about: &str) {
    let report = check(disk, 64 << 20, 2).unwrap();
    assert!(report.is_sound(), "{about}: {report}");
}

fn quiet() -> Options {
    Options {
        memory_bytes: 64 << 20,
        cache_bytes: 4 << 20,
        page_bytes: 4_096,
        checkpoint: Checkpointing::None,
        ..Options::default()
    }
}

/// Whether a restore reads an archive, and how far it goes.
enum By<'a> {
    Backups,
    Archive(&'a Arc<MemoryDisk>, RestoreTo),
}

/// Restores these streams; the directory is a database, or it is empty.
fn try_restore(chain: &[&[u8]], by: &By<'_>) -> Result<(Arc<dyn Disk>, RestoreReport), OpenError> {
    let backups = chain.iter().map(|bytes| Backup::stream("a backup", Cursor::new(bytes.to_vec())));
    let mut plan =
        Restore { memory_bytes: 64 << 20, cache_bytes: 4 << 20, ..Restore::new(backups.collect()) };
    if let By::Archive(disk, to) = by {
        plan.archive = Some(Archive::on((*disk).clone()));
        plan.to = *to;
    }
    let target: Arc<dyn Disk> = MemoryDisk::new();
    match restore(plan, target.clone()) {
        Ok(report) => Ok((target, report)),
        Err(error) => {
            assert!(target.list().unwrap().is_empty(), "{error}: something is left");
            Err(error)
        }
    }
}

struct Taken {
    bytes: Vec<u8>,
    place: Lsn,
    is_full: bool,
}

/// A database, what it held from each place on, and its copies.
struct Kept {
    about: String,
    random: Random,
    disk: Arc<FaultyDisk>,
    archive: Arc<MemoryDisk>,
    model: Model,
    places: BTreeMap<Lsn, Model>,
    taken: Vec<Taken>,
}

impl Kept {
    fn new(seed: u64) -> Kept {
        let mut random = Random::new(seed);
        let (disk, archive) = (FaultyDisk::new(random.next()), MemoryDisk::new());
        let (about, model, places) = (format!("RIALTO_SEED={seed}"), Model::new(), BTreeMap::new());
        Kept { about, random, disk, archive, model, places, taken: Vec::new() }
    }

    fn open(&mut self) -> Database {
        let options = Options {
            memory_bytes: 64 << 20,
            log_bytes_max: 64 << 20,
            archive: Some(Archive::on(self.archive.clone())),
            ..options(&mut self.random)
        };
        Database::open_on(self.disk.clone(), options)
            .unwrap_or_else(|error| panic!("{}: {error}", self.about))
    }

    fn commit(
        &mut self,
        db: &Database,
        change: impl Fn(&mut Transaction<'_>, &mut Model) -> Result<(), Error>,
    ) {
        let mut now = self.model.clone();
        let level = if self.random.chance(1, 2) { Durability::Disk } else { Durability::Memory };
        let mut tx = db.begin_with(&TxOptions { durability: Some(level), ..TxOptions::default() }).unwrap();
        let done = change(&mut tx, &mut now).and_then(|()| tx.submit());
        let ticket = done.unwrap_or_else(|error| panic!("{}: {error}", self.about));
        if now != self.model {
            self.places.insert(ticket.lsn(), now.clone());
            self.model = now;
        }
        ticket.wait().unwrap();
    }

    /// A random change of tables, or of the rows that fill them.
    fn change(&mut self, db: &Database) {
        let (script, is_ballast) = (self.random.next(), self.random.chance(1, 3));
        self.commit(db, |tx, now| {
            let random = &mut Random::new(script);
            match is_ballast {
                true => change_ballast(tx, random, now),
                false => change_some(tx, random, now),
            }
        });
    }

    fn fill(&mut self, db: &Database) {
        for name in ["on_disk", "in_memory"] {
            self.commit(db, |tx, now| {
                now.insert(name, BTreeMap::new());
                tx.create_table(&definition(name)).map(drop)
            });
            for ids in BALLAST.collect::<Vec<_>>().chunks(25) {
                self.commit(db, |tx, now| {
                    let (table, rows) = (tx.table(name)?, now.get_mut(name).unwrap());
                    ids.iter().try_for_each(|id| put(tx, &table, rows, *id, 20_000))
                });
            }
        }
    }

    /// A backup, beside transactions; it may be cancelled, and its stream may fail.
    fn back_up(&mut self, db: &Database) {
        let kind = if self.random.chance(1, 3) { BackupKind::Full } else { BackupKind::Incremental };
        let cancelled = AtomicBool::new(false);
        let mut bytes = Vec::new();
        let (is_cancelled, changes) = (self.random.chance(1, 4), self.random.below(8));
        let room = if self.random.chance(1, 5) { self.random.below(4 << 20) as usize } else { usize::MAX };
        let outcome = std::thread::scope(|scope| {
            let mut out = Short { bytes: &mut bytes, room };
            let options = BackupOptions { kind, cancelled: Some(&cancelled), ..BackupOptions::default() };
            let taken = scope.spawn(move || db.backup_to(&mut out, options));
            for nth in 0..changes {
                self.change(db);
                cancelled.store(is_cancelled && nth == changes / 2, Ordering::Relaxed);
            }
            taken.join().unwrap()
        });
        match outcome {
            Ok(report) => {
                self.taken.push(Taken { bytes, place: report.place, is_full: report.base.is_none() });
            }
            Err(Error::Cancelled) if is_cancelled => {}
            Err(Error::DiskFull { .. }) if room < usize::MAX => {}
            Err(error) => panic!("{}: backup: {error}", self.about),
        }
    }

    /// The backups that are restored together, up to this one.
    fn chain(&self, last: usize) -> Option<Vec<&[u8]>> {
        let full = (0..=last).rev().find(|&nth| self.taken[nth].is_full)?;
        Some(self.taken[full..=last].iter().map(|taken| &taken.bytes[..]).collect())
    }

    fn model_at(&self, place: Lsn) -> Model {
        self.places.range(..=place).next_back().map_or_else(Model::new, |(_, model)| model.clone())
    }

    fn restored(&mut self, last: usize, by: &By<'_>, place: Lsn) {
        let Some(chain) = self.chain(last) else { panic!("{}: an increment on nothing", self.about) };
        let about = format!("{}, restored to {place} from {}", self.about, self.taken[last].place);
        let (disk, report) = try_restore(&chain, by).unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_eq!(report.place, place, "{about}");
        sound(&disk, &about);
        let db = Database::open_on(disk.clone(), quiet()).unwrap_or_else(|error| panic!("{about}: {error}"));
        let mut model = self.model_at(place);
        assert_same(&contents(&db), &model, &about);
        // It goes on, with checkpoints of its own.
        for round in 0..2 {
            for _ in 0..3 {
                let script = self.random.next();
                let mut now = model.clone();
                let mut tx = db.begin().unwrap();
                change_some(&mut tx, &mut Random::new(script), &mut now).unwrap();
                tx.commit().unwrap();
                model = now;
            }
            if round == 0 || self.random.chance(1, 2) {
                db.checkpoint().unwrap();
            }
        }
        db.close().unwrap();
        sound(&disk, &about);
        let db = Database::open_on(disk, quiet()).unwrap();
        assert_same(&contents(&db), &model, &format!("{about}, gone on"));
    }
}

/// A stream that is full after so many bytes.
struct Short<'a> {
    bytes: &'a mut Vec<u8>,
    room: usize,
}

impl std::io::Write for Short<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Puts a row of the ballast.
fn put(
    tx: &mut Transaction<'_>,
    table: &Table,
    rows: &mut BTreeMap<i32, (i32, i32, String)>,
    id: i32,
    length: usize,
) -> Result<(), Error> {
    let text = "b".repeat(length);
    let is_new = rows.insert(id, (id % 7, id, text.clone())).is_none();
    match is_new {
        true => tx.insert(table, &[Value::Int4(id), Value::Int4(id % 7), Value::Int4(id), Value::Text(text)]),
        false => tx.update(table, id, &[(3, Value::Text(text))]).map(drop),
    }
}

fn change_ballast(tx: &mut Transaction<'_>, random: &mut Random, now: &mut Model) -> Result<(), Error> {
    for name in ["on_disk", "in_memory"] {
        let Some(rows) = now.get_mut(name) else { continue };
        let table = tx.table(name)?;
        for _ in 0..random.below(4) {
            let id = BALLAST.start + random.below(BALLAST.len() as u64) as i32;
            match rows.contains_key(&id) && random.chance(1, 5) {
                true => {
                    rows.remove(&id);
                    assert!(tx.delete(&table, id)?);
                }
                false => put(tx, &table, rows, id, random.below(30_000) as usize)?,
            }
        }
    }
    Ok(())
}

fn lives(seed: u64) -> u64 {
    let mut kept = Kept::new(seed);
    let mut db = kept.open();
    kept.fill(&db);
    for _ in 0..3 {
        for _ in 0..6 {
            (0..kept.random.below(5)).for_each(|_| kept.change(&db));
            if kept.random.chance(1, 3) {
                db.checkpoint().unwrap_or_else(|error| panic!("{}: checkpoint: {error}", kept.about));
            }
            kept.back_up(&db);
        }
        match kept.random.below(3) {
            0 => db.clone().close().unwrap(),
            1 => kept.disk.kill(),
            _ => {
                // What was answered at level memory would be lost with the machine.
                db.archive_log().unwrap();
                kept.disk.crash();
            }
        }
        drop(db);
        if !kept.disk.is_down() {
            kept.disk.kill();
        }
        kept.disk = kept.disk.restart();
        db = kept.open();
        assert_same(&contents(&db), &kept.model, &format!("{}, opened", kept.about));
    }
    db.close().unwrap();
    let mut restores = 0;
    for _ in 0..5 {
        let last = kept.random.below(kept.taken.len() as u64) as usize;
        let place = kept.taken[last].place;
        kept.restored(last, &By::Backups, place);
        restores += 1;
    }
    let archive = kept.archive.clone();
    let end = *kept.places.last_key_value().unwrap().0;
    for _ in 0..3 {
        let last = kept.random.below(kept.taken.len() as u64) as usize;
        let places: Vec<Lsn> = kept.places.range(kept.taken[last].place..).map(|(place, _)| *place).collect();
        if !places.is_empty() {
            let place = places[kept.random.below(places.len() as u64) as usize];
            kept.restored(last, &By::Archive(&archive, RestoreTo::Place(place)), place);
            restores += 1;
        }
    }
    let last = kept.random.below(kept.taken.len() as u64) as usize;
    let to_end = try_restore(&kept.chain(last).unwrap(), &By::Archive(&archive, RestoreTo::End));
    let (disk, report) = to_end.unwrap_or_else(|error| panic!("{}: {error}", kept.about));
    assert!(report.place >= end, "{}", kept.about);
    let db = Database::open_on(disk, quiet()).unwrap();
    assert_same(&contents(&db), &kept.model, &format!("{}, restored to the end", kept.about));
    restores + 1
}

/// Full backups and increments beside transactions, checkpoints, and the ends of the database. What is restored of each, alone
/// or with the archived log, is what the database held at the place.
#[test]
fn a_restore_has_what_tables_of_both_kinds_held() {
    let mut restores = 0;
    let (first, seeds) = for_a_while(|seed| restores += lives(seed));
    println!(
        "tally: restores of disk-resident tables, {seeds} seeds, {restores} restores, RIALTO_SEED={first}"
    );
}

// ---- transfers between the kinds

const ACCOUNTS: i32 = 300;
const BALANCE: i32 = 1_000;

fn bank(db: &Database) {
    for name in ["on_disk", "in_memory"] {
        let table = db.transact(|tx| tx.create_table(&definition(name))).unwrap();
        let row = |id| [Value::Int4(id), Value::Int4(BALANCE), Value::Int4(id), Value::Text("x".repeat(900))];
        db.transact(|tx| (0..ACCOUNTS).try_for_each(|id| tx.insert(&table, &row(id)))).unwrap();
    }
}

/// From a row in memory to one on the disk, or back. Gives the place, and by how much each of the two has changed.
fn transfer(db: &Database, random: &mut Random) -> (Lsn, [(&'static str, i32, i32); 2]) {
    let amount = random.below(100) as i32 - 50;
    let of = |random: &mut Random| random.below(ACCOUNTS as u64) as i32;
    let changes = [("on_disk", of(random), amount), ("in_memory", of(random), -amount)];
    let text = "y".repeat(800 + random.below(400) as usize);
    let quick = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    let ((), ticket) = db
        .submit_with(&quick, |tx| {
            for (name, id, by) in changes {
                let table = tx.table(name)?;
                let balance = tx.get_for_update(&table, id)?.expect("the account").view().get_i32(1)?;
                tx.update(&table, id, &[(1, Value::Int4(balance + by)), (3, Value::Text(text.clone()))])?;
            }
            Ok(())
        })
        .unwrap();
    (ticket.lsn(), changes)
}

/// A backup has each transfer up to its place whole, and none of the later ones.
#[test]
fn a_backup_beside_transfers_has_each_whole() {
    let (first, seeds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let about = format!("RIALTO_SEED={seed}");
        let mut options = options(&mut random);
        options.checkpoint_interval = Duration::from_millis(1);
        options.memory_bytes = 64 << 20;
        options.log_wait_max = Duration::from_secs(60);
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        bank(&db);
        let (stop, transfers) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, stop, transfers) = (&db, &stop, &transfers);
                let mut random = Random::new(seed ^ (thread + 1));
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let done = transfer(db, &mut random);
                        transfers.lock().unwrap().push(done);
                    }
                });
            }
            for round in 0..6 {
                let kind = if round == 3 { BackupKind::Full } else { BackupKind::Incremental };
                let mut bytes = Vec::new();
                match db.backup_to(&mut bytes, kind) {
                    Ok(report) => taken.push((bytes, report)),
                    Err(error) => panic!("{about}: {error}"),
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let transfers = transfers.into_inner().unwrap();
        for (nth, (_, report)) in taken.iter().enumerate() {
            let chain: Vec<&[u8]> = taken[nth / 3 * 3..=nth].iter().map(|(bytes, _)| &bytes[..]).collect();
            let about = format!("{about}, backup {nth} at {}", report.place);
            let (disk, _) =
                try_restore(&chain, &By::Backups).unwrap_or_else(|error| panic!("{about}: {error}"));
            let found = contents(&Database::open_on(disk, quiet()).unwrap());
            let sum: i32 = found.values().flat_map(|rows| rows.values().map(|row| row.0)).sum();
            assert_eq!(sum, 2 * ACCOUNTS * BALANCE, "{about}");
            let mut balances = BTreeMap::new();
            for (_, changes) in transfers.iter().filter(|(place, _)| *place <= report.place) {
                changes
                    .iter()
                    .for_each(|&(name, id, by)| *balances.entry((name, id)).or_insert(BALANCE) += by);
            }
            for ((name, id), balance) in balances {
                assert_eq!(found[name][&id].0, balance, "{about}: {name} {id}");
            }
        }
    });
    println!("tally: backups beside transfers between kinds of tables, {seeds} seeds, RIALTO_SEED={first}");
}

// ---- directed

/// A database with a disk-resident table of so many rows, and the same rows in memory.
fn filled(disk: Arc<dyn Disk>, rows: i32) -> Database {
    let db = Database::open_on(disk, quiet()).unwrap();
    fill_both(&db, rows);
    db
}

fn fill_both(db: &Database, rows: i32) {
    for name in ["on_disk", "in_memory"] {
        let table = db.transact(|tx| tx.create_table(&definition(name))).unwrap();
        let row = |id| [Value::Int4(id), Value::Int4(id % 5), Value::Int4(id), Value::Text("x".repeat(200))];
        for ids in (0..rows).collect::<Vec<_>>().chunks(500) {
            db.transact(|tx| ids.iter().try_for_each(|id| tx.insert(&table, &row(*id)))).unwrap();
        }
    }
}

fn back_up(db: &Database, kind: BackupKind) -> (Vec<u8>, BackupReport) {
    let mut bytes = Vec::new();
    let report = db.backup_to(&mut bytes, kind).unwrap();
    (bytes, report)
}

fn update(db: &Database, name: &str, id: i32, part: i32) {
    let table = db.table(name).unwrap();
    assert!(db.transact(|tx| tx.update(&table, id, &[(1, Value::Int4(part))])).unwrap());
}

/// An increment holds the pages that have changed, whether a checkpoint has written them meanwhile or not; and what is gone
/// is gone.
#[test]
fn an_increment_holds_what_has_changed() {
    let db = filled(MemoryDisk::new(), 30_000);
    let (full, report) = back_up(&db, BackupKind::Full);
    let pages = db.metrics().pages;
    assert_eq!(report.pages, pages.pages, "{report}");
    let (nothing, report) = back_up(&db, BackupKind::Incremental);
    assert_eq!(report.pages, 0, "{report}");
    update(&db, "on_disk", 15_000, 77);
    db.checkpoint().unwrap();
    update(&db, "on_disk", 3, 78);
    let (changed, report) = back_up(&db, BackupKind::Incremental);
    assert!((2..12).contains(&report.pages), "{report}");
    assert!(report.to_string().contains(&format!("{} pages", report.pages)), "{report}");
    let model = contents(&db);
    let (disk, report) = try_restore(&[&full, &nothing, &changed], &By::Backups).unwrap();
    assert!(
        report.page_bytes > pages.pages * 4_096 && report.to_string().contains("bytes of pages"),
        "{report}"
    );
    assert_same(&contents(&Database::open_on(disk, quiet()).unwrap()), &model, "with the changes");
    // The pages of a table that is dropped are gone, and their numbers come again.
    db.transact(|tx| tx.drop_table("on_disk")).unwrap();
    let (dropped, report) = back_up(&db, BackupKind::Incremental);
    assert_eq!(report.pages, 0, "{report}");
    let (disk, report) = try_restore(&[&full, &nothing, &changed, &dropped], &By::Backups).unwrap();
    let db_without = Database::open_on(disk, quiet()).unwrap();
    assert_same(&contents(&db_without), &contents(&db), "dropped");
    assert!(report.page_bytes < pages.pages * 4_096 / 4, "{report}");
    let table = db.transact(|tx| tx.create_table(&definition("on_disk"))).unwrap();
    let row = [Value::Int4(1), Value::Int4(2), Value::Int4(3), Value::Text("new".to_owned())];
    db.transact(|tx| tx.insert(&table, &row)).unwrap();
    let (made, _) = back_up(&db, BackupKind::Incremental);
    let (disk, _) = try_restore(&[&full, &nothing, &changed, &dropped, &made], &By::Backups).unwrap();
    assert_same(&contents(&Database::open_on(disk, quiet()).unwrap()), &contents(&db), "made anew");
}

/// A backup that fails, at whatever it writes or reads, leaves the database as it was: what it had to hold is in the next
/// increment, and in the next checkpoint.
#[test]
fn a_backup_that_fails_takes_nothing_away() {
    for (file, kind) in [("pages", FaultKind::Read), ("pages", FaultKind::Write), ("stream", FaultKind::Full)]
    {
        let about = format!("{kind:?} of {file}");
        let disk = FaultyDisk::new(3);
        let db = filled(disk.clone(), 20_000);
        let (full, _) = back_up(&db, BackupKind::Full);
        for id in (0..20_000).step_by(400) {
            update(&db, "on_disk", id, 50);
            update(&db, "in_memory", id, 50);
        }
        disk.fail(kind, file, 0);
        let room = if file == "stream" { 100_000 } else { usize::MAX };
        let mut bytes = Vec::new();
        let error =
            db.backup_to(&mut Short { bytes: &mut bytes, room }, BackupKind::Incremental).unwrap_err();
        assert!(error.to_string().contains(file), "{about}: {error}");
        disk.mend();
        assert!(matches!(
            try_restore(&[&full, &bytes], &By::Backups),
            Err(OpenError::Corrupt { what, .. }) if what.contains("cut")
        ));
        update(&db, "on_disk", 7, 51);
        update(&db, "in_memory", 7, 51);
        let (increment, report) = back_up(&db, BackupKind::Incremental);
        assert!(report.pages > 50, "{about}: {report}");
        let model = contents(&db);
        let (restored, _) = try_restore(&[&full, &increment], &By::Backups).unwrap();
        assert_same(&contents(&Database::open_on(restored, quiet()).unwrap()), &model, &about);
        db.checkpoint().unwrap();
        disk.crash();
        drop(db);
        let db = Database::open_on(disk.restart(), quiet()).unwrap();
        assert_same(&contents(&db), &model, &format!("{about}, opened"));
    }
}

/// A page that was damaged at rest makes the backup fail, with the file and the offset; there is no backup then.
#[test]
fn a_damaged_page_is_not_backed_up() {
    let disk = FaultyDisk::new(5);
    let db = filled(disk.clone(), 20_000);
    db.checkpoint().unwrap();
    db.close().unwrap();
    disk.kill();
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), quiet()).unwrap();
    disk.damage("pages", 10 * 4_096 + 100, 8).unwrap();
    let to = MemoryDisk::new();
    let error = db.backup_on(to.clone(), BackupKind::Full).unwrap_err();
    let Error::Corrupt { file, offset, what } = &error else { panic!("{error:?}") };
    assert!(file == "pages" && *offset == 10 * 4_096 && what.contains("checksum"), "{error}");
    assert!(!to.list().unwrap().iter().any(|name| name == BACKUP_FILE));
    // What is in memory goes on.
    update(&db, "in_memory", 3, 7);
}

/// A backup that is cut, or in which a bit is flipped, is refused, with the offset of a frame.
#[test]
fn a_damaged_backup_with_pages_is_refused() {
    let db = filled(MemoryDisk::new(), 2_000);
    let (full, _) = back_up(&db, BackupKind::Full);
    update(&db, "on_disk", 15, 77);
    let (increment, _) = back_up(&db, BackupKind::Incremental);
    let mut random = Random::new(Random::seed_from_environment());
    for round in 0..120 {
        let mut chain = [full.clone(), increment.clone()];
        let bytes = &mut chain[random.below(2) as usize];
        let at = random.below(bytes.len() as u64) as usize;
        match round % 3 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            _ => _ = bytes.drain(at..bytes.len().min(at + 4_160)),
        }
        let error = try_restore(&[&chain[0], &chain[1]], &By::Backups).map(|(_, report)| report).unwrap_err();
        let OpenError::Corrupt { file, offset, .. } = &error else {
            panic!("round {round}, {at}: {error:?}")
        };
        assert!(file == "a backup" && *offset <= at as u64, "round {round}, {at}: {error}");
    }
}

/// Tables that the archived log makes, fills, empties and drops, in a backup without pages and in one with them.
#[test]
fn an_archived_log_makes_and_drops_disk_resident_tables() {
    let archive = MemoryDisk::new();
    let options = Options { archive: Some(Archive::on(archive.clone())), ..quiet() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let before = back_up(&db, BackupKind::Full);
    let mut places = Vec::new();
    let mut step = |change: &dyn Fn(&mut Transaction<'_>) -> Result<(), Error>| {
        let ((), ticket) = db.submit(|tx| change(tx)).unwrap();
        let place = ticket.lsn();
        ticket.wait().unwrap();
        places.push((place, contents(&db)));
    };
    let fill = |tx: &mut Transaction<'_>, name: &str, ids: Range<i32>| {
        let (table, text) = (tx.table(name)?, "x".repeat(1_200));
        let row = |id| [Value::Int4(id), Value::Int4(id % 5), Value::Int4(id), Value::Text(text.clone())];
        ids.clone().try_for_each(|id| tx.insert(&table, &row(id)))
    };
    step(&|tx| tx.create_table(&definition("on_disk")).map(drop));
    // More than there is memory for.
    (0..6).for_each(|nth| step(&|tx| fill(tx, "on_disk", nth * 900..nth * 900 + 900)));
    // By a bulk load.
    step(&|tx| tx.create_table(&definition("on_disk_too")).and_then(|_| fill(tx, "on_disk_too", 0..700)));
    step(&|tx| tx.create_table(&definition("in_memory")).map(drop));
    let between = back_up(&db, BackupKind::Full);
    step(&|tx| tx.table("on_disk").and_then(|table| tx.truncate(&table)));
    step(&|tx| fill(tx, "on_disk", 0..50));
    step(&|tx| tx.drop_table("on_disk_too"));
    step(&|tx| tx.create_table(&definition("on_disk_too")).and_then(|_| fill(tx, "on_disk_too", 0..5)));
    step(&|tx| tx.drop_table("on_disk"));
    db.archive_log().unwrap();
    for (bytes, report) in [&before, &between] {
        for (place, model) in places.iter().filter(|(place, _)| *place >= report.place) {
            let about = format!("from {} to {place}", report.place);
            let to = RestoreTo::Place(*place);
            let (disk, restored) = try_restore(&[bytes], &By::Archive(&archive, to)).unwrap();
            assert_eq!(restored.place, *place);
            sound(&disk, &about);
            let db = Database::open_on(disk, quiet()).unwrap();
            assert_same(&contents(&db), model, &about);
            db.checkpoint().unwrap();
        }
    }
}

/// A restore of backups and of archived log crashes at each step: the directory is no database, and says so, until it is a
/// whole one; another restore starts over.
#[test]
fn a_crash_at_any_step_of_a_restore_leaves_no_half_database() {
    let seed = Random::seed_from_environment();
    let archive = MemoryDisk::new();
    let options = Options { archive: Some(Archive::on(archive.clone())), ..quiet() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    fill_both(&db, 300);
    let (full, _) = back_up(&db, BackupKind::Full);
    update(&db, "on_disk", 3, 70);
    update(&db, "in_memory", 3, 70);
    let (increment, _) = back_up(&db, BackupKind::Incremental);
    (0..300).step_by(40).for_each(|id| update(&db, "on_disk", id, 71));
    db.archive_log().unwrap();
    let model = contents(&db);
    let restored = |to: &Arc<FaultyDisk>| {
        let stream = |bytes: &Vec<u8>| Backup::stream("a backup", Cursor::new(bytes.clone()));
        let archive = Some(Archive::on(archive.clone()));
        let backups = vec![stream(&full), stream(&increment)];
        restore(Restore { archive, memory_bytes: 16 << 20, ..Restore::new(backups) }, to.clone())
    };
    let (mut whole, mut none) = (0, 0);
    for step in 1.. {
        let about = format!("RIALTO_SEED={seed}, step {step}");
        let disk = FaultyDisk::new(seed ^ step);
        disk.crash_at(step);
        let outcome = restored(&disk);
        if outcome.is_ok() && !disk.is_down() {
            break;
        }
        let disk = disk.restart();
        let names = disk.list().unwrap();
        if names.iter().any(|name| name == "home") {
            whole += 1;
        } else {
            none += 1;
            assert!(outcome.is_err(), "{about}");
            if names.iter().any(|name| name != "log-tail" && name != "lock") {
                let error = Database::open_on(disk.clone(), quiet()).unwrap_err();
                assert!(matches!(error, OpenError::Unsupported { .. }), "{about}: {error}");
            }
            restored(&disk).unwrap_or_else(|error| panic!("{about}: {error}"));
        }
        let db = Database::open_on(disk.clone(), quiet()).unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_same(&contents(&db), &model, &about);
    }
    assert!(none > 20 && whole > 0, "the test's own premise: {whole} whole, {none} none");
}
