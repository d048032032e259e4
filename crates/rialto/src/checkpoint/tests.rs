//! Checkpoints on faulty disks, against a model of the rows. The engine beneath them is a stub ([`engine`]).

mod copy_on_update;
mod engine;
mod pace;
mod readiness;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{Change, Engine};

use hashbrown::HashSet;

use super::catalog_copy::{CatalogCopy, ImageTarget};
use super::home::HomeFile;
use super::image_sums::ImageSums;
use super::sweep::{SweepPolicy, SweepView};
use super::*;
use crate::error::{Error, Result};
use crate::ids::{HeapId, Lsn};
use crate::io::{
    Caching, Clock, Disk, DiskResult, FaultKind, FaultyDisk, File, MemoryDisk, Open, Random, VirtualClock,
};
use crate::log::LogPoint;
use crate::recovery::{RecoveryProgress, load};
use crate::store::Budget;
use crate::store::memory::segments::Copy;
use crate::store::memory::{LoadCommit, LoadFile, SEGMENT_BYTES, SegmentId, Segments, image, load_file};

const DATABASE: u128 = 0xabcd;
const HEAP: HeapId = HeapId(70);

fn options() -> CheckpointOptions {
    CheckpointOptions {
        interval: Duration::from_secs(10),
        sweep_bytes_per_s: Some(0),
        log_bytes_max: 1 << 30,
        run: RunLength::Segments(3),
        snapshot_bytes_max: 8 * SEGMENT_BYTES as u64,
        spool: true,
        unlogged_behind: None,
        copies: 2,
        on_demand: Checkpointing::Fuzzy,
        recovery_within: None,
        recovery_rates: RecoveryRates::default(),
    }
}

fn create(disk: Arc<dyn Disk>) -> DiskResult<(Arc<Engine>, Arc<Checkpointer>)> {
    create_with(disk, options())
}

fn create_with(
    disk: Arc<dyn Disk>,
    options: CheckpointOptions,
) -> DiskResult<(Arc<Engine>, Arc<Checkpointer>)> {
    let home = HomeFile::create(&*disk, DATABASE, 64)?;
    let engine = Engine::new();
    let (copies, clock) = (engine.copies(home), Arc::new(VirtualClock::new()));
    Ok((engine.clone(), Checkpointer::new(disk, clock.into(), copies, engine, options)))
}

fn row(random: &mut Random) -> Vec<u8> {
    let length = if random.chance(1, 10) { random.below(9000) } else { random.below(200) };
    vec![random.below(256) as u8; length as usize]
}

fn packet(random: &mut Random) -> Vec<Change> {
    (0..1 + random.below(4))
        .map(|_| {
            let key = random.below(400) as u32;
            (key, (!random.chance(1, 4)).then(|| row(random)))
        })
        .collect()
}

/// The rows that a prefix of the log makes.
fn model(log: &[Vec<Change>]) -> BTreeMap<u32, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for (key, row) in log.iter().flatten() {
        match row {
            Some(row) => rows.insert(*key, row.clone()),
            None => rows.remove(key),
        };
    }
    rows
}

#[test]
fn checkpoints_alternate_skip_what_is_clean_and_free_the_log_one_later() {
    let disk = MemoryDisk::new();
    let (engine, checkpointer) = create(disk.clone()).unwrap();
    assert!(checkpointer.run_now().unwrap().skipped, "nothing was logged");
    for key in 0..3000 {
        engine.commit(vec![(key, Some(vec![1; 100]))]);
    }
    let all = engine.segments.high_water() as u64;
    assert!(all > 4);
    let first = checkpointer.run_now().unwrap();
    assert_eq!((first.segments, first.redo_start, first.skipped), (all, Lsn(3001), false));
    assert_eq!(engine.freed_before.load(Ordering::SeqCst), 1);
    assert!(checkpointer.run_now().unwrap().skipped);

    // The change makes it dirty for both copies; for the second it always was.
    engine.commit(vec![(0, Some(vec![2; 100]))]);
    assert_eq!(checkpointer.run_now().unwrap().segments, all);
    assert_eq!(engine.freed_before.load(Ordering::SeqCst), 3001);
    engine.commit(vec![(0, Some(vec![3; 100]))]);
    let third = checkpointer.run_now().unwrap();
    assert_eq!(third.segments, 1);
    assert!(third.written_bytes <= SEGMENT_BYTES as u64);
    assert_eq!(checkpointer.stats().completed, 3);
    let log = engine.log.lock().clone();
    let recovered = Engine::recover(&*disk, &log, engine.freed_before.load(Ordering::SeqCst)).unwrap();
    assert_eq!(recovered.contents(), engine.contents());
    assert_eq!(recovered.contents(), model(&log));
}

/// Each opening writes a pad. A checkpoint of the same state has a new point, so that the pads before it can go.
#[test]
fn pads_of_many_openings_go_when_room_is_wanted() {
    // With three copies the log is kept for the older checkpoint, too.
    for (copies, skipped) in [(2, &[false, true][..]), (3, &[false, false, true])] {
        let disk = MemoryDisk::new();
        let (engine, checkpointer) = create_with(disk, CheckpointOptions { copies, ..options() }).unwrap();
        engine.commit(vec![(0, Some(vec![1; 100]))]);
        assert!(!checkpointer.run_now().unwrap().skipped);
        engine.pads.store(options().log_bytes_max / 2, Ordering::SeqCst);
        assert!(checkpointer.run_now().unwrap().skipped, "there is room");
        for &is_skipped in skipped {
            checkpointer.want_room();
            assert_eq!(checkpointer.run_now().unwrap().skipped, is_skipped, "{copies} copies");
        }
    }
}

/// The checkpointer ends at some step of a run on a log of its own: what was durable is recovered, and nothing else.
/// (Whole databases end at each of their steps in `tests/contents/ledger/steps.rs`.)
#[test]
fn a_crash_at_any_step_recovers_a_prefix_of_the_log() {
    let base = Random::seed_from_environment();
    let until = std::time::Instant::now() + Random::test_time_from_environment();
    let (mut rounds, mut crashes, mut operations, mut adjacent) = (0, 0, 0, 0);
    let mut fallen_back = 0;
    // Some newest copies are damaged, and some sweeps have runs of several segments.
    let has_met_all = |adjacent, fallen_back| adjacent > 4 && fallen_back > 0;
    while rounds < 3
        || rounds < 1_000 && !has_met_all(adjacent, fallen_back)
        || std::time::Instant::now() < until
    {
        let seed = base.wrapping_add(rounds);
        rounds += 1;
        let mut random = Random::new(seed);
        let disk = FaultyDisk::new(random.next());
        let crash_at = 3 + random.below(120);
        if random.chance(1, 4) {
            disk.kill_at(crash_at);
        } else {
            disk.crash_at(crash_at);
        }
        // Single images, and runs up to all that there is.
        let options = CheckpointOptions {
            run: RunLength::Segments(1 + random.below(8) as usize),
            spool: random.chance(2, 3),
            copies: 2 + random.below(2) as u32,
            ..options()
        };
        let made = create_with(disk.clone(), options);
        let Ok((mut engine, mut checkpointer)) = made else { continue };
        let strategy = Checkpointing::ALL[random.below(Checkpointing::ALL.len() as u64) as usize];
        checkpointer.choose(strategy);
        let mut disk = disk;
        for _ in 0..3 {
            let mut log_freed = engine.freed_before.load(Ordering::SeqCst);
            for _ in 0..12 {
                for _ in 0..random.below(40) {
                    let packet = packet(&mut random);
                    operations += packet.len() as u64;
                    engine.commit(packet);
                }
                if random.chance(1, 3) {
                    disk.fail(
                        FaultKind::Write,
                        if random.chance(1, 2) { "backup" } else { "home" },
                        random.below(3),
                    );
                }
                let outcome = checkpointer.run_now();
                if let Ok(report) = &outcome {
                    adjacent = adjacent.max(report.segments);
                }
                log_freed = log_freed.max(engine.freed_before.load(Ordering::SeqCst));
                if outcome.is_err() && disk.is_down() {
                    break;
                }
                disk.mend();
            }
            disk.crash();
            crashes += 1;
            disk = disk.restart();
            // Of the log that is not proven durable, any prefix may have survived.
            let mut log = engine.log.lock().clone();
            let durable = engine.durable.load(Ordering::SeqCst);
            log.truncate((durable + random.below(log.len() as u64 - durable + 1)) as usize);
            let mut home = HomeFile::open(&*disk).unwrap();
            let newest = *home.block();
            let damages = random.chance(1, 3) && home.older().is_some() && newest.segments > 0;
            if damages {
                let segment = random.below(u64::from(newest.segments)) * SEGMENT_BYTES as u64;
                let name = image::backup_name(newest.copy.unwrap());
                disk.damage(&name, segment + random.below(64), 1).unwrap();
            }
            let (recovered, fell_back) = Engine::recover_either(&*disk, &log, log_freed, &mut home)
                .unwrap_or_else(|error| panic!("RIALTO_SEED={seed}, crash at {crash_at}: {error}"));
            // (A copy that recovery fell back from stays damaged until a checkpoint writes it.)
            assert!(fell_back.is_some() || !damages, "RIALTO_SEED={seed}, crash at {crash_at}");
            fallen_back += u64::from(fell_back.is_some());
            engine = recovered;
            assert!(engine.contents() == model(&log), "RIALTO_SEED={seed}, crash at {crash_at}");
            engine.freed_before.store(log_freed, Ordering::SeqCst);
            let clock = Arc::new(VirtualClock::new());
            let options = CheckpointOptions { copies: 2 + random.below(2) as u32, ..options };
            checkpointer =
                Checkpointer::new(disk.clone(), clock.into(), engine.copies(home), engine.clone(), options);
            checkpointer.choose(strategy);
            disk.crash_at(disk.steps() + 1 + random.below(60));
        }
    }
    assert!(
        has_met_all(adjacent, fallen_back),
        "the test's own premise: runs of {adjacent} segments, {fallen_back} damaged copies"
    );
    println!(
        "tally: checkpoints under crashes, {rounds} seeds, {crashes} losses of power of a mock, {operations} operations, \
         RIALTO_SEED={base}"
    );
}

/// Calls its function before the sweep copies a segment.
struct Between<F>(fuzzy::Fuzzy, F);

impl<F: FnMut(SegmentId)> SweepPolicy for Between<F> {
    fn next(&mut self, view: &SweepView<'_>) -> Option<SegmentId> {
        let next = self.0.next(view)?;
        (self.1)(next);
        Some(next)
    }
}

fn sweep(
    engine: &Engine,
    disk: &dyn Disk,
    copy: Copy,
    between: impl FnMut(SegmentId),
) -> Result<sweep::SweepStats> {
    let file = disk.open(&image::backup_name(copy), Open::Create, Caching::Direct)?;
    let (clock, control) = (still_clock(), sweep::SweepControl::default());
    let mut sweep = sweep_of(engine, &*file, sweep::Pace::Unpaced, &clock, &control);
    sweep.target.copy = copy;
    sweep.run(engine.catalog(&sweep.target), &mut Between(fuzzy::Fuzzy::default(), between))
}

/// A clock that moves by its waits alone.
fn still_clock() -> Clock {
    Arc::new(VirtualClock::new()).into()
}

/// A sweep to the first copy, in single images.
fn sweep_of<'a>(
    engine: &'a Engine,
    file: &'a dyn File,
    pace: sweep::Pace<'a>,
    clock: &'a Clock,
    control: &'a sweep::SweepControl,
) -> sweep::Sweep<'a> {
    sweep::Sweep {
        segments: &engine.segments,
        target: ImageTarget {
            copy: Copy::Ping,
            file,
            seed: image::seed_of(DATABASE),
            sequence: 2,
            sums: &engine.sums,
        },
        end: engine.segments.high_water(),
        pace,
        run: RunLength::Auto,
        spool: true,
        clock,
        control,
    }
}

fn publish(disk: &dyn Disk, stats: &sweep::SweepStats, redo_start: Lsn) {
    let mut home = HomeFile::open(disk).unwrap();
    let new = home::NewHome {
        copy: Copy::Ping,
        segments: stats.end,
        redo_start,
        next_id: 100,
        sweep: 1,
        clearance: LogPoint::beginning_after(redo_start),
        transaction_consistent: false,
        logged: true,
        digest: stats.digest,
        pages: None,
        redone: None,
    };
    home.publish(new).unwrap();
}

/// Enough rows for several segments.
fn filled(disk: Arc<dyn Disk>) -> Arc<Engine> {
    let (engine, _) = create(disk).unwrap();
    for key in 0..60 {
        engine.commit(vec![(key, Some(vec![1; 8000]))]);
    }
    assert!(engine.segments.high_water() > 6);
    engine
}

#[test]
fn a_latched_segment_is_left_for_later() {
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let (segments, held) = (&engine.segments, SegmentId(2));
    let last = SegmentId(segments.high_water() - 1);
    let mut latch = None;
    let stats = sweep(&engine, &*disk, Copy::Ping, |segment| {
        if segment == held {
            latch = Some(segments.latch(held));
        }
        if segment == last {
            let uncopied = (0..last.0).map(SegmentId).filter(|id| segments.is_dirty(*id, Copy::Ping));
            assert_eq!(uncopied.collect::<Vec<_>>(), [held], "the others were copied meanwhile");
            latch = None;
        }
    });
    let stats = stats.unwrap();
    assert_eq!((stats.busy, stats.segments), (1, u64::from(segments.high_water())));
    assert!(!segments.is_dirty(held, Copy::Ping), "it was copied in the end");
}

#[test]
fn a_record_that_moves_past_the_sweep_is_not_lost() {
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let redo_start = engine.redo_start();
    // Key 50 lies in a late segment; its new slot is a freed one in the first segment, which the sweep has passed.
    let stats = sweep(&engine, &*disk, Copy::Ping, |segment| {
        if segment == SegmentId(3) {
            engine.commit(vec![(50, None)]);
            engine.commit(vec![(0, None)]);
            engine.commit(vec![(50, Some(vec![9; 8000]))]);
        }
    });
    let now = engine.rows.lock()[&50];
    assert!(now.segment() < SegmentId(3), "the test's own premise");
    publish(&*disk, &stats.unwrap(), redo_start);
    let recovered = Engine::recover(&*disk, &engine.log.lock().clone(), 0).unwrap();
    assert_eq!(recovered.contents(), engine.contents());
}

#[test]
fn a_record_that_the_sweep_catches_twice_is_kept_once() {
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let redo_start = engine.redo_start();
    // Key 0 moves from the first segment, which was copied, to a new slot behind the sweep.
    let stats = sweep(&engine, &*disk, Copy::Ping, |segment| {
        if segment == SegmentId(3) {
            engine.commit(vec![(0, Some(vec![9; 9000]))]);
        }
    });
    assert!(engine.rows.lock()[&0].segment() > SegmentId(3), "the test's own premise");
    publish(&*disk, &stats.unwrap(), redo_start);
    let recovered = Engine::recover(&*disk, &engine.log.lock().clone(), 0).unwrap();
    assert_eq!(recovered.contents(), engine.contents());
}

/// A packet is half applied when the sweep begins: redo has to begin with it, although its place is before the head.
#[test]
fn the_redo_start_covers_a_packet_that_is_applied_under_the_sweep() {
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let changes = vec![(5, Some(vec![7; 8000])), (55, Some(vec![7; 8000]))];
    let lsn = engine.push(changes.clone());
    engine.in_flight.store(lsn.0, Ordering::SeqCst);
    engine.apply(lsn, &changes[1]);
    engine.commit(vec![(30, Some(vec![8; 8000]))]);
    let redo_start = engine.redo_start();
    assert_eq!(redo_start, lsn);
    let stats = sweep(&engine, &*disk, Copy::Ping, |segment| {
        if segment == SegmentId(4) {
            engine.apply(lsn, &changes[0]);
            engine.in_flight.store(0, Ordering::SeqCst);
        }
    });
    publish(&*disk, &stats.unwrap(), redo_start);
    let recovered = Engine::recover(&*disk, &engine.log.lock().clone(), 0).unwrap();
    assert_eq!(recovered.contents(), engine.contents());
}

/// Clearance: a copy holds half of a packet that never became durable, so the checkpoint must not take effect.
#[test]
fn without_clearance_the_checkpoint_does_not_count() {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let (engine, checkpointer) = create(disk.clone()).unwrap();
    for key in 0..60 {
        engine.commit(vec![(key, Some(vec![1; 8000]))]);
    }
    checkpointer.run_now().unwrap();
    let durable = engine.durable.load(Ordering::SeqCst);
    let changes = vec![(5, Some(vec![7; 8000])), (55, Some(vec![7; 8000]))];
    let lsn = engine.push(changes.clone());
    engine.in_flight.store(lsn.0, Ordering::SeqCst);
    engine.apply(lsn, &changes[0]);
    engine.log_broken.store(true, Ordering::SeqCst);
    // The redo start does not pass the packet in progress, so another packet has to be applied for there to be work.
    engine.in_flight.store(0, Ordering::SeqCst);
    assert!(matches!(checkpointer.run_now(), Err(Error::Stopped { .. })));
    assert_eq!(checkpointer.stats().failed, 1);
    disk.crash();
    let disk = disk.restart();
    let log = engine.log.lock()[..durable as usize].to_vec();
    let recovered = Engine::recover(&*disk, &log, engine.freed_before.load(Ordering::SeqCst)).unwrap();
    assert_eq!(recovered.contents(), model(&log));
    assert_eq!(recovered.contents()[&5], vec![1; 8000]);
}

#[test]
fn a_sweep_with_concurrent_writers_recovers_all_they_wrote() {
    let disk = MemoryDisk::new();
    let (engine, checkpointer) = create(disk.clone()).unwrap();
    let stop = AtomicBool::new(false);
    let seed = Random::seed_from_environment();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(seed);
            while !stop.load(Ordering::Relaxed) {
                let changes = packet(&mut random);
                engine.in_flight.store(engine.place().0 + 1, Ordering::SeqCst);
                engine.commit(changes);
                engine.in_flight.store(0, Ordering::SeqCst);
            }
        });
        for _ in 0..8 {
            checkpointer.run_now().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    engine.commit(vec![(1, Some(vec![1]))]);
    let log = engine.log.lock().clone();
    let recovered = Engine::recover(&*disk, &log, engine.freed_before.load(Ordering::SeqCst)).unwrap();
    assert!(recovered.contents() == engine.contents(), "RIALTO_SEED={seed}");
}

#[test]
fn a_failed_sweep_sets_its_bits_again() {
    for kind in [FaultKind::Write, FaultKind::Sync, FaultKind::Full] {
        let disk = FaultyDisk::new(3);
        let (engine, checkpointer) = create(disk.clone()).unwrap();
        for key in 0..60 {
            engine.commit(vec![(key, Some(vec![1; 8000]))]);
        }
        disk.fail(kind, "backup", if kind == FaultKind::Write { 1 } else { 0 });
        match (kind, checkpointer.run_now()) {
            (FaultKind::Full, Err(Error::DiskFull { file, .. })) => assert_eq!(file, "backup-0"),
            (FaultKind::Write | FaultKind::Sync, Err(Error::Io { file, .. })) => assert_eq!(file, "backup-0"),
            (_, other) => panic!("{kind:?} gave {other:?}"),
        }
        let all = engine.segments.high_water();
        assert!((0..all).all(|n| engine.segments.is_dirty(SegmentId(n), Copy::Ping)), "{kind:?}");
        assert!(checkpointer.stats().failure.is_some());
        disk.mend();
        assert_eq!(checkpointer.run_now().unwrap().segments, u64::from(all));
        assert_eq!(checkpointer.stats().failure, None);
        let log = engine.log.lock().clone();
        assert_eq!(Engine::recover(&*disk, &log, 0).unwrap().contents(), engine.contents());
    }
}

/// The sync of the directory fails after the creation of a copy's file. The next checkpoint finds a file of that name,
/// but a crash of the machine may lose the name, so no home block may name the copy.
#[test]
fn no_home_block_names_a_copy_whose_name_is_not_durable() {
    for seed in 1..=10 {
        let disk = FaultyDisk::new(seed);
        let (engine, checkpointer) = create(disk.clone()).unwrap();
        engine.commit(vec![(1, Some(vec![1; 100]))]);
        disk.fail(FaultKind::Sync, ".", 0);
        for _ in 0..3 {
            // From the first failure on, no sync of this directory succeeds.
            let failed = checkpointer.run_now();
            assert!(matches!(&failed, Err(Error::Io { file, .. }) if file == "."), "seed {seed}: {failed:?}");
        }
        disk.crash();
        let log = engine.log.lock().clone();
        let recovered = Engine::recover(&*disk.restart(), &log, 0).unwrap();
        assert_eq!(recovered.contents(), engine.contents(), "seed {seed}");
    }
}

#[test]
fn missing_cut_or_damaged_copies_are_named() {
    let disk = MemoryDisk::new();
    let (engine, checkpointer) = create(disk.clone()).unwrap();
    for key in 0..60 {
        engine.commit(vec![(key, Some(vec![1; 8000]))]);
    }
    checkpointer.run_now().unwrap();
    let log = engine.log.lock().clone();
    let expect = |expected: u64| {
        let mut home = HomeFile::open(&*disk).unwrap();
        let (recovered, fell_back) = Engine::recover_either(&*disk, &log, 0, &mut home).unwrap();
        let fell_back = fell_back.expect("the copy is damaged, and the log alone has it all");
        assert_eq!((fell_back.file.as_str(), fell_back.offset), ("backup-0", expected));
        assert_eq!(recovered.contents(), engine.contents());
    };
    let file = disk.open("backup-0", Open::Existing, Caching::Buffered).unwrap();
    let mut byte = [0];
    for segment in [0u64, 2, 5] {
        let at = segment * SEGMENT_BYTES as u64 + 1000 + segment;
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 1], at).unwrap();
        expect(segment * SEGMENT_BYTES as u64);
        file.write_at(&byte, at).unwrap();
    }
    // The image of another segment.
    let mut whole = vec![0; SEGMENT_BYTES];
    file.read_at(&mut whole, 2 * SEGMENT_BYTES as u64).unwrap();
    let mut first = vec![0; SEGMENT_BYTES];
    file.read_at(&mut first, 0).unwrap();
    file.write_at(&whole, 0).unwrap();
    expect(0);
    file.write_at(&first, 0).unwrap();
    Engine::recover(&*disk, &log, 0).unwrap();
    file.set_length(5 * SEGMENT_BYTES as u64 + 4096).unwrap();
    expect(5 * SEGMENT_BYTES as u64);
    disk.remove("backup-0").unwrap();
    expect(0);
}

#[test]
fn a_copy_that_does_not_fit_is_a_memory_error() {
    let disk = MemoryDisk::new();
    let (engine, checkpointer) = create(disk.clone()).unwrap();
    for key in 0..60 {
        engine.commit(vec![(key, Some(vec![1; 8000]))]);
    }
    checkpointer.run_now().unwrap();
    let home = *HomeFile::open(&*disk).unwrap().block();
    let small = Segments::reserve(Arc::new(Budget::new(3 * SEGMENT_BYTES as u64))).unwrap();
    let loaded = load::load(&*disk, &home, &small, 1, &RecoveryProgress::new(None));
    assert!(matches!(loaded, Err(Error::MemoryLimit { .. })));
}

#[test]
fn the_other_copy_is_dirty_after_loading() {
    let disk = MemoryDisk::new();
    let (engine, checkpointer) = create(disk.clone()).unwrap();
    for key in 0..60 {
        engine.commit(vec![(key, Some(vec![1; 8000]))]);
    }
    let freed = engine.rows.lock()[&0].segment();
    checkpointer.run_now().unwrap();
    engine.segments.free(freed);
    engine.commit(vec![(59, Some(vec![2; 8000]))]);
    let report = checkpointer.run_now().unwrap();
    let home = *HomeFile::open(&*disk).unwrap().block();
    assert_eq!((home.copy, report.segments), (Some(Copy::Pong), u64::from(engine.segments.high_water())));
    let segments = Segments::reserve(Arc::new(Budget::new(64 << 20))).unwrap();
    let loaded = load::load(&*disk, &home, &segments, 3, &RecoveryProgress::new(None)).unwrap();
    assert_eq!(loaded.segments.len() as u32, home.segments - 1);
    assert_eq!(segments.heap(freed), None);
    for n in 0..home.segments {
        let id = SegmentId(n);
        assert!(segments.is_dirty(id, Copy::Ping) && !segments.is_dirty(id, Copy::Pong), "segment {n}");
    }
    assert_eq!(segments.allocate(HeapId(99)), Some(freed));
}

#[test]
fn load_files_go_with_the_checkpoint_that_needed_them() {
    let disk = MemoryDisk::new();
    let (engine, checkpointer) = create(disk.clone()).unwrap();
    load_file::write_load_file(&*disk, DATABASE, 80, &engine.heap, &|| Ok(())).unwrap();
    load_file::write_load_file(&*disk, DATABASE, 81, &engine.heap, &|| Ok(())).unwrap();
    let lsn = engine.commit(vec![(1, Some(vec![1]))]);
    // Load 81 was not committed; recovery has found its file.
    let load = |number, committed| LoadFile { number, committed };
    engine.loads.lock().extend([load(80, LoadCommit::At(lsn)), load(81, LoadCommit::Never)]);
    let there = || disk.list().unwrap().iter().filter(|name| name.starts_with("load-")).count();
    checkpointer.run_now().unwrap();
    assert_eq!((there(), engine.loads.lock().len()), (1, 1));
    engine.commit(vec![(1, Some(vec![2]))]);
    checkpointer.run_now().unwrap();
    assert_eq!((there(), engine.loads.lock().len()), (0, 0));
}

/// With three copies the two that count both stay, with the log that the older one needs, until the next one is
/// complete.
#[test]
fn three_copies_always_leave_an_older_one_to_fall_back_to() {
    let disk = FaultyDisk::new(1);
    let (engine, checkpointer) =
        create_with(disk.clone(), CheckpointOptions { copies: 3, ..options() }).unwrap();
    let mut named = Vec::new();
    for round in 0..7 {
        engine.commit((0..20).map(|key| (key, Some(vec![round as u8; 3_000]))).collect());
        if round == 5 {
            // In the middle of a sweep nothing is given up.
            disk.fail(FaultKind::Write, "backup", 0);
            checkpointer.run_now().unwrap_err();
            disk.mend();
        }
        let home = HomeFile::open(&*disk).unwrap();
        if round >= 2 {
            let (current, older) = (home.block(), home.older().expect("it is in force"));
            assert!(
                current.copy != older.copy
                    && engine.freed_before.load(Ordering::SeqCst) <= older.redo_start.0
            );
        }
        checkpointer.run_now().unwrap();
        named.push(HomeFile::open(&*disk).unwrap().block().copy.unwrap());
    }
    let in_turn = [Copy::Ping, Copy::Pong, Copy::Third];
    assert_eq!(named, (0..7).map(|round| in_turn[round % 3]).collect::<Vec<_>>());
    let freed = engine.freed_before.load(Ordering::SeqCst);
    let log = engine.log.lock().clone();

    let mut home = HomeFile::open(&*disk).unwrap();
    disk.damage("backup-0", 100, 1).unwrap();
    let (recovered, fell_back) = Engine::recover_either(&*disk, &log, freed, &mut home).unwrap();
    assert_eq!(recovered.contents(), model(&log));
    let fell_back = fell_back.expect("backup-0 is the newest");
    assert_eq!((fell_back.file.as_str(), fell_back.offset, fell_back.longer_by), ("backup-0", 0, 1));

    // Back to two copies: the third goes once no block names it.
    let clock = Arc::new(VirtualClock::new());
    let copies = recovered.copies(home);
    let checkpointer = Checkpointer::new(disk.clone(), clock.into(), copies, recovered.clone(), options());
    for round in 0..3 {
        recovered.commit(vec![(0, Some(vec![round; 10]))]);
        checkpointer.run_now().unwrap();
    }
    assert!(!disk.list().unwrap().contains(&"backup-2".to_owned()));
    let log = recovered.log.lock().clone();
    let freed = recovered.freed_before.load(Ordering::SeqCst);
    assert_eq!(Engine::recover(&*disk, &log, freed).unwrap().contents(), model(&log));
}
