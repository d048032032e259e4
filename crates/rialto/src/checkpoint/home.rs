//! The home block (System M, section 2.5): it names the backup copy in force and where redo begins.
//!
//! The file `home` holds two blocks of 4096 bytes that are written in turn. All numbers are little endian:
//!
//! ```text
//!    0  magic            8      "RIALTOHM"
//!    8  format version   u32
//!   12  flags            u32    bit 0: retired, bit 1: transaction-consistent, bit 2: logged, bit 3: names what is held,
//!                               bit 4: names a point, bit 5: has pages, bit 6: of a follower
//!   16  database id      u128
//!   32  sequence         u64    of the checkpoint
//!   40  copy             u32    0 none yet, 1 ping, 2 pong, 3 the third
//!   44  segments         u32    images in the copy
//!   48  redo start       u64    place
//!   56  next identifier  u32    of tables, indexes, heaps and load files
//!   60  sweep            u32    the number of the sweep that made the copy
//!   64  clearance        u64    the log was durable up to this place
//!   72  digest           u64    of the images in the copy (`image_sums.rs`)
//!   80  position         u64    where the log ended after the place of clearance, and the checksum of its last block
//!   88  block checksum   u64
//!   96  page bytes       u32    of disk-resident tables, and here to 127: only with bit 5
//!  104  root             u64    of what is published of the pages (`store/paged/published.rs`)
//!  112  words            u64    of it
//!  120  page place       u64    the pages are as of this place, with all before it and nothing after it
//!  128  redone           u64    of a follower: the copy holds nothing of a later place; only with bit 6
//! 4088  checksum         u64    xxh3 of all before
//! ```
//!
//! # The crash argument (I5)
//!
//! The *current* block is the one that the last complete checkpoint wrote; the other one is the *older* block. A
//! checkpoint takes effect by overwriting the older block, and syncing it. Before the checkpoint overwrites anything
//! that the older block names (its copy; the log and load files that only it needs), it marks that block *retired*, and
//! syncs that. So these states exist, among which the rule of [`choose`] decides after a crash:
//!
//! - *current, older*: between checkpoints. Either can be believed: everything that both name exists.
//! - *current, torn*: the crash came while the other block was being retired or published; the current one is whole.
//! - *current, retired*: during a checkpoint.
//! - *damaged, retired*: no crash causes this. Believing the retired block could mean reading a half-overwritten copy,
//!   so it is corruption.
//!
//! With *three copies* a sweep goes to the copy that neither block names, so nothing has to be retired: *current,
//! older* also holds during a checkpoint, and the log that the older one needs is kept until the next checkpoint is
//! complete. The write that publishes it overwrites the older block: a crash in its midst leaves *current, torn*. A
//! block is retired first only if its state on disk is unknown (its last write failed), because it may name the copy
//! that is swept next; and before log is freed, because it may still be the older one, which needs that log. (If it is
//! the one that could not be published, everything that it needs exists: redo starts never go back.) Two copies become
//! three when the next checkpoint chooses its copy; three become two when the next checkpoint retires the older block,
//! as it always does with two.
//!
//! # A damaged copy
//!
//! *current, older* also lets an opening fall back ([`HomeFile::fall_back`]): the older block is in force as long as it
//! is not retired, so its copy is whole, and its log and load files exist. There is only more to redo. Falling back
//! does not overwrite the newer block; after a crash an opening finds both blocks again, and falls back again. The next
//! checkpoint retires the newer block before it writes anything to the damaged copy, and takes its number.
//!
//! The file is made under another name and renamed, so an existing `home` was once whole.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::Error;
use crate::fault_injection;
use crate::ids::Lsn;
use crate::io::{Caching, Disk, DiskError, DiskResult, File, Open};
use crate::log::{LogNeeded, LogPoint, LogPosition, Packet, is_begun};
use crate::store::memory::segments::Copy;
use crate::store::paged::PagesAt;

/// The file's name.
pub const HOME_FILE: &str = "home";
/// Its name until it is complete.
pub const NEW_HOME_FILE: &str = "home.new";
/// The format that this program reads and writes. Since 3 the block has a digest of the images, and the catalog in the
/// copy is that of the redo start.
pub const FORMAT_VERSION: u32 = 3;

const BLOCK_BYTES: usize = 4096;
const CHECKSUM_AT: usize = BLOCK_BYTES - 8;
const MAGIC: &[u8; 8] = b"RIALTOHM";
const RETIRED: u32 = 1;
const TRANSACTION_CONSISTENT: u32 = 2;
const LOGGED: u32 = 4;
const NAMES_HELD: u32 = 8;
const NAMES_POINT: u32 = 16;
const HAS_PAGES: u32 = 32;
const OF_FOLLOWER: u32 = 64;
/// A number of checkpoints that no database reaches.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 48;

/// The contents of a home block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeBlock {
    /// The database's identity, which all of its files carry.
    pub database_id: u128,
    /// The checkpoint's number.
    pub sequence: u64,
    /// The backup copy that it completed; none before the first checkpoint.
    pub copy: Option<Copy>,
    /// The segments that have an image in the copy: those below this number.
    pub segments: u32,
    /// The place from which the log has to be redone.
    pub redo_start: Lsn,
    /// An identifier that nothing in the copy has; nor does anything there have a higher one.
    pub next_id: u32,
    /// The number of the sweep that made the copy, with failed sweeps counted; 0 if none did. See [`HomeBlock::holds`].
    pub sweep: u32,
    /// The log was durable up to this place when the block was written, and the copy holds nothing of a later one.
    pub clearance: Lsn,
    /// The end of the log at that time, after the place of clearance. The log of another life of the database does not
    /// go through this point. Blocks of programs that did not know points have none.
    pub point: Option<LogPoint>,
    /// Whether no transaction is in the copy in part, so that calls can be replayed on it.
    pub transaction_consistent: bool,
    /// Whether the log has everything that this copy has and the older checkpoint's copy lacks. Blocks of programs that
    /// did not know this flag have it unset.
    pub logged: bool,
    /// Whether each packet that the copy holds names its sweep ([`Packet::held_by`]), if any does. Where calls are
    /// logged, a block of a program that did not know this flag names the calls alone, and not the values before them.
    pub names_held: bool,
    /// The digest of the images in the copy; other images are not of this checkpoint.
    pub digest: u64,
    /// The pages of disk-resident tables, if there are any.
    pub pages: Option<HomePages>,
    /// If a follower wrote it: the copy holds nothing of a later place than this one, though the log had more.
    pub redone: Option<Lsn>,
    /// Whether a later checkpoint may have begun to overwrite what this block names.
    pub retired: bool,
}

/// The pages of disk-resident tables that a checkpoint has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomePages {
    /// The bytes of a page.
    pub page_bytes: u32,
    /// The image that leads to all others, as a word of the page map.
    pub root: u64,
    /// The words that are published of the pages.
    pub words: u64,
    /// The pages have all up to this place, and nothing of a later one.
    pub place: Lsn,
}

impl HomePages {
    /// Of pages that are as of this place.
    pub(crate) fn new(pages: PagesAt, place: Lsn) -> HomePages {
        let (root, words) = pages.at.numbers();
        HomePages { page_bytes: pages.page_bytes, root, words, place }
    }
}

/// Why the home blocks do not tell where to begin.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HomeError {
    /// A newer program wrote them.
    #[error("\"{HOME_FILE}\" has format version {found}, this program reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// An older program wrote them, in a format that this one does not read.
    #[error(
        "\"{HOME_FILE}\" has format version {found}, this program reads version {supported}: open it with the Rialto that \
         wrote it, and copy its tables"
    )]
    OlderVersion {
        /// The version found.
        found: u32,
        /// The version that can be read.
        supported: u32,
    },
    /// They are damaged, or could not be read.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl From<DiskError> for HomeError {
    fn from(error: DiskError) -> HomeError {
        HomeError::Failed(error.into())
    }
}

/// The state of one of the two blocks of a home file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeSlot {
    /// Never written: zeros.
    Blank,
    /// Whole.
    Valid(HomeBlock),
    /// Neither; the text says why.
    Damaged(String),
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl HomeBlock {
    /// Whether the copy has everything that the packet, at or past the redo start, wrote, as [`Packet::held_by`] says:
    /// recovery leaves the packet out. Only a transaction-consistent copy has packets whole.
    pub fn holds(&self, packet: &Packet<'_>) -> bool {
        self.transaction_consistent && packet.held_by.is_some_and(|sweep| sweep <= self.sweep)
    }

    /// Whether the copy, with everything that the log has from its redo start up to this place, is the state in which a
    /// call at this place began. A copy that is not transaction-consistent has parts of packets, but of none after its
    /// clearance.
    pub fn fits_call(&self, lsn: Lsn) -> bool {
        self.transaction_consistent || lsn > self.clearance
    }

    /// The copy holds nothing of a later place.
    pub fn holds_to(&self) -> Lsn {
        self.redone.map_or(self.clearance, |redone| redone.min(self.clearance))
    }

    /// The place from which a recovery reads the log: that of the memory-resident tables, or of the pages.
    pub fn log_start(&self) -> Lsn {
        self.pages.map_or(self.redo_start, |pages| self.redo_start.min(pages.place.next()))
    }

    /// The log that a recovery from this checkpoint needs.
    fn log_needed(&self) -> LogNeeded {
        let position = self.point.map_or(LogPosition(u64::MAX), |point| point.position);
        LogNeeded { from: self.log_start(), position }
    }

    fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let flags = flag(self.retired, RETIRED)
            | flag(self.transaction_consistent, TRANSACTION_CONSISTENT)
            | flag(self.logged, LOGGED)
            | flag(self.names_held, NAMES_HELD)
            | flag(self.point.is_some(), NAMES_POINT)
            | flag(self.pages.is_some(), HAS_PAGES)
            | flag(self.redone.is_some(), OF_FOLLOWER);
        block[12..16].copy_from_slice(&flags.to_le_bytes());
        block[16..32].copy_from_slice(&self.database_id.to_le_bytes());
        block[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        let copy = self.copy.map_or(0, |copy| 1 + u32::from(copy.number()));
        block[40..44].copy_from_slice(&copy.to_le_bytes());
        block[44..48].copy_from_slice(&self.segments.to_le_bytes());
        block[48..56].copy_from_slice(&self.redo_start.0.to_le_bytes());
        block[56..60].copy_from_slice(&self.next_id.to_le_bytes());
        block[60..64].copy_from_slice(&self.sweep.to_le_bytes());
        block[64..72].copy_from_slice(&self.clearance.0.to_le_bytes());
        block[72..80].copy_from_slice(&self.digest.to_le_bytes());
        if let Some(point) = self.point {
            block[80..88].copy_from_slice(&point.position.0.to_le_bytes());
            block[88..96].copy_from_slice(&point.checksum.to_le_bytes());
        }
        if let Some(pages) = self.pages {
            block[96..100].copy_from_slice(&pages.page_bytes.to_le_bytes());
            block[104..112].copy_from_slice(&pages.root.to_le_bytes());
            block[112..120].copy_from_slice(&pages.words.to_le_bytes());
            block[120..128].copy_from_slice(&pages.place.0.to_le_bytes());
        }
        if let Some(redone) = self.redone {
            block[128..136].copy_from_slice(&redone.0.to_le_bytes());
        }
        let checksum = xxh3_64(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    fn decode(block: &[u8]) -> Result<HomeSlot, HomeError> {
        if block.iter().all(|&byte| byte == 0) {
            return Ok(HomeSlot::Blank);
        }
        let damaged = |what: &str| Ok(HomeSlot::Damaged(what.to_owned()));
        if &block[..8] != MAGIC {
            return damaged("expected a home block, found other bytes");
        }
        // The checksum and the version lie at the same offsets in every format.
        if u64_at(block, CHECKSUM_AT) != xxh3_64(&block[..CHECKSUM_AT]) {
            return damaged("the home block's checksum does not match its bytes");
        }
        let version = u32_at(block, 8);
        if version > FORMAT_VERSION {
            return Err(HomeError::NewerVersion { found: version, supported: FORMAT_VERSION });
        }
        if version < FORMAT_VERSION {
            return Err(HomeError::OlderVersion { found: version, supported: FORMAT_VERSION });
        }
        let copy = match u32_at(block, 40) {
            0 => None,
            number => match Copy::FILES.get(number as usize - 1) {
                Some(&copy) => Some(copy),
                None => return damaged("the home block's checksum is right, but no such backup copy exists"),
            },
        };
        // A block with number 0 is written, retired, in place of a damaged first one.
        let (sequence, retired) = (u64_at(block, 32), u32_at(block, 12) & RETIRED != 0);
        if sequence == 0 && !retired || sequence > SEQUENCE_MAX {
            return damaged("the home block's checksum is right, but no checkpoint has its number");
        }
        let clearance = Lsn(u64_at(block, 64));
        let point = LogPoint {
            lsn: clearance,
            position: LogPosition(u64_at(block, 80)),
            checksum: u64_at(block, 88),
        };
        Ok(HomeSlot::Valid(HomeBlock {
            database_id: u128::from_le_bytes(block[16..32].try_into().expect("sixteen bytes")),
            sequence,
            copy,
            segments: u32_at(block, 44),
            redo_start: Lsn(u64_at(block, 48)),
            next_id: u32_at(block, 56),
            sweep: u32_at(block, 60),
            clearance,
            point: (u32_at(block, 12) & NAMES_POINT != 0).then_some(point),
            transaction_consistent: u32_at(block, 12) & TRANSACTION_CONSISTENT != 0,
            logged: u32_at(block, 12) & LOGGED != 0,
            names_held: u32_at(block, 12) & NAMES_HELD != 0,
            digest: u64_at(block, 72),
            pages: (u32_at(block, 12) & HAS_PAGES != 0).then(|| HomePages {
                page_bytes: u32_at(block, 96),
                root: u64_at(block, 104),
                words: u64_at(block, 112),
                place: Lsn(u64_at(block, 120)),
            }),
            redone: (u32_at(block, 12) & OF_FOLLOWER != 0).then(|| Lsn(u64_at(block, 128))),
            retired,
        }))
    }
}

/// Gives any bytes the magic number and the checksum of a block. For fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn forge_home_block(block: &mut [u8]) {
    block[..8].copy_from_slice(MAGIC);
    let checksum = xxh3_64(&block[..CHECKSUM_AT]);
    block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
}

/// Puts another digest into a block, which then names no point of the log. For fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn forge_digest(block: &mut [u8], digest: u64) {
    block[72..80].copy_from_slice(&digest.to_le_bytes());
    let flags = u32_at(block, 12) & !NAMES_POINT;
    block[12..16].copy_from_slice(&flags.to_le_bytes());
    forge_home_block(block);
}

fn corrupt(slot: usize, what: String) -> Error {
    Error::Corrupt { file: HOME_FILE.to_owned(), offset: (slot * BLOCK_BYTES) as u64, what }
}

/// Which of the two blocks counts: the newer one that is whole and not retired.
fn choose(slots: &[HomeSlot; 2]) -> Result<usize, Error> {
    let live = |slot: &HomeSlot| match slot {
        HomeSlot::Valid(block) if !block.retired => Some(*block),
        _ => None,
    };
    if let [HomeSlot::Valid(a), HomeSlot::Valid(b)] = slots {
        if a.database_id != b.database_id {
            return Err(corrupt(1, "its two home blocks belong to different databases".to_owned()));
        }
        if a.sequence == b.sequence && !a.retired && !b.retired {
            return Err(corrupt(1, format!("both home blocks say that they are checkpoint {}", a.sequence)));
        }
    }
    match (live(&slots[0]), live(&slots[1])) {
        (Some(a), Some(b)) => Ok(usize::from(b.sequence > a.sequence)),
        (Some(_), None) => Ok(0),
        (None, Some(_)) => Ok(1),
        (None, None) => {
            let damaged = slots.iter().position(|slot| matches!(slot, HomeSlot::Damaged(_)));
            let why = match damaged.map(|slot| &slots[slot]) {
                Some(HomeSlot::Damaged(why)) => why.as_str(),
                _ => "no home block is in force",
            };
            Err(corrupt(
                damaged.unwrap_or(0),
                format!(
                    "{why}, and the other block cannot stand in for it: its checkpoint was retired or never made"
                ),
            ))
        }
    }
}

/// Reads the two blocks of a directory's home file and which of them counts. Writes nothing.
///
/// # Errors
/// [`HomeError::NewerVersion`]; [`Error::Corrupt`], naming the block; [`Error::Io`].
pub fn read_home(disk: &dyn Disk) -> Result<([HomeSlot; 2], HomeBlock), HomeError> {
    let file = disk.open(HOME_FILE, Open::ReadOnly, Caching::Buffered)?;
    let slots = read_slots(&*file)?;
    let current = choose(&slots)?;
    match &slots[current] {
        HomeSlot::Valid(block) => Ok((slots.clone(), *block)),
        _ => unreachable!("only a valid block is chosen"),
    }
}

/// The older of the two blocks, beside the one that counts, while it is in force too.
pub(crate) fn older_in_force(slots: &[HomeSlot; 2], current: &HomeBlock) -> Option<HomeBlock> {
    slots.iter().find_map(|slot| match slot {
        HomeSlot::Valid(block) if !block.retired && block != current => Some(*block),
        _ => None,
    })
}

fn read_slots(file: &dyn File) -> Result<[HomeSlot; 2], HomeError> {
    let length = file.length()?;
    let mut slots = [HomeSlot::Blank, HomeSlot::Blank];
    for (number, slot) in slots.iter_mut().enumerate() {
        let offset = (number * BLOCK_BYTES) as u64;
        *slot = if offset + BLOCK_BYTES as u64 > length {
            HomeSlot::Damaged(format!("expected a home block, but the file ends at byte {length}"))
        } else {
            let mut block = vec![0; BLOCK_BYTES];
            file.read_at(&mut block, offset)?;
            HomeBlock::decode(&block)?
        };
    }
    Ok(slots)
}

/// A database's home file, open.
#[derive(Debug)]
pub struct HomeFile {
    file: Arc<dyn File>,
    current: usize,
    block: HomeBlock,
    /// The known state of the other block; `Damaged` also after a write of it failed.
    other: HomeSlot,
    /// The number of the sweep that made the copy from which recovery fell back.
    fell_back_from: u32,
}

/// The contents that a completed checkpoint gives the home block.
#[derive(Debug, Clone, Copy)]
pub struct NewHome {
    /// The copy that it completed.
    pub copy: Copy,
    /// The images in it.
    pub segments: u32,
    /// Where redo begins.
    pub redo_start: Lsn,
    /// See [`HomeBlock::next_id`].
    pub next_id: u32,
    /// See [`HomeBlock::sweep`].
    pub sweep: u32,
    /// See [`HomeBlock::clearance`] and [`HomeBlock::point`].
    pub clearance: LogPoint,
    /// See [`HomeBlock::transaction_consistent`].
    pub transaction_consistent: bool,
    /// See [`HomeBlock::logged`].
    pub logged: bool,
    /// See [`HomeBlock::digest`].
    pub digest: u64,
    /// See [`HomeBlock::pages`].
    pub pages: Option<HomePages>,
    /// See [`HomeBlock::redone`].
    pub redone: Option<Lsn>,
}

/// The contents of a restored database's first home block.
#[derive(Debug, Clone, Copy)]
pub struct RestoredHome {
    /// Its identity.
    pub database_id: u128,
    /// The images in its first copy.
    pub segments: u32,
    /// See [`HomeBlock::next_id`].
    pub next_id: u32,
    /// The point of its log from which on redo begins. The copy holds everything before it, and nothing behind it.
    pub point: LogPoint,
    /// See [`HomeBlock::digest`].
    pub digest: u64,
    /// See [`HomeBlock::pages`].
    pub pages: Option<HomePages>,
}

impl HomeFile {
    /// Makes the home file of a new database. This is the last step of a creation, because a directory with a home file
    /// is a database. Redo begins at the first place.
    pub fn create(disk: &dyn Disk, database_id: u128, next_id: u32) -> DiskResult<HomeFile> {
        HomeFile::make(
            disk,
            HomeBlock {
                database_id,
                sequence: 1,
                copy: None,
                segments: 0,
                redo_start: Lsn(1),
                next_id,
                sweep: 0,
                clearance: Lsn::ZERO,
                point: Some(LogPoint::beginning_after(Lsn::ZERO)),
                transaction_consistent: true,
                logged: true,
                names_held: true,
                digest: 0,
                pages: None,
                redone: None,
                retired: false,
            },
        )
    }

    /// Makes the home file of a restored database, whose first copy holds everything up to a point of its log. Else as
    /// [`HomeFile::create`].
    pub fn restore(disk: &dyn Disk, restored: &RestoredHome) -> DiskResult<HomeFile> {
        let RestoredHome { database_id, segments, next_id, point, digest, pages } = *restored;
        let place = point.lsn;
        HomeFile::make(
            disk,
            HomeBlock {
                database_id,
                sequence: 1,
                copy: Some(Copy::Ping),
                segments,
                redo_start: place.next(),
                next_id,
                sweep: 0,
                clearance: place,
                point: Some(point),
                transaction_consistent: true,
                logged: true,
                names_held: true,
                digest,
                pages,
                redone: None,
                retired: false,
            },
        )
    }

    fn make(disk: &dyn Disk, block: HomeBlock) -> DiskResult<HomeFile> {
        let file = disk.open(NEW_HOME_FILE, Open::Create, Caching::Buffered)?;
        let mut both = block.encode();
        both.resize(2 * BLOCK_BYTES, 0);
        file.write_at(&both, 0)?;
        file.sync()?;
        disk.rename(NEW_HOME_FILE, HOME_FILE)?;
        disk.sync_directory()?;
        let file = disk.open(HOME_FILE, Open::Existing, Caching::Buffered)?;
        Ok(HomeFile { file, current: 0, block, other: HomeSlot::Blank, fell_back_from: 0 })
    }

    /// Whether the name of an incomplete home file is unused, or names one whose creation was interrupted: any part of
    /// two blocks.
    pub(crate) fn is_unmade(disk: &dyn Disk) -> DiskResult<bool> {
        let file = match disk.open(NEW_HOME_FILE, Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => return Ok(true),
            opened => opened?,
        };
        let mut begin = [0; MAGIC.len()];
        let length = file.length()?;
        let begin = &mut begin[..length.min(MAGIC.len() as u64) as usize];
        file.read_at(begin, 0)?;
        Ok(length <= 2 * BLOCK_BYTES as u64 && is_begun(begin, MAGIC))
    }

    /// Whether the directory holds a database.
    pub fn exists(disk: &dyn Disk) -> DiskResult<bool> {
        Ok(disk.list()?.iter().any(|name| name == HOME_FILE))
    }

    /// Opens a database's home file. Writes nothing yet.
    ///
    /// # Errors
    /// As [`read_home`].
    pub fn open(disk: &dyn Disk) -> Result<HomeFile, HomeError> {
        let file = disk.open(HOME_FILE, Open::Existing, Caching::Buffered)?;
        let slots = read_slots(&*file)?;
        let current = choose(&slots)?;
        let [first, second] = slots;
        let (chosen, other) = if current == 0 { (first, second) } else { (second, first) };
        match chosen {
            HomeSlot::Valid(block) => Ok(HomeFile { file, current, block, other, fell_back_from: 0 }),
            _ => unreachable!("only a valid block is chosen"),
        }
    }

    /// The block that counts.
    pub fn block(&self) -> &HomeBlock {
        &self.block
    }

    /// Writes the current block again, with the same bytes, and syncs it: for an opening, before anything rests on it.
    /// The block may have been read from the system's cache, where a process that was killed before its sync left it; a
    /// crash of the machine would then bring the older block back. (A log would make up for that, but not after
    /// [`Logging::None`](crate::Logging::None).)
    pub fn confirm(&self) -> DiskResult<()> {
        self.write(self.current, &self.block)
    }

    fn write(&self, slot: usize, block: &HomeBlock) -> DiskResult<()> {
        self.file.write_at(&block.encode(), (slot * BLOCK_BYTES) as u64)?;
        self.file.sync()
    }

    /// Marks the other block retired, durably: from now on what only it names may be overwritten.
    pub fn retire_other(&mut self) -> DiskResult<()> {
        let retired = match &self.other {
            HomeSlot::Blank => return Ok(()),
            HomeSlot::Valid(block) if block.retired => return Ok(()),
            HomeSlot::Valid(block) => HomeBlock { retired: true, ..*block },
            // It is torn by a crash, or its last write failed and may or may not have reached the disk.
            HomeSlot::Damaged(_) => {
                HomeBlock { retired: true, sequence: self.block.sequence - 1, ..self.block }
            }
        };
        self.write_other(retired)
    }

    fn write_other(&mut self, block: HomeBlock) -> DiskResult<()> {
        self.other = HomeSlot::Damaged("its last write failed".to_owned());
        self.write(1 - self.current, &block)?;
        self.other = HomeSlot::Valid(block);
        Ok(())
    }

    /// The highest number of a sweep that either block names.
    pub fn last_sweep(&self) -> u32 {
        match &self.other {
            HomeSlot::Valid(other) => self.block.sweep.max(other.sweep),
            _ => self.block.sweep.max(self.fell_back_from),
        }
    }

    /// The other block, while it is in force too.
    pub fn older(&self) -> Option<&HomeBlock> {
        match &self.other {
            HomeSlot::Valid(block) if !block.retired => Some(block),
            _ => None,
        }
    }

    /// From now on believes the older block, because the copy that the newer one names is damaged. Writes nothing.
    /// False if the older one is not in force.
    pub fn fall_back(&mut self) -> bool {
        let Some(older) = self.older().copied() else { return false };
        self.fell_back_from = self.block.sweep;
        self.block = older;
        self.current = 1 - self.current;
        // This block is retired before its copy is written, however many copies there are.
        self.other = HomeSlot::Damaged("the backup copy that it names is damaged".to_owned());
        true
    }

    /// The copy that the next checkpoint sweeps to; `copies` is 2 or 3.
    pub fn next_copy(&self, copies: u32) -> Copy {
        let (current, older) = (self.block.copy, self.older().and_then(|block| block.copy));
        let first = current.map_or(0, |copy| copy.number() as usize + 1);
        let in_turn = (0..copies as usize).map(|n| Copy::FILES[(first + n) % copies as usize]);
        let unnamed = |copy: &Copy| Some(*copy) != current && (copies == 2 || Some(*copy) != older);
        in_turn.into_iter().find(unnamed).expect("one copy more than there are that count")
    }

    /// Ensures that no opening believes what the next checkpoint overwrites; `copies` is 2 or 3. Returns the log that
    /// is still needed.
    pub fn make_way(&mut self, copies: u32) -> DiskResult<LogNeeded> {
        let newest = self.block.log_needed();
        match self.older().map(HomeBlock::log_needed) {
            Some(older) if copies > 2 => {
                let (from, position) = (older.from.min(newest.from), older.position.min(newest.position));
                return Ok(LogNeeded { from, position });
            }
            _ if fault_injection::is_on("older-home-not-retired") => {}
            _ => self.retire_other()?,
        }
        Ok(newest)
    }

    /// The number of the next checkpoint.
    pub fn next_sequence(&self) -> u64 {
        self.block.sequence + 1
    }

    /// Puts a completed checkpoint in force, with one write and sync of the block that is not current.
    pub fn publish(&mut self, new: NewHome) -> DiskResult<()> {
        debug_assert!(
            self.older().is_none_or(|older| older.copy != Some(new.copy)),
            "I5: the block that names the copy is retired before it is written"
        );
        debug_assert!(self.block.copy != Some(new.copy), "I5: ping-pong");
        let block = HomeBlock {
            database_id: self.block.database_id,
            sequence: self.next_sequence(),
            copy: Some(new.copy),
            segments: new.segments,
            redo_start: new.redo_start,
            next_id: new.next_id,
            sweep: new.sweep,
            clearance: new.clearance.lsn,
            point: Some(new.clearance),
            transaction_consistent: new.transaction_consistent,
            logged: new.logged,
            names_held: true,
            digest: new.digest,
            pages: new.pages,
            redone: new.redone,
            retired: false,
        };
        self.write_other(block)?;
        self.other = HomeSlot::Valid(std::mem::replace(&mut self.block, block));
        self.current = 1 - self.current;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
