//! The primitives of `cancellation.rs`; `model.rs` compiles the same source against a model checker's.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU16, fence};
