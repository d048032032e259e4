//! [`write_each`] and [`read_each`]: several writes, or reads, of one thread at a time, by io_uring.
//!
//! One system call hands all of them to the device, which works on them side by side. Where the system has no io_uring, or
//! forbids it, they are made one after the other.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

/// The most transfers that are in progress at a time.
const AT_ONCE: usize = 64;

thread_local! {
    static RING: RefCell<ThreadsRing> = const { RefCell::new(ThreadsRing::Untried) };
}

/// The ring of a thread.
enum ThreadsRing {
    Untried,
    Made(Box<IoUring>),
    /// The system gives none, or forbids the one that it gave. It is not asked again.
    Refused,
}

/// What has become of transfers: for each how many bytes were written or read, or the error.
type Outcomes = Vec<io::Result<usize>>;

/// Makes these writes, of bytes to offsets of a file, side by side. Any may be cut short. `None`: some or all are not made, since the
/// system has no ring for this thread.
pub(super) fn write_each(file: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> Option<Outcomes> {
    let file = types::Fd(file.as_raw_fd());
    let entry = |(offset, bytes): &(u64, &[u8])| {
        opcode::Write::new(file, bytes.as_ptr(), length_of(bytes)).offset(*offset).build()
    };
    // SAFETY: the file and the buffers are borrowed until the call returns.
    unsafe { transfer_each(writes.iter().map(entry)) }
}

/// Makes these reads, from offsets of a file, side by side, in the same way.
pub(super) fn read_each(file: BorrowedFd<'_>, reads: &mut [(u64, &mut [u8])]) -> Option<Outcomes> {
    let file = types::Fd(file.as_raw_fd());
    let entry = |(offset, buffer): &mut (u64, &mut [u8])| {
        opcode::Read::new(file, buffer.as_mut_ptr(), length_of(buffer)).offset(*offset).build()
    };
    // SAFETY: the file is borrowed until the call returns, and so are the buffers, for this function alone.
    unsafe { transfer_each(reads.iter_mut().map(entry)) }
}

fn length_of(buffer: &[u8]) -> u32 {
    u32::try_from(buffer.len()).expect("no transfer has four gigabytes")
}

/// Makes the transfers of these entries.
///
/// # Safety
/// The file and the buffers of each stay as they are until this returns; the buffer of a read is not used by others meanwhile.
unsafe fn transfer_each(entries: impl ExactSizeIterator<Item = squeue::Entry>) -> Option<Outcomes> {
    RING.with_borrow_mut(|threads| {
        if matches!(threads, ThreadsRing::Untried) {
            let made = IoUring::new(AT_ONCE as u32);
            *threads = made.map_or(ThreadsRing::Refused, |ring| ThreadsRing::Made(Box::new(ring)));
        }
        let ThreadsRing::Made(ring) = threads else { return None };
        let mut outcomes = Vec::with_capacity(entries.len());
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            // SAFETY: by the caller.
            match unsafe { transfer_some(ring, entries.by_ref().take(AT_ONCE)) } {
                Some(made) => outcomes.extend(made),
                None => {
                    // What was queued must not be submitted with later transfers.
                    *threads = ThreadsRing::Refused;
                    return None;
                }
            }
        }
        Some(outcomes)
    })
}

/// Aborts the process if this is dropped with transfers in progress, because the kernel still uses their buffers.
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

/// `None`: the ring takes no transfers; it has those that were queued, and is not to be used again.
///
/// # Safety
/// As [`transfer_each`].
unsafe fn transfer_some(
    ring: &mut IoUring,
    entries: impl Iterator<Item = squeue::Entry>,
) -> Option<Outcomes> {
    let mut count = 0;
    for entry in entries {
        // SAFETY: the buffer and the file stay as they are until the transfer has ended, which this function waits for.
        unsafe { ring.submission().push(&entry.user_data(count as u64)) }
            .expect("the queue has room for as many");
        count += 1;
    }
    let mut in_progress = InProgress(count);
    let mut outcomes: Outcomes = (0..count).map(|_| Ok(0)).collect();
    while in_progress.0 > 0 {
        match ring.submit_and_wait(in_progress.0) {
            Ok(_) => {}
            Err(error) if is_for_now(&error) => std::thread::yield_now(),
            // None has begun: the system forbids what it gave before.
            Err(_) if in_progress.0 == count && ring.submission().len() == count => {
                in_progress.0 = 0;
                return None;
            }
            Err(error) => panic!("a ring with transfers in progress fails: {error}"),
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    const CHILD: &str = "RIALTO_RING_TEST_CHILD";

    /// Not a test by itself: a process whose ring is taken away, and that gets no other one.
    #[test]
    fn child_whose_ring_is_refused() {
        let Ok(path) = std::env::var(CHILD) else { return };
        let (file, null) = (File::create(path).unwrap(), File::open("/dev/null").unwrap());
        let bytes = [7; 4_096];
        let writes = [(0, &bytes[..]), (8_192, &bytes[..])];
        if write_each(file.as_fd(), &writes).is_none() {
            // The system has no rings.
            return;
        }
        let fd = RING.with_borrow(|threads| match threads {
            ThreadsRing::Made(ring) => ring.as_raw_fd(),
            _ => unreachable!("it has just been used"),
        });
        // SAFETY: the ring keeps its descriptor, which is another file's from now on.
        let mut fd = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        rustix::io::dup2(&null, &mut fd).unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: limit.maximum }).unwrap();
        assert!((0..3).all(|_| write_each(file.as_fd(), &writes).is_none()));
    }

    /// The system forbids the ring that it gave, and gives no other one. Writes that were queued there are not submitted later.
    #[test]
    fn writes_that_no_ring_takes_are_not_kept() {
        let path = std::env::temp_dir().join(format!("rialto-ring-{}", std::process::id()));
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "io::ring::tests::child_whose_ring_is_refused"])
            .env(CHILD, &path)
            .status()
            .unwrap();
        _ = std::fs::remove_file(path);
        assert!(status.success(), "{status}");
    }
}
