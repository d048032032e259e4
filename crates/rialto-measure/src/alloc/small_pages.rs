//! [`keep_small_pages`]: the allocator's memory in pages of 4 KiB.

use std::io;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Has the memory that the allocator has reserved taken from the system in small pages from now on.
///
/// mimalloc asks for huge pages for all that it reserves (1 GiB at a time) wherever the system leaves that to programs, so
/// that the few kilobytes which a transaction's context, a list or a table of addresses touch here and there each take 2 MiB:
/// 22 MB instead of 9 for an empty database. What profits from huge pages, segments and index nodes, is not the
/// allocator's. Call it first in `main`.
///
/// # Errors
/// If `/proc/self/maps` cannot be read; nothing has changed then.
pub fn keep_small_pages() -> io::Result<()> {
    let probe = Box::new(0_u64);
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let Some((from, to)) = mapping_of(&maps, std::ptr::from_ref(&*probe).addr()) else {
        return Err(io::Error::other("/proc/self/maps does not name the allocator's memory"));
    };
    // SAFETY: advice about the size of pages changes neither what the mapping, which exists, contains nor where it lies.
    let advised =
        unsafe { madvise(std::ptr::with_exposed_provenance_mut(from), to - from, Advice::LinuxNoHugepage) };
    match advised {
        // The system knows no huge pages.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The mapping with this address: from, to.
fn mapping_of(maps: &str, address: usize) -> Option<(usize, usize)> {
    let ranges = maps.lines().filter_map(|line| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    });
    ranges.into_iter().find(|(from, to)| (*from..*to).contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_of_an_address_is_found() {
        let maps = "55726eec6000-55726f57e000 r-xp 00140000 fe:00 5873743    /usr/bin/rialto\n\
                    20000000000-20040000000 rw-p 00000000 00:00 0 \n\
                    7f77aa2da000-7f807e323000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapping_of(maps, 0x200_0000_0000), Some((0x200_0000_0000, 0x200_4000_0000)));
        assert_eq!(mapping_of(maps, 0x200_3fff_ffff), Some((0x200_0000_0000, 0x200_4000_0000)));
        assert_eq!(mapping_of(maps, 0x200_4000_0000), None);
    }

    /// The system notes the advice as "nh" among the mapping's flags, where it knows huge pages at all.
    #[test]
    fn the_advice_arrives() {
        let probe = Box::new(0_u64);
        let address = std::ptr::from_ref(&*probe).addr();
        keep_small_pages().unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            match line.strip_prefix("VmFlags:") {
                None => inside |= mapping_of(line, address).is_some(),
                Some(flags) if inside => {
                    assert!(flags.split_whitespace().any(|flag| flag == "nh"), "{flags}");
                    return;
                }
                Some(_) => {}
            }
        }
        panic!("no mapping has the probe");
    }
}
