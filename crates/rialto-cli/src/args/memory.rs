//! The bound on the memory of tables.

use clap::Args;
use rialto::Options;
use rialto::io::{MachineMemory, MemorySource};

use crate::output::tell;

/// The bound on the memory of tables.
#[derive(Debug, Clone, Copy, Args)]
pub struct MemoryArgs {
    /// The bound on the memory of tables and indexes, in bytes [default: three quarters of the machine's memory, or of
    /// the limit of the process's control group, which is less in a container]
    #[arg(long, value_name = "N")]
    memory_bytes: Option<u64>,
}

impl MemoryArgs {
    /// The bound.
    pub fn bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(|| Options::default().memory_bytes)
    }

    /// Whether it is on the command line.
    pub fn is_given(&self) -> bool {
        self.memory_bytes.is_some()
    }

    /// Warns if the bound is more than there is.
    pub fn warn(&self) {
        if let Some(warning) = self.warning(&MachineMemory::here()) {
            tell(format_args!("warning: {warning}"));
        }
    }

    /// Names the bound and the limit if the bound is larger.
    fn warning(&self, there: &MachineMemory) -> Option<String> {
        let bytes = self.memory_bytes.filter(|&bytes| bytes > there.bytes)?;
        let end = match there.source {
            MemorySource::Machine => "the machine may swap, or end the process",
            MemorySource::ControlGroup(_) => "the kernel ends a process that takes more",
        };
        Some(format!("--memory-bytes {bytes} is more than {there}: {end}"))
    }

    /// The bound, and where it comes from.
    pub fn describe(&self) -> String {
        let (bytes, there) = (self.bytes(), MachineMemory::here());
        match self.memory_bytes {
            Some(_) => format!("{bytes} bytes, by --memory-bytes (there are {there})"),
            None => format!("{bytes} bytes, three quarters of {there}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_beyond_what_there_is_is_warned_of_by_both_numbers() {
        let file = "/sys/fs/cgroup/memory.max";
        let there = MachineMemory { bytes: 1_000, source: MemorySource::ControlGroup(file.into()) };
        let warning = |memory_bytes| MemoryArgs { memory_bytes }.warning(&there);
        assert_eq!(warning(None), None);
        assert_eq!(warning(Some(1_000)), None);
        let said = warning(Some(1_001)).unwrap();
        assert!(
            ["--memory-bytes 1001 ", "1000 bytes", file].iter().all(|part| said.contains(part)),
            "{said}"
        );
    }
}
