//! Histories, and whether they are serializable.
//!
//! Every version of a row has a number of its own, so a read shows whose write it saw. Versions of a key follow each
//! other in the order of their writers' places in the log. From this follow Adya's edges: write-write, write-read and
//! read-write. A read-write edge also leads from a scan that did not find a row to the write that would have made the
//! scan find it (phantoms). A history is serializable if the edges make no cycle. Rows are a state of a history if some
//! set of its transactions leaves these rows, and the set has, with each transaction, all transactions that come before
//! it by the edges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::interleavings::common::calls::KEYS;

/// The predicate of a scan.
#[derive(Debug, Clone, Copy)]
pub enum Predicate {
    /// Keys from the first to the second, both included.
    Keys(i32, i32),
    /// Rows of this group, by the secondary index.
    Group(i32),
}

impl Predicate {
    fn matches(self, key: i32, group: Option<i32>) -> bool {
        match self {
            Predicate::Keys(low, high) => group.is_some() && (low..=high).contains(&key),
            Predicate::Group(wanted) => group == Some(wanted),
        }
    }

    fn concerns(self, key: i32) -> bool {
        match self {
            Predicate::Keys(low, high) => (low..=high).contains(&key),
            Predicate::Group(_) => true,
        }
    }
}

/// What a transaction saw or did. A version of `None` means no row.
#[derive(Debug, Clone)]
pub enum Event {
    Read {
        key: i32,
        seen: Option<u64>,
    },
    Scan {
        predicate: Predicate,
        seen: Vec<(i32, u64)>,
    },
    /// Leaves `version` of the row in `group`, or no row, over the previous version.
    Write {
        key: i32,
        over: Option<u64>,
        version: u64,
        group: Option<i32>,
    },
}

/// A committed transaction. A transaction writes a key at most once.
#[derive(Debug, Clone)]
pub struct Done {
    /// Its place in the log; for a transaction that only read, the last place that it depends on.
    pub place: u64,
    pub events: Vec<Event>,
}

impl Done {
    fn order(&self) -> (u64, bool) {
        (self.place, !self.writes())
    }

    pub fn writes(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Write { .. }))
    }
}

struct Version {
    id: u64,
    group: Option<i32>,
    writer: usize,
}

/// A read of a key: the writer of the version seen, and the writer that made it stale.
struct Look {
    made_by: Option<usize>,
    stale_by: Option<usize>,
}

struct Analysis<'h> {
    history: &'h [Done],
    versions: BTreeMap<i32, Vec<Version>>,
    /// From, to, why.
    edges: BTreeSet<(usize, usize, &'static str)>,
    wrong: Vec<String>,
}

impl Analysis<'_> {
    fn of_key(&self, key: i32) -> &[Version] {
        self.versions.get(&key).map_or(&[], Vec::as_slice)
    }

    fn version(&self, key: i32, id: u64, group: i32) -> Result<&Version, String> {
        let mut versions = self.of_key(key).iter();
        versions
            .find(|version| version.id == id && version.group == Some(group))
            .ok_or_else(|| format!("version {id} of key {key} in group {group} was never committed"))
    }

    fn look(&mut self, reader: usize, key: i32, seen: Option<u64>, predicate: Predicate) -> Option<Look> {
        let versions = self.of_key(key);
        let upto = match seen {
            Some(id) => match versions.iter().position(|version| version.id == id && version.group.is_some())
            {
                Some(position) => position + 1,
                None => {
                    self.wrong.push(format!(
                        "transaction {reader} saw version {id} of key {key}, which no transaction committed"
                    ));
                    return None;
                }
            },
            // An absent row has no number: it is the last version at the reader's place that did not match.
            None => {
                let before = |version: &Version| {
                    version.writer != reader
                        && self.history[version.writer].order() < self.history[reader].order()
                        && !predicate.matches(key, version.group)
                };
                versions.iter().rposition(before).map_or(0, |position| position + 1)
            }
        };
        let matches = |version: &Version| predicate.matches(key, version.group);
        let later = versions[upto..].iter().find(|version| seen.is_some() || matches(version));
        // An absence was ended by the first later version that would have matched; versions in between are nothing to
        // the reader.
        let made = match seen {
            Some(_) => Some(&versions[upto - 1]),
            None => versions[..upto].iter().rposition(matches).map(|last| &versions[last + 1]),
        };
        let by = |version: &Version| version.writer;
        Some(Look { made_by: made.map(by), stale_by: later.map(by) })
    }

    /// The reads of a transaction before it wrote the key itself, in order.
    fn looks(&mut self, reader: usize) -> Vec<Look> {
        let mut own = BTreeMap::new();
        let mut looks = Vec::new();
        for event in &self.history[reader].events {
            let mut ask =
                |this: &mut Self, key: i32, seen: Option<u64>, predicate: Predicate| match own.get(&key) {
                    None => looks.extend(this.look(reader, key, seen, predicate)),
                    Some(&(version, group)) => {
                        let expected = predicate.matches(key, group).then_some(version);
                        if seen != expected {
                            this.wrong.push(format!(
                                "transaction {reader} saw {seen:?} of key {key} after its own {expected:?}"
                            ));
                        }
                    }
                };
            match *event {
                Event::Read { key, seen } => ask(self, key, seen, Predicate::Keys(key, key)),
                Event::Scan { predicate, ref seen } => {
                    for key in (0..KEYS).filter(|key| predicate.concerns(*key)) {
                        let mut found = seen.iter().filter(|(at, _)| *at == key).map(|(_, version)| *version);
                        ask(self, key, found.next(), predicate);
                        if found.next().is_some() {
                            self.wrong.push(format!("transaction {reader} met key {key} twice in one scan"));
                        }
                    }
                }
                Event::Write { key, over, version, group } => {
                    ask(self, key, over, Predicate::Keys(key, key));
                    own.insert(key, (version, group));
                }
            }
        }
        looks
    }

    fn add(&mut self, from: usize, to: usize, why: &'static str) {
        if from != to {
            self.edges.insert((from, to, why));
        }
    }

    fn connect(&mut self) {
        let mut follow = Vec::new();
        for versions in self.versions.values() {
            follow.extend(versions.windows(2).map(|pair| (pair[0].writer, pair[1].writer)));
        }
        for (from, to) in follow {
            self.add(from, to, "ww");
        }
        for reader in 0..self.history.len() {
            for look in self.looks(reader) {
                if let Some(writer) = look.made_by {
                    self.add(writer, reader, "wr");
                }
                if let Some(writer) = look.stale_by {
                    self.add(reader, writer, "rw");
                }
            }
        }
    }

    /// A cycle, if there is one: what cannot be put into an order leads back to itself.
    fn cycle(&self) -> Option<String> {
        let count = self.history.len();
        let (mut before, mut after) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for &(from, to, why) in &self.edges {
            after[from].push(to);
            before[to].push((from, why));
        }
        let mut waits: Vec<usize> = before.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..count).filter(|node| waits[*node] == 0).collect();
        while let Some(node) = ready.pop() {
            for &to in &after[node] {
                waits[to] -= 1;
                if waits[to] == 0 {
                    ready.push(to);
                }
            }
        }
        let mut node = (0..count).find(|node| waits[*node] > 0)?;
        let mut path: Vec<(usize, &str)> = Vec::new();
        while !path.iter().any(|(at, _)| *at == node) {
            let &(from, why) =
                before[node].iter().find(|(from, _)| waits[*from] > 0).expect("it waits for one");
            path.push((node, why));
            node = from;
        }
        let start = path.iter().position(|(at, _)| *at == node).expect("where it closed");
        let mut text = String::from("a cycle, from the last to the first:");
        for (at, why) in &path[start..] {
            let _ = write!(text, "\n  {why} -> transaction {at} {:?}", self.history[*at]);
        }
        Some(text)
    }
}

fn analyse(history: &[Done]) -> Analysis<'_> {
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|at| history[*at].order());
    let mut versions: BTreeMap<i32, Vec<Version>> = BTreeMap::new();
    for writer in order {
        for event in &history[writer].events {
            if let Event::Write { key, version, group, .. } = *event {
                versions.entry(key).or_default().push(Version { id: version, group, writer });
            }
        }
    }
    Analysis { history, versions, edges: BTreeSet::new(), wrong: Vec::new() }
}

/// Returns what is wrong with a history.
pub fn check(history: &[Done]) -> Result<(), String> {
    let mut analysis = analyse(history);
    analysis.connect();
    match analysis.wrong.first() {
        Some(wrong) => Err(wrong.clone()),
        None => analysis.cycle().map_or(Ok(()), Err),
    }
}

/// Rows that were found: the version and the group of each key.
pub type State = BTreeMap<i32, (u64, i32)>;

/// Checks that each row is a version that a transaction committed.
pub fn check_rows(history: &[Done], state: &State) -> Result<(), String> {
    let analysis = analyse(history);
    state.iter().try_for_each(|(&key, &(id, group))| analysis.version(key, id, group).map(drop))
}

/// Checks whether these rows are what some of the transactions leave. Each of these transactions is included wholly or
/// not at all; with each, all that come before it in the order of conflicts are included; and so are those that are
/// `sure` to be. Returns which have to be included at least.
pub fn check_state(
    history: &[Done],
    state: &State,
    sure: impl Fn(&Done) -> bool,
) -> Result<BTreeSet<usize>, String> {
    let mut analysis = analyse(history);
    analysis.connect();
    if let Some(wrong) = analysis.wrong.first() {
        return Err(wrong.clone());
    }
    let mut before = vec![Vec::new(); history.len()];
    for &(from, to, _) in &analysis.edges {
        before[to].push(from);
    }
    let mut inside = BTreeSet::new();
    let mut ready: Vec<usize> = (0..history.len()).filter(|&at| sure(&history[at])).collect();
    for (&key, &(id, group)) in state {
        ready.push(analysis.version(key, id, group)?.writer);
    }
    loop {
        while let Some(at) = ready.pop() {
            if inside.insert(at) {
                ready.extend(&before[at]);
            }
        }
        for (key, versions) in &analysis.versions {
            let last = versions.iter().rposition(|version| inside.contains(&version.writer));
            match (last, state.get(key)) {
                (None, None) => {}
                (Some(last), Some((id, _))) if versions[last].id == *id => {}
                (Some(last), None) if versions[last].group.is_none() => {}
                // A later transaction has removed the row. If there are several, it is the first: with the others this
                // one is included as well.
                (Some(last), None) => match versions[last..].iter().find(|later| later.group.is_none()) {
                    Some(removed) => ready.push(removed.writer),
                    None => {
                        return Err(format!(
                            "key {key} has no row, but {:?} is in, after which no transaction removed it",
                            history[versions[last].writer]
                        ));
                    }
                },
                (last, found) => {
                    return Err(format!(
                        "key {key} has version {found:?}, but {:?} is in",
                        last.map(|last| &history[versions[last].writer])
                    ));
                }
            }
        }
        if ready.is_empty() {
            return Ok(inside);
        }
    }
}

/// The rows after all transactions before a place.
pub fn state_before(history: &[Done], place: u64) -> State {
    let last = |(key, versions): (i32, Vec<Version>)| {
        let last = versions.into_iter().rfind(|version| history[version.writer].place < place)?;
        Some((key, (last.id, last.group?)))
    };
    analyse(history).versions.into_iter().filter_map(last).collect()
}
