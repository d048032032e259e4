//! Damaged log files, and forged ones.

use std::sync::{Arc, OnceLock};

use super::edit::{Files, disk_of, edit, files_of};
use super::script::Script;
use crate::io::{Disk, MemoryDisk};
use crate::log::{
    Durability, ForgedBlock, Log, LogEnd, LogOptions, LogThreads, PacketKind, Patience, forge_log_file,
    log_file_of, recover,
};
use crate::{Error, Lsn, Result};

const DATABASE: u128 = 0x1234_5678_9abc_def0_1122_3344_5566_7788;
const FILE_HEADER: u64 = 4096;

fn options() -> LogOptions {
    LogOptions {
        first_file_bytes: 64 << 10,
        file_bytes: 128 << 10,
        ring_bytes: 256 << 10,
        packet_slots: 16,
        threads: LogThreads::None,
        ..LogOptions::default()
    }
}

fn packet(lsn: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64).wrapping_mul(lsn ^ 0x9e37) as u8 ^ lsn as u8).collect()
}

fn commit(log: &Log, length: usize) -> Lsn {
    let mut slot = log.borrow_packet().unwrap();
    slot.bytes_mut().extend_from_slice(&packet(log.place().0 + 1, length));
    log.reserve(&mut slot, 0).unwrap();
    let lsn = log.push(&mut slot, PacketKind::Commit);
    log.applied(slot);
    lsn
}

/// A log of two lives in several files.
struct Base {
    files: Files,
    /// The files at the end of the first life.
    earlier: Files,
    /// Packet lengths by place, from 1.
    lengths: Vec<usize>,
    /// The blocks after this position prove that everything before it was durable.
    proven: u64,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let disk = MemoryDisk::new();
        let shared: Arc<dyn Disk> = disk.clone();
        let mut lengths = Vec::new();
        let mut log = Log::create(&shared, DATABASE, &options()).unwrap();
        let mut earlier = Files::new();
        let mut proven = 0;
        for life in 0..2 {
            for length in [0, 1, 300, 5_000, 90_000, 40, 7_000, 200, 200, 60_000, 30, 900] {
                proven = log.durable_bytes().0;
                let lsn = commit(&log, length + life);
                lengths.push(length + life);
                // Groups of one packet and of two.
                if lsn.0 % 3 != 1 {
                    log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
                }
            }
            log.close().unwrap();
            if life == 0 {
                drop(log);
                earlier = files_of(&*disk);
                log = Log::open(&shared, DATABASE, &options(), read(&shared, 1).unwrap().1).unwrap();
            }
        }
        let files = files_of(&*disk);
        assert_eq!(read(&shared, 1).unwrap().0.len(), lengths.len());
        assert!(files.keys().filter(|name| log_file_of(name).is_some()).count() >= 3, "several log files");
        Base { files, earlier, lengths, proven }
    })
}

type Packets = Vec<(u64, Vec<u8>)>;

fn read(disk: &Arc<dyn Disk>, from: u64) -> Result<(Packets, LogEnd)> {
    let mut reader = recover(disk, DATABASE, Lsn(from))?;
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        packets.push((packet.lsn.0, packet.bytes.to_vec()));
    }
    Ok((packets, reader.finish()?))
}

/// Checks that the error is about a log file, and about a place in it.
fn is_about_a_log_file(error: &Error, files: &Files) {
    let Error::Corrupt { file, offset, what } = error else { panic!("expected Corrupt, found {error}") };
    assert!(log_file_of(file).is_some() && !what.is_empty(), "{error}");
    let length = files.get(file).map_or(0, |bytes| bytes.len() as u64);
    assert!(*offset <= length.max(FILE_HEADER), "{error}: the file has {length} bytes");
}

/// Checks that a second reading gives the same (I8), and that the log goes on after what was read.
fn goes_on(disk: &Arc<dyn Disk>, from: u64, packets: &Packets, end: LogEnd) {
    let (again, again_end) = read(disk, from).unwrap();
    assert_eq!((&again, again_end.position()), (packets, end.position()), "I8");
    let last = end.lsn().0;
    let log = Log::open(disk, DATABASE, &options(), end).unwrap();
    assert_eq!(commit(&log, 100), Lsn(last + 1));
    log.close().unwrap();
    drop(log);
    let (again, _) = read(disk, from).unwrap();
    let mut expected = packets.clone();
    // A log that ends before the redo start goes on there, too; recovery refuses it, by the clearance.
    expected.extend((last + 1 >= from).then(|| (last + 1, packet(last + 1, 100))));
    assert!(again == expected, "what recovery saw stays");
}

/// Edits a valid log: a prefix of its packets is read, or an error says where it is damaged. Nothing that a later whole
/// block proves to have been durable is left out silently (I4).
pub fn log_files(data: &[u8]) {
    let base = base();
    let mut script = Script::of(data);
    let from = if script.byte().is_multiple_of(2) { 1 } else { 14 };
    let mut files = base.files.clone();
    let edits = edit(&mut files, &base.earlier, &mut script);
    let disk: Arc<dyn Disk> = disk_of(&files);
    match read(&disk, from) {
        Err(error) => {
            is_about_a_log_file(&error, &files);
            assert!(!edits.is_empty(), "{error}");
        }
        Ok((packets, end)) => {
            for (at, (lsn, bytes)) in packets.iter().enumerate() {
                assert_eq!(*lsn, from + at as u64, "dense: {edits:?}");
                let length = base.lengths.get(*lsn as usize - 1).expect("no place that was never taken");
                assert_eq!(*bytes, packet(*lsn, *length), "place {lsn}: {edits:?}");
            }
            let complete = packets.len() as u64 + from - 1 == base.lengths.len() as u64;
            assert!(complete || !only_before_proven(base, &files), "durable packets left out: {edits:?}");
            goes_on(&disk, from, &packets, end);
        }
    }
}

/// Whether the files differ from the base's only in stream bytes that its last blocks prove to have been durable.
fn only_before_proven(base: &Base, files: &Files) -> bool {
    base.files.iter().all(|(name, before)| {
        let Some(after) = files.get(name).filter(|after| after.len() == before.len()) else { return false };
        let start = u64::from_le_bytes(before[40..48].try_into().unwrap());
        let last = (0..before.len()).rfind(|&at| before[at] != after[at]).map_or(0, |at| at as u64);
        before[..FILE_HEADER as usize] == after[..FILE_HEADER as usize]
            && (last == 0 || start + last - FILE_HEADER < base.proven)
    })
}

/// Blocks with right checksums and any contents: they are read in the order of their places, or there is an error; and
/// a log that can be read can also go on.
pub fn forged_log(data: &[u8]) {
    let mut script = Script::of(data);
    let mut files = Files::new();
    let name = "log-0000000001".to_owned();
    let capacity = 64 << 10;
    let claimed = match script.byte() {
        0..248 => (0, capacity as u64),
        _ => (
            script.number(8) & !0xfff,
            if script.byte() < 128 { capacity as u64 } else { script.number(8) & !0xfff },
        ),
    };
    files.insert(name, forge_log_file(DATABASE, capacity, claimed, |next| forged_block(&mut script, next)));
    let disk: Arc<dyn Disk> = disk_of(&files);
    for from in [1, 3] {
        match read(&disk, from) {
            Err(error) => is_about_a_log_file(&error, &files),
            Ok((packets, end)) => {
                assert!(packets.iter().zip(from..).all(|((lsn, _), expected)| *lsn == expected), "dense");
                if from == 1 {
                    goes_on(&(disk_of(&files) as Arc<dyn Disk>), from, &packets, end);
                }
            }
        }
    }
}

/// Mostly the block that comes next; now and then one of its numbers is another.
fn forged_block(script: &mut Script<'_>, next: &ForgedBlock) -> Option<ForgedBlock> {
    if script.is_over() {
        return None;
    }
    let mut block = ForgedBlock { kind: 1 + script.byte() % 4, ..next.clone() };
    let odd = script.byte();
    let other = |script: &mut Script<'_>, right: u64| match script.byte() % 4 {
        0 => right.wrapping_add(1),
        1 => right.wrapping_sub(1),
        2 => script.number(2),
        _ => script.number(8),
    };
    match block.kind {
        1 => {
            for _ in 0..script.byte() % 4 {
                let length = script.below(40);
                let bytes = script.bytes(length);
                block.packets += 1;
                block.payload.extend_from_slice(&(bytes.len() as u32 | 1 << 24).to_le_bytes());
                block.payload.extend_from_slice(bytes);
            }
        }
        2 => {
            let length = script.below(40);
            let bytes = script.bytes(length);
            let (before, whole) = (next.part_before, next.part_before + bytes.len() as u32);
            let whole = if script.byte() < 128 { whole } else { whole + 10 };
            let mut numbers = [bytes.len() as u32, before, whole, 0];
            if odd & 64 != 0 {
                let at = script.below(3);
                numbers[at] = other(script, numbers[at].into()) as u32;
            }
            block.inside = before > 0;
            block.packet_kind = 1;
            block.packets = u32::from(before + bytes.len() as u32 == whole);
            block.part_before = if block.packets == 1 { 0 } else { before + bytes.len() as u32 };
            numbers.iter().for_each(|number| block.payload.extend_from_slice(&number.to_le_bytes()));
            block.payload.extend_from_slice(bytes);
        }
        _ => block.payload.resize(script.below(600), 0),
    }
    if odd & 1 != 0 && script.byte() < 128 {
        block.packets = other(script, block.packets.into()) as u32;
    }
    if odd & 2 != 0 && script.byte() < 64 {
        block.first_lsn = other(script, block.first_lsn);
    }
    if odd & 4 != 0 {
        let page = block.position / 4096 * 4096;
        block.durable = if script.byte() < 192 { page } else { other(script, page) };
    }
    if odd & 8 != 0 && script.byte() < 64 {
        block.inside = !block.inside;
    }
    if odd & 16 != 0 {
        // An opening increments it; no log is opened 2^31 times.
        block.incarnation = (other(script, block.incarnation.into()) as u32) & 0x7fff_ffff;
    }
    if odd & 32 != 0 {
        block.packet_kind = script.byte() % 6;
        if let Some(byte) = block.payload.get_mut(3) {
            *byte = script.byte() % 6;
        }
    }
    Some(block)
}
