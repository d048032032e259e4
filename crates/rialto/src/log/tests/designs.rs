//! What every group commit design keeps: the sticky error, the bounds, the wake-ups, and every packet.

use std::sync::atomic::AtomicU64;
use std::task::{Wake, Waker};
use std::time::Instant;

use super::*;

/// Every design, with a setting where it needs one to do anything.
fn every_design() -> impl Iterator<Item = GroupCommitOptions> {
    GroupCommitDesign::ALL.into_iter().map(|design| {
        let options = GroupCommitOptions::from(design);
        let wait = GroupCommitOptions { willing_to_wait: Some(Duration::from_millis(1)), ..options };
        if wait.problem().is_none() { wait } else { options }
    })
}

#[test]
fn a_failed_sync_stops_the_log_for_good() {
    for (kind, group_commit) in [FaultKind::Sync, FaultKind::Write, FaultKind::FullToOverwrite]
        .into_iter()
        .flat_map(|kind| every_design().map(move |one| (kind, one)))
    {
        let faulty = FaultyDisk::new(11);
        let disk: Arc<dyn Disk> = faulty.clone();
        let log = Log::create(&disk, DATABASE, &LogOptions { group_commit, ..small() }).unwrap();
        let before = commit(&log, b"before");
        log.wait(before, Durability::Disk, &Patience::default()).unwrap();
        faulty.fail(kind, "log-0", 0);
        let mut spare = log.borrow_packet().unwrap();
        let lsn = commit(&log, b"lost?");
        let error = log.wait(lsn, Durability::Disk, &Patience::default()).unwrap_err();
        assert!(matches!(&error, Error::OutcomeUnknown { lsn: Lsn(2), .. }), "{error}");
        let steps = faulty.steps();
        assert!(
            matches!(
                log.wait(lsn, Durability::Disk, &Patience::default()),
                Err(Error::OutcomeUnknown { .. })
            ),
            "sticky"
        );
        let full = kind == FaultKind::FullToOverwrite;
        let stopped = log.reserve(&mut spare, 10).unwrap_err();
        assert!(matches!(stopped, Error::Stopped { disk_full, .. } if disk_full == full), "{stopped}");
        assert!(matches!(log.borrow_packet(), Err(Error::Stopped { .. })));
        assert_eq!(
            log.wait(before, Durability::Disk, &Patience::default()),
            Ok(()),
            "what was durable stays so"
        );
        assert!(log.close().is_err() && log.failure().is_some());
        assert_eq!(faulty.steps(), steps, "I4: nothing is written or synced again");
    }
}

#[test]
fn a_level_1_commit_is_on_disk_within_the_stated_bound_and_an_idle_log_sleeps() {
    every_design().for_each(level_1_is_bounded);
}

fn level_1_is_bounded(group_commit: GroupCommitOptions) {
    // The clock is a log whose interval is ten times as long, committed to at the same time: a delay of the machine
    // delays both.
    let with_interval = |milliseconds| {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let memory_flush_interval = Duration::from_millis(milliseconds);
        Log::create(&disk, DATABASE, &LogOptions { memory_flush_interval, group_commit, ..small() }).unwrap()
    };
    let (log, clock) = (with_interval(40), with_interval(400));
    let mut late = 0;
    for _ in 0..5 {
        let (began, of_clock) = (Instant::now(), commit(&clock, b"level 1"));
        clock.wait(of_clock, Durability::Memory, &Patience::default()).unwrap();
        let lsn = commit(&log, b"level 1");
        log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
        assert!(log.memory_position() >= lsn);
        let is_late = loop {
            if log.durable_position() >= lsn {
                break false;
            }
            if clock.durable_position() >= of_clock {
                break true;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        late += u32::from(is_late);
        assert!(
            is_late || began.elapsed() >= Duration::from_millis(40),
            "and not at once, which would be level 3"
        );
        clock.wait(of_clock, Durability::Disk, &Patience::default()).unwrap();
    }
    assert!(
        late < 3,
        "I3: level 1 is written within its interval, {late} of 5 times only in ten of it: {group_commit}"
    );
    // The thread that wrote the last group may still have to count it.
    let rests = || {
        let before = log.stats();
        std::thread::sleep(Duration::from_millis(150));
        log.stats() == before
    };
    assert!((0..20).any(|_| rests()), "nothing is written or woken while nothing happens: {:?}", log.stats());
}

/// I3. The committer finds its place gathered, is answered, and requests nothing.
#[test]
fn what_others_gather_reaches_the_disk() {
    type Gathers = fn(&Log);
    let ways: [(&str, Gathers); 3] = [
        ("the point of a backup", |log| _ = log.point().unwrap()),
        ("a transaction without a packet's slot", |log| _ = log.wait_for_packet(|| Ok(())).unwrap()),
        ("another committer", |log| {
            let other = commit(log, b"another one's");
            assert!(log.reaches(other, Durability::Memory));
        }),
    ];
    for (group_commit, (what, gathers)) in every_design().flat_map(|design| ways.map(|way| (design, way))) {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let log = Log::create(&disk, DATABASE, &LogOptions { group_commit, ..small() }).unwrap();
        let lsn = commit(&log, b"level 1");
        gathers(&log);
        assert!(log.has_reached(lsn, Durability::Memory), "{what} gathers what is queued");
        let began = Instant::now();
        while log.durable_position() < lsn {
            assert!(began.elapsed() < Duration::from_secs(20), "{what} has gathered it, {group_commit}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Designs in which the stand-in stalls for so long for a ticket without a waiter.
fn that_stall(time: Duration) -> [GroupCommitOptions; 4] {
    let time = Some(time);
    [
        GroupCommitOptions { stall: time, ..GroupCommitDesign::HiberStall.into() },
        GroupCommitOptions { willing_to_wait: time, ..GroupCommitDesign::WillingToWait.into() },
        GroupCommitOptions { willing_to_wait: time, ..GroupCommitDesign::HiberWillingToWait.into() },
        GroupCommitOptions { wake_delay: time, ..GroupCommitDesign::Hiber.into() },
    ]
}

const LONG_STALL: Duration = Duration::from_secs(60);

/// A commit that is left to the stand-in.
fn leave_one(log: &Log) {
    let lsn = commit(log, b"ticket");
    log.leave(lsn, Durability::Disk);
}

/// I3.
#[test]
fn level_1_is_bounded_beside_a_ticket_that_stalls() {
    for group_commit in that_stall(LONG_STALL) {
        for ticket_first in [true, false] {
            let disk: Arc<dyn Disk> = MemoryDisk::new();
            let options =
                LogOptions { memory_flush_interval: Duration::from_millis(40), group_commit, ..small() };
            let log = Log::create(&disk, DATABASE, &options).unwrap();
            if ticket_first {
                leave_one(&log);
                // The stand-in stalls by now.
                std::thread::sleep(Duration::from_millis(20));
            }
            let began = Instant::now();
            let lsn = commit(&log, b"level 1");
            log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
            if !ticket_first {
                leave_one(&log);
            }
            while log.durable_position() < lsn {
                assert!(began.elapsed() < LONG_STALL / 3, "{group_commit}, the ticket first: {ticket_first}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn a_close_waits_for_no_stall() {
    for group_commit in that_stall(LONG_STALL) {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let options = LogOptions { memory_flush_interval: Duration::from_secs(600), group_commit, ..small() };
        let log = Log::create(&disk, DATABASE, &options).unwrap();
        leave_one(&log);
        std::thread::sleep(Duration::from_millis(20));
        let began = Instant::now();
        log.close().unwrap();
        assert!(began.elapsed() < LONG_STALL / 3, "{group_commit}");
        assert_eq!(log.durable_position(), Lsn(1), "{group_commit}");
    }
}

#[derive(Default)]
struct CountWakes(AtomicU64);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn tickets_are_written_by_the_stand_in_and_woken_once() {
    every_design().for_each(tickets_are_woken_once);
}

fn tickets_are_woken_once(group_commit: GroupCommitOptions) {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &LogOptions { group_commit, ..small() }).unwrap();
    let wakes = Arc::new(CountWakes::default());
    let waker = Waker::from(wakes.clone());
    let mut kept = 0;
    for lsn in 1..=200u64 {
        let level = if lsn % 2 == 0 { Durability::Memory } else { Durability::Disk };
        let lsn = commit(&log, &packet(lsn, 2_000));
        kept += u64::from(log.register_waker(lsn, level, &waker).is_none());
    }
    let until = Instant::now() + Duration::from_secs(60);
    while wakes.0.load(Ordering::SeqCst) < kept {
        assert!(Instant::now() < until, "{} of {kept} woken", wakes.0.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log.is_done(Lsn(199), Durability::Disk), Some(Ok(())));
    assert_eq!(wakes.0.load(Ordering::SeqCst), kept);
}

/// A log in which packets without a waiter lie for this long.
fn lingering(linger: Duration) -> Arc<Log> {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let group_commit = GroupCommitOptions { linger: Some(linger), ..GroupCommitDesign::LogServer.into() };
    let memory_flush_interval = Duration::from_secs(600);
    Log::create(&disk, DATABASE, &LogOptions { group_commit, memory_flush_interval, ..small() }).unwrap()
}

#[test]
fn packets_without_waiters_linger_until_a_thread_waits_and_form_one_group() {
    for waits in [true, false] {
        let log = lingering(Duration::from_secs(60));
        let left = [(); 20].map(|()| commit(&log, b"left"));
        left.iter().for_each(|&lsn| log.leave(lsn, Durability::Disk));
        let last = left[19];
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((log.stats().groups, log.is_done(last, Durability::Disk)), (0, None));
        if waits {
            log.wait(Lsn(5), Durability::Disk, &Patience::default()).unwrap();
        } else {
            let wakes = Arc::new(CountWakes::default());
            assert!(log.register_waker(Lsn(5), Durability::Disk, &Waker::from(wakes.clone())).is_none());
            let until = Instant::now() + Duration::from_secs(30);
            while wakes.0.load(Ordering::SeqCst) == 0 {
                assert!(Instant::now() < until, "a waiter ends the linger");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(log.is_done(last, Durability::Disk), Some(Ok(())));
        assert_eq!((log.stats().groups, log.stats().packets), (1, 20));
    }
}

#[test]
fn a_packet_without_waiters_is_written_after_its_linger() {
    for linger in [Duration::ZERO, Duration::from_millis(20)] {
        let log = lingering(linger);
        for _ in 0..3 {
            let (left, began) = (commit(&log, b"left"), Instant::now());
            log.leave(left, Durability::Disk);
            while log.durable_position() < left {
                assert!(began.elapsed() < Duration::from_secs(60), "no thread writes it");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(began.elapsed() >= linger);
        }
    }
}

#[test]
fn many_threads_commit_at_both_levels_and_all_of_it_is_there() {
    for group_commit in every_design() {
        many_threads_commit(group_commit);
        many_threads_commit(GroupCommitOptions { group_max: Some(3), ..group_commit });
    }
}

#[test]
fn no_group_is_larger_than_the_bound() {
    const THREADS: u64 = 8;
    for design in every_design() {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let group_commit = GroupCommitOptions { group_max: Some(3), ..design };
        // Room for a block each: a transaction that waits for log space gathers what is queued, whatever the bound.
        let roomy = LogOptions { first_file_bytes: 4 << 20, file_bytes: 4 << 20, group_commit, ..small() };
        let log = Log::create(&disk, DATABASE, &roomy).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // Some threads wait, others leave their packets to the stand-in: eight threads alone make groups of
                    // up to eight.
                    for nth in 0..60 {
                        let lsn = commit(&log, b"bounded");
                        match nth % 3 {
                            0 => log.wait(lsn, Durability::Disk, &Patience::default()).unwrap(),
                            _ => log.leave(lsn, Durability::Disk),
                        }
                    }
                });
            }
        });
        log.sync().unwrap();
        let stats = log.stats();
        assert_eq!(stats.packets, THREADS * 60, "{design}");
        assert!(
            stats.group_sizes[2..].iter().all(|groups| *groups == 0),
            "{design}: {:?}",
            stats.group_sizes
        );
    }
}

fn many_threads_commit(group_commit: GroupCommitOptions) {
    const THREADS: u64 = 6;
    const EACH: u64 = 200;
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &LogOptions { group_commit, ..small() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for round in 0..EACH {
                    let length = if round % 97 == 0 { 100_000 } else { 50 + (round % 7) as usize * 300 };
                    let mut bytes = packet(round, length);
                    bytes[..8].copy_from_slice(&thread.to_le_bytes());
                    let lsn = commit(log, &bytes);
                    match (thread + round) % 3 {
                        0 => log.wait(lsn, Durability::Memory, &Patience::default()).unwrap(),
                        1 => log.wait(lsn, Durability::Disk, &Patience::default()).unwrap(),
                        _ => log.leave(lsn, Durability::Disk),
                    }
                }
            });
        }
    });
    log.close().unwrap();
    let stats = log.stats();
    assert_eq!(stats.packets, THREADS * EACH);
    assert!(stats.groups <= stats.packets && stats.group_sizes.iter().sum::<u64>() <= stats.groups);
    drop(log);
    let (packets, _) = read_all(&disk, 1);
    assert_eq!(packets.len() as u64, THREADS * EACH);
    let mut per_thread = [0; THREADS as usize];
    packets.iter().for_each(|(_, bytes)| per_thread[bytes[0] as usize] += 1);
    assert_eq!(per_thread, [EACH; THREADS as usize]);
}
