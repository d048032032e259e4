//! What of the log is on a follower's disk, and when.

use super::bases::*;
use super::*;

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
