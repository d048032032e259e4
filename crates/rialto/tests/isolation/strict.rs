//! I7 and I3: histories of concurrent transactions are strictly serializable, phantoms included, and continue after
//! restarts with everything that answers told. Two checkers judge them: our own, and `adya`, which is given the lists
//! as they stood in rows and nothing else.

mod beside;
mod calls;
mod chain;
mod checker;
mod clients;
mod counting;
mod engines;
mod hand_made;
mod kernel;
mod keys;
mod observed;
mod raw;
mod scans;
mod script;
mod space;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::many_seeds::for_a_while_until_by;
use crate::common::seeds::for_a_while_until;
use calls::Notes;
use clients::{Client, Site};
use engines::{Ends, Tally, describe, judge, lasting_options, options};
use kernel::Tables;
use observed::{Attempt, Clock, End, Life};
use parking_lot::Mutex;
use rialto::io::{FaultyDisk, MemoryDisk, Random};
use rialto::{Database, Options, TransactionServer, TransactionServerOptions};
use space::Space;

/// Counts of all histories of a suite, beside their attempts.
#[derive(Default)]
struct Counts {
    /// Definitions that have succeeded.
    defined: AtomicU64,
    /// Calls that openings ran again.
    replayed: AtomicU64,
}

/// What all lives of a history share.
struct History<'a> {
    clock: Clock,
    space: Space,
    counts: &'a Counts,
}

/// Runs all clients at once, with this many transactions each, until they are done or the disk ends. `notes` are those
/// of the options' procedures.
fn work(
    (db, options, notes): (&Database, &Options, &Notes),
    history: &History<'_>,
    each: u64,
    random: &mut Random,
    about: &str,
) -> Vec<Attempt> {
    let (tables, &History { ref clock, space, counts }) = (Tables::of(db), history);
    let defined = &counts.defined;
    notes.begin();
    let standbys =
        TransactionServerOptions { queue: 1 + random.below(8) as usize, standbys: random.below(4) as usize };
    let server = TransactionServer::start(db, &standbys).unwrap();
    let (over, cancellers) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (tables, cancellers) = (&tables, &cancellers);
    let site = &Site { db, tables, clock, space, notes, server: &server, defined, cancellers, about };
    let mut first = Client::new(site, random.fork());
    // Of what an earlier life has left, or of the first rows.
    first.look_at_all();
    let mut attempts = first.end();
    let with_changes = random.chance(1, 2);
    std::thread::scope(|scope| {
        let (changing, cancelling) = (random.fork(), random.fork());
        let changes = with_changes.then(|| scope.spawn(|| beside::change(site, options, changing, &over)));
        let cancels = scope.spawn(|| beside::cancel(cancellers, cancelling, &over));
        let ends = Ends(&over);
        let clients: Vec<_> = (0..6 + random.below(3))
            .map(|_| Client::new(site, random.fork()))
            .map(|client| scope.spawn(move || client.work(each)))
            .collect();
        for client in clients {
            attempts.extend(client.join().unwrap());
        }
        drop(ends);
        cancels.join().unwrap();
        attempts.extend(changes.into_iter().flat_map(|changes| changes.join().unwrap()));
    });
    server.close();
    attempts
}

#[test]
fn concurrent_histories_are_strictly_serializable() {
    let (tally, counts) = (Mutex::<Tally>::default(), Counts::default());
    // Clients wait for each other much of the time.
    let seeds = for_a_while_until_by(2, |seed| {
        let mut random = Random::new(seed);
        let (mut options, space) = (options(&mut random), Space::any(&mut random));
        let about = format!("RIALTO_SEED={seed}, {space:?}, {}", describe(&options));
        let notes = Arc::new(Notes::default());
        options.procedures = calls::procedures(&notes);
        let db = Database::open_on(MemoryDisk::new(), options.clone()).unwrap();
        let each = 20 + random.below(40);
        Tables::create(&db, space);
        let history = History { clock: Clock::default(), space, counts: &counts };
        let attempts = work((&db, &options, &notes), &history, each, &mut random, &about);
        let last = Some(kernel::state(&db));
        let (engine, first, end) = (options.engine, space.first(), End::Closed);
        let lives = [Life { engine, first, attempts, end, last }];
        judge(&lives, &about);
        tally.lock().count(&lives);
        counts.defined.load(Ordering::Relaxed) > 0
    });
    tally.into_inner().tell("strict histories", seeds);
    let defined = counts.defined.into_inner();
    println!("strict histories: {defined} definitions");
    assert!(defined > 0, "no index has come or gone");
}

/// Ends the disk at a step that is not far off.
fn end_soon(disk: &FaultyDisk, end: End, random: &mut Random) {
    let longest = 40 << random.below(6);
    let at = disk.steps() + 1 + random.below(longest);
    match end {
        End::Killed => disk.kill_at(at),
        End::PowerLost | End::Closed => disk.crash_at(at),
    }
}

/// Ends the disk now, unless it has ended before.
fn end_now(disk: &FaultyDisk, end: End) {
    if !disk.is_down() {
        match end {
            End::Killed => disk.kill(),
            End::PowerLost | End::Closed => disk.crash(),
        }
    }
}

/// Opens what is left after this end. Sometimes an opening before it ends in the same way.
fn open_again(disk: &mut Arc<FaultyDisk>, options: &Options, end: End, random: &mut Random) -> Database {
    if random.chance(1, 3) {
        end_soon(disk, end, random);
        drop(Database::open_on(disk.clone(), options.clone()));
        end_now(disk, end);
        *disk = disk.restart();
    }
    Database::open_on(disk.clone(), options.clone()).unwrap()
}

/// A database on a faulty disk, and its lives.
fn lives(seed: u64, counts: &Counts) -> (Vec<Life>, String) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let space = Space::any(&mut random);
    let mut about = format!("RIALTO_SEED={seed}, {space:?}");
    let (history, mut lives) = (History { clock: Clock::default(), space, counts }, Vec::<Life>::new());
    let (mut first, mut end, mut last_notes) = (space.first(), End::Closed, Notes::default());
    for life in 0..3 {
        let (mut options, notes) = (lasting_options(&mut random), Arc::new(last_notes.of_next_life()));
        options.procedures = calls::procedures(&notes);
        about = format!("{about}\n life {life}: {}", describe(&options));
        let db = open_again(&mut disk, &options, end, &mut random);
        let replayed = db.recovery().map_or(0, |report| report.calls);
        counts.replayed.fetch_add(replayed, Ordering::Relaxed);
        end = if random.chance(1, 2) { End::PowerLost } else { End::Killed };
        let prepared = if life == 0 { None } else { Some(kernel::state(&db)) };
        if let (Some(before), Some(found)) = (lives.last_mut(), prepared) {
            before.last = Some(found.clone());
            first = found;
        }
        // The tables of the first life are made before the disk ends.
        if life == 0 {
            Tables::create(&db, space);
        }
        end_soon(&disk, end, &mut random);
        let each = 10 + random.below(30);
        let attempts = work((&db, &options, &notes), &history, each, &mut random, &about);
        if random.chance(1, 4) && db.close().is_ok() && !disk.is_down() {
            end = End::Closed;
        }
        end_now(&disk, end);
        about = format!("{about}, {end:?}");
        lives.push(Life { engine: options.engine, first: first.clone(), attempts, end, last: None });
        last_notes = notes.of_next_life();
        disk = disk.restart();
    }
    let mut options = options(&mut random);
    options.procedures = calls::procedures(&Arc::new(last_notes));
    let db = open_again(&mut disk, &options, end, &mut random);
    if let Some(before) = lives.last_mut() {
        before.last = Some(kernel::state(&db));
    }
    (lives, about)
}

#[test]
fn histories_go_on_after_restarts() {
    let (mut tally, counts) = (Tally::default(), Counts::default());
    let seeds = for_a_while_until(|seed| {
        let (lives, about) = lives(seed, &counts);
        judge(&lives, &about);
        tally.count(&lives);
        [&counts.defined, &counts.replayed].iter().all(|count| count.load(Ordering::Relaxed) > 0)
    });
    tally.tell("strict histories over restarts", seeds);
    let Counts { defined, replayed } = counts;
    let (defined, replayed) = (defined.into_inner(), replayed.into_inner());
    println!("strict histories over restarts: {defined} definitions, {replayed} calls run again");
    assert!(defined > 0, "no index has come or gone");
    assert!(replayed > 0, "no opening has run a call again");
}
