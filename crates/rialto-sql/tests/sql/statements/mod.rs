//! Random statements against a model: definitions, rows, conditions, savepoints, errors in transaction blocks,
//! definitions of a second session beside them, and the database opened again after a kill, a crash or a close. The
//! result of a statement, or its error, is that of the model on plain rows.

mod beside;
pub mod conditions;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::io::{Disk, FaultyDisk, Random};
use rialto::recovery::check::check;
use rialto::row::Value;
use rialto::{Checkpointing, Database, Engine, Executors, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError, TransactionStatus};

const MEMORY: u64 = 64 << 20;
const NAMES: [&str; 3] = ["a", "b", "c"];
const UNIQUE_VIOLATION: &str = "23505";
const NO_TABLE: &str = "42P01";
const NO_INDEX: &str = "42704";
const TABLE_IS_THERE: &str = "42P07";
const BLOCK_HAS_FAILED: &str = "25P02";

/// `k`, `v` and `c`.
type Row = (i32, Option<i32>, String);

#[derive(Debug, Clone, PartialEq, Default)]
struct Table {
    /// `k` is its primary key.
    is_keyed: bool,
    /// By name, with whether it is unique. Only indexes of `v` alone may be.
    indexes: BTreeMap<String, bool>,
    rows: Vec<Row>,
}

type Tables = BTreeMap<&'static str, Table>;

impl Table {
    fn breaks_a_key(&self) -> bool {
        let (mut ks, mut vs) = (BTreeSet::new(), BTreeSet::new());
        let is_unique = self.indexes.values().any(|unique| *unique);
        self.rows.iter().any(|(k, v, _)| {
            self.is_keyed && !ks.insert(k) || is_unique && v.as_ref().is_some_and(|v| !vs.insert(v))
        })
    }
}

/// The outcome of a statement: the tables after it and its rows, or the code of its error.
type Comes = Result<(Tables, Vec<Vec<Value>>), &'static str>;

struct Client {
    session: Session,
    /// A second user's session, and the definitions that it runs beside the first one's next statement.
    other: Session,
    beside: Vec<String>,
    definitions_beside: u64,
    random: Random,
    about: String,
    /// The tables as the next statement sees them.
    tables: Tables,
    /// The tables if the block is rolled back.
    committed: Tables,
    savepoints: Vec<(String, Tables)>,
    has_failed: bool,
    next_k: i32,
    story: Vec<String>,
    statements: u64,
    refused: u64,
}

/// Runs a statement, by a plan of its own text, or by one that it shares with texts that differ in their literals.
/// `between` runs after the plan is made.
fn run(
    session: &mut Session,
    sql: &str,
    is_shared: bool,
    between: impl FnOnce(),
) -> Result<Vec<Vec<Value>>, SqlError> {
    let mut rows = Collected::default();
    let outcome = (|| {
        if is_shared {
            let ready = session.read(sql).and_then(|read| session.prepare_read(sql, read));
            between();
            session.execute_ready(&ready?, &mut rows)?;
        } else {
            let prepared = session.prepare(sql, &[]);
            between();
            session.execute(&*prepared?, &[], &mut rows)?;
        }
        session.finish()
    })();
    outcome.map(|()| rows.0).inspect_err(|error| {
        let _ = session.fail(error);
    })
}

fn values((k, v, c): &Row) -> Vec<Value> {
    vec![Value::Int4(*k), v.map_or(Value::Null, Value::Int4), Value::Text(c.clone())]
}

/// Rows in the order of `k`, of `v` with NULL last, and of `c`.
fn sorted(mut rows: Vec<Row>) -> Vec<Vec<Value>> {
    rows.sort_by_key(|(k, v, c)| (*k, v.is_none(), *v, c.clone()));
    rows.iter().map(values).collect()
}

/// In an order that depends only on the rows.
fn in_any_order(mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

impl Client {
    fn new(db: Database, random: Random, about: String) -> Client {
        Client {
            session: Session::new(db.clone(), "ann", "bank"),
            other: Session::new(db, "bob", "bank"),
            beside: Vec::new(),
            definitions_beside: 0,
            random,
            about,
            tables: Tables::new(),
            committed: Tables::new(),
            savepoints: Vec::new(),
            has_failed: false,
            next_k: 0,
            story: Vec::new(),
            statements: 0,
            refused: 0,
        }
    }

    fn is_in_block(&self) -> bool {
        self.session.status() != TransactionStatus::Idle
    }

    fn told(&self) -> String {
        let last = self.story.len().saturating_sub(40);
        format!("{}: {:#?}", self.about, &self.story[last..])
    }

    /// Runs a statement and checks its outcome.
    fn expect(&mut self, sql: &str, comes: Comes) {
        let comes = if self.has_failed { Err(BLOCK_HAS_FAILED) } else { comes };
        self.story.push(sql.chars().take(400).collect());
        self.statements += 1;
        let is_shared = self.random.chance(1, 2);
        let found = self.run(sql, is_shared);
        match (found, comes) {
            (Ok(rows), Ok((tables, expected))) => {
                // The rows that a change returns have no order.
                let (rows, expected) = match sql.contains(" returning ") {
                    true => (in_any_order(rows), in_any_order(expected)),
                    false => (rows, expected),
                };
                assert_eq!(rows, expected, "{}", self.told());
                self.tables = tables;
                if !self.is_in_block() {
                    self.committed.clone_from(&self.tables);
                }
            }
            (Err(error), Err(code)) => {
                assert_eq!(error.sqlstate.code(), code, "{error}: {}", self.told());
                self.refused += 1;
                self.has_failed = self.is_in_block();
            }
            (found, comes) => {
                panic!("found {found:?}, expected {:?}: {}", comes.map(|it| it.1), self.told())
            }
        }
    }

    /// Statements about transaction blocks, which no failed block refuses.
    fn control(&mut self, sql: &str) {
        self.story.push(sql.to_owned());
        self.statements += 1;
        run(&mut self.session, sql, false, || ()).unwrap_or_else(|error| panic!("{error}: {}", self.told()));
    }

    fn step(&mut self) {
        if self.has_failed && self.savepoints.is_empty() && self.random.chance(1, 2) {
            return self.end_block();
        }
        if !self.is_in_block() && self.random.chance(1, 3) {
            return self.draw_beside();
        }
        let draw = if self.has_failed && self.random.chance(1, 2) { 5 } else { self.random.below(30) };
        match draw {
            0..3 if !self.is_in_block() => self.control("begin"),
            0 => self.end_block(),
            1..5 if self.is_in_block() && !self.has_failed => {
                let name = format!("s{}", self.random.below(3));
                self.control(&format!("savepoint {name}"));
                self.savepoints.push((name, self.tables.clone()));
            }
            5 | 6 if !self.savepoints.is_empty() => {
                let at = self.any_savepoint();
                let name = self.savepoints[at].0.clone();
                self.control(&format!("rollback to savepoint {name}"));
                self.tables.clone_from(&self.savepoints[at].1);
                self.savepoints.truncate(at + 1);
                self.has_failed = false;
            }
            7 if !self.savepoints.is_empty() && !self.has_failed => {
                let at = self.any_savepoint();
                let name = self.savepoints[at].0.clone();
                self.control(&format!("release savepoint {name}"));
                self.savepoints.truncate(at);
            }
            8..11 => self.define(),
            11..15 => {
                let name = self.any_name();
                self.select(name);
            }
            _ => self.change(),
        }
    }

    /// The last savepoint of a random name.
    fn any_savepoint(&mut self) -> usize {
        let at = self.random.below(self.savepoints.len() as u64) as usize;
        let name = &self.savepoints[at].0;
        self.savepoints.iter().rposition(|(other, _)| other == name).expect("it is there itself")
    }

    fn end_block(&mut self) {
        let commits = self.random.chance(3, 4);
        self.control(if commits { "commit" } else { "rollback" });
        if commits && !self.has_failed {
            self.committed.clone_from(&self.tables);
        } else {
            self.tables.clone_from(&self.committed);
        }
        self.savepoints.clear();
        self.has_failed = false;
    }

    fn with(&self, name: &'static str, change: impl FnOnce(&mut Table)) -> Comes {
        self.returning(name, |table| {
            change(table);
            Vec::new()
        })
    }

    /// As `with`, for a change that gives rows.
    fn returning(&self, name: &'static str, change: impl FnOnce(&mut Table) -> Vec<Row>) -> Comes {
        let mut tables = self.tables.clone();
        let table = tables.get_mut(name).ok_or(NO_TABLE)?;
        let rows = change(table);
        if table.breaks_a_key() {
            return Err(UNIQUE_VIOLATION);
        }
        Ok((tables, rows.iter().map(values).collect()))
    }

    fn any_name(&mut self) -> &'static str {
        NAMES[self.random.below(3) as usize]
    }

    fn define(&mut self) {
        let name = self.any_name();
        let (sql, comes) = self.definition(name);
        self.expect(&sql, comes);
    }

    /// A random definition of a table, and its outcome.
    fn definition(&mut self, name: &'static str) -> (String, Comes) {
        let is_there = self.tables.contains_key(name);
        let index = format!("{name}_{}", self.random.below(3));
        match self.random.below(10) {
            0..4 if !is_there || self.random.chance(1, 10) => {
                let is_keyed = self.random.chance(1, 2);
                let key = if is_keyed { "primary key" } else { "not null" };
                let mut tables = self.tables.clone();
                tables.insert(name, Table { is_keyed, ..Table::default() });
                let comes = if is_there { Err(TABLE_IS_THERE) } else { Ok((tables, vec![])) };
                (format!("create table {name} (k int {key}, v int, c text)"), comes)
            }
            4 => {
                let mut tables = self.tables.clone();
                let comes = tables.remove(name).map(|_| (tables, vec![])).ok_or(NO_TABLE);
                (format!("drop table {name}"), comes)
            }
            5 => {
                let comes = self.with(name, |table| table.rows.clear());
                (format!("truncate {name}"), comes)
            }
            6 | 7 => {
                let index = self.any_index(name).unwrap_or(index);
                let mut tables = self.tables.clone();
                let dropped = tables.get_mut(name).and_then(|table| table.indexes.remove(&index));
                let comes = dropped.map(|_| (tables, vec![])).ok_or(NO_INDEX);
                (format!("drop index {index}"), comes)
            }
            8 if self.tables.get(name).is_some_and(|table| !table.is_keyed) => {
                let comes = self.with(name, |table| table.is_keyed = true);
                (format!("alter table {name} add primary key (k)"), comes)
            }
            _ => {
                let is_unique = self.random.chance(1, 3);
                let has_it = self.tables.get(name).is_some_and(|table| table.indexes.contains_key(&index));
                let comes = match has_it {
                    true => Err(TABLE_IS_THERE),
                    false => self.with(name, |table| {
                        table.indexes.insert(index.clone(), is_unique);
                    }),
                };
                let unique = if is_unique { "unique " } else { "" };
                let columns =
                    if is_unique { "v" } else { ["v", "v, c", "c, v"][self.random.below(3) as usize] };
                (format!("create {unique}index {index} on {name} ({columns})"), comes)
            }
        }
    }

    /// Most often, an index that the table has.
    fn any_index(&mut self, name: &str) -> Option<String> {
        let indexes = &self.tables.get(name)?.indexes;
        let at = self.random.below(2 + indexes.len() as u64);
        indexes.keys().nth(at as usize).cloned()
    }

    /// Checks that the table has these rows, and no others.
    fn verify(&mut self, name: &'static str) {
        let comes = match self.tables.get(name) {
            Some(table) => Ok((self.tables.clone(), sorted(table.rows.clone()))),
            None if self.is_in_block() => return,
            None => Err(NO_TABLE),
        };
        self.expect(&format!("select k, v, c from {name} order by k, v nulls last, c"), comes);
    }
}

fn options(random: &mut Random) -> Options {
    Options {
        memory_bytes: MEMORY,
        engine: [Engine::thin(), Engine::central(), Executors::of(4, random.below(3) as usize).into()]
            [random.below(3) as usize],
        checkpoint: if random.chance(1, 2) { Checkpointing::None } else { Checkpointing::Fuzzy },
        checkpoint_interval: Duration::from_millis(10),
        ..Options::default()
    }
}

/// Several lives of a database with one client. Gives the numbers of statements, of refused ones, and of definitions
/// beside them.
fn lives(seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let db = Database::open_on(disk.clone(), options(&mut random)).unwrap();
    let mut client = Client::new(db, random.fork(), format!("RIALTO_SEED={seed}"));
    for _ in 0..3 {
        for _ in 0..100 {
            client.step();
        }
        // What a block has not committed is lost with the process, or with its session.
        match random.below(3) {
            0 => disk.kill(),
            1 => disk.crash(),
            _ => {}
        }
        let Client {
            session,
            other,
            random: of_client,
            about,
            committed,
            next_k,
            story,
            statements,
            refused,
            definitions_beside,
            ..
        } = client;
        drop((session, other));
        if !disk.is_down() {
            disk.kill();
        }
        disk = disk.restart();
        let report = check(&(Arc::clone(&disk) as Arc<dyn Disk>), MEMORY, 2).unwrap();
        assert!(report.is_sound(), "{about}: {report}");
        let db = Database::open_on(disk.clone(), options(&mut random))
            .unwrap_or_else(|error| panic!("{about}: {error}"));
        client = Client::new(db, of_client, about);
        (client.tables, client.committed) = (committed.clone(), committed);
        (client.next_k, client.story, client.statements, client.refused) =
            (next_k, story, statements, refused);
        client.definitions_beside = definitions_beside;
        client.story.push("opened again".to_owned());
        NAMES.into_iter().for_each(|name| client.verify(name));
    }
    [client.statements, client.refused, client.definitions_beside]
}

#[test]
fn statements_do_what_they_do_to_plain_rows() {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    let (mut seeds, mut sums) = (0, [0; 3]);
    while seeds == 0 || began.elapsed() < time {
        let counts = lives(first.wrapping_add(seeds));
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        seeds += 1;
    }
    let [statements, refused, beside] = sums;
    println!(
        "tally: statements against a model, {seeds} seeds, {statements} statements, {refused} refused, {beside} definitions beside them, RIALTO_SEED={first}"
    );
}
