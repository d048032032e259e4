//! [`Usage`]: the context switches of a thread, or of the whole process; and the processor time that they have used.

#![allow(unsafe_code)]

use std::ops::AddAssign;
use std::time::Duration;

/// Context switches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The thread went to sleep, and was woken.
    pub voluntary: u64,
    /// The thread was taken off its core.
    pub involuntary: u64,
}

impl Usage {
    /// Of all threads of the process, ended ones included; `None` if the system does not tell.
    pub fn of_process() -> Option<Usage> {
        read(libc::RUSAGE_SELF)
    }

    /// Of the calling thread.
    pub fn of_thread() -> Option<Usage> {
        read(libc::RUSAGE_THREAD)
    }

    /// What came since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }
}

/// Processor time, in user mode and in the kernel, of all threads of the process, ended ones included; `None` if the system
/// does not tell.
pub fn process_cpu() -> Option<Duration> {
    cpu(&rusage(libc::RUSAGE_SELF)?)
}

/// The same of the calling thread.
pub fn thread_cpu() -> Option<Duration> {
    cpu(&rusage(libc::RUSAGE_THREAD)?)
}

fn cpu(usage: &libc::rusage) -> Option<Duration> {
    let time = |time: &libc::timeval| {
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
        Some(seconds + Duration::from_micros(u64::try_from(time.tv_usec).ok()?))
    };
    Some(time(&usage.ru_utime)? + time(&usage.ru_stime)?)
}

fn read(of: libc::c_int) -> Option<Usage> {
    let usage = rusage(of)?;
    let count = |count: libc::c_long| u64::try_from(count).ok();
    Some(Usage { voluntary: count(usage.ru_nvcsw)?, involuntary: count(usage.ru_nivcsw)? })
}

fn rusage(of: libc::c_int) -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure that the pointer names.
    let outcome = unsafe { libc::getrusage(of, usage.as_mut_ptr()) };
    if outcome != 0 {
        return None;
    }
    // SAFETY: plain numbers, zeroed and then filled.
    Some(unsafe { usage.assume_init() })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_counts_its_own_sleeps_and_the_process_all() {
        let before = Usage::of_process().unwrap();
        let own_before = Usage::of_thread().unwrap();
        let of_thread = std::thread::spawn(|| {
            (0..20).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
            Usage::of_thread().unwrap()
        });
        let of_thread = of_thread.join().unwrap();
        let own = Usage::of_thread().unwrap().since(own_before);
        assert!(of_thread.voluntary >= 20, "{of_thread:?}");
        assert!(own.voluntary < 20, "another thread's sleeps are not ours: {own:?}");
        assert!(Usage::of_process().unwrap().since(before).voluntary >= 20);
    }

    #[test]
    fn a_thread_that_works_uses_processor_time_and_one_that_sleeps_none() {
        let (process, own) = (process_cpu().unwrap(), thread_cpu().unwrap());
        let worked = std::thread::spawn(|| {
            let began = Instant::now();
            // Until the clock of processor time has moved, however many others run.
            while thread_cpu().unwrap() < Duration::from_millis(20)
                && began.elapsed() < Duration::from_secs(20)
            {
                std::hint::black_box((0..10_000u64).sum::<u64>());
            }
            thread_cpu().unwrap()
        });
        let worked = worked.join().unwrap();
        assert!(worked >= Duration::from_millis(20), "{worked:?}");
        assert!(process_cpu().unwrap() - process >= Duration::from_millis(20));
        assert!(thread_cpu().unwrap() - own < Duration::from_millis(20), "another thread's work is not ours");
    }
}
