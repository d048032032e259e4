//! What all disks have in common: one suite, run on each.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::*;

/// Runs the whole suite on an empty disk.
pub(super) fn check(disk: &dyn Disk) {
    files_keep_what_is_written(disk);
    opening_follows_its_mode(disk);
    lengths_and_room(disk);
    direct_files(disk);
    writes_side_by_side(disk);
    names(disk);
    bad_names_are_refused(disk);
    the_lock_is_exclusive(disk);
    maps_are_found_again(disk);
    threads_share_a_file(disk);
    assert_eq!(disk.boot(), disk.boot());
    assert!(!disk.describe().is_empty());
}

fn create(disk: &dyn Disk, name: &str) -> Arc<dyn File> {
    disk.open(name, Open::CreateNew, Caching::Buffered).unwrap()
}

fn read(file: &dyn File, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    file.read_at(&mut buffer, offset).unwrap();
    buffer
}

fn files_keep_what_is_written(disk: &dyn Disk) {
    let file = create(disk, "written");
    file.write_at(b"", 100).unwrap();
    assert_eq!((file.name(), file.length().unwrap()), ("written", 0));
    file.write_at(b"hello", 10_000).unwrap();
    assert_eq!(file.length().unwrap(), 10_005);
    assert_eq!(read(&*file, 0, 10_000), vec![0; 10_000]);
    file.write_at(b"HE", 10_000).unwrap();
    file.sync().unwrap();
    assert_eq!(read(&*file, 10_000, 5), b"HEllo");
    assert_eq!(read(&*file, 10_005, 0), b"");
    let error = file.read_at(&mut [0; 6], 10_000).unwrap_err();
    assert_eq!(
        (error.kind(), error.file.as_str(), error.operation),
        (ErrorKind::UnexpectedEof, "written", "read")
    );

    let again = disk.open("written", Open::Existing, Caching::Buffered).unwrap();
    assert_eq!(read(&*again, 10_000, 5), b"HEllo");
    disk.remove("written").unwrap();
    assert_eq!(read(&*file, 10_000, 5), b"HEllo", "an open file outlives its name");
}

fn opening_follows_its_mode(disk: &dyn Disk) {
    let missing = disk.open("opened", Open::Existing, Caching::Buffered).unwrap_err();
    assert!(missing.is_missing() && missing.file == "opened" && missing.operation == "open", "{missing}");
    assert!(disk.open("opened", Open::ReadOnly, Caching::Buffered).unwrap_err().is_missing());
    let file = disk.open("opened", Open::Create, Caching::Buffered).unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(disk.open("opened", Open::Create, Caching::Buffered).unwrap().length().unwrap(), 1);
    let exists = disk.open("opened", Open::CreateNew, Caching::Buffered).unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
    let reader = disk.open("opened", Open::ReadOnly, Caching::Buffered).unwrap();
    assert_eq!(read(&*reader, 0, 1), b"x");
    assert_eq!(reader.write_at(b"y", 0).unwrap_err().operation, "write");
    assert!(reader.set_length(0).is_err() && reader.allocate(9).is_err());
    assert_eq!(read(&*file, 0, 1), b"x");
    disk.remove("opened").unwrap();
}

fn lengths_and_room(disk: &dyn Disk) {
    let file = create(disk, "length");
    file.write_at(&[1; 5000], 0).unwrap();
    file.set_length(100).unwrap();
    file.set_length(5000).unwrap();
    assert_eq!(
        read(&*file, 0, 5000),
        [[1; 100].as_slice(), &[0; 4900]].concat(),
        "cut bytes come back as zeros"
    );
    file.allocate(1000).unwrap();
    assert_eq!(file.length().unwrap(), 5000, "room for less than there is changes nothing");
    file.allocate(1 << 20).unwrap();
    assert_eq!(file.length().unwrap(), 1 << 20);
    assert_eq!(read(&*file, 0, 101), [[1; 100].as_slice(), &[0]].concat());
    assert_eq!(read(&*file, (1 << 20) - 10, 10), vec![0; 10]);
    file.allocate(0).unwrap();
    file.sync().unwrap();
    disk.remove("length").unwrap();
}

fn direct_files(disk: &dyn Disk) {
    for (name, caching) in [("direct", Caching::Direct), ("directsync", Caching::DirectSync)] {
        let file = disk.open(name, Open::CreateNew, caching).unwrap();
        let mut buffer = AlignedBuffer::zeroed(3 * BUFFER_ALIGNMENT);
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = (at / 100) as u8;
        }
        file.allocate(8 * BUFFER_ALIGNMENT as u64).unwrap();
        file.write_at(&buffer, BUFFER_ALIGNMENT as u64).unwrap();
        file.sync().unwrap();
        let mut back = AlignedBuffer::zeroed(3 * BUFFER_ALIGNMENT);
        file.read_at(&mut back, BUFFER_ALIGNMENT as u64).unwrap();
        assert_eq!(*back, *buffer);
        file.set_length(BUFFER_ALIGNMENT as u64 + 100).unwrap();
        let error = file.read_at(&mut back, BUFFER_ALIGNMENT as u64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        let buffered = disk.open(name, Open::ReadOnly, Caching::Buffered).unwrap();
        assert_eq!(read(&*buffered, BUFFER_ALIGNMENT as u64, 100), buffer[..100]);
        disk.remove(name).unwrap();
    }
}

/// More writes than are in progress at a time, in no order; and those of a file that takes none.
fn writes_side_by_side(disk: &dyn Disk) {
    const WRITES: usize = 150;
    for caching in [Caching::Direct, Caching::Buffered] {
        let file = disk.open("beside", Open::CreateNew, caching).unwrap();
        let mut buffer = AlignedBuffer::zeroed(WRITES * BUFFER_ALIGNMENT);
        for (block, bytes) in buffer.chunks_exact_mut(BUFFER_ALIGNMENT).enumerate() {
            bytes.fill(block as u8 + 1);
        }
        // Each other block of the file stays as it is.
        let place = |block: usize| (block * 37 % WRITES * 2 * BUFFER_ALIGNMENT) as u64;
        let blocks = buffer.chunks_exact(BUFFER_ALIGNMENT).enumerate();
        let writes: Vec<(u64, &[u8])> = blocks.map(|(block, bytes)| (place(block), bytes)).collect();
        file.write_each(&writes).unwrap();
        file.write_each(&[]).unwrap();
        file.sync().unwrap();
        let buffered = disk.open("beside", Open::ReadOnly, Caching::Buffered).unwrap();
        let end = (2 * WRITES - 1) * BUFFER_ALIGNMENT;
        assert_eq!(buffered.length().unwrap(), end as u64);
        for (offset, bytes) in &writes {
            assert_eq!(read(&*buffered, *offset, BUFFER_ALIGNMENT), *bytes, "at {offset}");
            let behind = *offset + BUFFER_ALIGNMENT as u64;
            if behind < end as u64 {
                assert_eq!(
                    read(&*buffered, behind, BUFFER_ALIGNMENT),
                    [0; BUFFER_ALIGNMENT],
                    "behind {offset}"
                );
            }
        }
        let error = buffered.write_each(&writes[..3]).unwrap_err();
        assert_eq!((error.file.as_str(), error.operation), ("beside", "write"), "{error}");
        disk.remove("beside").unwrap();
    }
}

fn names(disk: &dyn Disk) {
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    create(disk, "b").write_at(b"old b", 0).unwrap();
    let a = create(disk, "a");
    a.write_at(b"was a", 0).unwrap();
    assert_eq!(disk.list().unwrap(), ["a", "b"]);
    disk.rename("a", "b").unwrap();
    disk.sync_directory().unwrap();
    assert_eq!(disk.list().unwrap(), ["b"]);
    let b = disk.open("b", Open::Existing, Caching::Buffered).unwrap();
    assert_eq!(read(&*b, 0, 5), b"was a");
    a.write_at(b"IS", 0).unwrap();
    assert_eq!(read(&*b, 0, 5), b"ISs a", "an open file stays itself under its new name");
    disk.rename("b", "b").unwrap();
    assert_eq!(disk.list().unwrap(), ["b"]);
    assert!(disk.rename("a", "c").unwrap_err().is_missing());
    assert!(disk.remove("a").unwrap_err().is_missing());
    disk.remove("b").unwrap();
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
}

fn bad_names_are_refused(disk: &dyn Disk) {
    for name in ["", ".", "..", "a/b", "/etc/passwd", LOCK_FILE] {
        let refused = |error: DiskError| assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        refused(disk.open(name, Open::Create, Caching::Buffered).unwrap_err());
        refused(disk.rename(name, "fine").unwrap_err());
        refused(disk.rename("fine", name).unwrap_err());
        refused(disk.remove(name).unwrap_err());
        refused(disk.map_shared(name, 4096).unwrap_err());
    }
}

fn the_lock_is_exclusive(disk: &dyn Disk) {
    let lock = disk.lock().unwrap();
    let error = disk.lock().unwrap_err();
    assert!(error.is_locked(), "{error}");
    assert_eq!(disk.list().unwrap(), Vec::<String>::new(), "the lock is no file of the database");
    drop(lock);
    drop(disk.lock().unwrap());
}

fn maps_are_found_again(disk: &dyn Disk) {
    assert_eq!(disk.shared_bytes("map").unwrap(), None);
    let map = disk.map_shared("map", 12_288).unwrap();
    assert_eq!((map.len(), map.as_words().len()), (12_288, 1536));
    assert!((map.as_ptr() as usize).is_multiple_of(4096));
    assert!(map.as_words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    map.as_words()[1535].store(77, Ordering::Relaxed);
    drop(map);
    assert_eq!(disk.shared_bytes("map").unwrap(), Some(12_288));
    let map = disk.map_shared("map", 12_288).unwrap();
    assert_eq!(map.as_words()[1535].load(Ordering::Relaxed), 77);
    assert_eq!(disk.list().unwrap(), ["map"]);

    let larger = disk.map_shared("map", 16_384).unwrap();
    assert!(larger.as_words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    larger.as_words()[1535].store(78, Ordering::Relaxed);
    assert_eq!(map.as_words()[1535].load(Ordering::Relaxed), 77, "the old map keeps its own bytes");
    for bytes in [0, 4, 4095] {
        assert_eq!(disk.map_shared("odd", bytes).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    disk.remove("map").unwrap();
    assert_eq!(disk.shared_bytes("map").unwrap(), None);
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
}

/// For a disk that is this directory.
fn maps_are_found_through_links(disk: &dyn Disk, directory: &std::path::Path) {
    let elsewhere = directory.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink("elsewhere/map", directory.join("map")).unwrap();
    assert_eq!(disk.shared_bytes("map").unwrap(), None, "a link to nothing");
    disk.map_shared("map", 12_288).unwrap().as_words()[7].store(77, Ordering::Relaxed);
    assert_eq!(disk.shared_bytes("map").unwrap(), Some(12_288));
    assert_eq!(disk.map_shared("map", 12_288).unwrap().as_words()[7].load(Ordering::Relaxed), 77);
    assert!(directory.join("map").is_symlink() && elsewhere.join("map").is_file());
    disk.remove("map").unwrap();
    std::fs::remove_dir_all(elsewhere).unwrap();
}

fn threads_share_a_file(disk: &dyn Disk) {
    let file = create(disk, "shared");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let file = &file;
            scope.spawn(move || {
                for block in 0..50 {
                    file.write_at(&[thread + 1; 700], (block * 4 + u64::from(thread)) * 700).unwrap();
                    if block % 10 == 0 {
                        file.sync().unwrap();
                    }
                }
            });
        }
    });
    for block in 0..200 {
        assert_eq!(read(&*file, block * 700, 700), vec![(block % 4) as u8 + 1; 700], "block {block}");
    }
    disk.remove("shared").unwrap();
}

/// A directory for one test, removed when dropped.
pub(super) struct ScratchDirectory(pub(super) std::path::PathBuf);

impl ScratchDirectory {
    pub(super) fn new(name: &str) -> ScratchDirectory {
        let path = std::env::temp_dir().join(format!("rialto-io-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        ScratchDirectory(path)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn file_disk_conforms() {
    let scratch = ScratchDirectory::new("conforms");
    let disk = FileDisk::create(scratch.0.join("made/on/demand")).unwrap();
    check(&*disk);
    maps_are_found_through_links(&*disk, disk.path());
}

#[test]
fn file_disk_conforms_without_direct_access() {
    // The memory file system of most machines, which older kernels open only buffered.
    let shm = std::path::Path::new("/dev/shm");
    if shm.is_dir() {
        let scratch = ScratchDirectory(shm.join(format!("rialto-io-{}", std::process::id())));
        check(&*FileDisk::create(&scratch.0).unwrap());
    }
}

#[test]
fn memory_disk_conforms() {
    check(&*MemoryDisk::new());
}

#[test]
fn simulated_disk_conforms() {
    for (name, _) in SimulatedDisk::names() {
        let clock = Arc::new(VirtualClock::new());
        check(&*SimulatedDisk::named(name, MemoryDisk::new(), clock.clone().into()).unwrap());
        assert!(clock.now() > std::time::Duration::ZERO, "{name} took no time");
    }
}

#[test]
fn faulty_disk_conforms_while_nothing_fails() {
    check(&*FaultyDisk::new(1));
}

#[test]
fn faulty_disk_conforms_after_a_crash() {
    let disk = FaultyDisk::new(2);
    disk.crash();
    check(&*disk.restart());
    let disk = FaultyDisk::new(3);
    disk.kill();
    check(&*disk.restart());
}
