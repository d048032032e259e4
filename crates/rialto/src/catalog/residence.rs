//! [`Residence`]: where a table lives.

use std::fmt;
use std::str::FromStr;

/// Where a table lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Residence {
    /// In memory; checkpoints and the log keep it (System M).
    #[default]
    Memory,
    /// In pages on the disk, of which those that are used lie in memory (Charm): for tables larger than memory.
    Disk,
}

impl fmt::Display for Residence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Residence::Memory => "memory",
            Residence::Disk => "disk",
        })
    }
}

impl FromStr for Residence {
    type Err = String;

    fn from_str(text: &str) -> Result<Residence, String> {
        match text {
            "memory" => Ok(Residence::Memory),
            "disk" => Ok(Residence::Disk),
            other => Err(format!("expected \"memory\" or \"disk\", found \"{other}\"")),
        }
    }
}
