//! [`RoutingRules`]: which executor has which keys.

use std::sync::Arc;

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::super::manager::LockManager;
use super::span::SpanRef;
use crate::catalog::NumberShare;
use crate::ids::IndexId;
use crate::row::{Key, LeadingColumns};

/// A routing rule (the DORA paper, section 4.1.1): which executor has which of an index's keys. Either datasets are
/// ranges of keys, each of one executor, or keys are assigned by the hash of their leading columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingRule {
    kind: RuleKind,
    /// It was set by hand, when the index had so many entries.
    by_hand: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RuleKind {
    Ranges {
        /// The first key of each dataset but the first, ascending.
        bounds: Vec<Key>,
        /// The first bytes of each bound, by which most comparisons are decided.
        heads: Vec<u64>,
        /// The executor of each dataset: one more than there are bounds.
        executors: Vec<u16>,
    },
    Hashed {
        leading: LeadingColumns,
        seed: u64,
        /// The executors are those below this.
        executors: u16,
    },
    /// The blocks of hidden row numbers, assigned in turns.
    Numbers { executors: u16 },
    /// All keys are at the read-only executor.
    ReadOnly { executor: u16 },
}

impl RoutingRule {
    fn of(kind: RuleKind) -> RoutingRule {
        RoutingRule { kind, by_hand: None }
    }

    /// The same rule, set by hand for an index of so many entries.
    pub fn by_hand(self, entries: u64) -> RoutingRule {
        RoutingRule { by_hand: Some(entries), ..self }
    }

    /// A rule of ranges; `bounds` are the first keys of each dataset but the first.
    ///
    /// # Panics
    /// If the bounds do not ascend, or there is not one executor more than bounds.
    pub fn new(bounds: Vec<Key>, executors: Vec<u16>) -> RoutingRule {
        assert!(bounds.is_sorted_by(|one, next| one < next), "the bounds of datasets ascend: {bounds:?}");
        assert_eq!(bounds.len() + 1, executors.len(), "each dataset has an executor");
        let heads = bounds.iter().map(|bound| head_of(bound)).collect();
        RoutingRule::of(RuleKind::Ranges { bounds, heads, executors })
    }

    /// Ranges, assigned to so many executors in their order and as evenly as possible; `bounds` as in
    /// [`RoutingRule::new`]. So the same part of the keys of two indexes belongs to the same executor.
    ///
    /// # Panics
    /// As [`RoutingRule::new`].
    pub fn side_by_side(bounds: Vec<Key>, executors: u16) -> RoutingRule {
        let (datasets, executors) = (bounds.len() + 1, usize::from(executors));
        let owners = (0..datasets).map(|nth| (nth * executors / datasets) as u16).collect();
        RoutingRule::new(bounds, owners)
    }

    /// Keys by the hash of their leading columns: keys that have the same values there belong to one executor. A span
    /// that does not lie within such keys is at all executors.
    ///
    /// # Panics
    /// If there is no executor.
    pub fn hashed(index: IndexId, leading: LeadingColumns, executors: u16) -> RoutingRule {
        assert!(executors > 0, "keys have an executor");
        RoutingRule::of(RuleKind::Hashed { leading, seed: u64::from(index.0), executors })
    }

    /// The same division of keys, by ranges or by the same hash, among another number of executors.
    fn among(&self, index: IndexId, executors: u16) -> RoutingRule {
        match &self.kind {
            RuleKind::Ranges { bounds, .. } => RoutingRule::side_by_side(bounds.clone(), executors),
            RuleKind::Hashed { leading, .. } => RoutingRule::hashed(index, leading.clone(), executors),
            RuleKind::Numbers { .. } => RoutingRule::numbers(executors),
            RuleKind::ReadOnly { .. } => self.clone(),
        }
    }

    /// Whether it names an executor beyond the first `executors`.
    fn goes_beyond(&self, executors: u16) -> bool {
        match &self.kind {
            RuleKind::Ranges { executors: named, .. } => named.iter().any(|&named| named >= executors),
            RuleKind::Hashed { executors: named, .. } | RuleKind::Numbers { executors: named } => {
                *named > executors
            }
            // The read-only executor is not counted among them.
            RuleKind::ReadOnly { .. } => false,
        }
    }

    /// The rule of hidden row numbers: their blocks are assigned in turns. So the rows that one transaction slot
    /// inserts belong to one executor for a while, and a transaction under a lease takes numbers of an executor that
    /// it has already. A span of several blocks is at all executors.
    ///
    /// # Panics
    /// If there is no executor.
    pub fn numbers(executors: u16) -> RoutingRule {
        assert!(executors > 0, "rows have an executor");
        RoutingRule::of(RuleKind::Numbers { executors })
    }

    fn is_read_only(&self) -> bool {
        matches!(self.kind, RuleKind::ReadOnly { .. })
    }

    /// For a rule of hidden row numbers: the number of its executors. There may be more executors than that.
    pub(super) fn numbers_among(&self) -> Option<u16> {
        match self.kind {
            RuleKind::Numbers { executors } => Some(executors),
            _ => None,
        }
    }

    /// Whether keys are assigned by a hash.
    pub fn is_hashed(&self) -> bool {
        matches!(self.kind, RuleKind::Hashed { .. } | RuleKind::Numbers { .. })
    }

    /// The executor of a span, in the cases in which a quick check shows that there is only one.
    #[inline]
    fn only_executor_of(&self, span: SpanRef<'_>) -> Option<u16> {
        match &self.kind {
            RuleKind::Ranges { bounds, heads, executors } => {
                let first = dataset_of(bounds, heads, span.lower());
                let goes_on =
                    !span.is_point() && bounds.get(first).is_some_and(|bound| span.ends_behind(bound));
                (!goes_on).then(|| executors[first])
            }
            RuleKind::Numbers { executors } if span.is_point() => {
                span.lower().first_chunk().map(|number| executor_of_number(*number, *executors))
            }
            RuleKind::ReadOnly { executor } => Some(*executor),
            _ => None,
        }
    }

    /// Appends the executors that have keys of a span, ascending, each once.
    pub fn executors_of(&self, span: SpanRef<'_>, out: &mut SmallVec<[u16; 8]>) {
        match &self.kind {
            RuleKind::Ranges { bounds, heads, executors } => {
                let first = dataset_of(bounds, heads, span.lower());
                out.push(executors[first]);
                if span.is_point() {
                    return;
                }
                let more = bounds[first..].iter().take_while(|bound| span.ends_behind(bound)).count();
                out.extend(executors[first + 1..=first + more].iter().copied());
                out.sort_unstable();
                out.dedup();
            }
            RuleKind::ReadOnly { executor } => out.push(*executor),
            RuleKind::Numbers { executors } => match span.lower().first_chunk() {
                Some(number) if span.is_point() => out.push(executor_of_number(*number, *executors)),
                _ => out.extend(0..*executors),
            },
            RuleKind::Hashed { leading, seed, executors } => {
                let lower = span.lower();
                let values = match leading.len_in(lower) {
                    _ if lower.is_empty() => None,
                    Some(len) if span.is_point() || SpanRef::prefix(&lower[..len]).covers(span) => {
                        Some(&lower[..len])
                    }
                    // Not a key of the index. But the spans that contain it are at all executors, so any executor is
                    // right.
                    None if span.is_point() => Some(lower),
                    _ => None,
                };
                match values {
                    Some(values) => {
                        out.push((xxh3_64_with_seed(values, *seed) % u64::from(*executors)) as u16);
                    }
                    None => out.extend(0..*executors),
                }
            }
        }
    }
}

/// The executor of a hidden row number.
#[inline]
fn executor_of_number(number: [u8; 8], executors: u16) -> u16 {
    NumberShare::of(u64::from_be_bytes(number), executors).executor
}

/// The dataset that a key is in, by its number.
#[inline(always)]
fn dataset_of(bounds: &[Key], heads: &[u64], key: &[u8]) -> usize {
    let head = head_of(key);
    let from = heads.partition_point(|bound| *bound < head);
    if heads.get(from).is_none_or(|bound| *bound > head) {
        return from;
    }
    let alike = heads[from..].partition_point(|bound| *bound == head);
    from + bounds[from..from + alike].partition_point(|bound| **bound <= *key)
}

/// The first eight bytes of a key, as a number in the order of keys; a shorter key is filled up with zeros.
#[inline]
fn head_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    match (key.first_chunk(), key.last_chunk()) {
        // From four bytes on, two reads that overlap.
        (Some(first), Some(last)) => {
            let behind = u64::from(u32::from_be_bytes(*last)) << (8 * (8 - key.len()));
            u64::from(u32::from_be_bytes(*first)) << 32 | behind & u64::from(u32::MAX)
        }
        _ => (0..4).fold(0, |head, at| head << 8 | u64::from(key.get(at).copied().unwrap_or(0))) << 32,
    }
}

/// A set of executors, ascending.
pub(super) type ExecutorSet = SmallVec<[u16; 8]>;

/// The routing rules of all indexes at one time.
#[derive(Debug, Clone)]
pub(super) struct RoutingRules {
    /// Increases with each change.
    pub version: u64,
    /// By the index's number, ascending: an index without a rule takes no room, however high index numbers have
    /// become.
    rules: Vec<(IndexId, Arc<RoutingRule>)>,
    /// How many executors are in use.
    pub executors: u16,
}

impl RoutingRules {
    /// Each index is one dataset.
    pub fn new(executors: u16) -> RoutingRules {
        RoutingRules { version: 0, rules: Vec::new(), executors }
    }

    /// The executors of a span, ascending.
    pub fn executors_of(&self, index: IndexId, span: SpanRef<'_>, out: &mut ExecutorSet) {
        out.clear();
        match self.rule_of(index) {
            Some(rule) => rule.executors_of(span, out),
            None => out.push(self.executor_without_rule(index)),
        }
    }

    /// The executor of a span, if it is one dataset's.
    #[inline]
    pub fn only_executor_of(&self, index: IndexId, span: SpanRef<'_>) -> Option<u16> {
        match self.rule_of(index) {
            Some(rule) => rule.only_executor_of(span),
            None => Some(self.executor_without_rule(index)),
        }
    }

    /// The executor of an index without a rule. Neighbouring indexes have different ones.
    #[inline]
    fn executor_without_rule(&self, index: IndexId) -> u16 {
        (index.0 % u32::from(self.executors)) as u16
    }

    /// The index's rule.
    #[inline]
    pub fn rule_of(&self, index: IndexId) -> Option<&RoutingRule> {
        let at = self.find(index).ok()?;
        Some(&self.rules[at].1)
    }

    /// The position of the index's rule, or the one where it would be inserted.
    #[inline]
    fn find(&self, index: IndexId) -> Result<usize, usize> {
        self.rules.binary_search_by_key(&index, |&(index, _)| index)
    }

    /// The same rules with another one for one index. A rule that names more executors than are in use is divided
    /// among those in use.
    pub fn with(&self, index: IndexId, rule: Option<RoutingRule>) -> RoutingRules {
        let mut changed = self.clone();
        changed.version += 1;
        let rule = rule.map(|rule| match rule.goes_beyond(self.executors) {
            true => rule.among(index, self.executors),
            false => rule,
        });
        let rule = rule.map(|rule| (index, Arc::new(rule)));
        let place = match changed.find(index) {
            Ok(at) => at..at + 1,
            Err(at) => at..at,
        };
        changed.rules.splice(place, rule);
        changed
    }

    /// The same datasets, divided among so many executors.
    pub fn among(&self, executors: u16) -> RoutingRules {
        let among =
            |(index, rule): &(IndexId, Arc<RoutingRule>)| (*index, Arc::new(rule.among(*index, executors)));
        let rules = self.rules.iter().map(among).collect();
        RoutingRules { version: self.version + 1, rules, executors }
    }
}

impl LockManager {
    /// Removes the routing rules of indexes that were dropped. If there are any, it waits for all lock tables.
    pub fn forget_rules_of_dropped(&self) {
        let dropped = std::mem::take(&mut *self.local.dropped.lock());
        for index in dropped.into_iter().filter(|&index| self.local.has_rule(index)) {
            self.route(index, None);
        }
    }

    /// Whether an index has a routing rule.
    pub fn is_routed(&self, index: IndexId) -> bool {
        self.local.has_rule(index)
    }

    /// How many entries an index had when its rule was set by hand, if it was.
    pub fn entries_by_hand(&self, index: IndexId) -> Option<u64> {
        self.local.rules.lock().rule_of(index)?.by_hand
    }

    /// Whether an index's keys are at the read-only executor.
    pub fn is_read_only(&self, index: IndexId) -> bool {
        self.local.rules.lock().rule_of(index).is_some_and(RoutingRule::is_read_only)
    }

    /// Assigns all keys of an index to the read-only executor, at which readers exclude only writers.
    pub fn place_read_only(&self, index: IndexId) {
        self.route(index, Some(RoutingRule::of(RuleKind::ReadOnly { executor: self.local.read_only() })));
    }

    /// Whether an index's keys are assigned by a hash.
    pub fn is_hashed(&self, index: IndexId) -> bool {
        self.local.rules.lock().rule_of(index).is_some_and(RoutingRule::is_hashed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of an index tells how many indexes there were before it, including those whose creation was
    /// refused.
    #[test]
    fn rules_take_room_by_their_number_not_by_that_of_their_indexes() {
        let mut rules = RoutingRules::new(4);
        let indexes = [2_000_000, 64, 1_000_000].map(IndexId);
        for index in indexes {
            rules = rules.with(index, Some(RoutingRule::numbers(4)));
        }
        rules = rules.with(indexes[0], Some(RoutingRule::numbers(3)));
        assert_eq!(rules.rules.len(), 3);
        for rules in [&rules, &rules.among(2)] {
            assert!(indexes.iter().all(|&index| rules.rule_of(index).is_some()));
            assert!(
                [0, 65, 1_999_999, u32::MAX].iter().all(|&other| rules.rule_of(IndexId(other)).is_none())
            );
        }
        for index in indexes {
            rules = rules.with(index, None).with(IndexId(65), None);
            assert!(rules.rule_of(index).is_none());
        }
        assert!(rules.rules.is_empty());
    }
}
