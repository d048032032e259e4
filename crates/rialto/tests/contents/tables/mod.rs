//! The contents of a database as a model: [`Contents`] on plain maps, and a [`Drawer`] that draws transactions and
//! applies each operation to the database and to the model alike. Expectations come from the model alone.

#![allow(dead_code, reason = "each test program uses its part")]

pub mod contents;
pub mod drawer;

use std::sync::Arc;
use std::time::Duration;

pub use contents::Contents;
pub use drawer::Drawer;
use rialto::io::{Disk, Random};
use rialto::recovery::check::check;
use rialto::{Checkpointing, GroupCommitDesign, GroupCommitOptions, Logging};

pub fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// A kind of logging that keeps everything acknowledged, and a checkpointer that goes with it.
pub fn any_logging(random: &mut Random) -> (Logging, Checkpointing) {
    loop {
        let logging = one_of(random, &[Logging::Value, Logging::Action, Logging::Transaction]);
        let checkpoint = match random.chance(1, 4) {
            true => Checkpointing::None,
            false => one_of(random, &Checkpointing::ALL),
        };
        if logging.refuses(checkpoint).is_none() {
            return (logging, checkpoint);
        }
    }
}

/// A group commit design, with a time of its own or without.
pub fn any_group_commit(random: &mut Random) -> GroupCommitOptions {
    let design = one_of(random, &GroupCommitDesign::ALL);
    let time = one_of(random, &[None, Some(Duration::from_millis(3)), Some(Duration::from_millis(40))]);
    let mut options = GroupCommitOptions::from(design);
    match design {
        GroupCommitDesign::CommitStall | GroupCommitDesign::HiberStall => options.stall = time,
        GroupCommitDesign::WillingToWait | GroupCommitDesign::HiberWillingToWait => {
            options.willing_to_wait = time;
        }
        GroupCommitDesign::Hiber => options.wake_delay = time,
        _ => {}
    }
    options
}

/// `check` finds nothing wrong with the directory.
pub fn assert_sound(disk: Arc<dyn Disk>, about: &str) {
    let report = check(&disk, 256 << 20, 2).unwrap_or_else(|error| panic!("{about}: {error}"));
    assert!(report.is_sound(), "{about}: {report}");
}
