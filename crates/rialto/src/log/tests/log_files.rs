//! The log's files: switched, freed, used again, bounded.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

use super::*;
use crate::io::Caching;
use crate::log::files::{FileTable, RoomRequest};

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
    // The redo start must be there, and so must everything after it.
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
        let began = std::time::Instant::now();
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
                // The log's own thread has not made the file yet.
                Err(Error::LogFull { reason }) if reason.contains("is not ready yet") => {
                    assert!(began.elapsed() < Duration::from_secs(60), "{reason}");
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

/// However many wait, they leave processors and latches to the checkpoint.
#[test]
fn of_all_that_wait_for_room_one_works_for_it() {
    const COMMITTERS: usize = 8;
    let limit = Instant::now() + Duration::from_secs(60);
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < limit, "it does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &LogOptions { bytes_max: 1 << 20, ..small() }).unwrap();
    let (workers, is_over) = (Arc::new(Mutex::new(Vec::new())), AtomicBool::new(false));
    let heard = workers.clone();
    log.when_full(Box::new(move |_| {
        heard.lock().push(std::thread::current().id());
        None
    }));
    let alone = std::thread::scope(|scope| {
        for _ in 0..COMMITTERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let lsn = commit(&log, &packet(1, 30_000));
                    log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
                }
            });
        }
        // Room that was promised and not used may still serve some of them.
        let alone = (0..20).any(|_| {
            until(&|| log.waiting_for_room() == COMMITTERS);
            workers.lock().clear();
            until(&|| workers.lock().len() >= 100);
            let workers = workers.lock();
            workers.iter().all(|worker| *worker == workers[0])
        });
        is_over.store(true, Ordering::SeqCst);
        assert!(log.free_before(log.place()).unwrap() > 0);
        alone
    });
    assert!(alone, "one at a time works for room");
    assert_eq!(log.waiting_for_room(), 0);
}

/// What one checkpoint frees is what the log will need until the next: files are used again, not removed and created
/// anew.
#[test]
fn a_busy_log_makes_all_its_files_over_and_a_calm_one_gives_them_up() {
    let disk = MemoryDisk::new();
    // Without threads of its own: a spare is used when it is needed, and no earlier.
    let (dynamic, options) = (disk.clone() as Arc<dyn Disk>, LogOptions { spare_files_max: 1, ..alone() });
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

    // A bound that leaves room for one spare only.
    let disk = MemoryDisk::new();
    let options = LogOptions { bytes_max: 2 << 20, threads: LogThreads::Background, ..options };
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
                    // A spare that has become a log file since the listing.
                    Err(error) if error.is_missing() => 0,
                    Err(error) => panic!("{error}"),
                })
                .sum();
            assert!(bytes <= (2 << 20) + (256 << 10), "{bytes} bytes of files for a bound of 2 MiB");
        }
    }
}

/// What is promised for the blocks of lone committers is taken back as soon as another transaction has no room.
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

/// What an earlier process of the same boot left in the ring may extend over the beginnings of several files, none of
/// whose blocks has been written.
#[test]
fn files_that_only_the_ring_has_blocks_of_are_freed_like_others() {
    let disk = FaultyDisk::new(7);
    let options = LogOptions { first_file_bytes: 64 << 10, file_bytes: 64 << 10, ..alone() };
    let log = Log::create(&(disk.clone() as Arc<dyn Disk>), DATABASE, &options).unwrap();
    let first = commit(&log, b"on disk");
    log.wait(first, Durability::Disk, &Patience::default()).unwrap();
    // A packet in parts, in whose middle one of the files begins, and small packets.
    let lengths = [30_000, 100_000, 100, 40_000];
    let mut last = first;
    for length in lengths {
        last = commit(&log, &packet(last.0 + 1, length));
        log.wait(last, Durability::Memory, &Patience::default()).unwrap();
    }
    assert_eq!(log.durable_position(), first);
    let files = log.file_count() as u64;
    disk.kill();
    drop(log);

    let disk: Arc<dyn Disk> = disk.restart();
    let (packets, end) = read_all(&disk, 1);
    assert_eq!(packets.len(), 1 + lengths.len());
    let firsts: Vec<_> = end.files.iter().map(|file| file.first).take(3).collect();
    assert_eq!(firsts, [1, 4, 4].map(|first| Some(Lsn(first))), "from where on each file is needed");
    let log = Log::open(&disk, DATABASE, &options, end).unwrap();
    let next = commit(&log, b"next");
    log.wait(next, Durability::Disk, &Patience::default()).unwrap();
    // All files are freed but the one that the log ends in, and the one prepared after it.
    assert!(log.free_before(next).unwrap() >= 2, "of {files} files");
    assert!(log.bytes_used() <= 64 << 10, "{} bytes", log.bytes_used());
    drop(log);
    assert_eq!(read_all(&disk, next.0).0, [(next.0, b"next".to_vec())]);
}

/// The largest packet that a log has room for needs all of it but the file that the log ends in. It gets that room also
/// when lone committers have an allotment open in the rest of that file.
#[test]
fn the_largest_packet_has_room_beside_lone_committers() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let (file_bytes, bytes_max) = (256 << 10, 1 << 20);
    let options = LogOptions { first_file_bytes: file_bytes, file_bytes, bytes_max, ..small() };
    let log = Log::create(&disk, DATABASE, &options).unwrap();
    let most = gather::longest_within(3 * file_bytes) - HELD_BY_BYTES;
    let mut slot = log.borrow_packet().unwrap();
    assert_eq!(
        log.reserve(&mut slot, most + 1).unwrap_err(),
        Error::LogTooSmall { length: most + 1, limit: most, log_bytes_max: bytes_max }
    );
    // To just before the second file's end, so that the first one has to be freed.
    while 2 * file_bytes - log.durable_bytes().0 > 16 << 10 {
        let lsn = commit(&log, &packet(1, 3_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    let (weak, once) = (Arc::downgrade(&log), std::sync::Once::new());
    log.when_full(Box::new(move |_| {
        let log = weak.upgrade().expect("it is open");
        once.call_once(|| {
            let mut slot = log.borrow_packet().unwrap();
            slot.bytes_mut().extend_from_slice(b"alone");
            let lsn = loop {
                // The log server may gather at this moment.
                if let Some(lsn) = log.place_alone(&slot, PacketKind::Commit) {
                    break lsn;
                }
            };
            assert!(log.promised() > 0, "for what comes next");
            // Back to the last place: this is the checkpoint that the transaction waits for.
            log.free_before(lsn).unwrap();
        });
        None
    }));
    log.reserve(&mut slot, most).unwrap();
    slot.bytes_mut().resize(most, 7);
    let lsn = log.push(&mut slot, PacketKind::Commit);
    log.applied(slot);
    log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
}

/// What `Options::log_bytes_max` says.
#[test]
fn a_packet_of_three_fifths_of_the_bound_has_room() {
    for bytes_max in [16, 17, 24, 31, 67, 131, 512, 575, 700, 4 << 10, 64 << 10].map(|mib| mib << 20) {
        let file_bytes = LogOptions::file_bytes_under(bytes_max);
        let options = LogOptions { file_bytes, bytes_max, ..LogOptions::default() };
        let table =
            files::FileTable::new(MemoryDisk::new(), DATABASE, &options, Caching::Buffered, Vec::new())
                .unwrap();
        let (most, bound) = (table.most_for_one(), bytes_max as usize);
        assert!(most + file_bytes <= bytes_max, "{most} of {bytes_max}");
        let longest = gather::longest_within(most);
        assert!(gather::cost(longest) <= most && gather::cost(longest + 1) > most);
        assert!(longest - HELD_BY_BYTES >= bound / 5 * 3, "{longest} of {bound}");
    }
}

/// A table with at most two files at a time. Its preparer is held after each attempt until the test lets it continue.
struct HeldPreparer {
    table: Arc<FileTable>,
    made: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl HeldPreparer {
    fn start() -> HeldPreparer {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let bytes = small().file_bytes;
        let options = LogOptions { first_file_bytes: bytes, bytes_max: 2 * bytes, ..small() };
        let table = FileTable::new(disk, DATABASE, &options, Caching::Buffered, Vec::new()).unwrap();
        let (table, (tells, made), (go, goes)) = (Arc::new(table), mpsc::channel(), mpsc::channel());
        let served = table.clone();
        let thread = std::thread::spawn(move || {
            served.serve(|| {
                tells.send(()).unwrap();
                // Without a sender the test is over.
                let _ = goes.recv();
            });
        });
        HeldPreparer { table, made, go, thread }
    }

    /// Requests one file more than there are, and waits until the attempt has been made; the preparer is held after it.
    fn attempt(&self) -> RoomRequest {
        let asked = self.table.want(self.table.prepared() + 1);
        self.made.recv_timeout(Duration::from_secs(60)).unwrap();
        asked
    }

    fn let_go(&self) {
        self.go.send(()).unwrap();
    }

    fn told(&self, asked: RoomRequest) -> Option<String> {
        self.table.wait_for_attempt(asked, Duration::from_secs(60))
    }

    /// The log is full: two files, and a failed attempt at a third, after which the preparer is held.
    fn until_full() -> (HeldPreparer, RoomRequest) {
        let held = HeldPreparer::start();
        for _ in 0..2 {
            let asked = held.attempt();
            held.let_go();
            assert_eq!(held.told(asked), None);
        }
        let asked = held.attempt();
        (held, asked)
    }

    /// Frees a file, as a checkpoint does.
    fn free_one(&self) {
        self.table.behind(1).first().unwrap().set_first(10);
        assert_eq!(self.table.free_before(Lsn(10), u64::MAX).unwrap(), 1);
    }

    fn end(self) {
        self.table.close();
        drop(self.go);
        self.thread.join().unwrap();
    }
}

/// A thread that asks for room is told the outcome of an attempt that was begun for it, never of an earlier one: that
/// may have failed before a checkpoint made room.
#[test]
fn a_later_request_is_not_told_of_an_earlier_failure() {
    let (held, asked) = HeldPreparer::until_full();
    held.let_go();
    assert!(held.told(asked).unwrap().contains("none is free for reuse yet"));
    held.free_one();
    let asked = held.attempt();
    // The attempt has made a file, and has not yet reported it.
    assert_eq!(held.table.wait_for_attempt(asked, Duration::ZERO), None);
    held.let_go();
    assert_eq!(held.told(asked), None);
    held.end();
}

/// The same for an attempt that is under way when room is requested, and fails after that.
#[test]
fn a_request_during_an_attempt_that_fails_gets_an_attempt_of_its_own() {
    let (held, first) = HeldPreparer::until_full();
    held.free_one();
    let second = held.table.want(held.table.prepared() + 1);
    held.let_go();
    assert!(held.told(first).is_some());
    held.made.recv_timeout(Duration::from_secs(60)).unwrap();
    held.let_go();
    assert_eq!(held.told(second), None);
    assert_eq!(held.table.extent().1, 2);
    held.end();
}

/// A table of this many files, all of one size, on a disk that can fail.
fn table_of(files: usize) -> (Arc<FaultyDisk>, FileTable) {
    let (disk, bytes) = (FaultyDisk::new(1), small().file_bytes);
    let options = LogOptions { first_file_bytes: bytes, ..small() };
    let table = FileTable::new(disk.clone(), DATABASE, &options, Caching::Buffered, Vec::new()).unwrap();
    (0..files).for_each(|_| table.prepare().unwrap());
    (disk, table)
}

/// Something else has removed the spare.
#[test]
fn a_spare_that_is_gone_is_done_without() {
    let (disk, table) = table_of(4);
    table.behind(1).iter().for_each(|file| file.set_first(10));
    table.free_before(Lsn(10), u64::MAX).unwrap();
    let spares: Vec<String> =
        disk.list().unwrap().into_iter().filter(|name| name.starts_with("log-spare-")).collect();
    assert!(!spares.is_empty(), "the test's own premise");
    spares.iter().for_each(|spare| disk.remove(spare).unwrap());
    let (_, files) = table.extent();
    for made in 1..=3 {
        table.prepare().unwrap();
        assert_eq!(table.extent().1, files + made);
    }
}

/// If it is not known whether the new names of freed files are durable, a crash may bring a file back under the name
/// that it had in the log. Such a file stays as it is until the next opening.
#[test]
fn a_freed_file_is_made_over_only_when_its_new_name_is_durable() {
    let (disk, table) = table_of(4);
    table.behind(1).iter().for_each(|file| file.set_first(10));
    disk.fail(FaultKind::Sync, ".", 0);
    table.free_before(Lsn(10), u64::MAX).unwrap_err();
    disk.mend();
    let spares = || {
        let names = disk.list().unwrap();
        names.into_iter().filter(|name| name.starts_with("log-spare-")).collect::<Vec<_>>()
    };
    let freed = spares();
    assert_eq!(freed.len(), 3);
    let _ = table.prepare();
    assert_eq!(spares(), freed);
}

/// An attempt at a file that a full disk has no room for leaves no room taken. During a checkpoint that may free log,
/// the disk is not asked for that file again.
#[test]
fn a_new_file_takes_no_room_of_a_full_disk_from_a_checkpoint() {
    let (disk, table) = table_of(3);
    let is_full = || {
        let full = matches!(table.prepare(), Err(Error::DiskFull { .. }));
        assert!(disk.list().unwrap().iter().all(|name| !name.contains("unfinished")));
        full
    };
    disk.fail_always(FaultKind::Full, "log-", 0);
    table.leave_room(true);
    assert!(is_full(), "nothing says so before it is tried");
    let tried = disk.steps();
    assert!(is_full());
    assert_eq!(disk.steps(), tried, "the checkpoint has the room");
    table.leave_room(false);
    assert!(is_full());
    assert!(disk.steps() > tried);
    // A spare needs no room.
    table.leave_room(true);
    table.behind(1).iter().for_each(|file| file.set_first(10));
    assert_eq!(table.free_before(Lsn(10), u64::MAX).unwrap(), 2);
    (0..2).for_each(|_| table.prepare().unwrap());
    assert!(is_full());
    table.leave_room(false);
    disk.mend();
    table.prepare().unwrap();
    // Nor is room left if no attempt has met a full disk.
    table.leave_room(true);
    table.prepare().unwrap();
}

/// The checkpoint after the attempt that met a full disk has ended, and the disk has room: a later checkpoint leaves
/// the log the room that it needs.
#[test]
fn a_disk_that_was_full_once_is_not_full_in_a_later_checkpoint() {
    let (disk, table) = table_of(3);
    disk.fail_always(FaultKind::Full, "log-", 0);
    assert!(matches!(table.prepare(), Err(Error::DiskFull { .. })));
    // This checkpoint frees two files, which are used again, and ends. Then the disk gets more room.
    table.leave_room(true);
    table.behind(1).iter().for_each(|file| file.set_first(10));
    assert_eq!(table.free_before(Lsn(10), u64::MAX).unwrap(), 2);
    table.leave_room(false);
    (0..2).for_each(|_| table.prepare().unwrap());
    disk.mend();
    table.leave_room(true);
    table.prepare().unwrap();
}

/// A log on a disk with no room for another file can be opened any number of times: each opening takes a page. With the
/// little room that there is, and a checkpoint whenever the log asks for one, it continues for ever.
#[test]
fn a_log_goes_on_with_room_for_less_than_a_file() {
    const ROOM: u64 = 450 << 10;
    let disk = FaultyDisk::new(1);
    let (dynamic, options) = (disk.clone() as Arc<dyn Disk>, alone());
    let mut log = Log::create(&dynamic, DATABASE, &options).unwrap();
    disk.leave_room(ROOM);
    while log.bytes_used() < options.first_file_bytes - 16 * PAGE as u64 {
        let lsn = commit(&log, b"of a page");
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    let places = log.place().0;
    for opening in 0..100 {
        drop(log);
        let (packets, end) = read_all(&dynamic, 1);
        assert_eq!(packets.len() as u64, places, "opening {opening}");
        log = Log::open(&dynamic, DATABASE, &options, end)
            .unwrap_or_else(|error| panic!("opening {opening}: {error}"));
    }
    let mut checkpoints = 0;
    for lsn in places + 1..places + 400 {
        let bytes = packet(lsn, 20_000);
        let mut slot = log.borrow_packet().unwrap();
        slot.bytes_mut().extend_from_slice(&bytes);
        let mut tries = 0;
        while let Err(error) = log.reserve(&mut slot, 0) {
            assert!(matches!(error, Error::LogFull { .. }) && tries < 3, "packet {lsn}: {error}");
            (checkpoints, tries) = (checkpoints + 1, tries + 1);
            log.leave_room(true);
            log.free_before(log.place()).unwrap();
            log.leave_room(false);
        }
        let lsn = log.push(&mut slot, PacketKind::Commit);
        log.applied(slot);
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    // The room holds no full file, so each file holds a packet or two.
    assert!(checkpoints <= 400, "{checkpoints} checkpoints");
}

/// A file in use is never freed. If a checkpoint has freed no other file, the log continues in a short file on a full
/// disk: one for each checkpoint, so that the checkpoints keep the rest of the room.
#[test]
fn on_a_full_disk_a_short_file_comes_after_a_checkpoint_that_has_freed_none() {
    let (disk, table) = table_of(1);
    let whole = table.prepared();
    disk.leave_room(whole / 2);
    let is_full = || matches!(table.prepare(), Err(Error::DiskFull { .. }));
    let checkpoint = || {
        table.leave_room(true);
        assert!(is_full(), "the checkpoint has the room");
        table.leave_room(false);
    };
    assert!(is_full() && is_full());
    for files in 2..5 {
        checkpoint();
        table.prepare().unwrap();
        assert_eq!(
            (table.prepared(), table.extent().1),
            (whole + (files - 1) * (whole / 16), files as usize)
        );
        assert!(is_full(), "one for each checkpoint");
    }
    // A spare is there now: the log needs no file for which the disk has no room.
    table.leave_room(true);
    table.behind(1).iter().for_each(|file| file.set_first(10));
    assert_eq!(table.free_before(Lsn(10), u64::MAX).unwrap(), 3);
    table.leave_room(false);
    table.prepare().unwrap();
    assert!(is_full());
    // With too little room for that, the file is as short as the room is.
    checkpoint();
    disk.leave_room(5 * PAGE as u64);
    let before = table.prepared();
    table.prepare().unwrap();
    assert_eq!(table.prepared() - before, 4 * PAGE as u64);
    checkpoint();
    assert!(is_full());
    disk.leave_room(2 * whole);
    let before = table.prepared();
    table.prepare().unwrap();
    assert_eq!(table.prepared() - before, whole);
}
