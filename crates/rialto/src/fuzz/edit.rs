//! Files as maps of bytes, and the edits of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::script::Script;
use crate::io::{Caching, Disk, MemoryDisk, Open};

const PAGE: usize = 4096;
const ZEROS: [u8; PAGE] = [0; PAGE];

/// The files of a directory.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// All files of a disk, without shared maps, which another boot of the machine ignores.
pub(super) fn files_of(disk: &dyn Disk) -> Files {
    let mut files = Files::new();
    for name in disk.list().unwrap() {
        if let Ok(file) = disk.open(&name, Open::ReadOnly, Caching::Buffered) {
            let mut bytes = vec![0; file.length().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            files.insert(name, bytes);
        }
    }
    files
}

/// A disk with these files.
pub(super) fn disk_of(files: &Files) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    for (name, bytes) in files {
        let file = disk.open(name, Open::Create, Caching::Buffered).unwrap();
        file.set_length(bytes.len() as u64).unwrap();
        for (at, page) in bytes.chunks(PAGE).enumerate() {
            if page != &ZEROS[..page.len()] {
                file.write_at(page, (at * PAGE) as u64).unwrap();
            }
        }
    }
    disk
}

/// An edit of a file.
pub(super) struct Edit {
    pub file: String,
    pub what: String,
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\": {}", self.file, self.what)
    }
}

/// Where the zeros at the end of a file begin.
pub(super) fn end_of_data(bytes: &[u8]) -> usize {
    let used = bytes.chunks(PAGE).rposition(|page| page != &ZEROS[..page.len()]);
    let pages = used.map_or(0, |last| last + 1);
    let bytes = &bytes[..bytes.len().min(pages * PAGE)];
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// Changes `files` as the script says: flipped bits, zeros, copies from elsewhere, other lengths, files of an `earlier`
/// time, missing files. It prefers offsets of bytes that are not zero.
pub(super) fn edit(files: &mut Files, earlier: &Files, script: &mut Script<'_>) -> Vec<Edit> {
    let names: Vec<String> = files.keys().cloned().collect();
    let mut done = Vec::new();
    while !script.is_over() && done.len() < 4 {
        let kind = script.byte();
        let name = &names[script.below(names.len())];
        let donor = files[&names[script.below(names.len())]].clone();
        let bytes = files.get_mut(name).expect("no name goes but by the last edit");
        let before = bytes.clone();
        // Behind the last byte there are only zeros.
        let used = end_of_data(bytes).max(1);
        let at = script.below(used);
        let length = 1 + script.below(1 << 14);
        let what = match kind % 16 {
            0..7 => {
                let mask = script.byte().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= mask;
                }
                format!("byte {at} ^ {mask:02x}")
            }
            7..9 => {
                let end = bytes.len().min(at + length);
                bytes[at.min(end)..end].fill(0);
                format!("zeros from {at} to {end}")
            }
            9 => {
                // Whole sectors are lost, too.
                let (from, end) = (at / 512 * 512, bytes.len().min((at / 512 + 1 + length % 32) * 512));
                bytes[from.min(end)..end].fill(0);
                format!("sectors from {from} to {end} lost")
            }
            10..12 => {
                let from = if donor.is_empty() { 0 } else { script.below(donor.len()) };
                let length = length.min(donor.len() - from).min(bytes.len().saturating_sub(at));
                bytes[at..at + length].copy_from_slice(&donor[from..from + length]);
                format!("{length} bytes at {at} from {from} of another file")
            }
            12 => {
                // The sectors of an earlier time: a write that never reached the disk.
                let from = at / 512 * 512;
                let old = earlier.get(name).map_or(&[][..], |old| old.get(from..).unwrap_or_default());
                let length = old.len().min((1 + length % 64) * 512).min(bytes.len().saturating_sub(from));
                bytes[from..from + length].copy_from_slice(&old[..length]);
                format!("{length} bytes at {from} as they were earlier")
            }
            13 => {
                let new = script.below(bytes.len() + 5000);
                bytes.resize(new, 0);
                format!("{new} bytes long")
            }
            14 => {
                *bytes = earlier.get(name).cloned().unwrap_or_default();
                "all as it was earlier".to_owned()
            }
            _ => {
                files.remove(name);
                done.push(Edit { file: name.clone(), what: "removed".to_owned() });
                return done;
            }
        };
        if *bytes != before {
            done.push(Edit { file: name.clone(), what });
        }
    }
    done
}
