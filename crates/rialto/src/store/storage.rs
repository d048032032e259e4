//! [`Storage`]: the tables of an open database, and the directory that holds them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use smallvec::SmallVec;

use super::memory::{
    EmptySegments, Heap, LoadCommit, LoadFile, LoadFileBytes, LoadMark, LoadedRows, MemoryStore,
    ReceivedLoad, RecordRef, SEGMENT_BYTES, SegmentId, has_load_file, load_file, same_version,
};
use super::paged::DiskTables;
use super::{Budget, Catalog, Material, Paint, Painting, RowLocation, SeenRow, TableVersion, WatchedTables};
use crate::catalog::first_row_number;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::io::{Clock, Disk};

/// How often a load file's receiver looks whether a checkpoint has removed an earlier one of its number.
const REMOVAL_POLL: Duration = Duration::from_millis(5);
const REMOVAL_POLLS: u32 = 2_000;

/// See the [module](self).
pub(crate) struct Storage {
    pub disk: Arc<dyn Disk>,
    pub database_id: u128,
    /// The memory of memory-resident tables, for sweeps and recoveries. All others use the methods here and those of
    /// [`TableStore`](super::TableStore).
    pub memory: MemoryStore,
    /// The disk-resident tables.
    pub disk_tables: Arc<DiskTables>,
    pub catalog: Catalog,
    /// The load files that redo would need.
    pub loads: Arc<Mutex<Vec<LoadFile>>>,
    /// The tables that are copied while they are used.
    pub watched: WatchedTables,
    /// Held by transactions that write or remove load files ([`Storage::pass_to_load_files`]).
    load_passes: RwLock<()>,
    /// Held while a received load file gets its name.
    receipts: Mutex<()>,
    /// The first place of this opening: hidden row numbers begin after those of earlier openings.
    pub opened_at: Lsn,
    pub closed: AtomicBool,
}

/// Segments in which no table has a row.
pub(crate) struct EmptyStorage(Vec<(Arc<Heap>, EmptySegments)>);

impl EmptyStorage {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives back the segments that were empty all the time since they were found, and returns how many. Between the
    /// two calls the caller has waited until no transaction seeks a row by a location from before
    /// ([`Heap::give_back`]).
    pub fn give_back(&self) -> u64 {
        self.0.iter().map(|(heap, empty)| heap.give_back(empty)).sum()
    }
}

impl Storage {
    pub fn new(
        (disk, database_id): (Arc<dyn Disk>, u128),
        (memory, disk_tables): (MemoryStore, Arc<DiskTables>),
        catalog: Catalog,
        loads: Vec<LoadFile>,
        opened_at: Lsn,
    ) -> Storage {
        let loads = Arc::new(Mutex::new(loads));
        Storage {
            disk,
            database_id,
            memory,
            disk_tables,
            catalog,
            loads,
            watched: WatchedTables::default(),
            load_passes: RwLock::default(),
            receipts: Mutex::default(),
            opened_at,
            closed: AtomicBool::new(false),
        }
    }

    pub fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(Error::Closed) }
    }

    #[inline]
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    /// The pass that a transaction holds while it writes or removes load files. Invariant: **a transaction touches load
    /// files only while its opening has the directory**, so the number of a file that it names belongs to no other
    /// load. A close waits for the passes that are held; after it no pass is given ([`Error::Closed`]), and a file that
    /// is left is removed by recovery.
    pub fn pass_to_load_files(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let pass = self.load_passes.read();
        self.check_open()?;
        Ok(pass)
    }

    /// Refuses new work, and waits for transactions that write or remove load files.
    pub fn shut(&self) {
        self.closed.store(true, Ordering::SeqCst);
        drop(self.load_passes.write());
    }

    /// Notes that the commit at this place names the load files of these numbers.
    pub fn note_load_files(&self, numbers: impl Iterator<Item = u64>, lsn: Lsn) {
        let committed = LoadCommit::At(lsn);
        let mut loads = self.loads.lock();
        for number in numbers {
            // In a follower it came before.
            loads.retain(|load| load.number != number);
            loads.push(LoadFile { number, committed });
        }
    }

    /// Gives the body of each row in the load file of this number, which a packet names with this digest.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is missing, damaged or of another load; [`Error::Io`]; those of `take`.
    pub fn for_each_loaded(
        &self,
        (number, digest): (u64, Option<u64>),
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let reader = load_file::LoadFileReader::open(&*self.disk, self.database_id, number, digest)?;
        reader.for_each_row(|_, body| take(body))
    }

    /// The bytes of a load file.
    ///
    /// # Errors
    /// [`Error::Io`], also if there is none of this number.
    pub fn load_file_bytes(&self, number: u64) -> Result<LoadFileBytes> {
        Ok(LoadFileBytes::open(&*self.disk, number)?)
    }

    /// Whether a load file that a packet names is there, and whole. From then on it stays until the packet is redone.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keeps_load_file(&self, number: u64, digest: Option<u64>) -> Result<bool> {
        let is_going = {
            let mut loads = self.loads.lock();
            let found = loads.iter().find(|load| load.number == number).map(|load| load.committed);
            if matches!(found, Some(LoadCommit::BeforeOrNever(_) | LoadCommit::Never) | None)
                && !fault_injection::is_on("awaited-load-file-not-kept")
            {
                self.await_load(&mut loads, number);
            }
            found == Some(LoadCommit::Going)
        };
        let digest = digest.filter(|_| !fault_injection::is_on("load-file-of-another-digest"));
        if !is_going && has_load_file(&*self.disk, self.database_id, number, digest)? {
            return Ok(true);
        }
        self.loads.lock().retain(|load| load.number != number || load.committed != LoadCommit::Later);
        Ok(false)
    }

    /// No checkpoint removes the load file of this number before its packet is redone.
    fn await_load(&self, loads: &mut Vec<LoadFile>, number: u64) {
        loads.retain(|load| load.number != number);
        loads.push(LoadFile { number, committed: LoadCommit::Later });
    }

    /// Takes a load file of the database that is followed, as long as `follows` says so. No checkpoint removes it before
    /// its packet is redone. One that is there already stays.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that are no load file of this number; those of the disk, of `from`, and of
    /// `follows`.
    pub fn receive_load_file(
        &self,
        number: u64,
        from: &mut dyn io::Read,
        follows: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if load_file::load_file_number(&load_file::load_file_name(number)).is_none() {
            let what = format!("no load has the number {number}");
            return Err(Error::Corrupt { file: load_file::load_file_name(number), offset: 0, what });
        }
        let received = ReceivedLoad::receive(&*self.disk, self.database_id, number, from)?;
        for _ in 0..REMOVAL_POLLS {
            let one = self.receipts.lock();
            let pass = self.pass_to_load_files()?;
            follows()?;
            let found = {
                let mut loads = self.loads.lock();
                let found = loads.iter().find(|load| load.number == number).map(|load| load.committed);
                if !matches!(found, Some(LoadCommit::At(_) | LoadCommit::Going)) {
                    self.await_load(&mut loads, number);
                }
                found
            };
            let is_named = matches!(found, Some(LoadCommit::At(_) | LoadCommit::Later));
            match found {
                // A checkpoint removes what an earlier life has left under this name.
                Some(LoadCommit::Going) => {}
                // The log may name it already.
                _ if is_named && has_load_file(&*self.disk, self.database_id, number, None)? => return Ok(()),
                _ => return received.take(),
            }
            drop((pass, one));
            std::thread::sleep(REMOVAL_POLL);
        }
        let what = format!("load file {number} while a checkpoint removes one of its number: give it again");
        Err(Error::Unsupported { what })
    }

    /// No load file is taken as long as the guard lives.
    pub fn hold_receipts(&self) -> MutexGuard<'_, ()> {
        self.receipts.lock()
    }

    /// The database follows no other one any more, from this place on: load files that no packet has named are not
    /// needed for long, and their numbers are not given to others.
    pub fn forget_awaited_loads(&self, place: Lsn) {
        for load in self.loads.lock().iter_mut().filter(|load| load.committed == LoadCommit::Later) {
            // The log before an older checkpoint may name it.
            load.committed = LoadCommit::BeforeOrNever(place);
            self.catalog.raise_next_id(load.number as u32 + 1);
        }
    }

    /// Removes a load file that no packet names. If that fails, recovery removes it. The file may be missing.
    pub fn remove_load_file(&self, number: u64) {
        let _ = self.disk.remove(&load_file::load_file_name(number));
    }

    /// A hidden row number above those of most rows that earlier openings have inserted; recovery begins above all
    /// existing rows.
    pub fn first_row_number(&self) -> u64 {
        first_row_number(self.opened_at)
    }

    /// What new tables are built from.
    pub fn material(&self) -> Material<'_> {
        Material {
            memory: &self.memory,
            disk_tables: &self.disk_tables,
            first_row_number: self.first_row_number(),
        }
    }

    /// The memory bound that all tables draw on.
    pub fn budget(&self) -> &Arc<Budget> {
        self.memory.segments.budget()
    }

    /// The error for reaching the memory bound.
    pub fn memory_limit(&self) -> Error {
        let budget = self.budget();
        Error::MemoryLimit { used: budget.used(), limit: budget.limit() }
    }

    /// Gives free index nodes back if they make up a segment.
    pub fn give_back_nodes(&self) {
        self.memory.nodes.give_back_free(SEGMENT_BYTES as u64);
    }

    /// The segments of all committed tables that hold no row, and those of one table that only its transaction sees. It
    /// looks at every slot, and is therefore only called when memory runs out.
    #[cold]
    pub fn empty_segments(&self, own: Option<&TableVersion>) -> EmptyStorage {
        let mut heaps = self.catalog.heaps();
        if let Some(own) = own.and_then(|own| Some(&own.store.memory()?.heap))
            && heaps.iter().all(|heap| heap.id() != own.id())
        {
            heaps.push(own.clone());
        }
        let found = heaps.into_iter().map(|heap| {
            let empty = heap.empty_segments();
            (heap, empty)
        });
        EmptyStorage(found.filter(|(_, empty)| !empty.is_empty()).collect())
    }

    /// The lock word of a row that is locked in its record ([`TableStore::lock_word`](super::TableStore::lock_word)).
    #[inline(always)]
    pub fn lock_word(&self, location: RowLocation) -> &AtomicU64 {
        self.memory.segments.lock_word(location.into())
    }

    /// Whether a row is unchanged since it was seen, and `is_exclusive` finds no exclusive lock in its lock word.
    #[inline]
    pub fn is_as_seen(&self, seen: &SeenRow, is_exclusive: impl Fn(u64) -> bool) -> bool {
        let now = self.memory.segments.record(seen.location.into()).word_after();
        same_version(seen.word, now) && !is_exclusive(now)
    }

    /// Forgets the loaded rows behind the mark and gives them to `take_back`, the newest first, each with the place of
    /// its table.
    pub fn take_back_loaded(
        &self,
        rows: &mut LoadedRows,
        mark: &LoadMark,
        mut take_back: impl FnMut(u32, RowLocation),
    ) {
        let take_back = |table, record: RecordRef| take_back(table, record.into());
        rows.take_back_to(mark, &self.memory.segments, take_back);
    }
}

/// What commits and sweeps tell each other.
impl Storage {
    /// The state of a black/white sweep that commits see.
    #[inline]
    pub fn painting(&self) -> &Painting {
        self.memory.segments.painting()
    }

    /// The segment's side; a white segment is held from then on.
    pub fn hold_white(&self, segment: SegmentId) -> Paint {
        self.memory.segments.hold_white(segment)
    }

    /// Ends a hold.
    pub fn let_go(&self, segment: SegmentId) {
        self.memory.segments.let_go(segment);
    }

    /// The most copies that a commit of changes to these rows has to make first, for a sweep at a cut.
    pub fn copies_owed(&self, locations: impl Iterator<Item = RowLocation>) -> usize {
        let segments = &self.memory.segments;
        let in_memory = locations.filter(|location| !location.is_in_pages());
        let owed = in_memory.map(RowLocation::segment).filter(|&id| segments.is_to_be_kept(id));
        let mut owed: SmallVec<[SegmentId; 16]> = owed.collect();
        owed.sort_unstable();
        owed.dedup();
        owed.into_iter().filter(|&id| segments.is_in_cut(id)).count()
    }

    /// Promises room for so many copies; false if there is no room now.
    pub fn promise_copies(&self, copies: usize) -> bool {
        self.memory.segments.snapshots().promise(copies)
    }

    /// Ends the promise of so many copies: they are made, or were not needed.
    pub fn keep_promise(&self, copies: usize) {
        self.memory.segments.snapshots().keep_promise(copies);
    }

    /// Waits until there may be room for copies, at most `limit`.
    pub fn wait_for_copies(&self, clock: &Clock, limit: Duration) {
        self.memory.segments.snapshots().wait(clock, limit);
    }
}
