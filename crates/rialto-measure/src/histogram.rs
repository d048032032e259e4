//! Latencies: one histogram for each client and transaction type, merged when the clients are done.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// The longest latency that is told apart from longer ones: 100 s.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Latencies, within a thousandth.
#[derive(Debug, Clone)]
pub struct Latencies {
    ns: Histogram<u32>,
    sum_ns: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are fixed and valid");
        Latencies { ns, sum_ns: 0 }
    }
}

impl Latencies {
    /// Adds one.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let ns = (latency.as_nanos() as u64).clamp(1, LATENCY_NS_MAX);
        self.sum_ns += ns;
        self.ns.saturating_record(ns);
    }

    /// Adds those of another client.
    pub fn merge(&mut self, other: &Latencies) {
        self.ns.add(&other.ns).expect("all have the same bounds");
        self.sum_ns += other.sum_ns;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.ns.len()
    }

    /// The mean, in microseconds; 0 if there is none.
    pub fn mean_us(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 / 1e3 }
    }

    /// The shortest, in microseconds; `None` if there is no latency.
    pub fn min_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.ns.min_nz() as f64 / 1e3)
    }

    /// How many are longer than a limit, within a thousandth of it.
    pub fn over(&self, limit: Duration) -> u64 {
        let limit = (limit.as_nanos() as u64).clamp(1, LATENCY_NS_MAX);
        self.count() - self.ns.count_between(0, limit)
    }

    /// For another process, which puts them together again ([`Latencies::of_parts`]).
    pub fn parts(&self) -> LatencyParts {
        let counts =
            self.ns.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect();
        LatencyParts { sum_ns: self.sum_ns, counts }
    }

    /// What another process has sent.
    pub fn of_parts(parts: &LatencyParts) -> Latencies {
        let mut all = Latencies { sum_ns: parts.sum_ns, ..Latencies::default() };
        for (ns, count) in &parts.counts {
            all.ns.saturating_record_n((*ns).clamp(1, LATENCY_NS_MAX), *count);
        }
        all
    }

    /// Some percentiles; `None` if there is no latency.
    pub fn percentiles(&self) -> Option<Percentiles> {
        if self.count() == 0 {
            return None;
        }
        let at = |quantile| self.ns.value_at_quantile(quantile) as f64 / 1e3;
        let max_us = self.ns.max() as f64 / 1e3;
        Some(Percentiles {
            p50_us: at(0.5).min(max_us),
            p99_us: at(0.99).min(max_us),
            p999_us: at(0.999).min(max_us),
            max_us,
        })
    }
}

/// Latencies on their way between processes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyParts {
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
    /// Latencies in nanoseconds, and how many are as long.
    pub counts: Vec<(u64, u32)>,
}

/// Percentiles of latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half are shorter.
    pub p50_us: f64,
    /// 99 of 100 are shorter.
    pub p99_us: f64,
    /// 999 of 1,000 are shorter.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Percentiles {
    /// For the result; each is null if there are none.
    pub fn json(all: Option<Percentiles>) -> Json {
        let at = |part: fn(&Percentiles) -> f64| Json::from(all.as_ref().map(part));
        json!({
            "p50": at(|all| all.p50_us),
            "p99": at(|all| all.p99_us),
            "p999": at(|all| all.p999_us),
            "max": at(|all| all.max_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_two_clients_together() {
        let mut all = Latencies::default();
        assert_eq!(all.percentiles(), None);
        for client in 0..2 {
            let mut own = Latencies::default();
            (0..500).for_each(|us| own.record(Duration::from_micros(1 + client * 500 + us)));
            all.merge(&own);
        }
        let found = all.percentiles().unwrap();
        let near = |found: f64, expected: f64| (found - expected).abs() <= expected * 0.002;
        assert!(near(found.p50_us, 500.0), "{found:?}");
        assert!(near(found.p99_us, 990.0), "{found:?}");
        assert!(near(found.p999_us, 999.0), "{found:?}");
        assert!(near(found.max_us, 1000.0), "{found:?}");
        assert!(near(all.mean_us(), 500.5));
        assert_eq!(all.count(), 1000);
    }

    #[test]
    fn a_very_long_latency_counts_as_the_longest() {
        let mut all = Latencies::default();
        all.record(Duration::from_secs(1000));
        assert!(all.percentiles().unwrap().max_us >= 99_000_000.0);
    }

    #[test]
    fn latencies_of_another_process_are_the_same() {
        let mut own = Latencies::default();
        assert_eq!((own.min_us(), own.over(Duration::ZERO)), (None, 0));
        for us in [300, 300, 9_000, 11_000, 40_000] {
            own.record(Duration::from_micros(us));
        }
        let sent = Latencies::of_parts(&own.parts());
        assert_eq!(
            (sent.count(), sent.mean_us(), sent.over(Duration::from_millis(10))),
            (5, own.mean_us(), 2)
        );
        let [least, least_sent] = [&own, &sent].map(|all| all.min_us().unwrap());
        assert!((least - 300.0).abs() < 0.6 && (least_sent - 300.0).abs() < 0.6, "{least} {least_sent}");
        assert_eq!(sent.percentiles(), own.percentiles());
        assert_eq!(sent.parts(), own.parts());
    }
}
