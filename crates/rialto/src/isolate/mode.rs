//! Lock modes: which of them are compatible, and what two of them held by one owner amount to.

use std::fmt;

/// The mode of a record lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordMode {
    /// Other transactions may read the record (or its absence), none may change it.
    Shared,
    /// No other transaction may read or change the record.
    Exclusive,
}

/// What a granted request changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Acquired {
    /// The owner had no lock of this name before.
    New,
    /// The owner had one in a weaker mode.
    Upgraded,
    /// The owner had it already, in this mode or a stronger one.
    Held,
}

/// The mode of a lock. Tables are locked in all of them, records in two ([`RecordMode`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LockMode {
    /// IS: record locks in shared mode will follow.
    IntentShared = 0,
    /// IX: record locks in exclusive mode will follow.
    IntentExclusive = 1,
    /// S: the whole is read.
    Shared = 2,
    /// SIX: the whole is read, parts of it are changed.
    SharedIntentExclusive = 3,
    /// X: the whole is changed, or its definition.
    Exclusive = 4,
}

/// A set of modes, one bit per mode.
pub(super) type ModeSet = u8;

/// The number of modes.
pub(super) const MODES: usize = 5;

const IS: ModeSet = 1;
const IX: ModeSet = 2;
const S: ModeSet = 4;
const SIX: ModeSet = 8;
const X: ModeSet = 16;

/// For each mode, the modes of other owners that it conflicts with.
const CONFLICTS: [ModeSet; MODES] = [X, S + SIX + X, IX + SIX + X, IX + S + SIX + X, IS + IX + S + SIX + X];

impl LockMode {
    /// Whether the mode is for the table as a whole, not an intention.
    #[inline]
    pub fn is_whole(self) -> bool {
        !matches!(self, LockMode::IntentShared | LockMode::IntentExclusive)
    }

    /// All modes, weakest first.
    #[cfg(test)]
    pub(super) const ALL: [LockMode; MODES] = [
        LockMode::IntentShared,
        LockMode::IntentExclusive,
        LockMode::Shared,
        LockMode::SharedIntentExclusive,
        LockMode::Exclusive,
    ];

    /// The set of this mode alone.
    pub(super) const fn bit(self) -> ModeSet {
        1 << self as u8
    }

    /// The modes of other owners that conflict with this one.
    pub(super) const fn conflicts(self) -> ModeSet {
        CONFLICTS[self as usize]
    }

    /// The weakest mode that allows what either of the two allows.
    pub const fn join(self, other: LockMode) -> LockMode {
        use LockMode::{Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive};
        match (self, other) {
            (Exclusive, _) | (_, Exclusive) => Exclusive,
            (SharedIntentExclusive, _)
            | (_, SharedIntentExclusive)
            | (Shared, IntentExclusive)
            | (IntentExclusive, Shared) => SharedIntentExclusive,
            (Shared, _) | (_, Shared) => Shared,
            (IntentExclusive, _) | (_, IntentExclusive) => IntentExclusive,
            (IntentShared, IntentShared) => IntentShared,
        }
    }
}

impl From<RecordMode> for LockMode {
    fn from(mode: RecordMode) -> LockMode {
        match mode {
            RecordMode::Shared => LockMode::Shared,
            RecordMode::Exclusive => LockMode::Exclusive,
        }
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockMode::IntentShared => "IS",
            LockMode::IntentExclusive => "IX",
            LockMode::Shared => "S",
            LockMode::SharedIntentExclusive => "SIX",
            LockMode::Exclusive => "X",
        })
    }
}
