//! Charm's experiments (its section 4): TPC-C on tables larger than memory, on the paper's machine in virtual time
//! (`sim:charm`), under each strategy of two-stage execution.
//!
//! - [`run`]: one setting, measured;
//! - [`concurrency`]: charm-2, charm-3, charm-t1 to charm-t3, by the number of concurrent transactions;
//! - [`caches`]: charm-4, charm-5, charm-t4, charm-t5, by the size of the cache;
//! - [`strategies`]: charm-t6 to charm-t8;
//! - `sweep`: every strategy at several values of one thing.

pub mod caches;
pub mod concurrency;
pub mod run;
pub mod strategies;
mod sweep;

use rialto::TwoStage;
use rialto_measure::RunError;

use self::caches::DEFAULT;
use self::run::{RUN, Runs, Sample, Setting, WARMUP_WINDOWS, Windows};
use super::rounds::Rounds;

/// The strategies, in the order of tables; the first is the baseline.
const STRATEGIES: [TwoStage; 5] =
    [TwoStage::TwoPhaseLocking, TwoStage::Tste, TwoStage::Otste, TwoStage::Htste, TwoStage::Adaptive];

/// Warehouses, concurrent transactions and cache of those experiments that do not vary them.
const WAREHOUSES: u32 = 5;
const CLIENTS: u32 = 4;

impl Setting {
    /// The setting of the experiments that vary nothing else, under this strategy.
    fn of(two_stage: TwoStage) -> Setting {
        Setting { warehouses: WAREHOUSES, cache_bytes: DEFAULT, clients: CLIENTS, two_stage, run: RUN }
    }
}

/// What was measured in a setting under each strategy, in the order of [`STRATEGIES`].
struct ByStrategy(Vec<(TwoStage, Windows)>);

impl ByStrategy {
    fn measure(runs: Runs<'_>, setting: impl Fn(Setting) -> Setting) -> Result<ByStrategy, RunError> {
        let one = |strategy| Ok((strategy, runs.of(setting(Setting::of(strategy)))?));
        STRATEGIES.into_iter().map(one).collect::<Result<_, RunError>>().map(ByStrategy)
    }

    /// Under one of them.
    fn of(&self, strategy: TwoStage) -> &Rounds<Sample> {
        let (_, found) = self.0.iter().find(|(one, _)| *one == strategy).expect("it is one of them");
        found
    }
}

/// How the machine is set, for the paragraph of a figure.
fn machine(runs: Runs<'_>) -> String {
    let tables = match runs.are_small() {
        true => "small tables (their figures mean nothing)".to_owned(),
        false => {
            format!(
                "{WAREHOUSES} warehouses and a cache of {} MB, unless a row says otherwise",
                DEFAULT / 1_000_000
            )
        }
    };
    let (windows, commits) = (runs.0.rounds, runs.0.commits);
    format!(
        "TPC-C with {tables}, on `sim:charm`, in virtual time. Each run of a transaction takes {} ms of one processor. Pages of 4 KiB are \
         locked. Commits are of level 1. Each point has {windows} windows of about {commits} transactions, one after the other in one \
         database, after at least {} transactions that are not counted. A figure is the median of the windows, with the least and the \
         most of them. A ratio is the median over the windows of the same number, with an interval by the sign test, from low to high; \
         windows of one database are not independent, so the interval shows how much the ratio varies within a run.",
        RUN.as_millis(),
        WARMUP_WINDOWS * commits,
    )
}
