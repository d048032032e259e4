//! The result of a run in virtual time.

use std::time::Duration;

use rialto::log::virtual_time::{LoadOutcome, Regime};
use rialto::log::{LogStats, WRITE_TIME_CLASSES, write_time_class};
use rialto_measure::histogram::Percentiles;

use super::Window;

impl Window {
    /// What a run in virtual time brought.
    pub fn of_outcome(outcome: &LoadOutcome, regime: &Regime) -> Window {
        let responses = &outcome.responses;
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let at = |share: f64| us(responses[((responses.len() - 1) as f64 * share) as usize]);
        // All writes take the same time.
        let mut write_times = [0; WRITE_TIME_CLASSES];
        write_times[write_time_class(regime.write)] = outcome.groups;
        let stats = LogStats {
            groups: outcome.groups,
            packets: outcome.commits,
            writes: outcome.groups,
            write_ns: outcome.groups * regime.write.as_nanos() as u64,
            write_times,
            group_sizes: outcome.group_sizes,
            waits: outcome.waits,
            ..LogStats::default()
        };
        Window {
            committed: outcome.commits,
            time: outcome.time,
            latency: (!responses.is_empty()).then(|| Percentiles {
                p50_us: at(0.5),
                p99_us: at(0.99),
                p999_us: at(0.999),
                max_us: at(1.0),
            }),
            latency_mean_us: responses.iter().map(|time| us(*time)).sum::<f64>()
                / responses.len().max(1) as f64,
            stats,
            group_size_max: Some(outcome.group_max),
            processors_busy: Some(outcome.processors_busy),
            ..Window::default()
        }
    }
}
