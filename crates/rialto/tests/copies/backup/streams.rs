//! Backups that go to a stream, which is user code.

use super::*;

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

    /// Accepts this many bytes.
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
    // What it had cleared is dirty again, so the next increment has it.
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

/// A stream is user code: operations that would wait for its backup are refused in it.
#[test]
fn what_a_stream_asks_for_does_not_wait_for_its_backup() {
    /// Calls the operations when it is first written to.
    struct Asks<'a>(&'a Database, Option<[Result<(), Error>; 4]>);
    impl Write for Asks<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let db = self.0;
            let table = db.table("things").unwrap();
            self.1.get_or_insert_with(|| {
                // The last rows are still to be copied. There is room for one transaction's snapshots, whatever it
                // needs.
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
        // Afterwards everything works as before.
        done.send((taken, answers, db.transact(|_| db.checkpoint().map(drop)))).unwrap();
    });
    let nested = || Some(std::array::from_fn(|_| Err(Error::Nested)));
    let told = is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
    assert_eq!(told, (Ok(()), nested(), Ok(())));
}

/// A database's answers to operations that would wait for its own checkpoint or backup: a body, a call, a sent call, a
/// checkpoint, a backup.
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

/// A database with a procedure that does nothing, whose calls are sent to this many threads, or run in place.
fn with_a_procedure(threads: usize) -> Database {
    let engine = if threads == 0 { Engine::thin() } else { engines::of(64, threads) };
    let db = Database::open_on(MemoryDisk::new(), Options { engine, ..options() }).unwrap();
    things(&db);
    let nothing = Action::shared("things", |_, _, _| Ok(())).by_argument(0);
    db.register(Procedure::new("nothing", [ColumnType::Int4], nothing)).unwrap();
    db
}

/// A stream of one database may use another database, for instance for a list of backups. Each database refuses
/// operations that would wait for itself, however deep its stream is.
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
                // In a body no other one begins, of any database; and an operation that waits is refused in it as
                // outside of it.
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
        // After all this the database works as before.
        done.send(ask(&a)).unwrap();
    });
    let told =
        is_done.recv_timeout(Duration::from_secs(60)).expect("a stream waits for itself, or has failed");
    assert_eq!(told, fine());
}
