//! The workload `commit`: bare commit sequences, as KODA's experiments ran ("Details of the Experiments"). No database
//! work: a client writes a packet into the log and waits until it is durable, again and again.
//!
//! | file | what |
//! |---|---|
//! | [`sequences`] | the workload on a real log, and what has to be in the log at the end |
//! | [`real`] | a run on a disk |
//! | [`simulated`] | a run in virtual time, on a regime of [`rialto::log::virtual_time`] |
//! | [`result`] | what a window measured, as a table and as JSON |
//!
//! Invariant: a run is consistent if the durable position covers every commit that was answered, and the log, read
//! back after it was closed, holds them: whole, in order, none twice. A run on a disk keeps only the last part of its
//! log ([`real::KEPT_BYTES`]), so the room that it needs does not grow with its length.

pub mod real;
pub mod result;
pub mod sequences;
pub mod simulated;

use rialto::log::virtual_time::Regime;

pub use self::result::{About, Window};

/// Bytes of a packet: about what a TPC-B transaction logs.
pub const PACKET_BYTES: usize = 180;

/// Whether all commits that were answered are in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// They are.
    pub consistent: bool,
    /// What was found.
    pub text: String,
}

/// A regime's parameters, for people.
pub fn describe(regime: &Regime) -> String {
    let Regime {
        name,
        meaning,
        processors,
        commit_cpu,
        wake_cpu,
        look_cpu,
        resume_cpu,
        group_cpu,
        grant,
        write,
        group_max,
    } = regime;
    let group_max = group_max.map_or_else(|| "no bound".to_owned(), |packets| format!("at most {packets}"));
    format!(
        "sim:{name}: {meaning}\n  {processors} processors; a commit sequence takes {commit_cpu:?} of one (exponential), a \
         wake call {wake_cpu:?}, a wake-up {look_cpu:?} and {resume_cpu:?} more if it finds the commit durable, a group {group_cpu:?}; a lock grant takes {grant:?}, a log write \
         {write:?}; groups: {group_max}"
    )
}
