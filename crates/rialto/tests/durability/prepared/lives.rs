//! Several prepared transactions beside others, through ends of all kinds.

use std::collections::{BTreeMap, BTreeSet};

use rialto::io::Random;
use rialto::recovery::check::check;
use rialto::{Direction, KeyBound, PreparedTransaction};

use super::*;
use crate::common::disk_tables::{Model, assert_same, contents, options};
use crate::common::seeds::for_a_while;

const TABLES: [&str; 2] = ["on_disk", "in_memory"];
const KEYS: u64 = 80;

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

    /// Whether there is a row of this id, or a prepared transaction writes one.
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
