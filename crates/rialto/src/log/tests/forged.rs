//! Blocks and files that no log has written, with right checksums: the fuzzers' finds.

use super::*;

/// A log of these forged blocks, read to its end.
fn read_forged(forged: &[ForgedBlock]) -> Result<LogEnd> {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let mut blocks = forged.iter();
    let bytes = forge_log_file(DATABASE, 64 << 10, (0, 64 << 10), |next| {
        Some(ForgedBlock { position: next.position, ..blocks.next()?.clone() })
    });
    disk.open(&files::name(1), Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
    // A block inside a packet begins with the place after it.
    let from = Lsn(1 + u64::from(forged[0].inside));
    recover(&disk, DATABASE, from)?.finish()
}

fn pad(first_lsn: u64) -> ForgedBlock {
    ForgedBlock {
        kind: 3,
        packet_kind: 0,
        inside: false,
        packets: 0,
        position: 0,
        first_lsn,
        durable: 0,
        incarnation: 1,
        payload: Vec::new(),
        part_before: 0,
    }
}

/// Found by `fuzz::forged_log`: the place before the first was computed below zero.
#[test]
fn a_block_of_a_place_that_no_log_has_is_no_block() {
    assert_eq!(read_forged(&[pad(1)]).unwrap().lsn(), Lsn(0));
    for place in [0, Lsn::MAX.0 + 1, u64::MAX] {
        let error = read_forged(&[pad(place)]).unwrap_err().to_string();
        assert!(error.contains("no file holds a block"), "{error}");
    }
    let many = ForgedBlock { kind: 1, packets: u32::MAX, first_lsn: Lsn::MAX.0 - 5, ..pad(1) };
    read_forged(&[many]).unwrap_err();
}

/// Found by `fuzz::forged_log`: the reader made as many zeros as the part claimed to be before it, up to 4 GiB.
#[test]
fn a_part_of_a_packet_longer_than_any_is_malformed() {
    let numbers = [0, 0xffff_ff00, 0xffff_fff0, 0u32];
    let payload = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let part = ForgedBlock { kind: 2, packet_kind: 1, inside: true, payload, ..pad(1) };
    let error = read_forged(&[part]).unwrap_err().to_string();
    assert!(error.contains("the length of a packet in parts makes no sense"), "{error}");
}

/// Found by `fuzz::forged_log`: the reader returned as many empty packets as the pad claimed, up to 2^32.
#[test]
fn a_pad_has_no_packets() {
    let error = read_forged(&[ForgedBlock { packets: 3, ..pad(1) }]).unwrap_err().to_string();
    assert!(error.contains("a pad with packets makes no sense"), "{error}");
}

/// Found by `fuzz::forged_log`: the computed end of the file was past 2^64.
#[test]
fn a_log_file_of_positions_that_no_log_has_is_corrupt() {
    for (start, capacity) in [(!4095, 64 << 10), (0, !4095)] {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let bytes = forge_log_file(DATABASE, 64 << 10, (start, capacity), |_| None);
        disk.open(&files::name(1), Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
        let error = recovery_error(&disk, 1).to_string();
        assert!(error.contains("which no log has"), "{error}");
    }
}
