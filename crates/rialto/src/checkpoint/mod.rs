//! Checkpoints: how the memory-resident tables are brought to disk (System M, sections 2.3, 2.5 and 3.1).
//!
//! Two (or three) complete backup copies of the segments are written in turn (ping-pong). A checkpoint sweeps over the
//! segments and writes those that have changed since they were last written to the copy that is not in force; a write
//! of the home block then puts that one in force. Recovery loads the copy in force and redoes the log from the redo
//! start on.
//!
//! - [`home`]: the home block, and its crash argument;
//! - `image_run`: images of adjacent segments, written together;
//! - [`sweep`]: the mechanism that copies segments; [`fuzzy`], [`copy_on_update`], [`black_white`]: the policies that
//!   choose which segments and when;
//! - [`catalog_copy`]: the system tables of a copy, in their state at the redo start;
//! - [`image_sums`]: which images each copy holds, for the digest in the home block;
//! - `checkpointing`: the strategies by name, and which logging each goes with;
//! - [`checkpointer`]: one checkpoint in its order, and the thread that makes them; `source`: what it needs of the
//!   engine; `recovery_target`: when a checkpoint begins so that a recovery stays within a time; `readiness`: the
//!   measurements that this needs.
//!
//! Kept here:
//!
//! - **I5** A checkpoint writes only to a copy that is not in force. Before it does, with two copies, it retires the
//!   older home block, which names that copy, durably; then it frees the log and the load files that only this block
//!   needed. (With three copies no block names the copy: `home`.) It takes effect by one write of a home block. Before
//!   that write the copy is synced, and the log is on disk up to the *clearance*, a place that was read after the sweep
//!   had ended: the copy holds nothing after it. Redo starts at or before the oldest commit in progress when the sweep
//!   began. (The newest place is read first, then the commits in progress, so none is missed.) At a
//!   transaction-consistent cut no commit is in progress, and the redo start is the cut.
//! - The catalog in a copy is exactly that of the redo start, and the copy has segments of its tables and of no others.
//! - **I9** Images and home blocks are checksummed; the checksum depends on the database. The home block has a digest
//!   of all images in its copy.
//! - A failed checkpoint changes nothing: the one in force stays, the log that it needs stays, and the segments that
//!   were swept are marked dirty again.

pub(crate) mod black_white;
pub(crate) mod catalog_copy;
pub(crate) mod checkpointer;
mod checkpointing;
mod cleared;
pub(crate) mod copy_on_update;
pub(crate) mod fuzzy;
pub mod home;
mod image_run;
pub(crate) mod image_sums;
mod options;
mod readiness;
pub(crate) mod recovery_rates;
mod recovery_target;
mod report;
mod source;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;

pub(crate) use crate::store::Consistency;
pub(crate) use checkpointer::Checkpointer;
pub use checkpointing::Checkpointing;
pub(crate) use cleared::Cleared;
pub(crate) use image_run::RunLength;
pub(crate) use options::CheckpointOptions;
pub use readiness::RecoveryForecast;
pub use recovery_rates::{RecoveryEstimate, RecoveryRates, RecoveryWork};
pub use recovery_target::Outlook;
pub use report::{CheckpointReport, CheckpointStats};
pub(crate) use source::{CheckpointSource, Cut, Defined, HeldDefinitions};
