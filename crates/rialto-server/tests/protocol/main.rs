//! The protocol over sockets: bytes, messages and their states, errors, and clients that misbehave.

mod arrays;
mod backup_over_a_socket;
mod clean_up;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod copy_formats;
mod done_for_good;
mod error_fields;
mod fuzz;
#[path = "../../../rialto-sql/tests/common/in_process.rs"]
mod in_process;
mod messages;
mod never_durable;
mod parameters;
mod partitions;
mod pieces;
mod portals;
#[path = "../../../rialto/tests/common/seeds.rs"]
mod seeds;
mod sqlstates;
mod states;
mod strict;
mod tables_made_anew;
mod time_limits;
mod victims;
mod wire;
