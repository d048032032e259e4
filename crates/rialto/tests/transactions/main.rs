//! The work of one transaction on its tables: operations, fields and rows, keys, handles, with each form of locks.

#![allow(clippy::duplicate_mod, reason = "the scenarios run with each form of locks")]

#[path = "../common/mod.rs"]
mod common;
mod derive;
mod fields;
mod foreign_handles;
mod large_transactions;
mod own_errors;
mod prefetch;
mod records;
mod repeated_changes;
mod row_numbers;
mod rows;
mod transactions;
mod transactions_central;
mod transactions_local;
mod zeros;
