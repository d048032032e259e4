//! Backups whose streams were damaged, or forged.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};

use super::edit::{Edit, Files, disk_of, edit, files_of};
use super::forged_rows::mutate;
use super::script::Script;
use super::tables::{self, State, options, state_of};
use crate::backup::{Archive, Backup, Restore, RestoreReport, RestoreTo, forge, frames_of, restore};
use crate::io::{Disk, MemoryDisk, Random};
use crate::recovery::check::check;
use crate::row::Value;
use crate::{BackupKind, Database, Lsn, OpenError, Options};

pub(super) const FULL: &str = "full";
const INCREMENT: &str = "increment";
/// Kinds of frames.
const LIST_OF_PAGES: u32 = 4;
const PAGE: u32 = 5;
/// In a list of pages these bytes come before the bits of the pages, with one table that has one index.
const LIST_BEFORE_BITS: usize = 16 + 8 * (3 + 4 + 1);

/// A database's backups and log: a full backup, an increment on it, and the archived log from the first place on.
pub(super) struct Base {
    /// The streams of both backups.
    pub backups: Files,
    /// The stream of another full backup, taken earlier.
    earlier: Files,
    /// The files of the archive.
    pub archive: Files,
    /// Its files at the time of the increment.
    pub archive_before: Files,
    /// Its files before the last transactions, whose blocks prove that everything in these files was durable.
    pub archive_proven: Files,
    /// The database's contents by the place of the transaction that made them.
    pub states: BTreeMap<Lsn, State>,
}

impl Base {
    /// The last place.
    pub fn end(&self) -> Lsn {
        *self.states.last_key_value().expect("there are many").0
    }
}

pub(super) fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| Base::make(Kinds::Memory))
}

/// The same with a disk-resident table.
fn base_with_pages() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| Base::make(Kinds::Both))
}

/// The kinds of the tables of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Memory,
    Both,
}

impl Base {
    fn make(kinds: Kinds) -> Base {
        let archive = MemoryDisk::new();
        let archived: Arc<dyn Disk> = archive.clone();
        let options = Options { archive: Some(Archive::on(archived)), page_bytes: 4_096, ..options() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let mut history =
            History { db, kinds, random: Random::new(11), states: BTreeMap::new(), state: State::default() };
        history.create();
        history.change(12);
        let earlier = Files::from([(FULL.to_owned(), history.backup(BackupKind::Full))]);
        history.change(12);
        let full = history.backup(BackupKind::Full);
        history.change(12);
        let increment = history.backup(BackupKind::Incremental);
        history.db.archive_log().unwrap();
        let archive_before = files_of(&*archive);
        history.change(12);
        history.load();
        history.change(10);
        history.db.archive_log().unwrap();
        let archive_proven = files_of(&*archive);
        history.change(2);
        history.db.archive_log().unwrap();
        let backups = Files::from([(FULL.to_owned(), full), (INCREMENT.to_owned(), increment)]);
        let archive = files_of(&*archive);
        let base = Base { backups, earlier, archive, archive_before, archive_proven, states: history.states };
        assert!(base.archive.keys().any(|name| name.starts_with("load-")), "{:?}", base.archive.keys());
        base
    }
}

/// A changing database, and what it held after each transaction.
struct History {
    db: Database,
    kinds: Kinds,
    random: Random,
    states: BTreeMap<Lsn, State>,
    state: State,
}

impl History {
    fn commit(&mut self, body: impl Fn(&mut crate::Transaction) -> crate::Result<()>) {
        let ticket = self.db.submit(|tx| body(tx)).unwrap().1;
        self.states.insert(ticket.lsn(), self.state.clone());
        ticket.wait().unwrap();
    }

    fn create(&mut self) {
        self.commit(tables::create);
        if self.kinds == Kinds::Both {
            self.commit(tables::create_paged);
        }
    }

    /// Writes or deletes one row in each of `transactions` transactions.
    fn change(&mut self, transactions: usize) {
        let table = self.db.table("things").unwrap();
        for _ in 0..transactions {
            let id = self.random.below(40) as i32;
            let (number, length) = (self.random.next() as i64, self.random.below(400) as usize);
            let text = "x".repeat(length);
            let before = match self.random.chance(1, 4) {
                true => self.state.things.remove(&id),
                false => self.state.things.insert(id, (number, text.clone())),
            };
            let is_there = self.state.things.contains_key(&id);
            let row = [Value::Int4(id), Value::Int8(number), Value::Text(text)];
            self.commit(|tx| match (&before, is_there) {
                (Some(_), true) => {
                    tx.update(&table, id, &[(1, row[1].clone()), (2, row[2].clone())]).map(drop)
                }
                (Some(_), false) => tx.delete(&table, id).map(drop),
                (None, true) => tx.insert(&table, &row),
                // A transaction takes a place only if it writes.
                (None, false) => tx.insert(&table, &row).and_then(|()| tx.delete(&table, id)).map(drop),
            });
            if self.kinds == Kinds::Both {
                self.change_page();
            }
        }
    }

    /// Writes or deletes some rows of the disk-resident table.
    fn change_page(&mut self) {
        let table = self.db.table("paged").unwrap();
        let (id, text) = (self.random.below(40) as i32, "y".repeat(self.random.below(900) as usize));
        let is_there = self.state.paged.remove(&id).is_some();
        if !is_there {
            self.state.paged.insert(id, text.clone());
        }
        let row = [Value::Int4(id), Value::Text(text)];
        self.commit(|tx| if is_there { tx.delete(&table, id).map(drop) } else { tx.insert(&table, &row) });
    }

    /// Makes a table by a bulk load.
    fn load(&mut self) {
        self.state.loaded = tables::loaded();
        self.commit(tables::load);
    }

    fn backup(&self, kind: BackupKind) -> Vec<u8> {
        let mut stream = Vec::new();
        let report = self.db.backup_to(&mut stream, kind).unwrap();
        assert!(self.states.contains_key(&report.place), "a backup ends at a transaction");
        stream
    }
}

/// A restore of these backups, in the order of their names.
pub(super) fn restore_of(
    backups: &Files,
    archive: Option<Archive>,
    to: RestoreTo,
) -> Result<Restored, OpenError> {
    let stream = |(name, bytes): (&String, &Vec<u8>)| Backup::stream(name, Cursor::new(bytes.clone()));
    let backups = backups.iter().map(stream).collect();
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let plan = Restore { archive, to, memory_bytes: 16 << 20, threads: 2, ..Restore::new(backups) };
    match restore(plan, disk.clone()) {
        Ok(report) => Ok(Restored { report, disk }),
        Err(error) => {
            assert!(disk.list().unwrap().is_empty(), "{error}: something is left");
            Err(error)
        }
    }
}

/// A restored database.
pub(super) struct Restored {
    pub report: RestoreReport,
    pub disk: Arc<dyn Disk>,
}

impl Restored {
    /// Checks that it has what the database held at the place that the restore has reached.
    pub fn is_as_it_was(&self, base: &Base, edits: &[Edit]) {
        let expected = base.states.get(&self.report.place);
        let db = Database::open_on(self.disk.clone(), options())
            .unwrap_or_else(|error| panic!("{error}: {edits:?}"));
        assert!(
            Some(&state_of(&db)) == expected,
            "not what was there at place {}: {edits:?}",
            self.report.place
        );
    }

    /// Checks that it is a database, or that an error says what is wrong with it. If it does not open, a check must
    /// find damage, too.
    pub fn opens_or_is_corrupt(&self) {
        let checked = check(&self.disk, 16 << 20, 1);
        match Database::open_on(self.disk.clone(), options()) {
            Ok(db) => db.close().unwrap(),
            Err(OpenError::Corrupt { what, .. }) => {
                assert!(checked.is_ok_and(|report| !report.is_sound()), "a check finds nothing: {what}");
            }
            Err(error) => panic!("expected Corrupt, found {error:?}"),
        }
    }
}

/// Edits the streams of a backup and of an increment on it, or forges frames with right checksums that no backup has.
/// With an edited stream, either the restored rows are what the database held, or an error names the backup and the
/// offset of the damage. A database of forged frames opens, or is reported as corrupt.
pub fn backup_stream(data: &[u8]) {
    backup_of(base(), data);
}

/// The same with the backups of a database with a disk-resident table.
pub fn backup_with_pages(data: &[u8]) {
    backup_of(base_with_pages(), data);
}

fn backup_of(base: &Base, data: &[u8]) {
    let mut script = Script::of(data);
    let mut backups = base.backups.clone();
    if script.byte().is_multiple_of(2) {
        forge_frame(backups.get_mut([FULL, INCREMENT][script.below(2)]).expect("it is there"), &mut script);
        match restore_of(&backups, None, RestoreTo::End) {
            Ok(restored) => restored.opens_or_is_corrupt(),
            Err(error) => is_about_a_backup(&error, &backups),
        }
        return;
    }
    let edits = edit(&mut backups, &base.earlier, &mut script);
    match restore_of(&backups, None, RestoreTo::End) {
        Ok(restored) => {
            // A full backup that was taken, with nothing or with its own increment after it.
            let taken = [&base.backups, &base.earlier].map(|taken| backups.get(FULL) == taken.get(FULL));
            let own_increment = taken[0] && backups.get(INCREMENT) == base.backups.get(INCREMENT);
            let is_a_chain = own_increment || !backups.contains_key(INCREMENT) && taken.contains(&true);
            assert!(is_a_chain, "it was restored: {edits:?}");
            restored.is_as_it_was(base, &edits);
        }
        Err(error) => {
            assert!(!edits.is_empty(), "{error}");
            is_about_a_backup(&error, &backups);
        }
    }
}

/// Changes a frame, and seals the stream again. The end of the stream has the right number of bytes, unless the end
/// itself was changed.
fn forge_frame(stream: &mut Vec<u8>, script: &mut Script<'_>) {
    let mut frames = frames_of(stream);
    let (chosen, last) = (script.below(frames.len()), frames.len() - 1);
    match script.byte() % 8 {
        0 => frames[chosen].0 = script.byte().into(),
        1 => frames.swap(chosen, last - 1),
        _ => {
            // A tree whose pages have right checksums is believed. So only what leads to the trees is forged.
            let (kind, payload) = &mut frames[chosen];
            let forged = match *kind {
                LIST_OF_PAGES => LIST_BEFORE_BITS,
                PAGE => 8,
                _ => payload.len(),
            };
            let rest = payload.split_off(forged.min(payload.len()));
            mutate(payload, script);
            payload.extend(rest);
        }
    }
    let sealed = forge(&frames);
    if chosen != last {
        let end = sealed.len() - (stream.len() - end_of_others(stream));
        frames[last].1[8..16].copy_from_slice(&(end as u64).to_le_bytes());
    }
    *stream = forge(&frames);
}

/// Where the last frame of a whole stream begins.
fn end_of_others(stream: &[u8]) -> usize {
    let frames = frames_of(stream);
    let (_, end) = frames.last().expect("a stream has an end");
    u64::from_le_bytes(end[8..16].try_into().expect("eight bytes")) as usize
}

/// Checks that the error names a backup and an offset in it, or says that the backups do not go together.
fn is_about_a_backup(error: &OpenError, backups: &Files) {
    match error {
        OpenError::Corrupt { file, offset, what } => {
            let stream = backups.get(file).unwrap_or_else(|| panic!("{error}: no backup"));
            assert!(*offset <= stream.len() as u64 && !what.is_empty(), "{error}");
        }
        OpenError::Unsupported { what } => assert!(what.contains(FULL) || what.contains(INCREMENT), "{what}"),
        error => panic!("expected Corrupt, found {error:?}"),
    }
}

/// A full backup that names no point of the log, as older programs wrote it: any log of its database fits it.
pub(super) fn without_point() -> &'static Files {
    static BACKUP: OnceLock<Files> = OnceLock::new();
    BACKUP.get_or_init(|| {
        let stream = &base().backups[FULL];
        let mut frames = frames_of(stream);
        let (length, last) = (frames[0].1.len(), frames.len() - 1);
        frames[0].1[..4].copy_from_slice(&2u32.to_le_bytes());
        frames[0].1.truncate(88);
        let end = end_of_others(stream) - (length - 88);
        frames[last].1[8..16].copy_from_slice(&(end as u64).to_le_bytes());
        Files::from([(FULL.to_owned(), forge(&frames))])
    })
}

/// The identity of the database.
pub(super) fn database() -> u128 {
    let frames = frames_of(&base().backups[FULL]);
    u128::from_le_bytes(frames[0].1[8..24].try_into().expect("sixteen bytes"))
}

/// The archive with these files.
pub(super) fn archive_of(files: &Files) -> Archive {
    Archive::on(disk_of(files))
}
