//! Tests of each clause of the fault model: what must hold in every crash. Controls: what may be lost is lost in some
//! crash.

mod stray;

use std::sync::atomic::Ordering;

use super::super::Random;
use super::*;

fn file(disk: &FaultyDisk, name: &str) -> Arc<dyn File> {
    disk.open(name, Open::Create, Caching::Buffered).unwrap()
}

/// A file whose name and first bytes are durable.
fn durable(disk: &FaultyDisk, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = file(disk, name);
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory().unwrap();
    file
}

fn contents(disk: &FaultyDisk, name: &str) -> Option<Vec<u8>> {
    let file = match disk.open(name, Open::Existing, Caching::Buffered) {
        Ok(file) => file,
        Err(error) if error.is_missing() => return None,
        Err(error) => panic!("{error}"),
    };
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// What 300 crashes in this state leave of a file.
fn outcomes(disk: &FaultyDisk, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    disk.crash();
    (0..300).map(|_| contents(&disk.restart(), name)).collect()
}

#[test]
fn synced_bytes_survive_and_unsynced_ones_sometimes() {
    let disk = FaultyDisk::new(1);
    let file = durable(&disk, "f", &[1; 1024]);
    file.write_at(&[2; 512], 0).unwrap();
    let outcomes = outcomes(&disk, "f");
    let (kept, lost) = ([[2; 512], [1; 512]].concat(), vec![1; 1024]);
    assert_eq!(outcomes, BTreeSet::from([Some(kept), Some(lost)]), "one sector is kept or lost whole");
}

#[test]
fn sectors_of_a_write_are_torn_apart_but_not_within() {
    let disk = FaultyDisk::new(2);
    let file = durable(&disk, "f", &[1; 8192]);
    file.write_at(&[2; 8000], 100).unwrap();
    let outcomes = outcomes(&disk, "f");
    let mut torn = 0;
    for bytes in outcomes.iter().flatten() {
        let kept: Vec<bool> = bytes.chunks(512).map(|sector| sector.contains(&2)).collect();
        for (at, byte) in bytes.iter().enumerate() {
            let written = (100..8100).contains(&at) && kept[at / 512];
            assert_eq!(*byte, if written { 2 } else { 1 }, "byte {at}");
        }
        torn += usize::from(kept.contains(&true) && kept.contains(&false));
    }
    assert!(torn > 50, "only {torn} torn outcomes");
    // Prefixes, and all sectors but one: the tears that are hardest to detect.
    let lost = |bytes: &&Vec<u8>| bytes.chunks(512).filter(|sector| !sector.contains(&2)).count();
    assert!(outcomes.iter().flatten().any(|bytes| lost(&bytes) == 1));
}

#[test]
fn unsynced_writes_are_kept_in_any_subset() {
    let disk = FaultyDisk::new(3);
    let file = durable(&disk, "f", &[0; 3 * 512]);
    for sector in 0..3u8 {
        file.write_at(&[sector + 1; 512], u64::from(sector) * 512).unwrap();
    }
    let subsets: BTreeSet<Vec<u8>> = outcomes(&disk, "f")
        .into_iter()
        .flatten()
        .map(|bytes| bytes.chunks(512).map(|sector| sector[0]).collect())
        .collect();
    assert_eq!(subsets.len(), 8, "{subsets:?}");
}

#[test]
fn later_writes_may_reach_the_disk_before_earlier_ones() {
    let disk = FaultyDisk::new(4);
    let file = durable(&disk, "f", &[0; 512]);
    file.write_at(&[1; 512], 0).unwrap();
    file.write_at(&[2; 512], 0).unwrap();
    let seen: BTreeSet<u8> = outcomes(&disk, "f").into_iter().flatten().map(|bytes| bytes[0]).collect();
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
}

#[test]
fn lengths_are_lost_or_kept_and_holes_are_zeros() {
    let disk = FaultyDisk::new(5);
    let file = durable(&disk, "f", &[1; 512]);
    file.write_at(&[2; 512], 1024).unwrap();
    let outcomes = outcomes(&disk, "f");
    let long = |last: u8| Some([[1; 512], [0; 512], [last; 512]].concat());
    assert_eq!(outcomes, BTreeSet::from([Some(vec![1; 512]), long(0), long(2)]));

    for grow in [false, true] {
        let disk = FaultyDisk::new(6);
        let file = durable(&disk, "f", &[1; 1000]);
        if grow {
            file.allocate(5000).unwrap()
        } else {
            file.set_length(10).unwrap()
        }
        let lengths: BTreeSet<usize> =
            self::outcomes(&disk, "f").into_iter().flatten().map(|b| b.len()).collect();
        assert_eq!(lengths, BTreeSet::from(if grow { [1000, 5000] } else { [10, 1000] }));
    }
}

#[test]
fn a_file_is_lost_with_its_name_unless_the_directory_was_synced() {
    let disk = FaultyDisk::new(7);
    let file = file(&disk, "f");
    file.write_at(b"synced", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "f"), BTreeSet::from([None, Some(b"synced".to_vec())]));

    let disk = FaultyDisk::new(8);
    self::file(&disk, "f").write_at(b"bytes", 0).unwrap();
    disk.sync_directory().unwrap();
    let outcomes = outcomes(&disk, "f");
    assert!(!outcomes.contains(&None), "the name is durable");
    assert!(outcomes.contains(&Some(vec![])), "its bytes are not");
}

#[test]
fn a_rename_is_atomic() {
    let disk = FaultyDisk::new(9);
    durable(&disk, "home", b"old");
    durable(&disk, "home.new", b"new");
    disk.rename("home.new", "home").unwrap();
    disk.crash();
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let disk = disk.restart();
        seen.insert((contents(&disk, "home").unwrap(), contents(&disk, "home.new")));
    }
    assert_eq!(seen, BTreeSet::from([(b"new".to_vec(), None), (b"old".to_vec(), Some(b"new".to_vec()))]));

    // Without a sync of the new file, the rename may become durable first.
    let disk = FaultyDisk::new(10);
    durable(&disk, "home", b"old");
    file(&disk, "home.new").write_at(b"new", 0).unwrap();
    disk.rename("home.new", "home").unwrap();
    assert!(outcomes(&disk, "home").contains(&Some(vec![])));
}

#[test]
fn directory_changes_are_kept_in_subsets_that_make_sense() {
    let disk = FaultyDisk::new(11);
    durable(&disk, "a", b"1");
    disk.remove("a").unwrap();
    file(&disk, "a");
    file(&disk, "b");
    disk.crash();
    let seen: BTreeSet<_> =
        (0..300).map(|_| disk.restart()).map(|d| (contents(&d, "a"), contents(&d, "b"))).collect();
    let (old, new) = (Some(b"1".to_vec()), Some(vec![]));
    let expected: BTreeSet<_> =
        [None, old, new.clone()].into_iter().flat_map(|a| [(a.clone(), None), (a, new.clone())]).collect();
    assert_eq!(seen, expected);
}

#[test]
fn after_a_failed_sync_only_rewritten_bytes_are_safe() {
    let disk = FaultyDisk::new(12);
    let log = durable(&disk, "log", &[0; 1024]);
    log.write_at(&[1; 1024], 0).unwrap();
    disk.fail(FaultKind::Sync, "log", 0);
    let error = log.sync().unwrap_err();
    assert_eq!((error.operation, error.file.as_str()), ("sync", "log"));
    assert_eq!(contents(&disk, "log").unwrap(), vec![1; 1024], "the page cache still shows the write");
    log.sync().unwrap();
    log.write_at(&[2; 512], 0).unwrap();
    log.sync().unwrap();

    // The next process trusts the page cache, too.
    disk.kill();
    let disk = disk.restart();
    let log = file(&disk, "log");
    log.sync().unwrap();
    assert_eq!(contents(&disk, "log").unwrap(), [[2; 512], [1; 512]].concat());
    let outcomes = outcomes(&disk, "log");
    let expected = [[[2; 512], [0; 512]].concat(), [[2; 512], [1; 512]].concat()];
    assert_eq!(
        outcomes,
        expected.into_iter().map(Some).collect(),
        "a sync that lied, and a rewrite that did not"
    );
}

#[test]
fn a_failed_sync_of_the_directory_fails_all_later_ones() {
    let disk = FaultyDisk::new(13);
    disk.fail(FaultKind::Sync, ".", 1);
    disk.sync_directory().unwrap();
    file(&disk, "f").sync().unwrap();
    assert_eq!(disk.sync_directory().unwrap_err().file, ".");
    disk.mend();
    assert!(disk.sync_directory().is_err());
    assert!(outcomes(&disk, "f").contains(&None));
}

#[test]
fn errors_hit_what_they_name_and_when() {
    let disk = FaultyDisk::new(14);
    let (log, other) = (durable(&disk, "log.1", &[1; 4096]), durable(&disk, "copy", &[1; 4096]));
    disk.fail(FaultKind::Read, "log", 1);
    log.read_at(&mut [0; 8], 0).unwrap();
    other.read_at(&mut [0; 8], 0).unwrap();
    assert_eq!(log.read_at(&mut [0; 8], 16).unwrap_err().to_string().split(':').count(), 2);
    log.read_at(&mut [0; 8], 0).unwrap();

    disk.fail_always(FaultKind::Write, "copy", 0);
    assert_eq!(other.write_at(&[2; 4096], 0).unwrap_err().operation, "write");
    assert!(other.write_at(&[2; 4096], 0).is_err() && other.set_length(0).is_err());
    log.write_at(&[2; 8], 0).unwrap();
    disk.mend();
    other.write_at(&[3; 8], 0).unwrap();
    let bytes = contents(&disk, "copy").unwrap();
    let torn = bytes[8..].windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(torn <= 1, "a failed write leaves a first part");
}

#[test]
fn a_full_disk_still_takes_writes_where_there_is_room() {
    let disk = FaultyDisk::new(15);
    let log = file(&disk, "log");
    log.allocate(8192).unwrap();
    disk.fail_always(FaultKind::Full, "", 0);
    log.write_at(&[1; 8192], 0).unwrap();
    log.sync().unwrap();
    assert!(log.write_at(&[1], 8192).unwrap_err().is_full());
    assert!(log.allocate(8193).unwrap_err().is_full());
    assert!(disk.map_shared("ring", 4096).unwrap_err().is_full());
    assert!(file(&disk, "new").write_at(&[1], 0).unwrap_err().is_full());
    disk.mend();
    log.write_at(&[1], 8192).unwrap();
}

#[test]
fn a_disk_has_the_room_that_it_is_left() {
    let disk = FaultyDisk::new(15);
    let log = file(&disk, "log");
    log.write_at(&[1; 4096], 0).unwrap();
    disk.map_shared("ring", 4096).unwrap();
    disk.leave_room(10_000);
    assert!(log.allocate(4096 + 10_001).unwrap_err().is_full());
    disk.remove("log").unwrap();
    // The bytes of an open file without a name do not count.
    let other = file(&disk, "other");
    other.write_at(&[1; 14_096], 0).unwrap();
    assert!(other.write_at(&[1], 14_096).unwrap_err().is_full());
    assert!(disk.map_shared("map", 4096).unwrap_err().is_full());
    other.write_at(&[2; 14_096], 0).unwrap();
    disk.remove("ring").unwrap();
    disk.kill();
    let disk = disk.restart();
    disk.map_shared("map", 4096).unwrap();
    assert!(file(&disk, "new").write_at(&[1], 0).unwrap_err().is_full());
}

#[test]
fn direct_sync_writes_are_durable_when_they_return() {
    let disk = FaultyDisk::new(16);
    let buffered = durable(&disk, "log", &[1; 8192]);
    let direct = disk.open("log", Open::Existing, Caching::DirectSync).unwrap();
    let mut block = super::super::AlignedBuffer::zeroed(4096);
    block.fill(2);
    buffered.write_at(&[9; 8192], 0).unwrap();
    direct.write_at(&block, 0).unwrap();
    direct.sync().unwrap();
    direct.write_at(&block, 8192).unwrap();
    let outcomes = outcomes(&disk, "log");
    assert!(outcomes.len() > 2, "the buffered write is still open");
    for bytes in outcomes.iter().flatten() {
        assert!(bytes[..4096] == block[..] && bytes[8192..] == block[..], "the direct ones are not");
    }
}

#[test]
fn a_killed_process_leaves_everything_but_its_last_step() {
    let disk = FaultyDisk::new(17);
    let lock = disk.lock().unwrap();
    let log = file(&disk, "log");
    log.write_at(b"unsynced", 0).unwrap();
    let ring = disk.map_shared("ring", 64).unwrap();
    ring.as_words()[3].store(42, Ordering::Relaxed);
    disk.kill();
    assert!(disk.is_down() && log.write_at(b"late", 0).is_err() && disk.list().is_err());
    let next = disk.restart();
    assert_eq!(next.boot(), disk.boot());
    assert_eq!(next.list().unwrap(), ["log", "ring"]);
    assert_eq!(contents(&next, "log").unwrap(), b"unsynced");
    assert_eq!(next.map_shared("ring", 64).unwrap().as_words()[3].load(Ordering::Relaxed), 42);
    let _lock = next.lock().unwrap();
    drop(lock);
    assert!(log.length().is_err(), "old handles stay down");
    assert!(outcomes(&next, "log").contains(&None), "it is not durable yet");
}

#[test]
fn a_machine_crash_ends_the_boot_and_harms_the_maps() {
    let disk = FaultyDisk::new(18);
    let ring = disk.map_shared("ring", 8192).unwrap();
    ring.as_words().iter().for_each(|word| word.store(7, Ordering::Relaxed));
    disk.crash();
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        let next = disk.restart();
        assert_ne!(next.boot(), disk.boot());
        seen.insert(next.shared_bytes("ring").unwrap().map(|bytes| {
            let map = next.map_shared("ring", bytes).unwrap();
            [0, 1023].map(|word| map.as_words()[word].load(Ordering::Relaxed))
        }));
    }
    assert!(seen.contains(&None) && seen.contains(&Some([7, 7])) && seen.contains(&Some([0, 7])), "{seen:?}");
}

/// A small journal: block after block, each synced. Returns how many were acknowledged.
fn journal(disk: &FaultyDisk) -> DiskResult<u64> {
    let log = disk.open("log", Open::Create, Caching::Buffered)?;
    log.allocate(64 * 512)?;
    log.sync()?;
    disk.sync_directory()?;
    let mut acknowledged = 0;
    for block in 0..20u64 {
        let done = log.write_at(&[block as u8 + 1; 512], block * 512).and_then(|()| log.sync());
        if done.is_err() {
            break;
        }
        acknowledged += 1;
    }
    Ok(acknowledged)
}

#[test]
fn every_step_is_a_crash_point() {
    let dry = FaultyDisk::new(19);
    journal(&dry).unwrap();
    let steps = dry.steps();
    assert_eq!(steps, 4 + 40);
    let mut in_flight_survived = 0;
    for step in 1..=steps {
        for kill in [false, true] {
            let disk = FaultyDisk::new(step);
            if kill {
                disk.kill_at(step)
            } else {
                disk.crash_at(step)
            }
            let acknowledged = journal(&disk);
            assert!(disk.is_down() && disk.steps() == step);
            let next = disk.restart();
            let Ok(acknowledged) = acknowledged else { continue };
            let bytes = contents(&next, "log").unwrap();
            let there = bytes.chunks(512).take_while(|sector| sector[0] != 0).count() as u64;
            assert!(
                (acknowledged..=acknowledged + 1).contains(&there),
                "step {step}: {acknowledged} of {there}"
            );
            in_flight_survived += there - acknowledged;
        }
    }
    assert!((10..70).contains(&in_flight_survived), "{in_flight_survived}");
}

#[test]
fn a_seed_repeats_its_crash() {
    let run = |seed| {
        let disk = FaultyDisk::new(seed);
        let file = durable(&disk, "f", &[0; 8192]);
        for block in 0..16u8 {
            file.write_at(&[block + 1; 3000], u64::from(block) * 500).unwrap();
        }
        disk.crash();
        contents(&disk.restart(), "f")
    };
    assert_eq!(run(5), run(5));
    assert!((6..20).any(|seed| run(seed) != run(5)));
}

#[test]
fn damage_changes_every_byte_it_is_asked_to() {
    let disk = FaultyDisk::new(20);
    durable(&disk, "f", &[1; 100]);
    disk.damage("f", 10, 5).unwrap();
    let bytes = contents(&disk, "f").unwrap();
    let changed: Vec<usize> = (0..100).filter(|&at| bytes[at] != 1).collect();
    assert_eq!(changed, [10, 11, 12, 13, 14]);
    assert!(disk.damage("f", 99, 2).is_err() && disk.damage("g", 0, 1).unwrap_err().is_missing());
}

/// Random work on one file against a model that knows, for each sector, which contents a crash may leave.
#[test]
fn random_work_leaves_nothing_but_what_was_written_since_the_last_sync() {
    const SECTORS: u64 = 24;
    let seed = Random::seed_from_environment();
    let end = std::time::Instant::now() + Random::test_time_from_environment();
    let mut rounds = 0;
    while rounds < 50 || std::time::Instant::now() < end {
        let round_seed = seed.wrapping_add(rounds);
        let mut random = Random::new(round_seed);
        let mut disk = FaultyDisk::new(round_seed);
        let mut file = durable(&disk, "f", &[0; (SECTORS * 512) as usize]);
        // For each sector, the values that it may hold after a crash, the newest last, and how many are forgotten.
        let mut may: Vec<Vec<u8>> = vec![vec![0]; SECTORS as usize];
        let mut forgotten: Vec<usize> = vec![0; SECTORS as usize];
        for value in 1..=random.below(60) as u8 + 1 {
            match random.below(10) {
                0..6 => {
                    let first = random.below(SECTORS);
                    let count = random.below(SECTORS - first) + 1;
                    file.write_at(&vec![value; (count * 512) as usize], first * 512).unwrap();
                    may[first as usize..(first + count) as usize].iter_mut().for_each(|may| may.push(value));
                }
                6..8 => {
                    file.sync().unwrap();
                    for (may, forgotten) in may.iter_mut().zip(&mut forgotten) {
                        if may.len() - 1 > *forgotten {
                            *may = vec![may[may.len() - 1]];
                            *forgotten = 0;
                        }
                    }
                }
                8 => {
                    disk.fail(FaultKind::Sync, "f", 0);
                    file.sync().unwrap_err();
                    may.iter().zip(&mut forgotten).for_each(|(may, forgotten)| *forgotten = may.len() - 1);
                }
                _ => {
                    disk.kill();
                    disk = disk.restart();
                    file = self::file(&disk, "f");
                }
            }
            let cached = contents(&disk, "f").unwrap();
            for (sector, may) in may.iter().enumerate() {
                let (newest, sector) = (may[may.len() - 1], &cached[sector * 512..(sector + 1) * 512]);
                assert!(
                    sector.iter().all(|&byte| byte == newest),
                    "RIALTO_SEED={round_seed}: the cache lost a write"
                );
            }
        }
        disk.crash();
        for _ in 0..4 {
            let bytes = contents(&disk.restart(), "f").unwrap();
            for (sector, may) in may.iter().enumerate() {
                let found = &bytes[sector * 512..(sector + 1) * 512];
                assert!(
                    may.contains(&found[0]) && found.iter().all(|byte| *byte == found[0]),
                    "RIALTO_SEED={round_seed}: sector {sector} holds {}, expected one of {may:?}",
                    found[0]
                );
            }
        }
        rounds += 1;
    }
    println!("tally: the faulty disk, {rounds} seeds, RIALTO_SEED={seed}");
}

/// Random changes of every kind, size and place; then a rewrite of what failed syncs have forgotten, and a sync. A
/// crash must leave exactly what was read before it.
#[test]
fn a_synced_file_is_exactly_what_was_read_before_the_crash() {
    let seed = Random::seed_from_environment();
    let end = std::time::Instant::now() + Random::test_time_from_environment() / 4;
    let mut rounds = 0;
    while rounds < 50 || std::time::Instant::now() < end {
        let round_seed = seed.wrapping_add(rounds);
        let mut random = Random::new(round_seed);
        let disk = FaultyDisk::new(round_seed);
        let file = durable(&disk, "f", &[1; 5000]);
        let direct = disk.open("f", Open::Existing, Caching::DirectSync).unwrap();
        let mut failed = false;
        for value in 0..random.below(40) as u8 {
            let (offset, length) = (random.below(20_000), random.below(6000));
            match random.below(12) {
                0 => file.set_length(offset).unwrap(),
                1 => file.allocate(offset).unwrap(),
                2 => file.sync().unwrap(),
                3 => {
                    let mut block = super::super::AlignedBuffer::zeroed(4096);
                    block.fill(value);
                    direct.write_at(&block, offset / 4096 * 4096).unwrap();
                }
                4 => {
                    disk.fail(FaultKind::Sync, "f", 0);
                    file.sync().unwrap_err();
                    failed = true;
                }
                _ => file.write_at(&vec![value % 7; length as usize], offset).unwrap(),
            }
        }
        let before = contents(&disk, "f").unwrap();
        if failed {
            file.write_at(&before, 0).unwrap();
        }
        file.sync().unwrap();
        disk.crash();
        for _ in 0..3 {
            assert!(
                contents(&disk.restart(), "f").unwrap() == before,
                "RIALTO_SEED={round_seed}: synced bytes are lost"
            );
        }
        rounds += 1;
    }
}

/// Rounds of a 4 MiB log that is zeroed, used and crashed: prints the rate, and fails only if crash tests were no
/// longer cheap.
#[test]
fn a_crash_round_is_cheap() {
    let zeros = vec![0; 1 << 20];
    // Measured in this thread's processor time, which other work of the machine does not affect.
    let thread_time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = thread_time();
    const ROUNDS: u64 = 200;
    for seed in 0..ROUNDS {
        let disk = FaultyDisk::new(seed);
        let log = file(&disk, "log");
        log.allocate(4 << 20).unwrap();
        for part in 0..4 {
            log.write_at(&zeros, part << 20).unwrap();
        }
        log.sync().unwrap();
        disk.sync_directory().unwrap();
        for block in 0..100 {
            log.write_at(&[7; 1000], block * 1000).unwrap();
            if block % 4 == 0 {
                log.sync().unwrap();
            }
        }
        disk.crash();
        assert_eq!(file(&disk.restart(), "log").length().unwrap(), 4 << 20);
    }
    let per_round = (thread_time() - start) / ROUNDS as u32;
    println!("{per_round:?} per crash round");
    assert!(per_round < std::time::Duration::from_millis(20), "{per_round:?} per crash round");
}

#[test]
fn a_sync_that_reverts_leaves_what_was_synced_before() {
    let disk = FaultyDisk::new(61);
    let file = durable(&disk, "f", &[1; 1024]);
    file.write_at(&[2; 512], 0).unwrap();
    file.write_at(&[3; 512], 1024).unwrap();
    disk.fail(FaultKind::SyncReverts, "f", 0);
    file.sync().unwrap_err();
    let there = [[1; 1024].as_slice(), &[0; 512]].concat();
    assert_eq!(contents(&disk, "f"), Some(there.clone()), "the file has its length");
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "f"), BTreeSet::from([Some(there)]));
}

/// In the traced step of each write, that write may be there, what was synced before is there, and what comes later is
/// not.
#[test]
fn a_traced_step_is_the_disk_that_a_crash_in_it_leaves() {
    let disk = FaultyDisk::new(62);
    let file = durable(&disk, "f", &[0; 512]);
    disk.trace();
    for round in 1..=3 {
        file.write_at(&[round; 512], 0).unwrap();
        file.sync().unwrap();
    }
    let first = disk.steps() - 5;
    let trace = disk.take_trace();
    assert_eq!(disk.take_trace().len(), 0);
    let numbers: Vec<u64> = trace.iter().map(TracedStep::number).collect();
    assert_eq!(numbers, (first..first + 6).collect::<Vec<_>>());
    for (at, step) in trace.iter().enumerate() {
        let round = at as u8 / 2;
        let expected = [round, round + 1].map(|byte| Some(vec![byte; 512]));
        assert_eq!(outcomes(step.crashed(), "f"), BTreeSet::from(expected), "{step}");
    }
    assert!(!disk.is_down());
    assert_eq!(contents(&disk, "f"), Some(vec![3; 512]));
}

#[test]
fn a_copied_disk_and_a_saved_one_are_the_same_and_another() {
    let disk = FaultyDisk::new(63);
    let file = durable(&disk, "f", &[1; 700]);
    file.write_at(&[2; 10], 5).unwrap();
    let map = disk.map_shared("m", 4096).unwrap();
    map.as_words()[7].store(77, Ordering::Relaxed);
    let expected = contents(&disk, "f");
    let folder = std::env::temp_dir().join(format!("rialto-saved-{}", std::process::id()));
    disk.save(&folder).unwrap();
    let loaded = FaultyDisk::load(&folder, 1).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    for other in [disk.copied(), loaded] {
        assert_eq!(contents(&other, "f"), expected);
        assert_eq!(other.boot(), disk.boot());
        let copy = other.map_shared("m", 4096).unwrap();
        assert_eq!(copy.as_words()[7].load(Ordering::Relaxed), 77);
        copy.as_words()[7].store(78, Ordering::Relaxed);
        self::file(&other, "f").write_at(&[9; 10], 5).unwrap();
    }
    assert_eq!(contents(&disk, "f"), expected);
    assert_eq!(map.as_words()[7].load(Ordering::Relaxed), 77);
}

#[test]
fn a_saved_disk_may_lose_what_was_not_synced() {
    let disk = FaultyDisk::new(65);
    let file = durable(&disk, "f", &[1; 1024]);
    let _durable = [durable(&disk, "old", &[3; 512]), durable(&disk, "gone", &[4; 512])];
    file.write_at(&[2; 1024], 512).unwrap();
    disk.rename("old", "new").unwrap();
    disk.remove("gone").unwrap();
    self::file(&disk, "more").write_at(&[5; 512], 0).unwrap();
    let folder = std::env::temp_dir().join(format!("rialto-saved-unsynced-{}", std::process::id()));
    disk.save(&folder).unwrap();
    let loaded = FaultyDisk::load(&folder, 1).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let names = |disk: &FaultyDisk| disk.list().unwrap();
    assert_eq!(names(&loaded), names(&disk));
    for name in names(&disk) {
        assert_eq!(contents(&loaded, &name), contents(&disk, &name), "{name}");
        // Not all other orders of sizes and bytes that the original may leave are there.
        let [of_disk, of_loaded] = [outcomes(&disk.copied(), &name), outcomes(&loaded.copied(), &name)];
        assert!(of_loaded.is_subset(&of_disk) && of_loaded.len() > 1, "{name}");
    }
    let [of_disk, of_loaded] = [&disk, &loaded].map(|disk| {
        disk.crash();
        (0..300).map(|_| names(&disk.restart())).collect::<BTreeSet<_>>()
    });
    assert_eq!(of_loaded, of_disk);
}

#[test]
fn a_call_hangs_until_it_is_let_go_and_holds_up_no_other_one() {
    let disk = FaultyDisk::new(64);
    let (slow, other) = (durable(&disk, "slow", &[1; 512]), durable(&disk, "other", &[1; 512]));
    disk.hang(FaultKind::Sync, "slow");
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| slow.sync());
        while disk.hanging() == 0 {
            std::thread::yield_now();
        }
        slow.write_at(&[2; 512], 0).unwrap();
        other.sync().unwrap();
        assert!(!synced.is_finished());
        disk.let_go();
        synced.join().unwrap().unwrap();
    });
    assert_eq!(disk.hanging(), 0);
    disk.hang(FaultKind::Write, "slow");
    std::thread::scope(|scope| {
        let written = scope.spawn(|| slow.write_at(&[3; 512], 0));
        while disk.hanging() == 0 {
            std::thread::yield_now();
        }
        disk.crash();
        written.join().unwrap().unwrap_err();
    });
}
