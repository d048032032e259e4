//! One attempt by itself: its final writes, what it saw of others, and whether it saw its own writes.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::Keys;
use super::observed::{Attempt, Event, Key, Row, Values, Version};
use super::scans::Predicate;

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
    /// In order; a key that was written several times is in it several times.
    pub written: Vec<Written>,
    /// What was written and rolled back.
    pub undone: Vec<Written>,
    pub looks: Vec<Look>,
    pub wrong: Vec<String>,
}

/// The state of the keys that an attempt has written.
type Own = BTreeMap<Key, (Vec<Version>, Option<Values>)>;

struct Walker<'a> {
    walk: Walk,
    own: Own,
    /// The earlier states of `own`, and the numbers of writes then.
    savepoints: Vec<(Own, usize)>,
    attempt: &'a Attempt,
    keys: &'a Keys,
}

impl Walker<'_> {
    fn wrong(&mut self, what: String) {
        self.walk.wrong.push(format!("attempt {}: {what}", self.attempt.number));
    }

    fn hit(&mut self, key: Key, row: &Row) {
        match self.own.get(&key) {
            None if self.keys.tells(key, row) => self.walk.looks.push(Look::Row { key, row: row.clone() }),
            None => {}
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
        let mut given = BTreeSet::new();
        for (id, row) in seen {
            if !given.insert(*id) || !predicate.matches(*id, Some(row.values)) {
                self.wrong(format!(
                    "{predicate:?} gave key {id}, {row:?}, which does not match or came before"
                ));
            }
            self.hit(Key { table, id: *id }, row);
        }
        let keys = self.keys;
        for key in keys.telling(table, predicate).filter(|key| !given.contains(&key.id)) {
            self.miss(key, predicate);
        }
    }

    fn write(&mut self, key: Key, versions: &[Version], values: Option<Values>) {
        self.own.insert(key, (versions.to_vec(), values));
        self.walk.written.push(Written { key, versions: versions.to_vec(), values });
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Read { key, seen: Some(row) } => self.hit(*key, row),
            Event::Read { key, seen: None } => self.miss(*key, Predicate::keys(key.id, key.id)),
            Event::Grave { key, versions } => match self.own.get(key) {
                None => self.walk.looks.push(Look::Grave { key: *key, versions: versions.clone() }),
                Some((own, None)) if own != versions => {
                    self.wrong(format!("saw {versions:?} in the grave of {key:?} after its own {own:?}"));
                }
                Some(_) => {}
            },
            Event::Scan { table, predicate, seen } => self.scan(*table, *predicate, seen),
            Event::Claimed { key, tag } => {
                let (keys, predicate) = (self.keys, Predicate::tag(*tag));
                for other in keys.telling(key.table, predicate).filter(|other| other != key) {
                    self.miss(other, predicate);
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

pub fn walk(attempt: &Attempt, keys: &Keys) -> Walk {
    let (walk, own, savepoints) = (Walk::default(), Own::new(), Vec::new());
    let mut walker = Walker { walk, own, savepoints, attempt, keys };
    attempt.events.iter().for_each(|event| walker.take(event));
    walker.walk
}
