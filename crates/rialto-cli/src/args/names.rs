//! The values that options of a database take by name.

use clap::ValueEnum;
use rialto::{Checkpointing, Durability, HandOver, Locks};

/// How transactions meet threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Threads have transactions, which lock what they touch
    Conventional,
    /// Executors have the data, and transactions come to them
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

/// How durable "committed" is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityName {
    /// Level 1: in memory that outlives the process, not the machine
    Memory,
    /// Level 3: on disk
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

/// How locks are kept while no transaction competes for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LocksName {
    /// In the records' own headers and the transactions' slots
    Thin,
    /// In a hash of lock heads with queues, as the papers' baseline has them
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

/// When calls are handed over to threads that own executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HandOverName {
    /// If the thread is at work
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
    /// Segments as they are, one at a time
    Fuzzy,
    /// Segments as they were when the sweep began, action-consistent: a transaction that changes one keeps its old copy
    Accou,
    /// Likewise, transaction-consistent
    Tccou,
    /// Black/white, action-consistent: what moves a row between what is copied and what is not runs again
    Acbw,
    /// Black/white, transaction-consistent: so does every transaction that touches both
    Tcbw,
    /// Not at all: to measure what checkpoints cost
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
