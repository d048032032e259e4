//! The attempts whose writes are in a history.

use std::collections::BTreeMap;

use super::observed::{Attempt, Outcome, State, Version};
use super::walk::{Look, Walk};

/// All lists of versions that an attempt saw or wrote.
fn lists_seen(walk: &Walk) -> impl Iterator<Item = &Vec<Version>> {
    let looks = walk.looks.iter().filter_map(|look| match look {
        Look::Row { row, .. } => Some(&row.versions),
        Look::Grave { versions, .. } => Some(versions),
        Look::Missed { .. } => None,
    });
    looks.chain(walk.written.iter().map(|written| &written.versions))
}

/// The attempts whose writes count: the committed ones, and those of unknown outcome that a list tells of, or that are
/// `supposed` to.
pub fn counting(attempts: &[Attempt], walks: &[Walk], last: Option<&State>, supposed: &[usize]) -> Vec<bool> {
    let mut unknown: BTreeMap<Version, usize> = BTreeMap::new();
    let mut counts = vec![false; attempts.len()];
    let mut ready = Vec::new();
    for (at, attempt) in attempts.iter().enumerate() {
        match attempt.outcome {
            Outcome::Unknown if supposed.contains(&at) => {
                counts[at] = true;
                ready.push(at);
            }
            Outcome::Unknown => {
                let own = walks[at].written.iter().filter_map(|written| written.versions.last());
                unknown.extend(own.map(|version| (*version, at)));
            }
            Outcome::Committed { .. } => {
                counts[at] = true;
                ready.push(at);
            }
            Outcome::Aborted if attempt.coherent => ready.push(at),
            Outcome::Aborted => {}
        }
    }
    let found = last.into_iter().flat_map(BTreeMap::values).map(|found| &found.versions);
    let mut told: Vec<&Vec<Version>> = found.collect();
    loop {
        while let Some(at) = ready.pop() {
            told.extend(lists_seen(&walks[at]));
        }
        let Some(list) = told.pop() else { return counts };
        for version in list {
            if let Some(&at) = unknown.get(version)
                && !counts[at]
            {
                counts[at] = true;
                ready.push(at);
            }
        }
    }
}
