//! Why a figure of a result is null that this program would count on another machine, or that other tools count. Figures
//! that do not apply to a run are null without a reason.

use serde_json::{Value as Json, json};

use crate::counters::Counts;

/// The shares of the peak, in percent, at which latencies are to be looked at.
pub const PERCENTS_OF_PEAK: [(f64, &str); 2] = [(50.0, "50"), (80.0, "80")];

/// By the figure's key: the reason, or null if it was counted. `uncounted` is that of instructions.
pub fn reasons(counts: &Counts, uncounted: Option<&str>, percent_of_peak: Option<f64>) -> Json {
    let unless = |counted: bool, reason: &'static str| (!counted).then_some(reason);
    let switches = || unless(counts.switches.is_some(), "getrusage does not tell");
    let at_percents = PERCENTS_OF_PEAK.into_iter().map(|(percent, name)| {
        let reason = (percent_of_peak != Some(percent))
            .then(|| format!("a run of its own offers {name}% of the peak: --rate {name}%"));
        (name.to_owned(), reason.into())
    });
    json!({
        "instructions_per_txn": uncounted,
        "callgrind_instructions_per_txn": "one deterministic transaction of each kind, not this run's: cargo run \
            --release -p rialto-figures --example steady runs callgrind",
        "allocations_per_txn":
            unless(counts.allocations.is_some(), "the program has not installed the counting allocator"),
        "syscalls_per_txn": "a program cannot count its own without a tool: cargo run --release -p rialto-figures \
            --example steady runs strace",
        "device_bytes_per_txn": unless(counts.device_bytes.is_some(), "/proc/self/io does not tell"),
        "locks_by_form_per_100_txn": "locks are counted by kind: a thin one becomes a head when another transaction \
            wants it too, which is part of a wait; --locks central makes a head of every lock",
        "wakes_per_txn": switches(),
        "context_switches_per_txn": switches(),
        "cache_line_transfers_per_txn":
            "each processor has its own events for them (perf c2c), and virtual machines hide these",
        "latency_us_at_percent_of_peak": Json::Object(at_percents.collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_has_no_reason_and_all_else_has_one() {
        let nothing = reasons(&Counts::default(), Some("refused"), None);
        let Json::Object(members) = &nothing else { unreachable!("it is an object") };
        for (name, reason) in members {
            assert_ne!(reason, &Json::Null, "{name}");
        }
        assert_eq!(nothing.get("instructions_per_txn"), Some(&"refused".into()));
        let counts = Counts {
            allocations: Some(0),
            device_bytes: Some(0),
            switches: Some(<_>::default()),
            ..<_>::default()
        };
        let counted = reasons(&counts, None, Some(80.0));
        for name in ["instructions", "allocations", "device_bytes", "wakes", "context_switches"] {
            assert_eq!(counted.get(format!("{name}_per_txn")), Some(&Json::Null), "{name}");
        }
        assert_eq!(counted.pointer("/latency_us_at_percent_of_peak/80"), Some(&Json::Null));
        assert!(
            counted.pointer("/latency_us_at_percent_of_peak/50").is_some_and(|reason| reason != &Json::Null)
        );
    }
}
