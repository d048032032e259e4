//! [`Rebalancing`]: which keys are requested at the executors, and which datasets would make the executors equally
//! busy. A policy: it gets samples and returns changes, and does nothing itself.

use hashbrown::HashMap;

use crate::ids::IndexId;
use crate::isolate::{RoutingRule, Sample};
use crate::row::Key;

/// Nothing is changed while the busiest executor has at most so many times the mean of the requests.
const IMBALANCE_MAX: f64 = 1.1;
/// A change has to make the busiest executor of an index this much less busy.
const GAIN_MIN: f64 = 0.9;
/// An index with a smaller share of all requests is ignored.
const SHARE_MIN: f64 = 0.02;
/// The fewest known keys of an index for each executor: fewer say little about how busy a dataset is.
const KEYS_PER_EXECUTOR: usize = 48;
/// After so many samples the earlier half of the known requests is forgotten.
const SAMPLES_PER_HALF: u32 = 10;

/// A key that was requested, and the number of requests that it stands for.
struct SampledKey {
    key: Key,
    executor: usize,
    weight: f64,
}

/// The requests in some samples.
#[derive(Default)]
struct Half {
    samples: u32,
    asked: HashMap<IndexId, Vec<SampledKey>>,
    /// Requests by executor.
    requests: Vec<f64>,
}

/// See the [module](self).
pub(super) struct Rebalancing {
    executors: usize,
    earlier: Half,
    now: Half,
}

impl Rebalancing {
    pub fn new(executors: usize) -> Rebalancing {
        Rebalancing { executors, earlier: Half::default(), now: Half::default() }
    }

    /// Gets the requests at each executor since the last sample. Now and then it returns rules to change.
    pub fn decide(&mut self, samples: Vec<Sample>) -> Vec<(IndexId, RoutingRule)> {
        let now = &mut self.now;
        now.samples += 1;
        now.requests.resize(self.executors, 0.0);
        for (executor, Sample { requests, keys }) in samples.into_iter().enumerate() {
            now.requests[executor] += requests as f64;
            let weight = requests as f64 / keys.len().max(1) as f64;
            for (index, key, _) in keys {
                now.asked.entry(index).or_default().push(SampledKey { key, executor, weight });
            }
        }
        if now.samples < SAMPLES_PER_HALF {
            return Vec::new();
        }
        let changes = self.choose();
        self.earlier = std::mem::take(&mut self.now);
        if !changes.is_empty() {
            // The earlier requests were made under other rules.
            self.earlier = Half::default();
        }
        changes
    }

    fn choose(&self) -> Vec<(IndexId, RoutingRule)> {
        let halves = [&self.earlier, &self.now];
        let mut requests = vec![0.0; self.executors];
        for (executor, of_one) in halves.iter().flat_map(|half| half.requests.iter().enumerate()) {
            requests[executor] += of_one;
        }
        let all: f64 = requests.iter().sum();
        if busiest(&requests) <= IMBALANCE_MAX * all / self.executors as f64 {
            return Vec::new();
        }
        let mut by_index: HashMap<IndexId, Vec<&SampledKey>> = HashMap::new();
        for (index, asked) in halves.iter().flat_map(|half| &half.asked) {
            by_index.entry(*index).or_default().extend(asked);
        }
        let changes = by_index.into_iter().filter_map(|(index, asked)| {
            let weight: f64 = asked.iter().map(|asked| asked.weight).sum();
            let is_known = asked.len() >= KEYS_PER_EXECUTOR * self.executors && weight >= SHARE_MIN * all;
            is_known.then(|| self.share_out(index, asked, weight)).flatten()
        });
        changes.collect()
    }

    /// Datasets that are requested equally often, if they make the busiest executor less busy.
    fn share_out(
        &self,
        index: IndexId,
        mut asked: Vec<&SampledKey>,
        all: f64,
    ) -> Option<(IndexId, RoutingRule)> {
        let mut by_executor = vec![0.0; self.executors];
        asked.iter().for_each(|asked| by_executor[asked.executor] += asked.weight);
        asked.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let share = all / self.executors as f64;
        let (mut bounds, mut owners): (Vec<Key>, Vec<u16>) = (Vec::new(), vec![0]);
        let mut datasets = vec![0.0];
        // The weight before the present key, and the number of shares up to the last bound. A key goes where its
        // middle lies, so that a hot key gets a dataset of its own.
        let (mut before, mut shares) = (0.0, 0.0);
        for of_key in asked.chunk_by(|one, other| one.key == other.key) {
            let weight: f64 = of_key.iter().map(|asked| asked.weight).sum();
            let middle = before + weight / 2.0;
            let is_full = before > 0.0 && middle >= (shares + 1.0) * share;
            if is_full && bounds.len() + 1 < self.executors {
                shares = (middle / share).floor();
                bounds.push(of_key[0].key.clone());
                // The executor is that of the share with which the dataset begins: other indexes with similar
                // requests have the same executors there.
                owners.push(shares as u16);
                datasets.push(0.0);
            }
            before += weight;
            *datasets.last_mut().expect("there is always one") += weight;
        }
        let gains = busiest(&datasets) <= GAIN_MIN * busiest(&by_executor);
        gains.then(|| (index, RoutingRule::new(bounds, owners)))
    }
}

fn busiest(requests: &[f64]) -> f64 {
    requests.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::io::Random;
    use crate::isolate::{RecordMode, SpanRef};

    const INDEX: IndexId = IndexId(7);
    const EXECUTORS: usize = 4;

    fn key(value: u32) -> Key {
        Key::from(&value.to_be_bytes()[..])
    }

    fn executor_of(rule: &RoutingRule, key: &Key) -> usize {
        let mut executors = SmallVec::new();
        rule.executors_of(SpanRef::point(key), &mut executors);
        usize::from(executors[0])
    }

    /// Makes requests for keys that `draw` gives, routed by the rule, until the rule is changed or the time is up.
    /// Returns the requests by executor in the last sample, and how often the rule was changed.
    fn serve(
        rule: &mut RoutingRule,
        rebalancing: &mut Rebalancing,
        samples: u32,
        draw: &mut dyn FnMut() -> u32,
    ) -> (Vec<u64>, u32) {
        let (mut requests, mut changes) = (Vec::new(), 0);
        for _ in 0..samples {
            let mut seen: Vec<Sample> = (0..EXECUTORS).map(|_| Sample::default()).collect();
            for _ in 0..4_000 {
                let key = key(draw());
                let sample = &mut seen[executor_of(rule, &key)];
                sample.requests += 1;
                if sample.requests.is_multiple_of(16) {
                    sample.keys.push((INDEX, key, RecordMode::Exclusive));
                }
            }
            requests = seen.iter().map(|sample| sample.requests).collect();
            for (index, changed) in rebalancing.decide(seen) {
                assert_eq!(index, INDEX);
                *rule = changed;
                changes += 1;
            }
        }
        (requests, changes)
    }

    fn imbalance(requests: &[u64]) -> f64 {
        let all: u64 = requests.iter().sum();
        *requests.iter().max().unwrap() as f64 * requests.len() as f64 / all as f64
    }

    #[test]
    fn a_hot_range_is_followed_wherever_it_goes_and_then_left_alone() {
        let mut random = Random::new(1);
        let mut rebalancing = Rebalancing::new(EXECUTORS);
        let mut rule = RoutingRule::side_by_side([250, 500, 750].map(key).to_vec(), EXECUTORS as u16);
        for hot in [0..100, 600..700, 450..460] {
            let mut draw = || match random.below(10) {
                0 => random.below(1_000) as u32,
                _ => hot.start + random.below(hot.len() as u64) as u32,
            };
            serve(&mut rule, &mut rebalancing, 3 * SAMPLES_PER_HALF, &mut draw);
            let (requests, _) = serve(&mut rule, &mut rebalancing, 1, &mut draw);
            assert!(imbalance(&requests) < 1.2, "{requests:?} with {rule:?}");
            let (_, changes) = serve(&mut rule, &mut rebalancing, 6 * SAMPLES_PER_HALF, &mut draw);
            assert!(changes <= 1, "it goes to and fro: {changes} changes");
        }
    }

    #[test]
    fn one_hot_key_has_an_executor_of_its_own_and_nothing_goes_to_and_fro() {
        let mut random = Random::new(2);
        let mut rebalancing = Rebalancing::new(EXECUTORS);
        let mut rule = RoutingRule::side_by_side(vec![], EXECUTORS as u16);
        let mut draw = || if random.chance(1, 2) { 500 } else { random.below(1_000) as u32 };
        let (_, changes) = serve(&mut rule, &mut rebalancing, 8 * SAMPLES_PER_HALF, &mut draw);
        let hot = executor_of(&rule, &key(500));
        assert!((1..=2).contains(&changes), "{changes}");
        assert!([450, 499, 501, 550].iter().all(|&other| executor_of(&rule, &key(other)) != hot), "{rule:?}");
    }

    #[test]
    fn few_requests_change_nothing() {
        let mut rebalancing = Rebalancing::new(EXECUTORS);
        for _ in 0..10 * SAMPLES_PER_HALF {
            let mut samples: Vec<Sample> = (0..EXECUTORS).map(|_| Sample::default()).collect();
            samples[0] = Sample { requests: 16, keys: vec![(INDEX, key(1), RecordMode::Exclusive)] };
            assert!(rebalancing.decide(samples).is_empty());
        }
    }
}
