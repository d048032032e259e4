//! [`Kernel`]: the database of a replica in each role; [`KernelWork`]: what changes it, or takes long.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rialto::{Database, Follower, Lsn, Options};

use crate::node::transfer::{Source, Transfers};
use crate::protocol::replication::LogState;
use crate::protocol::{Epoch, Life, NodeId, PartitionId};

/// How long a replica that is to lead waits for a redo that makes no progress.
const LEAD_WITHIN: Duration = Duration::from_secs(600);

/// Makes what each partition has from the beginning.
pub type NewPartition = Arc<dyn Fn(&Database) -> rialto::Result<()> + Send + Sync>;

/// The database of a replica.
#[derive(Clone)]
pub enum Kernel {
    /// It has none, or it is closed to be opened again, or to be copied.
    Closed,
    /// It takes the log of another one.
    Following(Arc<Follower>),
    /// It takes transactions.
    Leading(Database),
}

impl Kernel {
    /// How far its log is, if it has one.
    pub fn log(&self) -> Option<LogState> {
        match self {
            Kernel::Closed => None,
            // What is on the disk is looked at first: it is never more than what was received.
            Kernel::Following(follower) => {
                let on_disk = follower.on_disk_point();
                Some(LogState { received: follower.point(), on_disk })
            }
            Kernel::Leading(db) => {
                let on_disk = db.on_disk_point();
                Some(LogState { received: db.log_end(), on_disk })
            }
        }
    }
}

/// Something that changes the database, or takes long.
pub enum Task {
    /// Open the database, if there is one. `Create`: make it if there is none.
    Open(IfMissing),
    /// Have it lead.
    Lead(Arc<Follower>, Epoch),
    /// Close it and open it as a follower.
    Follow(Kernel),
    /// Take a new copy.
    StartOver { from: NodeId, old: Kernel },
    /// Take a load file.
    LoadFile { from: NodeId, number: u64, follower: Arc<Follower> },
    /// Write the log to the disk.
    Sync(Kernel),
}

/// What becomes of a replica whose directory has no database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMissing {
    /// One is made.
    Create,
    /// It takes a copy, once the primary is known.
    TakeCopy,
}

/// How a task ended.
pub enum Done {
    /// The database is open as a follower, with this life.
    Opened(Arc<Follower>, Life),
    /// There is no database.
    Missing,
    /// It leads, since this epoch.
    Led(Database, Epoch),
    /// It does not.
    NotLed(String),
    /// It could not be opened or made.
    NotOpened(String),
    /// It could not be copied, so there is none.
    NotCopied(String),
    /// A load file is there.
    Moved,
    /// The log is on the disk as far as it went when that began.
    Synced,
}

/// What changes a replica's database, or takes long, one after the other on a thread of its own.
pub struct KernelWork {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl KernelWork {
    /// The work of a replica; `tell` gets the end of each task.
    ///
    /// # Errors
    /// If no thread can start.
    pub fn new(
        place: DatabasePlace,
        transfers: Arc<Transfers>,
        tell: impl Fn(Done) + Send + 'static,
    ) -> io::Result<KernelWork> {
        let (tasks, receiver) = channel();
        let name = format!("rialto-kernel-{}", place.partition.0);
        let serve = move || {
            for task in receiver {
                tell(carry_out(&place, &transfers, task));
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(serve)?;
        Ok(KernelWork { tasks: Some(tasks), thread: Some(thread) })
    }

    pub fn begin(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            // Its thread ends only after this.
            let _ = tasks.send(task);
        }
    }
}

impl Drop for KernelWork {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has told of itself.
            let _ = thread.join();
        }
    }
}

/// Where a replica's database is, and how it is opened.
pub struct DatabasePlace {
    pub partition: PartitionId,
    /// The replica's directory. The database lies in a directory in it.
    pub directory: PathBuf,
    pub options: Options,
    /// Makes what each partition has from the beginning.
    pub make: NewPartition,
}

/// The directory of a node's replica of a partition.
pub fn replica_directory(node_directory: &Path, partition: PartitionId) -> PathBuf {
    node_directory.join(format!("partition-{}", partition.0))
}

/// The directory of the database of a node's replica of a partition.
pub fn database_directory(node_directory: &Path, partition: PartitionId) -> PathBuf {
    replica_directory(node_directory, partition).join(DATABASE)
}

/// The database's directory, in the replica's.
const DATABASE: &str = "database";

impl DatabasePlace {
    fn database(&self) -> PathBuf {
        self.directory.join(DATABASE)
    }

    /// Where a copy is received, until it is complete.
    fn receiving(&self) -> PathBuf {
        self.directory.join("receiving")
    }
}

fn carry_out(place: &DatabasePlace, transfers: &Arc<Transfers>, task: Task) -> Done {
    match task {
        Task::Open(if_missing) => opened(place, if_missing),
        Task::Lead(follower, epoch) => match follower.lead(LEAD_WITHIN) {
            Ok(db) => Done::Led(db, epoch),
            Err(error) => Done::NotLed(error.to_string()),
        },
        Task::Follow(kernel) => {
            close(kernel);
            opened(place, IfMissing::TakeCopy)
        }
        Task::StartOver { from, old } => match start_over(place, transfers, from, old) {
            Ok(()) => opened(place, IfMissing::TakeCopy),
            Err(why) => Done::NotCopied(why),
        },
        Task::LoadFile { from, number, follower } => {
            let source = Source::LoadFile { partition: place.partition, number };
            // If it does not come, its blocks are not taken, and it is asked for again.
            let _ = follower.take_load_file(number, &mut transfers.pull(from, source));
            Done::Moved
        }
        Task::Sync(kernel) => {
            // A log that does not reach the disk has stopped, which the driver looks at.
            let _ = match kernel {
                Kernel::Following(follower) => follower.sync(),
                Kernel::Leading(db) => db.sync(),
                Kernel::Closed => Ok(()),
            };
            Done::Synced
        }
    }
}

/// Closes a database, whatever handles are left.
pub fn close(kernel: Kernel) {
    // A log that has stopped says so at the close; the next opening recovers.
    let db = match &kernel {
        Kernel::Following(follower) => follower.database().clone(),
        Kernel::Leading(db) => db.clone(),
        Kernel::Closed => return,
    };
    let _ = match kernel {
        Kernel::Following(follower) => follower.close(),
        Kernel::Leading(db) => db.close(),
        Kernel::Closed => Ok(()),
    };
    // Idle sessions may have its handles. A copy or a backup that runs for another node ends first.
    db.give_directory_back();
}

fn opened(place: &DatabasePlace, if_missing: IfMissing) -> Done {
    match open(place, if_missing) {
        Ok(Some(follower)) => {
            let life = Life(follower.life());
            Done::Opened(Arc::new(follower), life)
        }
        Ok(None) => Done::Missing,
        Err(why) => Done::NotOpened(why),
    }
}

fn open(place: &DatabasePlace, if_missing: IfMissing) -> Result<Option<Follower>, String> {
    let path = place.database();
    let is_there = path.try_exists().map_err(|error| format!("{}: {error}", path.display()))?;
    match if_missing {
        IfMissing::TakeCopy if !is_there => return Ok(None),
        IfMissing::Create if !is_there => create(place)?,
        IfMissing::TakeCopy | IfMissing::Create => {}
    }
    let options = Options { create: false, ..place.options.clone() };
    // What other replicas in sync may lack is redone when the primary says so (C5), and up to where the others have the log
    // is not known before the first heartbeat. So an opening redoes nothing, takes only as long as its checkpoint's tables,
    // and copies nothing again: the log is there. A standby redoes it while it is in sync already; a replica that is to lead
    // redoes it as primary, with the promises of its standbys. If it were redone before, it would have no promises meanwhile.
    let opened = Follower::open_redoing_up_to(&path, options, Lsn::ZERO);
    opened.map(Some).map_err(|error| error.to_string())
}

/// Makes the database in another directory first: one that is half made is never opened.
fn create(place: &DatabasePlace) -> Result<(), String> {
    let (making, path) = (place.receiving(), place.database());
    clear(&making)?;
    let options = Options { create: true, ..place.options.clone() };
    let db = Database::open_with(&making, options).map_err(|error| error.to_string())?;
    let made = (place.make)(&db);
    let closed = db.close();
    made.and(closed).map_err(|error| error.to_string())?;
    put_in_place(&making, &path)
}

/// Takes a copy of the primary's database. The old one, which has what the primary's has not, goes once the copy is complete.
fn start_over(
    place: &DatabasePlace,
    transfers: &Arc<Transfers>,
    from: NodeId,
    old: Kernel,
) -> Result<(), String> {
    close(old);
    let receiving = place.receiving();
    clear(&receiving)?;
    let mut copy = transfers.pull(from, Source::Copy(place.partition));
    let received = Follower::receive(&receiving, &mut copy);
    drop(copy);
    received.map_err(|error| format!("the copy from {from}: {error}"))?;
    put_in_place(&receiving, &place.database())
}

fn put_in_place(from: &Path, to: &Path) -> Result<(), String> {
    let put = || -> io::Result<()> {
        if to.try_exists()? {
            fs::remove_dir_all(to)?;
        }
        fs::rename(from, to)?;
        let parent = to.parent().expect("a database's directory is in the replica's");
        fs::File::open(parent)?.sync_all()
    };
    put().map_err(|error| format!("{}: {error}", to.display()))
}

fn clear(directory: &Path) -> Result<(), String> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}
