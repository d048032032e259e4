//! [`RunQueue`]: how many threads wait for a processor, by the kernel's own account of each thread (`schedstat`).

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// A thread's first and last look: when, and how long it had waited by then.
#[derive(Debug, Clone, Copy)]
struct Looks {
    first: (Instant, Duration),
    last: (Instant, Duration),
}

/// The process's threads, watched from the first look on.
#[derive(Debug, Default)]
pub struct RunQueue {
    threads: HashMap<String, Looks>,
    looked: bool,
}

impl RunQueue {
    /// Looks at all threads. Those that end between two looks are known up to the one before.
    pub fn look(&mut self) {
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
            let Some(waited) = waited_in(&text) else { continue };
            self.looked = true;
            let now = (Instant::now(), waited);
            let thread = entry.file_name().to_string_lossy().into_owned();
            self.threads.entry(thread).or_insert(Looks { first: now, last: now }).last = now;
        }
    }

    /// The threads that were ready to run and had no processor, on average; `None` if the system does not tell.
    pub fn waiting(&self) -> Option<f64> {
        let rate = |looks: &Looks| {
            let time = (looks.last.0 - looks.first.0).as_secs_f64();
            let waited = looks.last.1.saturating_sub(looks.first.1).as_secs_f64();
            if time > 0.0 { waited / time } else { 0.0 }
        };
        self.looked.then(|| self.threads.values().map(rate).sum())
    }
}

/// The second figure: nanoseconds in the queue of a processor.
fn waited_in(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn more_busy_threads_than_processors_wait_for_one() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let stop = AtomicBool::new(false);
        let (mut queue, began) = (RunQueue::default(), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..4 * cores {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // At least as long as it takes to see it, whatever else runs here.
            while queue.waiting().is_none_or(|waiting| waiting < cores as f64)
                && began.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(20));
                queue.look();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let waiting = queue.waiting().expect("this kernel tells");
        // Three of four are without a processor.
        assert!(waiting >= cores as f64, "{waiting}");
    }

    #[test]
    fn the_second_figure_is_read() {
        assert_eq!(waited_in("12 3456 7\n"), Some(Duration::from_nanos(3456)));
        assert_eq!(waited_in("12"), None);
    }
}
