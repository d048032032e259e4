//! I7 and I3: histories of concurrent transactions are strictly serializable, phantoms included, and go on after restarts with
//! all that answers told of. Two checkers judge them: our own, and `adya`, which is told what stood in rows and nothing else.

mod beside;
mod calls;
mod checker;
mod clients;
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

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::seeds::for_a_while;
use calls::Notes;
use clients::{Client, Site};
use engines::{Ends, Tally, describe, judge, one_of, options};
use kernel::Tables;
use observed::{Attempt, Clock, End, Life};
use rialto::io::{FaultyDisk, MemoryDisk, Random};
use rialto::{Checkpointing, Database, Options, TransactionServer, TransactionServerOptions};
use space::Space;

/// All clients at once, with so many transactions each, until they are done or the disk ends.
fn work(
    db: &Database,
    options: &Options,
    clock: &Clock,
    space: Space,
    each: u64,
    random: &mut Random,
    about: &str,
) -> Vec<Attempt> {
    let tables = Tables::of(db);
    let notes = Arc::new(Notes::default());
    calls::register(db, &notes);
    let standbys =
        TransactionServerOptions { queue: 1 + random.below(8) as usize, standbys: random.below(4) as usize };
    let server = TransactionServer::start(db, &standbys).unwrap();
    let (over, cancellers) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let site = &Site {
        db,
        tables: &tables,
        clock,
        space,
        notes: &notes,
        server: &server,
        cancellers: &cancellers,
        about,
    };
    let mut first = Client::new(site, random.fork());
    // Of what an earlier life has left, or what the tables were made with.
    first.look_at_all();
    let mut attempts = first.end();
    let with_changes = random.chance(1, 2);
    std::thread::scope(|scope| {
        let (changing, cancelling) = (random.fork(), random.fork());
        let changes = with_changes.then(|| scope.spawn(|| beside::change(site, options, changing, &over)));
        scope.spawn(|| beside::cancel(&cancellers, cancelling, &over));
        let ends = Ends(&over);
        let clients: Vec<_> = (0..6 + random.below(3))
            .map(|_| Client::new(site, random.fork()))
            .map(|client| scope.spawn(move || client.work(each)))
            .collect();
        for client in clients {
            attempts.extend(client.join().unwrap());
        }
        drop(ends);
        attempts.extend(changes.into_iter().flat_map(|changes| changes.join().unwrap()));
    });
    server.close();
    attempts
}

#[test]
fn concurrent_histories_are_strictly_serializable() {
    let mut tally = Tally::default();
    let seeds = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let (options, space) = (options(&mut random), Space::any(&mut random));
        let about = format!("RIALTO_SEED={seed}, {space:?}, {}", describe(&options));
        let db = Database::open_on(MemoryDisk::new(), options.clone()).unwrap();
        let each = 20 + random.below(40);
        Tables::create(&db, space);
        let attempts = work(&db, &options, &Clock::default(), space, each, &mut random, &about);
        let last = Some(kernel::state(&db));
        let lives = [Life { first: space.first(), attempts, end: End::Closed, last }];
        judge(&lives, &about);
        tally.count(&lives);
    });
    tally.tell("strict histories", seeds);
}

/// A database on a faulty disk, and its lives.
fn lives(seed: u64) -> (Vec<Life>, String) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let space = Space::any(&mut random);
    let mut about = format!("RIALTO_SEED={seed}, {space:?}");
    let (clock, mut lives) = (Clock::default(), Vec::<Life>::new());
    let mut first = space.first();
    for life in 0..3 {
        let mut options = options(&mut random);
        options.checkpoint = one_of(&mut random, &Checkpointing::ALL);
        options.checkpoint_interval = Duration::from_millis(1);
        about = format!("{about}\n life {life}: {}", describe(&options));
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        let mut end = if random.chance(1, 2) { End::PowerLost } else { End::Killed };
        let prepared = if life == 0 { None } else { Some(kernel::state(&db)) };
        if let (Some(before), Some(found)) = (lives.last_mut(), prepared) {
            before.last = Some(found.clone());
            first = found;
        }
        // The tables of the first life are made before the disk ends.
        if life == 0 {
            Tables::create(&db, space);
        }
        let at = disk.steps() + 40 + (40 << random.below(5));
        match end {
            End::Killed => disk.kill_at(at),
            _ => disk.crash_at(at),
        }
        let each = 10 + random.below(30);
        let attempts = work(&db, &options, &clock, space, each, &mut random, &about);
        if random.chance(1, 4) && db.close().is_ok() && !disk.is_down() {
            end = End::Closed;
        }
        if !disk.is_down() {
            match end {
                End::Killed => disk.kill(),
                _ => disk.crash(),
            }
        }
        about = format!("{about}, {end:?}");
        lives.push(Life { first: first.clone(), attempts, end, last: None });
        disk = disk.restart();
    }
    let db = Database::open_on(disk, options(&mut random)).unwrap();
    if let Some(before) = lives.last_mut() {
        before.last = Some(kernel::state(&db));
    }
    (lives, about)
}

#[test]
fn histories_go_on_after_restarts() {
    let mut tally = Tally::default();
    let seeds = for_a_while(|seed| {
        let (lives, about) = lives(seed);
        judge(&lives, &about);
        tally.count(&lives);
    });
    tally.tell("strict histories over restarts", seeds);
}
