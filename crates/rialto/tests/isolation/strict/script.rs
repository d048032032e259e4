//! Random transactions, written once for all that can run them: a [`Session`] is the kernel's transaction, or a client of the
//! server.

use rialto::io::Random;

use super::observed::{
    Event, KEYS, Key, PARTS, Predicate, Row, TABLES, TAGS, VERSIONS_EACH, Values, Version, keys_of,
};

/// What became of a row that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Done,
    KeyTaken,
    TagTaken,
    /// There is no such row.
    Missing,
}

/// A transaction that a script can run in.
pub trait Session {
    type Error;

    fn get(&mut self, key: Key, to_change: bool) -> Result<Option<Row>, Self::Error>;
    /// The list in a grave.
    fn grave(&mut self, key: Key) -> Result<Vec<Version>, Self::Error>;
    /// The lists in the graves of these identifiers.
    fn graves(&mut self, table: usize, low: i32, high: i32) -> Result<Vec<(i32, Vec<Version>)>, Self::Error>;
    fn scan(
        &mut self,
        table: usize,
        predicate: Predicate,
        backward: bool,
        to_change: bool,
    ) -> Result<Vec<(i32, Row)>, Self::Error>;
    fn insert(&mut self, key: Key, row: &Row) -> Result<Put, Self::Error>;
    fn update(&mut self, key: Key, row: &Row) -> Result<Put, Self::Error>;
    /// Deletes a row; false: there is none.
    fn delete(&mut self, key: Key) -> Result<bool, Self::Error>;
    /// Writes the list to the grave.
    fn bury(&mut self, key: Key, versions: &[Version]) -> Result<(), Self::Error>;
    fn truncate(&mut self, table: usize) -> Result<(), Self::Error>;
    fn savepoint(&mut self) -> Result<(), Self::Error>;
    /// To the newest savepoint, which is gone then.
    fn roll_back(&mut self) -> Result<(), Self::Error>;
    /// The newest savepoint goes, what came behind it stays.
    fn release(&mut self) -> Result<(), Self::Error>;
    /// Whether the transaction may go on after this error when it has rolled back to a savepoint.
    fn may_go_on(&self, error: &Self::Error) -> bool;
}

/// What a script wants of its transaction in the end.
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
    /// Steps may fail in ways that a savepoint makes good.
    cautious: bool,
}

impl<'a, S: Session> Script<'a, S> {
    pub fn new(
        session: &'a mut S,
        random: Random,
        attempt: u64,
        events: &'a mut Vec<Event>,
        cautious: bool,
    ) -> Script<'a, S> {
        let next = attempt * VERSIONS_EACH;
        Script { session, random, next, end: next + VERSIONS_EACH, events, cautious }
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
        let table = self.random.below(TABLES as u64) as usize;
        Key { table, id: self.random.below(KEYS as u64) as i32 }
    }

    fn values(&mut self) -> Values {
        let part = self.random.below(PARTS as u64) as i32;
        let tag = self.random.chance(1, 2).then(|| self.random.below(TAGS as u64) as i32);
        Values { part, tag }
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
        let table = self.random.below(TABLES as u64) as usize;
        let backward = self.random.chance(1, 2);
        let to_change = may_write && self.random.chance(1, 8);
        let (part, tag) = (self.random.below(PARTS as u64) as i32, self.random.below(TAGS as u64) as i32);
        match self.random.below(4) {
            0 => self.scan_by(table, Predicate::Part(part), backward, to_change),
            1 => self.scan_by(table, Predicate::Tag(tag), backward, to_change),
            _ => {
                let low = self.random.below(KEYS as u64) as i32;
                let high = (low + self.random.below(6) as i32).min(KEYS - 1);
                let graves_first = self.random.chance(1, 2);
                if graves_first {
                    self.scan_graves(table, low, high)?;
                }
                self.scan_by(table, Predicate::Keys(low, high), backward, to_change)?;
                if !graves_first && self.random.chance(1, 2) {
                    self.scan_graves(table, low, high)?;
                }
                Ok(())
            }
        }
    }

    fn scan_by(
        &mut self,
        table: usize,
        predicate: Predicate,
        backward: bool,
        to_change: bool,
    ) -> Result<(), S::Error> {
        let seen = self.session.scan(table, predicate, backward, to_change)?;
        self.events.push(Event::Scan { table, predicate, seen });
        Ok(())
    }

    fn scan_graves(&mut self, table: usize, low: i32, high: i32) -> Result<(), S::Error> {
        for (id, versions) in self.session.graves(table, low, high)? {
            self.events.push(Event::Grave { key: Key { table, id }, versions });
        }
        Ok(())
    }

    /// Inserts, changes or removes a row.
    fn change(&mut self) -> Result<(), S::Error> {
        let key = self.key();
        if self.random.chance(1, 3) {
            return self.insert(key);
        }
        match self.read(key, true)? {
            Some(row) if self.random.chance(1, 3) => self.remove(key, &row.versions),
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

    /// A row that has come to its tag.
    fn put(&mut self, key: Key, row: Row) {
        if let Some(tag) = row.values.tag.filter(|_| key.table == 0) {
            self.events.push(Event::Claimed { key, tag });
        }
        self.events.push(Event::Put { key, row });
    }

    /// Who has the tag that the unique index did not let this key have.
    fn find_taken(&mut self, key: Key, tag: Option<i32>) -> Result<(), S::Error> {
        let predicate = Predicate::Tag(tag.expect("null is in nobody's way"));
        let seen = self.session.scan(key.table, predicate, false, false)?;
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

    /// Removes all rows of a table at once, and makes some anew.
    pub fn truncate(&mut self) -> Result<Verdict, S::Error> {
        let table = self.random.below(TABLES as u64) as usize;
        let predicate = Predicate::Keys(0, KEYS - 1);
        let seen = self.session.scan(table, predicate, false, true)?;
        self.events.push(Event::Scan { table, predicate, seen: seen.clone() });
        self.session.truncate(table)?;
        for (id, row) in seen {
            let (key, versions) = (Key { table, id }, self.with_version(&row.versions));
            self.session.bury(key, &versions)?;
            self.events.push(Event::Removed { key, versions });
        }
        for key in keys_of(table) {
            if self.random.chance(1, 3) {
                self.insert(key)?;
            }
        }
        Ok(self.verdict())
    }

    /// Gives all keys of even numbers a row.
    pub fn fill(&mut self) -> Result<Verdict, S::Error> {
        for key in (0..TABLES).flat_map(keys_of).filter(|key| key.id % 2 == 0) {
            self.insert(key)?;
        }
        Ok(Verdict::Commit)
    }

    /// Looks at everything.
    pub fn look_at_all(&mut self) -> Result<Verdict, S::Error> {
        for table in 0..TABLES {
            self.scan_by(table, Predicate::Keys(0, KEYS - 1), false, false)?;
            self.scan_graves(table, 0, KEYS - 1)?;
            for part in 0..PARTS {
                self.scan_by(table, Predicate::Part(part), true, false)?;
            }
            for tag in 0..TAGS {
                self.scan_by(table, Predicate::Tag(tag), false, false)?;
            }
        }
        Ok(Verdict::Commit)
    }

    /// One scan and nothing else: a whole transaction where no block was begun.
    pub fn glance(&mut self) -> Result<Verdict, S::Error> {
        let table = self.random.below(TABLES as u64) as usize;
        let part = self.random.below(PARTS as u64) as i32;
        let predicate =
            if self.random.chance(1, 3) { Predicate::Part(part) } else { Predicate::Keys(0, KEYS - 1) };
        self.scan_by(table, predicate, false, false)?;
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

    /// A step that a savepoint makes good if it fails as one may.
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

    /// Some steps behind a savepoint, which are undone half of the time.
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
