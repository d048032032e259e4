//! [`Guarantee`]: what an answered commit survives.

use std::fmt;

/// What an answered commit survives. Each is a section of the result, with banks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// The machine's crash: it is on the disk.
    Machine,
    /// The process's crash (SIGKILL): it is in the kernel's memory, or in memory that outlives the process.
    Process,
}

impl Guarantee {
    /// For file names and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Guarantee::Machine => "durable",
            Guarantee::Process => "not-durable",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guarantee::Machine => "durable: an answered commit is on disk",
            Guarantee::Process => "not durable: an answered commit survives SIGKILL of the process only",
        })
    }
}
