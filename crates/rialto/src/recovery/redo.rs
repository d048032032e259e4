//! [`Redo`]: the log's packets onto the tables, in parallel by key, with the catalog kept in step.
//!
//! The reader parses packets and hands their records out in batches: a record's table and key say which worker gets
//! it, so all records of a row are redone by one thread in their order. Records for the system tables are redone by the
//! reader itself. After them it waits until the workers have caught up (a *barrier*), and brings the tables in line with
//! what the system tables say then, before it goes on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Recovery;
use super::calls::Calls;
use super::catalog::{self, Described, is_system, senseless};
use super::load::Loaded;
use super::progress::{Progress, Step, bytes};
use super::replay_calls::Replay;
use super::table::{Builder, RedoTable, Scratch};
use crate::catalog::system::{HEAPS, INDEXES};
use crate::catalog::{Description, TableVersion};
use crate::checkpoint::LoadFile;
use crate::checkpoint::home::HomeBlock;
use crate::checkpoint::load_file::{LoadFileReader, load_file_name};
use crate::core::first_row_number;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, Lsn, TableId};
use crate::io::Disk;
use crate::log::{LogReader, Packet, PacketKind};
use crate::row::{self, Key, Nulls};
use crate::store::memory::{SEGMENT_BYTES, SegmentId};
use crate::txn::redo::{self, Change, RedoRecord};

/// Bytes of a batch.
const BATCH_BYTES: usize = 64 << 10;
/// How it goes on is told, if it is time, after so many packets or rows of a load file.
const TELL_EVERY: u64 = 1024;
/// Batches on their way to one worker.
const BATCHES_MAX: usize = 8;

/// The tables, and the log on its way onto them.
pub(super) struct Redo<'a> {
    disk: &'a dyn Disk,
    pub(super) database_id: u128,
    pub(super) builder: Builder<'a>,
    /// What becomes of calls, and the home block that says what the copy has of them.
    pub(super) calls: Calls<'a>,
    pub(super) home: HomeBlock,
    /// The replay of calls, while it goes on.
    pub(super) replay: Option<Replay>,
    /// Calls that replays have run.
    pub replayed: u64,
    /// Where recovery was left at a call, and how many packets were left from there on.
    pub left: Option<(Lsn, u64)>,
    progress: &'a Progress<'a>,
    /// Bytes of log read when it was last looked.
    log_read: u64,
    pub(super) system: Vec<Arc<RedoTable>>,
    pub(super) tables: HashMap<TableId, Arc<RedoTable>>,
    /// Segments of heaps that no table has.
    waiting: HashMap<HeapId, Vec<SegmentId>>,
    /// A system table has changed since the tables were brought in line with them.
    changed: bool,
    /// Tables whose row in `rialto_heaps` was put since then.
    rehoused: HashSet<TableId>,
    /// In the midst of a packet: the rows of `rialto_indexes` that it has put so far.
    keyed: Option<HashSet<IndexId>>,
    pub next_id: u32,
    pub loads: Vec<LoadFile>,
    pub packets: u64,
    pub records: u64,
    /// Packets of which only the place is there.
    pub unlogged: u64,
    /// Bytes of load files redone, and what that took.
    pub bulk_bytes: u64,
    pub bulk_time: Duration,
}

impl<'a> Redo<'a> {
    /// The tables of the backup copy.
    pub fn new(
        recovery: &Recovery<'a>,
        home: &HomeBlock,
        loaded: Loaded,
        progress: &'a Progress<'a>,
    ) -> Result<Redo<'a>> {
        let builder = Builder {
            segments: recovery.segments,
            nodes: recovery.nodes,
            threads: recovery.threads.max(1),
            copy: home.copy,
            progress,
        };
        progress.begin(Step::Primary, (loaded.segments.len() * SEGMENT_BYTES) as u64);
        let mut waiting: HashMap<HeapId, Vec<SegmentId>> = HashMap::new();
        for (id, heap) in loaded.segments {
            waiting.entry(heap).or_default().push(id);
        }
        let highest_heap = waiting.keys().map(|heap| heap.0).max().unwrap_or(0);
        let mut system = Vec::new();
        for description in Description::of_system_tables() {
            let segments = waiting.remove(&description.heap).unwrap_or_default();
            let described = Described { description, since: Lsn::ZERO };
            system.push(Arc::new(builder.build(described, &segments, None)?));
        }
        let mut redo = Redo {
            disk: &**recovery.disk,
            database_id: home.database_id,
            builder,
            calls: recovery.calls,
            home: *home,
            replay: None,
            replayed: 0,
            left: None,
            progress,
            log_read: 0,
            system,
            tables: HashMap::new(),
            waiting,
            changed: false,
            rehoused: HashSet::new(),
            keyed: None,
            next_id: home.next_id.max(highest_heap + 1),
            loads: Vec::new(),
            packets: 0,
            records: 0,
            unlogged: 0,
            bulk_bytes: 0,
            bulk_time: Duration::ZERO,
        };
        redo.bring_in_line(Lsn(home.redo_start.0.saturating_sub(1)), false)?;
        Ok(redo)
    }

    /// The log names load files of this database on another disk.
    pub fn loads_from(&mut self, disk: &'a dyn Disk, database_id: u128) {
        (self.disk, self.database_id) = (disk, database_id);
    }

    /// Redoes the rest of the log.
    pub fn run(&mut self, reader: &mut LogReader) -> Result<()> {
        let error = Mutex::new(None);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let workers = (0..self.builder.threads)
                .map(|thread| {
                    let (sender, receiver) = sync_channel(BATCHES_MAX);
                    let error = &error;
                    threads.push(scope.spawn(move || serve(thread, &receiver, error)));
                    Worker { sender, batch: Batch::default() }
                })
                .collect();
            let redone = self.packets_of(reader, Workers { workers, error: &error });
            threads.into_iter().for_each(super::join);
            redone
        })
    }

    fn packets_of(&mut self, reader: &mut LogReader, mut workers: Workers<'_>) -> Result<()> {
        let log_start = reader.position();
        while let Some(packet) = reader.next_packet()? {
            self.packet(&packet, &mut workers)?;
            if self.packets.is_multiple_of(TELL_EVERY) {
                self.log_read = reader.position() - log_start;
                self.tell(0);
            }
        }
        workers.barrier()
    }

    fn packet(&mut self, packet: &Packet<'_>, workers: &mut Workers<'_>) -> Result<()> {
        let lsn = packet.lsn;
        if packet.kind == PacketKind::Unlogged {
            self.unlogged += 1;
            return Ok(());
        }
        let calls = packet.kind == PacketKind::Call || self.replay.is_some() || self.left.is_some();
        if calls && self.beside_calls(packet, workers)? {
            self.packets += 1;
            return Ok(());
        }
        if packet.kind != PacketKind::Commit {
            let what = format!(
                "the packet at place {lsn} of the log is of kind {:?}: a cluster wrote it",
                packet.kind
            );
            return Err(Error::Unsupported { what });
        }
        for item in redo::read_with_bytes(packet.bytes) {
            let (record, bytes) = item.map_err(|offset| Error::Corrupt {
                file: format!("the log, place {lsn}"),
                offset: offset as u64,
                what: "expected a redo record; the packet's checksum is right, but the record makes no sense"
                    .to_owned(),
            })?;
            self.records += 1;
            if is_system(record.table) {
                self.system_record(lsn, &record)?;
                continue;
            }
            if self.changed {
                workers.barrier()?;
                self.bring_in_line(lsn, false)?;
            }
            if let Change::Load { file } = record.change {
                self.load(lsn, record.table, file, workers)?;
            } else if let Some(table) = self.tables.get(&record.table) {
                workers.push(table, lsn, record.key, bytes)?;
            }
        }
        if self.changed {
            workers.barrier()?;
            self.bring_in_line(lsn, false)?;
        }
        self.keyed = None;
        self.packets += 1;
        Ok(())
    }

    /// Tells how far redo has come: in the log, and in a load file.
    fn tell(&self, in_load_file: u64) {
        let done = self.log_read + self.bulk_bytes + in_load_file;
        let packets = self.packets;
        self.progress.at_of(done, |_, total| format!("{}, {packets} transactions", bytes(total)));
    }

    fn system_record(&mut self, lsn: Lsn, record: &RedoRecord<'_>) -> Result<()> {
        let Some(table) = self.system.iter().find(|table| table.description.id == record.table) else {
            let what = format!(
                "a redo record for system table {}, which this program does not know",
                record.table.0
            );
            return Err(Error::Corrupt { file: format!("the log, place {lsn}"), offset: 0, what });
        };
        self.changed = true;
        let keyed = self.keyed.get_or_insert_default();
        match record.change {
            Change::Put { row, .. } => {
                let row = table.view(lsn, row)?;
                self.next_id = self.next_id.max(catalog::highest_id(record.table, row) + 1);
                let id = || row.get_i32(0).map_err(|error| senseless(table, lsn, &error.to_string()));
                if record.table == INDEXES {
                    keyed.insert(IndexId(id()? as u32));
                }
                if table.redo(lsn, record, &mut Scratch::new(0))? && record.table == HEAPS {
                    self.rehoused.insert(TableId(id()? as u32));
                }
            }
            Change::Load { .. } => return Err(senseless(table, lsn, "a bulk load into a system table")),
            _ => {
                table.redo(lsn, record, &mut Scratch::new(0))?;
            }
        }
        Ok(())
    }

    /// The rows of a load file, as puts.
    fn load(&mut self, lsn: Lsn, table: TableId, file: u64, workers: &mut Workers<'_>) -> Result<()> {
        self.next_id = self.next_id.max(u32::try_from(file).map_or(u32::MAX, |file| file + 1));
        self.loads.push(LoadFile { number: file, lsn });
        let Some(table) = self.tables.get(&table).cloned() else { return Ok(()) };
        if lsn < table.since {
            return Ok(());
        }
        let numbered = table.description.numbered;
        let (mut key, mut bytes) = (Key::new(), Vec::new());
        let mut rows = 0;
        let began = Instant::now();
        let reader = LoadFileReader::open(self.disk, self.database_id, file)?;
        reader.for_each_row(|offset, body| {
            let (number, row) = body.split_at_checked(if numbered { 8 } else { 0 }).unwrap_or((&[0; 8], &[]));
            if let Some((at, what)) = row::damage(&table.schema, row, Nulls::OverZeros) {
                let (name, length) = (table.schema.table(), row.len());
                let what = format!("table \"{name}\": the row of {length} bytes, at its byte {at}: {what}");
                return Err(Error::Corrupt { file: load_file_name(file), offset, what });
            }
            let number = number.try_into().map_or(0, u64::from_le_bytes);
            table.schema.primary_key_of_row(row, number, &mut key);
            bytes.clear();
            redo::write_put(&mut bytes, table.description.id, &key, numbered, body);
            rows += 1;
            if rows % TELL_EVERY == 0 {
                self.tell(offset);
            }
            workers.push(&table, lsn, &key, &bytes)
        })?;
        self.records += rows;
        self.bulk_bytes += reader.bytes();
        self.bulk_time += began.elapsed();
        Ok(())
    }

    /// Makes the tables those that the system tables describe at place `at`.
    pub(super) fn bring_in_line(&mut self, at: Lsn, complete: bool) -> Result<()> {
        let system: Vec<&RedoTable> = self.system.iter().map(|table| &**table).collect();
        let described = catalog::tables_at(&system, at, self.keyed.as_ref(), complete)?;
        let there: HashSet<TableId> = described.iter().map(|table| table.description.id).collect();
        let gone: Vec<TableId> = self.tables.keys().filter(|id| !there.contains(*id)).copied().collect();
        for id in gone {
            if let Some(table) = self.tables.remove(&id) {
                table.heap.clear();
            }
        }
        for described in described {
            let id = described.description.id;
            // A heap that begins at this packet has only rows of later packets yet; the packet's own are still to come.
            let forget = self.rehoused.contains(&id).then_some(at);
            let old = self.tables.get(&id);
            let new = match old {
                Some(old) if old.description.heap == described.description.heap => {
                    if forget.is_some() || old.identifies_otherwise(&described.description) {
                        self.builder.rebuild(old, described, forget)?
                    } else if old.description != described.description || old.since != described.since {
                        RedoTable {
                            schema: described.description.schema()?,
                            description: described.description,
                            heap: old.heap.clone(),
                            primary: old.primary.clone(),
                            since: described.since,
                        }
                    } else {
                        continue;
                    }
                }
                old => {
                    if let Some(old) = old {
                        old.heap.clear();
                    }
                    let segments = self.waiting.remove(&described.description.heap).unwrap_or_default();
                    self.builder.build(described, &segments, forget)?
                }
            };
            self.tables.insert(id, Arc::new(new));
        }
        self.changed = false;
        self.rehoused.clear();
        Ok(())
    }

    /// The tables with all of their indexes, once the log is redone up to its end.
    pub fn finish(mut self, end: Lsn) -> Result<Vec<Arc<TableVersion>>> {
        let replayed = self.end_replay()?;
        self.bring_in_line(end, true)?;
        for id in self.waiting.into_values().flatten() {
            self.builder.segments.free(id);
        }
        let all = || self.system.iter().chain(self.tables.values());
        let to_visit = all().map(|table| table.heap.owned().len() * table.visits()).sum::<usize>();
        self.progress.begin(Step::Secondary, (to_visit * SEGMENT_BYTES) as u64);
        let mut finished = Vec::new();
        for table in all() {
            let first = first_row_number(end);
            finished.push(Arc::new(
                match replayed.as_ref().and_then(|replayed| replayed.table(table, first)) {
                    Some(version) => version,
                    None => self.builder.finish(table, first)?,
                },
            ));
        }
        finished.sort_unstable_by_key(|table| table.id);
        Ok(finished)
    }
}

/// Records for one worker: their bytes, and of each its table, its packet's place and where it ends.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    records: Vec<(Arc<RedoTable>, Lsn, usize)>,
}

enum Message {
    Batch(Batch),
    /// Answer when all before is done.
    Barrier(SyncSender<()>),
}

struct Worker {
    sender: SyncSender<Message>,
    batch: Batch,
}

/// The reader's end of the workers.
pub(super) struct Workers<'e> {
    workers: Vec<Worker>,
    error: &'e Mutex<Option<Error>>,
}

impl Workers<'_> {
    fn push(&mut self, table: &Arc<RedoTable>, lsn: Lsn, key: &[u8], bytes: &[u8]) -> Result<()> {
        let hash = xxh3_64_with_seed(key, u64::from(table.description.id.0));
        let worker = (hash >> 32) as usize % self.workers.len();
        let worker = &mut self.workers[worker];
        worker.batch.bytes.extend_from_slice(bytes);
        worker.batch.records.push((table.clone(), lsn, worker.batch.bytes.len()));
        if worker.batch.bytes.len() >= BATCH_BYTES {
            worker.flush();
            self.check()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Waits until the workers have done all they were given.
    pub fn barrier(&mut self) -> Result<()> {
        let (sender, receiver) = sync_channel(self.workers.len());
        for worker in &mut self.workers {
            worker.flush();
            worker.send(Message::Barrier(sender.clone()));
        }
        drop(sender);
        while receiver.recv().is_ok() {}
        self.check()
    }
}

impl Worker {
    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.send(Message::Batch(batch));
    }

    fn send(&self, message: Message) {
        // It is gone only if it panicked, which the scope passes on.
        let _ = self.sender.send(message);
    }
}

/// A worker: redoes what it is sent. After an error it only empties its queue.
fn serve(thread: usize, receiver: &Receiver<Message>, error: &Mutex<Option<Error>>) {
    let mut scratch = Scratch::new(thread);
    let mut failed = false;
    while let Ok(message) = receiver.recv() {
        match message {
            Message::Batch(batch) if !failed => {
                if let Err(found) = redo_batch(&batch, &mut scratch) {
                    error.lock().get_or_insert(found);
                    failed = true;
                }
            }
            Message::Batch(_) => {}
            Message::Barrier(sender) => {
                let _ = sender.send(());
            }
        }
    }
}

fn redo_batch(batch: &Batch, scratch: &mut Scratch) -> Result<()> {
    let mut from = 0;
    for (table, lsn, end) in &batch.records {
        for record in redo::read(&batch.bytes[from..*end]) {
            let record = record.expect("the reader has parsed it");
            table.redo(*lsn, &record, scratch)?;
        }
        from = *end;
    }
    Ok(())
}
