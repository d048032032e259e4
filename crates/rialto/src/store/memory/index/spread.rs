//! Keys that divide an index.

use super::Index;
use super::descent::{Fences, Seek};
use super::key::{KeyBuf, Probe};

/// So many nodes a part are looked at, where there are: parts are about as equal as nodes are full.
const NODES_PER_PART: usize = 8;

impl Index {
    /// Keys that divide the index into up to so many parts of about as many entries each, ascending: where each part but the
    /// first begins. A small index has fewer. Others may write meanwhile.
    pub fn spread(&self, parts: usize) -> Vec<Vec<u8>> {
        let wanted = parts * NODES_PER_PART;
        let mut level = self.region.node(self.root).control().level();
        let mut bounds = self.bounds_of_level(level);
        while level > 0 && bounds.len() + 1 < wanted {
            level -= 1;
            bounds = self.bounds_of_level(level);
        }
        let nodes = bounds.len() + 1;
        let parts = parts.min(nodes);
        (1..parts).map(|part| bounds[part * nodes / parts - 1].clone()).collect()
    }

    /// Where each node of a level but the first begins.
    fn bounds_of_level(&self, level: u8) -> Vec<Vec<u8>> {
        let (mut fences, mut from) = (Fences::new(), KeyBuf::new());
        let mut bounds = Vec::new();
        // A tree that has lost the level meanwhile is a small one.
        while self.reach(Seek::At(Probe::new(from.as_slice())), level, &mut fences).is_some() {
            let Some(high) = fences.high() else { break };
            bounds.push(high.to_vec());
            from.set(high);
        }
        bounds
    }
}
