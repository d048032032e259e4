//! [`PlanCache`]: what texts of statements came to, bounded.

use std::sync::Arc;

use hashbrown::HashMap;

/// Statements in one of the two generations.
const GENERATION: usize = 128;

/// What was found out about texts, a plan for one. Two generations: when the young one is full, it becomes the old
/// one, and the old one, of which all that was used again has moved to the young one, goes. So at most 256 are kept,
/// nothing is counted or sorted, and what is in use stays.
pub(super) struct PlanCache<V> {
    young: HashMap<Arc<str>, V>,
    old: HashMap<Arc<str>, V>,
}

impl<V> Default for PlanCache<V> {
    fn default() -> PlanCache<V> {
        PlanCache { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<V: Clone> PlanCache<V> {
    pub(super) fn get(&mut self, text: &str) -> Option<V> {
        if let Some(found) = self.young.get(text) {
            return Some(found.clone());
        }
        let (text, found) = self.old.remove_entry(text)?;
        self.put(text, found.clone());
        Some(found)
    }

    pub(super) fn put(&mut self, text: Arc<str>, value: V) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(text, value);
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
        cache.put("hot".into(), 0);
        for number in 1..1_000 {
            cache.put(number.to_string().into(), number);
            assert_eq!(cache.get("hot"), Some(0));
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION);
        assert_eq!(cache.get("1"), None);
        cache.forget("hot");
        assert_eq!(cache.get("hot"), None);
    }
}
