//! SQL, from its text to rows and errors, on databases in memory.

mod arrays;
mod bounds;
mod definitions;
mod docs;
mod isnull;
mod keys_no_row_has;
mod lifted;
mod plans;
mod random_settings;
#[path = "../../../rialto/tests/common/seeds.rs"]
mod seeds;
mod session;
mod settings;
mod statements;
mod types;
mod values;
