//! What a failed run leaves: the disk that was recovered, the seed of the options that it was opened with, the steps
//! before, and the ledger. Recovering it again fails again. If an earlier recovery was interrupted, its disk is kept,
//! too.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rialto::backup::Archive;
use rialto::io::{FaultyDisk, Random};
use rialto::{Database, Options};

use super::End;
use super::contents::{Contents, compare, contents};
use super::options::any_options;
use super::told::Bounds;

/// The directory of a kept run, for [`judge`].
pub const VARIABLE: &str = "RIALTO_KEPT";
const DISK: &str = "disk";
const LEDGER: &str = "ledger";
const INTERRUPTED: &str = "interrupted";
/// The number of attempts at an interrupted recovery: its threads run in any order, and what an end loses is random.
const TRIES: u64 = 40;

/// The options of a run's database: this much memory, and options drawn from a seed.
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

/// A recovery that is interrupted: the disk that it found, or a copy of it, and where it ends, counted from its first
/// step.
#[derive(Debug)]
pub struct Interrupted {
    pub disk: Arc<FaultyDisk>,
    pub opening: Opening,
    pub end: End,
    pub step: u64,
}

impl Interrupted {
    /// Begins it, and ends it in its step, or just after the opening. Gives what the next recovery finds.
    pub fn interrupt(&self, disk: &FaultyDisk, archive: Option<Archive>) -> Arc<FaultyDisk> {
        let at = disk.steps() + self.step;
        match self.end {
            End::PowerLost => disk.crash_at(at),
            End::Killed => disk.kill_at(at),
        }
        if let Ok(db) = Database::open_on(disk.directory(0), self.opening.options(archive)) {
            let _ = db.sync();
        }
        if !disk.is_down() {
            match self.end {
                End::PowerLost => disk.crash(),
                End::Killed => disk.kill(),
            }
        }
        disk.restart()
    }

    /// Keeps it beside what it has left.
    pub fn keep(&self, directories: usize, beside: &Path) {
        let to = beside.join(INTERRUPTED);
        save(&self.disk, directories, &to);
        let Opening { memory, seed } = self.opening;
        let power_lost = i64::from(self.end == End::PowerLost);
        let text =
            format!("interrupted {power_lost} {}\nmemory {memory}\noptions {}\n", self.step, seed as i64);
        std::fs::write(to.join(LEDGER), text).unwrap();
    }

    /// The one that was kept beside this, if there is one, and its archive.
    fn load(beside: &Path, seed: u64) -> Option<(Interrupted, Option<Archive>)> {
        let from = beside.join(INTERRUPTED);
        let text = std::fs::read_to_string(from.join(LEDGER)).ok()?;
        let (disk, archive) = load(&from, seed);
        let mut it = Interrupted { disk, opening: Opening { memory: 0, seed: 0 }, end: End::Killed, step: 0 };
        for (what, numbers) in lines(&text) {
            match (what, &numbers[..]) {
                ("interrupted", [power_lost, step]) => {
                    it.end = if *power_lost == 1 { End::PowerLost } else { End::Killed };
                    it.step = *step as u64;
                }
                ("memory", [bytes]) => it.opening.memory = *bytes as u64,
                ("options", [seed]) => it.opening.seed = *seed as u64,
                _ => panic!("{what}: not a line of an interrupted recovery"),
            }
        }
        Some((it, archive))
    }
}

fn save(disk: &FaultyDisk, directories: usize, to: &Path) {
    disk.directory(0).save(&to.join(DISK)).expect("the build's own folder can be written");
    for number in 1..directories {
        let beside = to.join(format!("directory-{number}"));
        disk.directory(number).save(&beside).expect("the build's own folder can be written");
    }
}

fn load(from: &Path, seed: u64) -> (Arc<FaultyDisk>, Option<Archive>) {
    let archive = from.join("directory-1");
    let archive = archive.exists().then(|| Archive::on(FaultyDisk::load(&archive, seed).unwrap()));
    (FaultyDisk::load(&from.join(DISK), seed).unwrap(), archive)
}

/// Words, each with its numbers.
fn lines(text: &str) -> impl Iterator<Item = (&str, Vec<i64>)> {
    text.lines().map(|line| {
        let (what, numbers) = line.split_once(' ').expect("a word and numbers");
        (what, numbers.split(' ').map(|it| it.parse().expect("a number")).collect())
    })
}

/// Keeps what was found, in these directories of the machine, with these lines about its history; and says where.
pub fn keep(
    disk: &FaultyDisk,
    directories: usize,
    opening: Opening,
    bounds: &Bounds,
    lines: &[String],
) -> PathBuf {
    let name = format!("{}-{}", std::process::id(), disk.seed());
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept").join(name);
    save(disk, directories, &to);
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

/// Recovers a kept disk and compares it with its ledger. If an earlier recovery was interrupted, that is done again,
/// too.
pub fn judge(from: &Path) {
    let (mut opening, mut bounds) = (Opening { memory: 0, seed: 0 }, Bounds::default());
    for (what, numbers) in lines(&std::fs::read_to_string(from.join(LEDGER)).unwrap()) {
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
            _ => panic!("{what}: not a line of a ledger"),
        }
    }
    let about = &from.display().to_string();
    let judge_one = |disk: Arc<FaultyDisk>, archive: Option<Archive>, about: &str| {
        let options = opening.options(archive);
        let db = Database::open_on(disk, options).unwrap_or_else(|error| panic!("{about}: {error}"));
        let found = contents(&db, about);
        bounds.check(&found.counts, about);
        let mut expected = Contents::default();
        expected.advance(&found.counts);
        compare(&found, &expected, about);
    };
    let (disk, archive) = load(from, 1);
    judge_one(disk, archive, about);
    for seed in 0..TRIES {
        let Some((interrupted, archive)) = Interrupted::load(from, seed) else { return };
        let disk = interrupted.interrupt(&interrupted.disk, archive.clone());
        judge_one(disk, archive, &format!("{about}, interrupted again, try {seed}"));
    }
}
