//! Fuzz targets of the protocol, in the form of the kernel's ([`rialto::fuzz`]): functions of arbitrary bytes that
//! panic where a property does not hold. The tests of this module try bytes from a seed and the inputs in
//! `fuzz/corpus/`; the program in `fuzz/` tries what libFuzzer finds. Compiled only in tests and with the feature
//! `fuzzing`.
//!
//! A session is served as usual, on the thread of the target, by a stream in memory ([`Pieces`]).

mod messages;
mod pieces;
#[cfg(test)]
mod tests;
mod written;

use rialto::fuzz::Target;

pub use pieces::{InMemory, Pieces};

/// The targets of the protocol.
pub const TARGETS: [Target; 2] = [
    Target { name: "protocol_bytes", check: messages::protocol_bytes, longest: 400, kept: 1_000 },
    Target { name: "protocol_messages", check: messages::protocol_messages, longest: 400, kept: 1_000 },
];
