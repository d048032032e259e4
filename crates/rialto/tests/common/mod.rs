//! Shared by the tests of histories: `history` is what transactions saw and the checker of it, `load` runs them.

pub mod history;
pub mod load;
