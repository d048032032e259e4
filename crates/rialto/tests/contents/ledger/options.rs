//! The options of databases.

use std::time::Duration;

use rialto::backup::Archive;
use rialto::io::{Caching, Random};
use rialto::{
    Checkpointing, Engine, Executors, GroupCommitDesign, GroupCommitOptions, HandOver, Logging, Options,
    Planning,
};

use super::clients::procedures;
use super::one_of;

/// Random options. Bounds are often so low that runs reach them: a log of eight files of 128 KiB, short waits for its
/// room, few transactions at a time.
pub fn any_options(random: &mut Random, memory_bytes: u64, archive: Option<Archive>) -> Options {
    let (logging, checkpoint) = loop {
        // An archive, like a backup, needs a log.
        if archive.is_none() && random.chance(1, 5) {
            break (Logging::None, Checkpointing::None);
        }
        let checkpoint =
            if random.chance(1, 8) { Checkpointing::None } else { one_of(random, &Checkpointing::ALL) };
        let both = (one_of(random, &Logging::ALL), checkpoint);
        if both.0.refuses(both.1).is_none() {
            break both;
        }
    };
    let slowly = Some(1_000_000 << random.below(7));
    let threads = one_of(random, &[0, 1, 2, 5]);
    let executors = Executors {
        count_max: 8,
        threads_max: threads * 2,
        planning: one_of(random, &[Planning::Adaptive, Planning::Parallel]),
        hand_over: one_of(random, &[HandOver::IfBusy, HandOver::Always]),
        ..Executors::of(1 + random.below(8) as usize, threads)
    };
    Options {
        memory_bytes,
        logging,
        checkpoint,
        checkpoint_interval: one_of(random, &[Duration::from_millis(1), Duration::from_secs(3_600)]),
        recovery_within: (checkpoint != Checkpointing::None && random.chance(1, 4))
            .then_some(Duration::from_millis(100)),
        straddling_retry: Duration::from_micros(random.below(2_000)),
        straddling_hints: random.chance(1, 2),
        // Without a pause, as the log grows, or so slowly that a run ends first.
        sweep_bytes_per_s: one_of(random, &[Some(0), Some(0), None, slowly]),
        spool: random.chance(1, 2),
        backup_copies: 2 + random.below(2) as u32,
        snapshot_bytes_max: random.chance(1, 2).then_some(300_000),
        archive,
        log_bytes_max: one_of(random, &[1 << 20, 1 << 20, 2 << 20, 16 << 20]),
        log_wait_max: Duration::from_millis(4 << random.below(4)),
        transactions_max: one_of(random, &[4, 16, 1_024, 1_024]),
        packets_max: one_of(random, &[1, 16_384]),
        engine: one_of(random, &[Engine::thin(), Engine::central(), executors.into()]),
        group_commit: group_commit(random),
        log_writes: one_of(
            random,
            &[None, Some(Caching::Direct), Some(Caching::DirectSync), Some(Caching::Buffered)],
        ),
        log_writes_in_flight: Some(1 + random.below(3) as u32),
        lock_timeout: Duration::from_secs(2),
        memory_flush_interval: Duration::from_millis(1 + random.below(20)),
        recovery_threads: 1 + random.below(3) as usize,
        procedures: procedures(),
        ..Options::default()
    }
}

/// The same with a log.
pub fn any_logged_options(random: &mut Random, memory_bytes: u64, archive: Option<Archive>) -> Options {
    loop {
        let options = any_options(random, memory_bytes, archive.clone());
        if options.logging != Logging::None {
            return options;
        }
    }
}

/// A design, with some of its settings.
fn group_commit(random: &mut Random) -> GroupCommitOptions {
    let design = one_of(random, &GroupCommitDesign::ALL);
    loop {
        let mut time = || random.chance(1, 4).then(|| Duration::from_micros(random.below(200)));
        let options = GroupCommitOptions {
            design,
            stall: time(),
            willing_to_wait: time(),
            willing_to_wait_min: time(),
            wake_delay: time(),
            linger: time(),
            group_max: random.chance(1, 4).then(|| 1 + random.below(4) as u32),
        };
        if options.problem().is_none() {
            return options;
        }
    }
}

/// The options that matter, for a message.
pub fn describe(options: &Options) -> String {
    let Options { logging, checkpoint, engine, group_commit, .. } = options;
    let Options { log_bytes_max, transactions_max, log_writes, log_writes_in_flight, .. } = options;
    format!(
        "{logging:?}, {checkpoint:?}, {engine}, {group_commit}, {log_writes:?}, \
         {log_writes_in_flight:?} in flight, a log of {log_bytes_max} bytes, {transactions_max} transactions"
    )
}
