//! Log writes that hang, at random, on all engines and with all group commit designs. All operations at level 1 go on,
//! by closures, handles and calls (I6), and none at level disk is answered before the write has returned (I3).

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::common::seeds::{for_a_while, patience};
use crate::common::{engines, in_time, quiet, until};
use rialto::io::{Caching, FaultKind, FaultyDisk, Random};
use rialto::row::{ColumnType, Value, WhichIndex};
use rialto::{
    Action, Database, Durability, Engine, Flow, GroupCommitDesign, Options, Procedure, Retries, Sent, Table,
    Transaction,
};

/// The rows of the table.
const ROWS: usize = 10;

/// How many times each row was added to.
type Sums = [AtomicI32; ROWS];

/// The ways of writing the log, and which of its calls hangs.
const WAYS: [(Caching, FaultKind); 3] = [
    (Caching::Buffered, FaultKind::Sync),
    (Caching::Direct, FaultKind::Sync),
    (Caching::DirectSync, FaultKind::Write),
];

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

fn options(random: &mut Random, log_writes: Caching) -> Options {
    let executors = engines::of(1 + random.below(4) as usize, random.below(4) as usize);
    Options {
        engine: one_of(random, &[executors, executors, Engine::thin(), Engine::central()]),
        group_commit: one_of(random, &GroupCommitDesign::ALL).into(),
        log_writes: Some(log_writes),
        memory_flush_interval: Duration::from_micros(100 + random.below(20_000)),
        deadlock_retries_max: 100_000,
        lock_timeout: Duration::from_secs(300),
        ..quiet::options()
    }
}

fn add(tx: &mut Transaction, table: &Table, id: i32) -> rialto::Result<()> {
    tx.modify(table, id, |row| row.add(1, 1).map(drop)).map(drop)
}

/// Adds to two rows, in one phase or in two.
fn procedures() -> [Procedure; 2] {
    let action = |nth: usize| {
        Action::exclusive("t", move |tx, arguments, _| add(tx, arguments.table()?, arguments.get(nth)?))
            .by_argument(nth)
    };
    let flows = [
        ("in one phase", Flow::new().phase([action(0), action(1)])),
        ("in two", Flow::new().phase([action(0)]).phase([action(1)])),
    ];
    flows.map(|(name, flow)| Procedure::new(name, [ColumnType::Int4; 2], flow))
}

/// A client, which adds to two rows at a time.
struct Client {
    db: Database,
    table: Table,
    sums: Arc<Sums>,
    random: Random,
}

impl Client {
    fn any_rows(&mut self) -> [i32; 2] {
        let rows = [0; 2].map(|_| self.random.below(ROWS as u64) as i32);
        for id in rows {
            self.sums[id as usize].fetch_add(1, Ordering::SeqCst);
        }
        rows
    }

    fn send(&mut self, durability: Durability) -> Sent {
        let (rows, name) = (self.any_rows(), one_of(&mut self.random, &["in one phase", "in two"]));
        let sent = self.db.send_call_with(&quiet::level(durability), name, &rows.map(Value::Int4));
        sent.unwrap()
    }

    /// A transaction of level 1, which is answered.
    fn go_on(&mut self) {
        let level = quiet::level(Durability::Memory);
        let kind = self.random.below(3);
        if kind == 0 {
            return drop(self.send(Durability::Memory).wait().unwrap());
        }
        let (rows, table) = (self.any_rows(), &self.table);
        let body = |tx: &mut Transaction| rows.iter().try_for_each(|id| add(tx, table, *id));
        if kind == 1 {
            return self.db.transact_with(&level, body).unwrap();
        }
        let mut tx = self.db.begin_with(&level).unwrap();
        let mut retries = Retries::default();
        loop {
            match body(&mut tx) {
                Ok(()) => return tx.commit().unwrap(),
                Err(error) => tx = self.db.begin_again(tx, error, &level, &mut retries).unwrap(),
            }
        }
    }
}

/// Releases what hangs also when the test fails: otherwise its threads never end.
struct LetsGo<'a>(&'a FaultyDisk);

impl Drop for LetsGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// How many transactions were answered while a write hung.
fn round(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let (disk, (log_writes, hangs)) = (FaultyDisk::new(seed), one_of(&mut random, &WAYS));
    let options = options(&mut random, log_writes);
    let Options { engine, ref group_commit, .. } = options;
    let about = format!("RIALTO_SEED={seed}, {log_writes:?}, {engine}, {group_commit}");
    let db = Database::open_on(disk.clone(), options).unwrap();
    let table = quiet::numbers(&db);
    procedures().into_iter().for_each(|procedure| db.register(procedure).unwrap());
    if db.executors() > 1 {
        let bound = vec![Value::Int4(random.below(ROWS as u64) as i32)];
        db.set_routing("t", WhichIndex::Primary, &[bound]).unwrap();
    }
    db.sync().unwrap();
    let sums = Arc::<Sums>::default();
    let mut client =
        || Client { db: db.clone(), table: table.clone(), sums: sums.clone(), random: random.fork() };
    let (mut asks, others) = (client(), [client(), client(), client()]);
    disk.hang(hangs, "log-0");
    let lets_go = LetsGo(&disk);
    let mut asked = vec![asks.send(Durability::Disk)];
    until("a log write that hangs", || disk.hanging() > 0);
    asked.extend((0..random.below(12)).map(|_| asks.send(Durability::Disk)));
    let each = 5 + random.below(40);
    // A failure in time gives no other description.
    println!("{about}");
    in_time(patience(), move || {
        let work = |mut client: Client| std::thread::spawn(move || (0..each).for_each(|_| client.go_on()));
        others.map(work).into_iter().for_each(|thread| thread.join().unwrap());
    });
    let told = asked.iter_mut().map(Sent::is_done).filter(|is_done| *is_done).count();
    assert_eq!(told, 0, "{about}: answers before their log write");
    drop(lets_go);
    asked.into_iter().for_each(|sent| drop(sent.wait().unwrap()));
    for (id, sum) in sums.iter().enumerate() {
        let row = db.read(|tx| tx.look(&table, id as i32, |row| row.get_i32(1))).unwrap();
        assert_eq!(row.expect("it is there"), Ok(sum.load(Ordering::SeqCst)), "{about}: row {id}");
    }
    db.close().unwrap();
    3 * each
}

#[test]
fn what_asks_for_no_disk_goes_on_beside_a_log_write_that_hangs() {
    let mut answered = 0;
    let (seed, rounds) = for_a_while(|seed| answered += round(seed));
    println!(
        "tally: commits beside log writes that hang, {rounds} rounds, {answered} transactions, RIALTO_SEED={seed}"
    );
}
