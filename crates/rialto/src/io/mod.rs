//! Disks and clocks: the seam between the kernel and the machine.
//!
//! [`Disk`] is a data directory, [`File`] an open file in it, [`SharedMap`] memory beside it that outlives the process,
//! [`Clock`] the time. The kernel does all its I/O through them, so that any disk can stand in for any other, and tables
//! and log can be placed on different ones.

mod buffer;
mod clock;
mod disk;
mod error;
mod file;
mod image;
mod map;
mod memory;
mod random;

#[cfg(test)]
mod conformance;

pub use buffer::{AlignedBuffer, BUFFER_ALIGNMENT};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use disk::{Caching, DirectoryLock, Disk, File, LOCK_FILE, Open};
pub use error::{DiskError, DiskResult};
pub use file::FileDisk;
pub use map::SharedMap;
pub use memory::MemoryDisk;
pub use random::Random;
