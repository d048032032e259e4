//! How room is made: what counts as a wait, and what a disk leaves that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use super::super::paged_tree::{PagedTree, RowTree};
use super::leaving::Round;
use super::*;
use crate::io::{Caching, DirectoryLock, Disk, DiskResult, File, MemoryDisk, Open, SharedMap};
use crate::store::paged::page_access::PageAccess;
use crate::store::paged::page_store::{PageStore, PagesOfSize};
use crate::store::tree::{Admit, EntryMarks, NewRow, body_words};

const PAGE_BYTES: usize = 4_096;
const WORDS: usize = body_words(PAGE_BYTES);

/// A disk in memory that panics while it is asked to.
#[derive(Debug)]
struct PanickingDisk {
    inner: Arc<MemoryDisk>,
    panics: Arc<AtomicBool>,
}

#[derive(Debug)]
struct PanickingFile {
    inner: Arc<dyn File>,
    panics: Arc<AtomicBool>,
}

impl PanickingFile {
    fn ask(&self) {
        assert!(!self.panics.load(Ordering::Relaxed), "the disk panics");
    }
}

impl File for PanickingFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        self.ask();
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        self.ask();
        self.inner.write_at(buffer, offset)
    }

    fn sync(&self) -> DiskResult<()> {
        self.inner.sync()
    }

    fn length(&self) -> DiskResult<u64> {
        self.inner.length()
    }

    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.inner.set_length(bytes)
    }

    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.inner.allocate(bytes)
    }
}

impl Disk for PanickingDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        let inner = self.inner.open(name, open, caching)?;
        Ok(Arc::new(PanickingFile { inner, panics: self.panics.clone() }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> DiskResult<()> {
        self.inner.sync_directory()
    }

    fn lock(&self) -> DiskResult<DirectoryLock> {
        self.inner.lock()
    }

    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        self.inner.map_shared(name, bytes)
    }

    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        self.inner.shared_bytes(name)
    }

    fn boot(&self) -> u128 {
        self.inner.boot()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

fn insert(tree: &PagedTree<WORDS>, number: u32) -> Result<()> {
    insert_by(&PageAccess::plain(), tree, number)
}

fn insert_by(access: &PageAccess, tree: &PagedTree<WORDS>, number: u32) -> Result<()> {
    let row = NewRow { bytes: &[1; 500], room: 500, marks: EntryMarks::default() };
    tree.insert(access, &number.to_be_bytes(), &row, &mut || Admit::Go).map(drop)
}

fn get(tree: &PagedTree<WORDS>, number: u32) -> Result<bool> {
    let found = tree.get(&PageAccess::plain(), &number.to_be_bytes(), &mut Vec::new())?;
    Ok(found.marks.is_some())
}

/// What is free, what is in a queue, and the addresses in use.
fn frames_and_addresses(pool: &PagePool<WORDS>) -> (usize, usize) {
    let lists = pool.lists.lock();
    (lists.free.len() + lists.replacement.len(), lists.space.in_use())
}

#[test]
fn a_panic_of_the_disk_takes_no_frame_and_no_address() {
    let panics = Arc::new(AtomicBool::new(false));
    let disk = PanickingDisk { inner: MemoryDisk::new(), panics: panics.clone() };
    let file = PageFile::open(&disk, Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 24, 1 << 20, &Clock::System).unwrap());
    let tree = PagedTree::new(pool.clone()).unwrap();
    let mut last = 0;
    for _ in 0..200 {
        last += 1;
        insert(&tree, last).unwrap();
    }
    for round in 0..40 {
        panics.store(true, Ordering::Relaxed);
        let before = frames_and_addresses(&pool);
        // A read of the first rows, or a write for room behind the last ones.
        let done = catch_unwind(AssertUnwindSafe(|| match round % 2 {
            0 => get(&tree, 1 + round).map(drop),
            _ => (last + 1..last + 100).try_for_each(|number| insert(&tree, number)),
        }));
        panics.store(false, Ordering::Relaxed);
        assert!(done.is_err(), "the test's own premise: it needs the disk");
        let after = frames_and_addresses(&pool);
        assert_eq!(after.0, 24, "round {round}: each frame is free, or in a queue");
        assert!(after.1 <= before.1, "round {round}: no address is taken for nothing");
        while get(&tree, last + 1).unwrap() {
            last += 1;
        }
        assert!(pool.loads.lock().is_empty());
    }
    assert!((1..=last).all(|number| get(&tree, number).unwrap()));
    let pins = (0..24).map(|frame| pool.frames.node(frame).pins.fetch_add(PIN, Ordering::Relaxed));
    assert_eq!(pins.sum::<u64>(), 0, "nothing is pinned");
    // Now all is. It is not taken for held by a round that goes on.
    let round = pool.let_some_leave(&mut pool.leaving.lock(), PIN);
    assert!(matches!(round, Ok(Round::AllStay)));
}

/// Some of the places for new pages are those of pages that have changed, some those of pages that have not.
#[test]
fn a_wait_for_room_counts_if_a_page_is_written_meanwhile() {
    let file = PageFile::open(&*MemoryDisk::new(), Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 24, 1 << 20, &Clock::System).unwrap());
    let tree = PagedTree::new(pool.clone()).unwrap();
    let (mut waits, mut without_a_write) = (0, 0);
    for number in 1..3_000 {
        if number / 100 % 2 == 1 && number % 5 == 0 {
            // No page has changed since.
            pool.begin_checkpoint();
            pool.make_cut();
            pool.write_cut(&|| Ok(())).unwrap();
            pool.publish_cut();
        }
        (1..number).step_by(101).for_each(|other| assert!(get(&tree, other).unwrap()));
        let is_full = pool.lists.lock().free.len() < FRAMES_AT_ONCE;
        let (pages, (_, writes)) = (pool.pages_and_images().0, pool.reads_and_writes());
        let access = PageAccess::plain();
        insert_by(&access, &tree, number).unwrap();
        let (counts, has_written) = (access.counts(), pool.reads_and_writes().1 > writes);
        assert!(counts.room_waits == 0 || has_written, "row {number}: {counts:?}");
        waits += counts.room_waits;
        let made_room = is_full && pool.pages_and_images().0 > pages;
        without_a_write += u32::from(made_room && !has_written);
    }
    assert!(waits > 20 && without_a_write > 20, "{waits} waits, {without_a_write} times without");
}

/// Its page has left memory, and the disk cannot be used.
#[test]
fn a_tree_that_was_just_made_is_taken_back_without_a_read() {
    let panics = Arc::new(AtomicBool::new(false));
    let disk = PanickingDisk { inner: MemoryDisk::new(), panics: panics.clone() };
    let file = PageFile::open(&disk, Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 8, 1 << 20, &Clock::System).unwrap());
    let store = PagesOfSize(pool.clone());
    let roots: Vec<u32> = (0..20).map(|_| store.make_tree().unwrap().0).collect();
    assert!(pool.pages_and_images().1 > 0, "the test's own premise: some have left");
    panics.store(true, Ordering::Relaxed);
    roots.into_iter().for_each(|root| store.take_back_tree(root));
    assert_eq!(pool.pages_and_images(), (0, 0));
}
