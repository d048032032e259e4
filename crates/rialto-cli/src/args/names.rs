//! The values that options of a database take by name.

use clap::ValueEnum;
use rialto::{Checkpointing, Durability, HandOver, LockGrain, Locks, TwoStage};

/// An engine that runs transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Each thread runs its own transactions, which lock the rows that they touch
    Conventional,
    /// The keys of each index are divided among executors, each with a lock table; a call of a procedure locks at
    /// the executors of its keys
    DataOriented,
}

impl EngineName {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            EngineName::Conventional => "conventional",
            EngineName::DataOriented => "data-oriented",
        }
    }
}

/// The durability of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityName {
    /// Level 1: a commit survives the end of the process, not a crash of the machine
    Memory,
    /// Level 3: a commit is on disk before it is acknowledged
    Disk,
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Durability {
        match name {
            DurabilityName::Memory => Durability::Memory,
            DurabilityName::Disk => Durability::Disk,
        }
    }
}

/// Where the conventional engine keeps its locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LocksName {
    /// In the records themselves, and in the slots of the transactions, until transactions conflict; then in queues
    Thin,
    /// Always in queues, in the hash table of a lock manager, as the baseline of the papers has them
    Central,
}

impl From<LocksName> for Locks {
    fn from(name: LocksName) -> Locks {
        match name {
            LocksName::Thin => Locks::Thin,
            LocksName::Central => Locks::Central,
        }
    }
}

/// How transactions on disk-resident tables are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TwoStageName {
    /// In one stage: a transaction reads pages while it holds locks
    #[value(name = "2pl")]
    TwoPhaseLocking,
    /// In two stages, always: the first reads the pages, without locks
    Tste,
    /// In one stage, until a page is missing; then in two
    Otste,
    /// Each procedure in one of these ways, chosen by how often its executions have read the disk
    Htste,
    /// Each procedure in the way that costs least, by measured times
    Adaptive,
}

impl From<TwoStageName> for TwoStage {
    fn from(name: TwoStageName) -> TwoStage {
        match name {
            TwoStageName::TwoPhaseLocking => TwoStage::TwoPhaseLocking,
            TwoStageName::Tste => TwoStage::Tste,
            TwoStageName::Otste => TwoStage::Otste,
            TwoStageName::Htste => TwoStage::Htste,
            TwoStageName::Adaptive => TwoStage::Adaptive,
        }
    }
}

/// How much a lock on a row of a disk-resident table locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LockGrainName {
    /// The row
    Record,
    /// About as many neighbours as are in a page, as in Charm's paper; found from the pages at the opening
    Page,
}

impl From<LockGrainName> for LockGrain {
    fn from(name: LockGrainName) -> LockGrain {
        match name {
            LockGrainName::Record => LockGrain::Record,
            LockGrainName::Page => LockGrain::Page,
        }
    }
}

/// When calls are handed over to threads that own executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HandOverName {
    /// If that thread is busy or has a backlog
    IfBusy,
    /// Always
    Always,
}

impl From<HandOverName> for HandOver {
    fn from(name: HandOverName) -> HandOver {
        match name {
            HandOverName::IfBusy => HandOver::IfBusy,
            HandOverName::Always => HandOver::Always,
        }
    }
}

/// How memory is brought to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointName {
    /// Copies segments as they are, one after another, while transactions change them
    Fuzzy,
    /// Copies segments as they were when the checkpoint began: a transaction that changes one before it is copied
    /// keeps the old version. Action-consistent: no change of a row is in the copy in part
    Accou,
    /// The same, and transaction-consistent: no transaction is in the copy in part
    Tccou,
    /// Black/white, action-consistent: a transaction runs again if one of its changes of a row touches both a
    /// segment that is copied already and one that is not
    Acbw,
    /// Black/white, transaction-consistent: a transaction that writes runs again if it touches both kinds of segments,
    /// also by reading
    Tcbw,
    /// No checkpoints, to measure what they cost
    None,
}

impl From<CheckpointName> for Checkpointing {
    fn from(name: CheckpointName) -> Checkpointing {
        match name {
            CheckpointName::Fuzzy => Checkpointing::Fuzzy,
            CheckpointName::Accou => Checkpointing::ActionCopyOnUpdate,
            CheckpointName::Tccou => Checkpointing::TransactionCopyOnUpdate,
            CheckpointName::Acbw => Checkpointing::ActionBlackWhite,
            CheckpointName::Tcbw => Checkpointing::TransactionBlackWhite,
            CheckpointName::None => Checkpointing::None,
        }
    }
}
