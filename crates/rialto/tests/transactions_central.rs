//! The scenarios of `transactions.rs`, with central locks.

#[path = "transactions.rs"]
mod scenarios;
