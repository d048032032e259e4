//! [`MemoryGroup`]: a control group that limits the memory of one process, page cache included.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::error::{PeerError, Result};

/// Where version 1 has its memory controller.
const FIRST: &str = "/sys/fs/cgroup/memory";
/// Where version 2 has all controllers.
const SECOND: &str = "/sys/fs/cgroup";
/// A group whose process has just ended may be busy for a moment.
const REMOVALS_MAX: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// The files of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    root: &'static str,
    limit: &'static str,
    peak: &'static str,
    /// The line of `memory.stat` with the memory that is no page cache.
    anonymous: &'static str,
    /// What must keep the group from swapping, with its value; it may not be there.
    no_swap: (&'static str, &'static str),
}

const VERSIONS: [Version; 2] = [
    Version {
        root: FIRST,
        limit: "memory.limit_in_bytes",
        peak: "memory.max_usage_in_bytes",
        anonymous: "total_rss ",
        no_swap: ("memory.swappiness", "0"),
    },
    Version {
        root: SECOND,
        limit: "memory.max",
        peak: "memory.peak",
        anonymous: "anon ",
        no_swap: ("memory.swap.max", "0"),
    },
];

/// A group of this run's own, gone when dropped. Its process must have ended by then.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    version: Version,
}

fn version() -> io::Result<Version> {
    let [first, second] = VERSIONS;
    if Path::new(FIRST).join(first.limit).exists() {
        return Ok(first);
    }
    let controllers = fs::read_to_string(Path::new(SECOND).join("cgroup.controllers")).unwrap_or_default();
    if !controllers.split_whitespace().any(|name| name == "memory") {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no memory controller"));
    }
    // A group has a limit only if its parent hands the controller on.
    fs::write(Path::new(SECOND).join("cgroup.subtree_control"), "+memory")?;
    Ok(second)
}

impl MemoryGroup {
    /// Makes a group with this limit, for an engine.
    ///
    /// # Errors
    /// If it cannot be made: this needs root.
    pub fn new(engine: &str, limit_bytes: u64) -> Result<MemoryGroup> {
        let name = format!("peers-{}-{engine}", std::process::id());
        let make = || {
            let version = version()?;
            let group = MemoryGroup { path: Path::new(version.root).join(name), version };
            fs::create_dir(&group.path)?;
            fs::write(group.path.join(version.limit), limit_bytes.to_string())?;
            let (file, value) = version.no_swap;
            // Not there without swap.
            let _ = fs::write(group.path.join(file), value);
            Ok(group)
        };
        let during = || format!("making a group with {limit_bytes} bytes of memory for {engine}");
        make().map_err(|cause| PeerError::Group { during: during(), cause })
    }

    /// Moves a process here: what it allocates, reads and writes from now on counts.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn take_in(&self, process: u32) -> Result<()> {
        let moved = fs::write(self.path.join("cgroup.procs"), process.to_string());
        moved.map_err(|cause| PeerError::Group {
            during: format!("moving a process to {}", self.path.display()),
            cause,
        })
    }

    /// The most memory that it has had so far; `None` if the kernel does not say.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.read(self.version.peak)?.trim().parse().ok()
    }

    /// Its memory that is no page cache, now; `None` if the kernel does not say.
    pub fn anonymous_bytes(&self) -> Option<u64> {
        value_of(&self.read("memory.stat")?, self.version.anonymous)
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }
}

fn value_of(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..REMOVALS_MAX {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => sleep(REMOVAL_PAUSE),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    eprintln!("the control group {} is left over: {error}", self.path.display());
                    return;
                }
                _ => return,
            }
        }
        eprintln!("the control group {} is left over: it has a process", self.path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_found_in_what_the_kernel_prints() {
        assert_eq!(value_of("cache 1\nrss 2\ntotal_rss 4096\n", VERSIONS[0].anonymous), Some(4_096));
        assert_eq!(value_of("anon_thp 1\nanon 8192\nfile 3\n", VERSIONS[1].anonymous), Some(8_192));
        assert_eq!(value_of("cache 1\n", VERSIONS[0].anonymous), None);
    }

    #[test]
    fn a_group_limits_its_process_and_is_gone_at_the_end() {
        let group = match MemoryGroup::new("test", 64 << 20) {
            Ok(group) => group,
            Err(error @ PeerError::Group { .. }) => {
                assert!(error.to_string().contains("needs root"), "{error}");
                println!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let path = group.path.clone();
        let limit = group.read(group.version.limit).unwrap();
        assert_eq!(limit.trim().parse(), Ok(64u64 << 20));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        group.take_in(child.id()).unwrap();
        let inside = group.read("cgroup.procs").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(inside.trim(), child.id().to_string());
        assert!(group.anonymous_bytes().is_some());
        drop(group);
        assert!(!path.exists());
    }
}
