//! Requests to a transaction server whose queue is short and whose standbys are few, beside a handle that holds rows.
//! Bodies fail and panic, message servers are dropped while answers are under way, and the server closes during this.
//! Each request has one answer, and the rows are those of the answers.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rialto::engine::servers::Response;
use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Durability, Engine, Error, Flow, MessageServer, Options, Procedure,
    Scan, Table, TableDef, TransactionServer, TransactionServerOptions,
};

use super::beside::{PANIC, keep_quiet};
use super::databases::is_sound;
use super::tally::{Tally, rounds_until_met};
use super::{of_threads, options};

const ROWS: i32 = 8;
const PANICS: i32 = 1;
const FAILS: i32 = 2;
const FAILURE: &str = "as it was asked to";

fn database(options: Options, disk: std::sync::Arc<MemoryDisk>) -> (Database, Table) {
    let db = Database::open_on(disk, options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
    let table = db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
        (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))?;
        Ok(table)
    });
    let add = |at: usize| {
        let add = Action::exclusive("t", move |tx, arguments, _| {
            tx.modify(arguments.table()?, arguments.get::<i32>(at)?, |row| row.add_i64(1, 1).map(drop))?;
            match arguments.get::<i32>(2)? {
                PANICS if at == 1 => panic!("{PANIC}"),
                FAILS if at == 1 => Err(Error::aborted(FAILURE)),
                _ => Ok(()),
            }
        });
        add.by_argument(at)
    };
    let two = Flow::new().phase([add(0)]).phase([add(1)]);
    db.register(Procedure::new("two", [ColumnType::Int4; 3], two)).unwrap();
    (db, table.unwrap())
}

/// A request: the rows that it adds to, and how it ends.
#[derive(Debug, Clone, Copy)]
struct Asked {
    rows: [i32; 2],
    how: i32,
}

/// The answers that clients got.
#[derive(Default)]
struct Told {
    tally: Tally,
    /// How many times each row was added to: by requests that have committed, and by requests under way of message
    /// servers that were dropped.
    committed: BTreeMap<i32, i64>,
    unknown: BTreeMap<i32, i64>,
}

/// A client with its message server.
struct Client<'a> {
    messages: MessageServer,
    under_way: HashMap<u64, Asked>,
    told: &'a Mutex<Told>,
    about: &'a str,
}

impl Client<'_> {
    fn take_in(&mut self, response: Response) {
        let asked = self.under_way.remove(&response.tag());
        let asked = asked.unwrap_or_else(|| panic!("request {} is answered twice", response.tag()));
        let mut told = self.told.lock();
        let what = match (response.outcome(), asked.how) {
            (Ok(()), 0) => {
                asked.rows.iter().for_each(|id| *told.committed.entry(*id).or_default() += 1);
                "committed"
            }
            (Err(Error::Aborted { reason }), FAILS) if reason == FAILURE => "aborted by bodies",
            (Err(Error::Procedure { reason, .. }), PANICS) if reason.contains(PANIC) => "panics",
            // Whatever its body does, this outcome is possible.
            (Err(Error::Closed), _) => "after a close",
            (outcome, _) => panic!("{}: {asked:?}: {outcome:?}", self.about),
        };
        told.tally.note(what);
        drop(told);
        self.messages.recycle(response);
    }

    fn run(mut self, server: &rialto::engine::servers::ServedProcedure, random: &mut Random) {
        for tag in 0..60 {
            let mut request = self.messages.request(server);
            let how = if random.chance(1, 6) { 1 + random.below(2) as i32 } else { 0 };
            let asked = Asked { rows: [0; 2].map(|_| random.below(ROWS as u64) as i32), how };
            request.push(asked.rows[0]).push(asked.rows[1]).push(how).set_tag(tag);
            if random.chance(1, 3) {
                request.set_durability(Durability::Disk);
            }
            let mut waiting = Some(request);
            while let Some(request) = waiting.take() {
                let refused = match random.chance(1, 3) {
                    true => self.messages.put(request).map(|()| None),
                    false => self.messages.try_put(request),
                };
                match refused {
                    Ok(None) => {}
                    Ok(back) => {
                        waiting = back;
                        self.messages.wait();
                        while let Some(response) = self.messages.try_take() {
                            self.take_in(response);
                        }
                    }
                    Err(Error::Closed) => return self.finish(),
                    Err(error) => panic!("{error}"),
                }
            }
            self.under_way.insert(tag, asked);
            if random.chance(1, 3)
                && let Some(response) = self.messages.take()
            {
                self.take_in(response);
            }
        }
        if random.chance(1, 6) {
            let mut told = self.told.lock();
            for asked in self.under_way.values().filter(|asked| asked.how == 0) {
                asked.rows.iter().for_each(|id| *told.unknown.entry(*id).or_default() += 1);
            }
        } else {
            self.finish();
        }
    }

    /// Waits until every request under way is answered.
    fn finish(mut self) {
        while let Some(response) = self.messages.take() {
            self.take_in(response);
        }
        assert!(self.under_way.is_empty(), "{} requests have no answer", self.under_way.len());
    }
}

fn life(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let executors = of_threads([0, 2][random.below(2) as usize]);
    let engine = [Engine::thin(), Engine::central(), executors][random.below(3) as usize];
    let options = Options {
        transactions_max: 12,
        durability: [Durability::Memory, Durability::Disk][random.below(2) as usize],
        checkpoint: Checkpointing::ALL[random.below(5) as usize],
        checkpoint_interval: Duration::from_millis(10),
        ..options(engine)
    };
    let about = format!("RIALTO_SEED={seed}, {engine}, {:?}", options.checkpoint);
    let disk = MemoryDisk::new();
    let (db, table) = database(options.clone(), disk.clone());
    let queue = 1 + random.below(4) as usize;
    let server = TransactionServerOptions { queue, standbys: random.below(4) as usize };
    let server = TransactionServer::start(&db, &server).unwrap();
    let two = server.procedure("two").unwrap();
    let (told, over, closes) = (Mutex::<Told>::default(), AtomicBool::new(false), random.chance(1, 4));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (messages, under_way) = (server.message_server(), HashMap::new());
                let client = Client { messages, under_way, told: &told, about: &about };
                let (two, mut random) = (&two, random.fork());
                scope.spawn(move || client.run(two, &mut random))
            })
            .collect();
        let (db, table, over, mut of_handle) = (&db, &table, &over, random.fork());
        let holds = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let mut tx = db.begin().unwrap();
                let mut hold = |tx: &mut rialto::Transaction| {
                    let _ = tx.get_for_update(table, of_handle.below(8) as i32);
                    std::thread::sleep(Duration::from_micros(200 * of_handle.below(6)));
                };
                hold(&mut tx);
                hold(&mut tx);
                drop(tx);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let mut server = Some(server);
        if closes {
            std::thread::sleep(Duration::from_millis(random.below(20)));
            server.take().expect("it runs").close();
        }
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        over.store(true, Ordering::Relaxed);
        holds.join().unwrap();
        drop(server);
        assert!(ended.iter().all(|ended| ended.is_ok()), "{about}: a client has failed");
    });
    let Told { tally: of_round, committed, unknown } = told.into_inner();
    tally.add_all(of_round);
    let before = numbers(&db);
    for (id, n) in &before {
        let [committed, unknown] = [&committed, &unknown].map(|times| times.get(id).copied().unwrap_or(0));
        let possible = committed..=committed + unknown;
        assert!(possible.contains(n), "{about}: row {id} has {n}, expected {possible:?}");
    }
    let sum: i64 = before.values().sum();
    assert_eq!(sum % 2, 0, "{about}: a request has added to one of its rows");
    db.close().unwrap();
    drop(table);
    is_sound(&disk, &about);
    let db = Database::open_on(disk, options).unwrap();
    assert_eq!(numbers(&db), before, "{about}: opened again");
}

/// The number of each row.
fn numbers(db: &Database) -> BTreeMap<i32, i64> {
    let table = db.table("t").unwrap();
    db.transact(|tx| {
        let mut numbers = BTreeMap::new();
        tx.scan(&table, &Scan::all(), |_, row| {
            numbers.insert(row.get_i32(0)?, row.get_i64(1)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(numbers)
    })
    .unwrap()
}

#[test]
fn requests_to_a_transaction_server_add_up() {
    keep_quiet();
    let expected = ["committed", "aborted by bodies", "panics"];
    rounds_until_met("transaction servers against a model", &expected, life);
}
