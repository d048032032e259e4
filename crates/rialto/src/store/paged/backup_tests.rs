//! Which pages increments hold, in tiny pools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::page_access::PageAccess;
use super::page_file::PageFile;
use super::page_map::PageId;
use super::paged_tree::{PagedTree, RowTree};
use super::pool::PagePool;
use crate::io::{AlignedBuffer, Clock, MemoryDisk, Open, Random};
use crate::store::tree::{Admit, EntryMarks, NewRow, body_words};

const PAGE_BYTES: usize = 4096;
const WORDS: usize = body_words(PAGE_BYTES);

fn change(tree: &PagedTree<WORDS>, random: &mut Random, times: u64) {
    for _ in 0..times {
        let key = (random.below(3_000) as u32).to_be_bytes();
        let row = vec![random.below(256) as u8; random.below(200) as usize];
        match random.below(3) {
            0 => _ = tree.remove(&PageAccess::plain(), &key, None).unwrap(),
            _ => {
                let new = NewRow { bytes: &row, room: row.len(), marks: EntryMarks::default() };
                tree.insert(&PageAccess::plain(), &key, &new, &mut || Admit::Go).unwrap();
            }
        }
    }
}

/// What the backups hold together: the image of each page.
#[derive(Default)]
struct Held {
    images: BTreeMap<u32, Vec<u8>>,
    is_begun: bool,
    /// How many pages increments held, and how many there were.
    held: u64,
    there: u64,
}

impl Held {
    /// A backup; `amid` runs at each of its steps. It fails, or holds each page whose image as of the cut is another one than
    /// as of the last.
    fn back_up(&mut self, pool: &PagePool<WORDS>, fails: bool, mut amid: impl FnMut()) {
        let mut pages = pool.make_backup_cut();
        amid();
        let (images, written) = pool.write_backup_cut(&|| Ok(())).unwrap();
        pages.insert_all(&written);
        amid();
        if fails {
            pool.note_changed(&pages);
        } else {
            let mut buffer = AlignedBuffer::zeroed(PAGE_BYTES);
            for (page, image) in (0..).zip(images) {
                let Some(image) = image else {
                    self.images.remove(&page);
                    continue;
                };
                pool.read_image(PageId(page), image, &mut buffer).unwrap();
                let is_held = !self.is_begun || pages.contains(page);
                if is_held {
                    self.images.insert(page, buffer.to_vec());
                } else {
                    assert!(
                        self.images.get(&page).is_some_and(|image| image[..] == buffer[..]),
                        "page {page}"
                    );
                }
                (self.held, self.there) = (self.held + u64::from(is_held), self.there + 1);
            }
            self.is_begun = true;
        }
        pool.abandon_cut(false);
    }
}

fn checkpoint(pool: &PagePool<WORDS>, is_published: bool, mut amid: impl FnMut()) {
    pool.begin_checkpoint();
    pool.make_cut();
    amid();
    pool.write_cut(&|| Ok(())).unwrap();
    amid();
    if is_published { pool.publish_cut() } else { pool.abandon_cut(false) }
}

fn pool_of(frames: u32) -> (Arc<PagePool<WORDS>>, PagedTree<WORDS>) {
    let file = PageFile::open(&*MemoryDisk::new(), Open::Create, PAGE_BYTES, 7).unwrap();
    let pool = Arc::new(PagePool::<WORDS>::new(file, frames, 1 << 20, &Clock::System).unwrap());
    let tree = PagedTree::of_root(pool.make_root(true).unwrap(), pool.clone());
    (pool, tree)
}

#[test]
fn increments_hold_each_page_that_has_changed() {
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    for frames in [8, 40, 400] {
        let (pool, tree) = pool_of(frames);
        change(&tree, &mut random, 3_000);
        let mut held = Held::default();
        for _ in 0..60 {
            let times = [0, 3, 300][random.below(3) as usize];
            change(&tree, &mut random, times);
            let kind = random.below(4);
            let amid = || change(&tree, &mut random, times);
            match kind {
                0 => checkpoint(&pool, times > 0, amid),
                kind => held.back_up(&pool, kind == 1, amid),
            }
        }
        assert!(
            held.held < held.there,
            "RIALTO_SEED={seed}, {frames} frames: {} of {} pages",
            held.held,
            held.there
        );
    }
}

/// The same beside threads that go on changing rows.
#[test]
fn increments_hold_each_page_that_threads_change() {
    let mut random = Random::new(Random::seed_from_environment());
    for frames in [30, 400] {
        let (pool, tree) = pool_of(frames);
        change(&tree, &mut random, 3_000);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = super::tests::StopOnDrop(&stop);
            for thread in 0..2 {
                let (tree, stop) = (&tree, &stop);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    while !stop.load(Ordering::Relaxed) {
                        change(tree, &mut random, 5);
                    }
                });
            }
            let mut held = Held::default();
            for _ in 0..60 {
                match random.below(4) {
                    0 => checkpoint(&pool, true, || ()),
                    kind => held.back_up(&pool, kind == 1, || ()),
                }
            }
        });
    }
}
