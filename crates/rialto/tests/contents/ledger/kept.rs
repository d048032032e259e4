//! What a failed run leaves behind: the disk that was recovered, the seed of the options that it was opened with, the steps before, and the
//! ledger. Recovering it again fails again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rialto::backup::Archive;
use rialto::io::{FaultyDisk, Random};
use rialto::{Database, Options};

use super::contents::{Contents, compare, contents};
use super::options::any_options;
use super::told::Bounds;

/// Where a kept run lies, for [`judge`].
pub const VARIABLE: &str = "RIALTO_KEPT";
const DISK: &str = "disk";
const LEDGER: &str = "ledger";

/// What a run's database is opened with: so much memory, and options that are drawn from a seed.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    pub memory: u64,
    pub seed: u64,
}

impl Opening {
    pub fn options(self, archive: Option<Archive>) -> Options {
        any_options(&mut Random::new(self.seed), self.memory, archive)
    }
}

/// Keeps what was found, in so many directories of the machine, with these lines about how it came about; and says where.
pub fn keep(
    disk: &FaultyDisk,
    directories: usize,
    opening: Opening,
    bounds: &Bounds,
    lines: &[String],
) -> PathBuf {
    let name = format!("{}-{}", std::process::id(), disk.seed());
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept").join(name);
    disk.save(&to.join(DISK)).expect("the build's own folder can be written");
    for number in 1..directories {
        let beside = to.join(format!("directory-{number}"));
        disk.directory(number).save(&beside).expect("the build's own folder can be written");
    }
    let Opening { memory, seed } = opening;
    let mut text = format!("memory {memory}\noptions {}\n", seed as i64);
    for (writer, (least, most)) in bounds.least.iter().zip(&bounds.most).enumerate() {
        writeln!(text, "writer {writer} {least} {most}").unwrap();
    }
    for (writer, number, other, seen) in &bounds.saw {
        writeln!(text, "saw {writer} {number} {other} {seen}").unwrap();
    }
    std::fs::write(to.join(LEDGER), text).unwrap();
    std::fs::write(to.join("trace"), lines.join("\n")).unwrap();
    to
}

/// Says where a run was kept.
pub fn tell(at: &Path) {
    println!("kept, to be recovered again: {VARIABLE}={} (test a_kept_run_is_judged_again)", at.display());
}

/// Recovers a kept disk and compares it with its ledger.
pub fn judge(from: &Path) {
    let disk: Arc<FaultyDisk> = FaultyDisk::load(&from.join(DISK), 1).unwrap();
    let archive = from.join("directory-1");
    let archive = archive.exists().then(|| Archive::on(FaultyDisk::load(&archive, 1).unwrap()));
    let (mut opening, mut bounds) = (Opening { memory: 0, seed: 0 }, Bounds::default());
    for line in std::fs::read_to_string(from.join(LEDGER)).unwrap().lines() {
        let (what, numbers) = line.split_once(' ').expect("a word and numbers");
        let numbers: Vec<i64> = numbers.split(' ').map(|it| it.parse().expect("a number")).collect();
        match (what, &numbers[..]) {
            ("memory", [bytes]) => opening.memory = *bytes as u64,
            ("options", [seed]) => opening.seed = *seed as u64,
            ("writer", [_, least, most]) => {
                bounds.least.push(*least);
                bounds.most.push(*most);
            }
            ("saw", [writer, number, other, seen]) => {
                bounds.saw.push((*writer as usize, *number, *other as usize, *seen));
            }
            _ => panic!("{line}: not a line of a ledger"),
        }
    }
    let about = &from.display().to_string();
    let db =
        Database::open_on(disk, opening.options(archive)).unwrap_or_else(|error| panic!("{about}: {error}"));
    let found = contents(&db, about);
    bounds.check(&found.counts, about);
    let mut expected = Contents::default();
    expected.advance(&found.counts);
    compare(&found, &expected, about);
}
