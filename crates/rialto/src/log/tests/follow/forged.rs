//! Blocks with right checksums that no log has written.

use super::*;
use crate::log::block::{self, BlockHeader, BlockKind, HEADER};

/// What comes next in the log that is followed.
fn next_of(followed: &Followed, log: &Arc<Log>) -> (Vec<u8>, LogFileLayout, LogPoint) {
    let mut cursor = followed.log.cursor(log.end(), u64::MAX).unwrap();
    let blocks = cursor.next_blocks(1, NOW).unwrap().unwrap();
    (blocks.bytes.to_vec(), blocks.file, blocks.end)
}

/// Gives a log one block in place of the one that would come next. `forge` changes it, and gives the byte for its kind.
fn append_forged(
    followed: &Followed,
    log: &Arc<Log>,
    forge: impl FnOnce(&mut BlockHeader, &mut Vec<u8>) -> u8,
) -> Result<()> {
    let (mut bytes, file, end) = next_of(followed, log);
    let mut header = block::header_of(&bytes).unwrap();
    let kind = forge(&mut header, &mut bytes);
    block::seal_as(&mut bytes, kind, &header, block::seed(DATABASE, file.sequence));
    let before = log.end();
    let blocks = LogBlocks { position: before.position, bytes: &bytes, file, end };
    let appended = log.append(&blocks, &mut |_| Ok(()));
    assert!(appended.is_ok() || log.end() == before, "{appended:?}");
    appended
}

const GROUP: u8 = BlockKind::Group as u8;
const PART: u8 = BlockKind::Part as u8;
const PAD: u8 = BlockKind::Pad as u8;

type Forge = fn(&mut BlockHeader, &mut Vec<u8>) -> u8;

fn blank(bytes: &mut [u8]) {
    bytes[HEADER..].fill(0);
}

#[test]
fn forged_headers_are_refused_and_leave_nothing() {
    let forged: [(&str, Forge); 12] = [
        ("durable behind itself", |header, _| {
            header.durable = (header.position / PAGE as u64 + 1) * PAGE as u64;
            GROUP
        }),
        ("durable amid a page", |header, _| {
            header.durable = 8;
            GROUP
        }),
        ("the last incarnation", |header, _| {
            header.incarnation = u32::MAX;
            GROUP
        }),
        ("less than a header to the end of its page", |header, bytes| {
            let to_page = PAGE - header.position as usize % PAGE;
            bytes.resize(to_page + PAGE - HEADER + 8, 0);
            blank(bytes);
            header.packets = 0;
            PAD
        }),
        ("no place", |header, _| {
            header.first_lsn = 0;
            GROUP
        }),
        ("no kind", |_, _| 9),
        ("a pad that is not blank", |header, _| {
            header.packets = 0;
            PAD
        }),
        ("a pad with packets", |_, bytes| {
            blank(bytes);
            PAD
        }),
        ("a group inside a packet", |header, _| {
            header.inside = true;
            GROUP
        }),
        ("more packets than it has", |header, _| {
            header.packets += 5;
            GROUP
        }),
        ("a packet longer than its block", |_, bytes| {
            bytes[HEADER + 2] = 0xff;
            GROUP
        }),
        ("a part of what did not begin", |header, bytes| {
            blank(bytes);
            header.inside = true;
            header.packets = 0;
            for (at, number) in [8u32, 8, 100, 0].into_iter().enumerate() {
                bytes[HEADER + 4 * at..HEADER + 4 * at + 4].copy_from_slice(&number.to_le_bytes());
            }
            PART
        }),
    ];
    let options = LogOptions { caching: Some(Caching::Direct), writes_in_flight: Some(1), ..alone() };
    let (mut followed, disk, log) = at_a_files_end(&options);
    let mut commits = |count: usize, length: usize| {
        for _ in 0..count {
            followed.lengths.push(length);
            let lsn = commit(&followed.log, &packet(followed.lengths.len() as u64, length));
            followed.log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        }
    };
    commits(2, 300);
    // The second block of the file: a durable position may be before it, and behind it.
    append_all(&followed, &log, 1);
    while next_of(&followed, &log).0[12] != GROUP {
        append_all(&followed, &log, 1);
    }
    for (what, forge) in forged {
        let refused = append_forged(&followed, &log, forge);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{what}: {refused:?}");
    }
    // Those of another continuation.
    let others: [(&str, Forge); 3] = [
        ("the checksum before", |header, _| {
            header.previous ^= 1;
            GROUP
        }),
        ("another place", |header, _| {
            header.first_lsn += 1;
            GROUP
        }),
        ("an earlier incarnation", |header, _| {
            header.incarnation -= 1;
            GROUP
        }),
    ];
    for (what, forge) in others {
        let refused = append_forged(&followed, &log, forge);
        assert!(matches!(refused, Err(Error::LogDiverged { .. })), "{what}: {refused:?}");
    }
    append_all(&followed, &log, usize::MAX);
    assert_eq!(log.end(), followed.log.end());
    log.close().unwrap();
    assert_eq!(followed.read(&disk).lsn().0, followed.lengths.len() as u64);
}

/// A packet in parts is ended by its last part, or by another opening.
#[test]
fn nothing_but_its_next_part_comes_amid_a_packet() {
    let options = LogOptions { caching: Some(Caching::Direct), writes_in_flight: Some(1), ..alone() };
    let (mut followed, disk, log) = at_a_files_end(&options);
    followed.lengths.push(200_000);
    let lsn = commit(&followed.log, &packet(followed.lengths.len() as u64, 200_000));
    followed.log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    append_all(&followed, &log, 1);
    let forged: [(&str, Forge); 4] = [
        ("a pad", |header, bytes| {
            blank(bytes);
            header.inside = false;
            PAD
        }),
        ("a group", |header, bytes| {
            blank(bytes);
            header.inside = false;
            GROUP
        }),
        ("a part that begins another packet", |header, bytes| {
            bytes[HEADER + 4..HEADER + 8].fill(0);
            header.inside = true;
            PART
        }),
        ("a part that leaves something out", |_, bytes| {
            bytes[HEADER + 4] ^= 8;
            PART
        }),
    ];
    for (what, forge) in forged {
        let refused = append_forged(&followed, &log, forge);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{what}: {refused:?}");
    }
    append_all(&followed, &log, usize::MAX);
    log.close().unwrap();
    assert_eq!(followed.read(&disk).lsn(), lsn);
}
