//! A directory that FUSE serves from a [`FaultyDisk`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption};
use rialto::io::FaultyDisk;

use crate::killer::Killer;
use crate::reluctance::Reluctance;
use crate::served::Served;

/// A mounted faulty disk; it is unmounted when this is dropped.
pub struct Mounted {
    pub disk: Arc<FaultyDisk>,
    pub killer: Arc<Killer>,
    pub reluctance: Arc<Reluctance>,
    at: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts the disk at a directory, which is made if it does not exist.
    pub fn new(disk: Arc<FaultyDisk>, at: &Path) -> std::io::Result<Mounted> {
        let reluctance = Arc::new(Reluctance::new(disk.seed()));
        Mounted::with(disk, at, Arc::default(), reluctance)
    }

    /// Mounts another directory of the same machine, whose steps are counted together with those of this one.
    pub fn beside(&self, number: usize, at: &Path) -> std::io::Result<Mounted> {
        Mounted::with(self.disk.directory(number), at, self.killer.clone(), self.reluctance.clone())
    }

    fn with(
        disk: Arc<FaultyDisk>,
        at: &Path,
        killer: Arc<Killer>,
        reluctance: Arc<Reluctance>,
    ) -> std::io::Result<Mounted> {
        std::fs::create_dir_all(at)?;
        let served = Served::new(disk.clone(), killer.clone(), reluctance.clone());
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("rialto-faulty".to_owned()), MountOption::DefaultPermissions];
        let session = fuser::spawn_mount(served, at, &config)?;
        Ok(Mounted { disk, killer, reluctance, at: at.to_owned(), session: Some(session) })
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Mounts another disk in place of this one, which is no longer in use.
    pub fn replace(&mut self, disk: Arc<FaultyDisk>) {
        self.unmount();
        let (at, killer, reluctance) = (self.at.clone(), self.killer.clone(), self.reluctance.clone());
        *self = Mounted::with(disk, &at, killer, reluctance).expect("what was mounted once is mounted again");
    }

    /// Unmounts it in this namespace. Servers that other tests have started meanwhile have copies of the mount in their
    /// namespaces. Its session ends with the last of these, and is not waited for.
    fn unmount(&mut self) {
        drop(self.session.take());
        let device = |path: &Path| rustix::fs::stat(path).expect("the directory is there").st_dev;
        let above = self.at.parent().expect("it lies in the scratch directory");
        assert_eq!(device(&self.at), device(above), "the mount is not in use, so it is gone");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Another disk may be mounted there meanwhile.
        if self.session.take().is_none() {
            return;
        }
        // In a failing test the server may still be running: then the mount ends with its last user.
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.at).output();
    }
}
