//! The disk that a failed run was recovered from.

use std::path::Path;
use std::sync::Arc;

use rialto::io::FaultyDisk;

/// A copy of the disk as the last server found it, which is written to a directory if the test fails.
pub struct Kept {
    /// The name under which it is kept.
    pub name: String,
    pub disk: Option<Arc<FaultyDisk>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(disk) = self.disk.take().filter(|_| std::thread::panicking()) else { return };
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mounted-kept-{}", self.name));
        match disk.save(&to) {
            Ok(()) => {
                println!("the disk as the last server found it is kept: {}", to.join("files").display())
            }
            Err(error) => println!("the disk could not be kept: {error}"),
        }
    }
}
