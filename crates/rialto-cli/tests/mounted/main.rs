//! The real program on file systems that fail: `rialto serve`, as a process, on a mounted directory.
//!
//! The kernel's own crash tests run in one process on [`FaultyDisk`], behind the `Disk` trait. Here nothing is left out
//! between a PostgreSQL client and the disk: the sockets, the server, `FileDisk`, the system calls, a process that is
//! killed.
//!
//! # The faulty mount
//!
//! `mount.rs` mounts a [`FaultyDisk`] by FUSE (`served.rs`). The fault model is that disk's; its module describes it:
//!
//! - *The power goes* in a random step: that step and every later call fails with `EIO`, the process is killed, and the
//!   next mount shows what the machine finds again. What was synced is there; of the rest any sectors, lengths and
//!   names are kept or lost. The machine's boot has another number: the server reads a file of the test in place of the
//!   kernel's `boot_id`.
//! - *The process is killed* (`SIGKILL`), at a random step, which takes place or not. The mount stays, with everything
//!   that was written.
//! - *A write or a sync fails* once (`EIO`), of a log file, the home block, a backup copy, a load file or the
//!   directory. With a failed sync the disk forgets what was to be written, and may show the old bytes.
//! - *The disk is full* (`ENOSPC`) after a random number of bytes.
//! - *A read or write is short*, and *a read, a write, a sync, an opening or an allocation is interrupted* (`EINTR`):
//!   one in 16 each, all the time, without an error for the caller. A mount with an odd seed has no `fallocate`, so
//!   that such writes make the room of files, too.
//!
//! The steps are random in each life (`lives.rs`); and one piece of work ends at each of its steps in turn, by loss of
//! power and by kill (`turns.rs`).
//!
//! The kernel's page cache is not used, because the disk models one. The ring of the log, which is mapped into memory,
//! is the exception: its pages belong to the kernel, outlive a kill, and reach the disk when the kernel writes them.
//! Direct access needs whole blocks here, as on other file systems. A write to a file opened with `O_DSYNC` is durable
//! by itself, and makes nothing else durable.
//!
//! # File systems that fill up
//!
//! ext4, XFS and btrfs, each in a sparse file, mounted by a loop device. A file takes all of the room but a little
//! while clients work (`full.rs`). A refusal says what is full and what to do. The server goes on for readers, or stops
//! and says why. With room again, by the same server or the next, nothing that was acknowledged is lost. On btrfs a
//! server may stall until there is room.
//!
//! # What is checked
//!
//! Each client has tables that it alone changes, and notes what was acknowledged, and at which level. What a server
//! finds is the result of the client's transactions up to one of them: at least up to the last acknowledged (of level
//! disk only, or with one of level disk after it, if the power went), at most up to the one without an answer
//! (`ledger.rs`). Untouched rows are unchanged, transfers between accounts keep their sum, `rialto check` finds the
//! directory sound, and no server panics.
//!
//! All clients count their transactions in one table, whose indexes are made and dropped meanwhile, and which is
//! emptied and made anew. Its contents follow from how far each client had counted then (`crowd.rs`).
//!
//! The last backup of a life is restored, and a server finds there what had been acknowledged when the backup was
//! requested, and nothing later than its end. Half of the databases archive their log, half of these to the machine
//! that fails. A backup of this life or an earlier one is restored with the archive (`copies.rs`): to its end, which
//! has everything that had been acknowledged when the log was archived last, and nothing that the machine's own
//! recovery lacks; to the place of a later backup, which gives the same as that backup; to a time, which gives
//! everything that was durable by then, and nothing that began later.
//!
//! These tests need the right to mount. Where FUSE is missing they say so and are skipped; with `CI=true` that is a
//! failure.
//!
//! [`FaultyDisk`]: rialto::io::FaultyDisk

mod archive;
mod calls;
mod change;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod crowd;
mod full;
mod kept;
mod killer;
mod ledger;
mod lives;
mod loop_mount;
mod mount;
mod names;
mod reluctance;
#[path = "../../../rialto/tests/common/seeds.rs"]
mod seeds;
mod served;
mod server;
mod tables;
mod tally;
mod turns;
mod untouched;
mod work;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rialto::io::{FaultyDisk, Random};

use common::Directory;
use loop_mount::{Kind, LoopMount};
use mount::Mounted;
use seeds::{for_a_while, for_a_while_until};
use tally::Tally;

/// Says that something is missing that a test needs, which fails with `CI=true`: there root runs the tests, and the
/// kernel has FUSE and loop devices.
fn skipped(what: &str) {
    let is_ci = std::env::var("CI").as_deref() == Ok("true");
    let has_devices = ["/dev/fuse", "/dev/loop-control"].iter().all(|device| Path::new(device).exists());
    assert!(!(is_ci && has_devices && rustix::process::getuid().is_root()), "{what}");
    println!("skipped: {what}");
}

/// Whether a faulty disk can be mounted here, and another boot shown to a server.
fn can_mount() -> bool {
    let shows_boot = "mount --bind /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id";
    let shown = Command::new("unshare").args(["--mount", "sh", "-c", shows_boot]).output();
    if !shown.is_ok_and(|output| output.status.success()) {
        skipped("a process cannot be shown another boot, by `unshare --mount`; root has that right");
        return false;
    }
    let scratch = Directory::new("mounted-probe");
    let mounted = Mounted::new(FaultyDisk::new(1), &scratch.path().join("data"));
    if let Err(error) = &mounted {
        skipped(&format!(
            "FUSE does not mount: {error}; /dev/fuse and the right to mount are needed (root has it)"
        ));
    }
    mounted.is_ok()
}

#[test]
fn what_was_acknowledged_is_there_after_each_life() {
    if !can_mount() {
        return;
    }
    let mut tally = Tally::default();
    let (seed, databases) = for_a_while_until(|seed| {
        lives::lives(seed, &mut tally);
        tally.restored > 0 && tally.defined > 0 && tally.interrupted > 0 && tally.short > 0
    });
    let Tally { power_lost, killed, asked, faults, stopped, full, backups, restored, checks, .. } = tally;
    let Tally { transactions, interrupted, short, data_oriented, .. } = tally;
    let Tally { to_the_end, to_a_place, to_a_time, archives_on_machine, no_memory, defined, .. } = tally;
    println!(
        "tally: real servers on mounted disks, {databases} databases, {power_lost} losses of power of a real server, \
         {killed} kills of a real server, {data_oriented} ends of a real server on the data-oriented engine, {asked} closes, \
         {faults} injected errors, {full} full disks, {stopped} servers stopped by them, {interrupted} interrupted calls, \
         {short} short ones, {backups} backups, {restored} restores, {to_the_end} with the archive, {to_a_place} to a place, {to_a_time} to a time, {archives_on_machine} archives on the machine, \
         {no_memory} refused by full memory, {defined} definitions beside clients, {checks} checks, {transactions} transactions, RIALTO_SEED={seed}"
    );
    assert!(power_lost >= databases && killed >= databases, "each database meets both");
    assert!(restored > 0, "a backup is restored");
    assert!(defined > 0, "RIALTO_SEED={seed}: tables are defined beside clients that write to them");
    assert!(databases < ALL_AT_LEAST_ONCE || no_memory > 0, "RIALTO_SEED={seed}: little memory is used up");
    let with_archive = to_the_end > 0 && to_a_place > 0 && to_a_time > 0;
    assert!(databases < ALL_AT_LEAST_ONCE || with_archive, "RIALTO_SEED={seed}: the archive is restored");
    assert!(interrupted > 0 && short > 0, "the mount is reluctant");
}

#[test]
fn what_was_acknowledged_is_there_whichever_step_it_ends_in() {
    if !can_mount() {
        return;
    }
    let mut tally = turns::Tally::default();
    let until = Instant::now() + Random::test_time_from_environment();
    let (seed, disks) = for_a_while(|seed| turns::turns(seed, until, &mut tally));
    let turns::Tally { power_lost, killed, data_oriented, opening, transactions } = tally;
    println!(
        "tally: real servers at each step, {disks} prepared disks, {power_lost} losses of power of a real server, \
         {killed} kills of a real server, {data_oriented} ends of a real server on the data-oriented engine, {opening} while \
         it opens, {transactions} transactions, RIALTO_SEED={seed}"
    );
    assert!(power_lost > 0 && killed > 0, "RIALTO_SEED={seed}: {power_lost} losses of power, {killed} kills");
}

/// This many databases meet everything that there is.
const ALL_AT_LEAST_ONCE: u64 = 100;

/// Whether the kernel is new enough to write maps of files in place on btrfs, for files that ask for it.
fn writes_maps_in_place() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

/// A file system of this kind that fills up under a server, again and again.
fn fills_up(kind: Kind) {
    if kind == Kind::Btrfs && !writes_maps_in_place() {
        return skipped(
            "before Linux 6.18 a map on a full btrfs cannot be written; it was tried on no earlier one",
        );
    }
    if let Err(problem) = LoopMount::new(kind, Directory::new(&format!("probe-{}", kind.name()))) {
        return skipped(&format!("no {} in a file can be mounted: {problem}", kind.name()));
    }
    let mut tally = full::Tally::default();
    let (seed, databases) = for_a_while(|seed| full::rounds(kind, seed, &mut tally));
    let full::Tally { rounds, refused, stopped, stalled, went_on, killed, transactions } = tally;
    println!(
        "tally: real servers on {databases} {} file systems, {rounds} times full, {refused} clients refused, {stopped} servers \
         stopped by it, {stalled} that stalled, {went_on} that went on, {killed} kills of a real server, {transactions} transactions, RIALTO_SEED={seed}",
        kind.name()
    );
    assert!(rounds >= databases && transactions > 0, "each file system is filled up under clients");
    // The writes of one round's clients may fit into the room that was left (in half of the rounds, or fewer), but not
    // those of many rounds.
    assert!(
        rounds < FULL_AT_LEAST_ONCE || refused + stopped > 0,
        "RIALTO_SEED={seed}: {rounds} times no room was left, and no client and no server was told"
    );
}

/// In at least one of this many rounds the clients run out of room.
const FULL_AT_LEAST_ONCE: u64 = 12;

#[test]
fn an_ext4_that_fills_up_loses_nothing() {
    fills_up(Kind::Ext4);
}

#[test]
fn an_xfs_that_fills_up_loses_nothing() {
    fills_up(Kind::Xfs);
}

#[test]
fn a_btrfs_that_fills_up_loses_nothing() {
    fills_up(Kind::Btrfs);
}
