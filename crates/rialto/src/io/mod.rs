//! Disks and clocks: the interface between the kernel and the machine.
//!
//! [`Disk`] is a data directory, [`File`] an open file in it, [`SharedMap`] memory beside it that outlives the process,
//! [`Clock`] the time. The kernel does all its I/O through them, so that any disk can replace any other, and tables and
//! log can be placed on different disks. [`Disk`]'s own page says what survives a crash.
//!
//! | disk | its bytes are | for | survives |
//! |---|---|---|---|
//! | [`FileDisk`] | in a directory of a file system | production | the process and the machine |
//! | [`MemoryDisk`] | in memory | tests, throw-away databases | the end of the database, as long as a reference to the disk is kept |
//! | [`SimulatedDisk`] | another disk's, at the speed of a device model | the paper's devices, on any machine | what the other disk does |
//! | [`FaultyDisk`] | in memory, some of them lost in each crash | crash and error tests | what its fault model says |
//!
//! Kept here: no sync is tried again (I4); an error names its file, offset and operation; the simulations take all
//! their choices from one seed ([`Random`]). One conformance suite runs on every disk (`conformance.rs`). Unsafe code
//! lies in `buffer.rs`, `map.rs` and `ring.rs` alone.

mod buffer;
mod clock;
mod directory_holder;
mod disk;
mod error;
mod faulty;
mod file;
mod image;
mod machine_memory;
mod map;
mod memory;
mod processor;
mod random;
mod remove;
#[cfg(feature = "io-uring")]
mod ring;
mod simulated;
mod thread_number;
mod transfer;
mod virtual_clock;
#[cfg(test)]
pub(crate) mod watched;

#[cfg(test)]
mod conformance;

pub use buffer::{AlignedBuffer, BUFFER_ALIGNMENT};
pub use clock::{Clock, FOR_EVER, Moment};
pub use directory_holder::DirectoryHolder;
pub use disk::{Caching, DirectoryLock, Disk, File, LOCK_FILE, Open};
pub use error::{DiskError, DiskResult};
pub use faulty::{FaultKind, FaultyDisk, Stray, TracedStep};
pub use file::FileDisk;
pub use machine_memory::{MachineMemory, MemorySource};
pub use map::SharedMap;
pub use memory::MemoryDisk;
pub use processor::Processor;
pub use random::Random;
pub(crate) use remove::remove_in_steps;
pub use simulated::{DiskModel, SimulatedDisk, SimulatedWork, Spindle, Ssd};
pub use thread_number::number_thread;
pub(crate) use thread_number::thread_number;
pub use virtual_clock::{Scheduler, VirtualClock};
