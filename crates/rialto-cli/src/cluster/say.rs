//! [`say`]: a result, before the command goes on.

use std::fmt::Display;
use std::io::Write;

use super::failed::Failed;
use crate::output::Results;

/// Prints a line on stdout at once.
pub fn say(line: impl Display) -> Result<(), Failed> {
    let mut out = Results::new();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| Failed::failing(format_args!("standard output: {error}")))
}
