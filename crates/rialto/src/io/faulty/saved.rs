//! A faulty disk saved to a real directory: a failed run leaves it behind, to be examined and recovered again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::DirectoryChange;
use super::folder::Folder;
use super::inode::{Inode, SharedInode};
use super::{FaultyDisk, Power, SharedMap};

const FILES: &str = "files";
const DEVICE: &str = "device";
const NAMES: &str = "names";
const MAPS: &str = "maps";
const BOOT: &str = "boot";

impl FaultyDisk {
    /// A copy of the disk, with or without power as this one is: the same names, bytes and unsynced changes, and copies
    /// of the shared maps, to which no thread may write meanwhile. It has no injected errors.
    pub fn copied(&self) -> Arc<FaultyDisk> {
        let mut state = self.state.lock();
        let mut copy = state.without_maps();
        copy.folders = state.folders.iter().map(Folder::copied).collect();
        (copy.boot, copy.power) = (state.boot, state.power);
        FaultyDisk::with(self.seed, copy).directory(self.number)
    }

    /// Writes what the running system sees to a new directory: its files under `files`, which is a directory that
    /// [`FileDisk`](crate::io::FileDisk) opens, its shared maps under `maps`, and the number of its boot. Under
    /// `device` it writes what is certainly durable.
    pub fn save(&self, to: &Path) -> io::Result<()> {
        let state = self.state.lock();
        fs::create_dir_all(to.join(FILES))?;
        fs::create_dir_all(to.join(MAPS))?;
        let folder = &state.folders[self.number];
        for name in folder.directory.names() {
            let node = folder.directory.find(name).expect("it is named");
            let mut bytes = vec![0; node.lock().length() as usize];
            node.lock().read(&mut bytes, 0);
            fs::write(to.join(FILES).join(name), bytes)?;
        }
        fs::create_dir_all(to.join(DEVICE))?;
        let mut names = String::new();
        for (name, node) in folder.directory.durable() {
            fs::write(to.join(DEVICE).join(name), node.lock().durable_bytes())?;
            if let Some(now) = folder.directory.name_of(node) {
                names += &format!("{name}\t{now}\n");
            }
        }
        fs::write(to.join(NAMES), names)?;
        for (name, map) in &folder.maps {
            let words = map.as_words().iter();
            let bytes: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            fs::write(to.join(MAPS).join(name), bytes)?;
        }
        fs::write(to.join(BOOT), state.boot.to_string())
    }

    /// The disk that [`save`](Self::save) wrote, with power; its choices are drawn from a seed. What was not synced is
    /// still not synced: each sector of a file that differs on the device is a change of its own.
    pub fn load(from: &Path, seed: u64) -> io::Result<Arc<FaultyDisk>> {
        let disk = FaultyDisk::new(seed);
        let mut state = disk.state.lock();
        let named = |folder: &str| -> io::Result<Vec<(String, Vec<u8>)>> {
            let entries = fs::read_dir(from.join(folder))?;
            let each = entries.map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
            });
            each.collect()
        };
        let mut files: BTreeMap<String, Vec<u8>> = named(FILES)?.into_iter().collect();
        let names = fs::read_to_string(from.join(NAMES))?;
        let names: BTreeMap<&str, &str> = names.lines().filter_map(|line| line.split_once('\t')).collect();
        let directory = &mut state.folders[0].directory;
        let mut changes = Vec::new();
        for (name, device) in named(DEVICE)? {
            let now = names.get(name.as_str()).map(|now| (*now).to_owned());
            let bytes = now.as_ref().and_then(|now| files.remove(now));
            let mut inode = Inode::default();
            inode.write(&device, 0);
            inode.sync();
            inode.become_unsynced(bytes.as_deref().unwrap_or(&device));
            let node = Arc::new(SharedInode::new(inode));
            directory.change(DirectoryChange::Create { name: name.clone(), node: node.clone() });
            changes.extend(match now {
                Some(now) if now == name => None,
                Some(now) => Some(DirectoryChange::Rename { from: name, to: now, node }),
                None => Some(DirectoryChange::Remove { name, node }),
            });
        }
        directory.sync();
        // Another file may have the name by now: a rename takes it from the file that had it.
        let is_taken = |name: &String| names.values().any(|now| now == name);
        changes.retain(|change| !matches!(change, DirectoryChange::Remove { name, .. } if is_taken(name)));
        changes.sort_by_key(|change| !matches!(change, DirectoryChange::Remove { .. }));
        for (name, bytes) in files {
            let mut inode = Inode::default();
            inode.become_unsynced(&bytes);
            changes.push(DirectoryChange::Create { name, node: Arc::new(SharedInode::new(inode)) });
        }
        changes.into_iter().for_each(|change| directory.change(change));
        for (name, bytes) in named(MAPS)? {
            let map = SharedMap::anonymous(bytes.len())?;
            for (word, bytes) in map.as_words().iter().zip(bytes.chunks_exact(8)) {
                word.store(u64::from_ne_bytes(bytes.try_into().expect("eight")), Ordering::Relaxed);
            }
            state.folders[0].maps.insert(name, map);
        }
        let boot = fs::read_to_string(from.join(BOOT))?;
        state.boot =
            boot.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        state.power = Power::On;
        drop(state);
        Ok(disk)
    }
}
