//! Our own checker: whether the attempts of one life are strictly serializable, and what of them was there after its
//! end.
//!
//! The lists in rows order the versions of each key. Adya's edges follow from that: write-write, write-read and
//! read-write. A read-write edge also goes from an attempt that did not find a row to the write that would have made it
//! found. Further edges are the order of places, where they are known, and the order of time: from each attempt to all
//! that began after its client had its outcome. These go through a chain of points in time, so that their number is
//! linear. The attempts are strictly serializable if the edges have no cycle.
//!
//! An absence has no version. An attempt that missed a key did so in one of the stretches of the key's versions that do
//! not match. Time, the attempt's place, and what else it saw of the key rule stretches out. If several are left
//! nothing is concluded; if none is left the history is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::chain::{Chain, Step};
use super::counting::counting;
use super::keys::Keys;
use super::observed::{Attempt, End, Key, Life, Outcome, State, VERSIONS_EACH};
use super::scans::{By, Predicate};
use super::walk::{Look, Walk, Written, walk};

/// The beginning and the end of a stretch of versions, both included.
type Stretch = (usize, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    WriteWrite,
    WriteRead,
    ReadWrite,
    Place,
    Time,
}

/// One life, analysed.
struct Analysis<'a> {
    attempts: &'a [Attempt],
    end: End,
    walks: Vec<Walk>,
    /// Whether an attempt's writes are in the history.
    counts: Vec<bool>,
    /// Attempts of unknown outcome that do not count so far, by the keys that they may have written.
    unknown: BTreeMap<Key, Vec<usize>>,
    chains: BTreeMap<Key, Chain>,
    /// From, to. The nodes after the attempts are points in time.
    edges: BTreeSet<(usize, usize, Why)>,
    nodes: usize,
    /// Attempts of unknown outcome of which at least one has to count, because nothing else explains an absence.
    missing: Option<Vec<usize>>,
    wrong: Vec<String>,
}

impl<'a> Analysis<'a> {
    fn new(life: &'a Life, supposed: &[usize]) -> Analysis<'a> {
        let attempts = &life.attempts[..];
        let keys = Keys::of(std::slice::from_ref(life));
        let walks: Vec<Walk> = attempts.iter().map(|attempt| walk(attempt, &keys)).collect();
        let counts = counting(attempts, &walks, life.last.as_ref(), supposed);
        let mut unknown: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (at, walk) in walks.iter().enumerate() {
            if attempts[at].outcome == Outcome::Unknown && !counts[at] {
                walk.written.iter().for_each(|one| unknown.entry(one.key).or_default().push(at));
            }
        }
        let nodes = attempts.len();
        let mut this = Analysis {
            attempts,
            end: life.end,
            walks,
            counts,
            unknown,
            chains: BTreeMap::new(),
            edges: BTreeSet::new(),
            nodes,
            missing: None,
            wrong: Vec::new(),
        };
        for (at, attempt) in attempts.iter().enumerate() {
            if this.counts[at] || attempt.coherent {
                let wrong = std::mem::take(&mut this.walks[at].wrong);
                this.wrong.extend(wrong);
            }
        }
        this.chain(&life.first, &keys);
        this
    }

    /// Orders the versions of each key by the lists.
    fn chain(&mut self, first: &State, keys: &Keys) {
        let mut written: BTreeMap<Key, Vec<(usize, &Written)>> = BTreeMap::new();
        for (at, walk) in self.walks.iter().enumerate().filter(|(at, _)| self.counts[*at]) {
            walk.written.iter().for_each(|one| written.entry(one.key).or_default().push((at, one)));
        }
        for key in keys.all() {
            let base = first.get(&key).cloned().unwrap_or_default();
            let mut chain = Chain {
                base: base.versions.len(),
                base_in_grave: base.in_grave,
                order: base.versions,
                steps: vec![Step { values: base.values, writer: None }],
            };
            let mut steps = written.remove(&key).unwrap_or_default();
            steps.sort_by_key(|(_, one)| one.versions.len());
            for (writer, one) in steps {
                let (version, before) = one.versions.split_last().expect("a write has a version");
                if before != chain.order {
                    let unknown = before.iter().find(|version| !chain.order.contains(version));
                    let by = |at: &&Attempt| unknown.is_some_and(|one| one / VERSIONS_EACH == at.number);
                    self.wrong.push(format!(
                        "attempt {} wrote {key:?} over {before:?}, but its versions are {:?}; the other one is of {:?}",
                        self.attempts[writer].number,
                        chain.order,
                        self.attempts.iter().find(by)
                    ));
                    continue;
                }
                chain.order.push(*version);
                chain.steps.push(Step { values: one.values, writer: Some(writer) });
            }
            self.chains.insert(key, chain);
        }
    }

    fn add(&mut self, from: Option<usize>, to: Option<usize>, why: Why) {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            self.edges.insert((from, to, why));
        }
    }

    fn wrote(&self, at: usize) -> bool {
        !self.walks[at].written.is_empty()
    }

    fn place(&self, at: usize) -> Option<u64> {
        match self.attempts[at].outcome {
            Outcome::Committed { place } => place,
            _ => None,
        }
    }

    /// An attempt saw the state after the first step, which the second one ends.
    fn saw(&mut self, reader: usize, key: Key, seen: usize, stale: Option<usize>) {
        let chain = &self.chains[&key];
        let (made_by, stale_by) = (chain.steps[seen].writer, stale.and_then(|at| chain.steps[at].writer));
        self.add(made_by, Some(reader), Why::WriteRead);
        self.add(Some(reader), stale_by, Why::ReadWrite);
        if let (Some(read), Some(made)) = (self.place(reader), made_by.and_then(|by| self.place(by)))
            && read < made
        {
            self.wrong.push(format!(
                "attempt {} has place {read}, but saw {key:?} of place {made}",
                self.attempts[reader].number
            ));
        }
    }

    /// Whether the reader may have been there while the key was in this stretch.
    fn may_be_in(&self, reader: usize, chain: &Chain, (begin, end): Stretch) -> bool {
        let is_before = |one: usize, other: usize| {
            let in_time = self.attempts[one].ended.is_some_and(|ended| ended < self.attempts[other].began);
            let places = match (self.place(one), self.place(other)) {
                (Some(before), Some(after)) if self.wrote(one) && self.wrote(other) => before < after,
                _ => false,
            };
            in_time || places
        };
        let begun_by = chain.steps[begin].writer.filter(|by| *by != reader);
        let ended_by = chain.steps.get(end + 1).and_then(|step| step.writer).filter(|by| *by != reader);
        !begun_by.is_some_and(|by| is_before(reader, by)) && !ended_by.is_some_and(|by| is_before(by, reader))
    }

    /// What an attempt saw exactly, and the edges that follow.
    fn look(&mut self, reader: usize) {
        let looks = std::mem::take(&mut self.walks[reader].looks);
        let number = self.attempts[reader].number;
        let (mut rows, mut graves) = (BTreeMap::new(), BTreeMap::new());
        for look in &looks {
            match look {
                Look::Row { key, row } => {
                    let chain = &self.chains[key];
                    match chain.at(&row.versions) {
                        Some(at) if chain.steps[at].values == Some(row.values) => {
                            rows.insert(*key, at);
                            let stale = (at + 1 < chain.steps.len()).then_some(at + 1);
                            self.saw(reader, *key, at, stale);
                        }
                        _ => self.wrong.push(format!(
                            "attempt {number} saw {row:?} of {key:?}, which no attempt committed; its versions are {:?}",
                            chain.order
                        )),
                    }
                }
                Look::Grave { key, versions } => {
                    let chain = &self.chains[key];
                    match chain.grave_at(versions) {
                        Ok(removal) => {
                            let at = removal.unwrap_or(0);
                            graves.insert(*key, at);
                            let stale = chain.removal_after(at);
                            match removal {
                                Some(at) => self.saw(reader, *key, at, stale),
                                None => {
                                    let by = stale.and_then(|at| chain.steps[at].writer);
                                    self.add(Some(reader), by, Why::ReadWrite);
                                }
                            }
                        }
                        Err(()) => self.wrong.push(format!(
                            "attempt {number} saw {versions:?} in the grave of {key:?}, which no attempt committed; the \
                             key's versions are {:?}",
                            chain.order
                        )),
                    }
                }
                Look::Missed { .. } => {}
            }
        }
        for look in &looks {
            if let Look::Missed { key, predicate } = look {
                self.miss(reader, *key, *predicate, rows.get(key).copied(), graves.get(key).copied());
            }
        }
        self.walks[reader].looks = looks;
    }

    /// Attempts of unknown outcome, none of which counts so far, that may have left this key so that it does not match.
    fn unknown_misses(&self, key: Key, predicate: Predicate) -> Vec<usize> {
        let leaves_none = |at: &usize| {
            let mut written = self.walks[*at].written.iter();
            written.any(|one| one.key == key && !predicate.matches(key.id, one.values))
        };
        let mut unknown = self.unknown.get(&key).cloned().unwrap_or_default();
        unknown.dedup();
        unknown.retain(leaves_none);
        unknown
    }

    fn miss(
        &mut self,
        reader: usize,
        key: Key,
        predicate: Predicate,
        row_at: Option<usize>,
        grave_at: Option<usize>,
    ) {
        let chain = &self.chains[&key];
        let matches = |at: &usize| predicate.matches(key.id, chain.steps[*at].values);
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut at = 0;
        while at < chain.steps.len() {
            if matches(&at) {
                at += 1;
                continue;
            }
            let end = (at..chain.steps.len()).find(matches).unwrap_or(chain.steps.len()) - 1;
            stretches.push((at, end));
            at = end + 1;
        }
        stretches.retain(|&(begin, end)| {
            let has_row = row_at.is_none_or(|at| (begin..=end).contains(&at));
            let has_grave = match (predicate.by, grave_at) {
                (By::Id, Some(at)) => (begin..=end).contains(&at),
                _ => true,
            };
            has_row && has_grave && self.may_be_in(reader, chain, (begin, end))
        });
        // An attempt that was lost with the end of the life may depend on others that were lost with it, and of which
        // nothing tells.
        let is_lost = !self.end.spares(self.attempts[reader].told);
        match stretches[..] {
            [_] if is_lost && !self.unknown_misses(key, predicate).is_empty() => {}
            [(begin, end)] => {
                let stale = (end + 1 < chain.steps.len()).then_some(end + 1);
                self.saw(reader, key, begin, stale);
            }
            [] => match self.unknown_misses(key, predicate) {
                others if others.is_empty() => self.wrong.push(format!(
                    "attempt {} did not find {key:?} by {predicate:?}, but there was never a time for that",
                    self.attempts[reader].number
                )),
                others => self.missing = Some(others),
            },
            _ => {}
        }
    }

    fn connect(&mut self) {
        let follow: Vec<_> = self
            .chains
            .values()
            .flat_map(|chain| chain.steps.windows(2).map(|pair| (pair[0].writer, pair[1].writer)))
            .collect();
        follow.into_iter().for_each(|(from, to)| self.add(from, to, Why::WriteWrite));
        for at in 0..self.attempts.len() {
            // An attempt that aborted held its reads until then.
            if self.counts[at] || self.attempts[at].outcome == Outcome::Aborted && self.attempts[at].coherent
            {
                self.look(at);
            }
        }
        self.connect_places();
        self.connect_times();
    }

    fn connect_places(&mut self) {
        let placed = |at: usize| self.place(at).filter(|_| self.wrote(at)).map(|place| (place, at));
        let mut placed: Vec<(u64, usize)> = (0..self.attempts.len()).filter_map(placed).collect();
        placed.sort_unstable();
        for pair in placed.windows(2) {
            if pair[0].0 == pair[1].0 {
                self.wrong.push(format!("two attempts have place {}", pair[0].0));
            }
            self.add(Some(pair[0].1), Some(pair[1].1), Why::Place);
        }
    }

    fn connect_times(&mut self) {
        let is_over = |at: &usize| self.counts[*at] || self.attempts[*at].outcome == Outcome::Aborted;
        let ended = |at: usize| self.attempts[at].ended.map(|ended| (ended, at));
        let mut ends: Vec<(u64, usize)> =
            (0..self.attempts.len()).filter(is_over).filter_map(ended).collect();
        ends.sort_unstable();
        let first = self.attempts.len();
        self.nodes = first + ends.len();
        for (nth, &(_, at)) in ends.iter().enumerate() {
            self.edges.insert((at, first + nth, Why::Time));
            if nth > 0 {
                self.edges.insert((first + nth - 1, first + nth, Why::Time));
            }
        }
        for (at, attempt) in self.attempts.iter().enumerate() {
            let before = ends.partition_point(|(ended, _)| *ended < attempt.began);
            if before > 0 {
                self.edges.insert((first + before - 1, at, Why::Time));
            }
        }
    }

    /// A cycle, if there is one: attempts that cannot be ordered.
    fn cycle(&self) -> Option<String> {
        let (mut before, mut after) = (vec![Vec::new(); self.nodes], vec![Vec::new(); self.nodes]);
        for &(from, to, why) in &self.edges {
            after[from].push(to);
            before[to].push((from, why));
        }
        let mut waits: Vec<usize> = before.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..self.nodes).filter(|node| waits[*node] == 0).collect();
        while let Some(node) = ready.pop() {
            for &to in &after[node] {
                waits[to] -= 1;
                if waits[to] == 0 {
                    ready.push(to);
                }
            }
        }
        let mut node = (0..self.nodes).find(|node| waits[*node] > 0)?;
        let mut path: Vec<(usize, Why)> = Vec::new();
        while !path.iter().any(|(at, _)| *at == node) {
            let &(from, why) =
                before[node].iter().find(|(from, _)| waits[*from] > 0).expect("it waits for one");
            path.push((node, why));
            node = from;
        }
        let start = path.iter().position(|(at, _)| *at == node).expect("where it closed");
        let mut text = String::from("a cycle, from the last to the first:");
        for (at, why) in &path[start..] {
            match self.attempts.get(*at) {
                Some(attempt) => {
                    let _ = write!(text, "\n  {why:?} -> {attempt:?}");
                }
                None => text.push_str("\n  Time -> a point in time"),
            }
        }
        Some(text)
    }

    /// What was there after the end is the result of some of the attempts, each of them whole, with all that were
    /// before them in any order, and with all that an answer had told.
    fn check_end(&self, life: &Life, last: &State) -> Result<(), String> {
        let mut upto: BTreeMap<Key, usize> = BTreeMap::new();
        for (key, chain) in &self.chains {
            let found = last.get(key).cloned().unwrap_or_default();
            let at = chain.at(&found.versions).filter(|&at| chain.steps[at].values == found.values);
            let Some(at) = at else {
                return Err(format!(
                    "after {:?} {key:?} is {found:?}, which no attempt committed; its versions were {:?}",
                    life.end, chain.order
                ));
            };
            let removal = (1..=at).rfind(|&at| chain.steps[at].values.is_none());
            let in_grave = removal.map_or(chain.base_in_grave, |at| chain.base + at);
            if found.in_grave != in_grave {
                return Err(format!(
                    "after {:?} the grave of {key:?} has {} versions, but the row those behind {in_grave}",
                    life.end, found.in_grave
                ));
            }
            upto.insert(*key, at);
        }
        let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
        for (key, chain) in &self.chains {
            for (at, step) in chain.steps.iter().enumerate() {
                let side = if at <= upto[key] { &mut inside } else { &mut outside };
                side.extend(step.writer);
            }
        }
        let about = |at: usize| format!("after {:?}: {:?}", life.end, self.attempts[at]);
        if let Some(&half) = inside.intersection(&outside).next() {
            return Err(format!("half of an attempt is there {}", about(half)));
        }
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        for (at, attempt) in self.attempts.iter().enumerate() {
            let is_told = match attempt.outcome {
                Outcome::Committed { .. } => life.end.spares(attempt.told),
                Outcome::Aborted => {
                    attempt.told.is_some() && attempt.coherent && life.end.spares(attempt.told)
                }
                Outcome::Unknown => false,
            };
            if is_told && outside.contains(&at) {
                return Err(format!("an answer told of an attempt that is lost {}", about(at)));
            }
            if is_told || inside.contains(&at) {
                needed.insert(at);
            }
        }
        // What an attempt has seen that is there, or that an answer told, is there as well, and so is everything that
        // came before one that is there: the log is lost from its end.
        for &(from, to, why) in &self.edges {
            if needed.contains(&to) && why == Why::WriteRead && outside.contains(&from) {
                return Err(format!(
                    "what an attempt saw is lost, and yet it is there or was answered {}\n it saw {}",
                    about(to),
                    about(from)
                ));
            }
        }
        let mut before = vec![Vec::new(); self.nodes];
        for &(from, to, _) in &self.edges {
            before[to].push(from);
        }
        let (mut ready, mut reached): (Vec<usize>, BTreeSet<usize>) =
            (inside.iter().copied().collect(), BTreeSet::new());
        while let Some(at) = ready.pop() {
            if reached.insert(at) {
                if outside.contains(&at) {
                    return Err(format!(
                        "an attempt is lost, and one that came after it is there {}",
                        about(at)
                    ));
                }
                ready.extend(&before[at]);
            }
        }
        Ok(())
    }
}

/// The error of one life, if these attempts of unknown outcome count.
fn check_supposing(life: &Life, supposed: &[usize]) -> Result<(), String> {
    let mut analysis = Analysis::new(life, supposed);
    analysis.connect();
    if let Some(wrong) = analysis.wrong.first() {
        return Err(wrong.clone());
    }
    if let Some(missing) = analysis.missing {
        let mut verdict = Err(String::new());
        for one in missing {
            verdict = check_supposing(life, &[supposed, &[one]].concat());
            if verdict.is_ok() {
                break;
            }
        }
        return verdict;
    }
    if let Some(cycle) = analysis.cycle() {
        return Err(cycle);
    }
    life.last.as_ref().map_or(Ok(()), |last| analysis.check_end(life, last))
}

/// The error of one life.
pub fn check_life(life: &Life) -> Result<(), String> {
    check_supposing(life, &[])
}

/// The error of a history, if there is one.
pub fn check(lives: &[Life]) -> Result<(), String> {
    lives.iter().enumerate().try_for_each(|(nth, life)| {
        check_life(life).map_err(|wrong| format!("life {nth} of {}: {wrong}", lives.len()))
    })
}
