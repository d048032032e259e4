//! I7 and I3 over the wire: histories of clients of the simple and the extended protocol are strictly serializable, and
//! continue after restarts with everything that answers told. Clients send several statements and transactions before
//! they read an answer, keep statements prepared, cancel, and disconnect in a transaction, in a pipeline, or during a
//! commit. Beside them indexes, routing rules and the numbers of executors and threads change. The kernel's checkers
//! judge.

mod beside;
mod block;
#[path = "../../../rialto/tests/isolation/strict/chain.rs"]
mod chain;
#[path = "../../../rialto/tests/isolation/strict/checker.rs"]
mod checker;
#[path = "../../../rialto/tests/isolation/strict/counting.rs"]
mod counting;
#[path = "../../../rialto/tests/isolation/strict/engines.rs"]
mod engines;
#[path = "../../../rialto/tests/isolation/strict/keys.rs"]
mod keys;
mod line;
#[allow(dead_code, reason = "the kernel's tests use the rest")]
#[path = "../../../rialto/tests/isolation/strict/observed.rs"]
mod observed;
mod pipeline;
#[path = "../../../rialto/tests/isolation/strict/raw.rs"]
mod raw;
#[allow(dead_code, reason = "the kernel's tests use the rest")]
#[path = "../../../rialto/tests/isolation/strict/scans.rs"]
mod scans;
#[path = "../../../rialto/tests/isolation/strict/script.rs"]
mod script;
#[path = "../../../rialto/tests/isolation/strict/space.rs"]
mod space;
mod statements;
#[path = "../../../rialto/tests/isolation/strict/walk.rs"]
mod walk;
mod worker;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::common::TestServer;
use crate::seeds::for_a_while;
use engines::{Ends, Tally, describe, judge, lasting_options, one_of, options};
use observed::{Attempt, Clock, End, Life, State};
use parking_lot::Mutex;
use rialto::Options;
use rialto::io::{Disk, FaultyDisk, MemoryDisk, Random};
use rialto_server::ServeOptions;
use space::Space;
use worker::{Site, Work, Worker, state};

fn serve(disk: std::sync::Arc<dyn Disk>, options: &Options, random: &mut Random) -> TestServer {
    let drain_timeout = Duration::from_millis(random.below(50));
    let serve = ServeOptions { max_connections: 80, drain_timeout, ..ServeOptions::default() };
    TestServer::serving(disk, options.clone(), serve)
}

/// The state that a single client finds.
fn looks(
    server: &TestServer,
    (clock, space): (&Clock, Space),
    random: &mut Random,
    about: &str,
) -> (Vec<Attempt>, State) {
    let no_keys = Mutex::new(Vec::new());
    let site = Site { address: server.address, clock, space, cancellable: &no_keys, may_end: false, about };
    let mut worker = Worker::new(&site, random.fork());
    worker.until_done(Work::LookAtAll);
    let found = state(worker.attempts.last().expect("it is done"));
    (worker.attempts, found)
}

/// Runs all clients at once, with this number of transactions or batches each, until they are done or the server ends.
/// A server that is to be closed is asked here.
fn work(
    server: &mut TestServer,
    options: &Options,
    (clock, space): (&Clock, Space),
    each: u64,
    end: Option<End>,
    random: &mut Random,
    about: &str,
) -> Vec<Attempt> {
    let (cancellable, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let site = &Site {
        address: server.address,
        clock,
        space,
        cancellable: &cancellable,
        may_end: end.is_some(),
        about,
    };
    let (database, with_changes) = (server.database.clone(), random.chance(2, 3));
    std::thread::scope(|scope| {
        let ends = Ends(&over);
        let (changing, cancelling) = (random.fork(), random.fork());
        let change = || beside::change(site, &database, options, changing, &over);
        let mut beside = vec![scope.spawn(|| beside::cancel(site, cancelling, &over))];
        beside.extend(with_changes.then(|| scope.spawn(change)));
        let workers: Vec<_> = (0..6)
            .map(|_| Worker::new(site, random.fork()))
            .map(|worker| scope.spawn(move || worker.work(each)))
            .collect();
        if end == Some(End::Closed) {
            std::thread::sleep(Duration::from_millis(random.below(200)));
            server.ask_to_stop();
        }
        let attempts = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        drop(ends);
        beside.into_iter().for_each(|thread| thread.join().unwrap());
        attempts
    })
}

/// One history without an end, and a description of it.
fn history(seed: u64) -> (Life, String) {
    let mut random = Random::new(seed);
    let (options, space) = (options(&mut random), Space::any(&mut random));
    let about = format!("RIALTO_SEED={seed}, {space:?}, {}", describe(&options));
    let mut server = serve(MemoryDisk::new(), &options, &mut random);
    statements::create(&mut server.connect(), space);
    let clock = Clock::default();
    let (mut attempts, _) = looks(&server, (&clock, space), &mut random, &about);
    let each = 10 + random.below(30);
    attempts.extend(work(&mut server, &options, (&clock, space), each, None, &mut random, &about));
    // After disconnected clients have ended, too: each of their blocks keeps its locks until then.
    let (last, found) = looks(&server, (&clock, space), &mut random, &about);
    attempts.extend(last);
    let (engine, first, end) = (options.engine, space.first(), End::Closed);
    (Life { engine, first, attempts, end, last: Some(found) }, about)
}

#[test]
fn histories_over_the_wire_are_strictly_serializable() {
    let mut tally = Tally::default();
    let seeds = for_a_while(|seed| {
        let (mut life, about) = history(seed);
        pipeline::place_untold(&mut life);
        let lives = [life];
        judge(&lives, &about);
        tally.count(&lives);
    });
    tally.tell("strict histories over the wire", seeds);
}

/// A database on a faulty disk, and the lives of its server.
fn lives(seed: u64) -> (Vec<Life>, String) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let space = Space::any(&mut random);
    let mut about = format!("RIALTO_SEED={seed}, {space:?}");
    let (clock, mut lives) = (Clock::default(), Vec::<Life>::new());
    for life in 0..3 {
        let options = lasting_options(&mut random);
        let end =
            one_of(&mut random, &[End::PowerLost, End::Killed, End::PowerLost, End::Killed, End::Closed]);
        about = format!("{about}\n life {life}: {}, {end:?}", describe(&options));
        let mut server = serve(disk.clone(), &options, &mut random);
        if life == 0 {
            statements::create(&mut server.connect(), space);
        }
        let (mut attempts, found) = looks(&server, (&clock, space), &mut random, &about);
        if let Some(before) = lives.last_mut() {
            before.last = Some(found.clone());
        }
        let first = if life == 0 { space.first() } else { found };
        let longest = 40 << random.below(6);
        let at = disk.steps() + 1 + random.below(longest);
        match end {
            End::Killed => disk.kill_at(at),
            End::PowerLost => disk.crash_at(at),
            End::Closed => {}
        }
        let each = 10 + random.below(20);
        attempts.extend(work(&mut server, &options, (&clock, space), each, Some(end), &mut random, &about));
        if !disk.is_down() {
            match end {
                End::Killed => disk.kill(),
                End::PowerLost => disk.crash(),
                End::Closed => {}
            }
        }
        // A fault of the disk may be an error of the server; a stop on request is none.
        let ended = server.wait();
        assert!(end != End::Closed || ended.is_ok(), "{about}: {ended:?}");
        lives.push(Life { engine: options.engine, first, attempts, end, last: None });
        if !disk.is_down() {
            disk.kill();
        }
        disk = disk.restart();
    }
    let options = options(&mut random);
    let server = serve(disk, &options, &mut random);
    let (_, found) = looks(&server, (&clock, space), &mut random, &about);
    if let Some(before) = lives.last_mut() {
        before.last = Some(found);
    }
    (lives, about)
}

#[test]
fn histories_over_the_wire_go_on_after_restarts() {
    let mut tally = Tally::default();
    let seeds = for_a_while(|seed| {
        let (mut lives, about) = lives(seed);
        lives.iter_mut().for_each(pipeline::place_untold);
        judge(&lives, &about);
        tally.count(&lives);
    });
    tally.tell("strict histories over the wire and restarts", seeds);
}
