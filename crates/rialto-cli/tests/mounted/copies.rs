//! Copies of a database that outlive its disk: the backups that a server takes while clients work, and the archive of
//! the log. What clients had been told decides what a restore has to give.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rialto::io::Random;
use rialto::row::Timestamp;

use crate::client::{Answer, Client};
use crate::ledger::{CLIENTS, Counts, Progress};
use crate::work::Work;

/// A restore to a time is exact to 10 ms: a transaction that begins this much later is not in it.
const EXACT_MS: u64 = 20;

/// A backup that a server has taken.
#[derive(Debug, Clone)]
pub struct Taken {
    pub at: PathBuf,
    /// The last place of the log in it.
    pub place: u64,
    /// How many transactions of each client were acknowledged before it was requested.
    pub least: Counts,
    /// How many it may have: those acknowledged when it was complete, and the next.
    pub most: Counts,
    /// When it was complete.
    ended_ms: u64,
    /// Whether the log was archived later, in the same life.
    is_archived: bool,
}

/// A time, and how many transactions of each client had been committed by then.
#[derive(Debug)]
pub struct Moment {
    ms: u64,
    pub least: Counts,
    pub most: Counts,
}

/// How far a restore goes.
#[derive(Debug)]
pub enum Goal<'a> {
    /// The backup alone.
    Backup,
    /// With all of the archive.
    End,
    /// To the place of another backup, with the archive.
    Place(&'a Taken),
    Time(&'a Moment),
}

/// The copies of one life.
#[derive(Debug, Default)]
pub struct Copies {
    pub taken: Vec<Taken>,
    pub moments: Vec<Moment>,
    /// How many transactions of each client were acknowledged before the last call that archived the log.
    pub archived: Option<Counts>,
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_millis() as u64
}

/// With the next transaction of each client.
fn and_next(counts: Counts) -> Counts {
    counts.map(|count| count + 1)
}

impl Copies {
    /// Takes backups to this directory, archives the log if there is an archive, and notes times; this many times, if
    /// the server lives that long.
    pub fn keep(
        &mut self,
        work: &Work<'_>,
        address: &str,
        to: &Path,
        has_archive: bool,
        times: u64,
        random: &mut Random,
    ) {
        let Ok(mut client) = Client::connect(address) else { return work.no_connection() };
        for number in 0..times {
            // A backup first, and then a time after it.
            let what = if number < 2 { number * 3 } else { random.below(4) };
            match if has_archive { what } else { 0 } {
                0 | 1 => self.take(work, &mut client, to.join(number.to_string())),
                2 => self.archive(work, &mut client),
                _ => {
                    self.note_time(work.progress);
                    self.archive(work, &mut client);
                }
            }
        }
    }

    fn take(&mut self, work: &Work<'_>, client: &mut Client, at: PathBuf) {
        let least = work.progress.now();
        match client.query(&format!("BACKUP TO '{}'", at.display())) {
            Answer::Done { notice, .. } => {
                let most = and_next(work.progress.now());
                let place = place_in(&notice);
                self.taken.push(Taken { at, place, least, most, ended_ms: now_ms(), is_archived: false });
            }
            answer => work.expect_possible(&answer),
        }
    }

    fn archive(&mut self, work: &Work<'_>, client: &mut Client) {
        let before = work.progress.now();
        match client.query("ARCHIVE LOG") {
            Answer::Done { .. } => self.note_archived(before),
            answer => work.expect_possible(&answer),
        }
    }

    /// All transactions up to these counts are archived.
    pub fn note_archived(&mut self, counts: Counts) {
        self.archived = Some(counts);
        self.taken.iter_mut().for_each(|taken| taken.is_archived = true);
    }

    fn note_time(&mut self, progress: &Progress) {
        let least = progress.all_durable();
        let ms = now_ms();
        while now_ms() < ms + EXACT_MS {
            thread::sleep(Duration::from_millis(1));
        }
        self.moments.push(Moment { ms, least, most: and_next(progress.now()) });
    }

    /// A random goal for a restore of a backup of this life or, with `is_earlier`, of an earlier one.
    pub fn any_goal(&self, from: &Taken, is_earlier: bool, random: &mut Random) -> Goal<'_> {
        let behind = |it: &&Taken| it.place >= from.place;
        let places = self.taken.iter().filter(behind).collect::<Vec<_>>();
        let times = self.moments.iter().filter(|it| it.ms > from.ended_ms + EXACT_MS).collect::<Vec<_>>();
        match random.below(6) {
            0 | 1 if !places.is_empty() => Goal::Place(places[random.below(places.len() as u64) as usize]),
            2 | 3 if !times.is_empty() => Goal::Time(times[random.below(times.len() as u64) as usize]),
            4 if !is_earlier => Goal::Backup,
            _ => Goal::End,
        }
    }

    /// The least and the most transactions of each client that a restore of a backup gives.
    pub fn bounds(&self, from: &Taken, is_earlier: bool, goal: &Goal<'_>) -> (Counts, Counts) {
        let base = if is_earlier { [0; CLIENTS] } else { from.least };
        let (least, most) = match goal {
            Goal::Backup => return (from.least, from.most),
            Goal::End => (self.archived.unwrap_or_default(), [usize::MAX; CLIENTS]),
            Goal::Place(taken) => (taken.least, taken.most),
            Goal::Time(moment) => (moment.least, moment.most),
        };
        (std::array::from_fn(|client| base[client].max(least[client])), most)
    }

    /// Whether a restore may be refused because the archive has no log, or does not reach the goal: no archived log
    /// follows the backup.
    pub fn may_refuse(&self, goal: &Goal<'_>, why: &str) -> bool {
        if self.archived.is_none() && why.contains("holds no log of database") {
            return true;
        }
        let comes_so_far = match goal {
            Goal::Backup | Goal::End => true,
            Goal::Place(taken) => taken.is_archived,
            Goal::Time(moment) => {
                let archived = self.archived.unwrap_or_default();
                archived.iter().zip(moment.most).any(|(archived, most)| *archived > most)
            }
        };
        !comes_so_far && why.contains("reaches place")
    }
}

impl Goal<'_> {
    /// The options of a restore to this goal.
    pub fn words(&self, archive: Option<&Path>) -> Vec<String> {
        let archive =
            || vec!["--archive".to_owned(), archive.expect("a database with one").display().to_string()];
        let with = |name: &str, value: String| [archive(), vec![name.to_owned(), value]].concat();
        match self {
            Goal::Backup => Vec::new(),
            Goal::End => archive(),
            Goal::Place(taken) => with("--to-lsn", taken.place.to_string()),
            Goal::Time(moment) => with("--to-time", Timestamp(moment.ms as i64 * 1_000).to_string()),
        }
    }
}

/// The place in the output of a backup or a restore.
pub fn place_in(text: &str) -> u64 {
    let (_, rest) = text.split_once("up to place ").unwrap_or_else(|| panic!("no place is told: {text}"));
    let digits = rest.split(|sign: char| !sign.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no place is told: {text}"))
}
