//! Logging none: nothing is durable until the close, which keeps all of it. After anything else the directory is as it
//! was when it was opened, and says what is lost.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rialto::checkpoint::home::read_home;
use rialto::io::{FaultyDisk, Random};
use rialto::recovery::check;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Checkpointing, Database, Durability, Engine, Error, Logging, OpenError, Options, Result, Scan, TableDef,
};

use crate::common::quiet;
use crate::common::seeds::for_a_while;

type Rows = BTreeMap<i32, i64>;

fn options(logging: Logging) -> Options {
    Options { memory_bytes: 64 << 20, logging, checkpoint: Checkpointing::None, ..Options::default() }
}

fn open(disk: &Arc<FaultyDisk>, logging: Logging) -> Database {
    Database::open_on(disk.clone(), options(logging)).unwrap_or_else(|error| panic!("{error}"))
}

fn made(disk: &Arc<FaultyDisk>) -> Database {
    let db = open(disk, Logging::Value);
    db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
        tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))
    })
    .unwrap();
    db
}

fn put(db: &Database, id: i32, n: i64) -> Result<()> {
    let table = db.table("t")?;
    db.transact(|tx| {
        if tx.update(&table, id, &[(1, Value::Int8(n))])? {
            return Ok(());
        }
        tx.insert(&table, &[Value::Int4(id), Value::Int8(n)])
    })
}

fn rows(db: &Database) -> Rows {
    let table = db.table("t").unwrap();
    let mut rows = Rows::new();
    db.read(|tx| {
        rows.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            rows.insert(row.get_i32(0)?, row.get_i64(1)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    rows
}

/// Places are written, even if nothing else is: by this process, or by one that runs on.
fn wait_for_places(db: &Database, count: u64) {
    let began = Instant::now();
    while db.metrics().log.packets < count {
        assert!(began.elapsed() < Duration::from_secs(60), "places are written within a bound");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_close_keeps_everything_and_what_follows_is_logged_again() {
    let disk = FaultyDisk::new(1);
    let db = made(&disk);
    put(&db, 1, 10).unwrap();
    db.close().unwrap();

    let db = open(&disk, Logging::None);
    put(&db, 1, 11).unwrap();
    put(&db, 2, 20).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4)];
    db.transact(|tx| tx.create_table(&TableDef::new("more", columns.clone()).with_primary_key(&["id"])))
        .unwrap();
    db.close().unwrap();
    assert!(check::check(&(disk.clone() as _), 64 << 20, 1).unwrap().is_sound());

    let db = open(&disk, Logging::Value);
    assert_eq!(db.recovery().unwrap().unlogged, 0, "the checkpoint holds them");
    assert_eq!(rows(&db), Rows::from([(1, 11), (2, 20)]));
    assert!(db.table("more").is_ok());
    put(&db, 3, 30).unwrap();
    disk.crash();
    drop(db);
    let disk = disk.restart();
    assert_eq!(rows(&open(&disk, Logging::Value)), Rows::from([(1, 11), (2, 20), (3, 30)]));
}

#[test]
fn a_crash_gives_what_there_was_at_the_opening_and_says_what_is_lost() {
    for killed in [true, false] {
        let disk = FaultyDisk::new(2);
        let db = made(&disk);
        put(&db, 1, 10).unwrap();
        db.close().unwrap();

        let db = open(&disk, Logging::None);
        put(&db, 1, 11).unwrap();
        put(&db, 2, 20).unwrap();
        wait_for_places(&db, 2);
        if killed {
            disk.kill()
        } else {
            disk.crash()
        }
        drop(db);

        let disk = disk.restart();
        let checked = check::check(&(disk.clone() as _), 64 << 20, 1).unwrap();
        assert!(checked.is_sound() && checked.to_string().contains("2 commits are lost"), "{checked}");
        let db = open(&disk, Logging::Value);
        let recovery = db.recovery().unwrap();
        assert_eq!(recovery.unlogged, 2);
        let warnings = recovery.warnings();
        assert!(warnings.len() == 1 && warnings[0].starts_with("2 commits are lost"), "{warnings:?}");
        assert_eq!(rows(&db), Rows::from([(1, 10)]), "as it was when it was opened");
        // What is logged from here on is based on that.
        put(&db, 2, 21).unwrap();
        disk.crash();
        drop(db);
        let disk = disk.restart();
        let db = open(&disk, Logging::Value);
        assert_eq!(rows(&db), Rows::from([(1, 10), (2, 21)]));
        // Once a checkpoint follows them, the loss is not reported again.
        db.checkpoint().unwrap();
        db.close().unwrap();
        assert_eq!(open(&disk, Logging::Value).recovery().unwrap().unlogged, 0);
    }
}

/// Damages the copy of the checkpoint in force.
fn damage_newest(disk: &FaultyDisk) {
    let (_, home) = read_home(disk).unwrap();
    disk.damage(&format!("backup-{}", home.copy.expect("a checkpoint was made").number()), 70, 1).unwrap();
}

/// What a close has kept of commits without logging is in one copy alone. If that copy is damaged, the older copy does
/// not replace it: the log redoes later changes on rows that do not exist.
#[test]
fn a_copy_that_alone_has_what_was_not_logged_has_none_to_stand_in_for_it() {
    for later in [false, true] {
        let disk = FaultyDisk::new(4);
        let db = made(&disk);
        put(&db, 1, 10).unwrap();
        db.close().unwrap();
        let db = open(&disk, Logging::None);
        put(&db, 2, 20).unwrap();
        db.close().unwrap();
        if later {
            let db = open(&disk, Logging::Value);
            put(&db, 1, 11).unwrap();
            put(&db, 2, 21).unwrap();
            db.close().unwrap();
        }
        damage_newest(&disk);
        let error = Database::open_on(disk.clone(), options(Logging::Value)).unwrap_err();
        let OpenError::Corrupt { file, what, .. } = &error else { panic!("{error:?}") };
        assert!(file.starts_with("backup-"), "{error}");
        assert!(
            what.contains("cannot stand in for it: ") && what.contains("ran with logging none"),
            "{error}"
        );
        let checked = check::check(&(disk.clone() as _), 64 << 20, 1).unwrap().to_string();
        assert!(checked.contains("an opening does not fall back to checkpoint 1: "), "{checked}");
    }
}

/// What follows the lost commits.
#[derive(Debug, Clone, Copy)]
enum Behind {
    /// A checkpoint, as the first operation.
    Checkpoint,
    CommitAndCheckpoint,
    /// The close of another opening with logging none, in which nothing was committed.
    IdleClose,
}

/// What was lost with a process is in no copy, and has been reported. The older copy replaces the newest as usual, and
/// nothing is reported as lost, whatever follows the lost commits, and whatever made it.
#[test]
fn lost_commits_between_two_checkpoints_do_not_keep_the_older_from_standing_in() {
    for logging in Logging::ALL {
        for checkpoint in Checkpointing::ALL.into_iter().chain([Checkpointing::None]) {
            if logging.refuses(checkpoint).is_none() {
                for behind in [Behind::Checkpoint, Behind::CommitAndCheckpoint, Behind::IdleClose] {
                    falls_back_behind_lost_commits(logging, checkpoint, behind);
                }
            }
        }
    }
}

fn falls_back_behind_lost_commits(logging: Logging, checkpoint: Checkpointing, behind: Behind) {
    let case = format!("{logging:?}, {checkpoint:?}, {behind:?}");
    // Checkpoints are made only on demand: the interval is long.
    let options =
        || Options { checkpoint, checkpoint_interval: Duration::from_secs(3_600), ..options(logging) };
    let open_as = |disk: &Arc<FaultyDisk>| Database::open_on(disk.clone(), options()).unwrap();
    let disk = FaultyDisk::new(5);
    made(&disk).close().unwrap();
    let db = open_as(&disk);
    put(&db, 1, 10).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = open(&disk, Logging::None);
    put(&db, 1, 11).unwrap();
    put(&db, 2, 20).unwrap();
    wait_for_places(&db, 2);
    disk.crash();
    drop(db);
    let disk = disk.restart();
    let mut expected = Rows::from([(1, 10)]);
    if matches!(behind, Behind::IdleClose) {
        open(&disk, Logging::None).close().unwrap();
    }
    let db = open_as(&disk);
    if matches!(behind, Behind::CommitAndCheckpoint) {
        put(&db, 1, 12).unwrap();
        expected.insert(1, 12);
    }
    if !matches!(behind, Behind::IdleClose) {
        db.checkpoint().unwrap();
    }
    put(&db, 2, 22).unwrap();
    expected.insert(2, 22);
    db.close().unwrap();
    damage_newest(&disk);
    let checked = check::check(&(disk.clone() as _), 64 << 20, 1).unwrap().to_string();
    assert!(checked.contains("an opening falls back to checkpoint 2,"), "{case}: {checked}");
    let db = open_as(&disk);
    let warnings = db.recovery().unwrap().warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("is damaged at offset"), "{case}: {warnings:?}");
    assert_eq!(rows(&db), expected, "{case}");
}

/// Commits that are lost after the newest checkpoint are reported, from whichever copy.
#[test]
fn what_is_lost_behind_a_damaged_copy_is_told() {
    let disk = FaultyDisk::new(6);
    let db = made(&disk);
    put(&db, 1, 10).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = open(&disk, Logging::None);
    put(&db, 1, 11).unwrap();
    wait_for_places(&db, 1);
    disk.crash();
    drop(db);
    let disk = disk.restart();
    damage_newest(&disk);
    let db = open(&disk, Logging::Value);
    let warnings = db.recovery().unwrap().warnings();
    assert!(warnings.len() == 2 && warnings[1].starts_with("1 commits are lost"), "{warnings:?}");
    assert_eq!(rows(&db), Rows::from([(1, 10)]));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let disk = FaultyDisk::new(3);
    let fuzzy = Options { checkpoint: Checkpointing::Fuzzy, ..options(Logging::None) };
    match Database::open_on(disk.clone(), fuzzy) {
        Err(OpenError::Options { what }) => assert!(what.contains("expected checkpoint none"), "{what}"),
        other => panic!("{other:?}"),
    }
    let db = open(&disk, Logging::None);
    for refused in [db.sync(), db.checkpoint().map(drop)] {
        match refused {
            Err(Error::Unsupported { what }) => assert!(what.contains("close the database"), "{what}"),
            other => panic!("{other:?}"),
        }
    }
    db.close().unwrap();
}

/// A killed process may leave a home block that only the system's cache has; what depends on it must not be lost with
/// it.
#[test]
fn a_close_that_is_killed_at_any_step_leaves_what_later_commits_can_rest_on() {
    for step in 1.. {
        let disk = FaultyDisk::new(step);
        let db = made(&disk);
        put(&db, 1, 10).unwrap();
        db.close().unwrap();
        let db = open(&disk, Logging::None);
        put(&db, 1, 11).unwrap();
        disk.kill_at(disk.steps() + step);
        let closed = db.close().is_ok();
        if !disk.is_down() {
            disk.kill();
        }

        let disk = disk.restart();
        let db = open(&disk, Logging::Value);
        let kept = rows(&db)[&1];
        assert!(kept == 11 || kept == 10 && !closed, "killed at step {step}: {kept}");
        put(&db, 2, 20).unwrap();
        disk.crash();
        drop(db);
        let found = rows(&open(&disk.restart(), Logging::Value));
        assert_eq!(found, Rows::from([(1, kept), (2, 20)]), "killed at step {step}");
        if closed {
            assert!(step > 5, "a close has steps to be killed at");
            return;
        }
    }
}

/// The ends of lives, for the tally.
#[derive(Default)]
struct Ends {
    power_lost: u64,
    killed: u64,
    closed: u64,
}

/// One life of the directory: work, and an end at a random step, or after the last one. Gives the states that may be
/// found after it.
fn life(
    disk: &Arc<FaultyDisk>,
    before: &Rows,
    random: &mut Random,
    logging: Logging,
    ends: &mut Ends,
) -> Vec<Rows> {
    let db = open(disk, logging);
    let at = disk.steps() + 1 + random.below(150);
    let is_kill = random.chance(1, 2);
    if is_kill {
        disk.kill_at(at)
    } else {
        disk.crash_at(at)
    }
    let mut states = vec![before.clone()];
    for _ in 0..random.below(40) {
        let (id, n) = (random.below(20) as i32, random.below(1_000) as i64);
        let mut next = states.last().expect("one at least").clone();
        next.insert(id, n);
        let outcome = put(&db, id, n);
        let acknowledged = outcome.is_ok();
        states.push(next);
        if logging == Logging::Value && acknowledged {
            states.drain(..states.len() - 1);
        }
        if !acknowledged {
            break;
        }
    }
    let last = states.last().expect("one at least").clone();
    let closed = random.chance(2, 3) && db.clone().close().is_ok();
    drop(db);
    match (closed, is_kill) {
        (true, _) => ends.closed += 1,
        (false, true) => ends.killed += 1,
        (false, false) => ends.power_lost += 1,
    }
    if !disk.is_down() {
        if is_kill { disk.kill() } else { disk.crash() }
    }
    match (logging, closed) {
        // A close that succeeded has kept everything.
        (_, true) => vec![last],
        (Logging::Value, false) => states,
        // All or nothing; a commit that failed may have been applied before it.
        _ => {
            let all = states.len().saturating_sub(2);
            states
                .into_iter()
                .enumerate()
                .filter(|(nth, _)| *nth == 0 || *nth >= all)
                .map(|(_, rows)| rows)
                .collect()
        }
    }
}

#[test]
fn lives_with_and_without_logging_and_ends_at_any_step() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let mut ends = Ends::default();
    let mut seed = base;
    while seed == base || Instant::now() < until {
        let mut random = Random::new(seed);
        let mut disk = FaultyDisk::new(seed);
        made(&disk).close().unwrap();
        let mut rows_before = Rows::new();
        for nth in 0..5 {
            let logging = if random.chance(2, 3) { Logging::None } else { Logging::Value };
            let possible = life(&disk, &rows_before, &mut random, logging, &mut ends);
            disk = disk.restart();
            let db = open(&disk, Logging::Value);
            let found = rows(&db);
            assert!(possible.contains(&found), "RIALTO_SEED={seed}, life {nth}, {logging:?}: {found:?}");
            db.close().unwrap();
            rows_before = found;
        }
        seed = seed.wrapping_add(1);
    }
    let rounds = seed.wrapping_sub(base);
    let Ends { power_lost, killed, closed } = ends;
    println!(
        "tally: lives with and without logging, {rounds} seeds, {power_lost} losses of power, {killed} kills, {closed} closes, \
         RIALTO_SEED={base}"
    );
}

/// Rows of each client, which a transaction sets to the same number.
const ALIKE: i32 = 60;

/// Sets the rows of a client to its next number until the database is closed. Gives the last number that was answered.
fn set_alike(db: &Database, client: i32, mut random: Random, about: &str) -> i64 {
    let Ok(table) = db.table("t") else { return 0 };
    for n in 1.. {
        let level = if random.chance(1, 2) { Durability::Disk } else { Durability::Memory };
        let outcome = db.transact_with(&quiet::level(level), |tx| {
            (0..ALIKE).try_for_each(|nth| {
                let there = tx.update(&table, client * ALIKE + nth, &[(1, Value::Int8(n))])?;
                assert!(there, "{about}: the rows were there before");
                Ok(())
            })
        });
        match outcome {
            Ok(()) => {}
            Err(Error::Closed) => return n - 1,
            Err(error) => panic!("{about}: {error}"),
        }
    }
    unreachable!("a close ends it")
}

/// Clients are committing when the close comes. Everything that was answered is there, and nothing that was refused,
/// whether there is a log or not.
#[test]
fn a_close_amid_commits_keeps_what_was_answered() {
    const CLIENTS: i32 = 3;
    let commits = AtomicI64::new(0);
    let (first, seeds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let disk = FaultyDisk::new(seed);
        let engine = Engine::ALL[random.below(3) as usize];
        let logging = if random.chance(2, 3) { Logging::None } else { Logging::Value };
        let about = &format!("RIALTO_SEED={seed}, {logging:?}, {engine}");
        let rows = 0..CLIENTS * ALIKE;
        let db = made(&disk);
        rows.clone().try_for_each(|id| put(&db, id, 0)).unwrap();
        db.close().unwrap();
        let db = Database::open_on(disk.clone(), Options { engine, ..options(logging) }).unwrap();
        let answered: Vec<i64> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| (db.clone(), client, random.fork()))
                .map(|(db, client, random)| scope.spawn(move || set_alike(&db, client, random, about)))
                .collect();
            std::thread::sleep(Duration::from_micros(random.below(3_000)));
            db.close().unwrap();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let expected: Rows = rows.map(|id| (id, answered[(id / ALIKE) as usize])).collect();
        disk.crash();
        let disk = disk.restart();
        assert_eq!(self::rows(&open(&disk, Logging::Value)), expected, "{about}: {answered:?} were answered");
        commits.fetch_add(answered.iter().sum(), Ordering::Relaxed);
    });
    println!(
        "tally: closes amid commits, {seeds} seeds, {} commits, RIALTO_SEED={first}",
        commits.into_inner()
    );
}
