//! The log against a disk that crashes at any step, kills the process at any step, and fails.
//!
//! The model is a plain list: the packets that took a place, and how far they were answered at each level. After each
//! life ends, the recovered log must be a prefix of the list that covers everything answered: at level 3 always, at
//! level 1 when only the process died. A second recovery must find the same log.

use std::sync::Arc;
use std::time::Duration;

use super::{DATABASE, packet};
use crate::io::{Caching, Disk, FaultKind, FaultyDisk, Random};
use crate::log::*;
use crate::{Error, Lsn};

/// How a life of the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The machine loses power at a step.
    Crash,
    /// The process is killed at a step.
    Kill,
    /// A write or sync fails at some time, and the process ends.
    Fault(FaultKind),
}

/// Counts of a run.
#[derive(Debug, Default)]
struct Counts {
    /// Lives that ended by the machine's power loss, including those that ended within a recovery.
    crashes: u64,
    /// Lives that ended with the process: killed, or stopped by a fault.
    kills: u64,
    /// Packets pushed.
    packets: u64,
    /// Packets compared after a life's end.
    checked: u64,
}

struct Life {
    /// Packet lengths by place, from 1.
    lengths: Vec<usize>,
    /// The first place that recovery is asked for.
    from: u64,
    /// The last place answered at level 3, and at level 1.
    disk: u64,
    memory: u64,
}

/// A wait in real time.
fn wait(random: &mut Random, most: Duration) -> Duration {
    Duration::from_micros(random.below(most.as_micros() as u64 + 1))
}

/// The design with one of its settings or none, and with a bound for its groups or none.
fn settings(design: GroupCommitDesign, random: &mut Random, most: Duration) -> GroupCommitOptions {
    let group_max = random.chance(1, 2).then_some(1 + random.below(5) as u32);
    let plain = GroupCommitOptions { group_max, ..design.into() };
    let (wait, least) = (wait(random, most), wait(random, most));
    let fitting: Vec<GroupCommitOptions> = [
        plain,
        GroupCommitOptions { stall: Some(wait), ..plain },
        GroupCommitOptions { willing_to_wait: Some(wait), ..plain },
        GroupCommitOptions {
            willing_to_wait: Some(wait.max(least)),
            willing_to_wait_min: Some(least),
            ..plain
        },
        GroupCommitOptions { wake_delay: Some(wait), ..plain },
    ]
    .into_iter()
    .filter(|options| options.problem().is_none())
    .collect();
    fitting[random.below(fitting.len() as u64) as usize]
}

/// A transaction's own stall: none, most of the time.
fn patience(random: &mut Random, most: Duration) -> Patience {
    let mut own = || random.chance(1, 4).then(|| wait(random, most));
    Patience { began: None, stall: own(), willing_to_wait: own() }
}

/// The longest wait in a life with one thread, short so that many lives fit into the test's time.
const WAIT_MAX_ALONE: Duration = Duration::from_micros(30);

/// Without threads of the log, and for one thread: the disk is crashed at a step, and with more threads the scheduler
/// would decide which step that is, so that no seed could replay a failure. Every committer is elected, stalls as it is
/// told, and writes. How committers sleep while others write is tested in
/// `groups_in_flight_complete_in_their_order_whatever_crashes`, for all designs.
fn options(random: &mut Random) -> LogOptions {
    let design = GroupCommitDesign::ALL[random.below(GroupCommitDesign::ALL.len() as u64) as usize];
    let group_commit = settings(design, random, WAIT_MAX_ALONE);
    let caching = [Caching::Buffered, Caching::Direct, Caching::DirectSync][random.below(3) as usize];
    LogOptions {
        first_file_bytes: 64 << 10,
        file_bytes: 128 << 10,
        ring_bytes: 256 << 10,
        packet_slots: 16,
        bytes_max: 4 << 20,
        spare_files_max: 2,
        threads: LogThreads::None,
        caching: Some(caching),
        writes_in_flight: Some(1),
        group_commit,
        ..LogOptions::default()
    }
}

/// Works until the disk fails or the steps are used up.
fn work(log: &Log, life: &mut Life, random: &mut Random, rounds: u64) -> Result<(), Error> {
    for _ in 0..rounds {
        let length = match random.below(20) {
            0 => random.below(150_000),
            1..=4 => random.below(20_000),
            _ => random.below(500),
        } as usize;
        let mut slot = log.borrow_packet()?;
        let lsn = life.lengths.len() as u64 + 1;
        slot.bytes_mut().extend_from_slice(&packet(lsn, length));
        // As a lone committer at level 1, where that is possible.
        if random.chance(1, 3)
            && let Some(placed) = log.place_alone(&slot, PacketKind::Commit)
        {
            assert_eq!(placed, Lsn(lsn));
            life.lengths.push(length);
            life.memory = lsn;
            continue;
        }
        match log.reserve(&mut slot, 0) {
            Ok(()) => {}
            Err(Error::LogFull { .. }) => {
                log.sync()?;
                life.disk = life.lengths.len() as u64;
                life.from = life.disk + 1;
                log.free_before(Lsn(life.from))?;
                continue;
            }
            Err(error) => return Err(error),
        }
        assert_eq!(log.push(&mut slot, PacketKind::Commit), Lsn(lsn));
        life.lengths.push(length);
        log.applied(slot);
        match random.below(4) {
            0 => {
                log.wait(Lsn(lsn), Durability::Disk, &patience(random, WAIT_MAX_ALONE))?;
                life.disk = lsn;
            }
            1 => {
                log.wait(Lsn(lsn), Durability::Memory, &patience(random, WAIT_MAX_ALONE))?;
                life.memory = lsn;
            }
            2 => log.leave(Lsn(lsn), Durability::Memory),
            _ => {}
        }
        if random.chance(1, 40) {
            life.from = life.disk + 1;
            log.free_before(Lsn(life.from))?;
        }
    }
    Ok(())
}

fn read(disk: &Arc<dyn Disk>, life: &Life) -> Result<LogEnd, Error> {
    let mut reader = recover(disk, DATABASE, Lsn(life.from))?;
    let mut next = life.from;
    while let Some(found) = reader.next_packet()? {
        assert_eq!(found.lsn.0, next, "dense");
        assert!(next <= life.lengths.len() as u64, "nothing that never took a place");
        assert_eq!(found.bytes, packet(next, life.lengths[next as usize - 1]), "place {next}");
        next += 1;
    }
    let end = reader.finish()?;
    assert_eq!(end.lsn().0 + 1, next);
    Ok(end)
}

fn lives(seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let mut faulty = FaultyDisk::new(random.next());
    let mut life = Life { lengths: Vec::new(), from: 1, disk: 0, memory: 0 };
    let mut options_now = options(&mut random);
    let mut log = Log::create(&(faulty.clone() as Arc<dyn Disk>), DATABASE, &options_now).unwrap();
    for _ in 0..4 {
        let end = match random.below(4) {
            0 => End::Kill,
            1 => End::Fault([FaultKind::Sync, FaultKind::Write][random.below(2) as usize]),
            _ => End::Crash,
        };
        let step = faulty.steps() + 1 + random.below(60);
        match end {
            End::Crash => faulty.crash_at(step),
            End::Kill => faulty.kill_at(step),
            End::Fault(kind) => faulty.fail(kind, "log-0", random.below(30)),
        }
        let before = life.lengths.len();
        let outcome = work(&log, &mut life, &mut random, 150);
        counts.packets += (life.lengths.len() - before) as u64;
        // The log itself may have made more durable than was asked for; that counts too.
        life.disk = life.disk.max(log.durable_position().0);
        life.memory = life.memory.max(log.memory_position().0);
        if let Err(error) = &outcome {
            let expected = matches!(
                error,
                Error::Stopped { .. }
                    | Error::OutcomeUnknown { .. }
                    | Error::Io { .. }
                    | Error::DiskFull { .. }
                    | Error::LogFull { .. }
            );
            assert!(expected, "{error}");
        }
        // Drawn before the drop, which would write the rest.
        match end {
            End::Crash => faulty.crash(),
            _ => faulty.kill(),
        }
        drop(log);
        let mut machine_crashed = end == End::Crash;
        match end {
            End::Crash => counts.crashes += 1,
            End::Kill | End::Fault(_) => counts.kills += 1,
        }
        log = loop {
            faulty = faulty.restart();
            let disk: Arc<dyn Disk> = faulty.clone();
            let recovered = read(&disk, &life).unwrap_or_else(|error| panic!("after {end:?}: {error}"));
            let last = recovered.lsn().0;
            counts.checked += 2 * (last + 1 - life.from.min(last + 1));
            assert!(last >= life.disk, "level 3 answered {}, recovered {last}, after {end:?}", life.disk);
            assert!(
                machine_crashed || last >= life.memory,
                "level 1 answered {}, recovered {last}",
                life.memory
            );
            let again = read(&disk, &life).unwrap();
            assert_eq!((again.lsn(), again.position()), (recovered.lsn(), recovered.position()), "I8");
            drop(again);
            // An opening may be cut short as well. Then a killed process may lose nothing that was recovered, and a
            // crashed machine nothing that was durable.
            let cut_short = random.chance(1, 3);
            let crashes = random.chance(1, 2);
            if cut_short {
                let step = faulty.steps() + 1 + random.below(8);
                if crashes { faulty.crash_at(step) } else { faulty.kill_at(step) }
            }
            options_now = options(&mut random);
            match Log::open(&disk, DATABASE, &options_now, recovered) {
                Ok(log) if !faulty.is_down() => {
                    // From here on the recovered packets are the history, and all of them are durable.
                    life.lengths.truncate(last as usize);
                    (life.disk, life.memory) = (last, last);
                    assert_eq!(log.durable_position().0, last);
                    // Disarms a crash that has not struck yet.
                    faulty.crash_at(u64::MAX);
                    break log;
                }
                opened => {
                    assert!(cut_short, "{:?}", opened.err());
                    machine_crashed |= crashes;
                    if crashes { counts.crashes += 1 } else { counts.kills += 1 }
                }
            }
        };
    }
}

#[test]
fn what_was_answered_survives_a_crash_at_any_step() {
    let first = Random::seed_from_environment();
    let started = std::time::Instant::now();
    let mut seed = first;
    let mut counts = Counts::default();
    while started.elapsed() < Random::test_time_from_environment() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lives(seed, &mut counts)));
        if let Err(panic) = result {
            eprintln!("RIALTO_SEED={seed} replays this failure");
            std::panic::resume_unwind(panic);
        }
        seed = seed.wrapping_add(1);
    }
    let Counts { crashes, kills, packets, checked } = counts;
    println!(
        "tally: the log under crashes, {} seeds, {crashes} losses of power of a log, {kills} ends of a process with a log, {} \
         operations, \
         RIALTO_SEED={first}",
        seed.wrapping_sub(first),
        packets + checked
    );
}

#[test]
fn a_creation_that_was_cut_short_can_be_done_again() {
    for kill in [false, true] {
        for step in 1.. {
            let mut faulty = FaultyDisk::new(step);
            if kill {
                faulty.kill_at(step)
            } else {
                faulty.crash_at(step)
            }
            let options = options(&mut Random::new(step));
            let created = Log::create(&(faulty.clone() as Arc<dyn Disk>), DATABASE, &options);
            if !faulty.is_down() {
                break;
            }
            drop(created);
            faulty = faulty.restart();
            let disk: Arc<dyn Disk> = faulty.clone();
            // A retry draws a new database identifier.
            let log = Log::create(&disk, DATABASE + 1, &options)
                .unwrap_or_else(|error| panic!("step {step}: {error}"));
            drop(log);
            assert_eq!(recover(&disk, DATABASE + 1, Lsn(1)).unwrap().finish().unwrap().lsn(), Lsn(0));
        }
    }
}

/// Whether blocks lie after the page in which the log ends.
fn blocks_follow(end: &LogEnd, disk: &dyn Disk) -> bool {
    let position = end.position.next_multiple_of(PAGE as u64);
    let Some(file) = end.files.iter().find(|file| (file.start..file.end()).contains(&position)) else {
        return false;
    };
    let behind = file.offset(position);
    (0..8).any(|page| {
        LogEnd::holds_block(disk, &files::name(file.sequence), behind + page * PAGE as u64).unwrap()
    })
}

/// Threads commit with several groups in flight until the disk goes down at some step, in every design, with drawn
/// settings and drawn waits for each commit: what was answered is there, and what is there is a prefix. The scheduler
/// decides which groups overlap, so a seed replays the disk and the draws, not the schedule.
#[test]
fn groups_in_flight_complete_in_their_order_whatever_crashes() {
    const THREADS: u64 = 4;
    const WAIT_MAX: Duration = Duration::from_micros(500);
    let designs = GroupCommitDesign::ALL.len();
    let seed = Random::seed_from_environment();
    let started = std::time::Instant::now();
    let mut random = Random::new(seed);
    let (mut rounds, mut crashes, mut holes, mut operations) = (0, 0u64, 0u64, 0u64);
    while started.elapsed() < Random::test_time_from_environment() || holes == 0 || rounds < designs {
        assert!(
            started.elapsed() < Random::test_time_from_environment() + Duration::from_secs(120),
            "{rounds} rounds, {holes} crashes left a hole"
        );
        let design = GroupCommitDesign::ALL[rounds % designs];
        let faulty = FaultyDisk::new(random.next());
        let disk: Arc<dyn Disk> = faulty.clone();
        let chosen = LogOptions {
            threads: LogThreads::Background,
            writes_in_flight: Some(1 + random.below(3) as u32),
            group_commit: settings(design, &mut random, WAIT_MAX),
            bytes_max: u64::MAX,
            wait_max: Duration::from_millis(50),
            packet_slots: 64,
            ..options(&mut random)
        };
        let log = Log::create(&disk, DATABASE, &chosen).unwrap();
        let ends = [End::Crash, End::Kill, End::Fault(FaultKind::Write), End::Fault(FaultKind::Sync)];
        let end = ends[random.below(4) as usize];
        let step = faulty.steps() + 1 + random.below(80);
        match end {
            End::Crash => faulty.crash_at(step),
            End::Kill => faulty.kill_at(step),
            End::Fault(kind) => faulty.fail(kind, "log-0", random.below(40)),
        }
        let answered = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            let start = |_| {
                let mut own = Random::new(random.next());
                let (log, answered) = (&log, &answered);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let Ok(mut slot) = log.borrow_packet() else { return };
                        slot.bytes_mut().extend_from_slice(&[7; 900]);
                        let alone = own.chance(1, 3).then(|| log.place_alone(&slot, PacketKind::Commit));
                        let lsn = match alone.flatten() {
                            Some(lsn) => lsn,
                            None => {
                                if log.reserve(&mut slot, 0).is_err() {
                                    return;
                                }
                                let lsn = log.push(&mut slot, PacketKind::Commit);
                                log.applied(slot);
                                lsn
                            }
                        };
                        if log.wait(lsn, Durability::Disk, &patience(&mut own, WAIT_MAX)).is_err() {
                            return;
                        }
                        answered.fetch_max(lsn.0, std::sync::atomic::Ordering::SeqCst);
                    }
                })
            };
            // ThreadSanitizer sees a join, not the scope's end.
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let (answered, place) = (answered.into_inner().max(log.durable_position().0), log.place().0);
        match end {
            End::Crash => faulty.crash(),
            _ => faulty.kill(),
        }
        drop(log);
        let faulty = faulty.restart();
        let disk: Arc<dyn Disk> = faulty.clone();
        let about = format!("{end:?} at step {step}, {chosen:?}, RIALTO_SEED={seed}");
        let mut reader = recover(&disk, DATABASE, Lsn(1)).unwrap_or_else(|error| panic!("{error}: {about}"));
        let mut next = 1;
        while let Some(packet) = reader.next_packet().unwrap_or_else(|error| panic!("{error}: {about}")) {
            assert_eq!((packet.lsn.0, packet.bytes), (next, &[7; 900][..]), "{about}");
            next += 1;
        }
        assert!(next > answered, "answered up to {answered}, recovered {}: {about}", next - 1);
        // A whole page of the log after the end: the hole that a later group jumped over.
        let recovered = reader.finish().unwrap();
        holes += u64::from(end == End::Crash && next <= place && blocks_follow(&recovered, &*disk));
        // The log continues over the hole, and the blocks after it never come back.
        let chosen = LogOptions { wait_max: Duration::from_secs(60), ..chosen };
        let log =
            Log::open(&disk, DATABASE, &chosen, recovered).unwrap_or_else(|error| panic!("{error}: {about}"));
        for _ in 0..3 {
            let mut slot = log.borrow_packet().unwrap();
            slot.bytes_mut().extend_from_slice(&[9; 900]);
            log.reserve(&mut slot, 0).unwrap();
            let lsn = log.push(&mut slot, PacketKind::Commit);
            log.applied(slot);
            log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        }
        log.close().unwrap();
        drop(log);
        let mut reader =
            recover(&disk, DATABASE, Lsn(next)).unwrap_or_else(|error| panic!("{error}: {about}"));
        for lsn in next..next + 3 {
            let packet = reader.next_packet().unwrap().unwrap_or_else(|| panic!("{lsn} is missing: {about}"));
            assert_eq!((packet.lsn.0, packet.bytes[0]), (lsn, 9), "{about}");
        }
        assert_eq!(reader.next_packet().unwrap(), None, "{about}");
        rounds += 1;
        crashes += u64::from(end == End::Crash);
        operations += next + 2;
    }
    println!(
        "tally: groups in flight, {rounds} rounds, {crashes} losses of power of a log, {} ends of a process with a log, {operations} \
         operations, \
         {holes} holes, RIALTO_SEED={seed}",
        rounds as u64 - crashes
    );
}
