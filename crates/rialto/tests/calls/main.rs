//! Procedures, flows and their calls on all engines: their meaning, their log records, and what their callers learn.

mod account;
mod calls;
mod close;
#[path = "../common/mod.rs"]
mod common;
mod flows;
mod handles_in_bodies;
mod message_servers_in_bodies;
mod procedures;
mod runs;
mod sent;
mod served_failures;
