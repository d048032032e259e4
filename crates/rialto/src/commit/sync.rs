//! What `gate.rs` is made of; `model.rs` compiles the same source against a model checker's.

use std::time::Duration;

pub(super) use parking_lot::{Condvar, Mutex};
pub(super) use std::sync::atomic::{AtomicU8, AtomicU64, fence};

/// Lets others run; a packet is in flight for microseconds, unless its thread is not running.
pub(super) fn look_later(looks: u32) {
    match looks {
        ..20 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
