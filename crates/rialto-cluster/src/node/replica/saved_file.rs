//! [`SavedFile`]: the replica's own file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::protocol::replication::Saved;

/// The version of the file's bytes.
const VERSION: u8 = 2;
/// The version without [`Saved::agrees`], which is then taken to be none.
const WITHOUT_AGREES: u8 = 1;

/// The file in which a replica keeps [`Saved`], beside its database: a version, the values, and a checksum. It is written
/// anew, synced, and renamed.
#[derive(Debug)]
pub struct SavedFile {
    path: PathBuf,
}

impl SavedFile {
    /// The file in a replica's directory.
    pub fn in_directory(directory: &Path) -> SavedFile {
        SavedFile { path: directory.join("replica") }
    }

    /// What the file has; the beginning if there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`], with the file's name, if it is damaged or of another version; those of the file system.
    pub fn read(&self) -> io::Result<Saved> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::default()),
            Err(error) => return Err(error),
        };
        let damaged = |what: &str| {
            let what = format!("{}: {what}", self.path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        let (body, checksum) = bytes.split_last_chunk::<8>().ok_or_else(|| damaged("it is cut off"))?;
        if xxh3_64(body) != u64::from_le_bytes(*checksum) {
            return Err(damaged("its checksum is not that of its bytes"));
        }
        match body.split_first() {
            Some((&version @ (VERSION | WITHOUT_AGREES), rest)) => {
                let mut rest = rest.to_vec();
                if version == WITHOUT_AGREES {
                    rest.push(0);
                }
                postcard::from_bytes(&rest).map_err(|_| damaged("its bytes are no state of a replica"))
            }
            _ => Err(damaged("it is of another version of this program")),
        }
    }

    /// Writes the file. It is on the disk when this returns.
    ///
    /// # Errors
    /// Those of the file system; the file then is as it was.
    pub fn write(&self, saved: &Saved) -> io::Result<()> {
        let mut bytes = postcard::to_extend(saved, vec![VERSION]).map_err(io::Error::other)?;
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let directory = self.path.parent().expect("the file lies in a directory");
        File::open(directory)?.sync_all()
    }
}
