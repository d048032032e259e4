//! Prepared transactions: they keep what they have locked, through whatever ends the database, until they are decided.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::disk_tables::{Model, assert_same, contents, definition, options};
use crate::common::seeds::for_a_while;
use rialto::io::{Caching, Disk, FaultyDisk, MemoryDisk, Open, Random};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Direction, Durability, Engine, Error, Executors, Follower, KeyBound, LockGrain,
    LockPolicy, Logging, Options, PreparedTransaction, Scan, Table, TableDef, Transaction, TxOptions,
};

const TABLES: [&str; 2] = ["on_disk", "in_memory"];
const KEYS: u64 = 80;

type Row = (i32, i32, String);
type At = (&'static str, i32);

/// What a prepared transaction has read and will write.
#[derive(Debug, Clone, Default)]
struct Branch {
    note: Vec<u8>,
    writes: BTreeMap<At, Option<Row>>,
    reads: BTreeSet<At>,
    /// Ranges of ids, both ends included.
    ranges: BTreeSet<(&'static str, i32, i32)>,
    /// Ranges that scans had before they ended early. What lies there may be locked.
    unread: BTreeSet<(&'static str, i32, i32)>,
    /// Values of the column "part" by whose index all rows were read.
    parts: BTreeSet<(&'static str, i32)>,
    /// Values of the column "code" that no row has.
    codes: BTreeSet<(&'static str, i32)>,
    /// Tables that were read as a whole.
    whole: BTreeSet<&'static str>,
}

fn for_branches(durability: Durability) -> TxOptions {
    TxOptions {
        may_prepare: true,
        lock_wait: LockPolicy::Refuse,
        durability: Some(durability),
        ..TxOptions::default()
    }
}

/// The options of transactions that look whether a lock is there.
fn probing() -> TxOptions {
    TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() }
}

fn values(id: i32, row: &Row) -> [Value; 4] {
    [Value::Int4(id), Value::Int4(row.0), Value::Int4(row.1), Value::Text(row.2.clone())]
}

struct Life {
    about: String,
    random: Random,
    options: Options,
    disk: Arc<FaultyDisk>,
    model: Model,
    prepared: BTreeMap<String, Branch>,
    /// Numbers names and unique codes.
    next: i32,
    probes: u64,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut random = Random::new(seed);
        let mut options = options(&mut random);
        options.two_stage = rialto::TwoStage::TwoPhaseLocking;
        if !matches!(options.checkpoint, Checkpointing::None) {
            options.checkpoint_interval = Duration::from_secs(3600);
        }
        let disk = FaultyDisk::new(random.next());
        let about = format!("RIALTO_SEED={seed}");
        let model = TABLES.into_iter().map(|name| (name, BTreeMap::new())).collect();
        Life { about, random, options, disk, model, prepared: BTreeMap::new(), next: 1, probes: 0 }
    }

    fn open(&self) -> Database {
        Database::open_on(self.disk.clone(), self.options.clone())
            .unwrap_or_else(|error| panic!("{}: {error}", self.about))
    }

    fn fresh(&mut self) -> i32 {
        self.next += 1;
        self.next
    }

    fn row(&mut self) -> Row {
        let length =
            if self.random.chance(1, 12) { self.random.below(20_000) } else { self.random.below(60) };
        (self.random.below(4) as i32, self.fresh(), "t".repeat(length as usize))
    }

    fn at(&mut self) -> At {
        (TABLES[self.random.below(2) as usize], self.random.below(KEYS) as i32)
    }

    /// A random operation of a branch.
    fn operate(
        &mut self,
        tx: &mut Transaction<'_>,
        tables: &[Table],
        branch: &mut Branch,
    ) -> Result<(), Error> {
        let (name, id) = self.at();
        let table = &tables[TABLES.iter().position(|&other| other == name).unwrap()];
        let view = |model: &Model, branch: &Branch, id: i32| {
            let own = branch.writes.get(&(name, id)).cloned();
            own.unwrap_or_else(|| model[name].get(&id).cloned())
        };
        let there = view(&self.model, branch, id);
        let part = self.random.below(4) as i32;
        match self.random.below(13) {
            9 => {
                let scan = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(part)]);
                let mut found = BTreeSet::new();
                tx.entries(table, &scan, |key, _| {
                    found.insert(key.clone());
                    Ok(ControlFlow::Continue(()))
                })?;
                branch.parts.insert((name, part));
            }
            10 => {
                let code = self.next - self.random.below(60) as i32;
                let found = tx.get_by(table, WhichIndex::Secondary(1), code)?;
                match found {
                    Some(row) => drop(branch.reads.insert((name, row.view().get_i32(0)?))),
                    None => drop(branch.codes.insert((name, code))),
                }
            }
            11 if self.random.chance(1, 4) => {
                tx.count(table)?;
                branch.whole.insert(name);
            }
            0 => {
                let found = tx.get(table, id)?;
                assert_eq!(found.is_some(), there.is_some(), "{}: {name} {id}", self.about);
                branch.reads.insert((name, id));
            }
            1 => {
                let found = tx.get_for_update(table, id)?;
                assert_eq!(found.is_some(), there.is_some(), "{}: {name} {id}", self.about);
                // The next opening need not lock it exclusively.
                branch.reads.insert((name, id));
            }
            2 => {
                let upper = id + self.random.below(6) as i32;
                let bound = |id| KeyBound::Included(vec![Value::Int4(id)]);
                let direction = [Direction::Forward, Direction::Backward][self.random.below(2) as usize];
                let scan = Scan { lower: bound(id), upper: bound(upper), direction, ..Scan::all() };
                let mut found = BTreeSet::new();
                let last = self.random.below(4);
                tx.scan(table, &scan, |_, row| {
                    found.insert(row.get_i32(0)?);
                    let ends = found.len() as u64 > last;
                    Ok(if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
                // What lies behind the row at which it has ended is not read.
                let (first, last) = match (found.len() as u64 > last, direction) {
                    (false, _) => (id, upper),
                    (true, Direction::Forward) => (id, *found.last().unwrap()),
                    (true, Direction::Backward) => (*found.first().unwrap(), upper),
                };
                branch.ranges.insert((name, first, last));
                branch.unread.insert((name, id, upper));
                branch.reads.extend(found.into_iter().map(|id| (name, id)));
            }
            3 => {
                let scan = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(part)]);
                let mut found = BTreeSet::new();
                tx.scan(table, &scan, |_, row| {
                    found.insert(row.get_i32(0)?);
                    Ok(ControlFlow::Continue(()))
                })?;
                branch.parts.insert((name, part));
                branch.reads.extend(found.into_iter().map(|id| (name, id)));
            }
            4 if there.is_some() => {
                assert!(tx.delete(table, id)?);
                branch.writes.insert((name, id), None);
            }
            _ => {
                let row = self.row();
                match there {
                    None => tx.insert(table, &values(id, &row))?,
                    Some(_) => {
                        let [_, part, code, text] = values(id, &row);
                        assert!(tx.update(table, id, &[(1, part), (2, code), (3, text)])?);
                    }
                }
                branch.writes.insert((name, id), Some(row));
            }
        }
        Ok(())
    }

    /// A transaction that commits, aborts, or is prepared.
    fn transact(&mut self, db: &Database) {
        let level = if self.random.chance(1, 2) { Durability::Disk } else { Durability::Memory };
        let tables = TABLES.map(|name| db.table(name).unwrap());
        let mut tx = db.begin_with(&for_branches(level)).unwrap();
        let mut branch = Branch::default();
        for _ in 0..1 + self.random.below(6) {
            match self.operate(&mut tx, &tables, &mut branch) {
                Ok(()) => {}
                Err(Error::WouldWait { .. }) => return,
                Err(error) => panic!("{}: {error}", self.about),
            }
        }
        match self.random.below(4) {
            0 => {}
            1 => {
                tx.commit().unwrap();
                self.apply(&branch);
            }
            _ => {
                let name = format!("branch {}", self.fresh());
                branch.note = vec![7; self.random.below(100) as usize];
                if self.random.chance(1, 8) {
                    branch.note = vec![8; 40_000];
                }
                tx.prepare(&name, &branch.note).unwrap_or_else(|error| panic!("{}: {error}", self.about));
                self.prepared.insert(name, branch);
            }
        }
    }

    fn apply(&mut self, branch: &Branch) {
        for ((name, id), row) in &branch.writes {
            let rows = self.model.get_mut(name).unwrap();
            match row {
                Some(row) => drop(rows.insert(*id, row.clone())),
                None => drop(rows.remove(id)),
            }
        }
    }

    fn decide(&mut self, db: &Database) {
        let Some(name) = self.prepared.keys().nth(self.random.below(5) as usize).cloned() else { return };
        let branch = self.prepared.remove(&name).unwrap();
        match self.random.chance(1, 2) {
            true => {
                db.commit_prepared(&name).unwrap().wait().unwrap();
                self.apply(&branch);
            }
            false => db.abort_prepared(&name).unwrap().wait().unwrap(),
        }
        let again = db.commit_prepared(&name);
        assert!(matches!(again, Err(Error::NoSuchPrepared { .. })), "{}: {name}", self.about);
    }

    fn assert_refused(&self, outcome: Result<(), Error>, what: &str) {
        assert!(matches!(outcome, Err(Error::WouldWait { .. })), "{}: {what}: {outcome:?}", self.about);
    }

    /// Nothing that a prepared transaction has locked can be touched, and nothing else is locked.
    fn probe(&mut self, db: &Database) {
        let tables: BTreeMap<&str, Table> =
            TABLES.into_iter().map(|name| (name, db.table(name).unwrap())).collect();
        for (branch_name, branch) in self.prepared.clone() {
            for (name, id) in branch.writes.keys() {
                let mut tx = db.begin_with(&probing()).unwrap();
                let read = tx.get(&tables[name], *id).map(drop);
                self.assert_refused(read, &format!("{branch_name} has written {name} {id}"));
            }
            for &(name, id) in branch.reads.iter().filter(|at| !branch.writes.contains_key(at)) {
                let row = self.row();
                let mut tx = db.begin_with(&probing()).unwrap();
                let written = match self.model[name].contains_key(&id) {
                    true => tx.delete(&tables[name], id).map(drop),
                    false => tx.insert(&tables[name], &values(id, &row)),
                };
                self.assert_refused(written, &format!("{branch_name} has read {name} {id}"));
            }
            for &(name, lower, upper) in &branch.ranges {
                let Some(id) = (lower..=upper).find(|id| !self.is_known(name, *id)) else { continue };
                let row = self.row();
                let inserted = db.begin_with(&probing()).unwrap().insert(&tables[name], &values(id, &row));
                self.assert_refused(
                    inserted,
                    &format!("{branch_name} has read {name} {lower} to {upper}: {id}"),
                );
            }
            for &(name, part) in &branch.parts {
                let (id, (_, code, text)) = (self.fresh() + 10_000, self.row());
                let inserted = db
                    .begin_with(&probing())
                    .unwrap()
                    .insert(&tables[name], &values(id, &(part, code, text)));
                self.assert_refused(inserted, &format!("{branch_name} has read {name} of part {part}"));
            }
            for &(name, code) in &branch.codes {
                let (id, (part, _, text)) = (self.fresh() + 10_000, self.row());
                let inserted = db
                    .begin_with(&probing())
                    .unwrap()
                    .insert(&tables[name], &values(id, &(part, code, text)));
                self.assert_refused(
                    inserted,
                    &format!("{branch_name} has read that {name} has no code {code}"),
                );
            }
            for &name in &branch.whole {
                let (id, row) = (self.fresh() + 10_000, self.row());
                let inserted = db.begin_with(&probing()).unwrap().insert(&tables[name], &values(id, &row));
                self.assert_refused(inserted, &format!("{branch_name} has read all of {name}"));
            }
            self.probes += 1;
        }
        for (name, rows) in &self.model {
            let id = self.random.below(KEYS) as i32;
            if self.is_locked(name, id) {
                continue;
            }
            let mut tx = db.begin_with(&probing()).unwrap();
            let row = tx.get_for_update(&tables[name], id);
            let row = row.unwrap_or_else(|error| panic!("{}: {name} {id} is free: {error}", self.about));
            assert_eq!(row.is_some(), rows.contains_key(&id), "{}: {name} {id}", self.about);
        }
    }

    /// Whether there is a row of this id, for anyone.
    fn is_known(&self, name: &'static str, id: i32) -> bool {
        self.model[name].contains_key(&id)
            || self.prepared.values().any(|branch| branch.writes.contains_key(&(name, id)))
    }

    fn is_locked(&self, name: &'static str, id: i32) -> bool {
        self.prepared.values().any(|branch| {
            branch.writes.contains_key(&(name, id))
                || branch.reads.contains(&(name, id))
                || branch.whole.contains(name)
                || !branch.parts.is_empty()
                || branch.unread.iter().any(|&(of, lower, upper)| of == name && (lower..=upper).contains(&id))
        })
    }

    fn assert_listed(&self, db: &Database) {
        let expected: Vec<PreparedTransaction> = (self.prepared.iter())
            .map(|(name, branch)| PreparedTransaction { name: name.clone(), note: branch.note.clone() })
            .collect();
        let names =
            |list: &[PreparedTransaction]| list.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        let found = db.prepared();
        assert!(found == expected, "{}: {:?}, expected {:?}", self.about, names(&found), names(&expected));
    }

    fn restart(&mut self, db: Database) -> Database {
        match self.random.below(3) {
            0 => db.clone().close().unwrap(),
            1 => self.disk.kill(),
            _ => {
                // What was answered at level memory would be lost with the machine.
                db.sync().unwrap();
                self.disk.crash();
            }
        }
        drop(db);
        if !self.disk.is_down() {
            self.disk.kill();
        }
        self.disk = self.disk.restart();
        // Which engine it is may differ.
        let engine = options(&mut self.random).engine;
        self.options.engine = engine;
        let db = self.open();
        self.assert_listed(&db);
        self.probe(&db);
        db
    }

    fn run(&mut self) {
        let mut db = self.open();
        for name in TABLES {
            let table = db.transact(|tx| tx.create_table(&definition(name))).unwrap();
            for id in (0..KEYS as i32).step_by(2) {
                let row = self.row();
                db.transact(|tx| tx.insert(&table, &values(id, &row))).unwrap();
                self.model.get_mut(name).unwrap().insert(id, row);
            }
        }
        for _ in 0..30 {
            match self.random.below(16) {
                0..8 => self.transact(&db),
                8..12 => self.decide(&db),
                12 => drop(db.checkpoint().unwrap()),
                13 => self.probe(&db),
                _ => db = self.restart(db),
            }
        }
        self.assert_listed(&db);
        while !self.prepared.is_empty() {
            self.decide(&db);
        }
        assert_same(&contents(&db), &self.model, &self.about);
        assert_eq!(db.prepared(), []);
        db.close().unwrap();
        self.disk.kill();
        let disk: Arc<dyn Disk> = self.disk.restart();
        let report = check(&disk, 64 << 20, 2).unwrap();
        assert!(report.is_sound(), "{}: {report}", self.about);
        let db = Database::open_on(disk, self.options.clone()).unwrap();
        assert_same(&contents(&db), &self.model, &self.about);
    }
}

/// Several prepared transactions beside others, through ends of all kinds.
#[test]
fn prepared_transactions_keep_their_locks_until_they_are_decided() {
    let mut probes = 0;
    let (first, seeds) = for_a_while(|seed| {
        let mut life = Life::new(seed);
        life.run();
        probes += life.probes;
    });
    println!("tally: prepared transactions, {seeds} seeds, {probes} looked at, RIALTO_SEED={first}");
}

fn small() -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

fn two_columns(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let table = TableDef::new("t", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&table)).unwrap();
    db.transact(|tx| (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)])))
        .unwrap();
    table
}

fn numbers(db: &Database) -> Vec<i32> {
    let table = db.table("t").unwrap();
    let mut found = Vec::new();
    db.transact(|tx| {
        found.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            found.push(row.get_i32(1)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    found
}

/// A transaction that adds 1 to two rows.
fn adds(db: &Database, level: Durability, ids: [i32; 2]) -> Result<Transaction<'static>, Error> {
    let table = db.table("t")?;
    let mut tx = db.begin_with(&for_branches(level))?;
    for id in ids {
        assert!(tx.modify(&table, id, |row| row.add(1, 1).map(drop))?);
    }
    Ok(tx)
}

/// How far a life has come before its disk went down.
#[derive(Debug, Default)]
struct Told {
    vote: bool,
    decision: bool,
}

fn vote_and_decide(db: &Database, commits: bool, told: &mut Told) -> Result<(), Error> {
    adds(db, Durability::Disk, [2, 7])?.prepare("it", b"note")?;
    told.vote = true;
    let ticket = if commits { db.commit_prepared("it")? } else { db.abort_prepared("it")? };
    ticket.wait()?;
    told.decision = true;
    Ok(())
}

/// A machine that loses power at any step of a vote and a decision.
#[test]
fn a_vote_and_a_decision_are_there_whichever_step_the_power_is_lost_in() {
    for commits in [true, false] {
        let (mut step, mut kept) = (1, 0);
        loop {
            let disk = FaultyDisk::new(step);
            let db = Database::open_on(disk.clone(), small()).unwrap();
            two_columns(&db);
            // Makes the system table of prepared transactions.
            drop(adds(&db, Durability::Disk, [0, 1]).unwrap());
            db.sync().unwrap();
            let about = format!("commits: {commits}, step {step}");
            disk.crash_at(disk.steps() + step);
            let mut told = Told::default();
            let outcome = vote_and_decide(&db, commits, &mut told);
            let went_down = disk.is_down();
            drop(db);
            if !went_down {
                assert_eq!(outcome, Ok(()), "{about}");
                disk.crash();
            }
            let db = Database::open_on(disk.restart(), small()).unwrap();
            let listed: Vec<String> = db.prepared().into_iter().map(|one| one.name).collect();
            let is_there = listed == ["it"];
            assert!(is_there || listed.is_empty(), "{about}: {listed:?}");
            if told.vote && !told.decision && !is_there && commits {
                // The decision was on disk before it could be told.
                assert_eq!(numbers(&db)[2], 1, "{about}: neither voted nor decided");
            }
            if told.decision {
                assert!(!is_there, "{about}: the decision is lost");
            }
            if is_there {
                kept += 1;
                db.commit_prepared("it").unwrap().wait().unwrap();
            }
            let all = numbers(&db);
            let added = match is_there || told.decision && commits {
                true => 1,
                // Both rows or none.
                false => all[2],
            };
            assert!(added == 0 || commits || is_there, "{about}: an abort has changed something");
            assert_eq!(all, [0, 0, added, 0, 0, 0, 0, added, 0, 0], "{about}");
            db.close().unwrap();
            if !went_down {
                break;
            }
            step += 1;
        }
        assert!(step > 4 && kept > 0, "{step} steps, {kept} times prepared again");
    }
}

/// What its commit needs it has: a log that is full for others takes it.
#[test]
fn a_prepared_transaction_commits_though_the_log_is_full() {
    for commits in [true, false] {
        let options = Options { log_bytes_max: 4 << 20, log_wait_max: Duration::from_millis(1), ..small() };
        let disk = FaultyDisk::new(1);
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let table = TableDef::new("texts", columns).with_primary_key(&["id"]);
        let texts = db.transact(|tx| tx.create_table(&table)).unwrap();
        two_columns(&db);
        let mut tx = adds(&db, Durability::Disk, [2, 7]).unwrap();
        let long = |id: i32| [Value::Int4(id), Value::Text("a".repeat(30_000))];
        (0..10).for_each(|id| tx.insert(&texts, &long(id)).unwrap());
        tx.prepare("it", b"").unwrap();
        let fill = |id: i32| db.transact(|tx| tx.insert(&texts, &long(id)));
        let full = (100..1_000).find_map(|id| fill(id).err());
        assert!(matches!(full, Some(Error::LogFull { .. })), "{full:?}");
        while db.transact(|tx| tx.modify(&db.table("t")?, 0, |row| row.add(1, 0).map(drop))).is_ok() {}
        let decided = if commits { db.commit_prepared("it") } else { db.abort_prepared("it") };
        decided.unwrap().wait().unwrap();
        drop(db);
        disk.crash();
        let options = Options { log_bytes_max: 64 << 20, ..options };
        let db = Database::open_on(disk.restart(), options).unwrap();
        assert_eq!(db.prepared(), []);
        assert_eq!(numbers(&db)[2], i32::from(commits));
        let texts = db.table("texts").unwrap();
        let is_there = db.transact(|tx| tx.get(&texts, 0)).unwrap().is_some();
        assert_eq!(is_there, commits);
        db.close().unwrap();
    }
}

#[test]
fn only_a_decision_ends_a_prepared_transaction() {
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), small()).unwrap();
    let table = two_columns(&db);
    let limits = TxOptions {
        timeout: Some(Duration::from_millis(200)),
        lock_timeout: Some(Duration::from_millis(1)),
        ..for_branches(Durability::Memory)
    };
    let mut tx = db.begin_with(&limits).unwrap();
    let canceller = tx.canceller();
    assert!(tx.modify(&table, 3, |row| row.add(1, 1).map(drop)).unwrap());
    // Rolled back before the vote, and not there after it.
    let savepoint = tx.savepoint();
    tx.insert(&table, &[Value::Int4(77), Value::Int4(1)]).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    tx.prepare("it", b"").unwrap();
    canceller.cancel();
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(db.prepared().len(), 1);
    db.commit_prepared("it").unwrap().wait().unwrap();
    assert_eq!(numbers(&db), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    db.close().unwrap();
}

#[test]
fn what_cannot_be_prepared_is_refused_by_name() {
    let db = Database::open_on(FaultyDisk::new(1), small()).unwrap();
    let table = two_columns(&db);
    let one = [Value::Int4(90), Value::Int4(1)];
    let fails = |tx: Transaction<'static>, name: &str, expected: &str| {
        let told = tx.prepare(name, b"").unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
        assert_eq!(numbers(&db).len(), 10, "{told}: it is aborted");
    };
    let mut plain = db.begin().unwrap();
    plain.insert(&table, &one).unwrap();
    fails(plain, "it", "TxOptions::may_prepare");
    let branch = || db.begin_with(&for_branches(Durability::Disk)).unwrap();
    let mut defines = branch();
    defines.create_index("t", "t_n", &["n"], false).unwrap();
    fails(defines, "it", "changed definitions");
    for bytes in [0, 201] {
        let mut tx = branch();
        tx.insert(&table, &one).unwrap();
        fails(tx, &"x".repeat(bytes), &format!("name of {bytes} bytes, expected 1 to 200"));
    }
    adds(&db, Durability::Disk, [1, 2]).unwrap().prepare(&"x".repeat(200), b"").unwrap();
    let told = adds(&db, Durability::Disk, [3, 4]).unwrap().prepare(&"x".repeat(200), b"").unwrap_err();
    assert!(matches!(told, Error::PreparedExists { .. }), "{told}");
    for decide in [Database::commit_prepared, Database::abort_prepared] {
        assert!(matches!(decide(&db, "other"), Err(Error::NoSuchPrepared { .. })));
        let nested = db.transact(|_| decide(&db, &"x".repeat(200)).map(drop));
        assert!(matches!(nested, Err(Error::Nested)), "{nested:?}");
    }
    // The record is the system's.
    let records = db.table("rialto_prepared").unwrap();
    let key = [Value::Text("y".to_owned()), Value::Int4(0), Value::Bytes(Vec::new())];
    let written = db.transact(|tx| tx.insert(&records, &key));
    assert!(matches!(written, Err(Error::Unsupported { .. })), "{written:?}");
    let dropped = db.transact(|tx| tx.drop_table("rialto_prepared"));
    assert!(matches!(dropped, Err(Error::Unsupported { .. })), "{dropped:?}");
    db.abort_prepared(&"x".repeat(200)).unwrap().wait().unwrap();
    assert_eq!(numbers(&db), [0; 10]);
    for (options, expected) in [
        (Options { logging: Logging::None, ..small() }, "Options::logging none"),
        (
            Options { engine: Engine::central(), lock_grain: LockGrain::Page, ..small() },
            "Options::lock_grain page",
        ),
    ] {
        let db = Database::open_on(FaultyDisk::new(2), options).unwrap();
        let told = db.begin_with(&for_branches(Durability::Disk)).err().expect("it is refused").to_string();
        assert!(told.contains(expected), "{told}");
        db.close().unwrap();
    }
    db.close().unwrap();
}

/// A follower has the prepared transactions of its primary, and takes their locks when it leads.
#[test]
fn a_follower_that_leads_has_what_was_prepared() {
    let (disk, copy) = (MemoryDisk::new(), MemoryDisk::new());
    let db = Database::open_on(disk.clone(), small()).unwrap();
    two_columns(&db);
    adds(&db, Durability::Disk, [1, 2]).unwrap().prepare("before", b"1").unwrap();
    db.close().unwrap();
    for name in disk.list().unwrap() {
        let Ok(file) = disk.open(&name, Open::ReadOnly, Caching::Buffered) else { continue };
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        copy.open(&name, Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
    }
    let db = Database::open_on(disk, small()).unwrap();
    let follower = Follower::open_on(copy, small()).unwrap();
    assert_eq!(follower.database().prepared(), [], "they are the primary's");
    let told = follower.database().commit_prepared("before").err();
    assert!(matches!(told, Some(Error::Following)), "{told:?}");
    adds(&db, Durability::Disk, [3, 4]).unwrap().prepare("after", b"2").unwrap();
    adds(&db, Durability::Disk, [5, 6]).unwrap().prepare("decided", b"3").unwrap();
    db.commit_prepared("decided").unwrap().wait().unwrap();
    let mut cursor = db.log_cursor(Some(follower.point()), u64::MAX).unwrap();
    while let Some(blocks) = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap() {
        follower.append(&blocks).unwrap();
    }
    // A reader is in the way of the locks that leading takes.
    let table = follower.database().table("t").unwrap();
    assert!(follower.wait_redone(follower.received(), Duration::from_secs(60)).unwrap());
    let mut reader = follower.database().begin().unwrap();
    reader.get(&table, 3).unwrap().unwrap();
    let refused = follower.lead(Duration::from_millis(50)).err();
    assert!(matches!(refused, Some(Error::LockTimeout { .. })), "{refused:?}");
    reader.abort().unwrap();
    let led = follower.lead(Duration::from_secs(60)).unwrap();
    let notes: Vec<(String, Vec<u8>)> = led.prepared().into_iter().map(|one| (one.name, one.note)).collect();
    assert_eq!(notes, [("after".to_owned(), b"2".to_vec()), ("before".to_owned(), b"1".to_vec())]);
    for id in [1, 2, 3, 4] {
        let read = led.begin_with(&probing()).unwrap().get(&table, id);
        assert!(matches!(read, Err(Error::WouldWait { .. })), "{id}: {read:?}");
    }
    led.commit_prepared("before").unwrap().wait().unwrap();
    led.abort_prepared("after").unwrap().wait().unwrap();
    assert_eq!(numbers(&led), [0, 1, 1, 0, 0, 1, 1, 0, 0, 0]);
    follower.close().unwrap();
    db.close().unwrap();
}

fn on_executors(executors: usize) -> Options {
    let engine = Engine::DataOriented(Executors::of(executors, 0));
    Options { engine, lock_timeout: Duration::from_millis(100), ..small() }
}

/// Handles of a table that is gone, in a transaction that goes on after the error.
#[test]
fn a_table_that_was_not_there_any_more_is_not_locked_again() {
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), small()).unwrap();
    let table = two_columns(&db);
    let columns = vec![Column::new("id", ColumnType::Int4)];
    let gone = db.transact(|tx| tx.create_table(&TableDef::new("gone", columns.clone()))).unwrap();
    db.transact(|tx| tx.drop_table("gone")).unwrap();
    let mut tx = db.begin_with(&for_branches(Durability::Disk)).unwrap();
    let counted = tx.count(&gone);
    assert!(matches!(counted, Err(Error::NoSuchTable { .. })), "{counted:?}");
    // That there is no table of a name is locked, too.
    assert!(tx.table("gone").is_err());
    tx.insert(&table, &[Value::Int4(50), Value::Int4(5)]).unwrap();
    tx.prepare("it", b"").unwrap();
    for _ in 0..2 {
        db.clone().close().unwrap();
    }
    disk.kill();
    let db = Database::open_on(disk.restart(), small()).unwrap();
    let made = db.begin_with(&probing()).unwrap().create_table(&TableDef::new("gone", columns));
    assert!(matches!(made, Err(Error::WouldWait { .. })), "{made:?}");
    db.commit_prepared("it").unwrap().wait().unwrap();
    assert_eq!(numbers(&db).len(), 11);
    db.close().unwrap();
}

/// Reads of an index's entries, under locks at executors, beside another prepared transaction in the same rows.
#[test]
fn what_was_prepared_on_executors_is_prepared_again_on_any_engine() {
    for engine in [on_executors(1).engine, Engine::thin(), Engine::central()] {
        let disk = FaultyDisk::new(1);
        let db = Database::open_on(disk.clone(), on_executors(1)).unwrap();
        let table = db.transact(|tx| tx.create_table(&definition("in_memory"))).unwrap();
        let row = |id: i32| values(id, &(1, id, "t".to_owned()));
        db.transact(|tx| (0..4).try_for_each(|id| tx.insert(&table, &row(id)))).unwrap();
        let mut reader = db.begin_with(&for_branches(Durability::Disk)).unwrap();
        let scan = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(1)]);
        let mut entries = 0;
        reader
            .entries(&table, &scan, |_, _| {
                entries += 1;
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert_eq!(entries, 4);
        reader.prepare("reader", b"").unwrap();
        let mut writer = db.begin_with(&for_branches(Durability::Disk)).unwrap();
        let written = writer.update(&table, 2, &[(3, Value::Text("u".to_owned()))]);
        if written.is_ok() {
            writer.prepare("writer", b"").unwrap();
        }
        drop(db);
        disk.kill();
        let db = Database::open_on(disk.restart(), Options { engine, ..on_executors(1) }).unwrap();
        let mut changes = db.begin_with(&probing()).unwrap();
        let changed = changes.update(&db.table("in_memory").unwrap(), 1, &[(1, Value::Int4(3))]);
        assert!(matches!(changed, Err(Error::WouldWait { .. })), "{changed:?}");
        drop(changes);
        for one in db.prepared() {
            db.commit_prepared(&one.name).unwrap().wait().unwrap();
        }
        db.close().unwrap();
    }
}

/// The next opening may have another level of its own.
#[test]
fn a_decision_is_as_durable_as_its_transaction_asked() {
    let disk = FaultyDisk::new(1);
    let options =
        Options { durability: Durability::Memory, memory_flush_interval: Duration::from_secs(60), ..small() };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    two_columns(&db);
    adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("it", b"").unwrap();
    drop(db);
    disk.kill();
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    db.commit_prepared("it").unwrap().wait().unwrap();
    disk.crash();
    drop(db);
    let db = Database::open_on(disk.restart(), options).unwrap();
    assert_eq!(db.prepared(), []);
    assert_eq!(numbers(&db)[2], 1);
    db.close().unwrap();
}

/// A handle that is still there when the database closes reads nothing that an undecided transaction has changed.
#[test]
fn a_close_leaves_what_is_prepared_locked() {
    for options in [small(), Options { engine: Engine::central(), ..small() }, on_executors(1)] {
        let db = Database::open_on(FaultyDisk::new(1), options).unwrap();
        let table = two_columns(&db);
        adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("it", b"").unwrap();
        let mut reader = db.begin_with(&probing()).unwrap();
        db.clone().close().unwrap();
        let read = reader.get(&table, 2);
        assert!(read.is_err(), "{read:?}");
        for told in [db.commit_prepared("it").err(), db.abort_prepared("other").err()] {
            assert!(matches!(told, Some(Error::Closed)), "{told:?}");
        }
    }
}
