//! One attempt by itself: what it wrote in the end, what it saw of others, and whether it saw its own writes.

use std::collections::BTreeMap;

use super::observed::{Attempt, Event, Key, Predicate, Row, Values, Version, keys_of};

/// What an attempt left of a key, with all versions of the key up to its own.
#[derive(Debug, Clone)]
pub struct Written {
    pub key: Key,
    pub versions: Vec<Version>,
    /// None: removed.
    pub values: Option<Values>,
}

/// What an attempt saw of a key that it had not written.
#[derive(Debug, Clone)]
pub enum Look {
    Row {
        key: Key,
        row: Row,
    },
    Grave {
        key: Key,
        versions: Vec<Version>,
    },
    /// No row that matches.
    Missed {
        key: Key,
        predicate: Predicate,
    },
}

#[derive(Debug, Default)]
pub struct Walk {
    /// In order; a key that was written several times is there several times.
    pub written: Vec<Written>,
    /// What was written and undone.
    pub undone: Vec<Written>,
    pub looks: Vec<Look>,
    pub wrong: Vec<String>,
}

/// The state of the keys that an attempt has written.
type Own = BTreeMap<Key, (Vec<Version>, Option<Values>)>;

struct Walker<'a> {
    walk: Walk,
    own: Own,
    /// What `own` was, and how many writes there were.
    savepoints: Vec<(Own, usize)>,
    attempt: &'a Attempt,
}

impl Walker<'_> {
    fn wrong(&mut self, what: String) {
        self.walk.wrong.push(format!("attempt {}: {what}", self.attempt.number));
    }

    fn hit(&mut self, key: Key, row: &Row) {
        match self.own.get(&key) {
            None => self.walk.looks.push(Look::Row { key, row: row.clone() }),
            Some((versions, Some(values))) if *versions == row.versions && *values == row.values => {}
            Some(own) => {
                let what = format!("saw {row:?} of {key:?} after its own {own:?}");
                self.wrong(what);
            }
        }
    }

    fn miss(&mut self, key: Key, predicate: Predicate) {
        match self.own.get(&key) {
            None => self.walk.looks.push(Look::Missed { key, predicate }),
            Some((_, values)) if !predicate.matches(key.id, *values) => {}
            Some(own) => {
                let what = format!("{predicate:?} did not find {key:?} after its own {own:?}");
                self.wrong(what);
            }
        }
    }

    fn scan(&mut self, table: usize, predicate: Predicate, seen: &[(i32, Row)]) {
        for (at, (id, row)) in seen.iter().enumerate() {
            if !predicate.matches(*id, Some(row.values)) || seen[..at].iter().any(|(other, _)| other == id) {
                self.wrong(format!(
                    "{predicate:?} gave key {id}, {row:?}, which does not match or came before"
                ));
            }
            self.hit(Key { table, id: *id }, row);
        }
        for key in keys_of(table) {
            if predicate.covers(key.id) && !seen.iter().any(|(id, _)| *id == key.id) {
                self.miss(key, predicate);
            }
        }
    }

    fn write(&mut self, key: Key, versions: &[Version], values: Option<Values>) {
        self.own.insert(key, (versions.to_vec(), values));
        self.walk.written.push(Written { key, versions: versions.to_vec(), values });
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Read { key, seen: Some(row) } => self.hit(*key, row),
            Event::Read { key, seen: None } => self.miss(*key, Predicate::Keys(key.id, key.id)),
            Event::Grave { key, versions } => match self.own.get(key) {
                None => self.walk.looks.push(Look::Grave { key: *key, versions: versions.clone() }),
                Some((own, None)) if own != versions => {
                    self.wrong(format!("saw {versions:?} in the grave of {key:?} after its own {own:?}"));
                }
                Some(_) => {}
            },
            Event::Scan { table, predicate, seen } => self.scan(*table, *predicate, seen),
            Event::Claimed { key, tag } => {
                for other in keys_of(key.table).filter(|other| other != key) {
                    self.miss(other, Predicate::Tag(*tag));
                }
            }
            Event::Put { key, row } => self.write(*key, &row.versions, Some(row.values)),
            Event::Removed { key, versions } => self.write(*key, versions, None),
            Event::Savepoint => self.savepoints.push((self.own.clone(), self.walk.written.len())),
            Event::RolledBack => {
                let (own, written) = self.savepoints.pop().expect("a savepoint to roll back to");
                self.own = own;
                self.walk.undone.extend(self.walk.written.drain(written..));
            }
            Event::Released => drop(self.savepoints.pop().expect("a savepoint to release")),
            Event::Wrong(what) => self.wrong(what.clone()),
        }
    }
}

pub fn walk(attempt: &Attempt) -> Walk {
    let mut walker = Walker { walk: Walk::default(), own: BTreeMap::new(), savepoints: Vec::new(), attempt };
    attempt.events.iter().for_each(|event| walker.take(event));
    walker.walk
}
