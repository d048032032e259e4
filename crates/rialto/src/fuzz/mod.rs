//! Fuzz targets: functions of arbitrary bytes that panic where a property of the kernel does not hold.
//!
//! Two drivers call them: the tests below, with bytes from a seed, for as long as `RIALTO_TEST_SECONDS` says; and the
//! programs in `fuzz/` at the root of the repository, with bytes that libFuzzer finds by what they cover. Only in tests
//! and with the feature `fuzzing`.
//!
//! Two kinds of bytes are tried on files. *Edits* ([`edit`]) are what a disk or a person does to valid files: checksums
//! break, and what is opened must be what was once committed, or an error. *Forgeries* have right checksums and senseless
//! contents: no code may panic on them or take them for what they are not.

mod calls;
mod database;
mod edit;
mod forged_rows;
mod home;
mod log;
mod redo;
mod rows;
#[cfg(test)]
mod tests;

pub use calls::forged_calls;
pub use database::database_files;
pub use forged_rows::forged_rows;
pub use home::{forged_home, forged_image};
pub use log::{forged_log, log_files};
pub use redo::redo_records;
pub use rows::rows_and_keys;

/// A target: bytes in, a panic if a property does not hold.
pub type Target = fn(&[u8]);

/// All targets, with the longest input that is of use to each.
pub const TARGETS: [(&str, Target, usize); 9] = [
    ("database_files", database_files, 64),
    ("forged_calls", forged_calls, 60),
    ("forged_home", forged_home, 300),
    ("forged_image", forged_image, 400),
    ("forged_log", forged_log, 600),
    ("forged_rows", forged_rows, 40),
    ("log_files", log_files, 64),
    ("redo_records", redo_records, 400),
    ("rows_and_keys", rows_and_keys, 300),
];
