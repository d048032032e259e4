//! [`PlanCache`]: what texts of statements came to, bounded.

use std::collections::HashMap;
use std::sync::Arc;

use crate::prepared::Prepared;

/// Statements in one of the two generations.
const GENERATION: usize = 128;

/// Plans by their text. Two generations: when the young one is full, it becomes the old one, and the old one, of
/// which all that was used again has moved to the young one, goes. So at most 256 plans are kept, nothing is counted
/// or sorted, and a plan in use stays.
#[derive(Default)]
pub(super) struct PlanCache {
    young: HashMap<Arc<str>, Arc<Prepared>>,
    old: HashMap<Arc<str>, Arc<Prepared>>,
}

impl PlanCache {
    pub(super) fn get(&mut self, text: &str) -> Option<Arc<Prepared>> {
        if let Some(found) = self.young.get(text) {
            return Some(found.clone());
        }
        let (_, found) = self.old.remove_entry(text)?;
        self.put(found.clone());
        Some(found)
    }

    pub(super) fn put(&mut self, prepared: Arc<Prepared>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(prepared.text.clone(), prepared);
    }

    pub(super) fn forget(&mut self, text: &str) {
        self.young.remove(text);
        self.old.remove(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Statement;
    use crate::prepared::{CatalogState, Kind};

    fn plan(text: &str) -> Arc<Prepared> {
        let kind = Kind::Utility(Statement::Commit);
        let catalog = CatalogState::Committed(0);
        Arc::new(Prepared {
            text: text.into(),
            declared: vec![],
            params: vec![],
            columns: vec![],
            kind,
            catalog,
        })
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = PlanCache::default();
        cache.put(plan("hot"));
        for number in 0..1_000 {
            cache.put(plan(&number.to_string()));
            assert!(cache.get("hot").is_some());
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION);
        assert!(cache.get("1").is_none());
    }
}
