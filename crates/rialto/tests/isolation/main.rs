//! What transactions see of each other: strict histories, locks on keys, scans and tables, and how long waits for them
//! last.

#[path = "../common/mod.rs"]
mod common;
mod escalation;
mod lock_grain;
mod lock_timeouts;
mod strict;
mod unique_index;
