//! The log's files: switched, freed, made over, bounded.

use std::collections::BTreeSet;

use super::*;

#[test]
fn files_are_switched_freed_and_reused() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = LogOptions { bytes_max: 4 << 20, ..small() };
    let log = Log::create(&disk, DATABASE, &options).unwrap();
    let mut names = BTreeSet::new();
    for lsn in 1..=400 {
        let lsn = commit(&log, &packet(lsn, 30_000));
        let level = if lsn.0.is_multiple_of(5) { Durability::Disk } else { Durability::Memory };
        log.wait(lsn, level, &Patience::default()).unwrap();
        names.extend(disk.list().unwrap());
        if lsn.0.is_multiple_of(50) {
            log.free_before(Lsn(lsn.0 - 20)).unwrap();
            let since = log.bytes_since(Lsn(lsn.0 - 20));
            assert!((20 * 30_000..1_600_000).contains(&since), "{since} bytes since 20 packets ago");
        }
    }
    log.close().unwrap();
    drop(log);
    assert!(
        names.contains("log-0000000020") && names.iter().any(|name| name.starts_with("log-spare")),
        "{names:?}"
    );
    let (packets, end) = read_all(&disk, 380);
    assert_eq!(packets.len(), 21);
    assert!(packets.iter().all(|(lsn, bytes)| *bytes == packet(*lsn, 30_000)));
    let log = Log::open(&disk, DATABASE, &options, end).unwrap();
    assert!(log.bytes_since(Lsn(380)) > 20 * 30_000);
    drop(log);
    // The redo start must be there, and so must everything behind it.
    assert!(matches!(recovery_error(&disk, 1), Error::Corrupt { what, .. } if what.contains("place 1")));
}

#[test]
fn a_missing_file_is_named() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    for lsn in 1..=60 {
        let lsn = commit(&log, &packet(lsn, 30_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    drop(log);
    disk.remove("log-0000000003").unwrap();
    match recovery_error(&disk, 1) {
        Error::Corrupt { file, what, .. } => {
            assert_eq!(file, "log-0000000003");
            assert!(what.contains("missing"), "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn near_its_bound_the_log_waits_for_a_checkpoint_and_then_fails_before_the_place() {
    for threads in [LogThreads::Background, LogThreads::None] {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let wait_max = Duration::from_millis(50);
        let options = LogOptions { bytes_max: 1 << 20, threads, wait_max, ..small() };
        let log = Log::create(&disk, DATABASE, &options).unwrap();
        let place = loop {
            let mut slot = log.borrow_packet().unwrap();
            slot.bytes_mut().resize(30_000, 1);
            let place = log.place();
            match log.reserve(&mut slot, 0) {
                Ok(()) => {
                    let lsn = log.push(&mut slot, PacketKind::Commit);
                    log.applied(slot);
                    log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
                }
                Err(Error::LogFull { reason }) => {
                    assert!(reason.contains("log_bytes_max"), "{reason}");
                    break place;
                }
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(log.place(), place);
        assert!(log.free_before(place).unwrap() > 0);
        let lsn = commit(&log, &packet(1, 30_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
}

/// What one checkpoint frees is what the log will need until the next: files are made over, not removed and made anew.
#[test]
fn a_busy_log_makes_all_its_files_over_and_a_calm_one_gives_them_up() {
    let disk = MemoryDisk::new();
    let (dynamic, options) = (disk.clone() as Arc<dyn Disk>, LogOptions { spare_files_max: 1, ..small() });
    let log = Log::create(&dynamic, DATABASE, &options).unwrap();
    let spares = || disk.list().unwrap().iter().filter(|name| name.starts_with("log-spare")).count();
    let rounds = |packets: u64| {
        (0..packets).for_each(|n| {
            let lsn = commit(&log, &packet(n, 30_000));
            log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        });
        let before = spares();
        let freed = log.free_before(log.durable_position()).unwrap() as usize;
        (before, freed, spares())
    };
    let (_, first, kept) = rounds(300);
    assert!(first > 5 && kept >= first - 1, "all but the first file, which is shorter: {kept} of {first}");
    let (left, freed, kept) = rounds(300);
    assert!(left <= 2 && kept >= freed, "all were used, {left} left, and as many freed: {kept} of {freed}");
    for before in (3..=freed.max(first)).rev() {
        let (_, freed, kept) = rounds(40);
        assert!(freed <= 3 && kept <= before, "{kept} spares of a log that frees {freed}");
    }
    log.close().unwrap();

    // A bound that leaves no room for spares but the one.
    let disk = MemoryDisk::new();
    let options = LogOptions { bytes_max: 2 << 20, ..options };
    let log = Log::create(&(disk.clone() as Arc<dyn Disk>), DATABASE, &options).unwrap();
    for n in 0..400 {
        let lsn = commit(&log, &packet(n, 30_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        if n % 40 == 39 {
            log.free_before(log.durable_position()).unwrap();
            let bytes: u64 = disk
                .list()
                .unwrap()
                .iter()
                .filter(|name| name.starts_with("log-"))
                .filter(|name| *name != ring::RING_NAME)
                .map(|name| match disk.open(name, Open::ReadOnly, Caching::Buffered) {
                    Ok(file) => file.length().unwrap(),
                    // A spare that has become a log file since they were listed.
                    Err(error) if error.is_missing() => 0,
                    Err(error) => panic!("{error}"),
                })
                .sum();
            assert!(bytes <= (2 << 20) + (256 << 10), "{bytes} bytes of files for a bound of 2 MiB");
        }
    }
}

/// What is promised for the blocks of lone committers is given back as soon as somebody else has no room.
#[test]
fn lone_committers_leave_the_last_of_the_room_to_others() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let wait_max = Duration::from_millis(50);
    let log = Log::create(&disk, DATABASE, &LogOptions { bytes_max: 1 << 20, wait_max, ..alone() }).unwrap();
    let promised = || log.promised();
    let (mut alone, mut others) = (0, 0);
    let reason = loop {
        let mut slot = log.borrow_packet().unwrap();
        slot.bytes_mut().extend_from_slice(b"alone");
        if log.place_alone(&slot, PacketKind::Commit).is_some() {
            assert!(promised() > 0, "for what comes next");
            alone += 1;
        }
        slot.bytes_mut().resize(30_000, 1);
        match log.reserve(&mut slot, 0) {
            Ok(()) => {
                let lsn = log.push(&mut slot, PacketKind::Commit);
                log.applied(slot);
                log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
                others += 1;
            }
            Err(Error::LogFull { reason }) => break reason,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(alone > 10 && others > 10, "{alone} and {others}: {reason}");
    assert_eq!(promised(), 0, "after {alone} and {others}");
}
