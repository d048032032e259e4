//! Tables and indexes that are made, changed, loaded and dropped, beside writes, sweeps and at the bounds.

mod add_primary_key;
mod bulk_load;
#[path = "../common/mod.rs"]
mod common;
mod definitions_amid_writes;
mod definitions_beside_sweeps;
mod definitions_on_a_full_log;
mod dropped_at_the_bound;
mod moves_in_use;
mod seen_by_handles;
