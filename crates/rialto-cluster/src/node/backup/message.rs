//! [`BackupMessage`]: what the node that takes a backup, and the primaries of the partitions, say to each other.

use serde::{Deserialize, Serialize};

use crate::protocol::PartitionId;

/// A message about a backup of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMessage {
    /// The backup: a number that its node has drawn.
    pub backup: u64,
    /// The partition.
    pub partition: PartitionId,
    /// What is said.
    pub body: Body,
}

/// What is said. Everything is said again and again until the other one has gone on, so it may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// The primary is to go this far.
    Goes(Far),
    /// The primary is there.
    Is(Stage),
}

/// How far a primary is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Far {
    /// To its cut, and no further.
    Near,
    /// It prepares no more branches.
    Hold,
    /// It makes the cut, and keeps commits waiting.
    Cut,
    /// Commits go on.
    Go,
    /// The backup is given up.
    End,
}

/// Where the backup of a partition is. It goes from each one to a later one only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// It waits for a checkpoint that runs.
    Begins,
    /// Its cut comes next.
    Near,
    /// Nothing is prepared.
    Clear,
    /// It is at its cut.
    AtCut,
    /// It copies.
    Past,
    /// It has failed, for this reason.
    Failed(String),
}

impl Stage {
    /// What it does there.
    pub fn in_words(&self) -> &str {
        match self {
            Stage::Begins => "waits for a checkpoint",
            Stage::Near => "waits until nothing is in doubt",
            Stage::Clear => "waits for its cut",
            Stage::AtCut => "is at its cut",
            Stage::Past => "copies",
            Stage::Failed(why) => why,
        }
    }

    /// Whether it is as far as a primary that was to go so far.
    pub fn has_reached(&self, far: Far) -> bool {
        match far {
            Far::Near => !matches!(self, Stage::Begins | Stage::Failed(_)),
            Far::Hold => matches!(self, Stage::Clear | Stage::AtCut | Stage::Past),
            Far::Cut => matches!(self, Stage::AtCut | Stage::Past),
            Far::Go => matches!(self, Stage::Past),
            Far::End => true,
        }
    }
}
