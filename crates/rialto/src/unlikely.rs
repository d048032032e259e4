//! [`unlikely`]: tells the compiler which way of a branch is rare, so that the usual way keeps its registers.

use std::hint::cold_path;

/// A condition that almost never holds: the code behind it may be slow.
#[inline(always)]
pub(crate) fn unlikely(condition: bool) -> bool {
    if condition {
        cold_path();
    }
    condition
}
