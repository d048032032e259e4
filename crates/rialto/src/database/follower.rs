//! [`Follower`]: a database that follows the log of another one.

mod observer;
mod redoing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use self::observer::Observer;
use self::redoing::Redoing;
use super::Database;
use crate::backup::{self, ReceivedCopy};
use crate::commit::Logging;
use crate::commit::redo::{self, Change};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::inside::InBody;
use crate::io::{Disk, FileDisk};
use crate::log::{LogBlocks, LogPoint, Packet, PacketKind};
use crate::open::{self, Handle, Role};
use crate::options::{Background, Options};
use crate::recovery::OpenError;
use crate::row::Value;
use crate::store::Storage;
use crate::txn::Scan;
use crate::txn::prepared::{PREPARED, TakenAgain};

/// How often an append looks again for room in the log.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(10);

/// A copy of a database that follows it: it takes the blocks of the log that the other one writes (a *primary*, read by
/// [`Database::log_cursor`]), keeps them on its own disk, byte for byte, and redoes their transactions on its own tables.
/// Meanwhile the tables can be read, and in the end it can [take over](Follower::lead).
///
/// The directory is made of a copy of the primary ([`Database::copy_to`], [`Follower::receive`]), or is a copy of the closed
/// primary's directory; it keeps the primary's identity. Opening it appends nothing to its log.
///
/// Three positions tell how far it is, each as the place of a transaction: [`received`](Follower::received) is in memory
/// that outlives its process, [`on_disk`](Follower::on_disk) on its disk, [`redone`](Follower::redone) in its tables.
pub struct Follower {
    database: Database,
    redoing: Arc<Redoing>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Follower {
    /// Makes a follower's directory of what [`Database::copy_to`] has written. The directory is created if it is missing, and
    /// otherwise has to be empty; it may have what an interrupted receipt has left. Of the stream it reads the copy, and nothing
    /// behind it.
    ///
    /// Only [`Follower::open`] opens the directory, until the follower has [led](Follower::lead). An interrupted receipt leaves a
    /// directory that nothing opens.
    ///
    /// # Blocking
    /// The call returns when everything is on the disk.
    ///
    /// # Errors
    /// [`OpenError::Unsupported`] if the directory is not empty, or the stream is a backup or of another version;
    /// [`OpenError::Corrupt`], with the offset, for a stream that is damaged or cut, or is no copy; [`OpenError::Locked`];
    /// [`OpenError::Io`], also of `from`, and if the disk is full. After an error the directory is empty again, if its files
    /// can be removed.
    pub fn receive(path: impl AsRef<Path>, from: &mut dyn Read) -> Result<ReceivedCopy, OpenError> {
        let path = path.as_ref();
        let failed = |error| OpenError::directory(&path.display().to_string(), &error);
        Follower::receive_on(FileDisk::create(path).map_err(failed)?, from)
    }

    /// As [`Follower::receive`], on any disk.
    ///
    /// # Errors
    /// As [`Follower::receive`].
    pub fn receive_on(disk: Arc<dyn Disk>, from: &mut dyn Read) -> Result<ReceivedCopy, OpenError> {
        backup::receive(from, &disk)
    }

    /// Opens a directory as a follower. From then on it can only be opened as one, until it has [led](Follower::lead).
    ///
    /// The options are those of any database, but for [`Options::logging`], which is value or action, and
    /// [`Options::archive`], which is none.
    ///
    /// # Blocking
    /// The call returns when the directory is recovered.
    ///
    /// # Errors
    /// See [`OpenError`]; [`OpenError::Missing`] if the directory has no database.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Follower, OpenError> {
        Follower::open_redoing_up_to(path, options, Lsn::MAX)
    }

    /// As [`Follower::open`], but of its log it redoes only the transactions up to this place: the bound that
    /// [`Follower::redo_up_to`] sets holds from the beginning. What the log has behind that is received, and is not in the
    /// tables. If a checkpoint has later transactions, those are in the tables ([`Follower::redone`] tells): a follower's
    /// checkpoints have what its bound allowed then.
    ///
    /// # Errors
    /// As [`Follower::open`].
    pub fn open_redoing_up_to(
        path: impl AsRef<Path>,
        options: Options,
        last: Lsn,
    ) -> Result<Follower, OpenError> {
        let disk = FileDisk::open(path.as_ref());
        let disk =
            disk.map_err(|error| OpenError::directory(&path.as_ref().display().to_string(), &error))?;
        Follower::open_on_redoing_up_to(disk, options, last)
    }

    /// As [`Follower::open`], on any disk.
    ///
    /// # Errors
    /// As [`Follower::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Follower, OpenError> {
        Follower::open_on_redoing_up_to(disk, options, Lsn::MAX)
    }

    /// As [`Follower::open_redoing_up_to`], on any disk.
    ///
    /// # Errors
    /// As [`Follower::open`].
    pub fn open_on_redoing_up_to(
        disk: Arc<dyn Disk>,
        options: Options,
        last: Lsn,
    ) -> Result<Follower, OpenError> {
        if let Some(what) = refused(&options) {
            return Err(OpenError::Options { what });
        }
        let flush_interval = options.memory_flush_interval;
        let options = Options { create: false, ..options };
        let role = Role::Follows { redo_up_to: last };
        let database = Database { running: Arc::new(Handle::new(open::open(disk, options, role)?)) };
        let redoing = Arc::new(Redoing::new(database.core(), last)?);
        let follower = Follower { database, redoing, threads: Mutex::default() };
        if follower.is_threaded() {
            follower.start(flush_interval)?;
        }
        Ok(follower)
    }

    fn start(&self, flush_interval: Duration) -> Result<(), OpenError> {
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
            let thread = thread.map_err(|error| OpenError::Io(format!("the thread \"{name}\": {error}")))?;
            self.threads.lock().push(thread);
            Ok::<(), OpenError>(())
        };
        let (redoing, writing) = (self.redoing.clone(), self.redoing.clone());
        spawn("rialto-redo", Box::new(move || redoing.serve()))?;
        spawn("rialto-follow", Box::new(move || writing.write_behind(flush_interval)))
    }

    /// The database, for transactions that read. Those that write get [`Error::Following`]; so do backups.
    ///
    /// A transaction sees the tables as they are after some transaction of the primary. A change of what it has read
    /// and locked is redone only once it has ended.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Where its log ends: a cursor of the primary begins here.
    pub fn point(&self) -> LogPoint {
        self.database.core().commits.log.end()
    }

    /// As [`Database::life`]: with the same life it has everything that an earlier opening has received. It leads with the
    /// life with which it has followed.
    pub fn life(&self) -> u64 {
        self.database.life()
    }

    /// Takes blocks of the primary's log, from [`Follower::point`] on. When this returns they are in memory that outlives
    /// the process. The disk gets them in the background.
    ///
    /// # Blocking
    /// The call may write the disk. If the log has no room, it waits for a checkpoint to make some, for at most
    /// [`Options::log_wait_max`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] for blocks that are damaged, or do not begin where the log ends; [`Error::LogDiverged`] if the
    /// log that they are of is not the one that this one has, or if it has led; [`Error::LoadFileMissing`] if they name a
    /// load file that is not here: give it ([`Follower::take_load_file`]), and then the blocks again;
    /// [`Error::Unsupported`] if the primary's log file is larger than [`Options::log_bytes_max`] here; [`Error::LogFull`];
    /// [`Error::DiskFull`]; [`Error::Stopped`]; [`Error::Closed`]. After an error none of the blocks is taken, or, where
    /// the disk failed, those before some block: go on from [`Follower::point`].
    pub fn append(&self, blocks: &LogBlocks<'_>) -> Result<()> {
        self.check_outside()?;
        let (log, clock) = (&self.database.core().commits.log, &self.database.core().clock);
        let until = clock.now() + self.database.running.options().log_wait_max;
        let storage = &self.database.core().storage;
        let appended = loop {
            match log.append(blocks, &mut |packet| check_load_files(storage, packet)) {
                Err(Error::LogFull { .. }) if clock.now() < until && log.ask_for_room().is_none() => {
                    clock.rest(LOOK_FOR_ROOM);
                }
                appended => break appended,
            }
        };
        if appended.is_ok() {
            self.redoing.tell_of_blocks(blocks.bytes.len());
        }
        appended
    }

    /// Whether [`Follower::append`] takes so many bytes of blocks at once, without a look at the disk but for load files that
    /// they name, as long as no other thread appends and the follower is not to [lead](Follower::lead).
    pub fn appends_at_once(&self, bytes: usize) -> bool {
        self.database.core().commits.log.appends_at_once(bytes as u64)
    }

    /// Takes a load file of the primary ([`Database::load_file`]), from its beginning. It is on the disk when this returns,
    /// and stays for the blocks that name it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the bytes are no load file of this number, or damaged; [`Error::LogDiverged`] once it has led;
    /// [`Error::Io`], also of `from`; [`Error::DiskFull`]; [`Error::Closed`].
    pub fn take_load_file(&self, number: u64, from: &mut dyn Read) -> Result<()> {
        let core = self.database.core();
        core.storage.receive_load_file(number, from, &|| core.commits.log.check_following())
    }

    /// Lets the transactions up to this place be redone, and none after it but one that is being redone already. Without
    /// such a bound all that were received are redone; so is what the log has at an opening, unless that has a bound
    /// ([`Follower::open_redoing_up_to`]). A cluster sets it to what all copies in sync have.
    pub fn redo_up_to(&self, last: Lsn) {
        self.redoing.allow(last);
    }

    /// From now on `observe` is called each time that a transaction which has written or deleted the row with this primary key,
    /// in the table of this name, is redone, with the transaction's place and before the next one is redone: the tables are as they were at this place, and a
    /// transaction that reads them sees exactly that. It takes the place of an earlier one.
    ///
    /// The redo waits for it, so it is to return soon. It is not called for what an opening redoes, nor once the database is to
    /// [lead](Follower::lead) or is closed. It must not use this follower, but [`Follower::database`].
    ///
    /// The table is looked up with each transaction: its definition may be in the log alone, and be redone later. A key that is
    /// none of the table's is that of no row.
    pub fn observe(
        &self,
        table: &str,
        key: &[Value],
        observe: impl Fn(&Database, Lsn) + Send + Sync + 'static,
    ) {
        self.redoing.observe(Observer::new(&self.database, (table, key), observe));
    }

    /// Everything up to this place is in memory that outlives the process.
    pub fn received(&self) -> Lsn {
        self.database.core().commits.log.memory_position()
    }

    /// Everything up to this place is on its disk.
    pub fn on_disk(&self) -> Lsn {
        self.database.core().commits.log.durable_position()
    }

    /// The end of a block of its log up to which everything is on its disk. After [`Follower::sync`] it is
    /// [`Follower::point`], unless blocks were taken meanwhile.
    pub fn on_disk_point(&self) -> LogPoint {
        self.database.on_disk_point()
    }

    /// Everything up to this place is in its tables.
    pub fn redone(&self) -> Lsn {
        self.redoing.redone()
    }

    /// The names of the transactions that are prepared and not decided, as its tables have them
    /// ([`Transaction::prepare`](crate::Transaction::prepare)). Their writes are not in the tables yet, and nothing of theirs
    /// is locked here. What was redone before the call is looked at. Once a name is missing, the transaction has ended, and
    /// all that it has written is in the tables, or it was aborted.
    ///
    /// # Errors
    /// Those of a transaction that reads.
    pub fn prepared(&self) -> Result<BTreeSet<String>> {
        let Some(table) = self.database.core().storage.catalog.by_id(PREPARED) else {
            return Ok(BTreeSet::new());
        };
        self.database.read(|tx| {
            let mut names = BTreeSet::new();
            tx.scan(&table, &Scan::all(), |_, row| {
                names.insert(row.get_str(0)?.to_owned());
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(names)
        })
    }

    /// How many steps its redo has done, and its [end of following](Follower::lead): records of the log, rows, locks.
    /// For a caller that has to know whether these make progress: a single transaction may be long. What is tried again
    /// is not counted again.
    pub fn steps(&self) -> u64 {
        self.database.core().redo_steps.count()
    }

    /// Waits until a place is redone, for at most this time; false if it is not then.
    ///
    /// # Errors
    /// What has ended the redo ([`Follower::failure`]).
    pub fn wait_redone(&self, place: Lsn, patience: Duration) -> Result<bool> {
        self.redoing.wait(place, patience)
    }

    /// Why it redoes no more, if it does not: a packet that makes no sense, a disk that is full, memory that is used up.
    /// It still takes blocks. Open it again to go on.
    pub fn failure(&self) -> Option<Error> {
        self.redoing.failure()
    }

    /// Writes everything that was received to its disk.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn sync(&self) -> Result<()> {
        self.database.core().commits.log.sync()
    }

    /// For a follower without threads ([`Background::Driven`]): writes what was received, redoes what may be redone, and does
    /// what [`Database::drive`] does. A packet whose locks others hold is left for the next call.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a body; [`Error::Stopped`]; what has ended the redo.
    pub fn drive(&self) -> Result<()> {
        if self.is_threaded() {
            return Ok(());
        }
        self.check_outside()?;
        self.sync()?;
        self.redoing.redo_some()?;
        self.database.drive()
    }

    fn is_threaded(&self) -> bool {
        self.database.running.options().background == Background::Threads
    }

    fn check_outside(&self) -> Result<()> {
        match InBody::is_inside(self.database.core().storage.catalog.opening()) {
            true => Err(Error::Nested),
            false => Ok(()),
        }
    }

    /// Ends the following: redoes everything that was received, whatever the bound, begins its own part of the log, and
    /// takes transactions. The primary, if it still runs, must not take transactions from then on: nothing here can see
    /// to that.
    ///
    /// # Blocking
    /// The call waits for the redo as long as that makes progress, and then for at most `patience`: transactions that
    /// read may hold locks that it needs. Then it takes prepared transactions again, and may wait for each of their
    /// locks for as long. Meanwhile calls of [`Follower::append`] wait. Once it leads, it may wait for room in the log
    /// for their decisions, for up to [`Options::log_wait_max`].
    ///
    /// # Errors
    /// What was in the way of the redo, or of taking prepared transactions again ([`Error::LockTimeout`]), or has ended the
    /// redo; [`Error::DiskFull`]: then it still follows, with the bound that it had. [`Error::Stopped`]; [`Error::Closed`];
    /// [`Error::Nested`] inside a body; [`Error::LogDiverged`] if it has led.
    ///
    /// If the machine or the process ends amid the call, the directory may still open as a follower, and its log may have
    /// the beginning of its own part: then it takes no more blocks of the primary ([`Error::LogDiverged`]), and can lead.
    pub fn lead(&self, patience: Duration) -> Result<Database> {
        self.check_outside()?;
        let core = self.database.core();
        core.storage.check_open()?;
        let log = &core.commits.log;
        let held = log.hold_appends()?;
        self.redoing.redo_all(true);
        let ended = self.redo_rest(patience).and_then(|()| {
            // Before any other transaction can write.
            let prepared = TakenAgain::take(core, patience)?;
            self.redoing.close();
            self.join();
            let _receipts = core.storage.hold_receipts();
            log.end_following(&held)?;
            prepared.keep(core);
            Ok(())
        });
        match ended {
            Ok(()) => {
                core.storage.forget_awaited_loads(core.commits.log.place());
                self.redoing.forget_packets();
                // A decision for which the log is too small fails with that itself.
                let _ = core.prepared.find_room(core);
                Ok(self.database.clone())
            }
            Err(error) => {
                self.redoing.redo_all(false);
                self.follow_on();
                Err(error)
            }
        }
    }

    /// Redoes everything that was received.
    fn redo_rest(&self, patience: Duration) -> Result<()> {
        let core = self.database.core();
        let last = core.commits.log.memory_position();
        if !self.is_threaded() {
            self.redoing.redo_some()?;
        }
        let patience = if self.is_threaded() { patience } else { Duration::ZERO };
        let mut before = self.steps();
        while !self.redoing.wait(last, patience)? {
            let steps = self.steps();
            let gets_on = steps != before && self.is_threaded();
            if !gets_on || fault_injection::is_on("leads-within-its-patience") {
                return Err(self.redoing.hindrance().unwrap_or(Error::LockTimeout {
                    lock: "the redo of what was received".to_owned(),
                    waited_ms: patience.as_millis() as u64,
                }));
            }
            before = steps;
        }
        core.storage.check_open()
    }

    /// Starts the threads again, if they have ended and the database is open.
    fn follow_on(&self) {
        let core = self.database.core();
        if !self.threads.lock().is_empty() || core.commits.log.failure().is_some() || !core.storage.is_open()
        {
            return;
        }
        self.redoing.reopen();
        if self.is_threaded()
            && let Err(error) = self.start(self.database.running.options().memory_flush_interval)
        {
            self.redoing.fail(Error::Stopped { cause: error.to_string(), disk_full: false });
        }
    }

    fn join(&self) {
        for thread in self.threads.lock().drain(..) {
            // A panic there has been noted as the failure.
            let _ = thread.join();
        }
    }

    /// Ends its threads, and closes the database.
    ///
    /// # Errors
    /// Those of [`Database::close`]; [`Error::Nested`] inside a body: then nothing is closed.
    pub fn close(&self) -> Result<()> {
        self.check_outside()?;
        self.redoing.close();
        let closed = self.database.clone().close();
        self.join();
        closed
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.redoing.close();
        self.join();
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("received", &self.received())
            .field("on_disk", &self.on_disk())
            .field("redone", &self.redone())
            .finish()
    }
}

/// Refuses a packet that names a load file which is not here: once the packet is in the log, no opening goes without the
/// file.
fn check_load_files(storage: &Storage, packet: &Packet<'_>) -> Result<()> {
    if packet.kind != PacketKind::Commit {
        return Ok(());
    }
    // What makes no sense is found when the packet is redone.
    for record in redo::read(packet.bytes).map_while(std::result::Result::ok) {
        if let Change::Load { file, digest } = record.change
            && !storage.keeps_load_file(file, digest)?
        {
            return Err(Error::LoadFileMissing { number: file });
        }
    }
    Ok(())
}

/// The option that a follower cannot have.
fn refused(options: &Options) -> Option<String> {
    let what = match (options.logging, &options.archive) {
        (Logging::Transaction | Logging::None, _) => {
            "logging is transaction or none; expected value or action"
        }
        (_, Some(_)) => "archive is set; expected none, since the database that is followed archives the log",
        _ => return None,
    };
    Some(format!("{what}, in a database that follows another one"))
}
