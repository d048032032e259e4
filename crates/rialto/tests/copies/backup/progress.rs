//! What backups and restores tell of how far they have come.

use super::*;

/// An observer that keeps what it is told.
fn keeping() -> (CopyObserver, Arc<Mutex<Vec<BytesDone>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keeps = told.clone();
    (CopyObserver::new(move |progress| keeps.lock().unwrap().push(progress)), told)
}

/// Each call tells of more than the one before, at most a mebibyte and a segment more, and only the last one of all.
fn goes_from_nothing_to_all(told: &[BytesDone]) {
    let (last, before) = told.split_last().expect("the end is told");
    assert_eq!(Some(last.done), last.total, "{told:?}");
    assert!(before.iter().all(|progress| Some(progress.done) < progress.total), "{told:?}");
    assert!(before.iter().all(|progress| progress.total == last.total), "{told:?}");
    assert!(told.is_sorted_by(|a, b| a.done < b.done), "{told:?}");
    let steps = told.windows(2).map(|pair| pair[1].done - pair[0].done);
    assert!(steps.max() <= Some((1 << 20) + (128 << 10)), "{told:?}");
}

/// A few mebibytes of rows.
fn rows(db: &Database) {
    bank(db);
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let def = TableDef::new("large", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&def)).unwrap();
    for id in 0..4_000 {
        let row = [Value::Int4(id), Value::Text("x".repeat(1_000))];
        db.transact(|tx| tx.insert(&table, &row)).unwrap();
    }
}

#[test]
fn a_backup_and_a_restore_tell_how_far_they_have_come() {
    let db = open(MemoryDisk::new());
    rows(&db);
    let (observer, told) = keeping();
    let full = MemoryDisk::new();
    let options = BackupOptions { observer: Some(observer), ..BackupOptions::default() };
    let report = db.backup_on(full.clone(), options.clone()).unwrap();
    let of_backup = std::mem::take(&mut *told.lock().unwrap());
    goes_from_nothing_to_all(&of_backup);
    assert!(of_backup.len() > 3, "{of_backup:?}");
    assert_eq!(of_backup.last().unwrap().total, Some(report.segments << 16));

    // An increment tells only of what it copies.
    db.transact(|tx| {
        let table = db.table("large").unwrap();
        tx.insert(&table, &[Value::Int4(-1), Value::Text("x".to_owned())])
    })
    .unwrap();
    let increment = MemoryDisk::new();
    let few = BackupOptions { kind: BackupKind::Incremental, ..options };
    let report = db.backup_on(increment.clone(), few).unwrap();
    let of_increment = std::mem::take(&mut *told.lock().unwrap());
    assert!(report.segments < 4, "{report}");
    goes_from_nothing_to_all(&of_increment);
    assert_eq!(of_increment.len(), 1);

    let bytes = [&full, &increment].map(|disk| bytes_of(&**disk).len() as u64);
    let (observer, told) = keeping();
    let mut plan = of([backup_on(&full, "f"), backup_on(&increment, "i")]);
    plan.observer = Some(observer.clone());
    restore(plan, MemoryDisk::new()).unwrap();
    let of_restore = std::mem::take(&mut *told.lock().unwrap());
    goes_from_nothing_to_all(&of_restore);
    assert!(of_restore.len() > 3, "{of_restore:?}");
    assert_eq!(of_restore.last().unwrap().done, bytes[0] + bytes[1]);

    // How long a stream is shows only at its end.
    let mut plan = of([Backup::stream("s", Cursor::new(bytes_of(&*full)))]);
    plan.observer = Some(observer);
    restore(plan, MemoryDisk::new()).unwrap();
    let of_stream = told.lock().unwrap();
    let (last, before) = of_stream.split_last().unwrap();
    assert_eq!(*last, BytesDone { done: bytes[0], total: Some(bytes[0]) });
    assert!(before.len() > 2 && before.iter().all(|progress| progress.total.is_none()), "{before:?}");
}

/// A backup that fails does not tell that it is done, and a panic of the observer does no harm.
#[test]
fn what_fails_is_not_told_as_done() {
    let db = open(MemoryDisk::new());
    rows(&db);
    let (observer, told) = keeping();
    let disk = FaultyDisk::new(1);
    disk.fail(FaultKind::Sync, "backup.unfinished", 0);
    let options = BackupOptions { observer: Some(observer), ..BackupOptions::default() };
    db.backup_on(disk, options).unwrap_err();
    let told = told.lock().unwrap();
    assert!(told.len() > 2 && told.iter().all(|progress| Some(progress.done) < progress.total), "{told:?}");
    let panics = CopyObserver::new(|_| panic!("the observer of this test panics"));
    let options = BackupOptions { observer: Some(panics.clone()), ..BackupOptions::default() };
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), options).unwrap();
    let mut plan = of([backup_on(&full, "f")]);
    plan.observer = Some(panics);
    restore(plan, MemoryDisk::new()).unwrap();
}
