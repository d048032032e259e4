//! DORA's experiments (its section 5 and appendix A), on TM1 (TATP), TPC-B and TPC-C with log and data in memory.
//!
//! | file | what |
//! |---|---|
//! | [`system`] | what is compared: the conventional engine with central or thin locks, and the data-oriented one |
//! | [`workload`] | the workloads in memory, in a share of the paper's sizes |
//! | [`run`], [`run_queue`] | one load, and what it used of the machine: processors, and the queue for them |
//! | [`parts`] | a profile by what the engine was doing |
//! | [`curve`] | loads from one client to eight times the processors |
//! | [`by_load`] | dora-1, dora-6, dora-8: throughput against load |
//! | [`breakdown`] | dora-2, dora-3: where the time goes |
//! | [`locks`] | dora-5; [`response`]: dora-7 |
//! | [`accesses`] | dora-10; [`aborts`]: dora-11 |
//!
//! The paper's machine had 64 hardware contexts. Figures that need that many are drawn over the processors that there
//! are, and past 100% load by more clients than processors. Of the paper's curves only what its text says is known
//! here.

pub mod aborts;
pub mod accesses;
pub mod breakdown;
pub mod by_load;
pub mod curve;
pub mod locks;
pub mod parts;
pub mod response;
pub mod run;
pub mod run_queue;
pub mod system;
pub mod workload;

use super::Lab;
use crate::point::machine;
pub use system::System;

/// What a table of TM1's throughput counts.
const RAN: &str =
    "Throughput counts transactions that ran to an end, those of TM1 that fail by its rules included.";

/// The end of a paragraph: sizes and machine.
fn setting(lab: &Lab, sizes: &str, seconds: f64) -> String {
    format!(
        "{sizes}. Medians of {} rounds of {seconds} s a point, each round with tables that are loaded anew and verified at its end; a \
         ratio is the median of the rounds' ratios, with its interval by the sign test (of fewer than five rounds: the least and \
         the most). On {}.",
        lab.rounds,
        machine()
    )
}
