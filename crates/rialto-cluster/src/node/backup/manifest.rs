//! [`Manifest`]: what a backup of a cluster says of itself, in a file that is written last.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The file's name.
pub const MANIFEST: &str = "manifest.json";
/// The file in which it is written first. While it is there, a backup is being written to the directory, or was until
/// its node died.
pub const UNFINISHED: &str = "manifest.unfinished";
/// The version of the manifest, and of the files beside it.
const FORMAT: u32 = 1;

/// A backup of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format.
    pub format: u32,
    /// The cluster's number, in hexadecimal digits.
    pub cluster: String,
    /// The backup's number, in hexadecimal digits.
    pub backup: String,
    /// The version of the program that has taken it.
    pub version: String,
    /// When it was taken, in milliseconds since 1970.
    pub time_ms: u64,
    /// The partitions, from 0 on.
    pub partitions: Vec<PartitionBackup>,
}

/// The backup of a partition, in a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionBackup {
    /// The partition.
    pub partition: u32,
    /// The file's name.
    pub file: String,
    /// The place of the cut in the partition's log: the last transaction in the backup.
    pub place: u64,
    /// The epoch in which its primary had begun to lead.
    pub epoch: u64,
    /// The file's length in bytes.
    pub bytes: u64,
    /// The file's checksum (XXH3, 64 bits), in hexadecimal digits.
    pub checksum: String,
}

/// The file's contents.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    /// Of the manifest's JSON without spaces, in hexadecimal digits.
    checksum: String,
}

/// A backup's number, as its manifest has it.
pub fn in_digits(backup: u64) -> String {
    format!("{backup:016x}")
}

impl Manifest {
    /// A backup that was taken now.
    pub fn new(cluster: &str, backup: u64, partitions: Vec<PartitionBackup>) -> Manifest {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Manifest {
            format: FORMAT,
            cluster: cluster.to_owned(),
            backup: in_digits(backup),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            partitions,
        }
    }

    fn checksum(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("a manifest has no maps with other keys than strings");
        format!("{:016x}", xxh3_64(&bytes))
    }

    /// Writes the manifest of a backup whose files are on the disk. It is on the disk when this returns, and after an error
    /// it is not there.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let sealed = Sealed { manifest: self.clone(), checksum: self.checksum() };
        let mut text = serde_json::to_vec_pretty(&sealed)?;
        text.push(b'\n');
        let new = directory.join(UNFINISHED);
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        // The names of the backups' files first.
        sync_directory(directory)?;
        let whole = directory.join(MANIFEST);
        fs::rename(&new, &whole)?;
        sync_directory(directory).inspect_err(|_| drop(fs::remove_file(&whole)))
    }

    /// The manifest of the backup in a directory.
    ///
    /// # Errors
    /// In words: there is none, it is damaged, or of another version.
    pub fn read(directory: &Path) -> Result<Manifest, String> {
        let path = directory.join(MANIFEST);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!(
                    "{} is no complete backup of a cluster: it has no file {MANIFEST}, which is written last",
                    directory.display()
                ));
            }
            text => text.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        let wrong = |what: &str| format!("{}: {what}", path.display());
        let found: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| wrong(&format!("it is damaged: {error}")))?;
        if let Some(format) = found["manifest"]["format"].as_u64()
            && format != u64::from(FORMAT)
        {
            return Err(wrong(&format!("it has format {format}; this program reads format {FORMAT}")));
        }
        let Sealed { manifest, checksum } =
            serde_json::from_value(found).map_err(|error| wrong(&format!("it is damaged: {error}")))?;
        if manifest.checksum() != checksum {
            return Err(wrong("it is damaged: its checksum is another one"));
        }
        let all = manifest.partitions.iter().map(|of| of.partition);
        match !manifest.partitions.is_empty() && all.eq(0..manifest.partitions.len() as u32) {
            true => Ok(manifest),
            false => Err(wrong("it is damaged: it does not name each partition once")),
        }
    }

    /// The manifest of the backup in a directory, whose files are as it says.
    ///
    /// # Errors
    /// As [`Manifest::read`]; and for a file that is missing or another one, by its name.
    pub fn verify(directory: &Path) -> Result<Manifest, String> {
        let manifest = Manifest::read(directory)?;
        for of in &manifest.partitions {
            let path = directory.join(&of.file);
            let wrong = |what: String| format!("{}: {what}", path.display());
            let (bytes, checksum) = measure(&path).map_err(|error| wrong(error.to_string()))?;
            if bytes != of.bytes {
                return Err(wrong(format!("it has {bytes} bytes, and {MANIFEST} says {}", of.bytes)));
            }
            if checksum != of.checksum {
                return Err(wrong(format!(
                    "it is damaged: its checksum is {checksum}, and {MANIFEST} says {}",
                    of.checksum
                )));
            }
        }
        Ok(manifest)
    }

    /// The bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.partitions.iter().map(|of| of.bytes).sum()
    }
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Those of the file system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(here)?.sync_all()
}

fn measure(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut sum, mut bytes, mut buffer) = (Xxh3::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, format!("{:016x}", sum.digest()))),
            read => {
                sum.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// A file of a backup that is being written. What comes last, the place of its cut, is kept apart.
pub struct BackupWriter {
    file: io::BufWriter<File>,
    /// Up to eight bytes which may be the last ones.
    last: Vec<u8>,
    sum: Xxh3,
    bytes: u64,
}

/// The bytes of a place.
const PLACE_BYTES: usize = 8;

impl BackupWriter {
    /// A file that is not there yet.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path) -> io::Result<BackupWriter> {
        let file = io::BufWriter::with_capacity(1 << 20, File::create_new(path)?);
        Ok(BackupWriter { file, last: Vec::new(), sum: Xxh3::new(), bytes: 0 })
    }

    /// Has it on the disk. Gives its length, its checksum, and the place that came last.
    ///
    /// # Errors
    /// Those of the file system; [`io::ErrorKind::UnexpectedEof`] if no place has come.
    pub fn finish(self) -> io::Result<(u64, String, u64)> {
        let place = self.last.first_chunk::<PLACE_BYTES>().ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok((self.bytes, format!("{:016x}", self.sum.digest()), u64::from_le_bytes(*place)))
    }
}

impl Write for BackupWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.last.extend_from_slice(bytes);
        let before = self.last.len().saturating_sub(PLACE_BYTES);
        self.sum.update(&self.last[..before]);
        self.file.write_all(&self.last[..before])?;
        self.bytes += before as u64;
        self.last.drain(..before);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_comes_last_however_the_bytes_come() {
        let path = std::env::temp_dir().join(format!("rialto-backup-writer-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_u8).chain(77_u64.to_le_bytes()).collect();
        for portion in [1, 3, 8, 50, 200] {
            let _ = fs::remove_file(&path);
            let mut writer = BackupWriter::create(&path).unwrap();
            bytes.chunks(portion).for_each(|part| writer.write_all(part).unwrap());
            let (length, checksum, place) = writer.finish().unwrap();
            assert_eq!((length, place), (100, 77), "{portion}");
            assert_eq!(measure(&path).unwrap(), (length, checksum));
            assert_eq!(fs::read(&path).unwrap(), bytes[..100]);
        }
        fs::remove_file(&path).unwrap();
        let cut = BackupWriter::create(&path).unwrap();
        assert!(cut.finish().is_err());
        fs::remove_file(&path).unwrap();
    }
}
