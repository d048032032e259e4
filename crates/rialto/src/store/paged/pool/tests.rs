//! How room is made: what counts as a wait, and what a disk leaves that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::paged_tree::{PagedTree, RowTree};
use super::leaving::Round;
use super::*;
use crate::io::watched::{Transfers, WatchedDisk};
use crate::io::{Caching, Disk, MemoryDisk, Open};
use crate::store::paged::page_access::PageAccess;
use crate::store::paged::page_store::{PageStore, PagesOfSize};
use crate::store::paged::{KeyAhead, fetch_together};
use crate::store::tree::{Admit, EntryMarks, NewRow, body_words};

const PAGE_BYTES: usize = 4_096;
const WORDS: usize = body_words(PAGE_BYTES);

/// A disk that panics at a transfer while it is asked to.
fn panicking_disk(panics: &Arc<AtomicBool>) -> Arc<WatchedDisk> {
    let panics = panics.clone();
    WatchedDisk::over(MemoryDisk::new(), move |_, _| {
        assert!(!panics.load(Ordering::Relaxed), "the disk panics");
    })
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
    let disk = panicking_disk(&panics);
    let file = PageFile::open(&*disk, Open::Create, PAGE_BYTES, 7).unwrap();
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
    let changed = |frame| {
        let node = pool.frames.node(frame);
        u64::from(!node.latch.is_free() && node.changed_since.load(Ordering::Relaxed) != 0)
    };
    assert_eq!(pool.stats().changed, (0..24).map(changed).sum::<u64>());
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
    let disk = panicking_disk(&panics);
    let file = PageFile::open(&*disk, Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 8, 1 << 20, &Clock::System).unwrap());
    let store = PagesOfSize(pool.clone());
    let roots: Vec<u32> = (0..20).map(|_| store.make_tree().unwrap().0).collect();
    assert!(pool.pages_and_images().1 > 0, "the test's own premise: some have left");
    panics.store(true, Ordering::Relaxed);
    roots.into_iter().for_each(|root| store.take_back_tree(root));
    assert_eq!(pool.pages_and_images(), (0, 0));
}

/// Pages for which no frame is free come later.
#[test]
fn pages_are_read_side_by_side_as_far_as_frames_are_free() {
    let transfers = Arc::new(Mutex::new(Vec::new()));
    let seen = transfers.clone();
    let disk = WatchedDisk::over(MemoryDisk::new(), move |_, made| {
        if let Transfers::Reads(count) = made {
            seen.lock().push(count);
        }
    });
    let file = PageFile::open(&*disk, Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 40, 1 << 20, &Clock::System).unwrap());
    let tree = PagedTree::new(pool.clone()).unwrap();
    (0..2_000).for_each(|number| insert(&tree, number).unwrap());
    // The pages of the highest keys are in memory. Some frames are free.
    while pool.lists.lock().free.len() < 20 {
        pool.let_some_leave(&mut pool.leaving.lock(), PIN).unwrap();
    }
    transfers.lock().clear();
    let keys: Vec<[u8; 4]> = (0..12).map(|nth: u32| (nth * 60).to_be_bytes()).collect();
    let ahead = || keys.iter().map(|key| KeyAhead::of(&tree, key));
    let access = PageAccess::plain();
    fetch_together(&access, ahead()).unwrap();
    let together = std::mem::take(&mut *transfers.lock());
    assert!(together.iter().any(|&count| count >= 8), "{together:?}");
    assert!(keys.iter().all(|key| matches!(tree.missing(&access, key), Ok(None))));
    let counts = access.counts();
    assert_eq!(counts.reads, together.iter().sum::<usize>() as u64);
    assert_eq!(counts.accesses, 0, "the look-ups that follow are the accesses");
    // Without a free frame one page comes at a time.
    let frames = std::mem::take(&mut pool.lists.lock().free);
    let missing: Vec<_> = (1_000..1_400u32)
        .filter_map(|number| tree.missing(&access, &number.to_be_bytes()).unwrap())
        .collect();
    assert!(!missing.is_empty());
    assert_eq!(pool.fetch_each(&missing).unwrap(), 0);
    pool.lists.lock().free = frames;
    assert!(pool.fetch_each(&missing).unwrap() > 0);
    assert!(pool.loads.lock().is_empty());
}

/// An image that is damaged leaves the others, and their frames, alone.
#[test]
fn a_damaged_image_among_several_is_an_error_and_nothing_is_held() {
    let disk = MemoryDisk::new();
    let file = PageFile::open(&*disk, Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 40, 1 << 20, &Clock::System).unwrap());
    let tree = PagedTree::new(pool.clone()).unwrap();
    (0..2_000).for_each(|number| insert(&tree, number).unwrap());
    while pool.lists.lock().free.len() < 20 {
        pool.let_some_leave(&mut pool.leaving.lock(), PIN).unwrap();
    }
    let access = PageAccess::plain();
    let missing: Vec<_> =
        (0..10u32).filter_map(|nth| tree.missing(&access, &(nth * 60).to_be_bytes()).unwrap()).collect();
    let Whereabouts::OnDisk(saved) = pool.map.find(missing[4].page) else { panic!("it is missing") };
    let offset = u64::from(saved.address.0) * PAGE_BYTES as u64 + 2_000;
    let file = disk.open("pages", Open::Existing, Caching::Buffered).unwrap();
    let mut bytes = [0; 8];
    file.read_at(&mut bytes, offset).unwrap();
    file.write_at(&bytes.map(|byte| !byte), offset).unwrap();
    let error = pool.fetch_each(&missing).unwrap_err();
    assert!(matches!(error, crate::Error::Corrupt { .. }), "{error}");
    assert!(pool.loads.lock().is_empty());
    assert_eq!(frames_and_addresses(&pool).0, 40, "each frame is free, or in a queue");
    let pins = (0..40).map(|frame| pool.frames.node(frame).pins.load(Ordering::Relaxed));
    assert_eq!(pins.sum::<u64>(), 0);
    file.write_at(&bytes, offset).unwrap();
    assert!((0..2_000).all(|number| get(&tree, number).unwrap()));
}
