//! I3: committed transactions come to disk by themselves. At level 1, whichever thread gathered them: another
//! committer, the point of a backup or of a checkpoint, a transaction that waits for a packet's slot. At level 3,
//! though the ticket has no waiter. After the last commit no client waits for the log, and all of it is written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::quiet;
use crate::common::seeds::for_a_while;
use crate::common::within;
use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{BackupKind, Database, Durability, GroupCommitDesign, Options, Table, Transaction};

fn options(random: &mut Random) -> Options {
    let designs = GroupCommitDesign::ALL;
    Options {
        durability: Durability::Memory,
        group_commit: designs[random.below(designs.len() as u64) as usize].into(),
        memory_flush_interval: Duration::from_micros(100 + random.below(3_000)),
        packets_max: if random.chance(1, 2) { 2 } else { 64 },
        ..quiet::options()
    }
}

/// A few commits, answered at level 1 or left at level 3. Gives the place of the last one.
fn commits(db: &Database, table: &Table, random: &mut Random) -> u64 {
    let mut last = 0;
    for n in 0..1 + random.below(3) as i32 {
        let id = random.below(10) as i32;
        let durability = if random.chance(1, 2) { Durability::Memory } else { Durability::Disk };
        let set = |tx: &mut Transaction| tx.update(table, id, &[(1, Value::Int4(n))]).map(drop);
        let ((), ticket) = db.submit_with(&quiet::level(durability), set).unwrap();
        last = ticket.lsn().0;
        if durability == Durability::Memory {
            ticket.wait().unwrap();
        }
    }
    last
}

/// Gathers without a commit of its own.
fn back_up_or_checkpoint(db: &Database, random: &mut Random) {
    if random.chance(1, 2) {
        db.backup_on(MemoryDisk::new(), BackupKind::Full).unwrap();
    } else {
        db.checkpoint().unwrap();
    }
}

#[test]
fn what_is_committed_comes_to_disk_when_nothing_else_happens() {
    let rounds = AtomicU64::new(0);
    let (first, seeds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let options = options(&mut random);
        let about = format!("RIALTO_SEED={seed}, {}", options.group_commit);
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let table = quiet::numbers(&db);
        let mut last = commits(&db, &table, &mut random);
        for _ in 0..30 {
            db.sync().unwrap();
            let written = || db.metrics().log.packets;
            let (before, places) = (written(), AtomicU64::new(0));
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let committers: Vec<_> = (0..1 + random.below(2))
                    .map(|_| random.fork())
                    .map(|mut random| {
                        let (db, table, places) = (&db, &table, &places);
                        scope.spawn(move || {
                            places.fetch_max(commits(db, table, &mut random), Ordering::SeqCst);
                        })
                    })
                    .collect();
                let (db, over, mut random) = (&db, &over, random.fork());
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        back_up_or_checkpoint(db, &mut random);
                    }
                });
                committers.into_iter().for_each(|committer| committer.join().unwrap());
                over.store(true, Ordering::SeqCst);
            });
            let before_them = std::mem::replace(&mut last, places.into_inner());
            let what = format!("{about}: the commits after place {before_them} up to {last}");
            // Ten thousand times the interval, and longer than a machine stands still.
            within(Duration::from_secs(60), &what, || written() - before >= last - before_them);
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    });
    println!("tally: commits at rest, {seeds} seeds, {} rounds, RIALTO_SEED={first}", rounds.into_inner());
}

/// How long a commit of level memory stays off the disk while nothing else happens; the least of a few times.
fn stays_off_the_disk(design: GroupCommitDesign, memory_flush_interval: Duration) -> Duration {
    let options = Options {
        durability: Durability::Memory,
        group_commit: design.into(),
        memory_flush_interval,
        ..quiet::options()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = quiet::numbers(&db);
    let once = |n| {
        db.sync().unwrap();
        let before = db.metrics().log.packets;
        let began = Instant::now();
        db.transact(|tx| tx.update(&table, 1, &[(1, Value::Int4(n))])).unwrap();
        within(Duration::from_secs(60), "a commit", || db.metrics().log.packets > before);
        began.elapsed()
    };
    // The first may be written with what the table's own transaction requested.
    (0..4).map(once).skip(1).min().expect("there are some")
}

/// The interval counts: commits stay off the disk for about that long, and not for some other time.
#[test]
fn a_commit_stays_off_the_disk_for_the_interval() {
    std::thread::scope(|scope| {
        for design in GroupCommitDesign::ALL {
            scope.spawn(move || {
                let interval = Duration::from_millis(300);
                let (shorter, longer) =
                    (stays_off_the_disk(design, interval / 100), stays_off_the_disk(design, interval));
                assert!(longer >= interval / 2, "{design}: {longer:?} of {interval:?}");
                assert!(
                    shorter * 2 < longer,
                    "{design}: {shorter:?}, and {longer:?} with 100 times the interval"
                );
            });
        }
    });
}
