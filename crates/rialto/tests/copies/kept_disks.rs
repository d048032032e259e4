//! The disks of a test, kept if it fails.

use std::cell::RefCell;
use std::path::Path;

use rialto::io::Disk;

use crate::common::archives::contents;

type Files = Vec<(String, Vec<u8>)>;

/// Files of disks, which are written to a directory if the test fails.
#[derive(Default)]
pub struct KeptDisks(RefCell<Vec<(String, Files)>>);

impl KeptDisks {
    /// The files of this disk as they are now.
    pub fn add(&self, name: &str, disk: &dyn Disk) {
        self.add_files(name, contents(disk));
    }

    pub fn add_files(&self, name: &str, files: Files) {
        self.0.borrow_mut().push((name.to_owned(), files));
    }
}

impl Drop for KeptDisks {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let test = std::thread::current().name().unwrap_or("test").replace("::", "-");
        let to = format!("{}-{test}", std::process::id());
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept").join(to);
        for (name, files) in self.0.take() {
            for (file, bytes) in files {
                let at = to.join(&name);
                let kept = std::fs::create_dir_all(&at).and_then(|()| std::fs::write(at.join(&file), bytes));
                if let Err(error) = kept {
                    return println!("{name} could not be kept: {error}");
                }
            }
        }
        println!("kept, as it was before the last opening: {}", to.display());
    }
}
