//! Trees of small pages in tiny pools: against a model, and with threads.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bits::Bits;
use super::page_access::PageAccess;
use super::page_file::{PAGE_FILE, PageFile};
use super::page_map::Saved;
use super::paged_tree::{PagedTree, RowTree};
use super::pool::PagePool;
use crate::io::{Caching, Clock, Disk, MemoryDisk, Open, Random};
use crate::store::tree::{
    Admit, Batch, Direction, EntryMarks, Guard, InsertRow, More, NewRow, ScanRange, body_words, row_words_max,
};

const PAGE_BYTES: usize = 4096;
const WORDS: usize = body_words(PAGE_BYTES);

fn pool(frames: u32) -> Arc<PagePool<WORDS>> {
    let file = PageFile::open(&*MemoryDisk::new(), Open::Create, PAGE_BYTES, 7).unwrap();
    Arc::new(PagePool::new(file, frames, 1 << 20, &Clock::System).unwrap())
}

/// The addresses that a checkpoint has published with these images, and none of an older one.
pub(super) fn in_use(images: &[Option<Saved>]) -> (Bits, Bits) {
    let mut addresses = Bits::default();
    images.iter().flatten().for_each(|image| _ = addresses.insert(image.address.0));
    (addresses, Bits::default())
}

fn insert(tree: &PagedTree<WORDS>, key: &[u8], row: &[u8]) -> InsertRow {
    insert_by(&PageAccess::plain(), tree, key, row)
}

fn insert_by(by: &PageAccess, tree: &PagedTree<WORDS>, key: &[u8], row: &[u8]) -> InsertRow {
    let new = NewRow { bytes: row, room: row.len(), marks: EntryMarks::default() };
    tree.insert(by, key, &new, &mut || Admit::Go).unwrap()
}

fn get(tree: &PagedTree<WORDS>, key: &[u8]) -> Option<Vec<u8>> {
    get_by(&PageAccess::plain(), tree, key)
}

fn get_by(by: &PageAccess, tree: &PagedTree<WORDS>, key: &[u8]) -> Option<Vec<u8>> {
    let mut row = Vec::new();
    tree.get(by, key, &mut row).unwrap().marks.map(|_| row)
}

fn all(tree: &PagedTree<WORDS>, direction: Direction) -> Vec<Vec<u8>> {
    let (mut batch, mut keys) = (Batch::new(), Vec::new());
    loop {
        let more = tree
            .read_leaf(&PageAccess::plain(), &ScanRange::ALL, direction, Guard::Leave, &mut batch)
            .unwrap();
        keys.extend(batch.iter().map(|(key, _)| key.to_vec()));
        if more == More::No {
            return keys;
        }
    }
}

/// Keys of numbers, of texts with long common prefixes, and long ones.
fn draw_key(random: &mut Random, shape: u64) -> Vec<u8> {
    match shape {
        0 => (random.below(5_000) as u32).to_be_bytes().to_vec(),
        1 => format!("customer/{:03}/{}", random.below(40), random.below(60)).into_bytes(),
        _ => {
            let mut key = vec![b'k'; random.below(600) as usize];
            key.extend_from_slice(&(random.below(400) as u16).to_be_bytes());
            key
        }
    }
}

/// More trees with the same keys than there are fingers, so that some share the places of their fingers. The rows tell the trees
/// apart.
#[test]
fn a_finger_leads_to_its_tree_only() {
    let (pool, by) = (pool(200), &PageAccess::with_fingers());
    let trees: Vec<_> = (0..150_u8).map(|_| PagedTree::new(pool.clone()).unwrap()).collect();
    for number in 0..20_u32 {
        let key = number.to_be_bytes();
        for (row, tree) in (0..).zip(&trees) {
            insert_by(by, tree, &key, &[row]);
        }
        for (row, tree) in (0..).zip(&trees) {
            assert_eq!(get_by(by, tree, &key), Some(vec![row]), "key {number}");
        }
    }
}

/// One row is read again and again by its finger, beside reads of far more pages than there are frames. Its page stays.
#[test]
fn a_page_that_is_used_by_fingers_stays_in_memory() {
    let (tree, by) = (PagedTree::new(pool(64)).unwrap(), &PageAccess::with_fingers());
    for key in 0..10_000_u32 {
        insert(&tree, &key.to_be_bytes(), &[7; 100]);
    }
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    for _ in 0..20_000 {
        get_by(by, &tree, &5_000_u32.to_be_bytes()).unwrap();
        get(&tree, &(random.below(10_000) as u32).to_be_bytes()).unwrap();
    }
    let misses = by.counts().misses;
    assert!(misses <= 10, "RIALTO_SEED={seed}: {misses} of 20000 reads of one row have missed its page");
}

#[test]
fn a_tree_of_pages_is_a_map() {
    let mut random = Random::new(Random::seed_from_environment());
    for (shape, frames) in [(0, 8), (0, 64), (1, 9), (2, 12)] {
        let (tree, mut model) = (PagedTree::new(pool(frames)).unwrap(), BTreeMap::new());
        let by = &PageAccess::with_fingers();
        for step in 0..12_000 {
            let key = draw_key(&mut random, shape);
            let most = (8 * row_words_max(WORDS, key.len())).min(300) as u64;
            let row: Vec<u8> = (0..random.below(most + 1)).map(|_| random.below(256) as u8).collect();
            let context = format!("shape {shape}, {frames} frames, step {step}, key {key:02x?}");
            match random.below(10) {
                0..=3 => {
                    let expected = match model.contains_key(&key) {
                        true => InsertRow::Exists(EntryMarks::default()),
                        false => InsertRow::Done,
                    };
                    assert_eq!(insert_by(by, &tree, &key, &row), expected, "{context}");
                    model.entry(key).or_insert(row);
                }
                4..=5 => {
                    assert_eq!(
                        tree.remove(by, &key, None).unwrap(),
                        model.remove(&key).is_some(),
                        "{context}"
                    );
                }
                6 => {
                    // A row that grows needs room first.
                    assert_eq!(
                        tree.enlarge(by, &key, row.len()).unwrap(),
                        model.contains_key(&key),
                        "{context}"
                    );
                    let done =
                        tree.change(by, &key, &mut |entry| entry.set(&row, EntryMarks::default())).unwrap();
                    assert_eq!(done, model.contains_key(&key), "{context}");
                    model.entry(key).and_modify(|there| *there = row);
                }
                7 => {
                    let Some(there) = model.get_mut(&key).filter(|row| !row.is_empty()) else { continue };
                    let from = random.below(there.len() as u64) as usize;
                    let count = random.below((there.len() - from) as u64 + 1) as usize;
                    let patch = vec![random.below(256) as u8; count];
                    there[from..from + count].copy_from_slice(&patch);
                    assert!(tree.change(by, &key, &mut |entry| entry.patch(from, &patch)).unwrap());
                }
                _ => assert_eq!(get_by(by, &tree, &key), model.get(&key).cloned(), "{context}"),
            }
        }
        let keys: Vec<_> = model.keys().cloned().collect();
        assert_eq!(all(&tree, Direction::Forward), keys, "shape {shape}, {frames} frames");
        let backward: Vec<_> = keys.into_iter().rev().collect();
        assert_eq!(all(&tree, Direction::Backward), backward, "shape {shape}, {frames} frames");
        for (key, row) in &model {
            assert_eq!(get(&tree, key).as_ref(), Some(row), "shape {shape}, key {key:02x?}");
        }
    }
}

#[test]
fn pages_leave_and_come_back() {
    let pool = pool(16);
    let tree = PagedTree::new(pool.clone()).unwrap();
    for number in 0..5_000_u32 {
        insert(&tree, &number.to_be_bytes(), &[number as u8; 100]);
    }
    let (reads, writes) = pool.reads_and_writes();
    assert!(writes > 100, "{writes} pages were written");
    for number in (0..5_000_u32).step_by(40) {
        assert_eq!(get(&tree, &number.to_be_bytes()), Some(vec![number as u8; 100]));
    }
    let (more_reads, _) = pool.reads_and_writes();
    assert!(more_reads - reads >= 100, "{} pages were read", more_reads - reads);
}

#[test]
fn what_fits_into_the_pool_is_neither_read_nor_written() {
    let pool = pool(256);
    let tree = PagedTree::new(pool.clone()).unwrap();
    for number in 0..5_000_u32 {
        insert(&tree, &number.to_be_bytes(), &[number as u8; 100]);
    }
    (0..5_000_u32).for_each(|number| assert!(get(&tree, &number.to_be_bytes()).is_some()));
    assert_eq!(pool.reads_and_writes(), (0, 0));
}

#[test]
fn a_tree_that_is_discarded_gives_all_its_pages_back() {
    let pool = pool(12);
    let tree = PagedTree::new(pool.clone()).unwrap();
    (0..3_000_u32).for_each(|number| _ = insert(&tree, &number.to_be_bytes(), &[1; 100]));
    let (pages, images) = pool.pages_and_images();
    assert!(pages > 100 && images > 80, "{pages} pages, {images} in the page file");
    assert_eq!(tree.discard(), [0; 0]);
    assert_eq!(pool.pages_and_images(), (0, 0));
    // Their frames and numbers are used again.
    let tree = PagedTree::new(pool.clone()).unwrap();
    (0..3_000_u32).for_each(|number| _ = insert(&tree, &number.to_be_bytes(), &[2; 100]));
    assert_eq!(get(&tree, &7_u32.to_be_bytes()), Some(vec![2; 100]));
    assert_eq!(all(&tree, Direction::Forward).len(), 3_000);
}

#[test]
fn a_damaged_page_is_an_error_that_names_its_place() {
    let disk = MemoryDisk::new();
    let file = PageFile::open(&*disk, Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 8, 1 << 20, &Clock::System).unwrap());
    let tree = PagedTree::new(pool).unwrap();
    (0..2_000_u32).for_each(|number| _ = insert(&tree, &number.to_be_bytes(), &[1; 100]));
    let file = disk.open(PAGE_FILE, Open::Existing, Caching::Buffered).unwrap();
    for address in 0..file.length().unwrap() / PAGE_BYTES as u64 {
        file.write_at(&[0xff], address * PAGE_BYTES as u64 + 100).unwrap();
    }
    let mut errors = (0..2_000_u32)
        .filter_map(|number| tree.get(&PageAccess::plain(), &number.to_be_bytes(), &mut Vec::new()).err());
    let error = errors.next().expect("most leaves are damaged").to_string();
    assert!(error.contains("\"pages\"") && error.contains("its bytes have"), "{error}");
}

/// Each thread has keys of its own, between those of the others.
#[test]
fn threads_share_a_tree_that_is_larger_than_its_pool() {
    const THREADS: u32 = 3;
    let tree = PagedTree::new(pool(24)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let tree = &tree;
            scope.spawn(move || {
                let mut random = Random::new(u64::from(thread) + 1);
                let mut model = BTreeMap::new();
                for _ in 0..6_000 {
                    let key = (random.below(1_500) as u32 * THREADS + thread).to_be_bytes().to_vec();
                    let row = vec![random.below(256) as u8; random.below(200) as usize];
                    match random.below(4) {
                        0 | 1 => {
                            insert(tree, &key, &row);
                            model.entry(key).or_insert(row);
                        }
                        2 => assert_eq!(
                            tree.remove(&PageAccess::plain(), &key, None).unwrap(),
                            model.remove(&key).is_some()
                        ),
                        _ => assert_eq!(get(tree, &key), model.get(&key).cloned()),
                    }
                }
                for (key, row) in model {
                    assert_eq!(get(tree, &key), Some(row));
                }
            });
        }
    });
    let keys = all(&tree, Direction::Forward);
    assert!(keys.is_sorted() && !keys.is_empty());
}

#[test]
fn a_scan_reads_a_part_of_a_tree() {
    let tree = PagedTree::new(pool(10)).unwrap();
    (0..2_000_u32).for_each(|number| _ = insert(&tree, &number.to_be_bytes(), &[1; 50]));
    let (low, high) = (500_u32.to_be_bytes(), 1_500_u32.to_be_bytes());
    let range = ScanRange { low: Bound::Included(&low), high: Bound::Excluded(&high) };
    let (mut batch, mut count) = (Batch::new(), 0);
    while tree.read_leaf(&PageAccess::plain(), &range, Direction::Forward, Guard::Set, &mut batch).unwrap()
        == More::Yes
    {
        count += batch.len();
    }
    assert_eq!(count + batch.len(), 1_000);
}

/// Two of the longest rows and a third one fit into a node, whatever the prefix of its keys.
#[test]
fn the_longest_rows_fit() {
    for key_bytes in [4, 11, 12, 13, 60] {
        let tree = PagedTree::new(pool(40)).unwrap();
        let row = vec![7; tree.row_bytes_max(key_bytes)];
        for tens in 0..60_u32 {
            // In the order of 10, 20, 30, 40, then 5, 15, 25: between two of the longest.
            let number = if tens < 30 { 10 * tens } else { 10 * (tens - 30) + 5 };
            let mut key = vec![0; key_bytes - 4];
            key.extend_from_slice(&number.to_be_bytes());
            insert(&tree, &key, &row);
        }
        assert_eq!(all(&tree, Direction::Forward).len(), 60);
    }
}

/// A database's pages on a disk that outlives the pool.
struct PageDisk {
    disk: Arc<MemoryDisk>,
    root: u32,
}

impl PageDisk {
    fn file(&self) -> PageFile {
        PageFile::open(&*self.disk, Open::Create, PAGE_BYTES, 7).unwrap()
    }
}

/// Random changes, cuts at any time, and changes while a checkpoint is in progress. A pool that is opened with what the
/// checkpoint has published has the tree as it was at the cut, also after the next checkpoint has begun.
#[test]
fn a_checkpoint_publishes_the_pages_as_they_were_at_its_cut() {
    let mut random = Random::new(Random::seed_from_environment());
    for frames in [8, 40, 400] {
        let disk = MemoryDisk::new();
        let file = PageFile::open(&*disk, Open::Create, PAGE_BYTES, 7).unwrap();
        let pool = Arc::new(PagePool::<WORDS>::new(file, frames, 1 << 20, &Clock::System).unwrap());
        let root = pool.make_root(true).unwrap();
        let tree = PagedTree::of_root(root, pool.clone());
        let pages = PageDisk { disk, root };
        let mut model = BTreeMap::new();
        let change = |random: &mut Random, model: &mut BTreeMap<Vec<u8>, Vec<u8>>| {
            for _ in 0..random.below(400) {
                let key = (random.below(1_000) as u32).to_be_bytes().to_vec();
                let row = vec![random.below(256) as u8; random.below(200) as usize];
                match random.below(3) {
                    0 | 1 => {
                        insert(&tree, &key, &row);
                        model.entry(key).or_insert(row);
                    }
                    _ => assert_eq!(
                        tree.remove(&PageAccess::plain(), &key, None).unwrap(),
                        model.remove(&key).is_some()
                    ),
                }
            }
        };
        let mut published = None;
        for checkpoint in 0..12 {
            let context = format!("{frames} frames, checkpoint {checkpoint}");
            change(&mut random, &mut model);
            pool.begin_checkpoint();
            change(&mut random, &mut model);
            pool.make_cut();
            let at_cut = model.clone();
            change(&mut random, &mut model);
            let images = pool.write_cut(&|| Ok(())).unwrap();
            if random.below(4) == 0 {
                pool.abandon_cut(false);
            } else {
                change(&mut random, &mut model);
                pool.publish_cut();
                published = Some((images, at_cut));
            }
            change(&mut random, &mut model);
            // A crash at this moment.
            let Some((images, at_cut)) = &published else { continue };
            let opened = Arc::new(
                PagePool::<WORDS>::open(pages.file(), (30, 1 << 20), images, in_use(images), &Clock::System)
                    .unwrap(),
            );
            let found = PagedTree::of_root(pages.root, opened);
            assert_eq!(
                all(&found, Direction::Forward),
                at_cut.keys().cloned().collect::<Vec<_>>(),
                "{context}"
            );
            for (key, row) in at_cut {
                assert_eq!(get(&found, key).as_ref(), Some(row), "{context}");
            }
        }
    }
}

/// The same beside threads that go on changing rows; each of their changes is one page's.
#[test]
fn a_checkpoint_goes_on_beside_changes() {
    let disk = MemoryDisk::new();
    let file = PageFile::open(&*disk, Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, 30, 1 << 20, &Clock::System).unwrap());
    let root = pool.make_root(true).unwrap();
    let tree = PagedTree::of_root(root, pool.clone());
    let pages = PageDisk { disk, root };
    const KEYS: u32 = 2_000;
    for number in 0..KEYS {
        insert(&tree, &number.to_be_bytes(), &[0; 100]);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when an assertion fails: else the scope waits for the threads for ever.
        let _stop = StopOnDrop(&stop);
        for thread in 0..2 {
            let (tree, stop) = (&tree, &stop);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !stop.load(Ordering::Relaxed) {
                    let key = (random.below(u64::from(KEYS)) as u32).to_be_bytes();
                    // All bytes of a row are the same, in each of its versions.
                    let fill = random.below(256) as u8;
                    tree.change(&PageAccess::plain(), &key, &mut |entry| {
                        entry.set(&[fill; 100], EntryMarks::default())
                    })
                    .unwrap();
                }
            });
        }
        for _ in 0..20 {
            pool.begin_checkpoint();
            pool.make_cut();
            let images = pool.write_cut(&|| Ok(())).unwrap();
            pool.publish_cut();
            let opened = Arc::new(
                PagePool::<WORDS>::open(
                    pages.file(),
                    (30, 1 << 20),
                    &images,
                    in_use(&images),
                    &Clock::System,
                )
                .unwrap(),
            );
            let found = PagedTree::of_root(pages.root, opened);
            for number in 0..KEYS {
                let row = get(&found, &number.to_be_bytes()).expect("no row is deleted");
                assert!(row.iter().all(|&byte| byte == row[0]), "a torn row: {row:?}");
            }
        }
    });
}

/// Sets the flag when it is dropped.
pub(super) struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
