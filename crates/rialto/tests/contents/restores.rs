//! Backups, increments and an archive of a database whose contents are known after each transaction. A restore, to the
//! end or to any place in the log, gives the contents of that place, and a database that goes on from there. So does an
//! opening that has to fall back on the older copy, because a segment of the newer one is damaged.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::many_seeds::for_a_while_by;
use crate::tables::{Contents, Drawer, any_logging, assert_sound, one_of};
use rialto::backup::{Archive, Backup, Restore, RestoreTo, restore};
use rialto::checkpoint::home::read_home;
use rialto::io::{Disk, FaultyDisk, MemoryDisk, Random};
use rialto::recovery::inspect::inspect;
use rialto::{BackupKind, Checkpointing, Database, Durability, Engine, Error, Lsn, Options, TxOptions};

const MEMORY: u64 = 96 << 20;
const SEGMENT_BYTES: u64 = 65_536;

struct Taken {
    bytes: Vec<u8>,
    place: Lsn,
    is_full: bool,
}

#[derive(Default)]
struct Tally {
    transactions: u64,
    recoveries: u64,
    fell_back: u64,
    restored: u64,
}

/// A database with what its client was told, and the copies of it elsewhere.
struct Kept {
    about: String,
    disk: Arc<FaultyDisk>,
    archive: Arc<MemoryDisk>,
    drawer: Drawer,
    random: Random,
    /// The contents from each place in the log on.
    places: BTreeMap<u64, Contents>,
    /// The last place whose ticket was waited for: at level disk, and at any level.
    on_disk: u64,
    in_memory: u64,
    /// The log goes at least this far, whatever the last end was.
    least: u64,
    backups: Vec<Taken>,
}

impl Kept {
    fn new(seed: u64) -> Kept {
        let mut random = Random::new(seed);
        let about = format!("RIALTO_SEED={seed}");
        let drawer = Drawer::new(random.fork(), about.clone());
        let (disk, archive) = (FaultyDisk::new(random.next()), MemoryDisk::new());
        let (places, backups) = (BTreeMap::new(), Vec::new());
        Kept { about, disk, archive, drawer, random, places, on_disk: 0, in_memory: 0, least: 0, backups }
    }

    fn options(&mut self) -> Options {
        let random = &mut self.random;
        let (logging, checkpoint) = any_logging(random);
        Options {
            memory_bytes: MEMORY,
            logging,
            checkpoint,
            // Slow sweeps all the time, each of which meets many unfinished transactions; or seldom.
            checkpoint_interval: Duration::from_millis(one_of(random, &[1, 1, 100])),
            sweep_bytes_per_s: Some(1_000_000 << random.below(6)),
            backup_copies: 2 + random.below(2) as u32,
            log_bytes_max: 16 << 20,
            engine: one_of(random, &Engine::ALL),
            recovery_threads: 3,
            archive: Some(Archive::on(self.archive.clone())),
            ..Options::default()
        }
    }

    fn open(&mut self) -> Database {
        let options = self.options();
        let about = format!("{}, opened with {:?}, {:?}", self.about, options.logging, options.checkpoint);
        Database::open_on(self.disk.clone(), options).unwrap_or_else(|error| panic!("{about}: {error}"))
    }

    /// Opens the database, and kills its process at once.
    fn open_and_kill(&mut self) {
        let db = self.open();
        let about = self.about.clone();
        self.recovered(&db, &about);
        self.disk.kill();
        drop(db);
        self.disk = self.disk.restart();
    }

    fn last(&self) -> Contents {
        self.places.values().next_back().cloned().unwrap_or_default()
    }

    /// Transactions and backups, until the machine or the process ends.
    fn live(&mut self, db: &Database, tally: &mut Tally) {
        for _ in 0..15 + self.random.below(30) {
            tally.transactions += 1;
            let durability = one_of(&mut self.random, &[Durability::Disk, Durability::Memory]);
            let mut tx =
                db.begin_with(&TxOptions { durability: Some(durability), ..TxOptions::default() }).unwrap();
            let outcome = self.drawer.transaction(&mut tx, &self.last());
            match outcome.and_then(|after| Ok((after, tx.submit()?))) {
                Ok((after, ticket)) => {
                    let place = ticket.lsn().0;
                    self.places.insert(place, after);
                    if self.random.chance(1, 3) {
                        ticket.wait().unwrap();
                        self.in_memory = place;
                        self.on_disk = if durability == Durability::Disk { place } else { self.on_disk };
                    }
                }
                Err(error) => panic!("{}: {error}", self.about),
            }
            if self.random.chance(1, 5) {
                db.checkpoint().unwrap_or_else(|error| panic!("{}: checkpoint: {error}", self.about));
            }
            if self.random.chance(1, 6) {
                self.back_up(db);
            }
            if self.random.chance(1, 15) {
                db.archive_log().unwrap();
            }
        }
    }

    fn back_up(&mut self, db: &Database) {
        let mut bytes = Vec::new();
        let kind = one_of(&mut self.random, &[BackupKind::Full, BackupKind::Incremental]);
        match db.backup_to(&mut bytes, kind) {
            Ok(report) => {
                self.backups.push(Taken { bytes, place: report.place, is_full: report.base.is_none() });
            }
            Err(Error::LogFull { .. }) => {}
            Err(error) => panic!("{}: backup: {error}", self.about),
        }
    }

    /// The contents that a recovery has to find, whose log ends there. Later transactions are lost, and were not
    /// acknowledged.
    fn recovered(&mut self, db: &Database, about: &str) {
        let end = db.recovery().expect("it was there").log_end;
        assert!(end.0 >= self.least, "{about}: a log up to {end}, of which {} was answered", self.least);
        self.places.split_off(&(end.0 + 1));
        self.last().assert_in(db, about);
    }

    /// Opens the database with one flipped bit in a segment of its newer copy, if an older one can replace it.
    fn fall_back(&mut self, tally: &mut Tally) {
        let Ok((_, home)) = read_home(&*self.disk) else { return };
        let Some(copy) = home.copy else { return };
        let at = self.random.below(u64::from(home.segments).max(1)) * SEGMENT_BYTES + 40;
        self.turn_bit(&format!("backup-{}", copy.number()), at);
        let (options, about) = (self.options(), format!("{}, with a damaged copy", self.about));
        let inspected = inspect(&(self.disk.clone() as _), MEMORY, 2).unwrap();
        match Database::open_on(self.disk.clone(), options) {
            Ok(db) => {
                tally.fell_back += 1;
                let report = db.recovery().expect("the database was there");
                assert!(report.fell_back.is_some(), "{about}: it was not noticed");
                let from = format!("recovery   from checkpoint {}\n", report.checkpoint);
                assert!(inspected.contains(&from), "{about}: expected {from:?} in {inspected}");
                self.recovered(&db, &about);
                if self.random.chance(1, 2) {
                    db.checkpoint().unwrap();
                }
                self.disk.kill();
                drop(db);
                self.disk = self.disk.restart();
            }
            Err(error) => {
                assert!(error.to_string().contains("cannot stand in"), "{about}: {error}");
                assert!(inspected.contains("not recoverable: "), "{about}: {inspected}");
                self.turn_bit(&format!("backup-{}", copy.number()), at);
            }
        }
    }

    fn turn_bit(&self, name: &str, at: u64) {
        use rialto::io::{Caching, Open};
        let file = self.disk.open(name, Open::Existing, Caching::Buffered).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 4], at).unwrap();
        file.sync().unwrap();
    }

    /// Restores to a place, if there is an older backup, and goes on from there.
    fn restore(&mut self, tally: &mut Tally) {
        let nth = self.random.below(self.places.len() as u64) as usize;
        let (&place, expected) = self.places.iter().nth(nth).expect("the first contents have a place");
        let Some(newest) = self.backups.iter().rposition(|it| it.place.0 <= place) else { return };
        let last =
            if self.random.chance(1, 2) { newest } else { self.random.below(newest as u64 + 1) as usize };
        let Some(full) = (0..=last).rev().find(|&nth| self.backups[nth].is_full) else { return };
        let chain = self.backups[full..=last].iter();
        let chain = chain.map(|taken| Backup::stream("a backup", Cursor::new(taken.bytes.clone())));
        let plan = Restore {
            archive: Some(Archive::on(self.archive.clone())),
            to: RestoreTo::Place(Lsn(place)),
            memory_bytes: MEMORY,
            threads: 1 + self.random.below(3) as usize,
            ..Restore::new(chain.collect())
        };
        let about = format!("{}, restored to {place} from {}", self.about, self.backups[last].place);
        let target = MemoryDisk::new();
        let report = restore(plan, target.clone()).unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_eq!(report.place.0, place, "{about}");
        assert_sound(target.clone(), &about);
        let options = Options { memory_bytes: MEMORY, checkpoint: Checkpointing::None, ..Options::default() };
        let db = Database::open_on(target.clone(), options.clone()).unwrap();
        expected.assert_in(&db, &about);
        tally.restored += 1;
        if self.random.chance(1, 3) {
            let mut expected = expected.clone();
            for _ in 0..4 {
                let mut tx = db.begin().unwrap();
                expected = self.drawer.transaction(&mut tx, &expected).unwrap();
                tx.commit().unwrap();
                if self.random.chance(1, 3) {
                    db.checkpoint().unwrap();
                }
            }
            db.close().unwrap();
            let db = Database::open_on(target, options).unwrap();
            expected.assert_in(&db, &format!("{about}, gone on"));
        }
    }
}

fn lives(seed: u64, tally: &mut Tally) {
    let mut kept = Kept::new(seed);
    let mut db = kept.open();
    Contents::prepare(&db);
    let (_, first) = db.submit(|tx| tx.table("count").map(drop)).unwrap();
    kept.places.insert(first.lsn().0.max(1), Contents::default());
    first.wait().unwrap();
    for _ in 0..3 {
        kept.live(&db, tally);
        match kept.random.below(3) {
            0 => {
                db.clone().close().unwrap();
                kept.least = *kept.places.last_key_value().expect("the first contents have a place").0;
            }
            1 => {
                kept.disk.kill();
                kept.least = kept.in_memory;
            }
            _ => {
                kept.disk.crash();
                kept.least = kept.on_disk;
            }
        }
        drop(db);
        if !kept.disk.is_down() {
            kept.disk.kill();
        }
        kept.disk = kept.disk.restart();
        assert_sound(kept.disk.clone(), &kept.about);
        // An opening that makes no copy: everything that the older copy needs stays.
        if kept.random.chance(1, 2) {
            kept.open_and_kill();
        }
        if kept.random.chance(2, 3) {
            kept.fall_back(tally);
        }
        db = kept.open();
        let about = kept.about.clone();
        kept.recovered(&db, &about);
        tally.recoveries += 1;
    }
    db.close().unwrap();
    for _ in 0..4 {
        kept.restore(tally);
    }
}

#[test]
fn a_restore_to_any_place_gives_the_contents_of_that_place() {
    let all = Mutex::new(Tally::default());
    let (first, seeds) = for_a_while_by(3, |seed| {
        let mut tally = Tally::default();
        lives(seed, &mut tally);
        let mut all = all.lock().unwrap();
        all.transactions += tally.transactions;
        all.recoveries += tally.recoveries;
        all.fell_back += tally.fell_back;
        all.restored += tally.restored;
    });
    let tally = all.into_inner().unwrap();
    println!(
        "tally: restores against a model, {seeds} seeds, {} transactions, {} recoveries, {} by the older copy, {} restores, \
         RIALTO_SEED={first}",
        tally.transactions, tally.recoveries, tally.fell_back, tally.restored
    );
}
