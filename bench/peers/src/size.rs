//! How much memory this process has, and how much disk a directory takes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What `st_blocks` counts in.
const BLOCK_BYTES: u64 = 512;

/// The bytes of this process that are resident, those of mapped files and of shared memory included.
///
/// # Errors
/// If the kernel does not say.
pub fn resident_bytes() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    resident_in(&status).ok_or_else(|| io::Error::other("/proc/self/status has no VmRSS in kB"))
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The bytes that the files in a directory take on disk: holes do not count.
///
/// # Errors
/// If it cannot be read. A file that is removed meanwhile is left out.
pub fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => bytes += disk_bytes(&path)?,
            Ok(metadata) => bytes += metadata.blocks() * BLOCK_BYTES,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_prints() {
        assert_eq!(resident_in("VmPeak:\t 9 kB\nVmRSS:\t     12 kB\n"), Some(12 * 1024));
        assert_eq!(resident_in("VmPeak:\t 9 kB\n"), None);
        assert!(resident_bytes().unwrap() > 0);
    }

    #[test]
    fn holes_take_no_disk() {
        let directory = std::env::temp_dir().join(format!("peers-size-{}", std::process::id()));
        fs::create_dir_all(directory.join("inner")).unwrap();
        fs::write(directory.join("inner/full"), vec![1; 100_000]).unwrap();
        fs::File::create(directory.join("hole")).unwrap().set_len(1 << 30).unwrap();
        let bytes = disk_bytes(&directory).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!((100_000..1 << 20).contains(&bytes), "{bytes}");
    }
}
