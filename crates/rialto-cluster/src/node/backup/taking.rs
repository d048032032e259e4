//! [`Taking`]: a backup of the cluster, at the node that takes it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::backups::Backups;
use super::manifest::{BackupWriter, Manifest, PartitionBackup, UNFINISHED, sync_directory};
use super::meeting::{GIVEN_UP, follows_another};
use super::message::{BackupMessage, Body, Far, Stage};
use crate::node::running::Parts;
use crate::node::transactions::Serves;
use crate::node::transfer::{Pulling, Source};
use crate::protocol::{NodeId, PartitionId};

/// How long a partition may take until it is served.
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
    /// Whether something has failed: what runs of it ends.
    is_given_up: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Where the partitions are, as far as was heard.
    stages: BTreeMap<PartitionId, (NodeId, Stage)>,
    /// What has failed.
    failures: Vec<String>,
    /// The files that it has made.
    made: Vec<PathBuf>,
}

impl Taking {
    /// A backup to a directory.
    pub fn new(backup: u64, to: &Path) -> Taking {
        let (state, changed, is_given_up) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        Taking { backup, to: to.to_owned(), state, changed, is_given_up }
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
            served.push(found.ok_or_else(|| format!("{partition} has no primary that serves"))?);
        }
        let was_there = self.make_directory()?;
        let taken = self.take(parts, &served).and_then(|partitions| {
            let manifest = Manifest::new(&parts.facts.id, self.backup, partitions);
            self.check_files(&manifest)?;
            let written = manifest.write(&self.to);
            written.map(|()| manifest).map_err(|error| self.in_words(&error))
        });
        if taken.is_err() {
            self.remove(was_there);
        }
        taken
    }

    fn in_words(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.to.display())
    }

    /// Makes the directory, unless it is there and empty, and in it the file that the manifest is written in: no other
    /// backup takes it. Gives whether the directory was there.
    fn make_directory(&self) -> Result<bool, String> {
        use std::os::unix::fs::DirBuilderExt;
        let was_there = match fs::DirBuilder::new().mode(0o700).create(&self.to) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            Err(error) => return Err(self.in_words(&error)),
        };
        self.check_empty(false)?;
        if let Some(parent) = self.to.parent() {
            match sync_directory(parent) {
                // One that was there may be in a directory that this node cannot read.
                Err(error) if !was_there => return Err(format!("{}: {error}", parent.display())),
                Ok(()) | Err(_) => {}
            }
        }
        let unfinished = self.to.join(UNFINISHED);
        let made = fs::File::create_new(&unfinished);
        made.map_err(|error| format!("{}: {error}", unfinished.display()))?;
        // Another backup may have come to its end meanwhile.
        self.check_empty(true).inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
        self.state.lock().made.push(unfinished);
        Ok(was_there)
    }

    /// Refuses a directory that has something in it, but for the manifest that is not finished if that is this backup's.
    fn check_empty(&self, has_begun: bool) -> Result<(), String> {
        for entry in fs::read_dir(&self.to).map_err(|error| self.in_words(&error))? {
            let entry = entry.map_err(|error| self.in_words(&error))?;
            if !has_begun || entry.file_name() != UNFINISHED {
                return Err(format!("{} is not empty; give a new or an empty directory", self.to.display()));
            }
        }
        Ok(())
    }

    /// Checks that all files are there: another process may have removed them.
    fn check_files(&self, manifest: &Manifest) -> Result<(), String> {
        for of in &manifest.partitions {
            let path = self.to.join(&of.file);
            let found = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if found.len() != of.bytes {
                return Err(format!(
                    "{}: it has {} bytes, and {} were written",
                    path.display(),
                    found.len(),
                    of.bytes
                ));
            }
        }
        Ok(())
    }

    /// Removes what it has made. Without a manifest it is no backup, whatever is left.
    fn remove(&self, was_there: bool) {
        // That which keeps other backups away goes last.
        for path in self.state.lock().made.drain(..).rev() {
            let _ = fs::remove_file(path);
        }
        if !was_there {
            let _ = fs::remove_dir(&self.to);
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
                            Err(why) => {
                                state.failures.push(why.clone());
                                self.is_given_up.store(true, Ordering::Relaxed);
                            }
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
                self.is_given_up.store(true, Ordering::Relaxed);
            }
            // Once one has failed the others end, as soon as they hear of it.
            while files.iter().any(|thread| !thread.is_finished()) {
                if self.is_given_up.load(Ordering::Relaxed) {
                    self.say(parts, served, Far::End);
                }
                self.changed.wait_for(&mut self.state.lock(), SAY_AGAIN);
            }
            let files = files.into_iter().map(|thread| thread.join().expect("no panic"));
            let files: Result<Vec<_>, String> = files.collect();
            met.and(files)
        });
        // Those that only waited for the others do not say why.
        let causes = self.state.lock().failures.clone();
        let cause = causes.into_iter().reduce(|first, why| if follows_another(&first) { why } else { first });
        files.map_err(|why| cause.unwrap_or(why))
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
        self.state.lock().made.push(path.clone());
        if node == parts.me {
            Backups::write(parts, node, (self.backup, partition, opening), &mut file)?;
        } else {
            let source = Source::Backup { partition, opening, backup: self.backup };
            let mut reader = Wanted { pulling: parts.transfers.pull(node, source), taking: self };
            io::copy(&mut reader, &mut file).map_err(|error| error.to_string())?;
        }
        let (bytes, checksum, place) = file.finish().map_err(|error| in_words(&error))?;
        let partition = partition.0;
        Ok(PartitionBackup { partition, file: name, place, epoch: opening.0, bytes, checksum })
    }
}

/// What comes of a partition, as long as the backup is not given up.
struct Wanted<'a> {
    pulling: Pulling,
    taking: &'a Taking,
}

impl io::Read for Wanted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.pulling.read(buffer)?;
        match self.taking.is_given_up.load(Ordering::Relaxed) {
            true => Err(io::Error::other(GIVEN_UP)),
            false => Ok(read),
        }
    }
}

fn file_name(partition: PartitionId) -> String {
    format!("partition-{}.backup", partition.0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_directory_is_one_backups_and_what_is_of_another_stays() {
        let to = std::env::temp_dir().join(format!("rialto-taking-{}", std::process::id()));
        let _ = fs::remove_dir_all(&to);
        let (first, second) = (Taking::new(1, &to), Taking::new(2, &to));
        fs::create_dir(&to).unwrap();
        assert_eq!(first.make_directory(), Ok(true));
        let name = file_name(PartitionId(0));
        let mut file = BackupWriter::create(&to.join(&name)).unwrap();
        file.write_all(&[7; 108]).unwrap();
        let (bytes, checksum, place) = file.finish().unwrap();
        let refused = second.make_directory().unwrap_err();
        assert!(refused.contains("is not empty"), "{refused}");
        // The other one has seen it empty before.
        let unfinished = second.check_empty(true).unwrap_err();
        assert!(unfinished.contains("is not empty"), "{unfinished}");
        second.remove(true);
        assert!(to.join(&name).exists() && to.join(UNFINISHED).exists(), "it removes what it has made");
        let of = PartitionBackup { partition: 0, file: name.clone(), place, epoch: 1, bytes, checksum };
        let manifest = Manifest::new("77", 1, vec![of]);
        first.check_files(&manifest).unwrap();
        manifest.write(&to).unwrap();
        assert!(!to.join(UNFINISHED).exists());
        Manifest::verify(&to).unwrap();
        assert!(second.make_directory().is_err());
        Manifest::verify(&to).unwrap();
        fs::remove_file(to.join(&name)).unwrap();
        let missing = first.check_files(&manifest).unwrap_err();
        assert!(missing.contains(&name), "{missing}");
        fs::remove_dir_all(&to).unwrap();
    }
}
