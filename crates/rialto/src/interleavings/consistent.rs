//! What a backup holds without its log: a transaction-consistent one holds whole transactions, an action-consistent one
//! whole writes of rows, a fuzzy one neither.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::hooked::HookedDisk;
use super::*;
use crate::checkpoint::home::{HomeBlock, HomeFile};
use crate::io::MemoryDisk;
use crate::recovery::{Calls, Recovery, RecoveryPages, memory};
use crate::row::RowView;

const PAIRS: i32 = 200;

/// A row in a backup: its number, and the length of its text.
pub(super) type Found = BTreeMap<i32, (i64, usize)>;

fn tables(db: &Database) -> [Table; 2] {
    ["left", "right"].map(|name| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("n", ColumnType::Int8),
            Column::new("text", ColumnType::Text),
        ];
        let def = TableDef::new(name, columns).with_primary_key(&["id"]);
        db.transact(|tx| tx.create_table(&def)).unwrap()
    })
}

/// The length of the text beside a number: now and then the row has to move.
fn length_at(n: i64) -> usize {
    (n * 7919 % 3_000) as usize
}

/// Writes one number to both rows of a pair.
fn write(db: &Database, tables: &[Table; 2], id: i32, n: i64, is_new: bool) {
    let quick = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    db.transact_with(&quick, |tx| {
        for table in tables {
            if is_new {
                tx.insert(table, &[Value::Int4(id), Value::Int8(n), text(length_at(n))])?;
            } else {
                tx.update(table, id, &[(1, Value::Int8(n)), (2, text(length_at(n)))])?;
            }
        }
        Ok(())
    })
    .unwrap();
}

/// Stops the other threads when it is dropped, by a panic too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The rows of these tables in the copy in force on the disk, alone.
pub(super) fn backup_alone<const TABLES: usize>(
    disk: &Arc<dyn Disk>,
    names: [&str; TABLES],
) -> [Found; TABLES] {
    let read = |row: &RowView| {
        let text = row.get_str(2).unwrap().len();
        (row.get_i32(0).unwrap(), (row.get_i64(1).unwrap(), text))
    };
    let (_, tables) = copy_alone(disk, names, read);
    tables.map(|rows| {
        let (count, found) = (rows.len(), Found::from_iter(rows));
        assert_eq!(found.len(), count, "the loader keeps one of two");
        found
    })
}

/// The result of `read` on the rows of these tables in the copy in force on the disk, alone; and the block that names
/// it.
pub(crate) fn copy_alone<R, const TABLES: usize>(
    disk: &Arc<dyn Disk>,
    names: [&str; TABLES],
    read: impl Fn(&RowView) -> R,
) -> (HomeBlock, [Vec<R>; TABLES]) {
    // The blocks may change between two readings.
    let home = || HomeFile::open(&**disk).ok().map(|home| *home.block());
    let (block, tables, segments) = loop {
        let Some(before) = home() else { continue };
        let (segments, nodes) = memory(options().memory_bytes, 0, 0).unwrap();
        let recovery = Recovery {
            disk,
            segments: &segments,
            nodes: &nodes,
            pages: RecoveryPages::default(),
            threads: 2,
            calls: Calls::Left,
            tell: None,
            redo_up_to: Lsn::MAX,
        };
        let tables = recovery.without_log(&before);
        // The next checkpoint goes to the other copy, but the one after it may have begun to overwrite this one.
        if home().is_some_and(|now| now.sequence == before.sequence) {
            break (before, tables.unwrap(), segments);
        }
    };
    let rows = names.map(|name| {
        let table = tables.iter().find(|table| table.schema.table() == name).unwrap();
        let mut rows = Vec::new();
        for id in table.store.owned() {
            for slot in segments.slots(id).map(|slot| slot.unwrap()).filter(|&slot| !segments.is_absent(slot))
            {
                let mut body = Vec::new();
                segments.read(slot, &mut body);
                rows.push(read(&RowView::validate(&table.schema, &body).unwrap()));
            }
        }
        rows
    });
    (block, rows)
}

/// Counts damage in some backups that are made while other threads write: how many lack a whole transaction, and how
/// many a whole row.
fn damages(checkpoint: Checkpointing, seed: u64) -> [u32; 2] {
    let (disk, swept) = HookedDisk::counting();
    let disk: Arc<dyn Disk> = disk;
    let slow = Options {
        sweep_bytes_per_s: Some(8 << 20),
        checkpoint_interval: Duration::from_millis(1),
        ..options()
    };
    let db = Database::open_on(disk.clone(), slow).unwrap();
    let tables = tables(&db);
    (0..PAIRS).for_each(|id| write(&db, &tables, id, i64::from(id), true));
    db.set_checkpoint(checkpoint).unwrap();
    let stop = AtomicBool::new(false);
    let mut damages = [0, 0];
    std::thread::scope(|scope| {
        let _stopped = Stop(&stop);
        for thread in 0..2 {
            let (db, tables, stop) = (&db, &tables, &stop);
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_add(thread));
                while !stop.load(Ordering::Relaxed) {
                    write(db, tables, random.below(PAIRS as u64) as i32, random.below(1 << 40) as i64, false);
                }
            });
        }
        // More backups are made where the writing threads get little done beside a sweep.
        let (began, is_met) = (Instant::now(), |damages: [u32; 2]| match checkpoint {
            Checkpointing::Fuzzy => damages.iter().all(|&found| found > 0),
            Checkpointing::TransactionBlackWhite => db.metrics().aborted_straddling > 0,
            _ => true,
        });
        for round in 0.. {
            if round >= 6 && (is_met(damages) || began.elapsed() > Duration::from_secs(60)) {
                break;
            }
            until_checkpoint(&db, &swept);
            let [left, right] = backup_alone(&disk, ["left", "right"]);
            let is_whole = |found: &Found| {
                found.len() == PAIRS as usize && found.values().all(|&(n, length)| length == length_at(n))
            };
            damages[0] += u32::from(left != right);
            damages[1] += u32::from(!is_whole(&left) || !is_whole(&right));
        }
    });
    let metrics = db.metrics();
    let stats = &metrics.checkpoints;
    match checkpoint {
        // Where commits reach every segment first, a sweep finds only snapshots and takes no latch.
        Checkpointing::ActionCopyOnUpdate | Checkpointing::TransactionCopyOnUpdate => {
            assert!(stats.cuts >= 6 && stats.snapshot_bytes_max > 0, "{stats:?}");
        }
        _ => assert!(stats.latches > 6, "{stats:?}"),
    }
    if checkpoint == Checkpointing::TransactionBlackWhite {
        assert!(metrics.aborted_straddling > 0, "the test's own premise");
    }
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    let pairs = ["left", "right"].map(|name| db.table(name).unwrap());
    db.transact(|tx| {
        for id in 0..PAIRS {
            let [left, right] = [tx.get(&pairs[0], id)?, tx.get(&pairs[1], id)?].map(Option::unwrap);
            assert_eq!(left.view().get_i64(1)?, right.view().get_i64(1)?, "with its log a backup is whole");
        }
        Ok(())
    })
    .unwrap();
    damages
}

#[test]
fn a_backup_alone_is_as_consistent_as_it_says() {
    let seed = seed();
    for checkpoint in [Checkpointing::TransactionCopyOnUpdate, Checkpointing::TransactionBlackWhite] {
        let [transactions, rows] = damages(checkpoint, seed);
        assert_eq!((transactions, rows), (0, 0), "{checkpoint:?}, RIALTO_SEED={seed}");
    }
    for checkpoint in [Checkpointing::ActionCopyOnUpdate, Checkpointing::ActionBlackWhite] {
        let [transactions, rows] = damages(checkpoint, seed);
        assert_eq!(rows, 0, "{checkpoint:?}, RIALTO_SEED={seed}");
        println!("{checkpoint:?}: {transactions} backups lack a whole transaction");
    }
    let [transactions, rows] = damages(Checkpointing::Fuzzy, seed);
    assert!(transactions > 0 && rows > 0, "the test's own premise: {transactions}, {rows}");
}

/// A transaction that has written, and does nothing more, holds up neither a cut nor a sweep.
#[test]
fn an_idle_open_transaction_holds_up_neither_cut_nor_sweep() {
    for checkpoint in Checkpointing::ALL {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let (db, table) = filled(disk.clone());
        db.set_checkpoint(checkpoint).unwrap();
        let mut open = db.begin().unwrap();
        open.update(&table, 3, &[(1, Value::Int8(7))]).unwrap();
        open.insert(&table, &[Value::Int4(1_000), Value::Int8(0), text(7_000)]).unwrap();
        tick(&db);
        assert!(!db.checkpoint().unwrap().skipped);
        open.commit().unwrap();
        db.sync().unwrap();
        db.close().unwrap();
        let db = Database::open_on(disk, options()).unwrap();
        let table = db.table("t").unwrap();
        let n = db.transact(|tx| tx.get(&table, 3)?.unwrap().view().get_i64(1)).unwrap();
        assert_eq!(n, 7, "{checkpoint:?}");
    }
}

/// A commit that finds no room for its snapshots waits for the sweep, which hurries, and goes on.
#[test]
fn a_commit_waits_for_snapshots_within_their_bound() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = Options {
        checkpoint_interval: Duration::from_millis(1),
        sweep_bytes_per_s: Some(4 << 20),
        snapshot_bytes_max: Some(2 * crate::store::memory::SEGMENT_BYTES as u64),
        ..options()
    };
    let (db, table) = filled_with(disk, options);
    db.transact(|tx| (0..ROWS).try_for_each(|id| tx.update(&table, id, &[(1, Value::Int8(1))]).map(drop)))
        .unwrap();
    db.set_checkpoint(Checkpointing::TransactionCopyOnUpdate).unwrap();
    // As many sweeps as it takes until one has met the bound.
    let most = 2 * crate::store::memory::SEGMENT_BYTES as u64;
    until("a sweep has met the bound", || {
        for id in 0..ROWS {
            db.transact(|tx| tx.update(&table, id, &[(1, Value::Int8(i64::from(id)))])).unwrap();
        }
        db.metrics().checkpoints.snapshot_bytes_max >= most
    });
    assert_eq!(db.metrics().checkpoints.snapshot_bytes_max, most);
}
