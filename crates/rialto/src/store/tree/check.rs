//! The structural verifier, and counts of entries.

use super::Index;
use super::MEMORY_WORDS;
use super::descent::{Fences, Seek};
use super::key::{KeyBuf, SearchKey};
use super::node::entries_max;

impl Index {
    /// The number of entries, leaf by leaf: exact if no thread writes meanwhile.
    pub fn count(&self) -> u64 {
        let mut fences = Fences::new();
        let mut from = KeyBuf::new();
        let mut entries = 0;
        loop {
            let Ok(leaf) = self.reach(Seek::At(SearchKey::new(from.as_slice())), 0, &mut fences);
            let leaf = leaf.expect("every tree has leaves");
            let count = leaf.node.control().count() as u64;
            if !leaf.node.latch.validate(leaf.version) {
                continue;
            }
            entries += count;
            match fences.high() {
                Some(high) => from.set(high),
                None => return entries,
            }
        }
    }

    /// About how many entries there are, from a few descents: for planners, without a lock on the table. 0 if the index
    /// is discarded.
    pub fn len_estimate(&self) -> u64 {
        self.while_kept(|| self.estimate()).unwrap_or(0)
    }

    fn estimate(&self) -> u64 {
        const WAYS: usize = 8;
        let mut sum = 0.0;
        for way in 0..WAYS {
            let mut entries = 1.0;
            let mut node = self.nodes.node(self.root);
            loop {
                // This is not validated: a guess may be wrong, it only must not leave the tree's memory.
                let control = node.control();
                entries *= control.count() as f64;
                if control.level() == 0 || control.count() == 0 {
                    break;
                }
                let slot = control.count() * (2 * way + 1) / (2 * WAYS);
                let Some(child) = self.nodes.get(node.child(slot)) else { break };
                if child.control().level() >= control.level() {
                    break;
                }
                node = child;
            }
            sum += entries;
        }
        (sum / WAYS as f64) as u64
    }

    /// Verifies the whole tree and returns the number of its entries, or what is wrong and in which node. No thread may
    /// write meanwhile.
    pub fn check(&self) -> Result<u64, String> {
        let level = self.nodes.node(self.root).control().level();
        self.check_under(self.root, level, &[], None)
    }

    fn check_under(&self, id: u32, level: u8, low: &[u8], high: Option<&[u8]>) -> Result<u64, String> {
        let wrong = |what: String| Err(format!("index node {id} (level {level}): {what}"));
        let Some(node) = self.nodes.get(id) else { return wrong("no such node".into()) };
        let word = node.latch.word();
        if word & 3 != 0 {
            return wrong(format!("in a tree, but its version word {word:#x} says latched or free"));
        }
        let control = node.control();
        let count = control.count();
        if control.level() != level {
            return wrong(format!("expected level {level}, found {}", control.level()));
        }
        if count > entries_max(MEMORY_WORDS)
            || control.heap() < 2 * count
            || control.heap() + control.prefix_words() > MEMORY_WORDS
        {
            return wrong(format!("{count} entries, heap at {}: they overlap", control.heap()));
        }
        let live: usize = (0..count).map(|at| super::key::tail_words(node.suffix_len(at))).sum();
        if live != control.live() {
            return wrong(format!("counts {} words of live tails, has {live}", control.live()));
        }
        let mut key = KeyBuf::new();
        node.read_prefix(control, &mut key);
        if control.prefix_bytes() > 0 {
            let prefix = key.as_slice();
            if !low.starts_with(prefix) || !high.is_some_and(|high| high.starts_with(prefix)) {
                return wrong(format!(
                    "prefix {prefix:02x?} is not common to its fences {low:02x?} and {high:02x?}"
                ));
            }
        }
        if level > 0 && (count == 0 || node.suffix_len(0) != 0) {
            return wrong(format!(
                "inner node with {count} children, first key of {} bytes",
                node.suffix_len(0)
            ));
        }
        let mut tails: Vec<_> = (0..count).filter_map(|at| node.tail_at(at)).collect();
        tails.sort_unstable();
        let mut end = control.heap();
        for (first, words) in tails {
            if first < end || first + words > MEMORY_WORDS - control.prefix_words() {
                return wrong(format!("the tail at word {first} overlaps another or leaves the heap"));
            }
            end = first + words;
        }
        let mut entries = 0;
        let mut below: Option<Vec<u8>> = None;
        for at in 0..count {
            node.read_key(control, at, &mut key);
            let this = key.as_slice().to_vec();
            let bounded = level > 0 && at == 0;
            if !bounded {
                if this.as_slice() < low || high.is_some_and(|high| this.as_slice() >= high) {
                    return wrong(format!(
                        "key {this:02x?} is outside its fences {low:02x?} and {high:02x?}"
                    ));
                }
                if below.as_ref().is_some_and(|below| *below >= this) {
                    return wrong(format!("key {this:02x?} is not above the one before it"));
                }
            }
            if level > 0 {
                let child_low = if at == 0 { low } else { &this };
                let mut next = KeyBuf::new();
                let child_high = if at + 1 < count {
                    node.read_key(control, at + 1, &mut next);
                    Some(next.as_slice())
                } else {
                    high
                };
                entries += self.check_under(node.child(at), level - 1, child_low, child_high)?;
            }
            below = (!bounded).then_some(this);
        }
        Ok(if level == 0 { count as u64 } else { entries })
    }
}
