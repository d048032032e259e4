//! [`remove_in_steps`]: removes a large file without delaying all other writes.

use std::thread;
use std::time::Duration;

use super::{Caching, Disk, DiskResult, Open};

/// Bytes of a step. Few in tests, so that their files are removed in steps, too.
const STEP: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// The pause between two steps, in which the device serves other requests.
const REST: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_millis(5) };

/// Removes a file: cuts it shorter, step by step, and then removes its name.
///
/// Where a file system discards blocks as they become free, the device may do nothing else meanwhile: 64 MB in one go
/// held up every write for 11 to 22 ms, 256 MB for 18 to 45 ms; in steps, one write in a thousand for 1 to 2 ms.
///
/// A crash may leave the file cut, under its name and under any name that it had since the directory was last synced.
/// Therefore that name has to be synced first, and code that opens a file of that name must accept any length.
pub(crate) fn remove_in_steps(disk: &dyn Disk, name: &str) -> DiskResult<()> {
    let file = disk.open(name, Open::Existing, Caching::Buffered)?;
    let mut length = file.length()?;
    while length > STEP {
        length = (length - 1) / STEP * STEP;
        file.set_length(length)?;
        // By the machine's clock: no decision depends on it.
        thread::sleep(REST);
    }
    drop(file);
    disk.remove(name)
}

#[cfg(test)]
mod tests {
    use super::super::{FaultyDisk, MemoryDisk};
    use super::*;

    #[test]
    fn a_file_goes_in_steps() {
        for (bytes, steps) in [(0, 0), (1, 0), (STEP, 0), (STEP + 1, 1), (5 * STEP, 4)] {
            let disk = FaultyDisk::new(1);
            disk.open("large", Open::Create, Caching::Buffered).unwrap().set_length(bytes).unwrap();
            let before = disk.steps();
            remove_in_steps(&*disk, "large").unwrap();
            assert_eq!(disk.steps() - before, steps + 1, "{bytes} bytes");
            assert!(disk.list().unwrap().is_empty());
        }
        assert!(remove_in_steps(&*MemoryDisk::new(), "none").unwrap_err().is_missing());
    }
}
