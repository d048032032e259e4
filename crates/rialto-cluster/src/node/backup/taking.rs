//! [`Taking`]: a backup of the cluster, at the node that takes it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::backups::Backups;
use super::manifest::{BackupWriter, Manifest, PartitionBackup};
use super::meeting::follows_another;
use super::message::{BackupMessage, Body, Far, Stage};
use crate::node::running::Parts;
use crate::node::transactions::Serves;
use crate::node::transfer::Source;
use crate::protocol::{NodeId, PartitionId};

/// How long a partition has to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// How long the primaries have for each step. They give up earlier, and say so.
const STEP_WITHIN: Duration = Duration::from_secs(30);
/// How often they are told how far they are to go.
const SAY_AGAIN: Duration = Duration::from_millis(20);

/// A backup that is being taken.
pub struct Taking {
    backup: u64,
    to: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where the partitions are, as far as was heard.
    stages: BTreeMap<PartitionId, (NodeId, Stage)>,
    /// What has failed.
    failures: Vec<String>,
}

impl Taking {
    /// A backup to a directory.
    pub fn new(backup: u64, to: &Path) -> Taking {
        Taking { backup, to: to.to_owned(), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Its number.
    pub fn backup(&self) -> u64 {
        self.backup
    }

    /// A primary has said where it is.
    pub fn heard(&self, from: NodeId, partition: PartitionId, stage: Stage) {
        let mut state = self.state.lock();
        let Some((node, known)) = state.stages.get_mut(&partition) else { return };
        // A message that was overtaken says nothing new.
        if *node != from || *known >= stage {
            return;
        }
        *known = stage.clone();
        if let Stage::Failed(why) = stage {
            state.failures.push(format!("{partition}: {why}"));
        }
        self.changed.notify_all();
    }

    /// Takes it. After an error nothing is left of it.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn run(&self, parts: &Arc<Parts>) -> Result<Manifest, String> {
        let mut served = Vec::new();
        for partition in parts.facts.partitions() {
            let found = parts.transactions.directory().wait(partition, None, SERVED_WITHIN);
            served.push(found.ok_or_else(|| format!("{partition} is not served by any node"))?);
        }
        let was_there = self.make_directory()?;
        let taken = self.take(parts, &served).and_then(|partitions| {
            let manifest = Manifest::new(&parts.facts.id, self.backup, partitions);
            let written = manifest.write(&self.to);
            written.map(|()| manifest).map_err(|error| self.in_words(&error))
        });
        if taken.is_err() {
            // Without a manifest it is no backup, whatever is left.
            for serves in &served {
                let _ = fs::remove_file(self.to.join(file_name(serves.partition)));
            }
            let _ = fs::remove_file(self.to.join("manifest.unfinished"));
            if !was_there {
                let _ = fs::remove_dir(&self.to);
            }
        }
        taken
    }

    fn in_words(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.to.display())
    }

    /// Makes the directory, unless it is there and empty. Gives whether it was there.
    fn make_directory(&self) -> Result<bool, String> {
        use std::os::unix::fs::DirBuilderExt;
        match fs::DirBuilder::new().mode(0o700).create(&self.to) {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(&self.to).map_err(|error| self.in_words(&error))?;
                match entries.next() {
                    None => Ok(true),
                    Some(_) => {
                        Err(format!("{} is not empty; give a new or an empty directory", self.to.display()))
                    }
                }
            }
            Err(error) => Err(self.in_words(&error)),
        }
    }

    fn take(&self, parts: &Arc<Parts>, served: &[Serves]) -> Result<Vec<PartitionBackup>, String> {
        let begun = |serves: &Serves| (serves.partition, (serves.node, Stage::Begins));
        self.state.lock().stages = served.iter().map(begun).collect();
        let files = std::thread::scope(|threads| {
            let files: Vec<_> = served
                .iter()
                .map(|serves| {
                    threads.spawn(move || {
                        let file = self.receive(parts, *serves);
                        let file = file.map_err(|why| format!("{}: {why}", serves.partition));
                        let mut state = self.state.lock();
                        match &file {
                            // It has gone on from its cut, though that may not have been heard.
                            Ok(_) => drop(state.stages.insert(serves.partition, (serves.node, Stage::Past))),
                            Err(why) => state.failures.push(why.clone()),
                        }
                        self.changed.notify_all();
                        file
                    })
                })
                .collect();
            let met = [Far::Near, Far::Hold, Far::Cut, Far::Go]
                .into_iter()
                .try_for_each(|far| self.have_all_go(parts, served, far));
            if met.is_err() {
                self.say(parts, served, Far::End);
            }
            // They end by themselves, once the other nodes have ended them, or are gone.
            let files: Vec<_> = files.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            met.map(|()| files)
        });
        // Those that only waited for the others do not say why.
        let causes = self.state.lock().failures.clone();
        let cause = causes.iter().find(|why| !follows_another(why)).or(causes.first());
        let files = files.map_err(|why| cause.cloned().unwrap_or(why))?;
        files.into_iter().collect()
    }

    fn say(&self, parts: &Parts, served: &[Serves], far: Far) {
        for Serves { partition, node, .. } in served.iter().copied() {
            Backups::send(
                parts,
                node,
                BackupMessage { backup: self.backup, partition, body: Body::Goes(far) },
            );
        }
    }

    /// Has all primaries go so far, and waits until they have.
    fn have_all_go(&self, parts: &Parts, served: &[Serves], far: Far) -> Result<(), String> {
        let began = Instant::now();
        loop {
            self.say(parts, served, far);
            let mut state = self.state.lock();
            let behind = |state: &State| {
                let found = state.stages.iter().find(|(_, (_, stage))| !stage.has_reached(far));
                found.map(|(partition, (_, stage))| (*partition, stage.clone()))
            };
            if state.failures.is_empty() && behind(&state).is_some() {
                self.changed.wait_for(&mut state, SAY_AGAIN);
            }
            if let Some(why) = state.failures.first() {
                return Err(why.clone());
            }
            match behind(&state) {
                None => return Ok(()),
                Some((partition, stage)) if began.elapsed() > STEP_WITHIN => {
                    return Err(format!(
                        "{partition}: it {} after {} s: run it again",
                        stage.in_words(),
                        STEP_WITHIN.as_secs()
                    ));
                }
                Some(_) => {}
            }
        }
    }

    /// Receives the backup of a partition.
    fn receive(&self, parts: &Arc<Parts>, serves: Serves) -> Result<PartitionBackup, String> {
        let Serves { partition, node, opening } = serves;
        let name = file_name(partition);
        let path = self.to.join(&name);
        let in_words = |error: &io::Error| format!("{}: {error}", path.display());
        let mut file = BackupWriter::create(&path).map_err(|error| in_words(&error))?;
        if node == parts.me {
            Backups::write(parts, node, (self.backup, partition), &mut file)?;
        } else {
            let source = Source::Backup { partition, backup: self.backup };
            let mut pulling = parts.transfers.pull(node, source);
            io::copy(&mut pulling, &mut file).map_err(|error| error.to_string())?;
        }
        let (bytes, checksum, place) = file.finish().map_err(|error| in_words(&error))?;
        let partition = partition.0;
        Ok(PartitionBackup { partition, file: name, place, epoch: opening.0, bytes, checksum })
    }
}

fn file_name(partition: PartitionId) -> String {
    format!("partition-{}.backup", partition.0)
}
