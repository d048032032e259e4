//! Damage of what a follower's disk has had.

use super::*;

/// The disk of a follower after a crash. `appended` is given its log, and what there is to append.
fn after_a_crash(
    (packets, length): (usize, usize),
    appended: impl FnOnce(&Followed, &Arc<Log>),
) -> (Followed, Arc<dyn Disk>) {
    let mut followed = Followed::new();
    followed.log.close().unwrap();
    let faulty = FaultyDisk::new(7);
    let disk = faulty.clone() as Arc<dyn Disk>;
    copy(&followed.disk, &disk);
    followed.reopen();
    for _ in 0..packets {
        followed.lengths.push(length);
        let lsn = commit(&followed.log, &packet(followed.lengths.len() as u64, length));
        followed.log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    let options = LogOptions { caching: Some(Caching::Direct), writes_in_flight: Some(1), ..alone() };
    let log = Log::open_to_follow(&disk, DATABASE, &options, followed.read(&disk)).unwrap();
    appended(&followed, &log);
    faulty.crash();
    drop(log);
    (followed, faulty.restart())
}

fn is_corrupt_at(disk: &Arc<dyn Disk>, offset: u64) {
    let file = files::name(1);
    // The offset is that of the block.
    let found = recovery_error(disk, 1);
    let is_it = matches!(&found, Error::Corrupt { file: named, offset: at, what }
        if *named == file && *at <= offset && what.contains("was on the disk"));
    assert!(is_it, "{found}");
}

#[test]
fn damage_before_the_recorded_position_is_never_the_logs_end() {
    let offset = (PAGE + 5_000) as u64;
    let (followed, disk) = after_a_crash((40, 2_000), |followed, log| {
        append_all(followed, log, usize::MAX);
        log.write_appended(true).unwrap();
    });
    assert_eq!(followed.read(&disk).lsn(), Lsn(40));
    flip(&disk, &files::name(1), offset);
    is_corrupt_at(&disk, offset);
    // An opening has changed nothing.
    flip(&disk, &files::name(1), offset);
    assert_eq!(followed.read(&disk).lsn(), Lsn(40));
}

/// Whole pages are recorded now and then without being asked for.
#[test]
fn what_was_written_in_the_background_is_recorded_too() {
    let offset = (PAGE + 5_000) as u64;
    let (followed, disk) = after_a_crash((300, 10_000), |followed, log| {
        append_all(followed, log, usize::MAX);
        log.write_appended(false).unwrap();
    });
    let record = FollowerRecord::read(&*disk, DATABASE).unwrap().unwrap();
    assert!(record.position() > 2 << 20, "{record:?}");
    assert!(followed.read(&disk).position().0 >= record.position());
    flip(&disk, &files::name(1), offset);
    is_corrupt_at(&disk, offset);
}

/// Where nothing was recorded, damage is what a crash may have left.
#[test]
fn damage_behind_the_recorded_position_is_the_logs_end() {
    let (followed, disk) = after_a_crash((40, 2_000), |followed, log| {
        append_all(followed, log, usize::MAX);
        log.write_appended(false).unwrap();
    });
    let record = FollowerRecord::read(&*disk, DATABASE).unwrap().unwrap();
    assert!(record.position() < 5_000, "{record:?}");
    flip(&disk, &files::name(1), (PAGE + 30_000) as u64);
    let end = followed.read(&disk);
    assert!((1..40).contains(&end.lsn().0), "{}", end.lsn());
}
