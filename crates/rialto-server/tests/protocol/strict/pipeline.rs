//! Transactions whose statements are known before they run, so that several of them are sent before any answer is read.

use std::collections::BTreeMap;

use rialto::Durability;
use rialto::io::Random;

use super::line::{Line, Refused, WAYS, Way, refusal};
use super::observed::{
    Attempt, Clock, Event, Key, Life, Outcome, Row, TABLES, VERSIONS_EACH, Values, Version,
};
use super::scans::RangeScan;
use super::space::Space;
use super::statements::{Statement, completion, count, graves_of, rows_of};
use crate::common::{Message, query, state, sync};

/// Stands for the unknown earlier versions of a row, in a write without an answer. No write has this number.
const UNTOLD: Version = 0;

/// One statement of a transaction.
#[derive(Debug, Clone)]
enum Step {
    /// BEGIN, SET LOCAL, COMMIT.
    Control(String),
    Look(Key, bool),
    Scan(RangeScan),
    Graves(usize, i32, i32),
    /// A change of a row that the client has not read.
    Append(Key, Values, Version),
    /// Writes to keys whose rows, or graves, the transaction has read and locked.
    Insert(Key, Row),
    Update(Key, Row),
    Delete(Key),
    Bury(Key, Vec<Version>),
}

impl Step {
    fn statement(&self) -> Statement {
        match self {
            Step::Control(sql) => Statement::plain(sql),
            Step::Look(key, to_change) => Statement::get(*key, *to_change),
            Step::Scan(scan) => Statement::scan(scan),
            Step::Graves(table, low, high) => Statement::graves(*table, *low, *high),
            Step::Append(key, values, version) => Statement::append(*key, *values, *version),
            Step::Insert(key, row) => Statement::insert(*key, row),
            Step::Update(key, row) => Statement::update(*key, row),
            Step::Delete(key) => Statement::delete(*key),
            Step::Bury(key, versions) => Statement::bury(*key, versions),
        }
    }

    fn writes(&self) -> bool {
        !matches!(self, Step::Control(_) | Step::Look(..) | Step::Scan(..) | Step::Graves(..))
    }

    /// Notes what the answer tells.
    fn tell(&self, answer: &[Message], events: &mut Vec<Event>) {
        let expects_one =
            matches!(self, Step::Insert(..) | Step::Update(..) | Step::Delete(_) | Step::Bury(..));
        if expects_one && count(answer) != 1 {
            events.push(Event::Wrong(format!("{self:?} of what is locked: {}", completion(answer))));
        }
        match self {
            Step::Look(key, _) => {
                let seen = rows_of(answer).pop().map(|(_, row)| row);
                events.push(Event::Read { key: *key, seen });
            }
            Step::Scan(scan) => {
                let seen = rows_of(answer);
                events.extend(scan.refuses(&seen).map(Event::Wrong));
                events.push(Event::Scan { table: scan.table, predicate: scan.promises(&seen), seen });
            }
            Step::Graves(table, ..) => {
                let grave = |(id, versions)| Event::Grave { key: Key { table: *table, id }, versions };
                events.extend(graves_of(answer).into_iter().map(grave));
            }
            Step::Append(key, values, version) => match rows_of(answer).pop() {
                None => events.push(Event::Read { key: *key, seen: None }),
                Some((_, row)) => {
                    if row.values != *values || row.versions.last() != Some(version) {
                        events.push(Event::Wrong(format!("{self:?} gave {row:?}")));
                    }
                    put(*key, row, events);
                }
            },
            Step::Insert(key, row) => {
                events.push(Event::Read { key: *key, seen: None });
                put(*key, row.clone(), events);
            }
            Step::Update(key, row) => put(*key, row.clone(), events),
            Step::Control(_) | Step::Delete(_) => {}
            Step::Bury(..) => self.suppose(events),
        }
    }

    /// Notes what the step may have done. Its answer was lost.
    fn suppose(&self, events: &mut Vec<Event>) {
        match self {
            Step::Append(key, values, version) => {
                let row = Row { values: *values, versions: vec![UNTOLD, *version] };
                events.push(Event::Put { key: *key, row });
            }
            Step::Insert(key, row) | Step::Update(key, row) => {
                events.push(Event::Put { key: *key, row: row.clone() });
            }
            Step::Bury(key, versions) => {
                events.push(Event::Removed { key: *key, versions: versions.clone() });
            }
            Step::Control(_) | Step::Look(..) | Step::Scan(..) | Step::Graves(..) | Step::Delete(_) => {}
        }
    }
}

/// A row whose completion has arrived.
fn put(key: Key, row: Row, events: &mut Vec<Event>) {
    if let Some(tag) = row.values.tag.filter(|_| key.table == 0) {
        events.push(Event::Claimed { key, tag });
    }
    events.push(Event::Put { key, row });
}

/// How the statements of a transaction are put into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One query string.
    String,
    /// A query each.
    Queries,
    /// A pipeline with one Sync.
    OneSync,
    /// A Sync behind each statement.
    Syncs,
}

/// A transaction that is ready to be sent.
pub struct Planned {
    pub attempt: Attempt,
    level: Durability,
    form: Form,
    steps: Vec<Step>,
    /// Whether it ends in a COMMIT. Otherwise the end of its query string, or its Sync, commits it.
    is_block: bool,
    /// The number of ReadyForQuery messages for it.
    answers: usize,
}

/// Draws versions, keys and values for one attempt.
struct Draw<'a> {
    random: &'a mut Random,
    space: Space,
    next: Version,
}

impl Draw<'_> {
    fn version(&mut self) -> Version {
        self.next += 1;
        self.next - 1
    }

    fn key(&mut self) -> Key {
        self.space.key(self.random)
    }

    fn values(&mut self) -> Values {
        self.space.values(self.random, (1, 3))
    }

    fn step(&mut self, reads: bool) -> Step {
        let table = self.random.below(TABLES as u64) as usize;
        match self.random.below(6) {
            0 => Step::Look(self.key(), !reads && self.random.chance(1, 3)),
            1..4 => Step::Scan(RangeScan::any(self.space, self.random)),
            4 => {
                let low = self.space.id(self.random);
                Step::Graves(table, low, low + self.random.below(6) as i32)
            }
            _ => Step::Look(self.key(), false),
        }
    }

    fn append(&mut self) -> Step {
        Step::Append(self.key(), self.values(), self.version())
    }
}

impl Planned {
    /// A random transaction, whole.
    pub fn any(clock: &Clock, space: Space, random: &mut Random, level: Durability) -> Planned {
        let attempt = Attempt::aborted(clock.attempt(), clock.now());
        let (reads, is_block) = (random.chance(1, 4), random.chance(1, 2));
        let form = match random.below(4) {
            0 => Form::String,
            1 | 2 if !is_block => Form::OneSync,
            1 => Form::Queries,
            2 => Form::Syncs,
            _ => Form::OneSync,
        };
        let mut draw = Draw { random, space, next: attempt.number * VERSIONS_EACH };
        let mut steps: Vec<Step> = (0..draw.random.below(4)).map(|_| draw.step(reads)).collect();
        if !reads || steps.is_empty() {
            // At most one: of several without answers, some might have found no row.
            let at = draw.random.below(steps.len() as u64 + 1) as usize;
            let step = if reads { draw.step(reads) } else { draw.append() };
            steps.insert(at, step);
        }
        let mut level = level;
        if is_block {
            if random.chance(1, 3) {
                let (name, chosen) = any_level(random);
                steps.insert(0, Step::Control(format!("set local rialto.durability = '{name}'")));
                level = chosen;
            }
            steps.insert(0, Step::Control(if reads { "begin read only" } else { "begin" }.to_owned()));
        }
        Planned::of(attempt, level, form, steps, is_block)
    }

    /// The rest of a block that has read and locked these keys: the row, or the list in the grave.
    pub fn rest(
        attempt: Attempt,
        level: Durability,
        space: Space,
        random: &mut Random,
        locked: &[(Key, Result<Row, Vec<Version>>)],
    ) -> Planned {
        let form = [Form::String, Form::Queries, Form::OneSync, Form::Syncs][random.below(4) as usize];
        let mut draw = Draw { random, space, next: attempt.number * VERSIONS_EACH };
        let mut steps = Vec::new();
        for (key, found) in locked {
            let before = found.as_ref().map_or_else(Vec::clone, |row| row.versions.clone());
            let versions = [before, vec![draw.version()]].concat();
            match found {
                Ok(_) if draw.random.chance(1, 3) => {
                    steps.extend([Step::Delete(*key), Step::Bury(*key, versions)]);
                }
                Ok(_) => steps.push(Step::Update(*key, Row { values: draw.values(), versions })),
                Err(_) => steps.push(Step::Insert(*key, Row { values: draw.values(), versions })),
            }
        }
        Planned::of(attempt, level, form, steps, true)
    }

    fn of(
        mut attempt: Attempt,
        level: Durability,
        form: Form,
        mut steps: Vec<Step>,
        is_block: bool,
    ) -> Planned {
        // A transaction that only reads may be told at its end that its reads are not valid.
        attempt.coherent = steps.iter().any(Step::writes);
        if is_block {
            steps.push(Step::Control("commit".to_owned()));
        }
        let answers = match form {
            Form::String | Form::OneSync => 1,
            Form::Queries | Form::Syncs => steps.len(),
        };
        Planned { attempt, level, form, steps, is_block, answers }
    }

    /// Its messages.
    pub fn encode(&self, line: &mut Line, random: &mut Random) -> Vec<u8> {
        let statements = self.steps.iter().map(Step::statement);
        if self.form == Form::String {
            let texts: Vec<String> = statements.map(|statement| statement.text()).collect();
            return query(&texts.join("; "));
        }
        let mut messages = Vec::new();
        for statement in statements {
            let way = match self.form {
                Form::Queries => Way::Simple,
                _ => WAYS[1 + random.below(2) as usize],
            };
            messages.extend(line.encode(way, &statement));
            if self.form == Form::Syncs {
                messages.extend(sync());
            }
        }
        if self.form == Form::OneSync {
            messages.extend(sync());
        }
        messages
    }

    /// How many of its `bytes` the server has to receive to commit it. The Sync behind a COMMIT is not needed.
    pub fn commits_at(&self, bytes: usize) -> usize {
        let syncs = matches!(self.form, Form::OneSync | Form::Syncs);
        if self.is_block && syncs { bytes - sync().len() } else { bytes }
    }

    /// Reads its answer and notes what that tells. `before` is the state of the session before it. Gives the state
    /// after it, or none if the connection is unusable.
    pub fn hear(&mut self, line: &mut Line, before: char, clock: &Clock, about: &str) -> Option<char> {
        let mut heard = Vec::new();
        let is_whole = (0..self.answers).all(|_| {
            heard.extend(line.client.answer());
            heard.last().is_some_and(|(tag, _)| *tag == b'Z')
        });
        let refused = if is_whole { refusal(&heard) } else { Some(Refused::Gone) };
        let is_over = refused.as_ref().is_some_and(Refused::is_end) || !is_whole;
        let mut told = heard.split(|(tag, _)| *tag == b'E').next().into_iter().flat_map(|heard| {
            heard
                .split_inclusive(|(tag, _)| *tag == b'C')
                .filter(|part| part.iter().any(|(tag, _)| *tag == b'C'))
        });
        let mut last = None;
        let begins = before == 'I' && self.is_block;
        if begins && self.answers > 1 && heard.first().is_some_and(|(tag, _)| *tag == b'E') && !is_over {
            return self.hear_without_block(&heard, clock, about);
        }
        for step in &self.steps {
            match told.next() {
                Some(answer) => {
                    step.tell(answer, &mut self.attempt.events);
                    last = Some(answer);
                }
                None if is_over => step.suppose(&mut self.attempt.events),
                None => {}
            }
        }
        if is_over {
            self.attempt.outcome = Outcome::Unknown;
            return None;
        }
        let now = state(&heard);
        self.attempt.ended = Some(clock.now());
        self.attempt.told = Some(self.level);
        match &refused {
            Some(refused) if before == 'E' && refused.is("25P02") => {}
            Some(refused) if before == 'E' => assert!(refused.is("57014"), "{about}: {refused:?}"),
            Some(refused) if refused.is("23505") => {}
            Some(refused) => refused.check(false, about),
            None => {
                let said = completion(last.expect("it has statements"));
                let is_committed = now == 'I' && (!self.is_block || said == "COMMIT");
                assert!(
                    is_committed && before != 'E',
                    "{about}: {said}, {now} behind {before}: {:?}",
                    self.steps
                );
                self.attempt.outcome = Outcome::Committed { place: None };
            }
        }
        Some(now)
    }

    /// As [`Planned::hear`] where BEGIN was refused, and each later statement was a transaction of its own: only its
    /// writes count.
    fn hear_without_block(&mut self, heard: &[Message], clock: &Clock, about: &str) -> Option<char> {
        let answers = heard.split_inclusive(|(tag, _)| *tag == b'Z');
        for (step, answer) in self.steps.iter().zip(answers) {
            match refusal(answer) {
                // The BEGIN was cancelled.
                Some(refused) if refused.is("23505") => {}
                Some(refused) => refused.check(false, about),
                None if step.writes() => {
                    step.tell(answer, &mut self.attempt.events);
                    self.attempt.outcome = Outcome::Committed { place: None };
                }
                None => {}
            }
        }
        self.attempt.ended = Some(clock.now());
        Some(state(heard))
    }

    /// The client has disconnected after its messages, or before their end.
    pub fn lose(&mut self, was_sent: bool) {
        if was_sent {
            self.steps.iter().for_each(|step| step.suppose(&mut self.attempt.events));
            self.attempt.outcome = Outcome::Unknown;
        }
    }
}

/// A level, and its name.
pub fn any_level(random: &mut Random) -> (&'static str, Durability) {
    if random.chance(1, 2) { ("memory", Durability::Memory) } else { ("disk", Durability::Disk) }
}

/// Completes the lists of writes without an answer from lists that were read later. A write that is in none of these
/// came last, if at all.
pub fn place_untold(life: &mut Life) {
    let mut lists: BTreeMap<Key, Vec<Vec<Version>>> = BTreeMap::new();
    for event in life.attempts.iter().flat_map(|attempt| &attempt.events) {
        if let Event::Put { key, row } = event
            && row.versions.first() == Some(&UNTOLD)
        {
            lists.insert(*key, Vec::new());
        }
    }
    let mut seen = |key: Key, versions: &[Version]| {
        if let Some(lists) = lists.get_mut(&key).filter(|_| versions.first() != Some(&UNTOLD)) {
            lists.push(versions.to_vec());
        }
    };
    for event in life.attempts.iter().flat_map(|attempt| &attempt.events) {
        match event {
            Event::Read { key, seen: Some(row) } | Event::Put { key, row } => seen(*key, &row.versions),
            Event::Grave { key, versions } | Event::Removed { key, versions } => seen(*key, versions),
            Event::Scan { table, seen: rows, .. } => {
                rows.iter().for_each(|(id, row)| seen(Key { table: *table, id: *id }, &row.versions));
            }
            _ => {}
        }
    }
    for (key, found) in life.first.iter().chain(life.last.iter().flatten()) {
        seen(*key, &found.versions);
    }
    let untold = life.attempts.iter_mut().flat_map(|attempt| &mut attempt.events);
    for event in untold {
        let Event::Put { key, row } = event else { continue };
        let [UNTOLD, version] = row.versions[..] else { continue };
        let lists = lists.get(key).map_or(&[][..], Vec::as_slice);
        let upto =
            |list: &Vec<Version>| list.iter().position(|one| *one == version).map(|at| list[..=at].to_vec());
        row.versions = lists.iter().find_map(upto).unwrap_or_else(|| {
            let longest = lists.iter().max_by_key(|list| list.len()).cloned().unwrap_or_default();
            [longest, vec![version]].concat()
        });
    }
}
