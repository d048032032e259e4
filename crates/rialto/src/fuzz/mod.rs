//! Fuzz targets: functions of arbitrary bytes that panic where a property of the kernel does not hold.
//!
//! Two drivers call them: the tests of this module, with bytes from a seed, for as long as `RIALTO_TEST_SECONDS` says;
//! and the program in `fuzz/` at the root of the repository, with bytes that libFuzzer finds by what they cover. The
//! inputs that libFuzzer has found are kept in `fuzz/corpus/` ([`Corpus`]), and the tests of this module try those,
//! too. This module is compiled only in tests and with the feature `fuzzing`. Other crates have targets of their own in
//! the same form ([`Target`]).
//!
//! Two kinds of bytes are tried on files. *Edits* ([`edit`]) are what a disk or an administrator does to valid files:
//! checksums break, and an opening must give what was once committed, or an error. *Forgeries* have right checksums and
//! senseless contents: no code may panic on them or accept them as what they are not.

mod archive;
mod backup;
mod calls;
mod corpus;
mod database;
mod edit;
mod forged_rows;
mod home;
mod log;
mod redo;
mod rows;
mod script;
mod suite;
mod tables;
mod target;
#[cfg(test)]
mod tests;

pub use corpus::Corpus;
pub use script::Script;
pub use suite::Suite;
pub use target::Target;

/// The kernel's targets.
pub const TARGETS: [Target; 12] = [
    Target { name: "archive_files", check: archive::archive_files, longest: 64, kept: 200 },
    Target { name: "backup_stream", check: backup::backup_stream, longest: 64, kept: 500 },
    Target { name: "backup_with_pages", check: backup::backup_with_pages, longest: 64, kept: 200 },
    Target { name: "database_files", check: database::database_files, longest: 64, kept: 200 },
    Target { name: "forged_calls", check: calls::forged_calls, longest: 60, kept: 200 },
    Target { name: "forged_home", check: home::forged_home, longest: 300, kept: 2_000 },
    Target { name: "forged_image", check: home::forged_image, longest: 400, kept: 1_000 },
    Target { name: "forged_log", check: log::forged_log, longest: 600, kept: 1_000 },
    Target { name: "forged_rows", check: forged_rows::forged_rows, longest: 40, kept: 200 },
    Target { name: "log_files", check: log::log_files, longest: 64, kept: 500 },
    Target { name: "redo_records", check: redo::redo_records, longest: 400, kept: 2_000 },
    Target { name: "rows_and_keys", check: rows::rows_and_keys, longest: 300, kept: 2_000 },
];
