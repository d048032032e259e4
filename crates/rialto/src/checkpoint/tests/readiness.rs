//! Checkpoints that a recovery target asks for.

use std::sync::mpsc::channel;

use super::*;
use crate::checkpoint::Outlook;
use crate::recovery::Cost;

/// A checkpointer whose recoveries take a millisecond a packet, half as much for a byte of 16 segments, and nothing
/// else.
fn with_target(within: Duration, load_ns: f64) -> (Arc<Engine>, Arc<Checkpointer>, Arc<VirtualClock>) {
    let disk = MemoryDisk::new();
    let home = HomeFile::create(&*disk, DATABASE, 64).unwrap();
    let engine = Engine::new();
    let cost = |ns| Cost { ns, is_measured: true };
    let recovery_rates = RecoveryRates {
        load: cost(load_ns),
        primary: cost(0.0),
        secondary: cost(0.0),
        log: cost(0.0),
        packet: cost(1e6),
        bulk: cost(0.0),
    };
    let options = CheckpointOptions {
        sweep_bytes_per_s: None,
        recovery_within: Some(within),
        recovery_rates,
        ..options()
    };
    let clock = Arc::new(VirtualClock::new());
    let checkpointer =
        Checkpointer::new(disk, clock.clone().into(), engine.copies(home), engine.clone(), options);
    (engine, checkpointer, clock)
}

fn commit(engine: &Engine, packets: u32) {
    for key in 0..packets {
        engine.commit(vec![(key % 50, Some(vec![key as u8; 100]))]);
    }
    engine.sync();
}

#[test]
fn checkpoints_come_as_often_as_the_log_grows_and_recovery_stays_within_its_time() {
    let mut before = 0;
    // Packets in a tenth of a second; the target is a second, which allows 950 packets.
    for packets in [0, 3, 10, 30, 90] {
        let (engine, checkpointer, clock) = with_target(Duration::from_secs(1), 0.0);
        commit(&engine, 50);
        for _ in 0..600 {
            commit(&engine, packets);
            clock.advance(Duration::from_millis(100));
            checkpointer.look();
            let forecast = checkpointer.forecast();
            assert!(forecast.estimate.total() <= Duration::from_secs(1), "{forecast:?}");
            assert_eq!((forecast.outlook, forecast.within), (Outlook::Kept, Some(Duration::from_secs(1))));
        }
        let completed = checkpointer.stats().completed;
        match packets {
            0 => assert_eq!(completed, 0, "50 packets are no reason, though the interval is over"),
            _ => assert!(completed > before, "{packets} packets: {completed} checkpoints, fewer {before}"),
        }
        before = completed;
        assert!(engine.told.lock().is_empty());
    }
    assert!(before > 50, "{before}");
}

/// The log's own bound is kept as well.
#[test]
fn a_target_far_away_leaves_the_bound_on_the_log() {
    let (engine, checkpointer, clock) = with_target(Duration::from_secs(80_000), 0.0);
    commit(&engine, 6_000_000 / 1000);
    clock.advance(Duration::from_secs(3_600));
    checkpointer.look();
    assert_eq!(checkpointer.stats().completed, 0);
}

#[test]
fn what_cannot_be_kept_is_told_once_with_its_figures() {
    // 64 KiB take 6.5 s.
    let (engine, checkpointer, clock) = with_target(Duration::from_secs(1), 1e5);
    let look = |times: u32| {
        for _ in 0..times {
            commit(&engine, 2);
            clock.advance(Duration::from_millis(100));
            checkpointer.look();
        }
    };
    look(5);
    assert!(engine.told.lock().is_empty(), "not before it has lasted");
    look(200);
    let told = engine.told.lock().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("recovery within 1.0 s cannot be kept") && told[0].contains("about 6.6 s"),
        "{told:?}"
    );
    let forecast = checkpointer.forecast();
    assert_eq!((forecast.outlook, forecast.work.copy_bytes), (Outlook::Load, SEGMENT_BYTES as u64));
    // Redo is still kept short: a tenth of the time.
    assert!(forecast.estimate.redo <= Duration::from_millis(110), "{forecast:?}");
    assert!((5..100).contains(&checkpointer.stats().completed), "{:?}", checkpointer.stats());
}

/// The user's code is told while no latch is held: it may read the metrics, which include a forecast. A thread of its
/// own asks for the forecast, so that a held latch fails the test and does not hang it.
#[test]
fn code_that_is_told_may_ask_for_a_forecast() {
    let (engine, checkpointer, clock) = with_target(Duration::from_secs(1), 1e5);
    let (answers, forecast) = channel();
    let asked = checkpointer.clone();
    let when_told = move || {
        let (asked, (answer, answered)) = (asked.clone(), channel());
        std::thread::spawn(move || answer.send(asked.forecast().outlook));
        answers.send(answered.recv_timeout(Duration::from_secs(60))).unwrap();
    };
    assert!(engine.when_told.set(Box::new(when_told)).is_ok());
    for _ in 0..50 {
        commit(&engine, 2);
        clock.advance(Duration::from_millis(100));
        checkpointer.look();
    }
    assert_eq!(engine.told.lock().len(), 1, "the test's own premise");
    assert_eq!(forecast.try_recv(), Ok(Ok(Outlook::Load)));
}

/// Without a target there is still a forecast, and checkpoints begin by their interval.
#[test]
fn without_a_target_the_interval_counts() {
    let disk = MemoryDisk::new();
    let (engine, checkpointer) = create(disk).unwrap();
    commit(&engine, 100);
    let forecast = checkpointer.forecast();
    assert_eq!((forecast.within, forecast.outlook, forecast.work.packets), (None, Outlook::Kept, 100));
    assert!(
        forecast.estimate.total() > Duration::ZERO && forecast.until_checkpoint >= forecast.estimate.total()
    );
    checkpointer.run_now().unwrap();
    assert_eq!(checkpointer.forecast().work.packets, 0);
}
