//! The archive of a database's log.

use std::fs;
use std::path::{Path, PathBuf};

use rialto::io::FaultyDisk;

use crate::mount::Mounted;

/// The number of the archive's directory on the machine; that of the database is 0.
const NUMBER: usize = 1;

/// An archive that loses nothing, or that lies on the database's own machine.
pub struct Archive {
    at: PathBuf,
    /// The directory of the one database that archives here, if the archive is on that machine.
    mounted: Option<Mounted>,
}

impl Archive {
    pub fn new(at: PathBuf) -> Archive {
        Archive { at, mounted: None }
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Moves the directory of a database's archive to that database's machine, without its contents.
    pub fn move_to(&mut self, machine: &Mounted, about: &str) {
        let folders = fs::read_dir(&self.at).unwrap_or_else(|error| panic!("{about}: no archive: {error}"));
        let folders = folders.map(|folder| folder.expect("it can be listed").path()).collect::<Vec<_>>();
        let [folder] = &folders[..] else { panic!("{about}: the archive of one database: {folders:?}") };
        fs::remove_dir_all(folder).expect("it is not in use");
        self.mounted = Some(machine.beside(NUMBER, folder).expect("a second disk can be mounted"));
    }

    /// The machine has started again.
    pub fn restart(&mut self, machine: &FaultyDisk) {
        if let Some(mounted) = &mut self.mounted {
            mounted.replace(machine.directory(NUMBER));
        }
    }
}
