//! [`Backups`]: the backups of a node: the one that it takes, and those of the partitions that it serves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, in_digits};
use super::meeting::Meeting;
use super::message::{BackupMessage, Body, Stage};
use super::taking::Taking;
use crate::net::Class;
use crate::node::packet::Packet;
use crate::node::random::random_number;
use crate::node::running::Parts;
use crate::protocol::transactions::Opening;
use crate::protocol::{NodeId, PartitionId};

/// The backups of a node.
#[derive(Default)]
pub struct Backups {
    /// Those of partitions that are served here.
    meetings: Mutex<BTreeMap<PartitionId, Arc<Meeting>>>,
    taken: Mutex<Taken>,
}

/// What was taken here last.
#[derive(Default)]
struct Taken {
    taking: Option<Arc<Taking>>,
    status: BackupStatus,
}

/// The progress of the last backup of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackupStatus {
    /// It has taken none since it started.
    #[default]
    None,
    /// It is being taken.
    Runs {
        /// Its number, in hexadecimal digits.
        backup: String,
        /// The directory that it is written to.
        to: PathBuf,
    },
    /// It is complete.
    Done(Box<Manifest>),
    /// It has failed. Nothing is left of it.
    Failed {
        /// Its number, in hexadecimal digits.
        backup: String,
        /// Why.
        why: String,
    },
}

/// The backup of a partition, while it is among the node's meetings.
struct Meets<'a> {
    backups: &'a Backups,
    partition: PartitionId,
}

impl Drop for Meets<'_> {
    fn drop(&mut self) {
        self.backups.meetings.lock().remove(&self.partition);
    }
}

/// The end of a backup that was taken here.
struct TakingEnds {
    parts: Arc<Parts>,
    backup: String,
    /// None after a panic, or if no thread could start.
    taken: Option<Result<Manifest, String>>,
}

impl Drop for TakingEnds {
    fn drop(&mut self) {
        let no_end = || Err("its thread has failed: what is in its directory is no backup".to_owned());
        let status = match self.taken.take().unwrap_or_else(no_end) {
            Ok(manifest) => BackupStatus::Done(Box::new(manifest)),
            Err(why) => BackupStatus::Failed { backup: std::mem::take(&mut self.backup), why },
        };
        *self.parts.backups.taken.lock() = Taken { taking: None, status };
    }
}

impl Backups {
    /// The progress of the last one that was taken here.
    pub fn status(&self) -> BackupStatus {
        self.taken.lock().status.clone()
    }

    /// Begins to take a backup to a directory, which is made, or is empty. Gives its number, as its manifest has it.
    ///
    /// # Errors
    /// In words: another one runs, or no thread can start.
    pub fn begin(parts: &Arc<Parts>, to: &Path) -> Result<String, String> {
        let mut taken = parts.backups.taken.lock();
        if let BackupStatus::Runs { to, .. } = &taken.status {
            return Err(format!("a backup to {} is being taken already", to.display()));
        }
        let taking = Arc::new(Taking::new(random_number(), to));
        let backup = in_digits(taking.backup());
        taken.taking = Some(taking.clone());
        taken.status = BackupStatus::Runs { backup: backup.clone(), to: to.to_owned() };
        let mut end = TakingEnds { parts: parts.clone(), backup: backup.clone(), taken: None };
        let run = move || end.taken = Some(taking.run(&end.parts));
        let builder = std::thread::Builder::new().name("rialto-backup".to_owned());
        // If none can start the end sees to the status.
        drop(taken);
        builder.spawn(run).map_err(|error| format!("no thread can start: {error}"))?;
        Ok(backup)
    }

    /// Writes the backup of a partition that is served here, for a backup that another node takes, or this one.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn write(
        parts: &Arc<Parts>,
        taker: NodeId,
        (backup, partition, opening): (u64, PartitionId, Opening),
        out: &mut dyn std::io::Write,
    ) -> Result<(), String> {
        let served = parts.transactions.find_served(partition).ok_or("the node does not serve it")?;
        // The manifest names the opening: it tells rows of the system in the backup from those of the new cluster.
        if served.serves().opening != opening {
            return Err("its primary has started again meanwhile".to_owned());
        }
        let told: Weak<Parts> = Arc::downgrade(parts);
        let tell = move |stage: Stage| {
            if let Some(parts) = told.upgrade() {
                let message = BackupMessage { backup, partition, body: Body::Is(stage) };
                Backups::send(&parts, taker, message);
            }
        };
        let meeting = Arc::new(Meeting::new(backup, served, tell));
        {
            let mut meetings = parts.backups.meetings.lock();
            if meetings.contains_key(&partition) {
                return Err("another backup of it is being taken".to_owned());
            }
            meetings.insert(partition, meeting.clone());
        }
        let _meets = Meets { backups: &parts.backups, partition };
        meeting.write(out)
    }

    /// Sends a message to a node, which may be this one. It may be lost.
    pub fn send(parts: &Parts, to: NodeId, message: BackupMessage) {
        if to == parts.me {
            return parts.backups.received(to, message);
        }
        let _ = parts.sending.send(to, Class::Protocol, &Packet::Backup(message), &[]);
    }

    /// A message has come.
    pub fn received(&self, from: NodeId, message: BackupMessage) {
        let BackupMessage { backup, partition, body } = message;
        match body {
            Body::Goes(far) => {
                let meeting = self.meetings.lock().get(&partition).cloned();
                if let Some(meeting) = meeting.filter(|meeting| meeting.backup() == backup) {
                    meeting.goes(far);
                }
            }
            Body::Is(stage) => {
                let taking = self.taken.lock().taking.clone();
                if let Some(taking) = taking.filter(|taking| taking.backup() == backup) {
                    taking.heard(from, partition, stage);
                }
            }
        }
    }
}
