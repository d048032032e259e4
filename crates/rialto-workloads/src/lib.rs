//! Workloads on Rialto: TPC-B, TPC-C, TATP and System M's credit cards.
//!
//! | module | what |
//! |---|---|
//! | [`tpcb`] | TPC-B: the bank, its transaction |
//! | [`card`] | System M's credit cards: four sets, eight transactions, the same behind System M's servers, a prompt for requests |
//! | [`tatp`] | TATP (TM1): the subscribers of a mobile network, seven transactions |
//! | [`tpcc`] | TPC-C: its nine tables, its population, its five transactions |
//! | [`workload`] | what all have in common: [`workload::Audited`], a load on tables with a consistency condition |
//! | [`data`] | the loader: how a workload's tables are created and filled, and how existing ones are recognised |
//! | `verify` | the verifier: rows visited, totals compared with what the clients were told, problems by kind |
//! | [`mix`] | how often each transaction of a workload is run |
//! | [`calls`] | a client's calls of a workload's procedures |
//!
//! Each workload has its tables and what they are loaded with, its transactions, as closures and as registered procedures
//! (TPC-C as procedures only), and its consistency condition, which is verified on the real tables. The clients that run
//! them are `rialto_measure`'s.

mod calendar;
pub mod calls;
pub mod card;
pub mod data;
pub mod mix;
pub mod tatp;
pub mod tpcb;
pub mod tpcc;
mod verify;
pub mod workload;

/// The procedures of all workloads, as which calls of theirs stand in a log.
pub fn procedures() -> Vec<rialto::Procedure> {
    [tpcb::procedures(), card::procedures(), tatp::procedures(), tpcc::procedures()].concat()
}
