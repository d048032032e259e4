//! A table of pages in a tiny pool, changed as transactions change it, compared with a map.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::page_access::PageAccess;
use super::page_file::PageFile;
use super::page_store::{PageStore, PagesOfSize};
use super::paged_table::{ClaimedRow, EnteredInPages, PagedTable};
use super::paged_tree::RowTree;
use super::pool::PagePool;
use super::published::PublishedTable;
use super::tests::in_use;
use crate::ids::{HeapId, IndexId, Lsn};
use crate::io::{Clock, MemoryDisk, Open, Random};
use crate::row::WhichIndex;
use crate::store::RowLocation;
use crate::store::tree::{Admit, Batch, Direction, Guard, InsertRow, More, ScanRange, body_words};

const PAGE_BYTES: usize = 4096;
const WORDS: usize = body_words(PAGE_BYTES);

/// The position of the index on the first byte of the body, which has the primary key behind it.
const BY_FIRST: usize = 0;
/// The position of the unique index on the length of the body and its second byte, of which little counts.
const BY_SHAPE: usize = 1;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn secondary_keys(key: &[u8], body: &[u8]) -> [Vec<u8>; 2] {
    [[&body[..1], key].concat(), vec![(body.len() % 64) as u8, body[1] % 16]]
}

/// The pages of a table on a disk, and the roots of its trees.
struct TableDisk {
    disk: Arc<MemoryDisk>,
    roots: [u32; 4],
}

impl TableDisk {
    fn file(disk: &MemoryDisk) -> PageFile {
        PageFile::open(disk, Open::Create, PAGE_BYTES, 7).unwrap()
    }

    fn new(frames: u32) -> (TableDisk, Arc<PagePool<WORDS>>) {
        let disk = MemoryDisk::new();
        let pool = Arc::new(
            PagePool::<WORDS>::new(TableDisk::file(&disk), frames, 1 << 20, &Clock::System).unwrap(),
        );
        let roots = [(); 4].map(|()| pool.make_root(true).unwrap());
        (TableDisk { disk, roots }, pool)
    }

    fn table(&self, pool: &Arc<PagePool<WORDS>>) -> TestTables {
        self.table_of(pool, 0)
    }

    /// The same with so many rows in it.
    fn table_of(&self, pool: &Arc<PagePool<WORDS>>, rows: usize) -> TestTables {
        let store = PagesOfSize(pool.clone());
        let [primary, long_bodies, by_first, by_shape] = self.roots;
        let published = PublishedTable {
            heap: HeapId(1),
            rows: rows as u64,
            last_long: 0,
            primary,
            long_bodies,
            secondaries: vec![(IndexId(2), by_first), (IndexId(3), by_shape)],
        };
        let table = PagedTable::of_published(&store, &published, Weak::new());
        TestTables { table, by: PageAccess::with_fingers(), trees: self.roots.map(|root| store.tree(root)) }
    }
}

struct TestTables {
    table: PagedTable,
    by: PageAccess,
    trees: [Arc<dyn RowTree>; 4],
}

/// What an operation of a transaction takes back if it does not commit.
enum Undo {
    TakeBackRow(Vec<u8>),
    UnclaimRow(Vec<u8>),
    Release(RowLocation),
    TakeBack(usize, Vec<u8>),
    Unclaim(usize, Vec<u8>),
    GiveBack(usize, Vec<u8>, (Vec<u8>, bool)),
}

/// All locations that a row has had in a transaction, and its last body.
type WrittenRow = (Vec<RowLocation>, Option<Vec<u8>>);

/// A transaction, as the layers above run it.
struct TestTransaction<'a> {
    table: &'a PagedTable,
    by: &'a PageAccess,
    undo: Vec<Undo>,
    /// The entries of each row that it writes: those that it has made, claimed or taken over.
    entries: BTreeMap<Vec<u8>, Vec<(usize, Vec<u8>)>>,
    /// Of each row that it writes: all locations in turn, and its last body.
    writes: BTreeMap<Vec<u8>, WrittenRow>,
    /// The rows as it sees them.
    rows: Model,
}

impl TestTransaction<'_> {
    fn claim(&mut self, key: &[u8]) -> (RowLocation, ClaimedRow) {
        let claimed = self.table.claim_row(self.by, key).unwrap();
        if claimed.is_new {
            self.undo.push(Undo::UnclaimRow(key.to_vec()));
        }
        let location = match self.writes.get(key) {
            Some((locations, _)) => *locations.last().unwrap(),
            None => {
                let location = self.table.find(self.by, key).unwrap().location.expect("the row is there");
                self.writes.insert(key.to_vec(), (vec![location], None));
                location
            }
        };
        (location, claimed)
    }

    fn insert(&mut self, key: &[u8], body: &[u8]) {
        if self.writes.contains_key(key) {
            return self.update(key, body);
        }
        let location = self.table.reserve(self.by, key, body.len()).unwrap();
        self.undo.push(Undo::Release(location));
        let entered = self.table.enter_row(self.by, key, (location, body.len()), || Admit::Go).unwrap();
        assert_eq!(entered, InsertRow::Done);
        self.undo.push(Undo::TakeBackRow(key.to_vec()));
        self.writes.insert(key.to_vec(), (vec![location], Some(body.to_vec())));
        self.rows.insert(key.to_vec(), body.to_vec());
        self.enter_keys(key, None, body);
    }

    fn note(&mut self, key: &[u8], position: usize, entry: &[u8]) {
        self.entries.entry(key.to_vec()).or_default().push((position, entry.to_vec()));
    }

    /// Gives up the keys that the row no longer has.
    fn give_up(&mut self, key: &[u8], old: &[u8], new: Option<&[u8]>) {
        for (position, entry) in secondary_keys(key, old).into_iter().enumerate() {
            let keeps = new.is_some_and(|new| secondary_keys(key, new)[position] == entry);
            if !keeps && self.table.claim_entry(self.by, position, &entry, key).unwrap() {
                self.note(key, position, &entry);
                self.undo.push(Undo::Unclaim(position, entry));
            }
        }
    }

    fn enter_keys(&mut self, key: &[u8], old: Option<&[u8]>, new: &[u8]) {
        for (position, entry) in secondary_keys(key, new).into_iter().enumerate() {
            if old.is_some_and(|old| secondary_keys(key, old)[position] == entry) {
                continue;
            }
            let entered = self.table.enter(self.by, position, &entry, key, || Admit::Go).unwrap();
            if entered != EnteredInPages::Own {
                self.note(key, position, &entry);
            }
            match entered {
                EnteredInPages::Done => self.undo.push(Undo::TakeBack(position, entry)),
                EnteredInPages::Own => {}
                EnteredInPages::Other => {
                    let before = self.table.take_over(self.by, position, &entry, key).unwrap();
                    self.undo.push(Undo::GiveBack(position, entry, before));
                }
                EnteredInPages::Refused => panic!("nothing is guarded against it"),
            }
        }
    }

    fn update(&mut self, key: &[u8], body: &[u8]) {
        let body_before = self.claim(key);
        let old = self.rows.get(key).cloned();
        if let Some(old) = &old {
            self.give_up(key, old, Some(body));
        }
        if let Some(moved) = self.table.reserve_again(self.by, key, body_before, body.len()).unwrap() {
            self.undo.push(Undo::Release(moved));
            self.writes.get_mut(key).unwrap().0.push(moved);
        }
        self.writes.get_mut(key).unwrap().1 = Some(body.to_vec());
        self.rows.insert(key.to_vec(), body.to_vec());
        self.enter_keys(key, old.as_deref(), body);
    }

    fn delete(&mut self, key: &[u8]) {
        self.claim(key);
        let old = self.rows.remove(key).unwrap();
        self.give_up(key, &old, None);
        self.writes.get_mut(key).unwrap().1 = None;
    }

    fn abort(mut self) {
        while let Some(undo) = self.undo.pop() {
            let table = self.table;
            match undo {
                Undo::TakeBackRow(key) => table.take_back(WhichIndex::Primary, &key),
                Undo::UnclaimRow(key) => table.unclaim_row(&key),
                Undo::Release(location) => table.release(location),
                Undo::TakeBack(position, entry) => table.take_back(WhichIndex::Secondary(position), &entry),
                Undo::Unclaim(position, entry) => table.unclaim_entry(position, &entry),
                Undo::GiveBack(position, entry, (to, is_again)) => {
                    table.give_back(position, &entry, (&to, is_again));
                }
            }
        }
    }

    /// The entries that an operation has noted for a row go, or stay with it, in any order of the rows.
    fn commit(self, random: &mut Random, lsn: Lsn) -> Model {
        self.table.count_rows(self.rows.len() as i64 - self.table.rows() as i64);
        let mut writes: Vec<_> = self.writes.iter().collect();
        for at in (1..writes.len()).rev() {
            writes.swap(at, random.below(at as u64 + 1) as usize);
        }
        for (key, (locations, body)) in writes {
            let last = *locations.last().unwrap();
            let kept = body.as_ref().map(|body| secondary_keys(key, body));
            match body {
                Some(body) => self.table.put(self.by.fingers(), key, last, body, lsn),
                None => self.table.remove_row(key, lsn),
            }
            for (position, entry) in self.entries.get(key).into_iter().flatten() {
                match kept.as_ref().is_some_and(|kept| kept[*position] == *entry) {
                    true => self.table.settle(*position, entry, key, lsn),
                    false => self.table.remove_entry(*position, entry, key, lsn),
                }
            }
            let gone = locations.iter().filter(|&&location| body.is_none() || location != last);
            gone.for_each(|&location| self.table.release(location));
        }
        self.rows
    }
}

fn keys_of(tree: &dyn RowTree) -> Vec<Vec<u8>> {
    let (mut batch, mut keys) = (Batch::new(), Vec::new());
    loop {
        let more = tree
            .read_leaf(&PageAccess::plain(), &ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch)
            .unwrap();
        keys.extend(batch.iter().map(|(key, _)| key.to_vec()));
        if more == More::No {
            return keys;
        }
    }
}

impl TestTables {
    /// The table has exactly these rows and their entries, and no claim.
    fn check(&self, model: &Model, context: &str) {
        assert_eq!(keys_of(&*self.trees[0]), model.keys().cloned().collect::<Vec<_>>(), "{context}");
        let mut found = Vec::new();
        for (key, body) in model {
            assert!(self.table.read(&PageAccess::plain(), key, &mut found).unwrap(), "{context}");
            assert!(found == *body, "{context}: a body of {} bytes", body.len());
            for (position, entry) in secondary_keys(key, body).iter().enumerate() {
                let (_, is_there) =
                    self.table.follow_to_key(&PageAccess::plain(), position, entry, &mut found).unwrap();
                assert!(
                    is_there && found == *key,
                    "{context}: index {position} leads from {entry:?} to {found:?}"
                );
                let followed = self
                    .table
                    .follow(&PageAccess::plain(), WhichIndex::Secondary(position), entry, &mut found)
                    .unwrap();
                assert!(followed.there && found == *body, "{context}");
            }
        }
        for tree in &self.trees[2..] {
            assert_eq!(keys_of(&**tree).len(), model.len(), "{context}");
        }
        let parts = model.values().map(|body| match body.len() > self.trees[0].row_bytes_max(4) {
            true => body.len().div_ceil(self.trees[1].row_bytes_max(10)),
            false => 0,
        });
        assert_eq!(keys_of(&*self.trees[1]).len(), parts.sum::<usize>(), "{context}: parts of long bodies");
        assert_eq!(self.table.unsettled(), [""; 0], "{context}");
    }
}

fn draw_body(random: &mut Random) -> Vec<u8> {
    let length = match random.below(8) {
        0 => 2 + random.below(6_000),
        _ => 2 + random.below(300),
    };
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// Random transactions that commit or abort. Checkpoints are cut while one is open, and the table as it was at the cut is
/// opened from the disk, where the open one has left nothing.
#[test]
fn a_table_of_pages_is_a_map_of_committed_rows() {
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    for frames in [90, 500] {
        let (disk, pool) = TableDisk::new(frames);
        let tables = disk.table(&pool);
        let mut model = Model::new();
        for round in 0..300 {
            let context = format!("seed {seed}, {frames} frames, round {round}");
            let mut transaction = TestTransaction {
                table: &tables.table,
                by: &tables.by,
                undo: Vec::new(),
                entries: BTreeMap::new(),
                writes: BTreeMap::new(),
                rows: model.clone(),
            };
            for _ in 0..1 + random.below(8) {
                let key = (random.below(800) as u32).to_be_bytes();
                let body = draw_body(&mut random);
                let shape = &secondary_keys(&key, &body)[BY_SHAPE];
                let is_taken = transaction
                    .rows
                    .iter()
                    .any(|(other, row)| other[..] != key && secondary_keys(other, row)[BY_SHAPE] == *shape);
                match (transaction.rows.contains_key(&key[..]), is_taken) {
                    (true, _) if random.below(3) == 0 => transaction.delete(&key),
                    (true, false) => transaction.update(&key, &body),
                    (false, false) => transaction.insert(&key, &body),
                    // Another row of the transaction takes the key over.
                    (_, true) => {
                        let other = transaction
                            .rows
                            .iter()
                            .find(|(other, row)| secondary_keys(other, row)[BY_SHAPE] == *shape);
                        let other = other.unwrap().0.clone();
                        transaction.delete(&other);
                        match transaction.rows.contains_key(&key[..]) {
                            true => transaction.update(&key, &body),
                            false => transaction.insert(&key, &body),
                        }
                    }
                }
            }
            let is_cut = random.below(5) == 0;
            if is_cut {
                pool.begin_checkpoint();
                pool.make_cut();
            }
            let before = model.clone();
            let reads = pool.reads_and_writes().0;
            match random.below(4) {
                0 => transaction.abort(),
                _ => model = transaction.commit(&mut random, Lsn(round + 1)),
            }
            assert_eq!(
                pool.reads_and_writes().0,
                reads,
                "{context}: a commit and an abort read nothing (I10)"
            );
            tables.check(&model, &context);
            if is_cut {
                let images = pool.write_cut(&|| Ok(())).unwrap();
                pool.publish_cut();
                let opened = PagePool::<WORDS>::open(
                    TableDisk::file(&disk.disk),
                    (60, 1 << 20),
                    &images,
                    in_use(&images),
                    &Clock::System,
                )
                .unwrap();
                disk.table_of(&Arc::new(opened), before.len()).check(&before, &format!("{context}, opened"));
            }
        }
        let (pages, _) = pool.pages_and_images();
        let (reads, writes) = pool.reads_and_writes();
        let has_room = u64::from(frames) + 20 > pages as u64;
        assert!(has_room || reads > 100 && writes > 100, "{frames} frames, {pages} pages");
        assert_eq!(tables.table.free(), [0; 0]);
        assert_eq!(pool.pages_and_images(), (0, 0), "of {pages} pages");
    }
}

/// Other rows come into the leaf of a claimed row, and go, until it was compacted, split and merged.
#[test]
fn a_claimed_row_keeps_the_room_that_it_was_claimed_with() {
    let (disk, pool) = TableDisk::new(90);
    let TestTables { table, by, trees } = disk.table(&pool);
    let key = |number: u32| number.to_be_bytes();
    let insert = |number: u32, length: usize| {
        table.load(&by, &key(number), &vec![7; length], &[]).unwrap().unwrap();
    };
    let remove = |number: u32| {
        assert!(table.claim_row(&by, &key(number)).unwrap().is_new);
        table.remove_row(&key(number), Lsn(1));
    };
    // Its room is greater than its row.
    insert(500, 400);
    assert!(table.claim_row(&by, &key(500)).unwrap().is_new);
    table.put(by.fingers(), &key(500), RowLocation::IN_LINE, &[8; 10], Lsn(1));
    let claimed = table.claim_row(&by, &key(500)).unwrap();
    for round in 0..5 {
        // Rows that come and go leave holes; then so many come that the leaf is split.
        (0..400).for_each(|number| {
            insert(1_000 + number, 120);
            remove(1_000 + number);
        });
        (0..300).for_each(|number| insert(number + 350 + u32::from(number >= 150), 60 + round));
        (0..300).for_each(|number| remove(number + 350 + u32::from(number >= 150)));
    }
    let moved = table.reserve_again(&by, &key(500), (RowLocation::IN_LINE, claimed), 400).unwrap();
    assert_eq!(moved, None, "a body of 400 bytes is in its leaf");
    table.put(by.fingers(), &key(500), RowLocation::IN_LINE, &[9; 400], Lsn(2));
    let mut body = Vec::new();
    assert!(table.read(&by, &key(500), &mut body).unwrap());
    assert_eq!((body, keys_of(&*trees[0]).len()), (vec![9; 400], 1));
}

/// The names of the positions are those of the indexes.
#[test]
fn an_entry_that_is_taken_over_can_be_given_back() {
    let (disk, pool) = TableDisk::new(60);
    let tables = disk.table(&pool);
    let mut random = Random::new(1);
    let begin = |rows: &Model| TestTransaction {
        table: &tables.table,
        by: &tables.by,
        undo: Vec::new(),
        entries: BTreeMap::new(),
        writes: BTreeMap::new(),
        rows: rows.clone(),
    };
    let mut first = begin(&Model::new());
    first.insert(b"a", &[1, 2]);
    let model = first.commit(&mut random, Lsn(1));
    tables.check(&model, "one row");
    // Two rows in turn have the unique key of a third one.
    let mut second = begin(&model);
    second.delete(b"a");
    second.insert(b"b", &[3, 2]);
    second.delete(b"b");
    second.insert(b"c", &[4, 2]);
    let shape = &secondary_keys(b"c", &[4, 2])[BY_SHAPE];
    let mut found = Vec::new();
    tables.table.follow_to_key(&PageAccess::plain(), BY_SHAPE, shape, &mut found).unwrap();
    assert_eq!(found, b"c");
    second.abort();
    tables.check(&model, "after an abort");
    tables.table.follow_to_key(&PageAccess::plain(), BY_FIRST, b"\x01a", &mut found).unwrap();
    assert_eq!(found, b"a");
}
