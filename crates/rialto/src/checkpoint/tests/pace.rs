//! When checkpoints are made, and how fast they sweep.

use super::super::fuzzy::Fuzzy;
use super::super::sweep::{Pace, Sweep, SweepControl};
use super::*;

#[test]
fn the_sweep_keeps_its_pace_unless_a_caller_waits() {
    // A caller waits for the checkpoint, or transactions for the log's room, from its third second on.
    for (urgent, pressed) in [(false, false), (true, false), (false, true)] {
        let disk = MemoryDisk::new();
        let engine = filled(disk.clone());
        let file = disk.open("backup-0", Open::Create, Caching::Direct).unwrap();
        let (clock, control) = (still_clock(), SweepControl::default());
        control.set_urgent(urgent);
        let log_presses = || pressed && clock.now().reading() >= Duration::from_secs(3);
        let look_every = Duration::from_millis(50);
        let pace = Pace::Bytes { a_second: 100_000, look_every, log_presses: &log_presses };
        let sweep = sweep_of(&engine, &*file, pace, &clock, &control);
        let run = || sweep.run(engine.catalog(&sweep.target), &mut Fuzzy::default());
        let stats = run().unwrap();
        let took = clock.now().reading().as_secs_f64();
        let paced = stats.written_bytes as f64 / 100_000.0;
        assert!(paced > 4.0, "the test's own premise: {paced}");
        let expected = match (urgent, pressed) {
            (true, _) => 0.0,
            (_, true) => 3.0,
            _ => paced,
        };
        assert!((expected - 0.01..expected + 0.06).contains(&took), "{took}, expected {expected}");
        control.stop();
        engine.commit(vec![(3, Some(vec![1]))]);
        assert_eq!(run(), Err(Error::Closed));
    }
}

#[test]
fn a_sweep_without_a_pace_of_its_own_takes_its_time_unless_the_log_runs_out_of_room() {
    // How much of its room the log uses a second, and how long the sweep then takes.
    for (a_second, expected) in [(0.0, 10.0), (0.05, 10.0), (0.5, 2.0), (f64::INFINITY, 0.0)] {
        let disk = MemoryDisk::new();
        let engine = filled(disk.clone());
        let file = disk.open("backup-0", Open::Create, Caching::Direct).unwrap();
        let (clock, control) = (still_clock(), SweepControl::default());
        let now = || clock.now().reading().as_secs_f64();
        let log_used = || if a_second.is_finite() { now() * a_second } else { 1.0 };
        let pace = Pace::Follow {
            within: Duration::from_secs(10),
            look_every: Duration::from_millis(50),
            log_used: &log_used,
        };
        let sweep = sweep_of(&engine, &*file, pace, &clock, &control);
        sweep.run(engine.catalog(&sweep.target), &mut Fuzzy::default()).unwrap();
        assert!((now() - expected).abs() < 0.1, "{} s, expected {expected}", now());
    }
}

/// A backup hurries the sweep that it waits for, and no later one, even if its stream has panicked.
#[test]
fn a_sweep_makes_its_pauses_after_a_backup_that_panicked() {
    let paced = CheckpointOptions { sweep_bytes_per_s: Some(100_000), interval: Duration::ZERO, ..options() };
    let (engine, checkpointer) = create_with(MemoryDisk::new(), paced).unwrap();
    (0..60).for_each(|key| {
        engine.commit(vec![(key, Some(vec![1; 8000]))]);
    });
    let never = AtomicBool::new(false);
    let panics =
        || checkpointer.between_checkpoints(&never, |_, _| -> Result<()> { panic!("the stream panics") });
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
    checkpointer.choose(Checkpointing::Fuzzy);
    checkpointer.look();
    let swept = checkpointer.stats().last.expect("it was due");
    assert!(swept.took >= Duration::from_secs(4), "{swept:?}");
}

/// A backup that waits for another one, whose reader has stalled, ends on its cancel and on the close of the database.
#[test]
fn a_wait_between_checkpoints_can_be_ended() {
    let waits: [fn(&Checkpointer, &AtomicBool) -> Result<()>; 2] = [
        |checkpointer, cancelled| checkpointer.between_checkpoints(cancelled, |_, _| Ok(())),
        // Before a backup, where the log is half full.
        |checkpointer, cancelled| checkpointer.run_now_unless(Some(cancelled)).map(drop),
    ];
    for (wait, closes) in [(waits[0], false), (waits[1], false), (waits[0], true), (waits[1], true)] {
        let (_engine, checkpointer) = create_with(MemoryDisk::new(), options()).unwrap();
        let (never, cancelled) = (AtomicBool::new(false), AtomicBool::new(false));
        let result = checkpointer
            .between_checkpoints(&never, |_, _| {
                std::thread::scope(|scope| {
                    let second = scope.spawn(|| wait(&checkpointer, &cancelled));
                    match closes {
                        true => checkpointer.stop(),
                        false => cancelled.store(true, Ordering::Relaxed),
                    }
                    Ok(second.join().unwrap())
                })
            })
            .unwrap();
        assert_eq!(result, Err(if closes { Error::Closed } else { Error::Cancelled }));
    }
}

/// Pauses lie between runs, so a sweep of long runs has few; and it copies a run's segments together.
#[test]
fn a_sweep_rests_once_for_each_run() {
    let disk = MemoryDisk::new();
    let engine = filled(disk.clone());
    let file = disk.open("backup-0", Open::Create, Caching::Direct).unwrap();
    let (clock, control) = (still_clock(), SweepControl::default());
    let pace = Pace::Follow {
        within: Duration::from_secs(60),
        look_every: Duration::from_secs(60),
        log_used: &|| 0.0,
    };
    let sweep = Sweep { run: RunLength::Segments(4), ..sweep_of(&engine, &*file, pace, &clock, &control) };
    let mut times = Vec::new();
    let stats = {
        let policy = &mut Between(Fuzzy::default(), |_| times.push(clock.now().reading()));
        sweep.run(engine.catalog(&sweep.target), policy).unwrap()
    };
    // The policy is asked before the rest, so the first segment of a run is seen at the end of the run before.
    let all = engine.segments.high_water() as usize;
    assert_eq!((times.len(), stats.segments), (all, all as u64));
    times.dedup();
    assert_eq!(times.len(), all.div_ceil(4), "{times:?}");
    assert_eq!(clock.now().reading(), Duration::from_secs(60));
}

/// A sweep that rests for an hour ends its rest when a caller hurries it, and when the database closes.
#[test]
fn a_resting_sweep_is_woken() {
    for closes in [false, true] {
        let disk = MemoryDisk::new();
        let engine = filled(disk.clone());
        let file = disk.open("backup-0", Open::Create, Caching::Direct).unwrap();
        let (clock, control) = (Clock::System, SweepControl::default());
        let rested = AtomicBool::new(false);
        let hour = Duration::from_secs(3600);
        let run = || {
            let log_used = || {
                rested.store(true, Ordering::SeqCst);
                0.0
            };
            let pace = Pace::Follow { within: hour, look_every: hour, log_used: &log_used };
            let unused = still_clock();
            let sweep = Sweep { clock: &clock, ..sweep_of(&engine, &*file, pace, &unused, &control) };
            sweep.run(engine.catalog(&sweep.target), &mut Fuzzy::default())
        };
        std::thread::scope(|scope| {
            let sweep = scope.spawn(run);
            while !rested.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            if closes {
                control.stop();
                assert_eq!(sweep.join().unwrap(), Err(Error::Closed));
            } else {
                control.set_urgent(true);
                assert_eq!(sweep.join().unwrap().unwrap().segments, u64::from(engine.segments.high_water()));
            }
        });
    }
}

/// No sync has much to do: a large copy is synced on the way.
#[test]
fn a_sweep_syncs_every_32_mib() {
    // Which sync of a sweep over 40 MB fails: it makes one on the way and one at the end, and no third.
    for (after, fails) in [(0, true), (1, true), (2, false)] {
        let disk = FaultyDisk::new(5);
        let (engine, checkpointer) = create(disk.clone()).unwrap();
        let body = vec![7; 8000];
        for key in 0..5_000 {
            engine.commit(vec![(key, Some(body.clone()))]);
        }
        let bytes = u64::from(engine.segments.high_water()) * SEGMENT_BYTES as u64;
        assert!((36 << 20..64 << 20).contains(&bytes), "the test's own premise: {bytes}");
        disk.fail(FaultKind::Sync, "backup", after);
        let outcome = checkpointer.run_now();
        assert_eq!(outcome.is_err(), fails, "sync {after}: {outcome:?}");
    }
}

#[test]
fn the_thread_makes_checkpoints_when_they_are_due() {
    let disk = MemoryDisk::new();
    let home = HomeFile::create(&*disk, DATABASE, 64).unwrap();
    let engine = Engine::new();
    let clock = Arc::new(VirtualClock::new());
    let options = CheckpointOptions { log_bytes_max: 1000, ..options() };
    let checkpointer =
        Checkpointer::new(disk, clock.clone().into(), engine.copies(home), engine.clone(), options);
    checkpointer.start().unwrap();
    let wait_for = |count: u64| {
        let until = std::time::Instant::now() + Duration::from_secs(120);
        while checkpointer.stats().completed < count {
            assert!(std::time::Instant::now() < until, "no checkpoint");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    engine.commit(vec![(1, Some(vec![1]))]);
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(checkpointer.stats().completed, 0, "the interval's floor");
    clock.advance(Duration::from_secs(11));
    wait_for(1);
    // Half of the log's bound.
    for _ in 0..6 {
        engine.commit(vec![(1, Some(vec![1]))]);
    }
    wait_for(2);
    checkpointer.stop();
    assert_eq!(checkpointer.run_now(), Err(Error::Closed));
}

#[test]
fn a_log_near_its_bound_loses_at_once_what_only_the_older_checkpoint_needs() {
    let disk = MemoryDisk::new();
    let home = HomeFile::create(&*disk, DATABASE, 64).unwrap();
    let engine = Engine::new();
    let options = CheckpointOptions { log_bytes_max: 400_000, ..options() };
    let clock = Arc::new(VirtualClock::new());
    let checkpointer =
        Checkpointer::new(disk.clone(), clock.into(), engine.copies(home), engine.clone(), options);
    let commit = |keys: std::ops::Range<u32>| {
        for key in keys {
            engine.commit(vec![(key % 100, Some(vec![key as u8; 100]))]);
        }
        engine.sync();
    };
    commit(0..1_500);
    let first = checkpointer.run_now().unwrap();
    commit(1_500..2_900);
    checkpointer.look();
    assert_eq!(engine.freed_before.load(Ordering::SeqCst), 1, "there is room");
    // Three quarters of the bound are used, and less than half of it after the redo start.
    commit(2_900..3_100);
    checkpointer.look();
    let freed_before = engine.freed_before.load(Ordering::SeqCst);
    assert_eq!((freed_before, checkpointer.stats().completed), (first.redo_start.0, 1));
    checkpointer.look();
    let log = engine.log.lock().clone();
    assert_eq!(Engine::recover(&*disk, &log, freed_before).unwrap().contents(), model(&log));
    // Half of the bound is used after the redo start: a checkpoint begins, whatever the interval.
    commit(3_100..3_600);
    checkpointer.look();
    assert_eq!(checkpointer.stats().completed, 2);
}

#[test]
fn no_sweep_has_the_number_of_another() {
    let disk = MemoryDisk::new();
    let mut home = HomeFile::create(&*disk, DATABASE, 64).unwrap();
    let new = home::NewHome {
        copy: Copy::Ping,
        segments: 0,
        redo_start: home.block().redo_start,
        next_id: 64,
        sweep: u32::MAX - 1,
        clearance: LogPoint::beginning_after(Lsn::ZERO),
        transaction_consistent: false,
        logged: true,
        digest: 0,
        pages: None,
        redone: None,
    };
    home.publish(new).unwrap();
    let engine = Engine::new();
    let (copies, clock) = (engine.copies(home), Arc::new(VirtualClock::new()));
    let checkpointer = Checkpointer::new(disk.clone(), clock.into(), copies, engine.clone(), options());
    engine.commit(vec![(0, Some(vec![0; 10]))]);
    checkpointer.run_now().unwrap();
    let last = *HomeFile::open(&*disk).unwrap().block();
    assert_eq!(last.sweep, u32::MAX);
    engine.commit(vec![(0, Some(vec![1; 10]))]);
    for _ in 0..2 {
        let refused = checkpointer.run_now();
        assert!(matches!(refused, Err(Error::NumbersUsedUp { limit: u32::MAX, .. })), "{refused:?}");
    }
    assert_eq!(*HomeFile::open(&*disk).unwrap().block(), last);
}
