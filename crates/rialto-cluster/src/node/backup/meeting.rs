//! [`Meeting`]: the backup of a partition at its primary, which meets those of the other partitions at the cut.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rialto::{BackupOptions, CutMeeting, Error, fault_injection};

use super::message::{Far, Stage};
use crate::node::transactions::{Clearance, ServedPartition};
use crate::protocol::PartitionId;
use crate::protocol::transactions::Level;

/// How long a backup waits before its cut for those of the other partitions, whose checkpoints may run.
const NEAR_WITHIN: Duration = Duration::from_secs(25);
/// The longest time in which no branch is prepared. Coordinators wait a little longer for a vote.
pub const HOLD_WITHIN: Duration = Duration::from_millis(2500);
/// How long the cut may take to be durable in the configuration in which the primary leads. The receiver waits a little
/// longer for what comes last.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// The longest time in which no commit takes its place.
pub const CUT_WITHIN: Duration = Duration::from_millis(1000);
/// Why the backup of a partition fails if it finds something prepared.
const IN_DOUBT: &str = "a transaction over several partitions was in doubt for too long: run it again";
/// Why the backup of a partition fails after that of another partition has failed.
pub const GIVEN_UP: &str = "the backup was given up";
/// Why the backup of a partition that is ready fails if another partition is not.
const OTHERS_NOT_READY: &str = "another partition was not ready in time: run it again";
/// How far apart the cuts are, under fault injection.
const APART: Duration = Duration::from_millis(50);
/// How often the backup looks whether something is still prepared.
const POLL: Duration = Duration::from_millis(1);

/// Whether a failure, which may say more, only follows that of another partition.
pub fn follows_another(why: &str) -> bool {
    why.contains(OTHERS_NOT_READY) || why.contains(GIVEN_UP)
}

/// The backup of a partition at its primary.
pub struct Meeting {
    backup: u64,
    served: Arc<ServedPartition>,
    /// Tells the node that takes the backup where it is.
    tell: Box<dyn Fn(Stage) + Send + Sync>,
    progress: Mutex<Progress>,
    changed: Condvar,
    /// Whether it is given up: it ends at the next segment.
    is_given_up: AtomicBool,
}

struct Progress {
    /// How far it is to go.
    far: Far,
    stage: Stage,
}

impl Meeting {
    /// The backup of a partition that is served here.
    pub fn new(
        backup: u64,
        served: Arc<ServedPartition>,
        tell: impl Fn(Stage) + Send + Sync + 'static,
    ) -> Meeting {
        let progress = Mutex::new(Progress { far: Far::Near, stage: Stage::Begins });
        let (changed, is_given_up) = (Condvar::new(), AtomicBool::new(false));
        Meeting { backup, served, tell: Box::new(tell), progress, changed, is_given_up }
    }

    /// The backup's number.
    pub fn backup(&self) -> u64 {
        self.backup
    }

    /// The partition.
    pub fn partition(&self) -> PartitionId {
        self.served.serves().partition
    }

    /// The node that takes the backup has said how far it is to go; it is told where it is.
    pub fn goes(&self, far: Far) {
        let stage = {
            let mut progress = self.progress.lock();
            progress.far = progress.far.max(far);
            progress.stage.clone()
        };
        if far == Far::End {
            self.is_given_up.store(true, Ordering::Relaxed);
        }
        self.changed.notify_all();
        (self.tell)(stage);
    }

    /// Writes the backup, and after it the place of its cut in eight bytes.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn write(&self, out: &mut dyn Write) -> Result<(), String> {
        let db = self.served.lead().database().clone();
        let options = BackupOptions {
            cancelled: Some(&self.is_given_up),
            meeting: Some(self),
            ..BackupOptions::default()
        };
        let written = db.backup_to(out, options);
        self.served.release(self.backup);
        let report = match (&self.progress.lock().stage, written) {
            (Stage::Failed(why), _) => return Err(why.clone()),
            (_, Ok(report)) => report,
            (_, Err(Error::Cancelled)) => return Err(GIVEN_UP.to_owned()),
            (_, Err(error)) => return Err(error.to_string()),
        };
        match self.served.lead().answer_until(
            report.place,
            Level::Disk,
            Some(Instant::now() + ANSWERED_WITHIN),
        ) {
            Ok(true) => {}
            Ok(false) => {
                return Err("its replicas in sync have not had its cut in time: run it again".to_owned());
            }
            Err(_) => return Err("its primary has changed meanwhile".to_owned()),
        }
        out.write_all(&report.place.0.to_le_bytes()).map_err(|error| error.to_string())
    }

    fn is_at(&self, stage: Stage) {
        self.progress.lock().stage = stage.clone();
        (self.tell)(stage);
    }

    fn fails(&self, why: &str) -> bool {
        self.served.release(self.backup);
        self.is_at(Stage::Failed(why.to_owned()));
        false
    }

    /// Waits for at most this time until it may go on, and tells how far it is to go.
    fn wait(&self, at_least: Far, time: Duration) -> Far {
        let mut progress = self.progress.lock();
        if progress.far < at_least {
            self.changed.wait_for(&mut progress, time);
        }
        progress.far
    }

    fn leads(&self) -> bool {
        self.served.lead().goes_on()
    }
}

impl CutMeeting for Meeting {
    fn comes_next(&self, check: &dyn Fn() -> rialto::Result<()>) -> bool {
        self.is_at(Stage::Near);
        let began = Instant::now();
        let mut holds = false;
        loop {
            let far = self.wait(if holds { Far::Cut } else { Far::Hold }, POLL * if holds { 1 } else { 50 });
            if far == Far::End {
                let is_in_doubt = match self.served.clearance(self.backup) {
                    Clearance::InDoubt => true,
                    // Its own hold has run out at the same moment.
                    Clearance::NotHeld => holds && self.progress.lock().stage != Stage::Clear,
                    Clearance::Clear => false,
                };
                return self.fails(if is_in_doubt { IN_DOUBT } else { GIVEN_UP });
            }
            if !self.leads() {
                return self.fails("its primary has changed");
            }
            match check() {
                Ok(()) => {}
                Err(Error::Cancelled) => return self.fails(GIVEN_UP),
                Err(error) => return self.fails(&error.to_string()),
            }
            if far >= Far::Hold && !holds {
                holds = true;
                self.served.hold(self.backup, HOLD_WITHIN);
            }
            if holds {
                let is_clear = self.progress.lock().stage == Stage::Clear;
                match self.served.clearance(self.backup) {
                    Clearance::Clear if far >= Far::Cut => {
                        if fault_injection::is_on("backup-cuts-apart") {
                            std::thread::sleep(APART * self.partition().0);
                        }
                        return true;
                    }
                    Clearance::Clear if !is_clear => self.is_at(Stage::Clear),
                    Clearance::Clear | Clearance::InDoubt => {}
                    Clearance::NotHeld if is_clear => return self.fails(OTHERS_NOT_READY),
                    Clearance::NotHeld => {
                        return self.fails(IN_DOUBT);
                    }
                }
            }
            if began.elapsed() > NEAR_WITHIN {
                return self.fails(OTHERS_NOT_READY);
            }
        }
    }

    fn is_there(&self) -> bool {
        if self.served.clearance(self.backup) != Clearance::Clear {
            return self
                .fails("commits waited for too long for definitions that were being changed: run it again");
        }
        self.is_at(Stage::AtCut);
        let began = Instant::now();
        let mut far = if fault_injection::is_on("backup-cuts-apart") { Far::Go } else { Far::Cut };
        let mut left = CUT_WITHIN;
        while far < Far::Go && !left.is_zero() {
            far = self.wait(Far::Go, left);
            left = CUT_WITHIN.saturating_sub(began.elapsed());
        }
        self.served.release(self.backup);
        match far {
            Far::Go => {
                self.is_at(Stage::Past);
                true
            }
            Far::End => self.fails(GIVEN_UP),
            _ => self.fails(
                "commits would have waited for too long for the cut of another partition: run it again",
            ),
        }
    }
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meeting({}, backup {:016x})", self.partition(), self.backup)
    }
}
