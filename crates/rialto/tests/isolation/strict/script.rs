//! Random transactions, written once for every kind of [`Session`]: the kernel's transaction, or a client of the
//! server.

use std::time::Duration;

use rialto::io::Random;

use super::observed::{Event, KEYS, Key, PARTS, Row, TABLES, TAGS, VERSIONS_EACH, Values, Version};
use super::scans::{By, Predicate, RangeScan};
use super::space::Space;

/// The outcome of the write of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Done,
    KeyTaken,
    TagTaken,
    /// There is no such row.
    Missing,
}

/// A transaction in which a script can run.
pub trait Session {
    type Error;

    fn get(&mut self, key: Key, to_change: bool) -> Result<Option<Row>, Self::Error>;
    /// The list in a grave.
    fn grave(&mut self, key: Key) -> Result<Vec<Version>, Self::Error>;
    /// The lists in the graves of these identifiers.
    fn graves(&mut self, table: usize, low: i32, high: i32) -> Result<Vec<(i32, Vec<Version>)>, Self::Error>;
    /// The rows that a scan gives, in its order where it has a limit.
    fn scan(&mut self, scan: &RangeScan) -> Result<Vec<(i32, Row)>, Self::Error>;
    fn insert(&mut self, key: Key, row: &Row) -> Result<Put, Self::Error>;
    fn update(&mut self, key: Key, row: &Row) -> Result<Put, Self::Error>;
    /// Turns the row of a key into one of another key.
    fn rename(&mut self, from: Key, to: Key, row: &Row) -> Result<Put, Self::Error>;
    /// Deletes a row; false: there is none.
    fn delete(&mut self, key: Key) -> Result<bool, Self::Error>;
    /// Writes the list to the grave.
    fn bury(&mut self, key: Key, versions: &[Version]) -> Result<(), Self::Error>;
    fn truncate(&mut self, table: usize) -> Result<(), Self::Error>;
    fn savepoint(&mut self) -> Result<(), Self::Error>;
    /// Rolls back to the newest savepoint, which is then gone.
    fn roll_back(&mut self) -> Result<(), Self::Error>;
    /// Releases the newest savepoint; the writes since it stay.
    fn release(&mut self) -> Result<(), Self::Error>;
    /// Whether the transaction may go on after this error when it has rolled back to a savepoint.
    fn may_go_on(&self, error: &Self::Error) -> bool;
}

/// How a script ends its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Commit,
    Abort,
}

/// One attempt at a random transaction.
pub struct Script<'a, S> {
    session: &'a mut S,
    random: Random,
    next: Version,
    end: Version,
    events: &'a mut Vec<Event>,
    /// Steps may fail in ways that a savepoint repairs.
    cautious: bool,
    space: Space,
}

impl<'a, S: Session> Script<'a, S> {
    pub fn new(
        session: &'a mut S,
        random: Random,
        attempt: u64,
        events: &'a mut Vec<Event>,
        cautious: bool,
        space: Space,
    ) -> Script<'a, S> {
        let next = attempt * VERSIONS_EACH;
        Script { session, random, next, end: next + VERSIONS_EACH, events, cautious, space }
    }

    fn version(&mut self) -> Version {
        assert!(self.next < self.end, "an attempt has numbers for its writes");
        self.next += 1;
        self.next - 1
    }

    fn with_version(&mut self, versions: &[Version]) -> Vec<Version> {
        let mut versions = versions.to_vec();
        versions.push(self.version());
        versions
    }

    fn key(&mut self) -> Key {
        self.space.key(&mut self.random)
    }

    fn values(&mut self) -> Values {
        self.space.values(&mut self.random, (1, 2))
    }

    fn read(&mut self, key: Key, to_change: bool) -> Result<Option<Row>, S::Error> {
        let seen = self.session.get(key, to_change)?;
        self.events.push(Event::Read { key, seen: seen.clone() });
        Ok(seen)
    }

    fn read_grave(&mut self, key: Key) -> Result<Vec<Version>, S::Error> {
        let versions = self.session.grave(key)?;
        self.events.push(Event::Grave { key, versions: versions.clone() });
        Ok(versions)
    }

    fn look(&mut self) -> Result<(), S::Error> {
        let key = self.key();
        if self.read(key, false)?.is_none() && self.random.chance(3, 4) {
            self.read_grave(key)?;
        }
        Ok(())
    }

    fn scan(&mut self, may_write: bool) -> Result<(), S::Error> {
        let mut scan = RangeScan::any(self.space, &mut self.random);
        scan.to_change = may_write && self.random.chance(1, 8);
        if scan.by != By::Id {
            return self.scan_by(scan);
        }
        let low = self.space.id(&mut self.random);
        let high = low + self.random.below(6) as i32;
        let graves_first = self.random.chance(1, 2);
        if graves_first {
            self.scan_graves(scan.table, low, high)?;
        }
        self.scan_by(scan)?;
        if !graves_first && self.random.chance(1, 2) {
            self.scan_graves(scan.table, low, high)?;
        }
        Ok(())
    }

    fn scan_by(&mut self, scan: RangeScan) -> Result<(), S::Error> {
        let seen = self.session.scan(&scan)?;
        self.events.extend(scan.refuses(&seen).map(Event::Wrong));
        self.events.push(Event::Scan { table: scan.table, predicate: scan.promises(&seen), seen });
        Ok(())
    }

    fn scan_graves(&mut self, table: usize, low: i32, high: i32) -> Result<(), S::Error> {
        for (id, versions) in self.session.graves(table, low, high)? {
            self.events.push(Event::Grave { key: Key { table, id }, versions });
        }
        Ok(())
    }

    /// Inserts, changes, moves or removes rows.
    fn change(&mut self) -> Result<(), S::Error> {
        let key = self.key();
        if self.space.is_wide() && self.random.chance(1, 24) {
            return self.change_run(key);
        }
        self.change_key(key)
    }

    /// Neighbours, so many that a leaf may have to split.
    fn change_run(&mut self, first: Key) -> Result<(), S::Error> {
        let end = (first.id + 8 + self.random.below(24) as i32).min(self.space.end());
        for id in first.id..end {
            self.change_key(Key { id, ..first })?;
        }
        Ok(())
    }

    fn change_key(&mut self, key: Key) -> Result<(), S::Error> {
        if self.random.chance(1, 3) {
            return self.insert(key);
        }
        match self.read(key, true)? {
            Some(row) if self.random.chance(1, 3) => self.remove(key, &row.versions),
            Some(row) if self.random.chance(1, 4) => self.rename(key, &row),
            Some(row) => self.update(key, &row),
            None if self.random.chance(2, 3) => self.insert(key),
            None => Ok(()),
        }
    }

    fn insert(&mut self, key: Key) -> Result<(), S::Error> {
        let before = self.read_grave(key)?;
        let row = Row { values: self.values(), versions: self.with_version(&before) };
        match self.session.insert(key, &row)? {
            Put::Done => {
                self.events.push(Event::Read { key, seen: None });
                self.put(key, row);
                Ok(())
            }
            Put::KeyTaken => {
                if self.read(key, false)?.is_none() {
                    self.events.push(Event::Wrong(format!("{key:?} is taken, and is not there")));
                }
                Ok(())
            }
            Put::TagTaken => self.find_taken(key, row.values.tag),
            Put::Missing => unreachable!("an insert needs no row"),
        }
    }

    fn update(&mut self, key: Key, row: &Row) -> Result<(), S::Error> {
        let mut values = row.values;
        if self.random.chance(1, 2) {
            values = self.values();
        }
        let claims = values.tag != row.values.tag;
        let new = Row { values, versions: self.with_version(&row.versions) };
        match self.session.update(key, &new)? {
            Put::Done if claims => self.put(key, new),
            Put::Done => self.events.push(Event::Put { key, row: new }),
            Put::TagTaken => return self.find_taken(key, values.tag),
            other => self.events.push(Event::Wrong(format!("{key:?}, which is locked: {other:?}"))),
        }
        Ok(())
    }

    /// Gives a row another identifier, and nothing else.
    fn rename(&mut self, key: Key, row: &Row) -> Result<(), S::Error> {
        let to = Key { id: self.space.id(&mut self.random), ..key };
        if to == key {
            return self.update(key, row);
        }
        let removed = self.with_version(&row.versions);
        let before = self.read_grave(to)?;
        let new = Row { values: row.values, versions: self.with_version(&before) };
        match self.session.rename(key, to, &new)? {
            Put::Done => {
                self.session.bury(key, &removed)?;
                self.events.push(Event::Removed { key, versions: removed });
                self.events.push(Event::Read { key: to, seen: None });
                self.put(to, new);
            }
            Put::KeyTaken => {
                if self.read(to, false)?.is_none() {
                    self.events.push(Event::Wrong(format!("{to:?} is taken, and is not there")));
                }
            }
            other => self.events.push(Event::Wrong(format!("{key:?}, which is to be {to:?}: {other:?}"))),
        }
        Ok(())
    }

    /// A row that has got its tag.
    fn put(&mut self, key: Key, row: Row) {
        if let Some(tag) = row.values.tag.filter(|_| key.table == 0) {
            self.events.push(Event::Claimed { key, tag });
        }
        self.events.push(Event::Put { key, row });
    }

    /// Finds the key that has the tag which the unique index refused to this key.
    fn find_taken(&mut self, key: Key, tag: Option<i32>) -> Result<(), S::Error> {
        let tag = tag.expect("null conflicts with no key");
        let (scan, predicate) = (RangeScan::of(key.table, By::Tag, tag), Predicate::tag(tag));
        let seen = self.session.scan(&scan)?;
        if !seen.iter().any(|(id, _)| *id != key.id) {
            self.events
                .push(Event::Wrong(format!("{predicate:?} is taken for {key:?}, but only {seen:?} has it")));
        }
        self.events.push(Event::Scan { table: key.table, predicate, seen });
        Ok(())
    }

    fn remove(&mut self, key: Key, before: &[Version]) -> Result<(), S::Error> {
        let versions = self.with_version(before);
        if !self.session.delete(key)? {
            self.events.push(Event::Wrong(format!("{key:?}, which is locked, is not there to be deleted")));
        }
        self.session.bury(key, &versions)?;
        self.events.push(Event::Removed { key, versions });
        Ok(())
    }

    /// Removes all rows of a table at once, and inserts some again.
    pub fn truncate(&mut self) -> Result<Verdict, S::Error> {
        let table = self.random.below(TABLES as u64) as usize;
        let scan = RangeScan { to_change: true, ..RangeScan::all(table, By::Id) };
        let seen = self.session.scan(&scan)?;
        self.events.push(Event::Scan { table, predicate: scan.promises(&seen), seen: seen.clone() });
        self.session.truncate(table)?;
        for (id, row) in seen {
            let (key, versions) = (Key { table, id }, self.with_version(&row.versions));
            self.session.bury(key, &versions)?;
            self.events.push(Event::Removed { key, versions });
        }
        for id in 0..self.space.end() {
            if self.random.chance(1, 3) {
                self.insert(Key { table, id })?;
            }
        }
        Ok(self.verdict())
    }

    /// Reads everything.
    pub fn look_at_all(&mut self) -> Result<Verdict, S::Error> {
        for table in 0..TABLES {
            self.scan_by(RangeScan::all(table, By::Id))?;
            self.scan_graves(table, 0, self.space.end() - 1)?;
            for (by, hot) in [(By::Part, PARTS), (By::Tag, TAGS)] {
                self.scan_by(RangeScan::all(table, by))?;
                for nth in 0..hot {
                    self.scan_by(RangeScan::of(table, by, self.space.hot(nth, hot)))?;
                }
            }
        }
        Ok(Verdict::Commit)
    }

    /// One scan and nothing else: a whole transaction if no block was begun.
    pub fn glance(&mut self) -> Result<Verdict, S::Error> {
        let table = self.random.below(TABLES as u64) as usize;
        let scan = match self.random.below(3) {
            0 => RangeScan::of(table, By::Part, self.space.any_hot(PARTS, &mut self.random)),
            1 => RangeScan::any(self.space, &mut self.random),
            _ => RangeScan::between(table, By::Id, 0, self.space.hot(KEYS / 2, KEYS)),
        };
        self.scan_by(scan)?;
        Ok(Verdict::Commit)
    }

    /// The same scan of a range twice, with time between for other transactions.
    pub fn look_twice(&mut self) -> Result<Verdict, S::Error> {
        let mut scan = RangeScan::any(self.space, &mut self.random);
        while scan.value().is_some() {
            scan = RangeScan::any(self.space, &mut self.random);
        }
        scan.limit = None;
        self.scan_by(scan)?;
        let longest = 40 << self.random.below(6);
        std::thread::sleep(Duration::from_micros(self.random.below(longest)));
        self.scan_by(scan)?;
        Ok(Verdict::Commit)
    }

    fn step(&mut self, reads: bool) -> Result<(), S::Error> {
        match self.random.below(7) {
            0..2 => self.look(),
            2..4 => self.scan(!reads),
            _ if reads => self.look(),
            _ => self.change(),
        }
    }

    /// A step that a savepoint repairs if it fails in a permitted way.
    fn careful_step(&mut self) -> Result<(), S::Error> {
        self.session.savepoint()?;
        self.events.push(Event::Savepoint);
        match self.step(false) {
            Ok(()) => {
                self.session.release()?;
                self.events.push(Event::Released);
                Ok(())
            }
            Err(error) if self.session.may_go_on(&error) => {
                self.session.roll_back()?;
                self.events.push(Event::RolledBack);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Some steps behind a savepoint, which are rolled back half of the time.
    fn episode(&mut self) -> Result<(), S::Error> {
        self.session.savepoint()?;
        self.events.push(Event::Savepoint);
        for _ in 0..1 + self.random.below(2) {
            self.change()?;
        }
        if self.random.chance(1, 2) {
            self.session.roll_back()?;
            self.events.push(Event::RolledBack);
        } else {
            self.session.release()?;
            self.events.push(Event::Released);
        }
        Ok(())
    }

    fn verdict(&mut self) -> Verdict {
        if self.random.chance(1, 12) { Verdict::Abort } else { Verdict::Commit }
    }

    /// A random transaction.
    pub fn run(&mut self, reads: bool) -> Result<Verdict, S::Error> {
        for _ in 0..2 + self.random.below(4) {
            match self.random.below(6) {
                0 if !reads => self.episode()?,
                _ if self.cautious && !reads => self.careful_step()?,
                _ => self.step(reads)?,
            }
            if self.random.chance(1, 4) {
                std::thread::yield_now();
            }
        }
        Ok(self.verdict())
    }
}
