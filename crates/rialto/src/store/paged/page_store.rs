//! [`PageStore`]: the pages of a database, whatever their size.

use std::sync::Arc;

use super::bits::Bits;
use super::file_space::FileAddress;
use super::page_file::PageFile;
use super::page_map::{PageId, Saved};
use super::paged_tree::{PagedTree, RowTree};
use super::pool::{PagePool, Pages};
use super::published::{Published, PublishedAt, PublishedTable, read_published};
use crate::error::{Error, Result};
use crate::io::{AlignedBuffer, Clock, Disk, Open};
use crate::store::tree::{Node, body_words};

/// The most pages that a database has, of any size: their map takes address space, and memory as it is used.
pub(super) const PAGES_MAX: u32 = 1 << 28;

/// The fewest frames of a pool: for the way to a few leaves, and what a split adds.
const FRAMES_MIN: u64 = 64;

/// The sizes that pages may have, in bytes.
pub(crate) const PAGE_SIZES: [usize; 5] = [4_096, 8_192, 16_384, 32_768, 65_536];

/// The fewest bytes for pages in memory: as many frames of the largest size.
pub(crate) const CACHE_BYTES_MIN: u64 = FRAMES_MIN * 65_536;

/// The pages of a database.
pub(crate) trait PageStore: Send + Sync {
    /// Makes an empty tree, and gives its root, by which an opening finds it again.
    fn make_tree(&self) -> Result<(u32, Arc<dyn RowTree>)>;

    /// Takes back a tree that was just made, without its page being read.
    fn take_back_tree(&self, root: u32);

    /// The tree of a root.
    fn tree(&self, root: u32) -> Arc<dyn RowTree>;

    /// A checkpoint begins: the home block that named what the checkpoint before the last has published is retired.
    fn begin_checkpoint(&self);

    /// Makes the cut of a checkpoint. No commit is applied meanwhile.
    fn make_cut(&self);

    /// Writes the pages as of the cut, and what is to be said of them, durably. The tables are those of the cut.
    ///
    /// # Errors
    /// Of a write, or a sync. Then the checkpoint is to be given up.
    fn write_cut(&self, tables: Vec<PublishedTable>) -> Result<PublishedAt>;

    /// Makes the cut of a backup, as [`PageStore::make_cut`]. Gives the pages that have changed since the last backup's cut.
    fn make_backup_cut(&self) -> Bits;

    /// Writes the pages as of a backup's cut, and gives where the image of each is, and which of them were written for that.
    /// It calls `check` again and again, whose error ends it.
    ///
    /// # Errors
    /// Of a write. Then the backup has failed.
    fn write_backup_cut(&self, check: &dyn Fn() -> Result<()>) -> Result<(Vec<Option<Saved>>, Bits)>;

    /// These pages have changed since the last backup that was completed.
    fn note_changed(&self, pages: &Bits);

    /// Reads an image, and checks it.
    ///
    /// # Errors
    /// Those of the disk; [`Error::Corrupt`] for an image that is not what it should be.
    fn read_image(&self, page: PageId, saved: Saved, buffer: &mut AlignedBuffer) -> Result<()>;

    /// The checkpoint is complete: a home block names what it has written.
    fn publish_cut(&self);

    /// The checkpoint is given up. A home block may name what it has written if the write of that block has failed.
    fn abandon_cut(&self, may_be_named: bool);

    /// What has happened to the pages, and how many there are.
    fn stats(&self) -> PageStats;

    /// Whether so many places of the file are kept for the last checkpoint alone that another one should begin, to free them.
    fn wants_checkpoint(&self) -> bool;

    /// Writes pages and lets them leave when frames become few, until that is ended.
    fn write_behind(&self);

    /// Does the same once, for a database without threads of its own.
    fn write_behind_once(&self);

    /// Ends the first.
    fn end_write_behind(&self);

    /// From now on no page is read or written.
    fn close(&self);
}

/// What has happened to the pages of a database since it was opened, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageStats {
    /// The bytes of a page.
    pub page_bytes: u64,
    /// Pages that there are.
    pub pages: u64,
    /// Pages that fetch stages keep in memory for operate stages now.
    pub kept: u64,
    /// Pages that were read from the disk.
    pub reads: u64,
    /// Pages that were written.
    pub writes: u64,
    /// The length of the page file, in bytes.
    pub file_bytes: u64,
    /// Bytes of it that are in use: by the pages as they are now, and as the last checkpoints have published them.
    pub used_bytes: u64,
    /// Bytes of it that only the last checkpoint needs: the pages have been written again since its cut. A checkpoint
    /// begins when these are more than 4 MiB, and more than an eighth to a quarter of the pages, by how many the last
    /// checkpoint has written.
    pub superseded_bytes: u64,
    /// Pages in memory that have changed since they were written, or were never written. A checkpoint writes these, and 8 bytes for each page.
    pub changed: u64,
}

/// What the checkpoints in force have said of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PagesInForce {
    /// The one that is opened; none if its home block is of a time without pages.
    pub current: Option<PublishedAt>,
    /// The other one, while its home block is in force too.
    pub other: Option<PublishedAt>,
}

/// The file of pages, and the memory for them.
#[derive(Clone, Copy)]
pub(crate) struct PageRoom<'a> {
    pub disk: &'a dyn Disk,
    /// The bytes of a page.
    pub page_bytes: usize,
    /// Of the checksums of images.
    pub seed: u64,
    /// The bytes that pages in memory take.
    pub cache_bytes: u64,
    /// Whether nothing is written.
    pub is_read_only: bool,
    /// The clock by which threads wait for pages.
    pub clock: &'a Clock,
}

/// Calls a generic function with the words of the body of pages of a size.
macro_rules! with_words {
    ($room:expr, $function:ident($($argument:expr),*)) => {
        match $room.page_bytes {
            4_096 => $function::<{ body_words(4_096) }>($($argument),*),
            8_192 => $function::<{ body_words(8_192) }>($($argument),*),
            16_384 => $function::<{ body_words(16_384) }>($($argument),*),
            32_768 => $function::<{ body_words(32_768) }>($($argument),*),
            65_536 => $function::<{ body_words(65_536) }>($($argument),*),
            other => Err(Error::Unsupported {
                what: format!("pages of {other} bytes: use 4096, 8192, 16384, 32768 or 65536"),
            }),
        }
    };
}

/// The store of a database that has no pages yet.
///
/// # Errors
/// [`Error::Unsupported`] for another size of pages; those of the disk.
pub(crate) fn create(room: PageRoom<'_>) -> Result<Arc<dyn PageStore>> {
    with_words!(room, create_with(room))
}

/// The store of a database as a checkpoint has left it, and its tables.
///
/// # Errors
/// As [`create`]; [`Error::Corrupt`] if what the checkpoint says is damaged.
pub(crate) fn open(
    room: PageRoom<'_>,
    in_force: PagesInForce,
) -> Result<(Arc<dyn PageStore>, Vec<PublishedTable>)> {
    with_words!(room, open_with(room, in_force))
}

/// What is wrong with the image of a page of this size, apart from its checksum, if anything is.
pub(super) fn damage(image: &[u8]) -> Option<String> {
    match image.len() {
        4_096 => Node::<{ body_words(4_096) }>::damage(image),
        8_192 => Node::<{ body_words(8_192) }>::damage(image),
        16_384 => Node::<{ body_words(16_384) }>::damage(image),
        32_768 => Node::<{ body_words(32_768) }>::damage(image),
        65_536 => Node::<{ body_words(65_536) }>::damage(image),
        other => Some(format!("a page of {other} bytes")),
    }
}

fn frames(room: &PageRoom<'_>) -> u32 {
    // Tests of this room make pages scarce.
    let least = if cfg!(test) { 8 } else { FRAMES_MIN };
    (room.cache_bytes / room.page_bytes as u64).clamp(least, 1 << 30) as u32
}

fn create_with<const W: usize>(room: PageRoom<'_>) -> Result<Arc<dyn PageStore>> {
    let file = PageFile::open(room.disk, Open::Create, room.page_bytes, room.seed)?;
    let pool = PagePool::<W>::new(file, frames(&room), PAGES_MAX, room.clock).map_err(no_address_space)?;
    Ok(Arc::new(PagesOfSize(Arc::new(pool))))
}

fn open_with<const W: usize>(
    room: PageRoom<'_>,
    in_force: PagesInForce,
) -> Result<(Arc<dyn PageStore>, Vec<PublishedTable>)> {
    let how = if room.is_read_only { Open::ReadOnly } else { Open::Existing };
    let file = PageFile::open(room.disk, how, room.page_bytes, room.seed)?;
    let read =
        |at: Option<PublishedAt>| at.map_or(Ok(Default::default()), |at| read_published::<W>(&file, at));
    let (published, lists) = read(in_force.current)?;
    let kept = addresses_of(&published, lists);
    let older = match read(in_force.other) {
        Ok((published, lists)) => addresses_of(&published, lists),
        // No opening can use it.
        Err(Error::Corrupt { .. }) => Bits::default(),
        Err(error) => return Err(error),
    };
    let pool =
        PagePool::<W>::open(file, (frames(&room), PAGES_MAX), &published.images, (kept, older), room.clock)
            .map_err(no_address_space)?;
    Ok((Arc::new(PagesOfSize(Arc::new(pool))), published.tables))
}

/// The addresses of the images of pages, and of the lists of them.
fn addresses_of(published: &Published, lists: Vec<FileAddress>) -> Bits {
    let mut addresses = Bits::default();
    let images = published.images.iter().flatten().map(|image| image.address);
    images.chain(lists).for_each(|address| _ = addresses.insert(address.0));
    addresses
}

fn no_address_space(error: std::io::Error) -> Error {
    Error::Io {
        file: "memory for pages".to_owned(),
        offset: 0,
        operation: "reservation".to_owned(),
        cause: error.to_string(),
    }
}

/// A pool of pages with bodies of `W` words.
pub(super) struct PagesOfSize<const W: usize>(pub Arc<PagePool<W>>);

impl<const W: usize> PageStore for PagesOfSize<W> {
    fn make_tree(&self) -> Result<(u32, Arc<dyn RowTree>)> {
        let root = self.0.make_root(true)?;
        Ok((root, self.tree(root)))
    }

    fn take_back_tree(&self, root: u32) {
        Pages(self.0.clone()).free_alone(root);
    }

    fn tree(&self, root: u32) -> Arc<dyn RowTree> {
        Arc::new(PagedTree::of_root(root, self.0.clone()))
    }

    fn begin_checkpoint(&self) {
        self.0.begin_checkpoint();
    }

    fn make_cut(&self) {
        self.0.make_cut();
    }

    fn write_cut(&self, tables: Vec<PublishedTable>) -> Result<PublishedAt> {
        let images = self.0.write_cut(&|| Ok(()))?;
        let at = self.0.write_published(&Published { tables, images })?;
        self.0.sync()?;
        Ok(at)
    }

    fn make_backup_cut(&self) -> Bits {
        self.0.make_backup_cut()
    }

    fn write_backup_cut(&self, check: &dyn Fn() -> Result<()>) -> Result<(Vec<Option<Saved>>, Bits)> {
        self.0.write_backup_cut(check)
    }

    fn note_changed(&self, pages: &Bits) {
        self.0.note_changed(pages);
    }

    fn read_image(&self, page: PageId, saved: Saved, buffer: &mut AlignedBuffer) -> Result<()> {
        self.0.read_image(page, saved, buffer)
    }

    fn publish_cut(&self) {
        self.0.publish_cut();
    }

    fn abandon_cut(&self, may_be_named: bool) {
        self.0.abandon_cut(may_be_named);
    }

    fn write_behind(&self) {
        self.0.write_behind();
    }

    fn write_behind_once(&self) {
        self.0.write_behind_once();
    }

    fn end_write_behind(&self) {
        self.0.end_write_behind();
    }

    fn close(&self) {
        self.0.close();
    }

    fn stats(&self) -> PageStats {
        self.0.stats()
    }

    fn wants_checkpoint(&self) -> bool {
        self.0.wants_checkpoint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{HeapId, IndexId};
    use crate::io::MemoryDisk;
    use crate::store::paged::page_access::PageAccess;
    use crate::store::tree::{Admit, EntryMarks, NewRow};

    const ROWS: u32 = 20_000;

    fn fill(tree: &dyn RowTree, from: u32) {
        for number in from..from + ROWS {
            let row = NewRow { bytes: &number.to_le_bytes(), room: 4, marks: EntryMarks::default() };
            tree.insert(&PageAccess::plain(), &number.to_be_bytes(), &row, &mut || Admit::Go).unwrap();
        }
    }

    fn has(tree: &dyn RowTree, number: u32) -> bool {
        let mut row = Vec::new();
        let found = tree.get(&PageAccess::plain(), &number.to_be_bytes(), &mut row).unwrap();
        found.marks.is_some() && row == number.to_le_bytes()
    }

    /// Pages of each size are found again as of the last checkpoint, and as of the one before it.
    #[test]
    fn a_store_is_opened_as_a_checkpoint_has_left_it() {
        for page_bytes in [4_096, 8_192, 16_384, 32_768, 65_536] {
            let disk = MemoryDisk::new();
            let room = PageRoom {
                disk: &*disk,
                page_bytes,
                seed: 3,
                cache_bytes: 256 << 10,
                is_read_only: false,
                clock: &Clock::System,
            };
            let store = create(room).unwrap();
            let (root, tree) = store.make_tree().unwrap();
            let table = |rows| PublishedTable {
                heap: HeapId(7),
                rows,
                last_long: 1,
                primary: root,
                long_bodies: root,
                secondaries: vec![(IndexId(8), root)],
            };
            let mut published = Vec::new();
            for round in 0..3 {
                fill(&*tree, round * ROWS);
                store.begin_checkpoint();
                store.make_cut();
                published.push(store.write_cut(vec![table(u64::from(round))]).unwrap());
                store.publish_cut();
            }
            fill(&*tree, 3 * ROWS);
            let in_force = PagesInForce { current: Some(published[2]), other: Some(published[1]) };
            let (opened, tables) = open(room, in_force).unwrap();
            assert_eq!(tables, [table(2)], "pages of {page_bytes} bytes");
            let tree = opened.tree(root);
            assert!((0..3 * ROWS).step_by(97).all(|number| has(&*tree, number)));
            assert!(!has(&*tree, 3 * ROWS));
            // What it writes leaves both checkpoints as they are, until the older block is retired.
            fill(&*tree, 5 * ROWS);
            opened.make_cut();
            opened.write_cut(Vec::new()).unwrap();
            opened.abandon_cut(false);
            for (at, rows) in [(published[1], 2 * ROWS), (published[2], 3 * ROWS)] {
                let (again, _) = open(room, PagesInForce { current: Some(at), other: None }).unwrap();
                let tree = again.tree(root);
                assert!((0..rows).step_by(97).all(|number| has(&*tree, number)) && !has(&*tree, rows));
            }
        }
    }

    #[test]
    fn another_size_of_pages_is_refused() {
        let disk = MemoryDisk::new();
        let room = PageRoom {
            disk: &*disk,
            page_bytes: 10_000,
            seed: 3,
            cache_bytes: 1 << 20,
            is_read_only: false,
            clock: &Clock::System,
        };
        let Err(Error::Unsupported { what }) = create(room) else { panic!("it is refused") };
        assert_eq!(what, "pages of 10000 bytes: use 4096, 8192, 16384, 32768 or 65536");
    }
}
