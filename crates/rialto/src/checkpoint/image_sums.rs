//! [`ImageSums`]: which images each backup copy holds.

use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

use crate::store::memory::segments::Copy;

/// The checksums of the images in the backup copies, as they were written or loaded.
///
/// An image of an earlier checkpoint also has a correct checksum of its own: the file may have been put back from an
/// older copy, or a device may have lost a write. Therefore the home block has a *digest* of the checksums of all
/// images in its copy, including those that earlier checkpoints wrote and that have not changed since. A copy whose
/// images have another digest is not the one that was completed.
///
/// The copies that recovery did not load have no checksums here, and all of their segments are dirty: the next sweep to
/// one writes all of its images.
#[derive(Debug, Default)]
pub(crate) struct ImageSums {
    copies: [Mutex<Vec<Option<u64>>>; Copy::FILES.len()],
}

impl ImageSums {
    fn of(&self, copy: Copy) -> &Mutex<Vec<Option<u64>>> {
        &self.copies[usize::from(copy.number())]
    }

    /// Notes the checksum of the segment's image in the copy.
    pub fn set(&self, copy: Copy, segment: u32, checksum: u64) {
        let (mut sums, segment) = (self.of(copy).lock(), segment as usize);
        if sums.len() <= segment {
            sums.resize(segment + 1, None);
        }
        sums[segment] = Some(checksum);
    }

    /// The digest of the images of the segments below `end`.
    ///
    /// # Panics
    /// If one of them has none, which is a bug: a segment that is clean for a copy has an image there.
    pub fn digest(&self, copy: Copy, end: u32, seed: u64) -> u64 {
        let sums = self.of(copy).lock();
        let mut hash = Xxh3::with_seed(seed);
        for segment in 0..end as usize {
            let sum = sums.get(segment).copied().flatten();
            let sum = sum.unwrap_or_else(|| {
                panic!("segment {segment} has no image in the backup copy {copy:?}: a bug, please report it")
            });
            hash.update(&sum.to_le_bytes());
        }
        hash.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_and_its_position_counts() {
        let sums = ImageSums::default();
        (0..5).for_each(|segment| sums.set(Copy::Pong, segment, u64::from(segment % 2)));
        let digest = |end| sums.digest(Copy::Pong, end, 7);
        let (four, five) = (digest(4), digest(5));
        assert!(four != five && sums.digest(Copy::Pong, 5, 8) != five);
        sums.set(Copy::Ping, 2, 9);
        assert_eq!(digest(5), five, "another copy's");
        sums.set(Copy::Pong, 1, 0);
        sums.set(Copy::Pong, 2, 1);
        assert_ne!(digest(5), five, "the same checksums in another order");
    }
}
