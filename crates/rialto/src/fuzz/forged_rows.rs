//! Rows that no encoder wrote, under right checksums: in the log, in a backup copy, in a load file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::edit::{Files, disk_of, files_of};
use super::script::Script;
use super::tables::options;
use crate::checkpoint::home::{HomeBlock, HomeSlot, forge_digest, read_home};
use crate::checkpoint::image_sums::ImageSums;
use crate::commit::redo::{self, Change, RedoRecord};
use crate::io::{Disk, MemoryDisk};
use crate::log::{ForgedBlock, forge_log_file, recover};
use crate::recovery::FellBack;
use crate::recovery::check::{Severity, check};
use crate::row::{Column, ColumnType, Value};
use crate::store::Budget;
use crate::store::memory::image::{self, Checked, seed_of};
use crate::store::memory::load_file;
use crate::store::memory::segments::{RECORD_HEADER_BYTES, UNIT_BYTES};
use crate::store::memory::{SEGMENT_BYTES, SegmentId, Segments};
use crate::{Database, HeapId, Lsn, OpenError, TableDef};

/// Where the forged rows lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// In puts, patches and operations.
    Log,
    Backup,
    LoadFile,
}

pub(super) const SOURCES: [Source; 3] = [Source::Log, Source::Backup, Source::LoadFile];

/// A database with its rows in one of these places.
struct Base {
    files: Files,
    database: u128,
    /// The heaps of the tables that have the rows.
    heaps: Vec<HeapId>,
    /// The log's packets, from the first one, where there is no checkpoint.
    packets: Vec<Vec<u8>>,
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", ColumnType::Int4),
        Column::nullable("flag", ColumnType::Bool),
        Column::nullable("sum", ColumnType::Decimal { precision: 9, scale: 2 }),
        Column::new("code", ColumnType::Char(5)),
        Column::nullable("text", ColumnType::Text),
        Column::new("bytes", ColumnType::Bytes),
    ]
}

fn row(id: i32) -> Vec<Value> {
    let odd = id % 2 == 1;
    vec![
        Value::Int4(id),
        if odd { Value::Null } else { Value::Bool(id % 4 == 0) },
        if odd { Value::Decimal("12.34".parse().expect("a decimal")) } else { Value::Null },
        Value::Text(format!("c{id}")),
        if odd { Value::Text(format!("straße {id}")) } else { Value::Null },
        Value::Bytes(vec![id as u8; id as usize % 9]),
    ]
}

fn make(source: Source) -> Base {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let keyed = TableDef::new("keyed", columns()).with_primary_key(&["id"]);
    let named = TableDef::new("named", columns()).with_primary_key(&["code", "id"]);
    let numbered = TableDef::new("numbered", columns());
    for def in [keyed, named, numbered] {
        let fill = |tx: &mut crate::Transaction, table: &crate::Table, rows: Range<i32>| {
            rows.into_iter().try_for_each(|id| tx.insert(table, &row(id)))
        };
        let table = db
            .transact(|tx| {
                let table = tx.create_table(&def)?;
                tx.create_index(&def.name, &format!("{}_text", def.name), &["text", "sum"], false)?;
                if source == Source::LoadFile {
                    // The first 256 of them go into the packet.
                    fill(tx, &table, 0..256 + 20)?;
                }
                tx.table(&def.name)
            })
            .unwrap();
        if source != Source::LoadFile {
            db.transact(|tx| fill(tx, &table, 0..10)).unwrap();
            db.transact(|tx| fill(tx, &table, 10..20)).unwrap();
        }
        if source == Source::Log && def.name == "keyed" {
            for id in 0..20 {
                let values =
                    [(1, Value::Bool(true)), (2, Value::Decimal("-1.50".parse().expect("a decimal")))];
                assert!(db.transact(|tx| tx.update(&table, id, &values[..1 + id as usize % 2])).unwrap());
            }
        }
    }
    if source == Source::Backup {
        db.checkpoint().unwrap();
    }
    let heaps = ["keyed", "named", "numbered"].map(|name| db.table(name).unwrap().version().store.heap());
    db.close().unwrap();
    let files = files_of(&*disk);
    let shared: Arc<dyn Disk> = disk_of(&files);
    let home = read_home(&*shared).unwrap().1;
    let mut packets = Vec::new();
    if source != Source::Backup {
        let mut reader = recover(&shared, home.database_id, Lsn(1)).unwrap();
        while let Some(packet) = reader.next_packet().unwrap() {
            packets.push(packet.bytes.to_vec());
        }
    }
    assert!(check(&shared, 64 << 20, 1).unwrap().is_sound());
    Base { files, database: home.database_id, heaps: heaps.to_vec(), packets }
}

fn base(source: Source) -> &'static Base {
    static BASES: [OnceLock<Base>; 3] = [const { OnceLock::new() }; 3];
    BASES[source as usize].get_or_init(|| make(source))
}

/// The files with the rows of the source forged by `forge`, which is given each row's bytes, without a row number. In a
/// backup copy and a load file a row can only become shorter.
pub(super) fn forged(source: Source, mut forge: impl FnMut(&mut Vec<u8>)) -> Files {
    let base = base(source);
    let mut files = base.files.clone();
    match source {
        Source::Log => {
            let packets = base.packets.iter().map(|packet| (1, forged_packet(packet, &mut forge))).collect();
            replace_log(&mut files, base.database, packets);
        }
        Source::Backup | Source::LoadFile => {
            let prefix = if source == Source::Backup { "backup-" } else { "load-" };
            let mut digests = BTreeMap::new();
            for (name, bytes) in files.iter_mut().filter(|(name, _)| name.starts_with(prefix)) {
                let (from, seed) = match load_file::load_file_number(name) {
                    Some(number) => (load_file::HEADER_BYTES, load_file::seed(base.database, number)),
                    None => (0, seed_of(base.database)),
                };
                for at in (from..bytes.len()).step_by(SEGMENT_BYTES) {
                    forge_image(&mut bytes[at..], seed, base, &mut forge);
                }
                if let Some(number) = load_file::load_file_number(name) {
                    digests.insert(number, load_file::forge_digest(bytes, base.database, number));
                }
            }
            if source == Source::Backup {
                forge_digests(&mut files, base.database);
            } else {
                name_loads(&mut files, base, |number| Some(digests[&number]));
            }
        }
    }
    files
}

/// Replaces the log by a log of these packets.
fn replace_log(files: &mut Files, database: u128, packets: Vec<(u8, Vec<u8>)>) {
    files.retain(|name, _| !name.starts_with("log-"));
    files.insert("log-0000000001".to_owned(), log_of(database, packets));
}

/// Makes the log name load files by these digests, or by their numbers alone.
fn name_loads(files: &mut Files, base: &Base, digest: impl Fn(u64) -> Option<u64>) {
    let named = |packet: &Vec<u8>| {
        let mut out = Vec::new();
        for item in redo::read_with_bytes(packet) {
            match item.expect("the log is whole") {
                (RedoRecord { table, change: Change::Load { file, .. }, .. }, _) => {
                    redo::write_load(&mut out, table, file, digest(file));
                }
                (_, bytes) => out.extend_from_slice(bytes),
            }
        }
        (1, out)
    };
    replace_log(files, base.database, base.packets.iter().map(named).collect());
}

/// A database with bulk loads that the log names by their numbers alone.
#[cfg(test)]
pub(super) fn without_digests() -> Files {
    let base = base(Source::LoadFile);
    let mut files = base.files.clone();
    name_loads(&mut files, base, |_| None);
    files
}

/// Puts the digests of the present images into the home blocks.
fn forge_digests(files: &mut Files, database: u128) {
    let shared: Arc<dyn Disk> = disk_of(files);
    let (slots, _) = read_home(&*shared).unwrap();
    for (nth, slot) in slots.iter().enumerate() {
        let HomeSlot::Valid(HomeBlock { copy: Some(copy), segments, .. }) = *slot else { continue };
        let (sums, images) = (ImageSums::default(), &files[&image::backup_name(copy)]);
        for segment in 0..segments {
            let at = segment as usize * SEGMENT_BYTES;
            let mut bytes = images[at..images.len().min(at + SEGMENT_BYTES)].to_vec();
            sums.set(copy, segment, image::check(&mut bytes, seed_of(database)).unwrap().checksum);
        }
        let digest = sums.digest(copy, segments, seed_of(database));
        forge_digest(&mut files.get_mut("home").unwrap()[nth * 4096..][..4096], digest);
    }
}

/// Changes rows of user tables in the puts of a packet, and the bytes of patches. Every other patch becomes operations
/// with the same result: each field is set, and then zero is added to a field of eight bytes or more, unless that is
/// forged too.
fn forged_packet(packet: &[u8], forge: &mut impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    for item in redo::read_with_bytes(packet) {
        let (record, bytes) = item.expect("the log is whole");
        match record.change {
            Change::Put { row_number, row } if record.table.0 >= crate::catalog::system::FIRST_USER_ID => {
                let mut row = row.to_vec();
                forge(&mut row);
                let numbered = bytes[0] & 0x80 != 0;
                if numbered {
                    row.splice(0..0, row_number.to_le_bytes());
                }
                redo::write_put(&mut out, record.table, record.key, numbered, &row);
            }
            Change::Patch(patches) => {
                let at = out.len();
                redo::write_delete(&mut out, record.table, record.key);
                let operates = record.key.last().is_some_and(|byte| byte % 2 == 0);
                let is_wide = |bytes: &[u8]| operates && bytes.len() >= 8;
                out[at] = if operates { redo::OPERATE } else { redo::PATCH };
                let count: usize = patches.ranges().map(|(_, bytes)| 1 + usize::from(is_wide(bytes))).sum();
                redo::put_varint(&mut out, count as u64);
                for (offset, before) in patches.ranges() {
                    let mut bytes = before.to_vec();
                    forge(&mut bytes);
                    bytes.truncate(127);
                    redo::put_varint(&mut out, offset as u64);
                    redo::put_varint(&mut out, bytes.len() as u64);
                    out.extend_from_slice(&bytes);
                    if is_wide(before) {
                        let mut delta = vec![0; 8];
                        forge(&mut delta);
                        delta.resize(8, 0);
                        redo::put_varint(&mut out, offset as u64);
                        out.push(0x80 | 8);
                        redo::put_zigzag(&mut out, i64::from_le_bytes(delta.try_into().expect("eight")));
                    }
                }
            }
            _ => out.extend_from_slice(bytes),
        }
    }
    out
}

/// A log file of these packets, with their kinds, from place 1 on, each in a block.
pub(super) fn log_of(database: u128, packets: Vec<(u8, Vec<u8>)>) -> Vec<u8> {
    let capacity = 1 << 20;
    let mut packets = packets.into_iter();
    forge_log_file(database, capacity, (0, capacity as u64), |next| {
        let (kind, bytes) = packets.next()?;
        let mut payload = (bytes.len() as u32 | u32::from(kind) << 24).to_le_bytes().to_vec();
        payload.extend_from_slice(&bytes);
        Some(ForgedBlock { kind: 1, packets: 1, payload, ..next.clone() })
    })
}

/// Changes the rows of user tables in the image that begins at the start of `bytes`.
fn forge_image(bytes: &mut [u8], seed: u64, base: &Base, forge: &mut impl FnMut(&mut Vec<u8>)) {
    let length = bytes.len().min(SEGMENT_BYTES);
    let mut image = vec![0; SEGMENT_BYTES];
    image[..length].copy_from_slice(&bytes[..length]);
    let Ok(Checked { header, .. }) = image::check(&mut image[..length], seed) else { return };
    if !header.heap.is_some_and(|heap| base.heaps.contains(&heap)) {
        return;
    }
    let numbered = header.heap == base.heaps.last().copied();
    let segments = Segments::reserve(Arc::new(Budget::new(SEGMENT_BYTES as u64))).unwrap();
    assert!(segments.adopt(SegmentId(0), HeapId(1)));
    segments.restore(SegmentId(0), &image[..header.used]);
    for slot in segments.slots(SegmentId(0)) {
        let slot = slot.expect("the image is whole");
        if !segments.settle_after_load(slot) {
            continue;
        }
        let mut body = Vec::new();
        segments.read(slot, &mut body);
        let mut row = body.split_off(if numbered { 8 } else { 0 });
        let room = row.len();
        forge(&mut row);
        row.truncate(room);
        body.extend_from_slice(&row);
        let at = slot.0 as usize * UNIT_BYTES;
        image[at + 8..at + 10].copy_from_slice(&(body.len() as u16).to_le_bytes());
        image[at + RECORD_HEADER_BYTES..][..body.len()].copy_from_slice(&body);
    }
    let written = image::seal(&mut image, &header, seed).bytes.len().min(length);
    bytes[..written].copy_from_slice(&image[..written]);
}

/// Opens the files. Either the database opens, with valid rows and indexes that lead to them; or the error says what is
/// corrupt, even if an older copy could stand in for it.
pub(super) fn open(files: &Files) -> Result<(), OpenError> {
    let opened = Database::open_on(disk_of(files), options()).and_then(|db| {
        let fell_back = db.recovery().and_then(|recovery| recovery.fell_back.clone());
        db.close().unwrap();
        match fell_back {
            Some(FellBack { file, offset, what, .. }) => Err(OpenError::Corrupt { file, offset, what }),
            None => Ok(()),
        }
    });
    let shared: Arc<dyn Disk> = disk_of(files);
    let report = check(&shared, 64 << 20, 1).unwrap();
    // Recovery accepts that, see `Nulls::OverAnything`.
    let harmless = |what: &str| what.contains("under a NULL");
    let sound =
        report.findings.iter().all(|found| found.severity != Severity::Damage || harmless(&found.what));
    assert!(
        if opened.is_ok() { sound } else { !report.is_sound() },
        "{opened:?}, and a check says: {report}"
    );
    opened
}

/// Rows of any bytes under right checksums: the database opens if they happen to be rows, or an error says which is
/// none.
pub fn forged_rows(data: &[u8]) {
    let mut script = Script::of(data);
    let source = SOURCES[script.below(3)];
    let chosen = script.below(60);
    let mut nth = 0;
    let files = forged(source, |row| {
        let is_it = nth == chosen;
        nth += 1;
        if is_it {
            mutate(row, &mut script);
        }
    });
    match open(&files) {
        Ok(()) => {}
        Err(OpenError::Corrupt { file, what, .. }) => assert!(!file.is_empty() && !what.is_empty()),
        Err(error) => panic!("expected Corrupt, found {error:?}"),
    }
}

pub(super) fn mutate(row: &mut Vec<u8>, script: &mut Script<'_>) {
    for _ in 0..1 + script.below(3) {
        let at = script.below(row.len().max(1));
        match script.byte() % 5 {
            0 => row.truncate(at),
            1 => row.extend_from_slice(script.bytes(at)),
            2 if at < row.len() => row[at] = script.byte(),
            3 if at < row.len() => row[at] ^= 1 << (script.byte() % 8),
            _ if at + 2 <= row.len() => {
                row[at..at + 2].copy_from_slice(&(script.number(2) as u16).to_le_bytes())
            }
            _ => {}
        }
    }
}
