//! The home file, damaged and under crashes.

use super::*;
use crate::io::{FaultKind, FaultyDisk, MemoryDisk, Random};
use crate::log::PacketKind;

fn next(home: &HomeFile) -> NewHome {
    let sequence = home.next_sequence();
    let copy = home.block().copy.map_or(Copy::Ping, Copy::other);
    let redo_start = Lsn(sequence * 10);
    let (lsn, position) = (Lsn(sequence * 10 + 5), LogPosition(sequence * 4096));
    let clearance = LogPoint { lsn, position, checksum: !sequence };
    let redone = Lsn(sequence * 10 + 3);
    let (segments, next_id, sweep) = (sequence as u32, 100 + sequence as u32, 2 * sequence as u32);
    NewHome {
        copy,
        segments,
        redo_start,
        next_id,
        sweep,
        clearance,
        transaction_consistent: sequence.is_multiple_of(2),
        logged: sequence.is_multiple_of(3),
        digest: sequence * 7,
        pages: None,
        redone: sequence.is_multiple_of(5).then_some(redone),
    }
}

fn checkpoint(home: &mut HomeFile) -> DiskResult<()> {
    home.retire_other()?;
    home.publish(next(home))
}

fn damage(disk: &dyn Disk, slot: usize) {
    let file = disk.open(HOME_FILE, Open::Existing, Caching::Buffered).unwrap();
    let mut bytes = [0; 512];
    file.read_at(&mut bytes, (slot * BLOCK_BYTES) as u64).unwrap();
    bytes[33] ^= 0x40;
    file.write_at(&bytes, (slot * BLOCK_BYTES) as u64).unwrap();
}

fn opened(disk: &dyn Disk) -> Result<u64, HomeError> {
    HomeFile::open(disk).map(|home| home.block().sequence)
}

fn offset_of_corruption(disk: &dyn Disk) -> u64 {
    match opened(disk) {
        Err(HomeError::Failed(Error::Corrupt { file, offset, .. })) => {
            assert_eq!(file, HOME_FILE);
            offset
        }
        other => panic!("expected corruption, found {other:?}"),
    }
}

#[test]
fn blocks_are_written_in_turn_and_the_newer_one_counts() {
    let disk = MemoryDisk::new();
    let mut home = HomeFile::create(&*disk, 77, 64).unwrap();
    assert_eq!((home.block().sequence, home.block().copy, home.block().redo_start), (1, None, Lsn(1)));
    for round in 2..8 {
        checkpoint(&mut home).unwrap();
        home = HomeFile::open(&*disk).unwrap();
        let block = *home.block();
        assert_eq!((block.sequence, block.database_id, block.redo_start), (round, 77, Lsn(round * 10)));
        assert_eq!((block.sweep, home.last_sweep()), (2 * round as u32, 2 * round as u32));
        assert_eq!(block.copy, Some(if round % 2 == 0 { Copy::Ping } else { Copy::Pong }));
        assert!(!disk.list().unwrap().contains(&NEW_HOME_FILE.to_owned()));
    }
}

/// With three copies both blocks are in force while the next checkpoint is made: the log goes through the points of
/// both.
#[test]
fn of_three_copies_the_log_of_both_blocks_is_needed() {
    let disk = MemoryDisk::new();
    let mut home = HomeFile::create(&*disk, 77, 64).unwrap();
    for sequence in 2..5 {
        home.make_way(3).unwrap();
        home.publish(NewHome { copy: home.next_copy(3), ..next(&home) }).unwrap();
        assert_eq!(home.block().sequence, sequence);
    }
    let of = |sequence: u64| LogNeeded { from: Lsn(sequence * 10), position: LogPosition(sequence * 4096) };
    assert_eq!(home.make_way(3).unwrap(), of(3));
    assert_eq!(home.make_way(2).unwrap(), of(4), "the older one is retired");
}

#[test]
fn a_damaged_newer_block_falls_back_only_to_one_that_is_in_force() {
    let disk = MemoryDisk::new();
    let mut home = HomeFile::create(&*disk, 77, 64).unwrap();
    // Fresh: the other block is blank.
    assert_eq!(opened(&*disk).unwrap(), 1);
    damage(&*disk, 0);
    assert_eq!(offset_of_corruption(&*disk), 0);
    damage(&*disk, 0);

    // After a checkpoint both blocks are in force.
    checkpoint(&mut home).unwrap();
    assert_eq!(opened(&*disk).unwrap(), 2);
    damage(&*disk, 1);
    assert_eq!(opened(&*disk).unwrap(), 1);
    damage(&*disk, 1);
    damage(&*disk, 0);
    assert_eq!(opened(&*disk).unwrap(), 2);
    damage(&*disk, 0);

    // During the next one the older block is retired.
    home.retire_other().unwrap();
    assert_eq!(opened(&*disk).unwrap(), 2);
    damage(&*disk, 1);
    assert_eq!(offset_of_corruption(&*disk), BLOCK_BYTES as u64);
    damage(&*disk, 1);
    damage(&*disk, 0);
    assert_eq!(opened(&*disk).unwrap(), 2, "a torn write of the block that is being written");
    damage(&*disk, 1);
    assert_eq!(offset_of_corruption(&*disk), 0);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let block = HomeBlock {
        database_id: 1 << 100,
        sequence: 9,
        copy: Some(Copy::Pong),
        segments: 12,
        redo_start: Lsn(1 << 40),
        next_id: 99,
        sweep: 3,
        clearance: Lsn(1 << 41),
        point: Some(LogPoint { lsn: Lsn(1 << 41), position: LogPosition(1 << 50), checksum: 1 << 60 }),
        transaction_consistent: true,
        logged: false,
        names_held: true,
        digest: 5,
        pages: Some(HomePages { page_bytes: 16_384, root: 1 << 63 | 5, words: 700, place: Lsn(1 << 39) }),
        redone: Some(Lsn(1 << 38)),
        retired: false,
    };
    let good = block.encode();
    assert_eq!(HomeBlock::decode(&good).unwrap(), HomeSlot::Valid(block));
    for at in 0..BLOCK_BYTES {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(matches!(HomeBlock::decode(&bad).unwrap(), HomeSlot::Damaged(_)), "byte {at}");
    }
}

/// Of the packets past the redo start, a copy that has packets whole has those that name its sweep or an earlier one.
#[test]
fn only_a_transaction_consistent_copy_has_packets_whole() {
    let packet = |held_by| Packet { lsn: Lsn(9), kind: PacketKind::Commit, bytes: &[], held_by };
    let disk = MemoryDisk::new();
    let home = HomeFile::create(&*disk, 1, 100).unwrap();
    for (transaction_consistent, held) in [(true, [false, true, true, false]), (false, [false; 4])] {
        let block = HomeBlock { sweep: 3, transaction_consistent, ..*home.block() };
        assert_eq!([None, Some(2), Some(3), Some(4)].map(|held_by| block.holds(&packet(held_by))), held);
    }
}

/// Found by `fuzz::forged_home`: retiring the block before number 0 went below zero.
#[test]
fn a_block_whose_number_no_checkpoint_has_is_damaged() {
    let block = HomeBlock {
        database_id: 77,
        sequence: 1,
        copy: None,
        segments: 0,
        redo_start: Lsn(1),
        next_id: 64,
        sweep: 0,
        clearance: Lsn::ZERO,
        point: None,
        transaction_consistent: false,
        logged: true,
        names_held: false,
        digest: 0,
        pages: None,
        redone: None,
        retired: false,
    };
    let decoded =
        |sequence, retired| HomeBlock::decode(&HomeBlock { sequence, retired, ..block }.encode()).unwrap();
    assert!(matches!(decoded(1, false), HomeSlot::Valid(_)));
    assert!(matches!(decoded(0, true), HomeSlot::Valid(_)), "a damaged block before the first one, retired");
    assert!(matches!(decoded(0, false), HomeSlot::Damaged(_)));
    assert!(matches!(decoded(u64::MAX, false), HomeSlot::Damaged(_)));
}

/// In a copy that is not transaction-consistent, packets after its clearance are whole.
#[test]
fn calls_are_run_on_copies_that_have_no_part_of_them() {
    let disk = MemoryDisk::new();
    let mut home = HomeFile::create(&*disk, 77, 64).unwrap();
    for consistent in [true, false] {
        checkpoint(&mut home).unwrap();
        let block = home.block();
        assert_eq!((block.transaction_consistent, block.names_held), (consistent, true));
        let clearance = block.clearance;
        let fits = [block.redo_start, clearance, clearance.next()].map(|lsn| block.fits_call(lsn));
        assert_eq!(fits, [consistent, consistent, true]);
    }
}

#[test]
fn another_format_is_an_error_of_its_own() {
    let disk = MemoryDisk::new();
    let home = HomeFile::create(&*disk, 77, 64).unwrap();
    let supported = FORMAT_VERSION;
    for (found, expected) in [
        (FORMAT_VERSION + 3, HomeError::NewerVersion { found: FORMAT_VERSION + 3, supported }),
        (FORMAT_VERSION - 1, HomeError::OlderVersion { found: FORMAT_VERSION - 1, supported }),
    ] {
        let mut bytes = home.block().encode();
        bytes[8..12].copy_from_slice(&found.to_le_bytes());
        let checksum = xxh3_64(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        home.file.write_at(&bytes, 0).unwrap();
        assert_eq!(opened(&*disk).unwrap_err(), expected);
    }
}

#[test]
fn a_file_that_was_cut_is_damage() {
    let disk = MemoryDisk::new();
    let mut home = HomeFile::create(&*disk, 77, 64).unwrap();
    checkpoint(&mut home).unwrap();
    home.file.set_length(5000).unwrap();
    assert_eq!(opened(&*disk).unwrap(), 1);
    home.file.set_length(100).unwrap();
    assert_eq!(offset_of_corruption(&*disk), 0);
}

#[test]
fn blocks_of_two_databases_are_corruption() {
    let disk = MemoryDisk::new();
    let mut home = HomeFile::create(&*disk, 77, 64).unwrap();
    checkpoint(&mut home).unwrap();
    let foreign = HomeBlock { database_id: 78, ..*home.block() };
    home.write(0, &foreign).unwrap();
    assert_eq!(offset_of_corruption(&*disk), BLOCK_BYTES as u64);
}

/// A crash at any step leaves the last checkpoint that was published, or the one that was being published; and the
/// checkpoint found is never one that was retired durably.
#[test]
fn a_crash_at_any_step_finds_a_checkpoint_that_is_whole() {
    let base = Random::seed_from_environment();
    for crash_at in 1..60 {
        for round in 0..4 {
            let disk = FaultyDisk::new(base ^ (crash_at << 8 | round));
            disk.crash_at(crash_at);
            let mut published = 0;
            let mut retired = 0;
            let _: DiskResult<()> = (|| {
                let mut home = HomeFile::create(&*disk, 5, 64)?;
                published = 1;
                for _ in 0..10 {
                    home.retire_other()?;
                    retired = home.block().sequence - 1;
                    home.publish(next(&home))?;
                    published = home.block().sequence;
                }
                Ok(())
            })();
            if !disk.is_down() {
                disk.crash();
            }
            let disk = disk.restart();
            if !HomeFile::exists(&*disk).unwrap() {
                assert_eq!(published, 0, "seed {base} step {crash_at}");
                continue;
            }
            let found = opened(&*disk).unwrap();
            assert!(found > retired && (found == published || found == published + 1), "seed {base}");
        }
    }
}

/// A failed write of the home block may have reached the disk: the next checkpoint must not overwrite what it names
/// before it is retired.
#[test]
fn after_a_failed_publication_the_block_is_retired_before_it_is_used_again() {
    for kind in [FaultKind::Write, FaultKind::Sync] {
        let disk = FaultyDisk::new(Random::seed_from_environment());
        let mut home = HomeFile::create(&*disk, 5, 64).unwrap();
        checkpoint(&mut home).unwrap();
        home.retire_other().unwrap();
        disk.fail(kind, HOME_FILE, 0);
        home.publish(next(&home)).unwrap_err();
        assert_eq!(home.block().sequence, 2);
        home.retire_other().unwrap();
        disk.crash();
        let disk = disk.restart();
        assert_eq!(opened(&*disk).unwrap(), 2);
    }
}
