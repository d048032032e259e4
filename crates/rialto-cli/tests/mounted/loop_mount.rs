//! An ext4, XFS or btrfs file system in a sparse file.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FallocateFlags;

use crate::common::Directory;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    /// About the least size with which it can be made.
    fn bytes(self) -> u64 {
        match self {
            Kind::Ext4 => 96 << 20,
            Kind::Xfs => 320 << 20,
            Kind::Btrfs => 128 << 20,
        }
    }

    /// The command that makes the file system, with no blocks reserved for root.
    fn maker(self) -> Command {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        match self {
            Kind::Ext4 => command.args(["-q", "-m", "0"]),
            Kind::Xfs | Kind::Btrfs => command.arg("-q"),
        };
        command
    }
}

/// A mounted file system; it is unmounted and removed when this is dropped.
pub struct LoopMount {
    kind: Kind,
    at: PathBuf,
    scratch: Directory,
}

impl LoopMount {
    /// Makes and mounts one, or says why not.
    pub fn new(kind: Kind, scratch: Directory) -> Result<LoopMount, String> {
        let at = scratch.path().join("mount");
        std::fs::create_dir_all(&at).map_err(|error| error.to_string())?;
        let image = scratch.path().join("image");
        File::create(&image)
            .and_then(|file| file.set_len(kind.bytes()))
            .map_err(|error| error.to_string())?;
        run(kind.maker().arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))?;
        Ok(LoopMount { kind, at, scratch })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// A directory on another file system.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Takes all of the room but this many bytes.
    pub fn leave_room(&self, bytes: u64) {
        let ballast = File::create(self.ballast()).expect("there is room for a name");
        let mut taken = 0;
        // A file system gives less than it reports as free: take ever smaller pieces, as long as it gives them.
        for piece in [8 << 20, 1 << 20, 64 << 10] {
            while self.free() >= bytes + piece {
                if rustix::fs::fallocate(ballast.as_fd(), FallocateFlags::empty(), taken, piece).is_err() {
                    break;
                }
                taken += piece;
            }
        }
    }

    /// The free bytes that it reports.
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.at).expect("it is mounted");
        stat.f_bavail * stat.f_frsize
    }

    /// Whether its room is taken.
    pub fn is_full(&self) -> bool {
        self.ballast().exists()
    }

    /// Gives the room back, if it is taken.
    pub fn make_room(&self) {
        if !self.is_full() {
            return;
        }
        std::fs::remove_file(self.ballast()).expect("it was taken");
        // Some file systems give it to other files only after their next own commit.
        run(Command::new("sync").arg("--file-system").arg(&self.at)).expect("it has room again");
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if run(Command::new("umount").arg(&self.at)).is_err() {
            // In a failing test a server may still be running.
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.at));
        }
    }
}
