//! Writes and syncs of the database's files fail, or its disk becomes full, and so does the disk of its archive, while
//! transactions go on as far as they can. What an answer told is there after each end of the machine or of the process,
//! and a refused transaction has left nothing. A model has the contents after each transaction.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use crate::common::seeds::for_a_while;
use crate::tables::{Contents, Drawer, assert_sound, one_of};
use rialto::backup::{Archive, Backup, Restore, restore};
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, MemoryDisk, Random};
use rialto::{BackupKind, Checkpointing, Database, Durability, Error, Options, TxOptions};

const MEMORY: u64 = 64 << 20;
const KINDS: [FaultKind; 5] =
    [FaultKind::Sync, FaultKind::SyncReverts, FaultKind::Write, FaultKind::Full, FaultKind::FullToOverwrite];

#[derive(Default)]
struct Tally {
    transactions: u64,
    refused: u64,
    faults: u64,
    recoveries: u64,
    restored: u64,
}

struct Machine {
    about: String,
    random: Random,
    drawer: Drawer,
    disk: Arc<FaultyDisk>,
    archive: Arc<FaultyDisk>,
    /// From before the first transaction.
    backup: Vec<u8>,
    /// The contents after each transaction, by its number. The last one may not have committed.
    states: Vec<Contents>,
    /// The last transaction that is on the disk.
    durable: usize,
    /// The last one that has committed at any level.
    committed: usize,
    /// The last one that the archive has.
    archived: usize,
    /// The events, for a failure message.
    story: Vec<String>,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        let mut random = Random::new(seed);
        let about = format!("RIALTO_SEED={seed}");
        let mut machine = Machine {
            drawer: Drawer::new(random.fork(), about.clone()),
            about,
            disk: FaultyDisk::new(random.next()),
            archive: FaultyDisk::new(random.next()),
            random,
            backup: Vec::new(),
            states: vec![Contents::default()],
            durable: 0,
            committed: 0,
            archived: 0,
            story: Vec::new(),
        };
        let db = machine.open();
        Contents::prepare(&db);
        // Both copies are there.
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        db.backup_to(&mut machine.backup, BackupKind::Full).unwrap();
        db.close().unwrap();
        machine
    }

    fn told(&self) -> String {
        format!("{}: {:#?}", self.about, self.story)
    }

    fn open(&mut self) -> Database {
        let random = &mut self.random;
        let options = Options {
            memory_bytes: MEMORY,
            checkpoint: Checkpointing::None,
            log_bytes_max: 16 << 20,
            log_wait_max: Duration::from_millis(200),
            backup_copies: 2 + random.below(2) as u32,
            log_writes: Some(one_of(random, &[Caching::Direct, Caching::Buffered, Caching::DirectSync])),
            log_writes_in_flight: Some(1 + random.below(3) as u32),
            spool: random.chance(1, 2),
            archive: Some(Archive::on(self.archive.clone())),
            ..Options::default()
        };
        let db = Database::open_on(self.disk.clone(), options);
        let db = db.unwrap_or_else(|error| panic!("it does not open: {error}: {}", self.told()));
        let fell_back = db.recovery().and_then(|report| report.fell_back.as_ref());
        assert!(fell_back.is_none(), "it fell back: {fell_back:?}: {}", self.told());
        db
    }

    /// Lets something fail soon.
    fn arm(&mut self) {
        let (kind, after) = (one_of(&mut self.random, &KINDS), self.random.below(6));
        if self.random.chance(1, 3) {
            let name = one_of(&mut self.random, &[".", "log-", "load-"]);
            self.story.push(format!("of the archive, {kind:?} of {name} is to fail after {after}"));
            self.archive.fail(kind, name, after);
        } else if self.random.chance(1, 6) {
            let bytes = self.random.below(3 << 20);
            self.story.push(format!("{bytes} bytes are left"));
            self.disk.leave_room(bytes);
        } else {
            let name = one_of(&mut self.random, &["home", "backup-", "backup-", "load-", "load-", "log-"]);
            self.story.push(format!("{kind:?} of {name} is to fail after {after}"));
            self.disk.fail(kind, name, after);
        }
    }

    /// Runs a transaction. False if the database has stopped.
    fn transact(&mut self, db: &Database) -> bool {
        let durability = one_of(&mut self.random, &[Durability::Disk, Durability::Disk, Durability::Memory]);
        let options = TxOptions { durability: Some(durability), ..TxOptions::default() };
        let before = self.states[self.committed].clone();
        let mut after = None;
        let outcome = db.begin_with(&options).and_then(|mut tx| {
            after = Some(self.drawer.transaction(&mut tx, &before)?);
            tx.commit()
        });
        self.story.push(format!("transaction {} at {durability:?}: {outcome:?}", self.states.len()));
        match outcome {
            Ok(()) => {
                self.states.push(after.expect("it was drawn"));
                self.committed += 1;
                if durability == Durability::Disk {
                    self.durable = self.committed;
                }
            }
            Err(Error::OutcomeUnknown { .. }) => {
                self.states.push(after.expect("it was drawn"));
                return false;
            }
            // Without effect.
            Err(_) => {}
        }
        db.stopped().is_none()
    }

    fn live(&mut self, db: &Database, tally: &mut Tally) {
        for _ in 0..20 {
            if self.random.chance(1, 6) {
                self.arm();
                tally.faults += 1;
            }
            let goes_on = match self.random.below(8) {
                0 | 1 => {
                    let outcome = db.checkpoint().map(drop);
                    self.story.push(format!("checkpoint: {outcome:?}"));
                    db.stopped().is_none()
                }
                2 => {
                    let outcome = db.archive_log();
                    self.story.push(format!("archive: {outcome:?}"));
                    if outcome.is_ok() {
                        self.durable = self.committed;
                        self.archived = self.committed;
                    }
                    db.stopped().is_none()
                }
                _ => {
                    let known = self.committed;
                    tally.transactions += 1;
                    let goes_on = self.transact(db);
                    tally.refused += u64::from(self.committed == known);
                    goes_on
                }
            };
            if !goes_on {
                return;
            }
            if self.random.chance(1, 4) {
                self.states[self.committed].assert_in(db, &self.told());
            }
        }
    }

    /// Ends the database, and checks what is there.
    fn end(&mut self, db: Database, tally: &mut Tally) {
        let is_crash = self.random.chance(1, 2);
        self.story.push(format!("the {} ends", if is_crash { "machine" } else { "process" }));
        if self.random.chance(1, 5) {
            self.disk.mend();
            self.story.push(format!("close: {:?}", db.clone().close()));
        }
        if is_crash {
            self.disk.crash()
        } else {
            self.disk.kill()
        }
        self.archive.crash();
        drop(db);
        (self.disk, self.archive) = (self.disk.restart(), self.archive.restart());
        self.disk.mend();
        self.disk.leave_room(1 << 40);
        self.archive.mend();
        let restored = self.restored();
        assert_sound(self.disk.clone(), &self.told());
        let db = self.open();
        let found = Contents::count(&db) as usize;
        let least = if is_crash { self.durable } else { self.committed };
        assert!(found >= least, "transaction {least} has committed, {found} is there: {}", self.told());
        assert!(restored <= found, "the archive has {restored}, {found} is there: {}", self.told());
        self.states[found].assert_in(&db, &self.told());
        self.states.truncate(found + 1);
        (self.durable, self.committed) = (found, found);
        tally.recoveries += 1;
        tally.restored += 1;
        drop(db);
        self.disk.kill();
        self.disk = self.disk.restart();
    }

    /// How many transactions the backup and the archive restore.
    fn restored(&self) -> usize {
        let backup = Backup::stream("the backup", Cursor::new(self.backup.clone()));
        let plan = Restore {
            archive: Some(Archive::on(self.archive.clone())),
            memory_bytes: MEMORY,
            threads: 2,
            ..Restore::new(vec![backup])
        };
        let target = MemoryDisk::new();
        restore(plan, target.clone()).unwrap_or_else(|error| panic!("restore: {error}: {}", self.told()));
        assert_sound(target.clone() as Arc<dyn Disk>, &self.told());
        let options = Options { memory_bytes: MEMORY, checkpoint: Checkpointing::None, ..Options::default() };
        let db = Database::open_on(target, options).unwrap();
        let found = Contents::count(&db) as usize;
        assert!(found >= self.archived, "{} are archived, {found} restored: {}", self.archived, self.told());
        self.states[found].assert_in(&db, &format!("restored, {}", self.told()));
        found
    }
}

fn lives(seed: u64, tally: &mut Tally) {
    let mut machine = Machine::new(seed);
    for _ in 0..4 {
        let db = machine.open();
        machine.live(&db, tally);
        machine.end(db, tally);
    }
}

#[test]
fn a_disk_that_fails_loses_nothing_that_was_answered() {
    let mut tally = Tally::default();
    let (first, seeds) = for_a_while(|seed| lives(seed, &mut tally));
    println!(
        "tally: failing disks against a model, {seeds} seeds, {} transactions, {} refused, {} faults, {} recoveries, \
         {} restores, RIALTO_SEED={first}",
        tally.transactions, tally.refused, tally.faults, tally.recoveries, tally.restored
    );
}
