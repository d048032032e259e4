//! The keys of lives: their states at the beginning, and which of them any attempt has written.

use std::collections::BTreeMap;

use super::observed::{Event, Found, Key, Life, Row};
use super::scans::{By, Predicate};

#[derive(Debug, Default)]
struct Known {
    first: Found,
    is_written: bool,
}

#[derive(Debug, Default)]
pub struct Keys(BTreeMap<Key, Known>);

impl Keys {
    /// The keys of lives that follow one another.
    pub fn of(lives: &[Life]) -> Keys {
        let mut keys = Keys::default();
        for (key, found) in lives.iter().flat_map(|life| &life.first) {
            keys.0.entry(*key).or_insert_with(|| Known { first: found.clone(), is_written: false });
        }
        lives.iter().flat_map(|life| life.last.iter().flatten()).for_each(|(key, _)| {
            keys.see(*key);
        });
        let attempts = lives.iter().flat_map(|life| &life.attempts);
        for event in attempts.flat_map(|attempt| &attempt.events) {
            match event {
                Event::Read { key, .. } | Event::Grave { key, .. } => {
                    keys.see(*key);
                }
                Event::Scan { table, seen, .. } => {
                    for (id, _) in seen {
                        keys.see(Key { table: *table, id: *id });
                    }
                }
                Event::Put { key, .. } | Event::Removed { key, .. } => keys.see(*key).is_written = true,
                _ => {}
            }
        }
        keys
    }

    fn see(&mut self, key: Key) -> &mut Known {
        self.0.entry(key).or_default()
    }

    pub fn all(&self) -> impl Iterator<Item = Key> {
        self.0.keys().copied()
    }

    pub fn is_written(&self, key: Key) -> bool {
        self.0.get(&key).is_some_and(|known| known.is_written)
    }

    /// Whether this row of the key is evidence: if no attempt has written the key, all see it as it was.
    pub fn tells(&self, key: Key, row: &Row) -> bool {
        let Known { first, is_written } = &self.0[&key];
        *is_written || first.versions != row.versions || first.values != Some(row.values)
    }

    /// Keys that are evidence when this predicate did not give them: those that some attempt has written, and those
    /// that match as they were.
    pub fn telling(&self, table: usize, predicate: Predicate) -> impl Iterator<Item = Key> {
        let (low, high) = match predicate.by {
            By::Id => (predicate.low.0, predicate.high.0.max(predicate.low.0)),
            By::Part | By::Tag => (i32::MIN, i32::MAX),
        };
        let keys = self.0.range(Key { table, id: low }..=Key { table, id: high });
        let tells = move |key: Key, known: &Known| {
            predicate.covers(key.id) && (known.is_written || predicate.matches(key.id, known.first.values))
        };
        keys.filter(move |(key, known)| tells(**key, known)).map(|(key, _)| *key)
    }
}
