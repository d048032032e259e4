//! Points of the log's chain: where it ended after a place.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::interleavings::hooked::{About, HookedDisk};
use crate::io::Random;

/// Reads the log after a point, as a witness of which a home block names the point.
fn read_through(disk: &Arc<dyn Disk>, point: LogPoint) -> Result<u64> {
    let witness = Witness { name: "home".to_owned(), point };
    let mut reader = recover_through(disk, DATABASE, point.lsn.next(), Some(witness))?;
    let mut next = point.lsn.next();
    while let Some(packet) = reader.next_packet()? {
        assert_eq!(packet.lsn, next);
        next = next.next();
    }
    assert!(reader.is_witnessed());
    Ok(reader.finish()?.lsn().0)
}

/// The log goes through the points that it has reported, and through no others. These include points with only pads
/// after them up to the end of their file, whose files are kept for them.
#[test]
fn a_log_goes_through_its_points_and_no_others() {
    let mut random = Random::new(Random::seed_from_environment());
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    assert!(log.point().unwrap().position.0 >= PAGE as u64, "after the pad of the opening");
    let (mut file_end, mut points, mut at_ends) = (256 << 10, Vec::new(), Vec::new());
    while at_ends.len() < 3 {
        let left = file_end - log.end_position();
        let is_last = left < 50_000;
        // The last packet of a file ends in its last page.
        let length = if is_last { left - 1_000 } else { 1 + random.below(40_000) };
        let lsn = commit(&log, &packet(points.len() as u64, length as usize));
        // Packets that are still queued are gathered for the point.
        let point = log.point().unwrap();
        assert_eq!(point.lsn, lsn);
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        assert!(log.durable_bytes() >= point.position, "it is durable when its place is");
        points.push(point);
        if is_last {
            assert!(point.position.0 < file_end && log.end_position() == file_end, "the test's own premise");
            at_ends.push(point);
            file_end += 512 << 10;
        }
    }
    commit(&log, b"last");
    log.sync().unwrap();
    let last = log.place().0;
    for point in points {
        assert_eq!(read_through(&disk, point).unwrap(), last);
        let others = [
            LogPoint { checksum: point.checksum ^ 1, ..point },
            LogPoint { position: LogPosition(point.position.0 + 8), ..point },
            LogPoint { position: LogPosition(point.position.0 - 8), ..point },
        ];
        for other in others {
            let error = read_through(&disk, other).unwrap_err().to_string();
            assert!(error.contains(&format!("expected {other}, as \"home\" says, found ")), "{error}");
        }
    }
    // If the last block before the log's end ends the log, the log is its own witness, and no other log's.
    let end = log.point().unwrap();
    assert_eq!(read_through(&disk, end).unwrap(), last);
    let beyond = LogPoint { position: LogPosition(end.position.0 + (1 << 20)), ..end };
    assert!(read_through(&disk, beyond).is_err());
    for point in at_ends {
        let needed = LogNeeded { from: point.lsn.next(), position: point.position };
        log.free_all_but(needed).unwrap();
        assert_eq!(read_through(&disk, point).unwrap(), last, "its file is there");
        assert_eq!(log.free_before(point.lsn.next()).unwrap(), 1, "redo alone does not need it");
        read_through(&disk, point).unwrap_err();
    }
}

/// A point lies after what was committed before it was asked for, however much is committed meanwhile: here more than
/// the ring holds, in packets of many blocks, whenever a group of the log is written.
#[test]
fn a_point_does_not_wait_for_what_is_committed_meanwhile() {
    const MEANWHILE: usize = 40;
    for length in [300_000, 50_000] {
        let disk = HookedDisk::new(MemoryDisk::new());
        let log = Log::create(&(disk.clone() as Arc<dyn Disk>), DATABASE, &alone()).unwrap();
        let log = Arc::new(log);
        let bytes = move |lsn: u64| packet(lsn, length);
        let more = Arc::new(AtomicUsize::new(MEANWHILE));
        disk.before({
            let (log, more) = (Arc::downgrade(&log), more.clone());
            move |name, about| {
                let Some(log) = log.upgrade() else { return };
                if !name.starts_with("log-0") || about != About::Sync {
                    return;
                }
                for _ in 0..400_000 / length {
                    let less = |left: usize| left.checked_sub(1);
                    if more.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
                        commit(&log, &bytes(log.place().0 + 1));
                    }
                }
            }
        });
        let lsn = commit(&log, &bytes(1));
        let point = log.point().unwrap();
        assert!(more.load(Ordering::SeqCst) > 0, "{length}: it has waited for {MEANWHILE} packets more");
        assert!(point.lsn >= lsn);
        disk.unhook();
        log.sync().unwrap();
        let (last, disk) = (log.place().0, disk as Arc<dyn Disk>);
        assert_eq!(read_through(&disk, point).unwrap(), last);
        log.close().unwrap();
    }
}
