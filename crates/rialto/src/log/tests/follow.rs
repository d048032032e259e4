//! Logs that follow another one, on disks that crash at any step, kill the process at any step, and fail.
//!
//! The model is the list of packets of the log that is followed. After each life of the follower its recovered log must
//! be a prefix of that list, with everything that was on its disk, and after the death of only the process with
//! everything that it was given. Its bytes are those of the log that is followed.

mod damage;
mod forged;

use std::time::Duration;

use super::*;
use crate::io::Random;
use crate::log::follower_record::FollowerRecord;

const NOW: Duration = Duration::ZERO;

/// The log that is followed, and its packets from place 1 on.
struct Followed {
    disk: Arc<dyn Disk>,
    log: Arc<Log>,
    lengths: Vec<usize>,
}

fn primary_options() -> LogOptions {
    LogOptions { first_file_bytes: 64 << 10, file_bytes: 128 << 10, ..alone() }
}

/// A follower may have another ring, and other sizes of its own files.
fn follower_options(random: &mut Random) -> LogOptions {
    let caching = [Caching::Buffered, Caching::Direct, Caching::DirectSync][random.below(3) as usize];
    LogOptions {
        ring_bytes: (256 << 10) + PAGE * random.below(8) as usize,
        file_bytes: [64 << 10, 128 << 10, 256 << 10][random.below(3) as usize],
        bytes_max: 4 << 20,
        caching: Some(caching),
        writes_in_flight: Some(1),
        ..alone()
    }
}

impl Followed {
    fn new() -> Followed {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let log = Log::create(&disk, DATABASE, &primary_options()).unwrap();
        Followed { disk, log, lengths: Vec::new() }
    }

    fn work(&mut self, random: &mut Random) {
        for _ in 0..random.below(12) {
            let length = match random.below(20) {
                0 => random.below(150_000),
                1..=4 => random.below(20_000),
                _ => random.below(500),
            } as usize;
            self.lengths.push(length);
            let lsn = commit(&self.log, &packet(self.lengths.len() as u64, length));
            let level = if random.chance(1, 2) { Durability::Disk } else { Durability::Memory };
            self.log.wait(lsn, level, &Patience::default()).unwrap();
        }
        if random.chance(1, 30) {
            self.reopen();
        }
    }

    fn reopen(&mut self) {
        self.log.close().unwrap();
        let end = recover(&self.disk, DATABASE, Lsn(1)).unwrap().finish().unwrap();
        self.log = Log::open(&self.disk, DATABASE, &primary_options(), end).unwrap();
    }

    /// The last place of the log on this disk, whose packets have to be those of this log.
    fn read(&self, disk: &Arc<dyn Disk>) -> LogEnd {
        let mut reader = recover(disk, DATABASE, Lsn(1)).unwrap();
        let mut next = 1;
        while let Some(found) = reader.next_packet().unwrap() {
            assert_eq!(found.lsn.0, next);
            assert_eq!(found.bytes, packet(next, self.lengths[next as usize - 1]), "place {next}");
            next += 1;
        }
        reader.finish().unwrap()
    }
}

/// A copy of a closed log.
fn copy(from: &Arc<dyn Disk>, to: &Arc<dyn Disk>) {
    for name in from.list().unwrap().into_iter().filter(|name| name.starts_with("log-0")) {
        let file = from.open(&name, Open::ReadOnly, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let to = to.open(&name, Open::CreateNew, Caching::Buffered).unwrap();
        to.write_at(&bytes, 0).unwrap();
        to.sync().unwrap();
    }
    to.sync_directory().unwrap();
}

/// Gives the follower what the followed log has, piece by piece.
fn follow(followed: &mut Followed, log: &Arc<Log>, random: &mut Random, rounds: u64) -> Result<()> {
    for _ in 0..rounds {
        followed.work(random);
        let mut cursor = followed.log.cursor(log.end(), u64::MAX)?;
        let most = [1, 4_000, 70_000, 1 << 20][random.below(4) as usize];
        while let Some(blocks) = cursor.next_blocks(most, NOW)? {
            log.append(&blocks, &mut |_| Ok(()))?;
            match random.below(8) {
                0 => log.write_appended(false)?,
                1 => log.write_appended(true)?,
                2 => break,
                _ => {}
            }
        }
    }
    Ok(())
}

/// How a life of the follower ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Crash,
    Kill,
    Fault(FaultKind),
}

#[derive(Debug, Default)]
struct Counts {
    packets: u64,
    crashes: u64,
    kills: u64,
}

fn lives(seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let mut followed = Followed::new();
    followed.work(&mut random);
    followed.log.close().unwrap();
    let mut faulty = FaultyDisk::new(random.next());
    copy(&followed.disk, &(faulty.clone() as Arc<dyn Disk>));
    followed.reopen();
    let (mut on_disk, mut in_memory) = (followed.lengths.len() as u64, followed.lengths.len() as u64);
    for _ in 0..4 {
        let (disk, options) = (faulty.clone() as Arc<dyn Disk>, follower_options(&mut random));
        let end = match random.below(4) {
            0 => End::Kill,
            1 => End::Fault([FaultKind::Sync, FaultKind::Write][random.below(2) as usize]),
            _ => End::Crash,
        };
        let recovered = followed.read(&disk);
        let step = faulty.steps() + 1 + random.below(60);
        match end {
            End::Crash => faulty.crash_at(step),
            End::Kill => faulty.kill_at(step),
            End::Fault(kind) => faulty.fail(kind, "log-", random.below(30)),
        }
        let opened = Log::open_to_follow(&disk, DATABASE, &options, recovered);
        if let Ok(log) = &opened {
            let before = log.memory_position().0;
            let outcome = follow(&mut followed, log, &mut random, 20);
            if outcome.is_ok() && random.chance(1, 2) {
                let _ = log.close();
            }
            counts.packets += log.memory_position().0 - before;
            on_disk = on_disk.max(log.durable_position().0);
            in_memory = in_memory.max(log.memory_position().0);
            if let Err(error) = outcome {
                assert!(matches!(error, Error::Stopped { .. } | Error::Io { .. }), "{error}");
            }
        }
        match end {
            End::Crash => faulty.crash(),
            End::Kill | End::Fault(_) => faulty.kill(),
        }
        drop(opened);
        faulty = faulty.restart();
        let least = match end {
            End::Crash => on_disk,
            End::Kill | End::Fault(_) => in_memory,
        };
        match end {
            End::Crash => counts.crashes += 1,
            End::Kill | End::Fault(_) => counts.kills += 1,
        }
        let disk = faulty.clone() as Arc<dyn Disk>;
        let found = followed.read(&disk);
        assert!(
            found.lsn().0 >= least,
            "after {end:?} the log ends at place {}; {on_disk} were on its disk and {in_memory} in its memory",
            found.lsn()
        );
        let again = followed.read(&disk);
        assert_eq!((again.lsn(), again.position()), (found.lsn(), found.position()), "I8");
        // What only the ring had is on the disk once the next life has begun.
        in_memory = found.lsn().0;
    }
    leads(followed, faulty, &mut random);
}

/// The follower ends to follow, at which any step may fail; it goes on with packets of its own.
fn leads(mut followed: Followed, faulty: Arc<FaultyDisk>, random: &mut Random) {
    let options = &follower_options(random);
    let disk = faulty.clone() as Arc<dyn Disk>;
    let log = Log::open_to_follow(&disk, DATABASE, options, followed.read(&disk)).unwrap();
    follow(&mut followed, &log, random, 3).unwrap();
    let refused = log.borrow_packet();
    assert!(matches!(refused, Err(Error::Following)), "{refused:?}");
    while log.place() < log.memory_position() {
        log.take_redone_place();
    }
    let last = log.place();
    followed.lengths.truncate(last.0 as usize);
    let is_killed = random.chance(1, 2);
    let step = faulty.steps() + 1 + random.below(25);
    if is_killed {
        faulty.kill_at(step)
    } else {
        faulty.crash_at(step)
    }
    let ended = log.end_following(&log.hold_appends().unwrap());
    let mut least = if is_killed { last.0 } else { log.durable_position().0 };
    assert!(ended.is_err() || least == last.0);
    if ended.is_ok() {
        assert_eq!(FollowerRecord::read(&*disk, DATABASE).unwrap_or(None), None);
        for _ in 0..20 {
            let lsn = followed.lengths.len() as u64 + 1;
            let Ok(mut slot) = log.borrow_packet() else { break };
            slot.bytes_mut().extend_from_slice(&packet(lsn, 300));
            if log.reserve(&mut slot, 0).is_err() {
                break;
            }
            assert_eq!(log.push(&mut slot, PacketKind::Commit), Lsn(lsn));
            followed.lengths.push(300);
            log.applied(slot);
            if log.wait(Lsn(lsn), Durability::Disk, &Patience::default()).is_err() {
                break;
            }
            least = lsn;
        }
    }
    drop(log);
    if is_killed {
        faulty.kill()
    } else {
        faulty.crash()
    }
    let disk = faulty.restart() as Arc<dyn Disk>;
    let end = followed.read(&disk);
    assert!(end.lsn().0 >= least, "{} is less than {least}", end.lsn());
    followed.lengths.truncate(end.lsn().0 as usize);
    let log = match end.is_followed {
        true => {
            assert!(ended.is_err(), "it is a follower's again");
            let log = Log::open_to_follow(&disk, DATABASE, options, end).unwrap();
            log.end_following(&log.hold_appends().unwrap()).unwrap();
            log
        }
        false => Log::open(&disk, DATABASE, options, end).unwrap(),
    };
    let lsn = commit(&log, b"of its own");
    assert_eq!(lsn.0, followed.lengths.len() as u64 + 1);
    log.close().unwrap();
    let (packets, end) = read_all(&disk, lsn.0);
    assert_eq!((packets, end.is_followed), (vec![(lsn.0, b"of its own".to_vec())], false));
}

#[test]
fn a_follower_has_what_it_was_given_after_a_crash_at_any_step() {
    let first = Random::seed_from_environment();
    let started = std::time::Instant::now();
    let (mut seed, mut counts) = (first, Counts::default());
    while started.elapsed() < Random::test_time_from_environment() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lives(seed, &mut counts)));
        if let Err(panic) = result {
            eprintln!("RIALTO_SEED={seed} replays this failure");
            std::panic::resume_unwind(panic);
        }
        seed = seed.wrapping_add(1);
    }
    let Counts { packets, crashes, kills } = counts;
    println!(
        "tally: followers under crashes, {} seeds, {crashes} losses of power of a follower, {kills} ends of a process with a \
         follower, {packets} operations, RIALTO_SEED={first}",
        seed.wrapping_sub(first)
    );
}

/// A follower of a log whose first file is full: its next block begins another file.
fn at_a_files_end(options: &LogOptions) -> (Followed, Arc<dyn Disk>, Arc<Log>) {
    let mut followed = Followed::new();
    followed.log.close().unwrap();
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    copy(&followed.disk, &disk);
    followed.reopen();
    while followed.log.end().position.0 < primary_options().first_file_bytes {
        followed.lengths.push(300);
        let lsn = commit(&followed.log, &packet(followed.lengths.len() as u64, 300));
        followed.log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    assert_eq!(followed.log.end().position.0, primary_options().first_file_bytes);
    let log = Log::open_to_follow(&disk, DATABASE, options, followed.read(&disk)).unwrap();
    append_all(&followed, &log, usize::MAX);
    (followed, disk, log)
}

/// Appends so many pieces of one block.
fn append_all(followed: &Followed, log: &Arc<Log>, most: usize) {
    let mut cursor = followed.log.cursor(log.end(), u64::MAX).unwrap();
    for _ in 0..most {
        let Some(blocks) = cursor.next_blocks(1, NOW).unwrap() else { return };
        log.append(&blocks, &mut |_| Ok(())).unwrap();
    }
}

#[test]
fn the_file_before_stays_until_the_next_ones_first_block_is_whole_on_the_disk() {
    let options = LogOptions { caching: Some(Caching::Direct), writes_in_flight: Some(1), ..alone() };
    let (mut followed, disk, log) = at_a_files_end(&options);
    followed.lengths.push(10_000);
    let lsn = commit(&followed.log, &packet(followed.lengths.len() as u64, 10_000));
    followed.log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
    append_all(&followed, &log, usize::MAX);
    log.write_appended(true).unwrap();
    while log.place() < log.memory_position() {
        log.take_redone_place();
    }
    assert_eq!(log.free_before(lsn).unwrap(), 0, "a part of the block is only in the record");
    log.close().unwrap();
    drop(log);
    let log = Log::open_to_follow(&disk, DATABASE, &options, followed.read(&disk)).unwrap();
    assert_eq!(log.free_before(lsn).unwrap(), 0, "opened again");
    followed.log.sync().unwrap();
    append_all(&followed, &log, usize::MAX);
    log.write_appended(false).unwrap();
    assert_eq!(log.free_before(lsn).unwrap(), 1);
    log.close().unwrap();
    assert_eq!(recover(&disk, DATABASE, lsn).unwrap().finish().unwrap().lsn(), lsn);
}

/// A packet in parts begins a file, the log ends inside it, and nothing before that file is read any more.
#[test]
fn a_log_that_ends_inside_the_packet_that_begins_its_first_file_goes_on() {
    let options = LogOptions { caching: Some(Caching::Direct), writes_in_flight: Some(1), ..alone() };
    let (mut followed, disk, log) = at_a_files_end(&options);
    followed.lengths.push(100_000);
    let lsn = commit(&followed.log, &packet(followed.lengths.len() as u64, 100_000));
    followed.log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    append_all(&followed, &log, 1);
    log.close().unwrap();
    drop(log);
    let end = recover(&disk, DATABASE, lsn).unwrap().finish().unwrap();
    assert_eq!(end.lsn().0, lsn.0 - 1);
    let log = Log::open_to_follow(&disk, DATABASE, &options, end).unwrap();
    // What was refused is given again.
    let mut cursor = followed.log.cursor(log.end(), u64::MAX).unwrap();
    let blocks = cursor.next_blocks(usize::MAX, NOW).unwrap().unwrap();
    for _ in 0..2 {
        let refused = log.append(&blocks, &mut |_| Err(Error::ReadOnly));
        assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    }
    let mut seen = 0;
    let mut whole = |packet: &Packet<'_>| {
        assert_eq!((packet.lsn, packet.bytes.len()), (lsn, 100_000));
        seen += 1;
        Ok(())
    };
    log.append(&blocks, &mut whole).unwrap();
    assert_eq!((seen, log.memory_position()), (1, lsn));
    log.close().unwrap();
    assert_eq!(followed.read(&disk).lsn(), lsn);
}

#[test]
fn blocks_of_a_forged_layout_are_refused_and_leave_nothing() {
    let options = LogOptions { caching: Some(Caching::Direct), writes_in_flight: Some(1), ..alone() };
    let (mut followed, disk, log) = at_a_files_end(&options);
    followed.lengths.push(300);
    let lsn = commit(&followed.log, &packet(followed.lengths.len() as u64, 300));
    followed.log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    let mut cursor = followed.log.cursor(log.end(), u64::MAX).unwrap();
    let right = cursor.next_blocks(usize::MAX, NOW).unwrap().unwrap();
    let files = || disk.list().unwrap();
    let (before, layout) = (files(), right.file);
    let forged = |file: LogFileLayout| LogBlocks { file, ..copy_of(&right) };
    for bytes in [0, 4096, 3 * 4096, 4 * 4096 + 1, u64::MAX, u64::MAX - 4095, 1 << 62] {
        let refused = log.append(&forged(LogFileLayout { bytes, ..layout }), &mut |_| Ok(()));
        assert!(
            matches!(refused, Err(Error::Corrupt { .. } | Error::Unsupported { .. })),
            "{bytes}: {refused:?}"
        );
    }
    for file in [
        LogFileLayout { sequence: layout.sequence + 1, ..layout },
        LogFileLayout { sequence: layout.sequence - 1, ..layout },
        LogFileLayout { start: LogPosition(0), ..layout },
        LogFileLayout { start: LogPosition(u64::MAX), ..layout },
    ] {
        let refused = log.append(&forged(file), &mut |_| Ok(()));
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{file:?}: {refused:?}");
    }
    let empty = LogBlocks { bytes: &[], ..copy_of(&right) };
    log.append(&empty, &mut |_| Ok(())).unwrap();
    for at in [0, 9, 13, 30, 60, right.bytes.len() - 1] {
        let mut damaged = right.bytes.to_vec();
        damaged[at] ^= 1;
        let refused = log.append(&LogBlocks { bytes: &damaged, ..copy_of(&right) }, &mut |_| Ok(()));
        assert!(
            matches!(refused, Err(Error::Corrupt { .. } | Error::LogDiverged { .. })),
            "{at}: {refused:?}"
        );
    }
    assert_eq!((files(), log.memory_position().0), (before, lsn.0 - 1));
    // A file that was made for another layout, of blocks that were refused, is replaced.
    let refused = log.append(&right, &mut |_| Err(Error::ReadOnly));
    assert!(matches!(refused, Err(Error::ReadOnly)));
    log.append(&right, &mut |_| Ok(())).unwrap();
    log.close().unwrap();
    assert_eq!(followed.read(&disk).lsn(), lsn);
}

fn copy_of<'b>(blocks: &LogBlocks<'b>) -> LogBlocks<'b> {
    LogBlocks { position: blocks.position, bytes: blocks.bytes, file: blocks.file, end: blocks.end }
}
