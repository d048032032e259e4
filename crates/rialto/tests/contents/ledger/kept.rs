//! What a failed run leaves behind: the disk that was recovered, the steps before, and the ledger. Recovering it again fails again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rialto::io::FaultyDisk;
use rialto::{Checkpointing, Database, Options};

use super::clients::procedures;
use super::contents::{Contents, compare, contents};
use super::told::Bounds;

/// Where a kept run lies, for [`judge`].
pub const VARIABLE: &str = "RIALTO_KEPT";
const DISK: &str = "disk";
const LEDGER: &str = "ledger";

/// Keeps what was found, in so many directories of the machine, with these lines about how it came about; and says where.
pub fn keep(
    disk: &FaultyDisk,
    directories: usize,
    memory: u64,
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
    let mut text = format!("memory {memory}\n");
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

/// Recovers a kept disk and compares it with its ledger.
pub fn judge(from: &Path) {
    let disk: Arc<FaultyDisk> = FaultyDisk::load(&from.join(DISK), 1).unwrap();
    let (mut memory, mut bounds) = (0, Bounds::default());
    for line in std::fs::read_to_string(from.join(LEDGER)).unwrap().lines() {
        let (what, numbers) = line.split_once(' ').expect("a word and numbers");
        let numbers: Vec<i64> = numbers.split(' ').map(|it| it.parse().expect("a number")).collect();
        match (what, &numbers[..]) {
            ("memory", [bytes]) => memory = *bytes as u64,
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
    let options = Options {
        memory_bytes: memory,
        checkpoint: Checkpointing::None,
        procedures: procedures(),
        ..Options::default()
    };
    let about = &from.display().to_string();
    let db = Database::open_on(disk, options).unwrap_or_else(|error| panic!("{about}: {error}"));
    let found = contents(&db, about);
    bounds.check(&found.counts, about);
    let mut expected = Contents::default();
    expected.advance(&found.counts);
    compare(&found, &expected, about);
}
