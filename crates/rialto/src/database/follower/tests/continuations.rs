//! Logs that have a beginning in common, and go on differently.

use super::bases::*;
use super::*;
use crate::log::LogPoint;
use crate::txn::redone::tests::contents::copy_of;

/// A database that has followed this one, has taken over, and has committed three times.
fn leader(base: &MemoryDisk, by: i64) -> Database {
    let db = Follower::open_on(copy_of(base), options()).unwrap().lead(SOON).unwrap();
    (0..3).for_each(|_| count(&db, by));
    db
}

fn is_diverged(refused: &Result<()>, at: LogPoint) -> bool {
    matches!(refused, Err(Error::LogDiverged { position, checksum })
        if (*position, *checksum) == (at.position.0, at.checksum))
}

#[test]
fn a_follower_takes_one_continuation_and_refuses_another() {
    let base = base(&options(), with_a_row);
    let (one, other) = (leader(&base, 1), leader(&base, 2));
    let follower = Follower::open_on(copy_of(&base), options()).unwrap();
    let begin = follower.point();
    let mut cursor = one.log_cursor(Some(begin), u64::MAX).unwrap();
    while follower.received() == begin.lsn {
        follower.append(&cursor.next_blocks(1, Duration::ZERO).unwrap().unwrap()).unwrap();
    }
    let point = follower.point();
    let mut of_other = other.log_cursor(Some(begin), u64::MAX).unwrap();
    let refused = loop {
        let blocks = of_other.next_blocks(1, Duration::ZERO).unwrap().expect("it has committed more");
        if blocks.position == point.position {
            break follower.append(&blocks);
        }
    };
    assert!(is_diverged(&refused, point), "{refused:?}");
    assert_eq!(follower.point(), point);
    let refused = other.log_cursor(Some(point), u64::MAX).map(drop);
    assert!(is_diverged(&refused, point), "{refused:?}");
    ship(&one, &follower, 1).unwrap();
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&one), "the follower");
}

/// It leads where the other one did, and its log begins in the same way: the other one's blocks would follow.
#[test]
fn a_database_that_has_led_takes_no_blocks() {
    let base = base(&options(), with_a_row);
    let other = leader(&base, 1);
    let to = copy_of(&base);
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    let db = follower.lead(SOON).unwrap();
    let (point, before) = (follower.point(), all(&db));
    let mut cursor = other.log_cursor(Some(point), u64::MAX).unwrap();
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().unwrap();
    assert_eq!(blocks.position, point.position);
    let refused = follower.append(&blocks);
    assert!(is_diverged(&refused, point), "{refused:?}");
    assert_eq!(follower.point(), point);
    assert!(is_diverged(&follower.lead(SOON).map(drop), point), "it has led");
    assert_same(&all(&db), &before, "after blocks that were refused");
    count(&db, 5);
    let expected = all(&db);
    db.close().unwrap();
    drop(follower);
    let db = Database::open_on(to, options()).unwrap();
    assert_same(&all(&db), &expected, "opened again");
}

/// Two databases take turns, each time after the follower has everything.
#[test]
fn the_primary_of_before_follows_the_new_one() {
    let (first, second) = (base(&options(), with_a_row), MemoryDisk::new());
    copy(&*first, &*second);
    let mut disks = [first, second];
    let mut primary = Database::open_on(disks[0].clone(), options()).unwrap();
    for round in 0..3 {
        let follower = Follower::open_on(disks[1].clone(), options()).unwrap();
        let mut cursor = primary.log_cursor(Some(follower.point()), u64::MAX).unwrap();
        while let Some(blocks) = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap() {
            follower.append(&blocks).unwrap();
        }
        (0..3).for_each(|_| count(&primary, 1));
        follower.append(&cursor.next_blocks(1, Duration::ZERO).unwrap().unwrap()).unwrap();
        let expected = all(&primary);
        primary.close().unwrap();
        // A cursor gives what the log has, and only then its end.
        let end = loop {
            match cursor.next_blocks(1 << 20, Duration::ZERO) {
                Ok(blocks) => follower.append(&blocks.expect("the log has ended")).unwrap(),
                Err(end) => break end,
            }
        };
        assert!(matches!(end, Error::Closed), "{end}");
        drop(cursor);
        primary = follower.lead(SOON).unwrap();
        assert_same(&all(&primary), &expected, &format!("round {round}"));
        count(&primary, 10);
        disks.swap(0, 1);
    }
}

/// What the old primary has committed alone is in no other log. It can only be made anew.
#[test]
fn a_primary_with_a_commit_of_its_own_cannot_follow() {
    for commits in [0, 1, 5] {
        let disk = base(&options(), with_a_row);
        let to = copy_of(&disk);
        let primary = Database::open_on(disk.clone(), options()).unwrap();
        let follower = Follower::open_on(to, options()).unwrap();
        count(&primary, 1);
        ship(&primary, &follower, 1 << 20).unwrap();
        count(&primary, 1);
        primary.close().unwrap();
        let new = follower.lead(SOON).unwrap();
        (0..commits).for_each(|_| count(&new, 100));
        let old = Follower::open_on(disk, options()).unwrap();
        let point = old.point();
        let refused = ship(&new, &old, 1 << 20);
        assert!(is_diverged(&refused, point), "{refused:?}");
        // Blocks of the new log that begin elsewhere, or follow something else.
        let mut cursor = new.log_cursor(Some(follower.point()), u64::MAX).unwrap();
        count(&new, 1);
        let blocks = cursor.next_blocks(1, Duration::ZERO).unwrap().unwrap();
        let refused = old.append(&blocks);
        assert!(
            matches!(refused, Err(Error::Corrupt { .. } | Error::LogDiverged { .. })),
            "{commits}: {refused:?}"
        );
        assert_eq!((old.point(), old.redone()), (point, point.lsn));
    }
}
