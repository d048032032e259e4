//! Backups that are taken while transactions run, and the databases that are made of them.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::quiet;
use crate::common::quiet::{count, open, options, put, things};
use rialto::backup::{Archive, BACKUP_FILE, Backup, Restore, RestoreReport, RestoreTo, restore};
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, MemoryDisk, Open, Random};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, BackupKind, BackupReport, Checkpointing, Database, Durability, Error, LockForm, Logging, Lsn,
    OpenError, Options, Procedure, Savepoint, Scan, Table, TableDef, Transaction, TxOptions,
};

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

/// Takes an amount from one account to another; now and then a row has to move. The commit's place.
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

/// What the transfers up to a place come to.
fn balances_at(place: Lsn, transfers: &[(Lsn, (i32, i32, i64))]) -> BTreeMap<i32, i64> {
    let mut balances: BTreeMap<i32, i64> = (0..ACCOUNTS).map(|id| (id, BALANCE)).collect();
    for (_, (from, to, amount)) in transfers.iter().filter(|(lsn, _)| *lsn <= place) {
        *balances.get_mut(from).unwrap() -= amount;
        *balances.get_mut(to).unwrap() += amount;
    }
    balances
}

/// Waits until there are some more; how many there are then.
fn more_transfers<T>(transfers: &Mutex<Vec<T>>) -> usize {
    let (count, since) = (|| transfers.lock().unwrap().len(), Instant::now());
    let before = count();
    while count() < before + 100 {
        assert!(since.elapsed() < Duration::from_secs(120), "nothing is committed");
        std::thread::sleep(Duration::from_millis(1));
    }
    count()
}

/// Backups under full load, beside checkpoints of every kind: each holds exactly the transactions up to its place, a full
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
                // Its cut is counted as a checkpoint's is.
                let cuts = db.metrics().checkpoints;
                assert!(
                    cuts.cuts > round && !report.cut_held.is_zero() && cuts.cut_held_max >= report.cut_held
                );
                assert!(cuts.snapshot_bytes_max >= report.snapshot_bytes);
                // What was answered before is in it.
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
            // It goes on by itself, and comes back with what it did.
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

        // By the log that followed the first one, to the end and to a place in between.
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

/// Tables come and go between increments, with bulk loads; an open transaction is in none of them.
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
        // What it makes next takes no number twice.
        put(&restored, 10_000..10_100);
        restored.checkpoint().unwrap();
    }
}

// ---- streams

#[test]
fn a_stream_is_the_same_as_a_file() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..300);
    let mut bytes = Vec::new();
    let report = db.backup_to(&mut bytes, BackupKind::Full).unwrap();
    assert_eq!(report.bytes, bytes.len() as u64);
    let target = MemoryDisk::new();
    restore(of([Backup::stream("standard input", Cursor::new(bytes))]), target.clone()).unwrap();
    assert_eq!(count(&open(target)), 300);

    /// Takes so many bytes.
    struct Short(usize);
    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    put(&db, 300..400);
    for room in [0, 100, 10_000] {
        let error = db.backup_to(&mut Short(room), BackupKind::Incremental).unwrap_err().to_string();
        assert!(error.starts_with("write of \"the backup's stream\" at offset "), "{error}");
        assert!(error.ends_with("failed: broken pipe"), "{error}");
    }
    // What it had cleared is dirty again: the next increment has it.
    let mut full = Vec::new();
    db.backup_to(&mut full, BackupKind::Full).unwrap();
    put(&db, 400..500);
    db.backup_to(&mut Short(10_000), BackupKind::Incremental).unwrap_err();
    // The same where the stream panics.
    struct Panics(Short);
    impl Write for Panics {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(self.0.write(bytes).expect("the stream breaks"))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut panics = Panics(Short(10_000));
    let panicking = AssertUnwindSafe(|| db.backup_to(&mut panics, BackupKind::Incremental));
    assert!(catch_unwind(panicking).is_err());
    let mut increment = Vec::new();
    let report = db.backup_to(&mut increment, BackupKind::Incremental).unwrap();
    assert!(report.base.is_some());
    let target = MemoryDisk::new();
    let streams = [full, increment].map(|bytes| Backup::stream("stream", Cursor::new(bytes)));
    restore(of(streams), target.clone()).unwrap();
    assert_eq!(count(&open(target)), 500);
}

/// A stream is the user's code: what would wait for its backup is refused in it.
#[test]
fn what_a_stream_asks_for_does_not_wait_for_its_backup() {
    /// Asks when it is written to for the first time.
    struct Asks<'a>(&'a Database, Option<[Result<(), Error>; 4]>);
    impl Write for Asks<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let db = self.0;
            let table = db.table("things").unwrap();
            self.1.get_or_insert_with(|| {
                // The last rows are yet to be copied. There is room for one transaction's snapshots, whatever it needs.
                let [first, second] = [5_999, 4_500].map(|id| {
                    let mut tx = db.begin().unwrap();
                    tx.update(&table, id, &[(1, Value::Text("later".to_owned()))]).unwrap();
                    tx.commit()
                });
                assert_eq!(first, Ok(()));
                [
                    second,
                    db.transact(|_| Ok(())),
                    db.checkpoint().map(drop),
                    db.backup_to(&mut Vec::new(), BackupKind::Full).map(drop),
                ]
            });
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = Options { snapshot_bytes_max: Some(0), ..options() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        things(&db);
        put(&db, 0..6_000);
        let mut asks = Asks(&db, None);
        let taken = db.backup_to(&mut asks, BackupKind::Full).map(drop);
        let answers = asks.1;
        // Afterwards all is as ever.
        done.send((taken, answers, db.transact(|_| db.checkpoint().map(drop)))).unwrap();
    });
    let nested = || Some(std::array::from_fn(|_| Err(Error::Nested)));
    let told = is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
    assert_eq!(told, (Ok(()), nested(), Ok(())));
}

/// What a database answers to what would wait for a checkpoint or a backup of its own: a body, a call, a sent call, a checkpoint,
/// a backup.
fn ask(db: &Database) -> [Result<(), Error>; 5] {
    let sent = db.send_call("nothing", &[Value::Int4(1)]).and_then(|sent| sent.wait());
    [
        db.transact(|_| Ok(())),
        db.call("nothing", &[Value::Int4(1)]).map(drop),
        sent.map(drop),
        db.checkpoint().map(drop),
        db.backup_to(&mut Vec::new(), BackupKind::Full).map(drop),
    ]
}

/// A database with a procedure that does nothing, whose calls are sent to so many threads, or run in place.
fn with_a_procedure(executor_threads: usize) -> Database {
    let locks = if executor_threads == 0 { LockForm::Thin } else { LockForm::Local };
    let db = Database::open_on(MemoryDisk::new(), Options { executor_threads, locks, ..options() }).unwrap();
    things(&db);
    let nothing = Action::shared("things", |_, _, _| Ok(())).by_argument(0);
    db.register(Procedure::new("nothing", [ColumnType::Int4], nothing)).unwrap();
    db
}

/// A stream that does this when it is written to for the first time, and keeps what is written.
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

/// A full backup of a database to a stream that does this, and the bytes of the stream.
fn amid_a_backup(db: &Database, run: impl FnOnce()) -> (BackupReport, Vec<u8>) {
    let mut stream = AtFirst(Some(run), Vec::new());
    let report = db.backup_to(&mut stream, BackupKind::Full).unwrap();
    (report, stream.1)
}

/// A stream of one database uses another one as any code does: it may keep a list of backups there. Each database refuses what
/// would wait for itself, however deep its stream is.
#[test]
fn a_stream_uses_other_databases_as_any_code_does() {
    let fine = || std::array::from_fn(|_| Ok(()));
    let nested = || std::array::from_fn(|_| Err(Error::Nested));
    let in_body = || std::array::from_fn(|nth| if nth < 3 { Err(Error::Nested) } else { Ok(()) });
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let [a, b, c] = [0, 2, 0].map(with_a_procedure);
        for (own, other) in [(&a, &b), (&b, &a)] {
            amid_a_backup(own, || assert_eq!([own, other].map(ask), [nested(), fine()]));
            amid_a_backup(own, || {
                amid_a_backup(other, || assert_eq!([own, other, &c].map(ask), [nested(), nested(), fine()]));
                assert_eq!([own, other].map(ask), [nested(), fine()]);
                // In a body no other one begins, of whichever database; and what waits is refused in it as outside of it.
                let answers = other.transact(|_| Ok([own, &c].map(ask))).unwrap();
                assert_eq!(answers, [nested(), in_body()]);
            });
            // Nor in a stream that is written in a body.
            let mut answers = None;
            own.transact(|_| {
                amid_a_backup(other, || answers = Some(ask(&c)));
                Ok(())
            })
            .unwrap();
            assert_eq!(answers, Some(in_body()));
        }
        let twin = b.clone();
        amid_a_backup(&a, || {
            drop(b);
            assert_eq!(a.clone().close(), Err(Error::Nested));
            twin.close().unwrap();
        });
        // After all of it the database is as ever.
        done.send(ask(&a)).unwrap();
    });
    let told =
        is_done.recv_timeout(Duration::from_secs(60)).expect("a stream waits for itself, or has failed");
    assert_eq!(told, fine());
}

/// Creates a table, and puts so many rows into it.
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

/// The table is not there at the cut, so nothing of it is kept for the sweep, and the next increment has it whole.
#[test]
fn a_table_that_is_not_committed_at_the_cut_takes_no_snapshots() {
    type Step = fn(&mut Transaction<'static>, &Table, &Savepoint) -> Result<(), Error>;
    let take_back: Step = |tx, _, savepoint| tx.rollback_to(savepoint);
    let load_again: Step = |tx, table, _| insert_from(tx, table, 100..3_000);
    let nothing: Step = |_, _, _| Ok(());
    // What a transaction with a load behind a savepoint does before the cut, amid the backup, and after it; in the last case all
    // of its rows go by the packet.
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

/// Bytes flipped anywhere, and a stream that is cut anywhere: an error with the file and an offset before it, and nothing is
/// left that opens.
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

    // A full one makes those before it needless.
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

/// The disk that a backup goes to crashes at each step, or fails: there is a whole backup or none, and the database goes on.
#[test]
fn a_crash_at_any_step_of_a_backup_leaves_a_whole_one_or_none() {
    let seed = Random::seed_from_environment();
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    put(&db, 100..200);
    let (mut whole, mut none) = (0, 0);
    for step in 1.. {
        let disk = FaultyDisk::new(seed ^ step);
        disk.crash_at(step);
        let outcome = db.backup_on(disk.clone(), BackupKind::Incremental);
        if outcome.is_ok() && !disk.is_down() {
            break;
        }
        let disk = disk.restart();
        match Backup::on(disk.clone(), "b") {
            Ok(backup) => {
                whole += 1;
                let target = MemoryDisk::new();
                restore(of([backup_on(&full, "f"), backup]), target.clone()).unwrap();
                assert_eq!(count(&open(target)), 200, "RIALTO_SEED={seed}, step {step}");
            }
            Err(OpenError::Missing { .. }) => {
                assert!(outcome.is_err(), "RIALTO_SEED={seed}, step {step}: what was answered is there");
                none += 1;
            }
            Err(error) => panic!("RIALTO_SEED={seed}, step {step}: {error}"),
        }
        // The next one replaces what is left, and has it all.
        if outcome.is_err() && Backup::on(disk.clone(), "b").is_err() {
            let again = FaultyDisk::new(1);
            let mut increment = Vec::new();
            again.fail(FaultKind::Sync, "backup", 0);
            db.backup_on(again, BackupKind::Incremental).unwrap_err();
            db.backup_to(&mut increment, BackupKind::Full).unwrap();
            let target = MemoryDisk::new();
            restore(of([Backup::stream("s", Cursor::new(increment))]), target.clone()).unwrap();
            assert_eq!(count(&open(target)), 200);
            // The chain begins anew.
            let fresh = MemoryDisk::new();
            db.backup_on(fresh.clone(), BackupKind::Full).unwrap();
            full.remove(BACKUP_FILE).unwrap();
            let file = full.open(BACKUP_FILE, Open::Create, Caching::Buffered).unwrap();
            file.write_at(&bytes_of(&*fresh), 0).unwrap();
        }
    }
    assert!(none > 3, "the test's own premise: {whole} whole, {none} none");
}

/// A restore crashes at each step: the directory is no database, and says so, until it is one whole; a restore begins anew.
#[test]
fn a_crash_at_any_step_of_a_restore_leaves_no_half_database() {
    let seed = Random::seed_from_environment();
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..400);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    put(&db, 400..450);
    let increment = MemoryDisk::new();
    db.backup_on(increment.clone(), BackupKind::Incremental).unwrap();
    let plan = || of([backup_on(&full, "f"), backup_on(&increment, "i")]);
    let (mut whole, mut none) = (0, 0);
    for step in 1.. {
        let disk = FaultyDisk::new(seed ^ step);
        disk.crash_at(step);
        let outcome: Result<RestoreReport, _> = restore(plan(), disk.clone());
        if outcome.is_ok() && !disk.is_down() {
            break;
        }
        let mut disk = disk.restart();
        if !disk.list().unwrap().contains(&"home".to_owned()) {
            none += 1;
            assert!(outcome.is_err());
            if disk.list().unwrap().iter().any(|name| name != "log-tail" && name != "lock") {
                let error = Database::open_on(disk.clone(), options()).unwrap_err();
                assert!(
                    matches!(error, OpenError::Unsupported { .. }),
                    "RIALTO_SEED={seed}, step {step}: {error}"
                );
                if disk.list().unwrap().contains(&"restore-unfinished".to_owned()) {
                    assert_eq!(
                        error.to_string(),
                        "\"restore-unfinished\" says that a restore to this directory did not come to its end: restore to it \
                         again, or use an empty directory"
                    );
                }
            }
            // The second attempt crashes too, somewhere.
            disk.crash_at(1 + step / 2);
            let _ = restore(plan(), disk.clone());
            disk = disk.restart();
            if !disk.list().unwrap().contains(&"home".to_owned()) {
                restore(plan(), disk.clone())
                    .unwrap_or_else(|error| panic!("RIALTO_SEED={seed}, step {step}: {error}"));
            }
        } else {
            whole += 1;
        }
        assert_eq!(count(&open(disk.clone())), 450, "RIALTO_SEED={seed}, step {step}");
        assert!(
            !disk.list().unwrap().contains(&"restore-unfinished".to_owned()),
            "RIALTO_SEED={seed}, step {step}"
        );
    }
    assert!(none > 20 && whole > 0, "the test's own premise: {whole} whole, {none} none");
}

/// One sync of the directory fails, and the machine crashes at some step: a directory with a home file is a whole database, and one
/// without takes another restore.
#[test]
fn a_restore_that_is_cut_short_while_it_takes_back_can_begin_anew() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    let plan = || of([backup_on(&full, "f")]);
    let mut failures = 0;
    for nth in 0.. {
        let disk = FaultyDisk::new(nth);
        disk.fail(FaultKind::Sync, ".", nth);
        let uncrashed = restore(plan(), disk.clone());
        let steps = disk.steps();
        failures += u64::from(uncrashed.is_err());
        if uncrashed.is_ok() && nth > failures {
            break;
        }
        for step in 1..=steps {
            let disk = FaultyDisk::new(1_000 * nth + step);
            disk.fail(FaultKind::Sync, ".", nth);
            disk.crash_at(step);
            let outcome = restore(plan(), disk.clone());
            let disk = disk.restart();
            let left = disk.list().unwrap();
            let about = format!("sync {nth}, step {step}: {outcome:?} leaves {left:?}");
            if !left.contains(&"home".to_owned()) {
                assert!(outcome.is_err(), "{about}");
                restore(plan(), disk.clone()).unwrap_or_else(|error| panic!("{about}: {error}"));
            }
            let db = Database::open_on(disk, options()).unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!(count(&db), 100, "{about}");
        }
    }
    assert!(failures >= 3, "the test's own premise: {failures}");
}

/// A restore that was cut short leaves its mark. What others put beside it stays, and no backup goes there.
#[test]
fn a_directory_with_half_a_restore_takes_a_restore_and_keeps_what_is_not_of_one() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    let disk = MemoryDisk::new();
    let make = |name| drop(disk.open(name, Open::CreateNew, Caching::Buffered).unwrap());
    ["restore-unfinished", "backup-0", "home.new", "log-0000000001", "log-unfinished"]
        .into_iter()
        .for_each(&make);
    let refused = db.backup_on(disk.clone(), BackupKind::Full).unwrap_err().to_string();
    assert!(refused.contains("it holds a restore that did not come to its end"), "{refused}");
    for theirs in ["backup.rialto", "log-0000000002", "log-notes", "z"] {
        make(theirs);
        let before = disk.list().unwrap();
        let refused = restore(of([backup_on(&full, "f")]), disk.clone()).unwrap_err().to_string();
        assert!(refused.contains(&format!("it is not empty (it holds \"{theirs}\")")), "{refused}");
        assert_eq!(disk.list().unwrap(), before);
        disk.remove(theirs).unwrap();
    }
    restore(of([backup_on(&full, "f")]), disk.clone()).unwrap();
    assert_eq!(count(&open(disk)), 100);
}

/// A backup that does not come to its end leaves nothing: the next one goes to the same directory.
#[test]
fn a_disk_that_fails_under_a_backup_is_left_empty() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    for (kind, spared) in
        [(FaultKind::Write, 0), (FaultKind::Write, 1), (FaultKind::Full, 0), (FaultKind::Sync, 0)]
    {
        let disk = FaultyDisk::new(1);
        disk.fail(kind, "backup", spared);
        let error = db.backup_on(disk.clone(), BackupKind::Full).unwrap_err();
        assert!(matches!(error, Error::Io { .. } | Error::DiskFull { .. }), "{kind:?}: {error}");
        assert!(disk.list().unwrap().is_empty(), "{kind:?}: {:?}", disk.list());
        db.backup_on(disk.clone(), BackupKind::Full).unwrap();
        assert_eq!(disk.list().unwrap(), [BACKUP_FILE], "{kind:?}");
    }
}

#[test]
fn a_backup_that_is_cancelled_leaves_nothing_and_changes_nothing() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..400);
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("backup-cancelled-{}", std::process::id()));
    db.backup_on(MemoryDisk::new(), BackupKind::Full).unwrap();
    put(&db, 400..450);
    let cancelled = AtomicBool::new(true);
    let error = db.backup_unless(&cancelled, &path, BackupKind::Incremental).unwrap_err();
    assert_eq!(error, Error::Cancelled);
    assert!(!path.join("backup.unfinished").exists());
    cancelled.store(false, Ordering::Relaxed);
    let report = db.backup_unless(&cancelled, &path, BackupKind::Incremental).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(report.base.is_some() && report.segments > 0, "{report}");
}

/// A failed write is told, and leaves an empty directory.
#[test]
fn a_disk_that_fails_under_a_restore_is_left_empty() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    for (kind, prefix) in [
        (FaultKind::Write, "backup-0"),
        (FaultKind::Sync, "backup-0"),
        (FaultKind::Full, "backup-0"),
        (FaultKind::Write, "log-"),
        (FaultKind::Write, "home"),
        (FaultKind::Sync, "home"),
        (FaultKind::Sync, "restore-unfinished"),
        (FaultKind::Sync, "."),
    ] {
        let disk = FaultyDisk::new(1);
        disk.fail(kind, prefix, 0);
        let error = restore(of([backup_on(&full, "f")]), disk.clone()).unwrap_err();
        assert_eq!(error.exit_code(), 4, "{kind:?} {prefix}: {error}");
        assert!(disk.list().unwrap().is_empty(), "{kind:?} {prefix}: {:?}", disk.list());
    }
}
