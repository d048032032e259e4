//! Counts of what the lives of databases on mounted disks have met.

/// Counts of what was done, for the tally.
#[derive(Debug, Default)]
pub struct Tally {
    pub power_lost: u64,
    pub killed: u64,
    /// Of the losses of power and kills: those on the data-oriented engine.
    pub data_oriented: u64,
    pub asked: u64,
    pub faults: u64,
    pub stopped: u64,
    pub full: u64,
    pub backups: u64,
    /// Restores of backups alone.
    pub restored: u64,
    /// Restores with the archive.
    pub to_the_end: u64,
    pub to_a_place: u64,
    pub to_a_time: u64,
    /// Archives on the machine that fails.
    pub archives_on_machine: u64,
    /// Clients that were refused for lack of memory.
    pub no_memory: u64,
    /// Definitions of the table that all clients write to, during their work.
    pub defined: u64,
    pub checks: u64,
    pub transactions: u64,
    /// Interrupted reads and writes.
    pub interrupted: u64,
    pub short: u64,
}
