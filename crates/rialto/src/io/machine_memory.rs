//! [`MachineMemory`]: how much memory this process may have.
//!
//! That is the least of the machine's memory and of the limits of the control groups that the process is in. A control
//! group (cgroup) is how Linux bounds the memory of a container or of a service. Each group on the way from the
//! process's own up to the root of what is mounted may have a limit: `memory.max` (version 2), or
//! `memory.limit_in_bytes` (version 1). A process that takes more than the least of them is killed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a limit on memory comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemorySource {
    /// The machine's own memory.
    Machine,
    /// The limit of a control group: the file that has it.
    ControlGroup(PathBuf),
}

/// The memory that this process may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineMemory {
    /// In bytes.
    pub bytes: u64,
    /// What sets the limit.
    pub source: MemorySource,
}

impl fmt::Display for MachineMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            MemorySource::Machine => write!(f, "{} bytes, the machine's memory", self.bytes),
            MemorySource::ControlGroup(file) => {
                write!(f, "{} bytes, the limit in {}", self.bytes, file.display())
            }
        }
    }
}

/// A file system of control groups.
struct Mount {
    /// The group that is its root.
    root: PathBuf,
    at: PathBuf,
}

/// The two versions, each with the file that has a group's limit.
const VERSIONS: [(&str, &str); 2] = [("cgroup2", "memory.max"), ("cgroup", "memory.limit_in_bytes")];

impl MachineMemory {
    /// The memory that this process may have now.
    pub fn here() -> MachineMemory {
        let info = rustix::system::sysinfo();
        let bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        MachineMemory::least(bytes, Path::new("/"))
    }

    /// The least of so many bytes of a machine and of the limits in the files below `root`.
    fn least(machine: u64, root: &Path) -> MachineMemory {
        let whole = MachineMemory { bytes: machine, source: MemorySource::Machine };
        let limits = VERSIONS.into_iter().flat_map(|(version, file)| limits(root, version, file));
        let of_group = |(bytes, file)| MachineMemory { bytes, source: MemorySource::ControlGroup(file) };
        limits.map(of_group).fold(whole, |least, next| if next.bytes < least.bytes { next } else { least })
    }
}

/// The limits of the groups that this process is in, of one version.
fn limits(root: &Path, version: &str, file: &str) -> Vec<(u64, PathBuf)> {
    // Names of directories need not be UTF-8: one mount of such a name does not hide the others.
    let read = |path: &str| {
        let bytes = fs::read(root.join(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let Some(group) = group(&read("proc/self/cgroup"), version) else { return Vec::new() };
    let mounts = mounts(&read("proc/self/mountinfo"), version);
    // There may be mounts of other groups beside.
    let of_group = mounts.iter().find(|mount| group.starts_with(&mount.root));
    let Some(mount) = of_group.or(mounts.first()) else { return Vec::new() };
    // A container may see its own group as the root of the mount, and its name as it is outside.
    let below = group.strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let mount = root.join(mount.at.strip_prefix("/").unwrap_or(&mount.at));
    let groups = below.ancestors().map(|group| mount.join(group).join(file));
    groups
        .filter_map(|file| {
            // "max" is no limit, and so is the largest number of version 1, which is more than any machine has.
            let bytes = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            Some((bytes, file))
        })
        .collect()
}

/// The path of the process's group: in the line `0::PATH` (version 2), or in that of the memory controller (version 1).
fn group(text: &str, version: &str) -> Option<PathBuf> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match version {
            "cgroup2" => number == "0" && controllers.is_empty(),
            _ => controllers.split(',').any(|controller| controller == "memory"),
        };
        is_it.then(|| PathBuf::from(path))
    })
}

/// Where the groups of this version are mounted; of version 1, those of the memory controller.
fn mounts(text: &str, version: &str) -> Vec<Mount> {
    let mounts = text.lines().filter_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        let mut behind = behind.split(' ');
        let (kind, options) = (behind.next()?, behind.nth(1)?);
        let has_memory = version == "cgroup2" || options.split(',').any(|option| option == "memory");
        let mut before = before.split(' ').skip(3);
        let (root, at) = (before.next()?, before.next()?);
        (kind == version && has_memory).then(|| Mount { root: unescaped(root), at: unescaped(at) })
    });
    mounts.collect()
}

/// A path of `mountinfo`, which has blanks, line breaks and backslashes as a backslash and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                path.push(char::from(code));
                path.push_str(&part[3..]);
            }
            None => {
                path.push('\\');
                path.push_str(part);
            }
        }
    }
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::super::conformance::ScratchDirectory;
    use super::*;

    const GIB: u64 = 1 << 30;

    /// The least of 8 GiB and of the limits in these files.
    fn least(name: &str, files: &[(&str, &str)]) -> (u64, Option<String>) {
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
        least_of_bytes(name, &files)
    }

    /// As [`least`], of files that need not be text.
    fn least_of_bytes(name: &str, files: &[(&str, &[u8])]) -> (u64, Option<String>) {
        let scratch = ScratchDirectory::new(name);
        for (path, text) in files {
            let path = scratch.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let MachineMemory { bytes, source } = MachineMemory::least(8 * GIB, &scratch.0);
        let file = match source {
            MemorySource::Machine => None,
            MemorySource::ControlGroup(file) => {
                Some(file.strip_prefix(&scratch.0).unwrap().display().to_string())
            }
        };
        (bytes, file)
    }

    const MOUNT_2: (&str, &str) = (
        "proc/self/mountinfo",
        "22 1 0:20 / /proc rw - proc proc rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
    );
    const IN_SERVICE: (&str, &str) = ("proc/self/cgroup", "0::/system.slice/rialto.service\n");
    const OWN: &str = "sys/fs/cgroup/system.slice/rialto.service/memory.max";
    const ABOVE: &str = "sys/fs/cgroup/system.slice/memory.max";

    #[test]
    fn the_least_limit_on_the_way_to_the_root_counts() {
        assert_eq!(least("cgroup-none", &[]), (8 * GIB, None));
        assert_eq!(least("cgroup-max", &[MOUNT_2, IN_SERVICE, (OWN, "max\n")]), (8 * GIB, None));
        let own = least("cgroup-own", &[MOUNT_2, IN_SERVICE, (OWN, "1073741824\n"), (ABOVE, "2147483648\n")]);
        assert_eq!(own, (GIB, Some(OWN.to_owned())));
        let above = least("cgroup-above", &[MOUNT_2, IN_SERVICE, (OWN, "max\n"), (ABOVE, "2147483648\n")]);
        assert_eq!(above, (2 * GIB, Some(ABOVE.to_owned())));
        let root = ("sys/fs/cgroup/memory.max", "3221225472\n");
        assert_eq!(least("cgroup-root", &[MOUNT_2, IN_SERVICE, root]), (3 * GIB, Some(root.0.to_owned())));
        let larger = least("cgroup-larger", &[MOUNT_2, IN_SERVICE, (OWN, "17179869184\n")]);
        assert_eq!(larger, (8 * GIB, None), "the machine has less");
    }

    #[test]
    fn mounts_of_other_groups_and_of_odd_names_hide_nothing() {
        let (path, text) = MOUNT_2;
        let odd = [b"19 1 0:9 / /mnt/\xff rw - tmpfs tmpfs rw\n", text.as_bytes()].concat();
        let own = (OWN, &b"1073741824\n"[..]);
        let in_service = (IN_SERVICE.0, IN_SERVICE.1.as_bytes());
        assert_eq!(
            least_of_bytes("cgroup-odd", &[(path, &odd), in_service, own]),
            (GIB, Some(OWN.to_owned()))
        );
        let other = ("mnt/other/memory.max", "2147483648\n");
        let text = format!("19 1 0:9 /other.slice /mnt/other rw - cgroup2 cgroup2 rw\n{text}");
        let found = least("cgroup-other", &[(path, &text), IN_SERVICE, other, (OWN, "1073741824\n")]);
        assert_eq!(found, (GIB, Some(OWN.to_owned())));
        let mount = "30 22 0:26 / /mnt/control\\040groups rw - cgroup2 cgroup2 rw\n";
        let own = "mnt/control groups/system.slice/rialto.service/memory.max";
        let found = least("cgroup-blank", &[(path, mount), IN_SERVICE, (own, "1073741824\n")]);
        assert_eq!(found, (GIB, Some(own.to_owned())));
    }

    #[test]
    fn version_1_has_a_mount_of_its_own() {
        let mounts = (
            "proc/self/mountinfo",
            "40 30 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 30 0:36 / /sys/fs/cgroup/memory rw - cgroup \
             cgroup rw,memory\n42 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        );
        let groups = ("proc/self/cgroup", "5:cpu:/elsewhere\n4:memory:/jobs/one\n0::/\n");
        let own = "sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes";
        let unlimited = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(
            least("cgroup-v1", &[mounts, groups, (own, "1073741824\n"), unlimited]),
            (GIB, Some(own.to_owned()))
        );
        assert_eq!(least("cgroup-v1-all", &[mounts, groups, unlimited]), (8 * GIB, None));
    }

    #[test]
    fn a_container_may_see_its_group_as_the_root() {
        let mount = (
            "proc/self/mountinfo",
            "41 30 0:36 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        );
        let own = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        for (name, group) in [("inside", "/docker/abc"), ("outside", "/other")] {
            let group = ("proc/self/cgroup", &*format!("4:memory:{group}\n"));
            let found = least(&format!("cgroup-container-{name}"), &[mount, group, (own, "1073741824\n")]);
            assert_eq!(found, (GIB, Some(own.to_owned())), "{name}");
        }
    }
}
