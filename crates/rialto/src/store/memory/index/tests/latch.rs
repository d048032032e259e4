//! The latch under a model checker.
