//! [`unlikely`]: what the compiler is told of a branch, so that the usual way keeps its registers.

use std::hint::cold_path;

/// A condition that nearly never holds: what is done then may cost what it will.
#[inline(always)]
pub(crate) fn unlikely(condition: bool) -> bool {
    if condition {
        cold_path();
    }
    condition
}
