//! The scenarios of `transactions.rs`, with the lock tables of executors.

#[path = "transactions.rs"]
mod scenarios;
