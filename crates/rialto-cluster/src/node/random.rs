//! Numbers that no other process draws.

use rustix::rand::{GetRandomFlags, getrandom};

/// A random number of the system's.
///
/// # Panics
/// If the system has none, which Linux has since 3.17.
pub fn random_number() -> u64 {
    let mut bytes = [0; 8];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).expect("random bytes of the system");
    assert_eq!(filled, bytes.len(), "eight random bytes of the system");
    u64::from_le_bytes(bytes)
}
