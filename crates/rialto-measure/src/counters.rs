//! [`Counters`]: what the operating system and the processor count for this process.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::time::Duration;

use crate::alloc;
use crate::calibrate::Calibrator;
use crate::usage::{Usage, process_cpu, thread_cpu};

/// `struct perf_event_attr` as of its first version, which every kernel takes.
#[repr(C)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 64);

const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_COUNT_HW_INSTRUCTIONS: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_USER: u64 = 1 << 4;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Instructions of this thread and of every thread that is begun from now on.
fn count_instructions(exclude: u64) -> std::io::Result<File> {
    let attributes = PerfEventAttr {
        kind: PERF_TYPE_HARDWARE,
        size: size_of::<PerfEventAttr>() as u32,
        config: PERF_COUNT_HW_INSTRUCTIONS,
        sample_period: 0,
        sample_type: 0,
        read_format: 0,
        flags: FLAG_INHERIT | FLAG_EXCLUDE_HYPERVISOR | exclude,
        wakeup: 0,
        breakpoint: 0,
        config1: 0,
    };
    let (this_thread, any_cpu, no_group) = (0 as libc::c_long, -1 as libc::c_long, -1 as libc::c_long);
    let attributes: *const PerfEventAttr = &attributes;
    // SAFETY: `attributes` points to a structure of the size that it names; the kernel only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes,
            this_thread,
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call gave this descriptor to us alone.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

/// What is counted, opened before the program's threads begin.
#[derive(Debug)]
pub struct Counters {
    user: Result<File, String>,
    kernel: Result<File, String>,
}

/// Sums since the program began, or since the counters were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Instructions in user mode.
    pub user_instructions: Option<u64>,
    /// Instructions in the kernel.
    pub kernel_instructions: Option<u64>,
    /// Context switches of all threads.
    pub switches: Option<Usage>,
    /// Bytes written to devices.
    pub device_bytes: Option<u64>,
    /// Allocations.
    pub allocations: Option<u64>,
    /// Processor time of all threads.
    pub cpu: Option<Duration>,
}

impl Counters {
    /// Opens what there is. Threads that run already are not counted.
    pub fn open() -> Counters {
        let open = |exclude| count_instructions(exclude).map_err(|error| format!("perf_event_open: {error}"));
        Counters { user: open(FLAG_EXCLUDE_KERNEL), kernel: open(FLAG_EXCLUDE_USER) }
    }

    /// Why instructions are not counted, if they are not.
    pub fn missing_because(&self) -> Option<&str> {
        [&self.user, &self.kernel].into_iter().find_map(|counter| counter.as_ref().err()).map(String::as_str)
    }

    /// The counts now.
    pub fn read(&self) -> Counts {
        Counts {
            user_instructions: read_count(&self.user),
            kernel_instructions: read_count(&self.kernel),
            switches: Usage::of_process(),
            device_bytes: device_bytes(),
            allocations: alloc::allocations(),
            cpu: process_cpu(),
        }
    }

    /// The counts now, without this thread and its calibrations: for the thread that watches a window.
    pub fn read_beside(&self, calibrator: &Calibrator) -> Counts {
        let mut counts = self.read();
        counts.switches = counts
            .switches
            .zip(Usage::of_thread())
            .map(|(all, own)| all.since(own).since(calibrator.echo_switches()));
        counts.cpu = counts.cpu.zip(thread_cpu()).map(|(all, own)| all.saturating_sub(own));
        counts.device_bytes =
            counts.device_bytes.map(|bytes| bytes.saturating_sub(calibrator.written_bytes()));
        counts
    }
}

fn read_count(counter: &Result<File, String>) -> Option<u64> {
    let mut value = [0; 8];
    counter.as_ref().ok()?.read_exact(&mut value).ok()?;
    Some(u64::from_ne_bytes(value))
}

/// Bytes that the process has caused to be written to devices.
fn device_bytes() -> Option<u64> {
    written_in(&std::fs::read_to_string("/proc/self/io").ok()?)
}

fn written_in(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

impl Counts {
    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let less =
            |now: Option<u64>, then: Option<u64>| now.zip(then).map(|(now, then)| now.saturating_sub(then));
        Counts {
            user_instructions: less(self.user_instructions, earlier.user_instructions),
            kernel_instructions: less(self.kernel_instructions, earlier.kernel_instructions),
            switches: self.switches.zip(earlier.switches).map(|(now, then)| now.since(then)),
            device_bytes: less(self.device_bytes, earlier.device_bytes),
            allocations: less(self.allocations, earlier.allocations),
            cpu: self.cpu.zip(earlier.cpu).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_instructions_of_later_threads_or_says_why_not() {
        let counters = Counters::open();
        let before = counters.read();
        std::thread::spawn(|| {
            std::hint::black_box((0..1_000_000u64).fold(0, |a, b| a ^ std::hint::black_box(b)))
        })
        .join()
        .unwrap();
        let counted = counters.read().since(&before);
        match counters.missing_because() {
            None => assert!(counted.user_instructions.unwrap() > 1_000_000, "{counted:?}"),
            Some(reason) => assert!(reason.starts_with("perf_event_open: ") && !reason.is_empty()),
        }
    }

    #[test]
    fn counts_bytes_for_devices() {
        assert_eq!(written_in("wchar: 7\nwrite_bytes: 4096\ncancelled_write_bytes: 1\n"), Some(4096));
        assert_eq!(written_in("wchar: 7\n"), None);
    }
}
