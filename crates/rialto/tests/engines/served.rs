//! Requests to a transaction server whose queue is short and whose standbys are few, beside a handle that holds rows: bodies fail and
//! panic, message servers go while answers are on their way, the server closes amid it. Each request has one answer, and the rows
//! hold what the answers say.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use rialto::engine::transaction_server::Response;
use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Durability, Error, Flow, LockForm, MessageServer, Options, Procedure,
    Scan, Table, TableDef, TransactionServer, TransactionServerOptions,
};

use super::beside::{PANIC, keep_quiet};
use super::options;
use crate::common::seeds::for_a_while;

const ROWS: i32 = 8;
const PANICS: i32 = 1;
const FAILS: i32 = 2;

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
                FAILS if at == 1 => Err(Error::aborted("as it was asked to")),
                _ => Ok(()),
            }
        });
        add.by_argument(at)
    };
    let two = Flow::new().phase([add(0)]).phase([add(1)]);
    db.register(Procedure::new("two", [ColumnType::Int4; 3], two)).unwrap();
    (db, table.unwrap())
}

/// What clients were told.
#[derive(Default)]
struct Told {
    committed: AtomicI64,
    failed: AtomicI64,
    /// Of message servers that went with requests under way.
    unknown: AtomicI64,
}

/// A client with its message server.
struct Client<'a> {
    messages: MessageServer,
    under_way: HashSet<u64>,
    told: &'a Told,
}

impl Client<'_> {
    fn take_in(&mut self, response: Response) {
        assert!(self.under_way.remove(&response.tag()), "request {} is answered twice", response.tag());
        let count = if response.outcome().is_ok() { &self.told.committed } else { &self.told.failed };
        count.fetch_add(1, Ordering::Relaxed);
        self.messages.recycle(response);
    }

    fn run(mut self, server: &rialto::engine::transaction_server::ServedProcedure, random: &mut Random) {
        for tag in 0..60 {
            let mut request = self.messages.request(server);
            let how = if random.chance(1, 6) { 1 + random.below(2) as i32 } else { 0 };
            request.push(random.below(8) as i32).push(random.below(8) as i32).push(how).set_tag(tag);
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
            self.under_way.insert(tag);
            if random.chance(1, 3)
                && let Some(response) = self.messages.take()
            {
                self.take_in(response);
            }
        }
        if random.chance(1, 6) {
            self.told.unknown.fetch_add(self.under_way.len() as i64, Ordering::Relaxed);
        } else {
            self.finish();
        }
    }

    /// All that is under way is answered.
    fn finish(mut self) {
        while let Some(response) = self.messages.take() {
            self.take_in(response);
        }
        assert!(self.under_way.is_empty(), "{} requests have no answer", self.under_way.len());
    }
}

fn life(seed: u64, tally: &mut (i64, i64)) {
    let mut random = Random::new(seed);
    let locks = LockForm::ALL[random.below(3) as usize];
    let threads = if locks == LockForm::Local { [0, 2][random.below(2) as usize] } else { 0 };
    let options = Options {
        transactions_max: 12,
        durability: [Durability::Memory, Durability::Disk][random.below(2) as usize],
        checkpoint: Checkpointing::ALL[random.below(5) as usize],
        checkpoint_interval: Duration::from_millis(10),
        ..options((locks, threads))
    };
    let about = format!("RIALTO_SEED={seed}, {locks:?}, {threads} threads, {:?}", options.checkpoint);
    let (db, table) = database(options, MemoryDisk::new());
    let queue = 1 + random.below(4) as usize;
    let server = TransactionServerOptions { queue, standbys: random.below(4) as usize };
    let server = TransactionServer::start(&db, &server).unwrap();
    let two = server.procedure("two").unwrap();
    let (told, over, closes) = (Told::default(), AtomicBool::new(false), random.chance(1, 4));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (messages, under_way) = (server.message_server(), HashSet::new());
                let client = Client { messages, under_way, told: &told };
                let (two, mut random) = (&two, random.fork());
                scope.spawn(move || client.run(two, &mut random))
            })
            .collect();
        let (db, table, over, mut of_handle) = (&db, &table, &over, random.fork());
        scope.spawn(move || {
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
        drop(server);
        assert!(ended.iter().all(|ended| ended.is_ok()), "{about}: a client has failed");
    });
    let mut sum = 0;
    db.transact(|tx| {
        sum = 0;
        tx.scan(&table, &Scan::all(), |_, row| {
            sum += row.get_i64(1)?;
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    let [committed, failed, unknown] = [told.committed, told.failed, told.unknown].map(|it| it.into_inner());
    let possible = 2 * committed..=2 * (committed + unknown);
    assert!(sum % 2 == 0 && possible.contains(&sum), "{about}: {sum}, expected in {possible:?}");
    db.close().unwrap();
    *tally = (tally.0 + committed, tally.1 + failed);
}

#[test]
fn requests_to_a_transaction_server_add_up() {
    keep_quiet();
    let mut tally = (0, 0);
    let (first, seeds) = for_a_while(|seed| life(seed, &mut tally));
    let (committed, failed) = tally;
    println!(
        "tally: transaction servers against a model, {seeds} seeds, {committed} committed, {failed} failed, RIALTO_SEED={first}"
    );
}
