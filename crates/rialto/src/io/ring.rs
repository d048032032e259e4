//! [`write_each`]: several writes of one thread at a time, by io_uring.
//!
//! One system call hands all of them to the device, which works on them side by side. Where the system has no io_uring, or
//! forbids it, they are made one after the other.
#![allow(unsafe_code)]

use std::cell::{OnceCell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

/// The most writes that are in progress at a time.
const AT_ONCE: usize = 64;

thread_local! {
    /// This thread's ring; `None` if the system gives none.
    static RING: OnceCell<Option<RefCell<IoUring>>> = const { OnceCell::new() };
}

/// What has become of writes: for each how many bytes were written, or the error.
type Outcomes = Vec<io::Result<usize>>;

/// Makes these writes, of bytes to offsets of a file, side by side. Any may be cut short. `None`: some or all are not made, since the
/// system has no ring for this thread.
pub(super) fn write_each(file: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> Option<Outcomes> {
    RING.with(|ring| {
        let ring = ring.get_or_init(|| IoUring::new(AT_ONCE as u32).ok().map(RefCell::new));
        let mut ring = ring.as_ref()?.borrow_mut();
        let mut outcomes = Vec::with_capacity(writes.len());
        for some in writes.chunks(AT_ONCE) {
            outcomes.extend(write_some(&mut ring, file, some)?);
        }
        Some(outcomes)
    })
}

/// Aborts the process if this is dropped with writes in progress, because the kernel still reads their buffers.
struct InProgress(usize);

impl Drop for InProgress {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::process::abort();
        }
    }
}

/// Whether a system call is to be made again: the system has no room for the moment, or a signal has come.
fn is_for_now(error: &io::Error) -> bool {
    [Errno::INTR, Errno::AGAIN, Errno::BUSY]
        .iter()
        .any(|now| error.raw_os_error() == Some(now.raw_os_error()))
}

fn write_some(ring: &mut IoUring, file: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> Option<Outcomes> {
    for (nth, (offset, bytes)) in writes.iter().enumerate() {
        let length = u32::try_from(bytes.len()).expect("no write has four gigabytes");
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), length)
            .offset(*offset)
            .build()
            .user_data(nth as u64);
        // SAFETY: the buffer and the file stay as they are until the write has ended, which this function waits for.
        unsafe { ring.submission().push(&write) }.expect("the queue has room for as many");
    }
    let mut in_progress = InProgress(writes.len());
    let mut outcomes: Outcomes = writes.iter().map(|_| Ok(0)).collect();
    while in_progress.0 > 0 {
        match ring.submit_and_wait(in_progress.0) {
            Ok(_) => {}
            Err(error) if is_for_now(&error) => std::thread::yield_now(),
            // None has begun: the system forbids what it gave before.
            Err(_) if in_progress.0 == writes.len() && ring.submission().len() == writes.len() => {
                in_progress.0 = 0;
                *ring = IoUring::new(AT_ONCE as u32).ok()?;
                return None;
            }
            Err(error) => panic!("a ring with writes in progress fails: {error}"),
        }
        for ended in ring.completion() {
            let outcome = match ended.result() {
                bytes @ 0.. => Ok(bytes as usize),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            outcomes[ended.user_data() as usize] = outcome;
            in_progress.0 -= 1;
        }
    }
    Some(outcomes)
}
