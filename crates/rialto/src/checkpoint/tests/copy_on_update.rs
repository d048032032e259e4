//! Copies of one moment: they have what changed before the cut, and not what changed after it.

use super::*;
use crate::checkpoint::copy_on_update::CopyOnUpdate;
use crate::store::memory::segments::IMAGE_HEADER_BYTES;

/// Copies a segment to the first copy: its heap and the bytes in use.
fn sweep_one(segments: &Segments, id: SegmentId, buffer: &mut [u8]) -> Option<(Option<HeapId>, usize)> {
    let swept = segments.sweep(segments.latch(id), id, Copy::Ping, buffer).copied()?;
    Some((swept.heap, swept.used))
}

/// Calls its function before the sweep copies a segment.
struct Between<P, F>(P, F);

impl<P: SweepPolicy, F: FnMut(SegmentId)> SweepPolicy for Between<P, F> {
    fn next(&mut self, view: &SweepView<'_>) -> Option<SegmentId> {
        let next = self.0.next(view)?;
        (self.1)(next);
        Some(next)
    }
}

/// A packet of changes to a few rows, so that some segments stay as they are.
fn changes(random: &mut Random) -> Vec<Change> {
    let key = |random: &mut Random| match random.below(2) {
        0 => random.below(12) as u32,
        _ => 400 + random.below(6) as u32,
    };
    (0..1 + random.below(4)).map(|_| (key(random), (!random.chance(1, 4)).then(|| row(random)))).collect()
}

/// Sweeps at transaction-consistent cuts, or fuzzy ones, with packets committed before each segment is copied. Returns
/// the rows at the begin of the last sweep, and the rows that a machine recovers from its backup and the log up to that
/// moment alone.
fn backup_alone(at_cut: bool, seed: u64) -> (BTreeMap<u32, Vec<u8>>, BTreeMap<u32, Vec<u8>>) {
    let mut random = Random::new(seed);
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let mut last = None;
    // The third time the copy already has the segments that have not changed since the first.
    for copy in [Copy::Ping, Copy::Pong, Copy::Ping] {
        let file = disk.open(&image::backup_name(copy), Open::Create, Caching::Direct).unwrap();
        let (clock, control) = (still_clock(), sweep::SweepControl::default());
        let end = if at_cut {
            engine.segments.whiten(copy, 1 << 20);
            // A segment is taken into use while segments are made white.
            engine.commit(vec![(900, Some(vec![3; 20_000]))]);
            engine.cut(Consistency::Transaction, &engine.heaps()).end
        } else {
            engine.segments.high_water()
        };
        let (began, log) = (engine.contents(), engine.log.lock().clone());
        let whole = sweep_of(&engine, &*file, sweep::Pace::Unpaced, &clock, &control);
        let mut sweep = sweep::Sweep { end, ..whole };
        sweep.target.copy = copy;
        let catalog = engine.catalog(&sweep.target);
        let between = |_| {
            for _ in 0..1 + random.below(3) {
                engine.commit(changes(&mut random));
            }
        };
        let stats = match at_cut {
            true => sweep.run(catalog, &mut Between(CopyOnUpdate::default(), between)),
            false => sweep.run(catalog, &mut Between(fuzzy::Fuzzy::default(), between)),
        };
        if at_cut {
            engine.forget_cut();
        }
        last = Some((began, log, stats.unwrap()));
    }
    let (began, log, stats) = last.expect("three sweeps");
    assert!(stats.segments < u64::from(stats.end), "the test's own premise: the copy has some already");
    publish(&*disk, &stats, Lsn(log.len() as u64 + 1));
    (began, Engine::recover(&*disk, &log, 0).unwrap().contents())
}

#[test]
fn the_backup_alone_is_what_the_cut_had() {
    let base = Random::seed_from_environment();
    let mut fuzzy_differs = 0;
    for seed in (0..40).map(|n| base.wrapping_add(n)) {
        let (began, alone) = backup_alone(true, seed);
        assert!(began == alone, "RIALTO_SEED={seed}");
        let (began, alone) = backup_alone(false, seed);
        fuzzy_differs += u32::from(began != alone);
    }
    assert!(fuzzy_differs > 20, "the test's own premise: a fuzzy copy differs ({fuzzy_differs} of 40)");
}

#[test]
fn a_segment_is_kept_once_and_only_if_the_copy_lacks_it() {
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let slot_of = |key: u32| engine.rows.lock()[&key];
    let (first, last) = (slot_of(0), slot_of(59));
    engine.segments.clear_dirty(last.segment(), Copy::Ping);
    engine.segments.whiten(Copy::Ping, 1 << 20);
    engine.commit(vec![(0, Some(vec![4; 100]))]);
    assert!(engine.segments.is_white(first.segment()), "before the cut nothing is kept");
    engine.cut(Consistency::Transaction, &engine.heaps());
    for value in 5..8 {
        engine.commit(vec![(0, Some(vec![value; 100])), (59, Some(vec![value; 100]))]);
    }
    assert_eq!(engine.segments.snapshots().most_bytes(), SEGMENT_BYTES as u64);
    let mut buffer = vec![0; SEGMENT_BYTES];
    assert!(sweep_one(&engine.segments, last.segment(), &mut buffer).is_none(), "the copy has it");
    assert!(sweep_one(&engine.segments, first.segment(), &mut buffer).is_some());
    assert!(
        engine.segments.is_dirty(first.segment(), Copy::Ping),
        "what came after the cut is not in the copy"
    );
    engine.forget_cut();
    assert!((0..engine.segments.high_water()).all(|n| !engine.segments.is_white(SegmentId(n))));
}

#[test]
fn a_segment_that_is_given_back_under_a_sweep_is_in_it_and_free_afterwards() {
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let segment = engine.rows.lock()[&0].segment();
    engine.segments.whiten(Copy::Ping, 1 << 20);
    engine.cut(Consistency::Transaction, &engine.heaps());
    engine.segments.free(segment);
    let mut buffer = vec![0; SEGMENT_BYTES];
    let (heap, used) = sweep_one(&engine.segments, segment, &mut buffer).unwrap();
    assert_eq!((heap, used > 8000), (Some(HEAP), true));
    assert_ne!(engine.segments.allocate(HeapId(99)), Some(segment));
    engine.forget_cut();
    assert_eq!(engine.segments.heap(segment), None);
    assert!(engine.segments.is_dirty(segment, Copy::Ping));
    assert_eq!(engine.segments.allocate(HeapId(99)), Some(segment));
}

#[test]
fn a_segment_that_was_free_at_the_cut_is_free_in_the_copy_and_takes_no_memory() {
    let segments = Segments::reserve(Arc::new(Budget::new(4 << 20))).unwrap();
    let ids = [HEAP; 2].map(|heap| segments.allocate(heap).unwrap());
    segments.free(ids[0]);
    segments.whiten(Copy::Ping, 0);
    segments.cut(Arc::new(HashSet::from([HEAP])));
    // One is taken into use; the other one, in use without a row, is given back and taken by others.
    let mut buffer = vec![0; SEGMENT_BYTES];
    assert_eq!(segments.allocate(HeapId(99)), Some(ids[0]));
    segments.free(ids[1]);
    assert_eq!(segments.allocate(HeapId(99)), Some(ids[1]));
    for id in ids {
        let record = segments.extend(id, 3, SEGMENT_BYTES, b"").unwrap();
        segments.write(record, b"after the cut", Lsn(9));
        assert_eq!(sweep_one(&segments, id, &mut buffer), Some((None, 0)));
        assert!(segments.is_dirty(id, Copy::Ping));
    }
    assert_eq!(segments.snapshots().most_bytes(), 0);
    segments.forget_cut();
    assert_eq!(sweep_one(&segments, ids[1], &mut buffer), Some((Some(HeapId(99)), 64 + 3 * 16)));
}

/// The storage of an open transaction takes over segments of a table of the cut, and other tables take over the
/// transaction's segments.
#[test]
fn a_segment_whose_storage_no_table_had_at_the_cut_is_free_in_the_copy_and_takes_no_memory() {
    let segments = Segments::reserve(Arc::new(Budget::new(4 << 20))).unwrap();
    let (private, mut buffer) = (HeapId(99), vec![0; SEGMENT_BYTES]);
    let row_in = |id: SegmentId| {
        let record = segments.extend(id, 3, SEGMENT_BYTES, b"").unwrap();
        segments.write(record, b"a row", Lsn(9));
        record
    };
    let [of_table, changed, given_back] =
        [HEAP, private, private].map(|heap| segments.allocate(heap).unwrap());
    let [row, loaded, _] = [of_table, changed, given_back].map(row_in);
    segments.whiten(Copy::Ping, 0);
    segments.cut(Arc::new(HashSet::from([HEAP])));
    assert!(segments.is_in_cut(of_table) && !segments.is_in_cut(changed));

    // A loaded row is taken back, and another one is loaded.
    segments.vacate(loaded);
    row_in(changed);
    // The load is aborted, and another table takes its segment at once.
    segments.free(given_back);
    assert_eq!(segments.allocate(HEAP), Some(given_back));
    segments.vacate(row_in(given_back));
    assert_eq!(segments.snapshots().most_bytes(), 0);
    // The table is emptied row by row, and its segment goes to the open transaction.
    segments.vacate(row);
    assert_eq!(segments.snapshots().most_bytes(), SEGMENT_BYTES as u64);
    segments.free(of_table);
    assert_eq!(segments.allocate(private), Some(of_table));
    segments.vacate(row_in(of_table));
    segments.free(of_table);

    let rows = Some((Some(HEAP), IMAGE_HEADER_BYTES + 3 * 16));
    for (id, at_cut) in [(of_table, rows), (changed, Some((None, 0))), (given_back, Some((None, 0)))] {
        assert_eq!(sweep_one(&segments, id, &mut buffer), at_cut, "{id:?}");
        assert!(segments.is_dirty(id, Copy::Ping), "what {id:?} holds since is not in the copy");
    }
    segments.forget_cut();
    assert_eq!(segments.heap(of_table), None);
}

#[test]
fn commits_wait_for_room_and_a_lone_one_has_it() {
    let segments = Segments::reserve(Arc::new(Budget::new(4 << 20))).unwrap();
    segments.whiten(Copy::Ping, 3 * SEGMENT_BYTES as u64);
    segments.cut(Arc::new(HashSet::from([HEAP])));
    let snapshots = segments.snapshots();
    assert!(snapshots.promise(2) && snapshots.promise(1) && !snapshots.promise(1));
    snapshots.keep_promise(2);
    assert!(snapshots.promise(2));
    snapshots.keep_promise(2);
    snapshots.keep_promise(1);
    assert!(snapshots.promise(50), "more than there may be, but it is alone");
    assert!(!snapshots.promise(1));
    snapshots.keep_promise(50);
    assert!(!snapshots.is_short());
    std::thread::scope(|scope| {
        scope.spawn(|| snapshots.wait(&Clock::System, Duration::from_secs(60)));
        while !snapshots.is_short() {
            std::thread::yield_now();
        }
        segments.forget_cut();
    });
    assert!(!snapshots.is_short());
}
