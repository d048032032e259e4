//! A client of the server: random transactions in every form, and a record of each attempt.

use std::net::SocketAddr;
use std::time::Instant;

use parking_lot::Mutex;
use rialto::Durability;
use rialto::io::Random;

use super::block::Block;
use super::line::{Line, Refused, WAYS};
use super::observed::{Attempt, Clock, Event, Found, Key, Outcome, Row, State, Version};
use super::pipeline::{Planned, any_level};
use super::scans::By;
use super::script::{Script, Session, Verdict};
use super::space::Space;
use super::statements::completion;
use crate::common::{PATIENCE, query};

/// The kinds of work of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    LookAtAll,
    Truncate,
    /// One range, twice.
    LookTwice,
    /// One statement without a block.
    Glance,
    Random {
        reads: bool,
    },
}

/// What the clients of one life share.
pub struct Site<'a> {
    pub address: SocketAddr,
    pub clock: &'a Clock,
    pub space: Space,
    /// The keys for cancel requests.
    pub cancellable: &'a Mutex<Vec<(u32, u32)>>,
    /// Whether the server may end during the work.
    pub may_end: bool,
    pub about: &'a str,
}

/// A client that one thread uses, and that connects again after it has disconnected.
pub struct Worker<'a> {
    site: &'a Site<'a>,
    random: Random,
    line: Option<Line>,
    pub attempts: Vec<Attempt>,
}

impl<'a> Worker<'a> {
    pub fn new(site: &'a Site<'a>, random: Random) -> Worker<'a> {
        Worker { site, random, line: None, attempts: Vec::new() }
    }

    /// Runs this many random transactions or batches of them, or as many as the server takes. Gives all attempts.
    pub fn work(mut self, transactions: u64) -> Vec<Attempt> {
        for _ in 0..transactions {
            let Some(mut line) = self.line() else { break };
            if self.may_choose_level(&mut line).is_err() {
                continue;
            }
            match self.random.below(40) {
                // A wide table has too many rows for the versions of one attempt.
                0 if !self.site.space.is_wide() => self.attempt(line, Work::Truncate),
                1..7 => self.attempt(line, Work::Random { reads: true }),
                7..11 => self.attempt(line, Work::Glance),
                11..13 => self.attempt(line, Work::LookTwice),
                13..25 => self.attempt(line, Work::Random { reads: false }),
                _ => self.pipeline(line),
            }
        }
        self.attempts
    }

    /// Repeats the work until it is done: locks of an earlier connection may still be held.
    pub fn until_done(&mut self, work: Work) {
        let until = Instant::now() + PATIENCE;
        loop {
            let about = self.site.about;
            let line = self.line().unwrap_or_else(|| panic!("{about}: there is no server for {work:?}"));
            self.attempt(line, work);
            if matches!(self.attempts.last(), Some(Attempt { outcome: Outcome::Committed { .. }, .. })) {
                return;
            }
            assert!(Instant::now() < until, "{about}: the server refuses {work:?} for {PATIENCE:?}");
        }
    }

    /// Its connection, or a new one; none if the server has ended.
    fn line(&mut self) -> Option<Line> {
        if let Some(line) = self.line.take() {
            return Some(line);
        }
        let mut line = Line::open(self.site.address)?;
        let (name, level) = any_level(&mut self.random);
        line.run(&format!("set rialto.durability = '{name}'")).ok()?;
        line.level = level;
        let timeout = 2 + self.random.below(500);
        line.run(&format!("set lock_timeout = '{timeout}ms'")).ok()?;
        Some(line)
    }

    /// Sometimes gives the session's commits another level.
    fn may_choose_level(&mut self, line: &mut Line) -> Result<(), Refused> {
        if self.random.chance(1, 12) {
            let (name, level) = any_level(&mut self.random);
            line.run(&format!("set rialto.durability = '{name}'"))?;
            line.level = level;
        }
        Ok(())
    }

    fn may_be_cancelled(&mut self, line: &Line) {
        if self.random.chance(1, 6) {
            self.site.cancellable.lock().push((line.client.process, line.client.secret));
        }
    }

    /// One attempt by statements that are answered one by one.
    fn attempt(&mut self, mut line: Line, work: Work) {
        let clock = self.site.clock;
        let reads =
            matches!(work, Work::Random { reads: true } | Work::LookAtAll | Work::LookTwice | Work::Glance);
        self.may_be_cancelled(&line);
        let may_vanish = matches!(work, Work::Random { .. });
        let vanishes_amid = may_vanish && self.random.chance(1, 24);
        let vanishes_at_end = may_vanish && self.random.chance(1, 24);
        let mut attempt = Attempt::aborted(clock.attempt(), clock.now());
        // A block that only reads may be told at its end that its reads are not valid.
        attempt.coherent = !reads;
        let (way, cautious) = (WAYS[self.random.below(3) as usize], self.random.chance(1, 4));
        let mut level = line.level;
        let begun = match work {
            Work::Glance => Ok(level),
            _ => begin(&mut line, reads, &mut self.random),
        };
        let verdict = begun.and_then(|chosen| {
            level = chosen;
            let mut block = match work {
                Work::Glance => Block::without_begin(&mut line, way),
                _ => Block::new(&mut line, way),
            };
            let random = self.random.fork();
            let (number, events, space) = (attempt.number, &mut attempt.events, self.site.space);
            let mut script = Script::new(&mut block, random, number, events, cautious, space);
            match work {
                Work::LookAtAll => script.look_at_all(),
                Work::LookTwice => script.look_twice(),
                Work::Truncate => script.truncate(),
                Work::Glance => script.glance(),
                Work::Random { reads } => script.run(reads),
            }
        });
        let end = match &verdict {
            // The client disconnected before it sent a COMMIT, so the transaction aborts.
            _ if vanishes_amid => return self.attempts.push(attempt),
            Ok(Verdict::Commit) if vanishes_at_end => {
                line.client.try_send(&query("commit"));
                attempt.outcome = Outcome::Unknown;
                return self.attempts.push(attempt);
            }
            // It has its outcome already.
            Ok(Verdict::Commit) if work == Work::Glance => Ok(true),
            Ok(Verdict::Commit) => line.run("commit").map(|answer| completion(&answer) == "COMMIT"),
            Ok(Verdict::Abort) => line.run("rollback").map(|_| false),
            Err(refused) => {
                refused.check(self.site.may_end, self.site.about);
                if refused.is_end() { Err(refused.clone()) } else { line.run("rollback").map(|_| false) }
            }
        };
        match end {
            Ok(committed) => {
                assert_eq!(committed, verdict == Ok(Verdict::Commit), "{}", self.site.about);
                if committed {
                    attempt.outcome = Outcome::Committed { place: None };
                }
            }
            Err(refused) => {
                refused.check(self.site.may_end, self.site.about);
                let asked = verdict == Ok(Verdict::Commit);
                if refused.is_end() && asked {
                    attempt.outcome = Outcome::Unknown;
                }
                // A COMMIT that was cancelled before it ran leaves the block.
                if refused.is_end() || line.run("rollback").is_err() {
                    return self.attempts.push(attempt);
                }
            }
        }
        (attempt.told, attempt.ended) = (Some(level), Some(clock.now()));
        self.attempts.push(attempt);
        self.line = Some(line);
    }

    /// A block that has read and locked some keys, and whose writes and end are still to be sent; none if it was
    /// refused. No connection if that is unusable.
    fn locked(&mut self, mut line: Line) -> Option<(Line, Option<Planned>)> {
        let clock = self.site.clock;
        let mut attempt = Attempt::aborted(clock.attempt(), clock.now());
        let mut level = line.level;
        let way = WAYS[self.random.below(3) as usize];
        let mut locked: Vec<(Key, Result<Row, Vec<Version>>)> = Vec::new();
        let answered = begin(&mut line, false, &mut self.random).and_then(|chosen| {
            level = chosen;
            let mut block = Block::new(&mut line, way);
            for _ in 0..1 + self.random.below(3) {
                let key = self.site.space.key(&mut self.random);
                if locked.iter().all(|(other, _)| *other != key) {
                    locked.push((key, lock(&mut block, key, &mut attempt.events)?));
                }
            }
            Ok(())
        });
        let Err(refused) = answered else {
            let rest = Planned::rest(attempt, level, self.site.space, &mut self.random, &locked);
            return Some((line, Some(rest)));
        };
        refused.check(self.site.may_end, self.site.about);
        let goes_on = !refused.is_end() && line.run("rollback").is_ok();
        if goes_on {
            (attempt.told, attempt.ended) = (Some(level), Some(clock.now()));
        }
        self.attempts.push(attempt);
        goes_on.then_some((line, None))
    }

    /// Several transactions, sent before any answer is read. The first may be the rest of a block.
    fn pipeline(&mut self, line: Line) {
        self.may_be_cancelled(&line);
        let (mut line, mut planned) = match self.random.chance(1, 2) {
            true => match self.locked(line) {
                Some((line, planned)) => (line, Vec::from_iter(planned)),
                None => return,
            },
            false => (line, Vec::new()),
        };
        let mut state = Some(if planned.is_empty() { 'I' } else { 'T' });
        let clock = self.site.clock;
        for _ in 0..1 + self.random.below(3) {
            planned.push(Planned::any(clock, self.site.space, &mut self.random, line.level));
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for one in &planned {
            bytes.extend(one.encode(&mut line, &mut self.random));
            ends.push(one.commits_at(bytes.len()));
        }
        let vanishes = self.random.chance(1, 12);
        let sent = match vanishes && self.random.chance(1, 2) {
            true => self.random.below(bytes.len() as u64) as usize,
            false => bytes.len(),
        };
        // A server that has closed the connection may have read, and run, everything that was sent before.
        let goes_on = line.client.try_send(&bytes[..sent]) && !vanishes;
        state = state.filter(|_| goes_on);
        for (one, end) in planned.iter_mut().zip(ends) {
            match state {
                Some(before) => state = one.hear(&mut line, before, clock, self.site.about),
                None => one.lose(end <= sent),
            }
        }
        assert!(
            state.is_some() || vanishes || self.site.may_end,
            "{}: the server has ended",
            self.site.about
        );
        let is_committed = |one: &Planned| matches!(one.attempt.outcome, Outcome::Committed { .. });
        line.answered(planned.iter().all(is_committed));
        self.attempts.extend(planned.into_iter().map(|one| one.attempt));
        let goes_on = match state {
            None => false,
            Some('I') => true,
            Some(_) => line.run("rollback").is_ok(),
        };
        self.line = goes_on.then_some(line);
    }
}

/// Reads a key to change it: its row, or the list in its grave.
fn lock(
    block: &mut Block<'_>,
    key: Key,
    events: &mut Vec<Event>,
) -> Result<Result<Row, Vec<Version>>, Refused> {
    let seen = block.get(key, true)?;
    events.push(Event::Read { key, seen: seen.clone() });
    if let Some(row) = seen {
        return Ok(Ok(row));
    }
    let versions = block.grave(key)?;
    events.push(Event::Grave { key, versions: versions.clone() });
    Ok(Err(versions))
}

/// Begins a block, and draws the level at which it commits: the session's, or one that it sets for itself. A setting
/// that it changes and rolls back behind a savepoint has no effect.
fn begin(line: &mut Line, reads: bool, random: &mut Random) -> Result<Durability, Refused> {
    line.run(if reads { "begin read only" } else { "begin" })?;
    let (name, level) = any_level(random);
    if random.chance(1, 2) {
        // The kernel's transaction has begun when its level is changed.
        line.run("select 1 from things where id = -1")?;
    }
    match random.below(8) {
        0 | 1 => line.run(&format!("set local rialto.durability = '{name}'")).map(|_| level),
        2 => line.run("set local rialto.durability to default").map(|_| Durability::Disk),
        3 => {
            let set = format!("set rialto.durability = '{name}'");
            for sql in ["savepoint levels", &set, "rollback to savepoint levels", "release savepoint levels"]
            {
                line.run(sql)?;
            }
            Ok(line.level)
        }
        _ => Ok(line.level),
    }
}

/// The state that an attempt saw which has scanned all tables.
pub fn state(attempt: &Attempt) -> State {
    let mut state = State::new();
    for event in &attempt.events {
        match event {
            Event::Scan { table, predicate, seen } if predicate.by == By::Id => {
                for (id, row) in seen {
                    let found: &mut Found = state.entry(Key { table: *table, id: *id }).or_default();
                    (found.versions, found.values) = (row.versions.clone(), Some(row.values));
                }
            }
            Event::Grave { key, versions } => {
                let found: &mut Found = state.entry(*key).or_default();
                found.in_grave = versions.len();
                if found.values.is_none() {
                    found.versions.clone_from(versions);
                }
            }
            _ => {}
        }
    }
    state
}
