//! The estimate of the log's extent, made without reading it, is near what reading it finds.

use super::super::block;
use super::super::extent::{self, LogExtent};
use super::*;

/// The estimated extent, and the bytes and the last place that reading finds.
fn both(disk: &Arc<dyn Disk>, from: u64) -> (LogExtent, LogExtent) {
    let reader = recover(disk, DATABASE, Lsn(from)).unwrap();
    let (told, start) = (reader.extent().unwrap(), reader.position());
    let end = reader.finish().unwrap();
    (told, LogExtent { bytes: end.position().0 - start, lsn: end.lsn().0 })
}

#[test]
fn the_end_is_found_without_reading() {
    for seed in 1..=12u64 {
        let mut random = crate::io::Random::new(seed);
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let mut log = Log::create(&disk, DATABASE, &alone()).unwrap();
        let (mut lsn, mut middle) = (0, 1);
        let (told, found) = both(&disk, 1);
        assert_eq!((told.lsn, told.bytes), (0, found.bytes), "an empty log");
        for _ in 0..5 {
            for _ in 0..1 + random.below(60) {
                lsn = commit(&log, &packet(lsn + 1, random.below(30_000) as usize)).0;
                log.wait(Lsn(lsn), Durability::Disk, &Patience::default()).unwrap();
                middle = if random.chance(1, 20) { lsn } else { middle };
            }
            // As after the death of the process: the ring is of this boot.
            let (told, found) = both(&disk, middle);
            assert_eq!(told.lsn, found.lsn, "seed {seed}, from {middle}");
            assert!(
                told.bytes >= found.bytes && told.bytes <= found.bytes + PAGE as u64,
                "{told:?} {found:?}"
            );
            log.close().unwrap();
            drop(log);
            // Freed files are used again: the bytes after the log's end in them are of an earlier life.
            log = Log::open(&disk, DATABASE, &alone(), read_all(&disk, 1.max(middle)).1).unwrap();
            log.free_before(Lsn(middle)).unwrap();
            let (told, found) = both(&disk, middle);
            assert_eq!(told.lsn, found.lsn, "seed {seed}, reopened");
            assert!(told.bytes.abs_diff(found.bytes) <= PAGE as u64, "{told:?} {found:?}");
            // Without the ring, as after a crash of the machine.
            let without: Arc<dyn Disk> = MemoryDisk::new();
            for name in disk.list().unwrap().into_iter().filter(|name| files::sequence(name).is_some()) {
                let from = disk.open(&name, Open::ReadOnly, Caching::Buffered).unwrap();
                let mut bytes = vec![0; from.length().unwrap() as usize];
                from.read_at(&mut bytes, 0).unwrap();
                let to = without.open(&name, Open::Create, Caching::Buffered).unwrap();
                to.write_at(&bytes, 0).unwrap();
            }
            let (told, found) = both(&without, middle);
            assert_eq!((told.bytes, told.lsn), (found.bytes, found.lsn), "seed {seed}, without its ring");
        }
    }
}

/// The bytes after the log's end may claim anything: bytes that claim places which no log has are no block, and no
/// number overflows.
#[test]
fn bytes_that_claim_places_beyond_the_last_are_no_block() {
    let mut bytes = vec![0; 128];
    let header = block::BlockHeader {
        kind: block::BlockKind::Group,
        packet_kind: 0,
        inside: false,
        packets: 2,
        position: 4096,
        first_lsn: 7,
        durable: 0,
        previous: 0,
        incarnation: 1,
        time_ms: 0,
    };
    block::seal(&mut bytes, &header, 0);
    let claimed = |bytes: &[u8]| extent::last_claimed(bytes, 4096, 1 << 20);
    assert_eq!(claimed(&bytes), Some((4096 + 128, 8)));
    for first in [Lsn::MAX.0, u64::MAX - 2, u64::MAX] {
        bytes[32..40].copy_from_slice(&first.to_le_bytes());
        assert_eq!(claimed(&bytes), None, "{first}");
    }
}
