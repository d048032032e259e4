//! Checkpoints that transactions wait for because the log is full.

use super::*;
use crate::checkpoint::home::HOME_FILE;

fn with_copies(copies: u32) -> (Arc<FaultyDisk>, Arc<Engine>, Arc<Checkpointer>, Arc<VirtualClock>) {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let home = HomeFile::create(&*disk, DATABASE, 64).unwrap();
    let (engine, clock) = (Engine::new(), Arc::new(VirtualClock::new()));
    let options = CheckpointOptions { copies, ..options() };
    let copies = engine.copies(home);
    let checkpointer = Checkpointer::new(disk.clone(), clock.clone().into(), copies, engine.clone(), options);
    (disk, engine, checkpointer, clock)
}

/// A waiting transaction asks hundreds of times a second.
fn ask(engine: &Engine, checkpointer: &Checkpointer, times: u32) {
    for nth in 0..times {
        engine.commit(vec![(nth % 50, Some(vec![1; 100]))]);
        engine.sync();
        let _ = checkpointer.want_room();
        checkpointer.look();
    }
}

#[test]
fn what_makes_no_room_is_tried_again_after_a_pause() {
    type Breaks = fn(&FaultyDisk, &Engine);
    let broken: [(&str, Breaks); 3] = [
        ("the archive", |_, engine| *engine.archive_failure.lock() = Some("it is away".to_owned())),
        ("a backup copy", |disk, _| disk.fail_always(FaultKind::Write, "backup", 0)),
        ("the home block", |disk, _| disk.fail_always(FaultKind::Write, HOME_FILE, 0)),
    ];
    for (what, breaks) in broken {
        let (disk, engine, checkpointer, clock) = with_copies(2);
        ask(&engine, &checkpointer, 5);
        assert_eq!(checkpointer.stats().completed, 5, "{what}: as often as it makes room");
        breaks(&disk, &engine);
        for seconds in 1..4 {
            ask(&engine, &checkpointer, 100);
            let tried = checkpointer.stats().completed - 5 + checkpointer.stats().failed;
            assert!((1..=seconds).contains(&tried), "{what}: {tried} times in {seconds} s");
            clock.advance(Duration::from_secs(1));
        }
        let why = checkpointer.want_room();
        assert!(why.is_some(), "{what}");
        disk.mend();
        *engine.archive_failure.lock() = None;
        let before = checkpointer.stats().completed;
        ask(&engine, &checkpointer, 5);
        assert_eq!(checkpointer.stats().completed, before + 5, "{what}: it is over at once");
    }
}

/// It is not known what the disk has of a block whose last write failed: perhaps still the block that it was to
/// replace, which is in force until it is retired. The log that this block needs exists until then.
#[test]
fn log_is_freed_only_of_checkpoints_that_are_not_in_force() {
    for (kind, is_mended) in
        [FaultKind::Write, FaultKind::Sync].into_iter().flat_map(|kind| [(kind, false), (kind, true)])
    {
        let (disk, engine, checkpointer, clock) = with_copies(3);
        for _ in 0..2 {
            engine.commit(vec![(1, Some(vec![1; 100]))]);
            checkpointer.run_now().unwrap();
        }
        engine.commit(vec![(1, Some(vec![2; 100]))]);
        engine.sync();
        disk.fail_always(kind, HOME_FILE, 0);
        checkpointer.run_now().unwrap_err();
        if is_mended {
            disk.mend();
            // The room is made first; then the sweep fails.
            disk.fail_always(FaultKind::Write, "backup", 0);
        }
        clock.advance(Duration::from_secs(2));
        let _ = checkpointer.want_room();
        checkpointer.look();
        disk.crash();
        let home = HomeFile::open(&*disk.restart()).unwrap();
        let freed = engine.freed_before.load(Ordering::SeqCst);
        let newest = home.block().redo_start;
        let needed = home.older().map_or(newest, |older| older.redo_start.min(newest));
        let about = format!("{kind:?}, mended: {is_mended}, seed {}", disk.seed());
        assert!(freed <= needed.0, "freed before {freed}, needed from {needed}: {about}");
        assert_eq!(freed == 3, is_mended, "what the newest does not need is freed: {about}");
    }
}
