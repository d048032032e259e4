//! Databases without threads of their own, with several clients that run one at a time ([`Turns`]): a seed replays
//! everything that they do, step by step.
//!
//! A run draws its options, then has each client draw its operations: transfers and audits, through closures and
//! through handles that lock more and more, with time-outs and deadlines of some ms, at both levels, tickets, tables
//! that are made and dropped, checkpoints, calls of `drive`, and rests. Each outcome is noted, with its time on the
//! clock and the number of the disk's steps by then. Sums stay constant. A second run comes to the same outcomes in the
//! same turns and the same steps of the disk.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::common::engines;
use crate::common::seeds::for_a_while_until;
use crate::common::turns::Turns;
use crate::tables::{any_group_commit, any_logging, one_of};
use rialto::io::{Caching, Clock, FaultyDisk, Random, VirtualClock};
use rialto::row::{Column, ColumnType, Row, Value};
use rialto::{
    Background, Database, Durability, Engine, Options, Result, Table, TableDef, Transaction, TxOptions,
};

const ACCOUNTS: u64 = 6;
const EACH: i64 = 100;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn options(random: &mut Random, clock: Clock) -> Options {
    let (logging, checkpoint) = any_logging(random);
    Options {
        background: Background::Driven,
        clock,
        memory_bytes: 64 << 20,
        logging,
        checkpoint,
        checkpoint_interval: one_of(random, &[ms(20), ms(3_600_000)]),
        sweep_bytes_per_s: one_of(random, &[Some(0), Some(1 << 20), None]),
        backup_copies: 2 + random.below(2) as u32,
        spool: random.chance(1, 2),
        log_bytes_max: one_of(random, &[1 << 20, 16 << 20]),
        log_wait_max: ms(200),
        lock_timeout: one_of(random, &[ms(30), ms(10_000)]),
        engine: one_of(random, &[Engine::thin(), Engine::central(), engines::of(4, 0)]),
        group_commit: any_group_commit(random),
        log_writes: Some(one_of(random, &[Caching::Direct, Caching::DirectSync, Caching::Buffered])),
        log_writes_in_flight: Some(1 + random.below(3) as u32),
        recovery_threads: 1,
        ..Options::default()
    }
}

/// The outcomes of clients, their times, and how many steps the disk had made by then.
type Outcomes = Vec<(usize, String, Duration, u64)>;

struct World {
    db: Database,
    table: Table,
    disk: Arc<FaultyDisk>,
    turns: Arc<Turns>,
    clock: Arc<VirtualClock>,
    outcomes: Mutex<Outcomes>,
}

fn balance_of(row: &Row) -> Result<i64> {
    row.view().get_i64(1)
}

#[derive(Clone, Copy)]
struct Transfer {
    from: i32,
    to: i32,
    amount: i64,
    /// Between the two halves.
    rest: Duration,
}

struct Client<'a> {
    me: usize,
    world: &'a World,
    random: Random,
}

impl Client<'_> {
    fn step(&self) {
        self.world.turns.step(&self.world.clock);
    }

    fn rest(&self, time: Duration) {
        Clock::from(self.world.clock.clone()).sleep(time);
    }

    fn read(&self, tx: &mut Transaction, id: i32) -> Result<i64> {
        let row = tx.get(&self.world.table, id)?.expect("an account stays");
        self.step();
        balance_of(&row)
    }

    fn write(&self, tx: &mut Transaction, id: i32, balance: i64) -> Result<()> {
        assert!(tx.update(&self.world.table, id, &[(1, Value::Int8(balance))])?, "an account stays");
        self.step();
        Ok(())
    }

    fn transfer(
        &self,
        tx: &mut Transaction,
        Transfer { from, to, amount, rest }: Transfer,
    ) -> Result<String> {
        let before = self.read(tx, from)?;
        self.write(tx, from, before - amount)?;
        self.rest(rest);
        let before = self.read(tx, to)?;
        self.write(tx, to, before + amount)?;
        Ok(format!("{amount} from {from} to {to}"))
    }

    fn audit(&self, tx: &mut Transaction) -> Result<String> {
        let ids = 0..ACCOUNTS as i32;
        let all = ids.map(|id| self.read(tx, id)).collect::<Result<Vec<_>>>()?;
        Ok(format!("{all:?}"))
    }

    fn assert_sum(outcome: &str) {
        let all = outcome.trim_matches(['[', ']']).split(", ");
        let sum: i64 = all.map(|balance| balance.parse::<i64>().expect("a balance")).sum();
        assert_eq!(sum, EACH * ACCOUNTS as i64, "{outcome}");
    }

    fn does_something(&mut self) {
        let World { db, clock, .. } = self.world;
        let random = &mut self.random;
        let from = random.below(ACCOUNTS);
        let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let rest = one_of(random, &[ms(0), ms(0), ms(2), ms(20)]);
        let transfer = Transfer { from: from as i32, to: to as i32, amount: random.below(20) as i64, rest };
        let options = TxOptions {
            durability: Some(one_of(random, &[Durability::Memory, Durability::Disk])),
            lock_timeout: one_of(random, &[None, None, Some(ms(5))]),
            timeout: one_of(random, &[None, None, Some(ms(15))]),
            ..TxOptions::default()
        };
        let outcome = match random.below(16) {
            0..5 => db.transact_with(&options, |tx| self.transfer(tx, transfer)),
            5..7 => db.submit_with(&options, |tx| self.transfer(tx, transfer)).and_then(|(what, ticket)| {
                self.step();
                ticket.wait().map(|()| format!("{what}, by a ticket"))
            }),
            7..9 => {
                let does_commit = random.chance(2, 3);
                db.begin_with(&options).and_then(|mut tx| {
                    let what = self.transfer(&mut tx, transfer)?;
                    match does_commit {
                        true => tx.commit().map(|()| format!("{what}, by a handle")),
                        false => tx.abort().map(|()| "taken back".to_owned()),
                    }
                })
            }
            9..11 => db.transact_with(&options, |tx| self.audit(tx)).inspect(|all| Client::assert_sum(all)),
            11 => db.read(|tx| self.audit(tx)).inspect(|all| Client::assert_sum(all)),
            12 => db.drive().map(|()| "driven".to_owned()),
            13 => db.checkpoint().map(|made| format!("a checkpoint of {} segments", made.segments)),
            14 => {
                let name = format!("t{}", self.me);
                let columns = vec![Column::new("id", ColumnType::Int4)];
                let definition = TableDef::new(&name, columns).with_primary_key(&["id"]);
                db.transact_with(&options, |tx| match tx.table(&name) {
                    Ok(_) => tx.drop_table(&name).map(|()| "dropped".to_owned()),
                    Err(_) => tx.create_table(&definition).map(|_| "created".to_owned()),
                })
            }
            _ => {
                let rest = ms(random.below(50));
                self.rest(rest);
                Ok("rested".to_owned())
            }
        };
        let outcome = outcome.unwrap_or_else(|error| format!("{error:?}"));
        let World { disk, outcomes, .. } = self.world;
        outcomes.lock().push((self.me, outcome, clock.now(), disk.steps()));
        self.step();
    }
}

struct Run {
    outcomes: Outcomes,
    turns: Vec<(usize, Duration)>,
    trace: Vec<String>,
}

fn run(seed: u64) -> Run {
    let mut random = Random::new(seed);
    let (turns, clock) = Turns::new(random.next());
    let disk = FaultyDisk::new(random.next());
    disk.trace();
    let db = Database::open_on(disk.clone(), options(&mut random, clock.clone().into())).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("balance", ColumnType::Int8)];
    let definition = TableDef::new("accounts", columns).with_primary_key(&["id"]);
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&definition)?;
            let mut ids = 0..ACCOUNTS as i32;
            ids.try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(EACH)]))?;
            Ok(table)
        })
        .unwrap();
    let world = World { db, table, disk, turns, clock, outcomes: Mutex::default() };
    let operations = 4 + random.below(12);
    let clients = (0..2 + random.below(4) as usize).map(|me| {
        let mut client = Client { me, world: &world, random: random.fork() };
        let client = move || (0..operations).for_each(|_| client.does_something());
        Box::new(client) as Box<dyn FnOnce() + Send + '_>
    });
    world.turns.run(&world.clock, clients.collect());
    let World { db, table, disk, turns, outcomes, .. } = world;
    let sum = db.read(|tx| {
        let ids = 0..ACCOUNTS as i32;
        ids.map(|id| balance_of(&tx.get(&table, id)?.expect("an account stays"))).sum::<Result<i64>>()
    });
    assert_eq!(sum, Ok(EACH * ACCOUNTS as i64));
    drop(table);
    db.close().unwrap();
    let trace = disk.take_trace().iter().map(ToString::to_string).collect();
    Run { outcomes: outcomes.into_inner(), turns: turns.taken(), trace }
}

/// The first difference of two runs.
fn difference<T: PartialEq + std::fmt::Debug>(what: &str, one: &[T], other: &[T]) -> Option<String> {
    let at = (0..one.len().max(other.len())).find(|&at| one.get(at) != other.get(at))?;
    Some(format!("{what} {at}: {:?}, then {:?}", one.get(at), other.get(at)))
}

#[test]
fn a_seed_replays_what_several_threads_do() {
    let (mut steps, mut turns, mut kinds) = (0, 0, [0; 4]);
    let (first, seeds) = for_a_while_until(|seed| {
        let (one, other) = (run(seed), run(seed));
        let differs = difference("outcome", &one.outcomes, &other.outcomes)
            .or_else(|| difference("turn", &one.turns, &other.turns))
            .or_else(|| difference("step of the disk", &one.trace, &other.trace));
        assert_eq!(differs, None, "RIALTO_SEED={seed}");
        (steps, turns) = (steps + one.outcomes.len(), turns + one.turns.len());
        // A lock time-out is no deadline: its name ends alike.
        let is_of: [fn(&str) -> bool; 4] = [
            |outcome| outcome.starts_with("LockTimeout {"),
            |outcome| outcome.starts_with("Timeout {"),
            |outcome| outcome.starts_with("Deadlock {"),
            |outcome| outcome.ends_with("by a ticket"),
        ];
        for (kind, is_of) in kinds.iter_mut().zip(is_of) {
            *kind += one.outcomes.iter().filter(|(_, outcome, ..)| is_of(outcome)).count();
        }
        kinds.iter().all(|&kind| kind > 0)
    });
    let [timeouts, deadlines, deadlocks, tickets] = kinds;
    println!(
        "tally: threads by turns, {seeds} seeds, {steps} outcomes, {turns} turns, {timeouts} lock time-outs, {deadlines} deadlines, \
         {deadlocks} deadlocks, {tickets} tickets, RIALTO_SEED={first}"
    );
    assert!(kinds.iter().all(|&kind| kind > 0), "all kinds of outcomes: {kinds:?}");
}
