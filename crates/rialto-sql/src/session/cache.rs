//! [`PlanCache`]: a bounded cache by the text of a statement.

use std::sync::Arc;

use hashbrown::HashMap;

/// Statements in one of the two generations.
const GENERATION: usize = 128;
/// Bytes in one of the two generations, of texts and plans.
const GENERATION_BYTES: usize = 4 << 20;
/// A longer text is not kept: it costs much, and seldom comes again.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Nor is a larger plan. A short text may have one: a list of values takes many times as much as its digits.
const PLAN_BYTES_MAX: usize = 1 << 20;

/// Values by text. There are two generations. When the young one is full, it becomes the old one, and the old one is
/// dropped; entries of the old one that are used move to the young one. So at most 256 entries are kept, and twice
/// [`GENERATION_BYTES`]. Nothing is sorted, and what is in use stays.
pub(super) struct PlanCache<V> {
    young: HashMap<Arc<str>, Kept<V>>,
    old: HashMap<Arc<str>, Kept<V>>,
    /// The bytes that were put into the young generation, also of entries that have left it.
    young_bytes: usize,
}

struct Kept<V> {
    value: V,
    /// The bytes of the value beside its text.
    bytes: usize,
}

impl<V> Default for PlanCache<V> {
    fn default() -> PlanCache<V> {
        PlanCache { young: HashMap::new(), old: HashMap::new(), young_bytes: 0 }
    }
}

impl<V: Clone> PlanCache<V> {
    pub(super) fn get(&mut self, text: &str) -> Option<V> {
        if let Some(found) = self.young.get(text) {
            return Some(found.value.clone());
        }
        let (text, found) = self.old.remove_entry(text)?;
        self.put(text, found.value.clone(), found.bytes);
        Some(found.value)
    }

    /// Keeps a value that takes this number of bytes beside its text.
    pub(super) fn put(&mut self, text: Arc<str>, value: V, bytes: usize) {
        if text.len() > TEXT_BYTES_MAX || bytes > PLAN_BYTES_MAX {
            return;
        }
        let all = text.len() + bytes;
        if self.young.len() >= GENERATION || self.young_bytes + all > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += all;
        self.young.insert(text, Kept { value, bytes });
    }

    pub(super) fn forget(&mut self, text: &str) {
        self.young.remove(text);
        self.old.remove(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = PlanCache::default();
        cache.put("hot".into(), 0, 0);
        for number in 1..1_000 {
            cache.put(number.to_string().into(), number, 0);
            assert_eq!(cache.get("hot"), Some(0));
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION);
        assert_eq!(cache.get("1"), None);
        let long: Arc<str> = "x".repeat(TEXT_BYTES_MAX + 1).into();
        cache.put(long.clone(), 7, 0);
        assert_eq!(cache.get(&long), None, "what is kept is bounded in bytes, too");
        cache.forget("hot");
        assert_eq!(cache.get("hot"), None);
    }

    #[test]
    fn plans_are_bounded_in_bytes() {
        let mut cache = PlanCache::default();
        cache.put("large".into(), 0, PLAN_BYTES_MAX + 1);
        assert_eq!(cache.get("large"), None);
        cache.put("hot".into(), 0, 100);
        for number in 1..100 {
            cache.put(number.to_string().into(), number, PLAN_BYTES_MAX - 200);
            assert_eq!(cache.get("hot"), Some(0));
            let kept = cache.young.iter().chain(&cache.old).map(|(text, kept)| text.len() + kept.bytes);
            assert!(kept.sum::<usize>() <= 2 * GENERATION_BYTES);
            assert_eq!(cache.get(&number.to_string()), Some(number));
        }
    }
}
