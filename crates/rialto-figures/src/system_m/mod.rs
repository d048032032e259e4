//! System M's experiments (its section 4), on the credit cards behind its servers.
//!
//! - [`run`]: one setting on the disk, measured;
//! - [`throughput`]: m-4.1, [`contention`]: m-4.2, [`response`]: m-4.3, [`basics`]: m-4.4.
//!
//! A row of the paper whose strategy this program does not have, or whose combination the database refuses, is left out.

pub mod basics;
pub mod contention;
pub mod response;
pub mod run;
pub mod throughput;

use rialto::{Checkpointing, Logging};

/// A checkpointing and a logging strategy, by the paper's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strategy {
    /// As in the paper's tables.
    pub checkpoint: &'static str,
    /// As in the paper's tables.
    pub log: &'static str,
}

impl Strategy {
    /// The two, as this program has them; none if it lacks one.
    pub fn here(&self) -> Option<(Checkpointing, Logging)> {
        let checkpoint = match self.checkpoint {
            "FUZZY" => Checkpointing::Fuzzy,
            "ACCOU" => Checkpointing::ActionCopyOnUpdate,
            "TCCOU" => Checkpointing::TransactionCopyOnUpdate,
            "ACBW" => Checkpointing::ActionBlackWhite,
            "TCBW" => Checkpointing::TransactionBlackWhite,
            "NONE" => Checkpointing::None,
            _ => return None,
        };
        let log = match self.log {
            "VALUE" => Logging::Value,
            "AOPER" => Logging::Action,
            "TOPER" => Logging::Transaction,
            "NONE" => Logging::None,
            _ => return None,
        };
        Some((checkpoint, log))
    }

    /// For a table or a picture.
    pub fn name(&self) -> String {
        format!("{} {}", self.checkpoint, self.log)
    }
}

/// A strategy of the paper.
pub const fn strategy(checkpoint: &'static str, log: &'static str) -> Strategy {
    Strategy { checkpoint, log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_found_by_the_papers_names() {
        let found = strategy("FUZZY", "VALUE").here();
        assert_eq!(found, Some((Checkpointing::Fuzzy, Logging::Value)));
        assert_eq!(
            strategy("TCCOU", "AOPER").here(),
            Some((Checkpointing::TransactionCopyOnUpdate, Logging::Action))
        );
        assert_eq!(strategy("NONE", "NONE").here(), Some((Checkpointing::None, Logging::None)));
        assert_eq!(strategy("SHADOW", "VALUE").here(), None);
    }
}
