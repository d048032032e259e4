//! Fuzz targets of SQL, in the form of the kernel's ([`rialto::fuzz`]): functions of arbitrary bytes that panic where a
//! property does not hold. The tests of this module try bytes from a seed and the inputs in `fuzz/corpus/`; the program
//! in `fuzz/` tries what libFuzzer finds. Compiled only in tests and with the feature `fuzzing`.
//!
//! A target keeps its databases from one input to the next, and each input finds them as they were ([`Fixture`]).

mod arrays;
mod client;
mod copy;
mod fixture;
mod statements;
#[cfg(test)]
mod tests;
mod words;

use rialto::fuzz::Target;

pub use fixture::{Fixture, contents};
pub use words::{is_harmless, tells_the_time, text};

/// The targets of SQL.
pub const TARGETS: [Target; 5] = [
    Target { name: "array_arguments", check: arrays::array_arguments, longest: 200, kept: 2_000 },
    Target { name: "copy_binary", check: copy::copy_binary, longest: 400, kept: 2_000 },
    Target { name: "copy_csv", check: copy::copy_csv, longest: 400, kept: 2_000 },
    Target { name: "copy_text", check: copy::copy_text, longest: 400, kept: 2_000 },
    Target { name: "sql_text", check: statements::statements, longest: 400, kept: 2_000 },
];
