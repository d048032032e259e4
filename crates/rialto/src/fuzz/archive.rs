//! Restores with an archived log that was damaged, or forged.

use std::sync::{Arc, OnceLock};

use super::backup::{FULL, archive_of, base, database, restore_of, without_point};
use super::edit::{Edit, Files, disk_of, edit, end_of_data};
use super::forged_rows::{log_of, mutate};
use super::script::Script;
use crate::backup::RestoreTo;
use crate::io::Disk;
use crate::log::{log_file_of, recover};
use crate::{Lsn, OpenError};

/// The bytes before the first block of a log file.
const LOG_FILE_HEADER: usize = 4096;

/// Edits the files of an archive after a full backup: either the restored rows are what the database held at the place
/// that is reached, or an error says what is wrong with the archive, and where. Or forges packets with right checksums:
/// the database opens, or is reported as corrupt.
pub fn archive_files(data: &[u8]) {
    let mut script = Script::of(data);
    if script.byte().is_multiple_of(2) {
        return forged_packets(&mut script);
    }
    let base = base();
    let (first, last) = (base.states.keys().next().expect("there are many").0, base.end().0);
    let to = match script.byte() {
        0..128 => RestoreTo::End,
        nth => RestoreTo::Place(Lsn(first + u64::from(nth - 128) % (last - first + 3))),
    };
    let mut files = base.archive.clone();
    let edits = edit(&mut files, &base.archive_before, &mut script);
    let mut backups = base.backups.clone();
    backups.retain(|name, _| name == FULL);
    match restore_of(&backups, Some(archive_of(&files)), to) {
        Ok(restored) => {
            let place = restored.report.place;
            match to {
                RestoreTo::Place(wanted) => assert_eq!(place, wanted),
                // An archive does not tell where it ends, but its last blocks do.
                _ => {
                    assert!(place == base.end() || !ends_whole(&files), "it ends at place {place}: {edits:?}")
                }
            }
            restored.is_as_it_was(base, &edits);
        }
        Err(error) => is_about_the_archive(&error, &files, &edits, to),
    }
}

/// Whether the log's last blocks are as they were written, and readable. They prove that everything before them was
/// durable: damage to that is not the end of the log.
fn ends_whole(files: &Files) -> bool {
    let base = base();
    let (name, whole) =
        base.archive.iter().rfind(|(name, _)| log_file_of(name).is_some()).expect("it has log files");
    let proven = base.archive_proven.get(name).map_or(0, |bytes| end_of_data(bytes));
    assert!(proven < end_of_data(whole), "the last transactions are after what they prove");
    let Some(found) = files.get(name) else { return false };
    found.len() == whole.len()
        && found[..LOG_FILE_HEADER] == whole[..LOG_FILE_HEADER]
        && found[proven..] == whole[proven..]
}

/// Checks that the error names a file of the archive and an offset in it, or says what the archive lacks.
fn is_about_the_archive(error: &OpenError, files: &Files, edits: &[Edit], to: RestoreTo) {
    match error {
        OpenError::Corrupt { file, offset, what } => {
            assert!(!edits.is_empty(), "{error}");
            let name = file.rsplit('/').next().expect("a name has an end");
            assert!(["log-", "load-"].iter().any(|kind| name.starts_with(kind)), "{error}: {edits:?}");
            let length =
                [files.get(name), base().archive.get(name)].into_iter().flatten().map(Vec::len).max();
            assert!(*offset <= length.unwrap_or(4096) as u64 && !what.is_empty(), "{error}: {edits:?}");
        }
        OpenError::Unsupported { what } => {
            let may_be = !edits.is_empty() || to != RestoreTo::End;
            assert!(may_be && (what.contains("archive") || what.contains(FULL)), "{what}: {edits:?}");
        }
        error => panic!("expected Corrupt, found {error:?}: {edits:?}"),
    }
}

/// The archive's packets with their kinds, from the first one.
fn packets() -> &'static [(u8, Vec<u8>)] {
    static PACKETS: OnceLock<Vec<(u8, Vec<u8>)>> = OnceLock::new();
    PACKETS.get_or_init(|| {
        let disk: Arc<dyn Disk> = disk_of(&base().archive);
        let mut reader = recover(&disk, database(), Lsn(1)).unwrap();
        let mut packets = Vec::new();
        while let Some(packet) = reader.next_packet().unwrap() {
            packets.push((packet.kind as u8, packet.bytes.to_vec()));
        }
        assert_eq!(packets.len() as u64, base().end().0);
        packets
    })
}

fn forged_packets(script: &mut Script<'_>) {
    let mut packets = packets().to_vec();
    for _ in 0..1 + script.below(2) {
        let chosen = script.below(packets.len());
        match script.byte() % 8 {
            0 => packets[chosen].0 = script.byte() % 8,
            1 => packets.swap(chosen, 0),
            _ => mutate(&mut packets[chosen].1, script),
        }
    }
    let mut files = base().archive.clone();
    files.retain(|name, _| !name.starts_with("log-"));
    files.insert("log-0000000001".to_owned(), log_of(database(), packets));
    match restore_of(without_point(), Some(archive_of(&files)), RestoreTo::End) {
        Ok(restored) => restored.opens_or_is_corrupt(),
        Err(OpenError::Corrupt { what, .. } | OpenError::Unsupported { what }) => assert!(!what.is_empty()),
        Err(OpenError::Memory { .. }) => {}
        Err(error) => panic!("expected Corrupt, found {error:?}"),
    }
}
