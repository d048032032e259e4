//! Home blocks and segment images with right checksums and any contents.

use std::sync::Arc;

use super::edit::{Files, disk_of};
use super::script::Script;
use crate::checkpoint::home::{
    FORMAT_VERSION, HomeError, HomeFile, HomeSlot, NewHome, SEQUENCE_MAX, forge_home_block, read_home,
};
use crate::io::Disk;
use crate::log::{LogPoint, LogPosition};
use crate::store::Budget;
use crate::store::memory::image::{self, ImageHeader};
use crate::store::memory::segments::Copy;
use crate::store::memory::{SEGMENT_BYTES, SegmentId, Segments};
use crate::{Error, HeapId, Lsn};

const BLOCK: usize = 4096;

/// Two home blocks of any contents: the one that counts is whole, not retired, and the newer one; or there is an error
/// about one of the two. Then the next checkpoint retires and publishes as always.
pub fn forged_home(data: &[u8]) {
    let mut script = Script::of(data);
    let mut bytes = Vec::new();
    for _ in 0..2 {
        let way = script.byte();
        let mut block = vec![0; BLOCK];
        let length = script.below(96);
        let contents = script.bytes(length);
        block[..contents.len()].copy_from_slice(contents);
        if way & 1 == 0 {
            // Few values, so that the two blocks are related.
            block[8..32].fill(0);
            // Mostly in the format that this program reads.
            block[8] = FORMAT_VERSION as u8 - u8::from(way & 0x3f == 0x3f);
            block[12] = way >> 1 & 1;
            block[32..40].fill(0);
            block[32] = way >> 2 & 3;
            block[40..44].fill(0);
            block[40] = way >> 4 & 3;
        }
        if way & 0xc0 != 0xc0 {
            forge_home_block(&mut block);
        }
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(bytes.len() - if script.byte() < 250 { 0 } else { script.below(2 * BLOCK) });
    let files = Files::from([("home".to_owned(), bytes)]);
    let disk: Arc<dyn Disk> = disk_of(&files);
    let is_fine = |error: HomeError| match error {
        HomeError::NewerVersion { found, supported } => assert!(found > supported),
        HomeError::OlderVersion { found, supported } => assert!(found < supported),
        HomeError::Failed(Error::Corrupt { file, offset, what }) => {
            assert!(file == "home" && offset <= BLOCK as u64 && !what.is_empty(), "{file} {offset} {what}");
        }
        HomeError::Failed(error) => panic!("expected Corrupt, found {error}"),
    };
    let (slots, chosen) = match read_home(&*disk) {
        Ok(found) => found,
        Err(error) => return is_fine(error),
    };
    assert!(!chosen.retired && slots.contains(&HomeSlot::Valid(chosen)));
    for slot in &slots {
        assert!(
            !matches!(slot, HomeSlot::Valid(other) if !other.retired && other.sequence > chosen.sequence)
        );
    }
    let mut home = HomeFile::open(&*disk).unwrap();
    assert_eq!(*home.block(), chosen);
    home.retire_other().unwrap();
    // Only a forged block has the last number that there is. No checkpoint follows it.
    if chosen.sequence == SEQUENCE_MAX {
        return;
    }
    let copy = chosen.copy.map_or(Copy::Ping, Copy::other);
    let new = NewHome {
        copy,
        segments: 1,
        redo_start: Lsn(7),
        next_id: 9,
        sweep: 3,
        clearance: LogPoint { lsn: Lsn(8), position: LogPosition(64), checksum: 9 },
        digest: 11,
        pages: None,
        redone: None,
        transaction_consistent: false,
        logged: true,
    };
    home.publish(new).unwrap();
    let published = *home.block();
    assert_eq!(*HomeFile::open(&*disk).unwrap().block(), published);
    assert_eq!((published.sequence, published.copy), (chosen.sequence + 1, Some(copy)));
}

/// A segment image of any contents: its slots are adjacent within it, or there is an error. The same holds after
/// recovery has changed them.
pub fn forged_image(data: &[u8]) {
    const SEED: u64 = 5;
    let mut script = Script::of(data);
    let mut bytes = vec![0; SEGMENT_BYTES];
    let used = if script.byte() < 200 { 64 + script.below(40) * 16 } else { script.number(3) as usize };
    // Mostly slots of some length; then any bytes over them.
    let mut at = 64;
    while at < used.min(SEGMENT_BYTES - 16) && script.byte() < 240 {
        let units = 2 + script.below(8);
        let flags = u64::from(script.byte() & 3) << 20;
        let word = units as u64 | u64::from(script.byte() & 1) << 11;
        bytes[at..at + 8].copy_from_slice(&(word << 24 | flags | u64::from(script.byte())).to_le_bytes());
        bytes[at + 8..at + 10].copy_from_slice(&(script.byte() as u16).to_le_bytes());
        at += units * 16;
    }
    let (from, length) = (script.below(1000), script.below(64));
    let contents = script.bytes(length);
    bytes[from..from + contents.len()].copy_from_slice(contents);
    if script.byte() < 250 && used <= SEGMENT_BYTES {
        let header = ImageHeader { heap: Some(HeapId(9)), segment: 0, used, sequence: 3 };
        image::seal(&mut bytes, &header, SEED);
    }
    bytes.truncate(if script.byte() < 250 { SEGMENT_BYTES } else { script.below(SEGMENT_BYTES) });
    let Ok(checked) = image::check(&mut bytes, SEED) else { return };
    let header = checked.header;
    assert!(header.used <= bytes.len());
    let segments = Segments::reserve(Arc::new(Budget::new(SEGMENT_BYTES as u64))).unwrap();
    let id = SegmentId(0);
    assert!(segments.adopt(id, HeapId(9)));
    segments.restore(id, &bytes[..header.used]);
    let mut end = 64;
    let mut body = Vec::new();
    let mut over = false;
    for slot in segments.slots(id) {
        assert!(!over, "an error is the last item");
        let Ok(slot) = slot else {
            over = true;
            continue;
        };
        assert_eq!(slot.0 as usize * 16, end, "slots lie side by side");
        end += segments.units(slot) * 16;
        assert!(end <= header.used, "and within the image");
        segments.settle_after_load(slot);
        assert!(segments.is_unlocked(slot));
        segments.read(slot, &mut body);
        assert!(body.len() <= segments.room(slot));
    }
    assert!(over || end == header.used, "all of it, or an error");
}
