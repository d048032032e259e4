//! The end of following: what it needs, and what is left when it fails.

use super::bases::*;
use super::*;
use crate::backup::Archive;
use crate::io::FaultKind;

/// There is no room for the log file that it would begin, which it finds last of all.
#[test]
fn a_lead_that_fails_late_leaves_a_follower_that_goes_on() {
    const PAGE: u64 = 4096;
    for (at_the_end, is_driven) in [(true, false), (false, false), (true, true), (false, true)] {
        let faulty = FaultyDisk::new(1);
        let of_primary = match at_the_end {
            // Each commit ends its page.
            true => small_log(options()),
            false => in_memory(small_log(options())),
        };
        let (_disk, primary) = primary_and_copy(&of_primary, faulty.clone(), with_a_row);
        let of_follower = small_log(if is_driven { driven() } else { options() });
        let follower = Follower::open_on(faulty.clone(), of_follower).unwrap();
        let mut cursor = primary.log_cursor(Some(follower.point()), u64::MAX).unwrap();
        let mut is_there = false;
        while !is_there {
            count(&primary, 1);
            while let Some(blocks) = cursor.next_blocks(1, Duration::ZERO).unwrap() {
                follower.append(&blocks).unwrap();
                let (end, file) = (blocks.end.position.0, blocks.file);
                let file_end = file.start.0 + file.bytes;
                assert!(end <= file_end);
                is_there = if at_the_end { end == file_end } else { end > file_end - PAGE && end < file_end };
            }
        }
        faulty.fail_always(FaultKind::Full, "log-", 0);
        for _ in 0..2 {
            let refused = follower.lead(SOON).map(drop);
            assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        }
        assert_eq!((follower.failure(), follower.redone()), (None, follower.received()));
        let refused = follower.database().transact(|tx| tx.create_table(&two_columns("refused")));
        assert!(matches!(refused, Err(Error::Following)), "{refused:?}");
        faulty.mend();
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        follower.drive().unwrap();
        assert!(follower.wait_redone(follower.received(), SOON).unwrap());
        soon("it is written", || follower.on_disk() == follower.received());
        assert_same(&all(follower.database()), &all(&primary), "the follower");
        let expected = all(&primary);
        let db = follower.lead(SOON).unwrap();
        assert_same(&all(&db), &expected, "the follower that leads");
        count(&db, 1);
        db.close().unwrap();
    }
}

/// Afterwards the directory is a follower's that can lead, or a database's, and has everything either way.
#[test]
fn a_crash_at_any_step_of_leading_loses_nothing() {
    for is_killed in [false, true] {
        let crashes = (1..).take_while(|&nth| leads_until(nth, is_killed)).count();
        assert!(crashes > 3, "steps of the end of following");
    }
}

/// Whether it is down in the `nth` step of the end of following.
fn leads_until(nth: u64, is_killed: bool) -> bool {
    let faulty = FaultyDisk::new(nth);
    let of_primary = in_memory(small_log(options()));
    let (_disk, primary) = primary_and_copy(&of_primary, faulty.clone(), with_a_row);
    let follower = Follower::open_on(faulty.clone(), small_log(driven())).unwrap();
    (0..3).for_each(|_| count(&primary, 1));
    ship(&primary, &follower, 1 << 20).unwrap();
    follower.drive().unwrap();
    let (point, expected) = (follower.point(), all(&primary));
    match is_killed {
        true => faulty.kill_at(faulty.steps() + nth),
        false => faulty.crash_at(faulty.steps() + nth),
    }
    let led = follower.lead(SOON).map(drop);
    let is_down = faulty.is_down();
    assert!(is_down || led.is_ok(), "{led:?}");
    if !is_down {
        return false;
    }
    drop(follower);
    for _ in 0..if is_killed { 1 } else { 4 } {
        let disk = faulty.restart();
        let about = format!("step {nth}, killed: {is_killed}, {led:?}");
        let (db, was_followed) = match Database::open_on(disk.clone(), small_log(options())) {
            Ok(db) => (db, false),
            Err(OpenError::Unsupported { .. }) => {
                assert!(led.is_err(), "{about}: it is a follower's again");
                let follower = Follower::open_on(disk.clone(), small_log(options())).unwrap();
                let goes_on = primary.log_cursor(Some(follower.point()), u64::MAX).is_ok();
                assert_eq!(goes_on, follower.point() == point, "{about}");
                (follower.lead(SOON).unwrap(), true)
            }
            Err(other) => panic!("{about}: {other}"),
        };
        assert_same(&all(&db), &expected, &format!("{about}, followed: {was_followed}"));
        count(&db, 10);
        let expected = all(&db);
        disk.crash();
        drop(db);
        let db = Database::open_on(disk.restart(), small_log(options())).unwrap();
        assert_same(&all(&db), &expected, &format!("{about}, after another crash"));
    }
    true
}

#[test]
fn what_a_follower_refuses() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), with_a_row);
    let archive = Options { archive: Some(Archive::on(MemoryDisk::new())), ..options() };
    let refused = Follower::open_on(to.clone(), archive).map(drop);
    assert!(matches!(&refused, Err(OpenError::Options { what }) if what.contains("archive")), "{refused:?}");
    let follower = Follower::open_on(to.clone(), driven()).unwrap();
    let mut cursor = primary.log_cursor(Some(follower.point()), u64::MAX).unwrap();
    count(&primary, 1);
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().unwrap();
    let point = follower.point();
    let in_a_body =
        follower.database().transact(|_| Ok([follower.append(&blocks), follower.drive()])).unwrap();
    assert_eq!(in_a_body, [Err(Error::Nested), Err(Error::Nested)]);
    assert_eq!(follower.point(), point);
    follower.append(&blocks).unwrap();
    follower.close().unwrap();
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap();
    assert_eq!(blocks, None);
    count(&primary, 1);
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().unwrap();
    assert_eq!(follower.append(&blocks), Err(Error::Closed));
    assert!(follower.take_load_file(1, &mut &[][..]).is_err());
    drop(follower);
    let follower = Follower::open_on(to, driven()).unwrap();
    let db = follower.lead(SOON).unwrap();
    let again = follower.lead(SOON).map(drop);
    assert!(matches!(again, Err(Error::LogDiverged { .. })), "{again:?}");
    count(&db, 1);
    db.close().unwrap();
}

/// Reads hold up one packet after the other: together for longer than each may.
#[test]
fn a_redo_that_gets_on_is_waited_for() {
    const ROWS: i32 = 10;
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |db| {
        with_a_row(db);
        let table = db.table("t").unwrap();
        for id in 2..=ROWS {
            db.transact(|tx| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)])).unwrap();
        }
    });
    let follower = Follower::open_on(to, options()).unwrap();
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    follower.redo_up_to(follower.redone());
    let table = primary.table("t").unwrap();
    (1..=ROWS).for_each(|id| add(&primary, &table, id, 1).unwrap());
    ship(&primary, &follower, 1 << 20).unwrap();
    let before = follower.steps();
    let table = follower.database().table("t").unwrap();
    let readers: Vec<_> = (1..=ROWS)
        .map(|id| {
            let mut reader = follower.database().begin().unwrap();
            reader.get(&table, id).unwrap();
            reader
        })
        .collect();
    let db = std::thread::scope(|threads| {
        threads.spawn(|| {
            for reader in readers {
                std::thread::sleep(Duration::from_millis(300));
                drop(reader);
            }
        });
        follower.lead(Duration::from_secs(2)).unwrap()
    });
    assert!(follower.steps() >= before + ROWS as u64);
    assert_same(&all(&db), &all(&primary), "the follower that leads");
    db.close().unwrap();
}
