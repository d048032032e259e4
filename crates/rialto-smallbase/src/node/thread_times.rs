//! [`ThreadTimes`]: how long a thread was on a core, and how long it was ready to run without one.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What the kernel has counted of the calling thread.
pub struct ThreadTimes(File);

/// The counts at some moment, or between two, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    pub on_core_ns: u64,
    pub ready_ns: u64,
}

impl Times {
    pub fn since(self, earlier: Times) -> Times {
        Times {
            on_core_ns: self.on_core_ns.saturating_sub(earlier.on_core_ns),
            ready_ns: self.ready_ns.saturating_sub(earlier.ready_ns),
        }
    }
}

impl ThreadTimes {
    /// Of the calling thread; `None` if the kernel does not count.
    pub fn open() -> Option<ThreadTimes> {
        let times = ThreadTimes(File::open("/proc/thread-self/schedstat").ok()?);
        times.look().map(|_| times)
    }

    /// The counts now.
    pub fn read(&mut self) -> Times {
        self.look().unwrap_or_default()
    }

    fn look(&self) -> Option<Times> {
        let mut bytes = [0; 96];
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some(Times { on_core_ns: numbers.next()?.ok()?, ready_ns: numbers.next()?.ok()? })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_works_is_on_a_core_and_one_that_sleeps_is_not() {
        let Some(mut times) = ThreadTimes::open() else { return };
        let before = times.read();
        let began = Instant::now();
        while times.read().since(before).on_core_ns < 20_000_000 {
            assert!(began.elapsed() < Duration::from_secs(60), "a thread that works is on a core");
            std::hint::black_box((0..100_000u64).sum::<u64>());
        }
        let before = times.read();
        std::thread::sleep(Duration::from_millis(100));
        let slept = times.read().since(before);
        assert!(slept.on_core_ns < 90_000_000, "{slept:?}");
    }
}
