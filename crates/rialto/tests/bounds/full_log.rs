//! The disk is full where the log overwrites its own prepared file: on a copy-on-write file system, or on a device with
//! less room than it reported. The log write then fails as with any other error (I4).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rialto::io::{FaultKind, FaultyDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Checkpointing, Database, Durability, Error, GroupCommitDesign, GroupCommitOptions, Options, Table,
    TableDef, Ticket, TxOptions,
};

const CLIENTS: i64 = 6;
/// The second row of each transaction has the first one's number plus this.
const HALF: i64 = 1 << 40;

fn options(design: GroupCommitDesign) -> Options {
    let group_commit = GroupCommitOptions::from(design);
    let waits = GroupCommitOptions { willing_to_wait: Some(Duration::from_micros(200)), ..group_commit };
    let group_commit = if waits.problem().is_none() { waits } else { group_commit };
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        memory_flush_interval: Duration::from_millis(1),
        group_commit,
        ..Options::default()
    }
}

fn table(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int8)];
    db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))).unwrap()
}

/// What a client was told of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Durable(Durability),
    Unknown,
    /// The database has stopped: the transaction never began to commit.
    Refused,
}

fn heard(outcome: Result<(), Error>, level: Durability, about: &str) -> Heard {
    match outcome {
        Ok(()) => Heard::Durable(level),
        Err(Error::OutcomeUnknown { cause, .. }) => {
            let (begins, ends) =
                ("write of \"log-0000000001\" at offset ", "the disk is full; make room on it");
            assert!(cause.starts_with(begins) && cause.ends_with(ends), "{about}: {cause}");
            Heard::Unknown
        }
        Err(Error::Stopped { disk_full: true, .. }) => Heard::Refused,
        Err(other) => panic!("{about}: {other:?}"),
    }
}

/// How a client waits for its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Blocks,
    /// Keeps tickets, and waits for the oldest of them.
    Waits,
    /// Keeps tickets, and asks one again when its waker was called, as an executor of futures does.
    Polls,
}

fn answer(mut ticket: Ticket, way: Way, about: &str) -> Result<(), Error> {
    if way == Way::Waits {
        return ticket.wait();
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (began, limit) = (Instant::now(), Duration::from_secs(20));
    loop {
        let polled = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(outcome) = polled {
            return outcome;
        }
        // The limit only makes the test fail if a ticket's waker is never called.
        std::thread::park_timeout(limit);
        assert!(began.elapsed() < limit, "{about}: a ticket was never woken");
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Commits until the log fails. Gives the answer to each number.
fn work(db: &Database, table: &Table, client: i64, about: &str) -> BTreeMap<i64, Heard> {
    let way = [Way::Blocks, Way::Waits, Way::Polls][client as usize % 3];
    let mut all = BTreeMap::new();
    let mut tickets = Vec::new();
    for nth in 0..100_000 {
        let id = client << 20 | nth;
        let level = if nth % 4 == 3 { Durability::Memory } else { Durability::Disk };
        let options = TxOptions { durability: Some(level), ..TxOptions::default() };
        let body = |tx: &mut rialto::Transaction| {
            tx.insert(table, &[Value::Int8(id)])?;
            tx.insert(table, &[Value::Int8(id | HALF)])
        };
        if way == Way::Blocks {
            all.insert(id, heard(db.transact_with(&options, body), level, about));
        } else {
            match db.submit_with(&options, body) {
                Ok(((), ticket)) => tickets.push((id, level, ticket)),
                Err(error) => _ = all.insert(id, heard(Err(error), level, about)),
            }
            if tickets.len() == 5 {
                let (id, level, ticket) = tickets.remove(0);
                all.insert(id, heard(answer(ticket, way, about), level, about));
            }
        }
        if matches!(all.values().next_back(), Some(Heard::Unknown | Heard::Refused)) {
            break;
        }
    }
    let failed = all.values().any(|heard| !matches!(heard, Heard::Durable(_)));
    assert!(failed, "{about}: client {client} heard of no failure");
    for (id, level, ticket) in tickets {
        all.insert(id, heard(answer(ticket, way, about), level, about));
    }
    all
}

/// Every waiter is released with the error, later operations get the sticky error, and nothing is tried again. The
/// database opens again with everything that was acknowledged, at its level, and with no half transaction.
#[test]
fn a_full_disk_under_a_log_write_stops_the_log_and_loses_nothing_acknowledged() {
    let base = Random::seed_from_environment();
    let mut random = Random::new(base);
    let (mut rounds, mut transactions, mut unknown) = (0, 0, 0);
    for (round, design) in (0..4).flat_map(|round| GroupCommitDesign::ALL.map(|design| (round, design))) {
        let about = format!("RIALTO_SEED={base}, round {round}, {design}");
        let machine_crashes = round % 2 == 0;
        let disk = FaultyDisk::new(random.next());
        let db = Database::open_on(disk.clone(), options(design)).unwrap();
        let table = table(&db);
        let before = random.below(30);
        disk.fail_always(FaultKind::FullToOverwrite, "log-0", before);
        let all: BTreeMap<i64, Heard> = std::thread::scope(|scope| {
            let client = |client| {
                let (db, table, about) = (&db, &table, &about);
                scope.spawn(move || work(db, table, client, about))
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        unknown += all.values().filter(|heard| **heard == Heard::Unknown).count();

        // Room on the disk changes nothing for this opening.
        disk.mend();
        let steps = disk.steps();
        let later = db.transact(|tx| tx.insert(&table, &[Value::Int8(-1)]));
        let ticket = db.submit(|tx| tx.insert(&table, &[Value::Int8(-2)])).map(drop);
        for outcome in [later, ticket, db.sync(), db.close()] {
            assert!(matches!(outcome, Err(Error::Stopped { disk_full: true, .. })), "{about}: {outcome:?}");
        }
        assert_eq!(disk.steps(), steps, "{about}: nothing is written or synced again");

        if machine_crashes {
            disk.crash()
        } else {
            disk.kill()
        }
        drop(table);
        let disk = disk.restart();
        let db = Database::open_on(disk.clone(), options(design)).unwrap();
        let there = |db: &Database, id: i64| {
            let table = db.table("t").unwrap();
            db.read(|tx| Ok(tx.get(&table, id)?.is_some())).unwrap()
        };
        let mut found = BTreeMap::new();
        for (&id, &heard) in &all {
            let whole = there(&db, id);
            assert_eq!(there(&db, id | HALF), whole, "{about}: {id} by halves");
            match heard {
                Heard::Durable(Durability::Disk) => assert!(whole, "{about}: {id} was acknowledged"),
                // Level 1 survives while the machine is up.
                Heard::Durable(_) => assert!(whole || machine_crashes, "{about}: {id} was acknowledged"),
                Heard::Refused => assert!(!whole, "{about}: {id} never began to commit"),
                Heard::Unknown => {}
            }
            found.insert(id, whole);
        }
        assert!(!there(&db, -1) && !there(&db, -2), "{about}");
        let table = db.table("t").unwrap();
        db.transact(|tx| tx.insert(&table, &[Value::Int8(-3)])).unwrap();
        disk.crash();
        drop((table, db));
        let db = Database::open_on(disk.restart(), options(design)).unwrap();
        assert!(there(&db, -3), "{about}");
        assert!(
            found.iter().all(|(&id, &whole)| there(&db, id) == whole),
            "{about}: what recovery saw stays"
        );
        (rounds, transactions) = (rounds + 1, transactions + all.len());
    }
    // Not with each seed: the log can fail while no transaction is between its place and its answer.
    assert!(unknown > 0, "RIALTO_SEED={base}: a transaction had a place");
    println!("tally: full logs, {rounds} rounds, {transactions} transactions, RIALTO_SEED={base}");
}
