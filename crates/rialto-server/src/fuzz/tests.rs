//! The targets on bytes from a seed and on the kept inputs.

use rialto::fuzz::Suite;

use super::TARGETS;

/// Its stack is as deep as a session's.
const SUITE: Suite = Suite { targets: &TARGETS, stack_bytes: crate::STACK_BYTES };

#[test]
fn the_kept_inputs_hold() {
    SUITE.try_kept();
}

#[test]
fn any_bytes_are_answered_by_whole_messages() {
    SUITE.try_seeds("protocol_bytes");
}

#[test]
fn a_session_outlives_any_messages() {
    SUITE.try_seeds("protocol_messages");
}
