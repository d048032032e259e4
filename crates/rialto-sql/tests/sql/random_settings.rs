//! Random settings in blocks and under savepoints, against a model. SHOW tells what the model has, a commit is as
//! durable as its level says, a wait for a lock is as long as its setting says, and a transaction writes only if it
//! may. `RIALTO_SEED` runs a round again; `RIALTO_TEST_SECONDS` says for how long new ones are tried.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{Checkpointing, Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError};

use crate::seeds::for_a_while;

/// A value in the form in which it is set and in the form in which it is shown; none: it is refused.
type Written = (&'static str, Option<&'static str>);

/// Each setting, its value at the start, and values to set.
const SETTINGS: [(&str, &str, &[Written]); 7] = [
    ("application_name", "", &[("'a'", Some("a")), ("'b'", Some("b"))]),
    (LEVEL, "default", &[("'memory'", Some("memory")), ("'disk'", Some("disk")), ("'paper'", None)]),
    (TIMEOUT, LONG, &[("'1ms'", Some("1ms")), ("'60min'", Some(LONG)), ("'soon'", None)]),
    ("statement_timeout", "0", &[("'60min'", Some("1h")), ("'0'", Some("0")), ("'soon'", None)]),
    (READ_ONLY, "off", &BOOLEANS),
    ("client_min_messages", "notice", &[("warning", Some("warning")), ("notice", Some("notice"))]),
    ("extra_float_digits", "1", &[("3", Some("3")), ("2", Some("2")), ("0", None)]),
];
const BOOLEANS: [Written; 9] = [
    ("on", Some("on")),
    ("'OFF'", Some("off")),
    ("off", Some("off")),
    ("'TRUE'", Some("on")),
    ("f", Some("off")),
    ("'y'", Some("on")),
    ("0", Some("off")),
    ("banana", None),
    ("'o'", None),
];
const LEVEL: &str = "rialto.durability";
const TIMEOUT: &str = "lock_timeout";
/// Longer than a wait of a millisecond takes on any machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// As it is shown.
const LONG: &str = "1h";
const READ_ONLY: &str = "default_transaction_read_only";
const ACCESS: &str = "transaction_read_only";

type Values = BTreeMap<&'static str, String>;

/// The settings at one moment.
#[derive(Debug, Clone, PartialEq)]
struct Moment {
    now: Values,
    /// If the transaction commits.
    later: Values,
    reads_only: bool,
    /// Whether the transaction has written.
    has_written: bool,
}

struct Model {
    start: Values,
    moment: Moment,
    /// If it is rolled back.
    before: Values,
    is_block: bool,
    has_failed: bool,
    /// Whether it has run a statement about rows.
    has_begun: bool,
    savepoints: Vec<(u64, Moment)>,
}

impl Model {
    fn new(start: Values) -> Model {
        let moment =
            Moment { now: start.clone(), later: start.clone(), reads_only: false, has_written: false };
        Model {
            before: start.clone(),
            start,
            moment,
            is_block: false,
            has_failed: false,
            has_begun: false,
            savepoints: Vec::new(),
        }
    }

    fn shown(&self, name: &str) -> String {
        match name {
            ACCESS => if self.reads_only() { "on" } else { "off" }.to_owned(),
            name => self.moment.now[name].clone(),
        }
    }

    /// Whether the transaction only reads. Outside of a block, whether that of the next statement does.
    fn reads_only(&self) -> bool {
        if self.is_block { self.moment.reads_only } else { self.moment.now[READ_ONLY] == "on" }
    }

    fn begin(&mut self, reads_only: Option<bool>) {
        self.moment.reads_only = reads_only.unwrap_or(self.moment.now[READ_ONLY] == "on");
        self.before.clone_from(&self.moment.now);
        (self.is_block, self.has_begun, self.moment.has_written) = (true, false, false);
    }

    fn end(&mut self, commits: bool) {
        let kept = if commits && !self.has_failed { self.moment.later.clone() } else { self.before.clone() };
        (self.moment.now, self.moment.later) = (kept.clone(), kept);
        (self.is_block, self.has_failed) = (false, false);
        self.savepoints.clear();
    }

    fn set(&mut self, name: &'static str, value: &str, is_local: bool) {
        if is_local && !self.is_block {
            return;
        }
        self.moment.now.insert(name, value.to_owned());
        if !is_local {
            self.moment.later.insert(name, value.to_owned());
        }
    }
}

fn session(database: &Database) -> Session {
    let mut session = Session::new(database.clone(), "ann", "bank");
    session.set(TIMEOUT, "60min").unwrap();
    session
}

fn try_run(session: &mut Session, sql: &str) -> Result<Vec<Vec<Value>>, SqlError> {
    let mut rows = Collected::default();
    let answer = session
        .prepare(sql, &[])
        .and_then(|prepared| session.execute(&prepared, &[], &mut rows))
        .and_then(|_| session.finish());
    answer.map(|()| rows.0).inspect_err(|error| {
        let _ = session.fail(error);
    })
}

struct Round {
    database: Database,
    random: Random,
    session: Session,
    /// Has locked row 2.
    holder: Session,
    model: Model,
    story: Vec<String>,
    about: String,
}

impl Round {
    fn told(&self) -> String {
        format!("{}: {:#?}", self.about, &self.story[self.story.len().saturating_sub(40)..])
    }

    /// Runs a statement with this outcome: its rows' first value, or the code of its error.
    fn expect(&mut self, sql: &str, comes: Result<Option<&str>, &str>) {
        self.story.push(sql.to_owned());
        let comes = match comes {
            _ if self.model.has_failed => Err("25P02"),
            comes => comes,
        };
        let found = try_run(&mut self.session, sql);
        let found = found.as_ref().map(|rows| match rows.first().map(|row| &row[0]) {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(found.map_err(|error| error.sqlstate.code()), comes, "{sql}: {}", self.told());
        if comes.is_err() {
            self.model.has_failed = self.model.is_block;
        }
    }

    fn show(&mut self) {
        let names: Vec<&str> = SETTINGS.iter().map(|(name, ..)| *name).chain([ACCESS]).collect();
        let name = names[self.random.below(names.len() as u64) as usize];
        let shown = self.model.shown(name);
        self.expect(&format!("show {name}"), Ok(Some(&shown)));
    }

    /// A setting; most often the level, which alone decides what a commit does.
    fn any_setting(&mut self) -> (&'static str, &'static [Written]) {
        let (name, _, values) = match self.random.chance(1, 3) {
            true => SETTINGS[1],
            false => SETTINGS[self.random.below(SETTINGS.len() as u64) as usize],
        };
        (name, values)
    }

    fn set(&mut self) {
        let (name, values) = self.any_setting();
        let is_local = self.random.chance(1, 3);
        let scope = if is_local { " local" } else { "" };
        if self.random.chance(1, 4) {
            self.expect(&format!("set{scope} {name} to default"), Ok(None));
            let start = self.model.start[name].clone();
            return self.change(|model| model.set(name, &start, is_local));
        }
        let (written, shown) = values[self.random.below(values.len() as u64) as usize];
        self.expect(&format!("set{scope} {name} = {written}"), shown.map(|_| None).ok_or("22023"));
        if let Some(shown) = shown {
            self.change(|model| model.set(name, shown, is_local));
        }
    }

    /// A statement that was served changes the model.
    fn change(&mut self, change: impl FnOnce(&mut Model)) {
        if !self.model.has_failed {
            change(&mut self.model);
        }
    }

    fn reset(&mut self) {
        if self.random.chance(1, 2) {
            self.expect("reset all", Ok(None));
            return self.change(|model| {
                (model.moment.now, model.moment.later) = (model.start.clone(), model.start.clone());
            });
        }
        let (name, _) = self.any_setting();
        self.expect(&format!("reset {name}"), Ok(None));
        let start = self.model.start[name].clone();
        self.change(|model| model.set(name, &start, false));
    }

    /// The transaction's own access mode.
    fn set_access(&mut self) {
        let (written, shown) = BOOLEANS[self.random.below(BOOLEANS.len() as u64) as usize];
        let is_late = self.model.is_block && self.model.has_begun && self.model.reads_only();
        let comes = match shown {
            None => Err("22023"),
            Some("off") if is_late => Err("25001"),
            Some(_) => Ok(None),
        };
        self.expect(&format!("set {ACCESS} = {written}"), comes);
        if comes.is_ok() {
            self.change(|model| {
                if model.is_block {
                    model.moment.reads_only = shown == Some("on");
                }
            });
        }
    }

    fn begin(&mut self) {
        if self.model.is_block {
            return;
        }
        let (mode, reads_only) = [("", None), (" read only", Some(true)), (" read write", Some(false))]
            [self.random.below(3) as usize];
        self.expect(&format!("begin{mode}"), Ok(None));
        self.model.begin(reads_only);
    }

    fn end(&mut self) {
        if !self.model.is_block {
            return;
        }
        let commits = self.random.chance(2, 3);
        let (groups, level) = (self.groups(), self.model.shown(LEVEL));
        let sql = if commits { "commit" } else { "rollback" };
        self.story.push(sql.to_owned());
        try_run(&mut self.session, sql).unwrap_or_else(|error| panic!("{error}: {}", self.told()));
        if commits && !self.model.has_failed && self.model.moment.has_written {
            self.check_written(groups, &level);
        }
        self.model.end(commits);
    }

    fn groups(&self) -> u64 {
        self.database.metrics().log.groups
    }

    /// A commit has been written to the log's file, unless its level is `memory`.
    fn check_written(&self, before: u64, level: &str) {
        assert_eq!(self.groups() > before, level != "memory", "level {level}: {}", self.told());
    }

    fn savepoint(&mut self) {
        let name = self.random.below(3);
        let at = self.model.savepoints.iter().rposition(|(other, _)| *other == name);
        match (self.random.below(4), at) {
            _ if !self.model.is_block => {}
            (0 | 1, Some(at)) => {
                self.story.push(format!("rollback to s{name}"));
                let gone = try_run(&mut self.session, &format!("rollback to s{name}"));
                assert!(gone.is_ok(), "{gone:?}: {}", self.told());
                self.model.moment = self.model.savepoints[at].1.clone();
                self.model.savepoints.truncate(at + 1);
                self.model.has_failed = false;
            }
            (2, Some(at)) => {
                self.expect(&format!("release s{name}"), Ok(None));
                self.change(|model| model.savepoints.truncate(at));
            }
            _ => {
                self.expect(&format!("savepoint s{name}"), Ok(None));
                self.change(|model| model.savepoints.push((name, model.moment.clone())));
            }
        }
    }

    fn write(&mut self) {
        let (groups, level) = (self.groups(), self.model.shown(LEVEL));
        let reads_only = self.model.reads_only();
        let (comes, is_run) = (if reads_only { Err("25006") } else { Ok(None) }, !self.model.has_failed);
        self.expect("update t set a = a + 1 where k = 1", comes);
        if self.model.is_block {
            // A refused statement has begun the transaction, too.
            self.model.has_begun |= is_run;
            self.model.moment.has_written |= !self.model.has_failed;
        } else if !reads_only {
            self.check_written(groups, &level);
        }
    }

    /// A write to a row that is locked: refused after a short time-out, granted within a long one.
    fn wait(&mut self) {
        if self.model.reads_only() || self.model.has_failed {
            return;
        }
        let sql = "update t set a = 0 where k = 2";
        if self.model.shown(TIMEOUT) == "1ms" {
            let (cancel, (refused, is_refused)) = (self.session.cancel(), mpsc::channel::<()>());
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    if is_refused.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                        cancel.request();
                    }
                });
                let _ends = refused;
                self.expect(sql, Err("55P03"));
            });
            self.model.has_begun = true;
            return;
        }
        self.story.push(format!("{sql}, until it is granted"));
        let Round { database, session, holder, .. } = self;
        let granted = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| try_run(session, sql));
            while database.lock_waits().is_empty() && !waiting.is_finished() {
                std::thread::yield_now();
            }
            // Longer than the short time.
            std::thread::sleep(Duration::from_millis(5));
            try_run(holder, "rollback").unwrap();
            waiting.join().unwrap()
        });
        assert!(granted.is_ok(), "{granted:?}: {}", self.told());
        // The block ends, so that the row can be locked again.
        if self.model.is_block {
            self.story.push("rollback".to_owned());
            try_run(&mut self.session, "rollback").unwrap();
            self.model.end(false);
        }
        hold(&mut self.holder);
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0..7 => self.set(),
            7 => self.reset(),
            8 | 9 => self.set_access(),
            10..13 => self.begin(),
            13 => self.end(),
            14..19 => self.savepoint(),
            19..22 => self.write(),
            22 => self.wait(),
            _ if self.model.has_failed && self.model.savepoints.is_empty() => self.end(),
            _ => {}
        }
        if !self.model.has_failed && self.random.chance(1, 2) {
            self.show();
        }
    }
}

fn hold(holder: &mut Session) {
    for sql in ["begin", "update t set a = 0 where k = 2"] {
        try_run(holder, sql).unwrap();
    }
}

#[test]
fn settings_are_what_their_model_has() {
    let mut steps = 0;
    let (seed, rounds) = for_a_while(|seed| {
        let options = Options {
            memory_bytes: 64 << 20,
            // The log is written for commits of level `disk` only.
            memory_flush_interval: Duration::from_secs(3_600),
            checkpoint: Checkpointing::None,
            ..Options::default()
        };
        let database = Database::open_on(MemoryDisk::new(), options).unwrap();
        let (session, mut holder) = (session(&database), session(&database));
        for sql in ["create table t (k int primary key, a int)", "insert into t values (1, 0), (2, 0)"] {
            try_run(&mut holder, sql).unwrap();
        }
        hold(&mut holder);
        let start: Values = SETTINGS.iter().map(|(name, start, _)| (*name, (*start).to_owned())).collect();
        let mut round = Round {
            database,
            random: Random::new(seed),
            session,
            holder,
            model: Model::new(start),
            story: Vec::new(),
            about: format!("RIALTO_SEED={seed}"),
        };
        for _ in 0..300 {
            round.step();
            steps += 1;
        }
    });
    println!("tally: settings against a model, {rounds} rounds, {steps} steps, RIALTO_SEED={seed}");
}
