//! The primitives of `in_progress.rs`; `model.rs` compiles the same source against a model checker's.

pub(super) use parking_lot::{Condvar, Mutex};
pub(super) use std::sync::atomic::{AtomicU8, AtomicU64, fence};

pub(super) use crate::io::Clock;
