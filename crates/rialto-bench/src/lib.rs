//! `rialto bench`: workloads, closed-loop, ticket-based and open-loop clients, and what is measured while they run.
//!
//! | file | what |
//! |---|---|
//! | [`args`] | the command line, and what of its contract is built |
//! | [`workload`] | the seam between clients and what they run |
//! | [`tpcb`] | TPC-B: the bank, its transaction, its consistency condition |
//! | [`card`] | System M's credit cards: four sets, eight transactions, their consistency condition, a prompt for people |
//! | [`tatp`] | TATP (TM1): the subscribers of a mobile network, seven transactions, their consistency condition |
//! | [`tpcc`] | TPC-C: its tables, its population, its five transactions, its consistency conditions |
//! | [`mix`] | how often each transaction of a workload is run |
//! | [`shape`] | which workload a database holds |
//! | [`commit`] | bare commit sequences, on a disk or in virtual time |
//! | [`figures`] | `rialto figures`: the papers' experiments, each a table, a picture and a paragraph |
//! | [`driver`] | the clients: threads, phases, when a transaction starts and when it is done |
//! | [`histogram`], [`confidence`] | latencies; means with their intervals |
//! | [`counters`], [`usage`], [`alloc`] | instructions, device bytes, context switches, allocations |
//! | [`profile`] | where processor time goes, by the functions on sampled stacks |
//! | [`machine`] | what it ran on |
//! | [`calibrate`] | its calm and noisy spells |
//! | [`limits`] | what bare code reaches on it |
//! | [`versus`] | a run against another, in pairs |
//! | [`growth`] | whether a run fits |
//! | [`interrupt`] | Ctrl-C |
//! | [`session`] | one call of `rialto bench`, from the options to the exit code |
//! | [`report`], [`json`] | the table and the JSON object |
//! | [`steady`] | what `.ci/run` gates on: figures that are the same in every run |
//!
//! Kept here: clients share no cache line that one of them writes; a latency begins at the intended start in an open
//! loop; the data is verified on the real tables at the end of every run.

pub mod alloc;
pub mod args;
pub mod calibrate;
pub mod calls;
pub mod card;
pub mod commit;
pub mod confidence;
pub mod counters;
pub mod driver;
mod error;
pub mod figures;
pub mod group_commit;
pub mod growth;
pub mod histogram;
pub mod interrupt;
pub mod json;
pub mod limits;
pub mod log_writes;
pub mod machine;
pub mod mix;
pub mod profile;
pub mod report;
pub mod session;
pub mod shape;
pub mod steady;
pub mod tatp;
pub mod tpcb;
pub mod tpcc;
pub mod usage;
pub mod versus;
pub mod workload;

pub use args::BenchArgs;
pub use error::BenchError;
pub use session::run;

/// The procedures of all workloads, as which calls of theirs stand in a log.
pub fn procedures() -> Vec<rialto::Procedure> {
    [tpcb::procedures(), card::procedures(), tatp::procedures(), tpcc::procedures()].concat()
}
