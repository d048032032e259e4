//! [`Redo`]: redoes the log's packets on the tables, in parallel by key, with the catalog kept in step.
//!
//! The reader parses packets and hands their records out in batches. A record's table and key determine its worker, so
//! one thread redoes all records of a row in their order. The reader itself redoes records for the system tables.
//! Before them it waits until the workers have caught up (a *barrier*); after them it brings the tables in line with
//! the system tables before it goes on.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::calls::{Calls, Replay};
use super::catalog::{self, senseless};
use super::heaps::Heaps;
use super::load::Loaded;
use super::pages::RedoPages;
use super::progress::{RecoveryProgress, Step, bytes};
use super::table::{At, Builder, RedoTable, Scratch};
use super::{Recovery, Start};
use crate::catalog::system::{after_load, highest_id, is_system};
use crate::catalog::{Described, Description, first_row_number};
use crate::checkpoint::home::HOME_FILE;
use crate::commit::redo::{self, Change, RedoRecord};
use crate::commit::senseless::{in_log, no_record, no_system_table, no_table};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{HeapId, Lsn, TableId};
use crate::io::Disk;
use crate::log::{LogReader, Packet, PacketKind};
use crate::row::{self, Key, Nulls, WhichIndex};
use crate::store::TableVersion;
use crate::store::memory::image::backup_name;
use crate::store::memory::load_file::LoadFileReader;
use crate::store::memory::{LoadCommit, LoadFile, SEGMENT_BYTES, SegmentId};
use crate::store::paged::{DiskTables, PageAccess, fetch_together};

/// Bytes of a batch.
const BATCH_BYTES: usize = 64 << 10;
/// Progress is told, if it is due, after this many packets or rows of a load file.
const TELL_EVERY: u64 = 1024;
/// Pages of so many records are read side by side.
const FETCHED_TOGETHER: usize = 32;
/// The most batches on their way to one worker.
const BATCHES_MAX: usize = 8;

/// The tables, and the redo of the log on them.
pub(super) struct Redo<'a> {
    disk: &'a dyn Disk,
    pub(super) database_id: u128,
    pub(super) builder: Builder<'a>,
    /// What recovery does with calls.
    pub(super) calls: Calls<'a>,
    /// The state of the copy.
    pub(super) start: Start,
    /// The replay of calls, while one is in progress.
    pub(super) replay: Option<Box<dyn Replay>>,
    /// Calls that earlier replays have run.
    pub replayed: u64,
    /// The place of the call at which recovery stopped changing the tables, and how many packets were left from there
    /// on.
    pub left: Option<(Lsn, u64)>,
    /// Whether values were left there, too.
    pub has_left_values: bool,
    /// The procedures of the calls from there on, by name and version.
    pub needs: BTreeSet<(String, u32)>,
    progress: &'a RecoveryProgress<'a>,
    /// Bytes of log that had been read at the last check.
    log_read: u64,
    pub(super) system: Vec<Arc<RedoTable>>,
    pub(super) tables: RedoTables,
    /// The storage of these tables.
    pub(super) heaps: Arc<Heaps>,
    /// The tables as the system tables describe them.
    described: Described,
    /// While calls are replayed: the tables of which this packet has changed rows or definitions.
    pub(super) changed: BTreeSet<TableId>,
    pub next_id: u32,
    pub loads: Vec<LoadFile>,
    pub packets: u64,
    pub records: u64,
    /// Packets that have only a place.
    pub unlogged: u64,
    /// Of these, the ones that a user has not been told of.
    pub lost: u64,
    /// Bytes of load files redone, and the time that took.
    pub bulk_bytes: u64,
    pub bulk_time: Duration,
}

impl<'a> Redo<'a> {
    /// The tables of the backup copy.
    pub fn new(
        recovery: &Recovery<'a>,
        start: &Start,
        (loaded, disk_tables): (Loaded, &'a Arc<DiskTables>),
        progress: &'a RecoveryProgress<'a>,
    ) -> Result<Redo<'a>> {
        let home = &start.home;
        let builder = Builder {
            segments: recovery.segments,
            nodes: recovery.nodes,
            disk_tables,
            page_place: home.pages.map_or(Lsn::ZERO, |pages| pages.place),
            threads: recovery.threads.max(1),
            copy: home.copy,
            progress,
        };
        progress.begin(Step::Primary, (loaded.segments.len() * SEGMENT_BYTES) as u64);
        let mut segments: HashMap<HeapId, Vec<SegmentId>> = HashMap::new();
        for (id, heap) in loaded.segments {
            segments.entry(heap).or_default().push(id);
        }
        let mut system = Vec::new();
        for description in Description::of_system_tables() {
            let own = segments.remove(&description.heap).unwrap_or_default();
            system.push(Arc::new(builder.build(description, &own)?));
        }
        let copy = home.copy.map_or_else(|| HOME_FILE.to_owned(), backup_name);
        let mut described = catalog::described_by(&system, &copy)?;
        let (mut tables, heaps) = (HashMap::new(), Heaps::new(recovery.nodes.clone(), builder.threads));
        for (id, description) in catalog::changes(&mut described, &copy)? {
            let description = description.expect("no table was there before");
            let own = segments.remove(&description.heap).unwrap_or_default();
            let table = Arc::new(builder.build_of_copy(description, &own)?);
            heaps.add(&table);
            tables.insert(id, table);
        }
        if let Some((heap, ids)) = segments.into_iter().min_by_key(|(_, ids)| ids.first().copied()) {
            let first = ids.first().map_or(0, |id| id.0);
            let what = format!(
                "segment {first} is of heap {}, and no table has that: the catalog in the copy and its segments do not go \
                 together",
                heap.0
            );
            let offset = u64::from(first) * SEGMENT_BYTES as u64;
            return Err(Error::Corrupt { file: copy, offset, what });
        }
        Ok(Redo {
            disk: &**recovery.disk,
            database_id: home.database_id,
            builder,
            calls: recovery.calls,
            start: *start,
            replay: None,
            replayed: 0,
            left: None,
            has_left_values: false,
            needs: BTreeSet::new(),
            progress,
            log_read: 0,
            system,
            tables,
            heaps: Arc::new(heaps),
            described,
            changed: BTreeSet::new(),
            next_id: home.next_id,
            loads: Vec::new(),
            packets: 0,
            records: 0,
            unlogged: 0,
            lost: 0,
            bulk_bytes: 0,
            bulk_time: Duration::ZERO,
        })
    }

    /// Sets another disk for the load files that the log names; they are of this database.
    pub fn loads_from(&mut self, disk: &'a dyn Disk, database_id: u128) {
        (self.disk, self.database_id) = (disk, database_id);
    }

    /// Redoes the log up to a place, and reads the rest.
    pub fn run(&mut self, reader: &mut LogReader, last: Lsn) -> Result<()> {
        let (error, heaps) = (Mutex::new(None), self.heaps.clone());
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let workers = (0..self.builder.threads)
                .map(|thread| {
                    let (sender, receiver) = sync_channel(BATCHES_MAX);
                    let (error, heaps) = (&error, &*heaps);
                    threads.push(scope.spawn(move || serve(thread, &receiver, heaps, error)));
                    Worker { sender, batch: RedoBatch::default() }
                })
                .collect();
            let redone = self.packets_of(reader, last, Workers { workers, error: &error });
            threads.into_iter().for_each(super::join);
            redone
        })
    }

    fn packets_of(&mut self, reader: &mut LogReader, last: Lsn, mut workers: Workers<'_>) -> Result<()> {
        let log_start = reader.position();
        while let Some(packet) = reader.next_packet()? {
            if packet.lsn > last {
                self.await_loads(&packet);
                continue;
            }
            self.packet(&packet, &mut workers)?;
            if self.packets.is_multiple_of(TELL_EVERY) {
                self.log_read = reader.position() - log_start;
                self.tell(0);
            }
        }
        workers.barrier()
    }

    /// The load files that a packet names which is redone later stay.
    fn await_loads(&mut self, packet: &Packet<'_>) {
        if packet.kind != PacketKind::Commit || fault_injection::is_on("awaited-load-file-not-kept") {
            return;
        }
        // What makes no sense is found when the packet is redone.
        for record in redo::read(packet.bytes).map_while(std::result::Result::ok) {
            if let Change::Load { file, .. } = record.change {
                self.loads.push(LoadFile { number: file, committed: LoadCommit::Later });
            }
        }
    }

    fn packet(&mut self, packet: &Packet<'_>, workers: &mut Workers<'_>) -> Result<()> {
        let lsn = packet.lsn;
        if packet.kind == PacketKind::Unlogged {
            self.start.check_unlogged(lsn)?;
            self.unlogged += 1;
            self.lost += u64::from(self.start.tells_of_loss(lsn));
            return Ok(());
        }
        if lsn < self.start.home.redo_start {
            return self.packet_in_pages(packet, workers);
        }
        if self.start.home.holds(packet) {
            self.check_held(packet)?;
            return self.packet_in_pages(packet, workers);
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
            let (record, bytes) = item.map_err(|offset| no_record(lsn, offset))?;
            self.records += 1;
            if is_system(record.table) {
                if !self.described.is_touched() {
                    // No worker gets a record from here on until the tables are in line. These records may find room in
                    // what the records just before have left, and those need room, too.
                    workers.barrier()?;
                }
                self.system_record(lsn, &record)?;
                continue;
            }
            if self.described.is_touched() {
                self.bring_in_line(lsn)?;
            }
            let table = table_at(&self.tables, lsn, record.table)?;
            if self.replay.is_some() {
                self.changed.insert(record.table);
            }
            if let Change::Load { file, digest } = record.change {
                let (table, reader) = (table.clone(), self.load_file(lsn, file, digest)?);
                self.load(lsn, &table, &reader, workers)?;
            } else {
                workers.push(table, self.at(lsn), record.key, bytes)?;
            }
        }
        if self.described.is_touched() {
            self.bring_in_line(lsn)?;
        }
        self.go_on_with_calls(lsn, workers)?;
        self.packets += 1;
        Ok(())
    }

    /// Redoes a packet, which the backup copy has, on the disk-resident tables alone. It has no definition that they need:
    /// none came between the place of the pages and the redo start, or is held by the copy.
    fn packet_in_pages(&mut self, packet: &Packet<'_>, workers: &mut Workers<'_>) -> Result<()> {
        self.packets += 1;
        if packet.kind != PacketKind::Commit || self.start.home.pages.is_none() {
            return Ok(());
        }
        for item in redo::read_with_bytes(packet.bytes) {
            let (record, bytes) = item.map_err(|offset| no_record(packet.lsn, offset))?;
            let table = self.tables.get(&record.table).filter(|table| table.pages.is_some());
            if let Some(table) = table {
                self.records += 1;
                workers.push(&table.clone(), self.at(packet.lsn), record.key, bytes)?;
            }
        }
        Ok(())
    }

    /// How the records of the packet at this place are redone.
    pub(super) fn at(&self, lsn: Lsn) -> At {
        At { lsn, finds_rows: lsn > self.start.home.clearance && self.unlogged == 0 }
    }

    /// Tells how far redo has come: in the log, and in a load file.
    fn tell(&self, in_load_file: u64) {
        let done = self.log_read + self.bulk_bytes + in_load_file;
        let packets = self.packets;
        self.progress.at_of(done, |_, total| format!("{}, {packets} transactions", bytes(total)));
    }

    fn system_record(&mut self, lsn: Lsn, record: &RedoRecord<'_>) -> Result<()> {
        let Some(table) = self.system.iter().find(|table| table.description.id == record.table) else {
            return Err(no_system_table(lsn, record.table));
        };
        match record.change {
            Change::Put { row, .. } => {
                let row = table.view(lsn, row)?;
                self.next_id = self.next_id.max(highest_id(record.table, row).saturating_add(1));
            }
            Change::Load { .. } => return Err(senseless(table, lsn, "a bulk load into a system table")),
            _ => {}
        }
        let at = At { lsn, finds_rows: false };
        if !self.heaps.redo(table, at, record, &mut Scratch::new(0))? {
            let what = "the row that it changes is not there, or is of a later place: the catalog in the backup copy is not that \
                        of the redo start";
            return Err(senseless(table, lsn, what));
        }
        catalog::note_row(&mut self.described, table, record.key, lsn)
    }

    /// The load file that a record of the packet at this place names.
    pub(super) fn load_file(&mut self, lsn: Lsn, number: u64, digest: Option<u64>) -> Result<LoadFileReader> {
        self.next_id = self.next_id.max(after_load(number));
        self.loads.push(LoadFile { number, committed: LoadCommit::At(lsn) });
        LoadFileReader::open(self.disk, self.database_id, number, digest)
    }

    /// Redoes the rows of a load file, as puts.
    fn load(
        &mut self,
        lsn: Lsn,
        table: &Arc<RedoTable>,
        reader: &LoadFileReader,
        workers: &mut Workers<'_>,
    ) -> Result<()> {
        let numbered = table.description.numbered;
        let (mut key, mut bytes) = (Key::new(), Vec::new());
        let mut rows = 0;
        let began = Instant::now();
        reader.for_each_row(|offset, body| {
            let (number, row) = body.split_at_checked(if numbered { 8 } else { 0 }).unwrap_or((&[0; 8], &[]));
            if let Some((at, what)) = row::damage(&table.schema, row, Nulls::OverZeros) {
                let (name, length) = (table.schema.table(), row.len());
                let what = format!("table \"{name}\": the row of {length} bytes, at its byte {at}: {what}");
                return Err(Error::Corrupt { file: reader.name().to_owned(), offset, what });
            }
            let number = number.try_into().map_or(0, u64::from_le_bytes);
            table.schema.primary_key_of_row(row, number, &mut key);
            bytes.clear();
            redo::write_put(&mut bytes, table.description.id, &key, numbered, body);
            rows += 1;
            if rows % TELL_EVERY == 0 {
                self.tell(offset);
            }
            workers.push(table, self.at(lsn), &key, &bytes)
        })?;
        self.records += rows;
        self.bulk_bytes += reader.bytes();
        self.bulk_time += began.elapsed();
        Ok(())
    }

    /// Brings the tables in line with what the system tables describe after a DDL statement of the packet at this
    /// place. Only tables whose description has changed are visited. Storage that a table gets here is empty: a backup
    /// copy has segments only of the tables in its own catalog.
    fn bring_in_line(&mut self, lsn: Lsn) -> Result<()> {
        for (id, description) in catalog::changes(&mut self.described, &in_log(lsn))? {
            self.changed.insert(id);
            let Some(description) = description else {
                self.tables.remove(&id).iter().for_each(|table| self.heaps.remove(table));
                continue;
            };
            let new = match self.tables.get(&id) {
                Some(old) if old.description.heap == description.heap => {
                    if old.identifies_otherwise(&description) {
                        self.heaps.retry(|| self.builder.rebuild(old, description.clone()))?
                    } else {
                        RedoTable {
                            schema: description.schema()?,
                            heap: old.heap.clone(),
                            primary: old.primary.clone(),
                            pages: old.pages_as(&description),
                            is_left_out: old.is_left_out,
                            description,
                        }
                    }
                }
                old => {
                    old.into_iter().for_each(|old| self.heaps.remove(old));
                    self.heaps.retry(|| self.builder.build(description.clone(), &[]))?
                }
            };
            let new = Arc::new(new);
            self.heaps.add(&new);
            self.tables.insert(id, new);
        }
        Ok(())
    }

    /// The tables with all of their indexes, once the log is redone up to its end.
    pub fn finish(mut self, end: Lsn) -> Result<Vec<Arc<TableVersion>>> {
        let replayed = self.end_replay()?;
        catalog::check(&self.described, &self.system, "the log's end")?;
        let budget = self.builder.segments.budget();
        let replayed = replayed.filter(|replayed| {
            // Rows that lie in too many segments are moved together, and all indexes on them are built anew.
            let fits = budget.used() <= budget.limit() || self.builder.threads > 1;
            if !fits {
                replayed.give_up_indexes();
                self.heaps.let_rows_move(true);
            }
            fits
        });
        match replayed {
            None => self.heaps.make_room(budget),
            Some(_) => _ = self.heaps.give_back_empty(),
        }
        // In one order, since what is read of their pages by a virtual clock is to repeat.
        let mut tables: Vec<&Arc<RedoTable>> = self.tables.values().collect();
        tables.sort_unstable_by_key(|table| table.description.heap);
        let all = || self.system.iter().chain(tables.iter().copied());
        let to_visit = all().map(|table| table.heap.owned().len() * table.visits()).sum::<usize>();
        self.progress.begin(Step::Secondary, (to_visit * SEGMENT_BYTES) as u64);
        let mut finished = Vec::new();
        for table in all() {
            let first = first_row_number(end);
            finished.push(match replayed.as_ref().and_then(|replayed| replayed.table(table, first)) {
                Some(version) => version,
                None => self.builder.finish(table, first)?,
            });
        }
        // Tables that were dropped have left their pages, and so have those that no commit has made.
        let kept: HashSet<HeapId> = self.tables.values().map(|table| table.description.heap).collect();
        self.builder.disk_tables.keep_only(|heap| kept.contains(&heap));
        let mut finished = self.make_room(finished)?;
        finished.sort_unstable_by_key(|table| table.id);
        Ok(finished)
    }

    /// Returns the tables with as much room for rows as there was: index nodes that redo needed on its way are given
    /// back. Where memory is short the primary indexes, those of the largest tables first, are made as small as
    /// transactions had them.
    fn make_room(&self, mut tables: Vec<TableVersion>) -> Result<Vec<Arc<TableVersion>>> {
        let budget = self.builder.segments.budget();
        tables.sort_unstable_by_key(|table| Reverse(table.store.rows()));
        let fitted = tables.into_iter().map(|table| {
            let is_short = budget.used() > budget.limit() / 4 * 3;
            let table = if is_short { self.builder.repack(table)? } else { table };
            self.heaps.give_back_nodes();
            Ok(Arc::new(table))
        });
        fitted.collect()
    }
}

/// The tables during redo.
pub(super) type RedoTables = HashMap<TableId, Arc<RedoTable>>;

/// The table that a record of the packet at this place is for. Its transaction had the table locked, so a DDL that
/// comes after it in the log also came after it in time; therefore the table exists.
pub(super) fn table_at(tables: &RedoTables, lsn: Lsn, id: TableId) -> Result<&Arc<RedoTable>> {
    tables.get(&id).ok_or_else(|| no_table(lsn, id))
}

/// Records for one worker: their bytes, and for each its table, its packet and where it ends.
#[derive(Default)]
struct RedoBatch {
    bytes: Vec<u8>,
    records: Vec<(Arc<RedoTable>, At, usize)>,
}

enum Message {
    Batch(RedoBatch),
    /// Answer when everything before this is done.
    Barrier(SyncSender<()>),
}

struct Worker {
    sender: SyncSender<Message>,
    batch: RedoBatch,
}

/// The reader's end of the workers.
pub(super) struct Workers<'e> {
    workers: Vec<Worker>,
    error: &'e Mutex<Option<Error>>,
}

impl Workers<'_> {
    fn push(&mut self, table: &Arc<RedoTable>, at: At, key: &[u8], bytes: &[u8]) -> Result<()> {
        // One thread redoes all records of a disk-resident table.
        let key = if table.pages.is_some() { &[] } else { key };
        let hash = xxh3_64_with_seed(key, u64::from(table.description.id.0));
        let worker = (hash >> 32) as usize % self.workers.len();
        let worker = &mut self.workers[worker];
        worker.batch.bytes.extend_from_slice(bytes);
        worker.batch.records.push((table.clone(), at, worker.batch.bytes.len()));
        if worker.batch.bytes.len() >= BATCH_BYTES {
            worker.flush();
            self.check()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Waits until the workers have done everything that they were given.
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
        // The worker is gone only if it panicked, and the scope passes that on.
        let _ = self.sender.send(message);
    }
}

/// A worker: redoes what it is sent. After an error it only empties its queue.
fn serve(thread: usize, receiver: &Receiver<Message>, heaps: &Heaps, error: &Mutex<Option<Error>>) {
    let mut scratch = Scratch::new(thread);
    let mut failed = false;
    while let Ok(message) = receiver.recv() {
        match message {
            Message::Batch(batch) if !failed => {
                if let Err(found) = redo_batch(&batch, &mut scratch, heaps) {
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

fn redo_batch(batch: &RedoBatch, scratch: &mut Scratch, heaps: &Heaps) -> Result<()> {
    let mut from = 0;
    for some in batch.records.chunks(FETCHED_TOGETHER) {
        fetch_pages(&batch.bytes, from, some);
        for (table, at, end) in some {
            for record in redo::read(&batch.bytes[from..*end]) {
                let record = record.expect("the reader has parsed it");
                heaps.redo(table, *at, &record, scratch)?;
            }
            from = *end;
        }
    }
    Ok(())
}

/// Reads the pages of records of disk-resident tables side by side. Redo would read them one after the other.
fn fetch_pages(bytes: &[u8], mut from: usize, records: &[(Arc<RedoTable>, At, usize)]) {
    let mut keys: Vec<(&RedoPages, &[u8])> = Vec::new();
    for (table, at, end) in records {
        if let Some(pages) = table.pages.as_ref().filter(|pages| at.lsn > pages.place) {
            keys.extend(redo::read(&bytes[from..*end]).flatten().map(|record| (&**pages, record.key)));
        }
        from = *end;
    }
    let keys = keys.iter().map(|(pages, key)| pages.table.key_ahead(WhichIndex::Primary, key));
    // What goes wrong here shows again when the record is redone.
    _ = fetch_together(&PageAccess::plain(), keys);
}
