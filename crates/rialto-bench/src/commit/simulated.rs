//! Commit sequences in virtual time.

use std::time::Duration;

use rialto::GroupCommitOptions;
use rialto::log::virtual_time::{Load, LoadOutcome, Regime, simulate};
use rialto::log::{LogStats, WRITE_TIME_CLASSES, write_time_class};

use super::result::{About, Window};
use super::{Verdict, describe};
use crate::args::BenchArgs;
use crate::error::BenchError;
use crate::histogram::Percentiles;
use crate::report::thousands;
use crate::session::say;

/// The most commits that are simulated where --seconds does not ask for more.
const COMMITS_MAX: u64 = 200_000;
/// Commits of the run that tells how many there are in a second, for each outstanding one.
const PILOT: u64 = 6;

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

/// How many commits take this long.
fn commits_in(time: Duration, per_s: f64) -> u64 {
    (time.as_secs_f64() * per_s).ceil().max(1.0) as u64
}

/// Runs what the command line says.
pub(super) fn run(
    args: &BenchArgs,
    regime: &'static Regime,
) -> Result<(About, Vec<Window>, Verdict), BenchError> {
    say(&format!("virtual time, on {}", describe(regime)));
    let options: GroupCommitOptions = args.group_commit.options();
    let outstanding = args.outstanding() as u64;
    let load = |commits, warmup_commits, seed| Load {
        clients: args.clients,
        in_flight: args.in_flight,
        warmup_commits,
        commits,
        seed,
        patience: &[],
        polls: None,
    };
    let pilot =
        simulate(regime, &options, &load((PILOT * outstanding).max(60), PILOT * outstanding, args.seed));
    let per_s = pilot.per_second();
    let most = if args.is_given("seconds") { u64::MAX } else { COMMITS_MAX };
    let (warmup, commits) = (commits_in(args.warmup, per_s), commits_in(args.seconds, per_s));
    let (warmup, commits) = (warmup.min(most / 5), commits.min(most));
    say(&format!(
        "running {} commits after {} of warm-up: about {:.3} s of virtual time",
        thousands(commits as f64),
        thousands(warmup as f64),
        commits as f64 / per_s
    ));
    let windows = (0..args.repeat)
        .map(|number| {
            let seed = args.seed.wrapping_add(u64::from(number) << 32);
            Window::of_outcome(&simulate(regime, &options, &load(commits, warmup, seed)), regime)
        })
        .collect();
    let about = About {
        clients: args.clients,
        in_flight: args.in_flight,
        seed: args.seed,
        group_commit: options,
        data: None,
        disk: describe(regime),
        machine: None,
        regime: Some(regime),
        write_path: None,
        uncounted: Some("it runs in virtual time".to_owned()),
        windows: args.repeat,
    };
    // A commit is answered by the code that is answered on a disk, and a lost wake-up ends the run; no byte is written.
    let text = "every commit was answered by the durable position; there is no log to read back".to_owned();
    Ok((about, windows, Verdict { consistent: true, text }))
}
