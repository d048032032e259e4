//! A wait for a latch is counted for the thread that waits.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::super::latch::Latch;
use crate::account::waits;

#[test]
fn a_reader_that_meets_a_latched_node_counts_its_wait() {
    let latch = Latch::over(AtomicU64::new(0));
    let waited = (0..100).any(|_| {
        let before = waits::now();
        let word = latch.read().unwrap();
        assert_eq!(waits::now(), before, "an open latch costs no clock");
        assert!(latch.upgrade(word));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                assert_ne!(latch.read(), Some(word));
                waits::now().latch_ns
            });
            // A reader that begins only after this has nothing to wait for: then it is tried again.
            std::thread::sleep(Duration::from_millis(2));
            latch.unlock_changed();
            reader.join().unwrap() > 0
        })
    });
    assert!(waited);
}
