//! What of the log is on a follower's disk, and when.

use super::bases::*;
use super::*;
use crate::log::LogPoint;

/// What a sync has written is there after a crash: whole pages, and the beginning of one.
#[test]
fn what_was_synced_is_there_after_a_crash() {
    for (seed, commits) in [1, 2, 60, 400].into_iter().enumerate() {
        let faulty = FaultyDisk::new(seed as u64);
        let (_disk, primary) = primary_and_copy(&in_memory(small_log(options())), faulty.clone(), with_a_row);
        let follower = Follower::open_on(faulty.clone(), small_log(driven())).unwrap();
        (0..commits).for_each(|_| count(&primary, 1));
        ship(&primary, &follower, 1 << 20).unwrap();
        assert!(follower.on_disk() < follower.received(), "nothing has asked for a write");
        follower.sync().unwrap();
        let (synced, expected) = (follower.received(), all(&primary));
        assert_eq!(follower.on_disk(), synced);
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        faulty.crash();
        drop(follower);
        let follower = Follower::open_on(faulty.restart(), small_log(driven())).unwrap();
        assert_eq!((follower.received(), follower.on_disk(), follower.redone()), (synced, synced, synced));
        assert_same(&all(follower.database()), &expected, "after the crash");
        ship(&primary, &follower, 1 << 20).unwrap();
        follower.drive().unwrap();
        assert_eq!(follower.on_disk(), follower.received());
        assert_same(&all(follower.database()), &all(&primary), "further on");
    }
}

#[test]
fn the_disk_gets_everything_without_any_call() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&in_memory(options()), to.clone(), with_a_row);
    let follower = Follower::open_on(to, options()).unwrap();
    for commits in [1, 100, 1] {
        (0..commits).for_each(|_| count(&primary, 1));
        ship(&primary, &follower, 1 << 20).unwrap();
        soon("it is written", || follower.on_disk() == follower.received());
    }
}

/// Blocks that come without a pause do not put off the write of a page that is not full.
#[test]
fn a_steady_stream_of_blocks_does_not_keep_them_off_the_disk() {
    const PAGE: u64 = 4096;
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&in_memory(options()), to.clone(), with_a_row);
    let follower =
        Follower::open_on(to, Options { memory_flush_interval: Duration::from_millis(15), ..options() })
            .unwrap();
    let (begin, began) = (follower.point().position.0, Instant::now());
    let (mut last, mut writes) = (follower.on_disk(), 0);
    loop {
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let on_disk = follower.on_disk();
        writes += u64::from(on_disk > last);
        last = on_disk;
        // Those of whole pages happen anyway.
        let pages = (follower.point().position.0 - begin) / PAGE + 1;
        if pages > 4 && writes >= 2 * pages {
            return;
        }
        assert!(began.elapsed() < SOON, "{writes} writes of {pages} pages");
    }
}

/// Work that leaves some of the log in memory. Gives where the log is on the disk, and where it ends.
fn work(opened: &Opened, primary: &Database, random: &mut Random) -> (LogPoint, LogPoint) {
    for _ in 0..random.below(8) {
        match opened {
            Opened::Database(db) => match random.below(8) {
                0 => db.sync().unwrap(),
                1 => _ = db.checkpoint().unwrap(),
                _ => (0..1 + random.below(60)).for_each(|_| count(db, 1)),
            },
            Opened::Follower(follower) => match random.below(8) {
                0 => follower.sync().unwrap(),
                // The end of what it receives is a pad.
                1 => primary.sync().unwrap(),
                2 => follower.drive().unwrap(),
                3 => _ = follower.database().checkpoint().unwrap(),
                _ => {
                    (0..1 + random.below(60)).for_each(|_| count(primary, 1));
                    ship(primary, follower, [1, 5_000, 1 << 20][random.below(3) as usize]).unwrap();
                }
            },
        }
    }
    let (on_disk, end) = opened.points();
    assert!(on_disk.position <= end.position && on_disk.lsn <= end.lsn, "{on_disk}, {end}");
    (on_disk, end)
}

#[test]
fn a_point_on_the_disk_is_there_after_a_crash_and_a_sync_reaches_the_end() {
    let (mut behind, rounds) = (0, 16);
    for seed in 0..rounds {
        let mut random = Random::new(seed);
        let mut faulty = FaultyDisk::new(seed);
        let of_primary = in_memory(small_log(options()));
        let (_disk, primary) = primary_and_copy(&of_primary, faulty.clone(), with_a_row);
        let is_follower = random.chance(1, 2);
        let open = |disk: &Arc<FaultyDisk>| match is_follower {
            true => Opened::Follower(Follower::open_on(disk.clone(), small_log(driven())).unwrap()),
            false => {
                Opened::Database(Database::open_on(disk.clone(), in_memory(small_log(driven()))).unwrap())
            }
        };
        for _ in 0..4 {
            let opened = open(&faulty);
            let (on_disk, end) = work(&opened, &primary, &mut random);
            if random.chance(1, 3) {
                opened.sync();
                let (on_disk, synced) = opened.points();
                assert_eq!((on_disk, on_disk.lsn), (synced, end.lsn), "seed {seed}");
            }
            behind += u32::from(on_disk.position < end.position);
            faulty = opened.end(End::Crash, &faulty);
            let opened = open(&faulty);
            // The log goes through the point.
            let cursor = opened.database().log_cursor(Some(on_disk), u64::MAX);
            assert!(cursor.is_ok(), "seed {seed}: {on_disk}, {:?}", cursor.err());
            drop(cursor);
            faulty = opened.end(End::Close, &faulty);
        }
    }
    assert!(behind > 0, "no point was behind the end in {rounds} rounds");
}

#[test]
fn the_point_on_the_disk_reaches_the_end_without_any_call() {
    let to = MemoryDisk::new();
    let of_primary = Options { durability: Durability::Memory, ..options() };
    let (_disk, primary) = primary_and_copy(&of_primary, to.clone(), with_a_row);
    let follower = Follower::open_on(to, options()).unwrap();
    for commits in [1, 100, 1] {
        (0..commits).for_each(|_| count(&primary, 1));
        soon("it is written", || primary.on_disk_point() == primary.log_end());
        ship(&primary, &follower, 1 << 20).unwrap();
        soon("it is written", || follower.on_disk_point() == follower.point());
        assert_eq!(follower.point(), primary.log_end());
    }
}
