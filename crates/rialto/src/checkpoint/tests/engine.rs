//! The stub engine beneath the checkpoints: packets of rows, a log that a test makes durable, segments. Recovery is
//! load and redo by the real rule, from what the disk and the durable log hold.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use super::*;
use crate::checkpoint::home::HomeBlock;
use crate::log::{LogNeeded, LogPoint, LogPosition};
use crate::recovery::{FellBack, recover_either};
use crate::store::memory::{Heap, RecordRef, Unclaimed};

/// One change of a packet: a row by its key, whole, or its deletion.
pub(super) type Change = (u32, Option<Vec<u8>>);

/// The stub engine.
pub(super) struct Engine {
    pub(super) segments: Arc<Segments>,
    pub(super) heap: Heap,
    pub(super) rows: Mutex<BTreeMap<u32, RecordRef>>,
    /// All packets from place 1 on.
    pub(super) log: Mutex<Vec<Vec<Change>>>,
    pub(super) durable: AtomicU64,
    pub(super) freed_before: AtomicU64,
    /// The oldest packet that is not applied whole, or 0.
    pub(super) in_flight: AtomicU64,
    /// Held from a packet's push until it is applied.
    commits: Mutex<()>,
    pub(super) log_broken: AtomicBool,
    pub(super) loads: Mutex<Vec<LoadFile>>,
    /// The checksums of the images that sweeps write without a checkpointer.
    pub(super) sums: ImageSums,
    /// The checksums of the images that recovery has loaded.
    loaded: Mutex<ImageSums>,
    /// The lines that the user was told.
    pub(super) told: Mutex<Vec<String>>,
    /// What the user's code does then.
    pub(super) when_told: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Bytes of the log that belong to no packet.
    pub(super) pads: AtomicU64,
    /// Why the archive takes nothing.
    pub(super) archive_failure: Mutex<Option<String>>,
}

impl Engine {
    pub(super) fn new() -> Arc<Engine> {
        let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(64 << 20))).unwrap());
        Arc::new(Engine {
            heap: Heap::new(segments.clone(), HEAP, 100),
            segments,
            rows: Mutex::default(),
            log: Mutex::default(),
            durable: AtomicU64::new(0),
            freed_before: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            commits: Mutex::default(),
            log_broken: AtomicBool::new(false),
            loads: Mutex::default(),
            sums: ImageSums::default(),
            loaded: Mutex::default(),
            told: Mutex::default(),
            when_told: OnceLock::new(),
            pads: AtomicU64::new(0),
            archive_failure: Mutex::default(),
        })
    }

    /// The existing storage.
    pub(super) fn heaps(&self) -> Arc<HashSet<HeapId>> {
        Arc::new(HashSet::from([HEAP]))
    }

    /// What a checkpointer starts with.
    pub(super) fn copies(&self, home: HomeFile) -> (HomeFile, ImageSums) {
        (home, std::mem::take(&mut *self.loaded.lock()))
    }

    /// The catalog that a sweep to this target begins with.
    pub(super) fn catalog(&self, target: &ImageTarget<'_>) -> CatalogCopy<'_> {
        CatalogCopy::take(&self.segments, self.heaps(), u64::MAX, target).unwrap()
    }

    /// Takes a place.
    pub(super) fn push(&self, packet: Vec<Change>) -> Lsn {
        let mut log = self.log.lock();
        log.push(packet);
        Lsn(log.len() as u64)
    }

    fn body(key: u32, row: &[u8]) -> Vec<u8> {
        [&key.to_le_bytes(), row].concat()
    }

    /// Applies one change of the packet at `lsn`, or redoes it.
    pub(super) fn apply(&self, lsn: Lsn, (key, row): &Change) {
        let mut rows = self.rows.lock();
        let found = rows.get(key).copied();
        if found.is_some_and(|record| self.segments.lsn(record) > lsn) {
            return;
        }
        match (row, found) {
            (None, Some(record)) => {
                rows.remove(key);
                self.heap.release(0, record);
            }
            (None, None) => {}
            (Some(row), found) => {
                let body = Engine::body(*key, row);
                match found {
                    Some(record) if self.segments.room(record) >= body.len() => {
                        self.segments.write(record, &body, lsn)
                    }
                    _ => {
                        let record = self.heap.allocate(0, body.len(), &mut Unclaimed).unwrap();
                        self.segments.write(record, &body, lsn);
                        rows.insert(*key, record);
                        if let Some(old) = found {
                            self.heap.release(0, old);
                        }
                    }
                }
            }
        }
    }

    pub(super) fn commit(&self, packet: Vec<Change>) -> Lsn {
        let _commits = self.commits.lock();
        let lsn = self.push(packet.clone());
        packet.iter().for_each(|change| self.apply(lsn, change));
        lsn
    }

    pub(super) fn sync(&self) {
        self.durable.store(self.log.lock().len() as u64, Ordering::SeqCst);
    }

    /// The rows, as they are.
    pub(super) fn contents(&self) -> BTreeMap<u32, Vec<u8>> {
        let mut body = Vec::new();
        let rows = self.rows.lock();
        rows.iter()
            .map(|(&key, &record)| {
                self.segments.read(record, &mut body);
                (key, body[4..].to_vec())
            })
            .collect()
    }

    /// The rows that a machine recovers from the disk and the durable log.
    pub(super) fn recover(
        disk: &dyn Disk,
        durable_log: &[Vec<Change>],
        freed_before: u64,
    ) -> Result<Arc<Engine>> {
        let mut home = HomeFile::open(disk).unwrap();
        Engine::recover_either(disk, durable_log, freed_before, &mut home).map(|(engine, _)| engine)
    }

    /// As [`Engine::recover`]; also returns whether the newest copy is damaged, so that the older one was used.
    pub(super) fn recover_either(
        disk: &dyn Disk,
        durable_log: &[Vec<Change>],
        freed_before: u64,
        home: &mut HomeFile,
    ) -> Result<(Arc<Engine>, Option<FellBack>)> {
        let recovered = recover_either(home.block(), home.older(), |start| {
            Engine::recover_from(disk, durable_log, freed_before, &start.home)
        })?;
        if recovered.1.is_some() {
            home.fall_back();
        }
        Ok(recovered)
    }

    fn recover_from(
        disk: &dyn Disk,
        durable_log: &[Vec<Change>],
        freed_before: u64,
        block: &HomeBlock,
    ) -> Result<Arc<Engine>> {
        let engine = Engine::new();
        assert!(block.redo_start.0 >= freed_before, "the log from {} on is gone", block.redo_start);
        let mut loaded = load::load(disk, block, &engine.segments, 2, &RecoveryProgress::new(None))?;
        *engine.loaded.lock() = std::mem::take(&mut loaded.sums);
        let mut body = Vec::new();
        for (id, heap) in loaded.segments {
            assert_eq!(heap, HEAP);
            engine.heap.adopt_segment(id);
            for slot in engine.segments.slots(id) {
                let slot = slot.unwrap();
                if !engine.segments.settle_after_load(slot) {
                    engine.heap.adopt_free(0, slot);
                    continue;
                }
                engine.segments.read(slot, &mut body);
                let key = u32::from_le_bytes(body[..4].try_into().unwrap());
                let mut rows = engine.rows.lock();
                match rows.get(&key).copied() {
                    Some(other) if engine.segments.lsn(other) >= engine.segments.lsn(slot) => {
                        engine.heap.release(0, slot);
                    }
                    other => {
                        rows.insert(key, slot);
                        other.into_iter().for_each(|other| engine.heap.release(0, other));
                    }
                }
            }
        }
        for (at, packet) in durable_log.iter().enumerate().skip(block.redo_start.0 as usize - 1) {
            packet.iter().for_each(|change| engine.apply(Lsn(at as u64 + 1), change));
        }
        *engine.log.lock() = durable_log.to_vec();
        engine.sync();
        Ok(engine)
    }
}

impl CheckpointSource for Engine {
    fn segments(&self) -> &Segments {
        &self.segments
    }

    fn redo_start(&self) -> Lsn {
        match self.in_flight.load(Ordering::SeqCst) {
            0 => self.place().next(),
            oldest => Lsn(oldest),
        }
    }

    fn cut(&self, consistency: Consistency, heaps: &Arc<HashSet<HeapId>>) -> Cut {
        let _commits = (consistency == Consistency::Transaction).then(|| self.commits.lock());
        Cut { redo_start: self.redo_start(), end: self.segments.cut(heaps.clone()), held: Duration::ZERO }
    }

    fn paint(&self, _: Consistency) -> Cut {
        // Packets here come from one thread, and are applied whole before the next.
        let _commits = self.commits.lock();
        Cut { redo_start: self.redo_start(), end: self.segments.paint(), held: Duration::ZERO }
    }

    fn hold_definitions(&self) -> Defined {
        Defined { redo_start: self.redo_start(), heaps: self.heaps() }
    }

    fn release_definitions(&self) {}

    fn forget_cut(&self) {
        self.segments.forget_cut();
    }

    fn cut_at_a_point(
        &self,
        heaps: &Arc<HashSet<HeapId>>,
        cut_pages: &mut dyn FnMut(),
    ) -> Result<(Cut, LogPoint)> {
        let cut = self.cut(Consistency::Transaction, heaps);
        cut_pages();
        Ok((cut, LogPoint::beginning_after(Lsn(cut.redo_start.0 - 1))))
    }

    fn place(&self) -> Lsn {
        Lsn(self.log.lock().len() as u64)
    }

    fn point(&self) -> Result<LogPoint> {
        let position = LogPosition(self.log_position());
        Ok(LogPoint { position, ..LogPoint::beginning_after(self.place()) })
    }

    fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        if self.log_broken.load(Ordering::SeqCst) {
            return Err(Error::Stopped { cause: "test".to_owned(), disk_full: false });
        }
        self.durable.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    fn free_log_but(&self, needed: LogNeeded) -> Result<Option<Lsn>> {
        self.freed_before.fetch_max(needed.from.0, Ordering::SeqCst);
        Ok(Some(needed.from))
    }

    fn leave_room(&self, _: bool) {}

    fn log_bytes_since(&self, lsn: Lsn) -> u64 {
        (self.place().0 + 1).saturating_sub(lsn.0.max(self.freed_before.load(Ordering::SeqCst))) * 100
    }

    fn log_bytes_used(&self) -> u64 {
        self.log_bytes_since(Lsn::ZERO)
    }

    fn archive_failure(&self) -> Option<String> {
        self.archive_failure.lock().clone()
    }

    fn log_is_short(&self) -> bool {
        false
    }

    fn published(&self, _: &HomeBlock) {}

    fn next_id(&self) -> u32 {
        100
    }

    fn loads(&self) -> &Mutex<Vec<LoadFile>> {
        &self.loads
    }

    fn log_position(&self) -> u64 {
        self.place().0 * 100 + self.pads.load(Ordering::SeqCst)
    }

    fn forward_ns(&self) -> Option<f64> {
        None
    }

    fn tell(&self, text: &str) {
        self.told.lock().push(text.to_owned());
        if let Some(when_told) = self.when_told.get() {
            when_told();
        }
    }
}
