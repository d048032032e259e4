//! What `adya`, an independent checker, is given of a history: the lists as they stood in rows and graves, and the
//! appends to them, in the order of the clients' operations and answers. No conclusions are added.
//!
//! A key is a list, and a write appends its version to it. A read gives the list in the row; if there is no row, the
//! list in the grave, if the attempt read that too. Scans are given as reads of the rows that they returned, and of the
//! graves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use adya::{Opts, Valid, Workload};

use super::keys::Keys;
use super::observed::{Attempt, Event, Key, Life, Outcome, Row, State, Version};
use super::scans::By;

/// The lines of a history, each with its time.
#[derive(Default)]
struct Lines {
    lines: Vec<(u64, String)>,
    processes: u64,
}

/// The micro-operations of one attempt, as requested and as answered.
#[derive(Default)]
struct Operations {
    asked: Vec<String>,
    answered: Vec<String>,
}

fn name(key: Key) -> i64 {
    key.table as i64 * 1_000_000 + i64::from(key.id)
}

impl Operations {
    fn read(&mut self, key: Key, versions: &[Version]) {
        self.asked.push(format!("[\"r\",{},null]", name(key)));
        self.answered.push(format!("[\"r\",{},{versions:?}]", name(key)));
    }

    fn append(&mut self, key: Key, version: Version) {
        let append = format!("[\"append\",{},{version}]", name(key));
        self.asked.push(append.clone());
        self.answered.push(append);
    }
}

/// Combines what an attempt saw of a key that had no row: its absence, and the list in the grave.
#[derive(Default)]
struct Absences {
    missed: BTreeMap<Key, bool>,
    graves: BTreeMap<Key, Vec<Version>>,
}

impl Absences {
    fn told(&mut self, key: Key, operations: &mut Operations) {
        if self.missed.get(&key) == Some(&true)
            && let Some(versions) = self.graves.remove(&key)
        {
            self.missed.remove(&key);
            operations.read(key, &versions);
        }
    }

    fn forget(&mut self, key: Key) {
        self.missed.remove(&key);
        self.graves.remove(&key);
    }
}

/// The writes that an attempt rolled back itself, by version: the key, and the position of the rollback among the
/// attempt's events.
fn taken_back(events: &[Event]) -> BTreeMap<Version, (Key, usize)> {
    let (mut standing, mut savepoints, mut taken) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Put { key, row: Row { versions, .. } } | Event::Removed { key, versions } => {
                standing.push((*versions.last().expect("its own"), *key));
            }
            Event::Savepoint => savepoints.push(standing.len()),
            Event::Released => drop(savepoints.pop()),
            Event::RolledBack => {
                let kept = savepoints.pop().expect("a savepoint to roll back to");
                taken.extend(standing.drain(kept..).map(|(version, key)| (version, (key, at))));
            }
            _ => {}
        }
    }
    taken
}

/// Everything that an attempt did, without writes that it rolled back itself.
fn operations(attempt: &Attempt, undone: &BTreeMap<Version, (Key, usize)>, keys: &Keys) -> Operations {
    let (mut operations, mut absences) = (Operations::default(), Absences::default());
    // Appends of versions that the attempt itself rolls back are given as those of a failed transaction, which no
    // attempt may see. So what the attempt saw of them before the rollback is left out, but what it saw after it is
    // given. The list of a key that no attempt has written is the same for all.
    let is_told = |key: Key, versions: &[Version], at: usize| {
        let is_to_go = |version| undone.get(version).is_some_and(|(_, rollback)| at < *rollback);
        keys.is_written(key) && !versions.iter().any(is_to_go)
    };
    let read = |key: Key, versions: &[Version], at: usize, operations: &mut Operations| {
        if is_told(key, versions, at) {
            operations.read(key, versions);
        }
    };
    for (at, event) in attempt.events.iter().enumerate() {
        match event {
            Event::Read { key, seen: Some(row) } => read(*key, &row.versions, at, &mut operations),
            Event::Read { key, seen: None } => {
                absences.missed.insert(*key, true);
                absences.told(*key, &mut operations);
            }
            Event::Grave { key, versions } => {
                if is_told(*key, versions, at) {
                    absences.graves.insert(*key, versions.clone());
                    absences.told(*key, &mut operations);
                }
            }
            Event::Scan { table, predicate, seen } => {
                for (id, row) in seen {
                    read(Key { table: *table, id: *id }, &row.versions, at, &mut operations);
                }
                if predicate.by == By::Id {
                    let given: BTreeSet<i32> = seen.iter().map(|(id, _)| *id).collect();
                    for key in keys.telling(*table, *predicate).filter(|key| !given.contains(&key.id)) {
                        absences.missed.insert(key, true);
                        absences.told(key, &mut operations);
                    }
                }
            }
            Event::Put { key, row } => {
                absences.forget(*key);
                let version = *row.versions.last().expect("its own");
                if !undone.contains_key(&version) {
                    operations.append(*key, version);
                }
            }
            Event::Removed { key, versions } => {
                absences.forget(*key);
                let version = *versions.last().expect("its own");
                if !undone.contains_key(&version) {
                    operations.append(*key, version);
                }
            }
            // Rolled-back writes left no trace: absences before may be of rows that the attempt had removed.
            Event::RolledBack => absences = Absences::default(),
            Event::Claimed { .. } | Event::Savepoint | Event::Released | Event::Wrong(_) => {}
        }
    }
    operations
}

impl Lines {
    fn push(&mut self, kind: &str, began: u64, ended: u64, operations: &Operations) {
        let process = self.processes;
        self.processes += 1;
        let mut line = |time: u64, kind: &str, operations: &[String]| {
            let value = operations.join(",");
            let line = format!("{{\"type\":\"{kind}\",\"process\":{process},\"value\":[{value}]}}");
            self.lines.push((time, line));
        };
        line(began, "invoke", &operations.asked);
        line(ended, kind, if kind == "ok" { &operations.answered } else { &operations.asked });
    }

    /// `spared`: whether what the attempt did has to stay for good.
    fn attempt(&mut self, attempt: &Attempt, keys: &Keys, spared: bool) {
        let undone = taken_back(&attempt.events);
        let operations = operations(attempt, &undone, keys);
        let (began, ended) = (attempt.began, attempt.ended.unwrap_or(u64::MAX));
        let kind = match attempt.outcome {
            Outcome::Committed { .. } if spared => "ok",
            Outcome::Committed { .. } | Outcome::Unknown => "info",
            Outcome::Aborted => "fail",
        };
        self.push(kind, began, ended, &operations);
        if !undone.is_empty() {
            let mut failed = Operations::default();
            undone.iter().for_each(|(version, (key, _))| failed.append(*key, *version));
            self.push("fail", began, ended, &failed);
        }
    }

    /// The state before anything else.
    fn state(&mut self, state: &State, keys: &Keys) {
        let mut operations = Operations::default();
        for (key, found) in state.iter().filter(|(key, _)| keys.is_written(**key)) {
            found.versions.iter().for_each(|version| operations.append(*key, *version));
            operations.read(*key, &found.versions);
        }
        self.push("ok", 0, 0, &operations);
    }

    fn verdict(mut self) -> Result<(), String> {
        self.lines.sort_by_key(|(time, _)| *time);
        let mut text = String::new();
        for (_, line) in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        let parsed = adya::History::from_json(&text).map_err(|error| error.to_string())?;
        let options = Opts { models: vec!["strict-serializable".into()], ..Opts::default() };
        let report = adya::check(&parsed, Workload::ListAppend, &options);
        match report.valid {
            Valid::True => Ok(()),
            // It has seen nothing to judge by, or has given up: that is no verdict.
            Valid::Unknown => Err(format!("adya cannot tell: {:?}", report.anomaly_types)),
            Valid::False => {
                let all = report.anomalies.values().flatten().take(3);
                let explained: Vec<&str> = all.map(|anomaly| &anomaly.explanation[..]).collect();
                Err(format!("adya: {:?}\n{}", report.anomaly_types, explained.join("\n")))
            }
        }
    }
}

/// The verdicts of `adya` on each life by itself, and on all lives as one history, in which attempts that the end of a
/// life may have lost have an unknown outcome.
pub fn check(lives: &[Life]) -> Result<(), String> {
    for (nth, life) in lives.iter().enumerate() {
        let (mut lines, keys) = (Lines::default(), Keys::of(std::slice::from_ref(life)));
        lines.state(&life.first, &keys);
        life.attempts.iter().for_each(|attempt| lines.attempt(attempt, &keys, true));
        lines.verdict().map_err(|wrong| format!("life {nth} of {}: {wrong}", lives.len()))?;
    }
    if lives.len() < 2 {
        return Ok(());
    }
    let (mut lines, keys) = (Lines::default(), Keys::of(lives));
    lines.state(&lives[0].first, &keys);
    for life in lives {
        for attempt in &life.attempts {
            lines.attempt(attempt, &keys, life.end.spares(attempt.told));
        }
    }
    lines.verdict().map_err(|wrong| format!("all {} lives: {wrong}", lives.len()))
}
