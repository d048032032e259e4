//! Backups that are taken while transactions run, and the databases that are restored from them.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::quiet::{count, open, options, put, things};
use crate::common::{engines, quiet};
use rialto::backup::{
    Archive, BACKUP_FILE, Backup, BytesDone, CopyObserver, Restore, RestoreReport, RestoreTo, restore,
};
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, MemoryDisk, Open, Random};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, BackupKind, BackupOptions, BackupReport, Checkpointing, Database, Durability, Engine, Error,
    Logging, Lsn, OpenError, Options, Procedure, Savepoint, Scan, Table, TableDef, Transaction, TxOptions,
};

mod cut_short;
mod progress;
mod streams;

fn backup_on(disk: &Arc<MemoryDisk>, name: &str) -> Backup {
    Backup::on(disk.clone(), name).unwrap()
}

fn of(backups: impl IntoIterator<Item = Backup>) -> Restore {
    Restore::new(backups.into_iter().collect())
}

fn refused(plan: Restore, to: &Arc<MemoryDisk>) -> (String, u8) {
    let error = restore(plan, to.clone()).unwrap_err();
    (error.to_string(), error.exit_code())
}

/// The bytes of the backup on a disk.
fn bytes_of(disk: &dyn Disk) -> Vec<u8> {
    let file = disk.open(BACKUP_FILE, Open::ReadOnly, Caching::Buffered).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn sound(disk: &Arc<MemoryDisk>) {
    let shared: Arc<dyn Disk> = disk.clone();
    let report = check(&shared, 64 << 20, 2).unwrap();
    assert!(report.is_sound(), "{report}");
}

// ---- the bank

const ACCOUNTS: i32 = 400;
const BALANCE: i64 = 1000;

fn bank(db: &Database) {
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("balance", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
    ];
    let def = TableDef::new("accounts", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&def)).unwrap();
    db.transact(|tx| {
        (0..ACCOUNTS).try_for_each(|id| {
            tx.insert(&table, &[Value::Int4(id), Value::Int8(BALANCE), Value::Text("x".repeat(900))])
        })
    })
    .unwrap();
}

/// Transfers an amount from one account to another; sometimes a row has to move. Gives the commit's place.
fn transfer(db: &Database, random: &mut Random) -> (Lsn, (i32, i32, i64)) {
    let table = db.table("accounts").unwrap();
    let from = random.below(ACCOUNTS as u64) as i32;
    let to = (from + 1 + random.below(ACCOUNTS as u64 - 1) as i32) % ACCOUNTS;
    let amount = random.below(100) as i64;
    let text = "y".repeat(800 + random.below(400) as usize);
    let quick = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    let ((), ticket) = db
        .submit_with(&quick, |tx| {
            for (id, by) in [(from, -amount), (to, amount)] {
                if amount % 2 == 0 {
                    // An action, where those are logged.
                    tx.modify(&table, id, |row| row.add(1, by).map(drop))?;
                    continue;
                }
                let balance = tx.get(&table, id)?.expect("the account").view().get_i64(1)?;
                tx.update(&table, id, &[(1, Value::Int8(balance + by)), (2, Value::Text(text.clone()))])?;
            }
            Ok(())
        })
        .unwrap();
    (ticket.lsn(), (from, to, amount))
}

fn balances(db: &Database) -> BTreeMap<i32, i64> {
    let table = db.table("accounts").unwrap();
    let mut found = BTreeMap::new();
    db.transact(|tx| {
        found.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            found.insert(row.get_i32(0)?, row.get_i64(1)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    found
}

/// The balances after the transfers up to a place.
fn balances_at(place: Lsn, transfers: &[(Lsn, (i32, i32, i64))]) -> BTreeMap<i32, i64> {
    let mut balances: BTreeMap<i32, i64> = (0..ACCOUNTS).map(|id| (id, BALANCE)).collect();
    for (_, (from, to, amount)) in transfers.iter().filter(|(lsn, _)| *lsn <= place) {
        *balances.get_mut(from).unwrap() -= amount;
        *balances.get_mut(to).unwrap() += amount;
    }
    balances
}

/// Waits until there are some more. Gives their number.
fn more_transfers<T>(transfers: &Mutex<Vec<T>>) -> usize {
    let (count, since) = (|| transfers.lock().unwrap().len(), Instant::now());
    let before = count();
    while count() < before + 100 {
        assert!(since.elapsed() < Duration::from_secs(120), "nothing is committed");
        std::thread::sleep(Duration::from_millis(1));
    }
    count()
}

/// Backups under full load, beside checkpoints of every kind. Each has exactly the transactions up to its place: a full
/// one alone, an increment with those before it.
#[test]
fn a_backup_under_load_is_the_prefix_that_it_says() {
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    for (nth, checkpoint) in Checkpointing::ALL.into_iter().chain([Checkpointing::None]).enumerate() {
        let (disk, archive) = (MemoryDisk::new(), MemoryDisk::new());
        let options = Options {
            checkpoint,
            logging: Logging::ALL[nth % Logging::ALL.len()],
            archive: Some(Archive::on(archive.clone())),
            checkpoint_interval: Duration::from_millis(1),
            sweep_bytes_per_s: Some(16 << 20),
            backup_copies: 2 + random.below(2) as u32,
            log_wait_max: Duration::from_secs(30),
            ..options()
        };
        let db = Database::open_on(disk.clone(), options).unwrap();
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
                let before = more_transfers(&transfers);
                let to = MemoryDisk::new();
                let report = db.backup_on(to.clone(), kind).unwrap();
                assert_eq!(report.base.is_none(), round % 3 == 0, "{report}");
                assert_eq!(report.why_full.is_some(), round == 0);
                // Its cut is counted like that of a checkpoint.
                let cuts = db.metrics().checkpoints;
                assert!(
                    cuts.cuts > round && !report.cut_held.is_zero() && cuts.cut_held_max >= report.cut_held
                );
                assert!(cuts.snapshot_bytes_max >= report.snapshot_bytes);
                // Everything that was answered before is in it.
                let transfers = transfers.lock().unwrap();
                assert!(transfers[..before].iter().all(|(lsn, _)| *lsn <= report.place));
                taken.push((to, report));
            }
            more_transfers(&transfers);
            stop.store(true, Ordering::Relaxed);
        });
        let live = balances(&db);
        let transfers = transfers.into_inner().unwrap();
        assert_eq!(live, balances_at(Lsn::MAX, &transfers));
        for (nth, (_, report)) in taken.iter().enumerate() {
            let chain = taken[nth / 3 * 3..=nth].iter();
            let target = MemoryDisk::new();
            let restored = restore(of(chain.map(|(disk, _)| backup_on(disk, "b"))), target.clone()).unwrap();
            assert_eq!(restored.place, report.place);
            sound(&target);
            let db = open(target.clone());
            let found = balances(&db);
            assert_eq!(found.values().sum::<i64>(), i64::from(ACCOUNTS) * BALANCE, "{checkpoint:?} {nth}");
            assert!(
                found == balances_at(report.place, &transfers),
                "RIALTO_SEED={seed} {checkpoint:?}, backup {nth} at {}",
                report.place
            );
            // The restored database goes on by itself, and is opened again with its changes.
            let (lsn, _) = transfer(&db, &mut random);
            assert_eq!(lsn, Lsn(report.place.0 + 1));
            let expected = balances(&db);
            drop(db);
            target.remove("log-tail").unwrap();
            assert_eq!(balances(&open(target)), expected);
        }
        // Increments of a database that hardly changes are small.
        let all = db.backup_on(MemoryDisk::new(), BackupKind::Full).unwrap();
        transfer(&db, &mut random);
        let little = db.backup_on(MemoryDisk::new(), BackupKind::Incremental).unwrap();
        assert!(little.segments <= 4 && little.segments < all.segments, "{little}; {all}");
        let nothing = db.backup_on(MemoryDisk::new(), BackupKind::Incremental).unwrap();
        assert_eq!((nothing.segments, nothing.place), (0, little.place));

        // With the log that followed the first backup, to the end and to a place in between.
        let live = balances(&db);
        db.close().unwrap();
        let (first, report) = &taken[0];
        let later: Vec<Lsn> =
            transfers.iter().map(|(lsn, _)| *lsn).filter(|lsn| *lsn >= report.place).collect();
        let place = later[random.below(later.len() as u64) as usize];
        for (to, expected) in
            [(RestoreTo::End, live), (RestoreTo::Place(place), balances_at(place, &transfers))]
        {
            let mut plan = of([backup_on(first, "b")]);
            (plan.archive, plan.to) = (Some(Archive::on(archive.clone())), to);
            let target = MemoryDisk::new();
            restore(plan, target.clone()).unwrap();
            sound(&target);
            assert!(balances(&open(target)) == expected, "RIALTO_SEED={seed} {checkpoint:?}, to {to:?}");
        }
    }
}

/// Tables are made and dropped between increments, with bulk loads; an open transaction is in none of them.
#[test]
fn increments_follow_definitions_and_loads() {
    let disk = MemoryDisk::new();
    let db = open(disk.clone());
    things(&db);
    put(&db, 0..300);
    let mut taken = vec![MemoryDisk::new()];
    db.backup_on(taken[0].clone(), BackupKind::Full).unwrap();
    for round in 0..4 {
        let name = format!("loaded{round}");
        db.transact(|tx| {
            let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
            let table = tx.create_table(&TableDef::new(name.clone(), columns).with_primary_key(&["id"]))?;
            (0..500).try_for_each(|id| tx.insert(&table, &quiet::thing(id, 300)))
        })
        .unwrap();
        if round > 0 {
            db.transact(|tx| tx.drop_table(&format!("loaded{}", round - 1))).unwrap();
        }
        let mut open = db.begin().unwrap();
        let table = db.table("things").unwrap();
        open.insert(&table, &quiet::thing(9_000 + round, 10)).unwrap();
        open.delete(&table, round).unwrap();
        let to = MemoryDisk::new();
        db.backup_on(to.clone(), BackupKind::Incremental).unwrap();
        taken.push(to);
        open.abort().unwrap();
        let target = MemoryDisk::new();
        restore(of(taken.iter().map(|disk| backup_on(disk, "b"))), target.clone()).unwrap();
        sound(&target);
        let restored = quiet::open(target);
        let names = |db: &Database| {
            let tables = db.tables().into_iter().map(|table| table.name().to_owned());
            tables.filter(|name| !name.starts_with("rialto_")).collect::<Vec<_>>()
        };
        assert_eq!(names(&restored), names(&db));
        assert_eq!(count(&restored), 300);
        let loaded = restored.table(&name).unwrap();
        assert_eq!(restored.read(|tx| tx.count(&loaded)).unwrap(), 500);
        // The next rows take no number twice.
        put(&restored, 10_000..10_100);
        restored.checkpoint().unwrap();
    }
}

// ---- streams

/// A stream that runs this when it is first written to, and keeps what is written.
struct AtFirst<F>(Option<F>, Vec<u8>);

impl<F: FnOnce()> Write for AtFirst<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(run) = self.0.take() {
            run();
        }
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A full backup of a database to a stream that runs this. Gives the report and the bytes of the stream.
fn amid_a_backup(db: &Database, run: impl FnOnce()) -> (BackupReport, Vec<u8>) {
    let mut stream = AtFirst(Some(run), Vec::new());
    let report = db.backup_to(&mut stream, BackupKind::Full).unwrap();
    (report, stream.1)
}

/// Creates a table, and inserts this many rows into it.
fn load(tx: &mut Transaction<'_>, rows: i32) -> Result<Table, Error> {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let table = tx.create_table(&TableDef::new("loaded", columns).with_primary_key(&["id"]))?;
    insert_from(tx, &table, 0..rows)?;
    Ok(table)
}

fn insert_from(tx: &mut Transaction<'_>, table: &Table, ids: std::ops::Range<i32>) -> Result<(), Error> {
    ids.into_iter().try_for_each(|id| tx.insert(table, &quiet::thing(id, 1000)))
}

/// A database with more rows than a backup writes at once: a stream is first written to when the sweep has begun.
fn of_two_writes(options: Options) -> Database {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    things(&db);
    put(&db, 0..2_000);
    put(&db, 2_000..4_000);
    db
}

/// The table does not exist at the cut, so nothing of it is kept for the sweep, and the next increment has it whole.
#[test]
fn a_table_that_is_not_committed_at_the_cut_takes_no_snapshots() {
    type Step = fn(&mut Transaction<'static>, &Table, &Savepoint) -> Result<(), Error>;
    let take_back: Step = |tx, _, savepoint| tx.rollback_to(savepoint);
    let load_again: Step = |tx, table, _| insert_from(tx, table, 100..3_000);
    let nothing: Step = |_, _, _| Ok(());
    // The operations of a transaction with a load behind a savepoint: before the cut, during the backup, and after it.
    // In the last case all of its rows are in the packet.
    let cases = [
        (3_000, nothing, take_back, load_again),
        (3_000, take_back, load_again, nothing),
        (3_000, take_back, load_again, take_back),
        (200, nothing, nothing, nothing),
    ];
    for (nth, (rows, before, amid, after)) in cases.into_iter().enumerate() {
        let db = of_two_writes(options());
        let mut tx = db.begin().unwrap();
        let table = load(&mut tx, 100).unwrap();
        let savepoint = tx.savepoint();
        insert_from(&mut tx, &table, 100..rows).unwrap();
        before(&mut tx, &table, &savepoint).unwrap();
        let is_committed_amid = nth == 3;
        let mut tx = Some(tx);
        let (report, full) = amid_a_backup(&db, || {
            amid(tx.as_mut().unwrap(), &table, &savepoint).unwrap();
            if is_committed_amid {
                tx.take().unwrap().commit().unwrap();
            }
        });
        assert_eq!(report.snapshot_bytes, 0, "case {nth}");
        if let Some(mut tx) = tx {
            after(&mut tx, &table, &savepoint).unwrap();
            tx.commit().unwrap();
        }
        let mut increment = Vec::new();
        db.backup_to(&mut increment, BackupKind::Incremental).unwrap();
        let restored = |streams: Vec<&Vec<u8>>| {
            let target = MemoryDisk::new();
            let streams =
                streams.into_iter().map(|bytes| Backup::stream("stream", Cursor::new(bytes.clone())));
            restore(of(streams), target.clone()).unwrap();
            sound(&target);
            open(target)
        };
        let alone = restored(vec![&full]);
        assert!(count(&alone) == 4_000 && alone.table("loaded").is_err(), "case {nth}");
        let both = restored(vec![&full, &increment]);
        let (ours, theirs) = (db.table("loaded").unwrap(), both.table("loaded").unwrap());
        let rows = [(&db, &ours), (&both, &theirs)].map(|(db, table)| db.read(|tx| tx.count(table)).unwrap());
        assert_eq!(rows, [[3_000, 3_000, 100, 200][nth]; 2], "case {nth}");
    }
}

/// The backup has no such table, so the memory is there for the next load at once.
#[test]
fn a_load_that_is_aborted_beside_a_backup_gives_its_memory_back() {
    let db = of_two_writes(Options { memory_bytes: 16 << 20, ..options() });
    let mut tx = db.begin().unwrap();
    load(&mut tx, 9_000).unwrap();
    amid_a_backup(&db, || {
        tx.abort().unwrap();
        let mut again = db.begin().unwrap();
        load(&mut again, 9_000).unwrap();
        again.abort().unwrap();
    });
}

/// Flipped bytes anywhere, and a stream that is cut anywhere: an error with the file and an offset before the damage,
/// and nothing is left that opens.
#[test]
fn a_damaged_stream_is_an_error_that_says_where() {
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..60);
    let mut good = Vec::new();
    db.backup_to(&mut good, BackupKind::Full).unwrap();
    let length = good.len() as u64;
    let until = Instant::now() + Random::test_time_from_environment();
    let mut rounds = 0;
    while rounds < 200 || Instant::now() < until {
        let at = if rounds < 100 { rounds * 2 } else { random.below(length) };
        let mut bytes = good.clone();
        if rounds % 2 == 0 {
            bytes[at as usize] ^= 1 << random.below(8);
        } else {
            bytes.truncate(at as usize);
        }
        rounds += 1;
        let target = MemoryDisk::new();
        match restore(of([Backup::stream("b", Cursor::new(bytes))]), target.clone()) {
            Err(OpenError::Corrupt { file, offset, what }) => {
                assert!(
                    file == "b" && offset <= at && !what.is_empty(),
                    "RIALTO_SEED={seed} {at}: {file} {offset} {what}"
                );
            }
            other => panic!("RIALTO_SEED={seed}, byte {at}: {other:?}"),
        }
        assert!(target.list().unwrap().is_empty(), "RIALTO_SEED={seed}, byte {at}");
    }
    println!("tally: damaged backups, {rounds} inputs, RIALTO_SEED={seed}");
    let cut =
        |bytes: &[u8]| refused(of([Backup::stream("b", Cursor::new(bytes.to_vec()))]), &MemoryDisk::new());
    let text = |text: &str| (format!("\"b\" is corrupt at offset {text}"), 1);
    assert_eq!(cut(&[]), text("0: the backup is cut: it ends after 0 bytes, before its end"));
    assert_eq!(cut(&[7; 100]), text("0: expected a backup, found other bytes"));
    let end = length - 48;
    assert_eq!(
        cut(&good[..end as usize]),
        text(&format!("{end}: the backup is cut: it ends after {end} bytes, before its end"))
    );
    good.push(0);
    assert_eq!(cut(&good), text(&format!("{length}: bytes follow the end of the backup")));
}

// ---- what does not go together

#[test]
fn increments_follow_their_base_in_order() {
    let db = open(MemoryDisk::new());
    things(&db);
    let take = |kind| {
        let count = count(&db) as i32;
        put(&db, count..count + 10);
        let to = MemoryDisk::new();
        (to.clone(), db.backup_on(to, kind).unwrap())
    };
    let (a, report_a) = take(BackupKind::Full);
    let (b, report_b) = take(BackupKind::Incremental);
    let (c, _) = take(BackupKind::Incremental);
    let (d, _) = take(BackupKind::Full);
    let to = MemoryDisk::new();
    let id = |report: &rialto::BackupReport| format!("{:032x} (place {})", report.id, report.place);
    assert_eq!(
        refused(of([backup_on(&b, "b")]), &to),
        (
            format!(
                "\"b/backup.rialto\" is an increment on backup {}: give the full backup that it follows first, and the \
                 increments between",
                id(&report_a)
            ),
            3
        )
    );
    assert_eq!(
        refused(of([backup_on(&a, "a"), backup_on(&c, "c")]), &to),
        (
            format!(
                "\"c/backup.rialto\" is an increment on backup {}, but \"a/backup.rialto\" is backup {}: give the \
                 increments in the order in which they were taken, and leave out none",
                id(&report_b),
                id(&report_a)
            ),
            3
        )
    );
    assert_eq!(refused(of([]), &to), ("bad option: a restore without a backup".to_owned(), 2));
    assert!(to.list().unwrap().is_empty());

    // A full backup makes those before it unnecessary.
    let all = [(&a, "a"), (&b, "b"), (&d, "d")].map(|(disk, name)| backup_on(disk, name));
    let report = restore(of(all), to.clone()).unwrap();
    assert_eq!(report.needless, ["b/backup.rialto"]);
    assert_eq!(count(&open(to)), 40);

    let other = open(MemoryDisk::new());
    things(&other);
    let e = MemoryDisk::new();
    other.backup_on(e.clone(), BackupKind::Full).unwrap();
    let (text, code) = refused(of([backup_on(&e, "e"), backup_on(&b, "b")]), &MemoryDisk::new());
    assert!(text.starts_with("\"b/backup.rialto\" is a backup of database ") && code == 3, "{text}");
    assert!(text.ends_with(": they do not go together"), "{text}");
}

#[test]
fn nothing_is_written_over() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..10);
    let a = MemoryDisk::new();
    db.backup_on(a.clone(), BackupKind::Full).unwrap();
    let again = db.backup_on(a.clone(), BackupKind::Full).unwrap_err();
    assert_eq!(
        again,
        Error::Unsupported {
            what: "a backup to memory (lost when the process ends): it holds a backup (\"backup.rialto\") already; use \
                   another directory"
                .to_owned()
        }
    );
    let target = MemoryDisk::new();
    restore(of([backup_on(&a, "a")]), target.clone()).unwrap();
    let before = target.list().unwrap();
    assert_eq!(
        refused(of([backup_on(&a, "a")]), &target),
        (
            "cannot restore to memory (lost when the process ends): it is not empty (it holds \"backup-0\"); use an empty \
             or a new directory"
                .to_owned(),
            3
        )
    );
    assert_eq!(target.list().unwrap(), before);
    assert_eq!(count(&open(target.clone())), 10);
    let held = open(target.clone());
    assert!(matches!(restore(of([backup_on(&a, "a")]), target), Err(OpenError::Locked { .. })));
    drop(held);
    let missing = Backup::on(MemoryDisk::new(), "x").unwrap_err();
    assert_eq!(missing.to_string(), "a backup (\"backup.rialto\") is missing in \"x\"");
    let unlogged = Options { logging: rialto::Logging::None, ..options() };
    let unlogged = Database::open_on(MemoryDisk::new(), unlogged).unwrap();
    let error = unlogged.backup_on(MemoryDisk::new(), BackupKind::Full).unwrap_err();
    assert_eq!(
        error.to_string(),
        "not supported: backup with Options::logging none: close the database, which keeps all of it"
    );
}

// ---- crashes

#[test]
fn two_backups_to_one_directory_do_not_mix() {
    let [one, other] = [(); 2].map(|()| open(MemoryDisk::new()));
    let directory = MemoryDisk::new();
    let writes = directory.lock().unwrap();
    let error = one.backup_on(directory.clone(), BackupKind::Full).unwrap_err();
    assert!(error.to_string().contains("another process writes there"), "{error}");
    drop(writes);
    one.backup_on(directory.clone(), BackupKind::Full).unwrap();
    let error = other.backup_on(directory.clone(), BackupKind::Full).unwrap_err();
    assert!(error.to_string().contains("holds a backup"), "{error}");
}
