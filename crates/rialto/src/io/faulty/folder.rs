//! A directory of the machine: its files, its shared maps, its lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::{Random, SharedMap};
use super::directory::Directory;

#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) directory: Directory,
    pub(super) maps: BTreeMap<String, SharedMap>,
    pub(super) locked: Arc<AtomicBool>,
}

impl Folder {
    /// The bytes that its files and shared maps occupy.
    pub(super) fn taken(&self) -> u64 {
        self.directory.reserved() + self.maps.values().map(|map| map.len() as u64).sum::<u64>()
    }

    /// What a machine that has crashed finds.
    pub(super) fn survivor(&self, random: &mut Random) -> Folder {
        let directory = self.directory.survivor(random);
        let maps = surviving_maps(&self.maps, random);
        Folder { directory, maps, locked: Arc::default() }
    }

    /// What the next process of the same machine finds: copies of the files, and the same shared maps.
    pub(super) fn cloned(&self) -> Folder {
        Folder { maps: self.maps.clone(), ..self.without_maps() }
    }

    /// The same files, as copies, and no shared maps.
    pub(super) fn without_maps(&self) -> Folder {
        Folder { directory: self.directory.cloned(), maps: BTreeMap::new(), locked: Arc::default() }
    }

    /// Copies of the files and of the shared maps.
    pub(super) fn copied(&self) -> Folder {
        let copy = |map: &SharedMap| map.survivor(|| true).expect("memory for a map");
        let maps = self.maps.iter().map(|(name, map)| (name.clone(), copy(map))).collect();
        Folder { maps, ..self.without_maps() }
    }
}

fn surviving_maps(maps: &BTreeMap<String, SharedMap>, random: &mut Random) -> BTreeMap<String, SharedMap> {
    let mut survivors = BTreeMap::new();
    for (name, map) in maps {
        if random.chance(1, 2) {
            let pages = random.below(5);
            let map = map.survivor(|| random.chance(pages, 4)).expect("memory for a crashed machine's map");
            survivors.insert(name.clone(), map);
        }
    }
    survivors
}

#[cfg(test)]
mod tests {
    use super::super::super::{Caching, Disk, FaultKind, Open};
    use super::super::FaultyDisk;

    fn write(disk: &FaultyDisk, bytes: &[u8]) {
        let file = disk.open("f", Open::Create, Caching::Buffered).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync().unwrap();
        disk.sync_directory().unwrap();
    }

    fn read(disk: &FaultyDisk) -> [u8; 3] {
        let mut bytes = [0; 3];
        disk.open("f", Open::ReadOnly, Caching::Buffered).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn directories_of_a_machine_lose_their_power_in_one_step_and_share_nothing_else() {
        let disk = FaultyDisk::new(1);
        let other = disk.directory(1);
        disk.trace();
        write(&disk, b"one");
        write(&other, b"two");
        assert_eq!((disk.steps(), other.steps(), disk.take_trace().len()), (8, 8, 8));
        assert_eq!((read(&disk), read(&disk.directory(1))), (*b"one", *b"two"));
        let locks = [disk.lock().unwrap(), other.lock().unwrap()];
        assert!(disk.directory(1).lock().unwrap_err().is_locked(), "it is the same directory");
        drop(locks);

        other.fail(FaultKind::Sync, ".", 0);
        disk.sync_directory().unwrap();
        other.sync_directory().unwrap_err();
        disk.sync_directory().unwrap();
        other.sync_directory().unwrap_err();

        for kill in [true, false] {
            let step = disk.steps() + 1;
            if kill {
                other.kill_at(step)
            } else {
                other.crash_at(step)
            }
            disk.sync_directory().unwrap_err();
            assert!(disk.is_down() && other.is_down());
            let (next, other) = (disk.restart(), other.restart());
            assert_eq!((read(&next), read(&other)), (*b"one", *b"two"));
            assert_eq!(read(&next.directory(1)), *b"two");
            disk.crash();
        }
    }

    /// The trace of a step holds all directories as they were in that step.
    #[test]
    fn a_trace_has_all_directories_as_they_were_in_each_step() {
        let disk = FaultyDisk::new(1);
        let other = disk.directory(1);
        write(&disk, b"one");
        write(&other, b"two");
        disk.trace();
        write(&disk, b"ONE");
        write(&other, b"TWO");
        let trace = disk.take_trace();
        let last_of_the_first = trace.len() / 2 - 1;
        let left = trace[last_of_the_first].crashed().restart();
        assert_eq!((read(&left), read(&left.directory(1))), (*b"ONE", *b"two"));
        disk.crash();
        let left = disk.restart();
        assert_eq!((read(&left), read(&left.directory(1))), (*b"ONE", *b"TWO"));
    }
}
