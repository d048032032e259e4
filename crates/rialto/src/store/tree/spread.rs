//! Keys that divide an index into parts.

use super::Index;
use super::descent::{Fences, Seek};
use super::key::{KeyBuf, SearchKey};
use super::scan::{Batch, Direction, Guard, More, ScanRange};

impl Index {
    /// Keys, or prefixes of keys, that lie about evenly in the index, ascending. There are at least `at_least`, or all
    /// keys if these are fewer, or so few that leaves tell nothing. A discarded index gives none. Other threads may
    /// write meanwhile; the caller needs no lock on the table.
    pub fn marks(&self, at_least: usize) -> Vec<Vec<u8>> {
        self.while_kept(|| self.marks_of_levels(at_least)).unwrap_or_default()
    }

    fn marks_of_levels(&self, at_least: usize) -> Vec<Vec<u8>> {
        let mut level = self.nodes.node(self.root).control().level();
        loop {
            let bounds = self.bounds_of_level(level);
            if bounds.len() >= at_least {
                return bounds;
            }
            match level.checked_sub(1) {
                Some(below) => level = below,
                None => return self.all_keys(),
            }
        }
    }

    /// The lowest key of each node of a level but the first.
    fn bounds_of_level(&self, level: u8) -> Vec<Vec<u8>> {
        let (mut fences, mut from) = (Fences::new(), KeyBuf::new());
        let mut bounds = Vec::new();
        // A tree that has lost this level meanwhile is small.
        while let Ok(Some(_)) = self.reach(Seek::At(SearchKey::new(from.as_slice())), level, &mut fences) {
            let Some(high) = fences.high() else { break };
            bounds.push(high.to_vec());
            from.set(high);
        }
        bounds
    }

    fn all_keys(&self) -> Vec<Vec<u8>> {
        let (mut batch, mut keys) = (Batch::new(), Vec::new());
        loop {
            let more = self.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch);
            keys.extend(batch.iter().map(|(key, _)| key.to_vec()));
            if more == More::No {
                return keys;
            }
        }
    }
}
