//! Logs that follow another one, on disks that crash at any step, kill the process at any step, and fail.
//!
//! The model is the list of packets of the log that is followed. After each life of the follower its recovered log must
//! be a prefix of that list, with everything that was on its disk, and after the death of only the process with
//! everything that it was given. Its bytes are those of the log that is followed.

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
