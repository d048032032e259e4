//! Restores to a time from an archive in whose log the machine's clock was set back.

use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::quiet;
use crate::common::quiet::{count, options, things};
use rialto::backup::{Archive, Backup, Restore, RestoreReport, RestoreTo, restore};
use rialto::io::{Caching, Disk, MemoryDisk, Open};
use rialto::{BackupKind, Database, Lsn, OpenError, Options};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// An archive of one log file: ten rows, a backup, and ten times ten more rows, one commit for each row.
struct Archived {
    archive: Arc<dyn Disk>,
    backup: Vec<u8>,
    /// The place of the backup.
    place: u64,
}

fn archived() -> Archived {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let options = Options { archive: Some(Archive::on(archive.clone())), ..options() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    things(&db);
    quiet::put(&db, 0..10);
    let mut backup = Vec::new();
    let Lsn(place) = db.backup_to(&mut backup, BackupKind::Full).unwrap().place;
    (1..=10).for_each(|round| quiet::put(&db, 10 * round..10 * round + 10));
    db.close().unwrap();
    Archived { archive, backup, place }
}

impl Archived {
    fn restored(&self, to: RestoreTo) -> Result<(u64, RestoreReport), OpenError> {
        let mut plan = Restore::new(vec![Backup::stream("b", Cursor::new(self.backup.clone()))]);
        plan.archive = Some(Archive::on(self.archive.clone()));
        (plan.to, plan.memory_bytes, plan.threads) = (to, 64 << 20, 2);
        let target = MemoryDisk::new();
        let report = restore(plan, target.clone())?;
        Ok((count(&Database::open_on(target, options()).unwrap()), report))
    }

    /// Rewrites the log file as if each block had been gathered at the time that `time` gives for its first place, in
    /// milliseconds since 1970; and the backup as one of that log. Their formats are in `src/log/block.rs` and
    /// `src/backup/stream.rs`.
    fn set_times(&mut self, time: impl Fn(u64) -> u64) {
        let name = "log-0000000001";
        let file = self.archive.open(name, Open::Existing, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let u64_at = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let seed =
            u64_at(&bytes, 16) ^ u64_at(&bytes, 24) ^ u64_at(&bytes, 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let point = 32 + 88..32 + 104;
        let (mut at, mut previous, mut set, mut is_passed) = (4096, 0, 0, false);
        while bytes.get(at + 8..at + 12) == Some(b"RLBK") {
            let length = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap()) as usize;
            let block = &mut bytes[at..at + length];
            let is_pad = block[12] == 3;
            if !is_pad {
                let time = time(u64_at(block, 32));
                let inside = u16::from_le_bytes([block[14], block[15]]) & 1;
                block[14..16].copy_from_slice(&(inside | ((time >> 32) as u16) << 1).to_le_bytes());
                block[60..64].copy_from_slice(&(time as u32).to_le_bytes());
                set += 1;
            }
            block[48..56].copy_from_slice(&u64::to_le_bytes(previous));
            previous = xxh3_64_with_seed(if is_pad { &block[8..64] } else { &block[8..] }, seed);
            block[..8].copy_from_slice(&previous.to_le_bytes());
            at += length;
            if u64_at(&self.backup, point.start) == at as u64 - 4096 {
                self.backup[point.start + 8..point.end].copy_from_slice(&previous.to_le_bytes());
                is_passed = true;
            }
        }
        assert!(is_passed, "the log goes through the backup's point");
        let begin = [&self.backup[..24], &self.backup[32..point.end]].concat();
        self.backup[24..32].copy_from_slice(&xxh3_64(&begin).to_le_bytes());
        assert!(set >= 11, "{set} blocks: a group for each commit that was waited for");
        file.write_at(&bytes, 0).unwrap();
    }
}

/// After everything that was really done.
fn base() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64 + 1_000_000
}

fn at(ms: u64) -> RestoreTo {
    RestoreTo::Time(UNIX_EPOCH + Duration::from_millis(ms))
}

/// The clock was an hour ahead when the database was begun, and was corrected before the backup. The log file with the
/// backup's place is read from its beginning: its times from before the backup do not end the restore.
#[test]
fn a_restore_to_a_time_has_what_was_committed_by_then_after_the_clock_was_set_back() {
    let mut archived = archived();
    let (base, place) = (base(), archived.place);
    archived.set_times(|lsn| match lsn.checked_sub(place + 1) {
        None => base + 3_600_000,
        Some(nth) => base + 1000 * nth,
    });
    for commits in 0..9 {
        let (rows, report) = archived.restored(at(base + 1000 * commits + 500)).unwrap();
        assert_eq!((rows, report.place), (20 + 10 * commits, Lsn(place + 1 + commits)));
    }
}

/// The clock was an hour ahead for two commits after the backup. A time that the log has before them and again after
/// them is refused, and the error names the places to choose from; for every other time the restore has everything that
/// was committed by then.
#[test]
fn a_time_that_the_log_comes_to_twice_is_refused() {
    let mut archived = archived();
    let (base, place) = (base(), archived.place);
    archived.set_times(|lsn| {
        let nth = lsn.saturating_sub(place + 1);
        base + 1000 * nth + if (4..6).contains(&nth) { 3_600_000 } else { 0 }
    });
    for commits in [0, 1, 2] {
        let (rows, _) = archived.restored(at(base + 1000 * commits + 500)).unwrap();
        assert_eq!(rows, 20 + 10 * commits);
    }
    for commits in [6, 7, 8] {
        let error = archived.restored(at(base + 1000 * commits + 500)).unwrap_err();
        let (passed, again) = (place + 4, place + 1 + commits);
        let expected = format!(
            " UTC: the archive memory (lost when the process ends) passes that time behind place {passed}, and at place \
             {again} it has not come yet, because the machine's clock was set back between; restore to a place"
        );
        assert!(error.to_string().ends_with(&expected), "{error}");
        assert_eq!(error.exit_code(), 3);
        for place in [passed, again] {
            assert_eq!(archived.restored(RestoreTo::Place(Lsn(place))).unwrap().1.place, Lsn(place));
        }
    }
}
