//! A model of a connection: the answer to each message, by the protocol and `docs/sql.md`.

use std::collections::BTreeMap;

use super::message::{Sent, Told};
use super::statement::{Cell, Data, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    /// The block of a pipeline or a query string.
    Implicit,
    Explicit,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Mode {
    Ready,
    Skip,
    /// A COPY, whether of a simple query, and its keys so far.
    Copy(bool, Vec<i32>),
}

#[derive(Debug, Clone)]
struct Statement {
    kind: Kind,
    columns: Vec<u32>,
}

#[derive(Debug, Clone)]
enum Run {
    New,
    Suspended(Vec<Vec<Cell>>),
    Ended,
    /// It is running or has failed.
    Over,
}

#[derive(Debug, Clone)]
struct Portal {
    statement: Statement,
    argument: Option<i32>,
    is_binary: bool,
    run: Run,
    /// How many savepoints existed when it was opened, or when it read the rows that it keeps or kept.
    behind: u64,
}

struct Savepoint {
    name: u64,
    data: Data,
    number: u64,
}

pub struct Model {
    pub data: Data,
    /// The tables if the transaction is rolled back.
    before: Data,
    block: Block,
    has_failed: bool,
    savepoints: Vec<Savepoint>,
    made: u64,
    statements: BTreeMap<&'static str, Statement>,
    portals: BTreeMap<&'static str, Portal>,
    pub mode: Mode,
    /// The answers so far.
    pub told: Vec<Told>,
}

type Outcome = Result<(), &'static str>;

impl Model {
    /// A session on these tables.
    pub fn new(data: Data) -> Model {
        Model {
            before: data.clone(),
            data,
            block: Block::None,
            has_failed: false,
            savepoints: Vec::new(),
            made: 0,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            mode: Mode::Ready,
            told: Vec::new(),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.block == Block::None && self.mode == Mode::Ready
    }

    /// Whether its block has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Takes a Parse of a text that takes long to read, and a Sync; a cancel request has ended it, or not.
    pub fn take_long_text(&mut self, is_cancelled: bool) {
        match is_cancelled {
            true => self.fail("57014"),
            false => {
                self.statements.insert(super::LONG, Statement { kind: Kind::Empty, columns: Vec::new() });
                self.tell('1');
            }
        }
        self.ready();
    }

    /// The name of the newest savepoint to which a rollback can go back.
    pub fn newest_savepoint(&self) -> Option<u64> {
        self.savepoints.last().map(|savepoint| savepoint.name)
    }

    /// The statement of this name.
    pub fn statement(&self, name: &str) -> Option<Kind> {
        self.statements.get(name).map(|statement| statement.kind)
    }

    /// A portal that has rows left.
    pub fn suspended(&self) -> Option<&'static str> {
        let is_suspended = |portal: &Portal| matches!(portal.run, Run::Suspended(_));
        self.portals.iter().find(|(_, portal)| is_suspended(portal)).map(|(name, _)| *name)
    }

    fn tell(&mut self, tag: char) {
        self.told.push(Told::Tag(tag));
    }

    /// Takes a message.
    pub fn take(&mut self, sent: &Sent) {
        match self.mode.clone() {
            Mode::Skip if matches!(sent, Sent::Sync) => {
                self.mode = Mode::Ready;
                self.ready();
            }
            Mode::Skip => {}
            Mode::Copy(simple, keys) => self.take_in_copy(sent, simple, keys),
            Mode::Ready => self.take_ready(sent),
        }
    }

    fn take_in_copy(&mut self, sent: &Sent, simple: bool, mut keys: Vec<i32>) {
        let error = match sent {
            Sent::Data(Some(key)) => {
                keys.push(*key);
                self.mode = Mode::Copy(simple, keys);
                return;
            }
            Sent::Sync | Sent::Flush => return,
            Sent::Done => {
                self.mode = Mode::Ready;
                self.told.push(Told::Complete(format!("COPY {}", keys.len())));
                self.data.keys.extend(keys);
                if simple {
                    self.ready();
                }
                return;
            }
            Sent::Data(None) => "22P02",
            Sent::Fail => "57014",
            _ => "08P01",
        };
        self.mode = Mode::Ready;
        if simple {
            self.fail(error);
            self.ready();
        } else {
            self.fail_pipeline(error);
        }
    }

    fn take_ready(&mut self, sent: &Sent) {
        let outcome = match sent {
            Sent::Query(kinds) => return self.query(kinds),
            Sent::BadQuery => {
                self.fail("08P01");
                return self.ready();
            }
            Sent::Sync => return self.ready(),
            Sent::Flush | Sent::Data(_) | Sent::Done | Sent::Fail => return,
            Sent::Parse(name, kind) => self.parse(name, *kind),
            Sent::Bind(portal, statement, argument, is_binary) => {
                self.bind(portal, statement, *argument, *is_binary)
            }
            Sent::DescribeStatement(name) => self.describe_statement(name),
            Sent::DescribePortal(name) => self.describe_portal(name),
            Sent::Execute(name, limit) => self.execute(name, *limit as usize),
            Sent::CloseStatement(name) => {
                self.statements.remove(name);
                self.tell('3');
                Ok(())
            }
            Sent::ClosePortal(name) => {
                self.portals.remove(name);
                self.tell('3');
                Ok(())
            }
        };
        if let Err(code) = outcome {
            self.fail_pipeline(code);
        }
    }

    fn fail(&mut self, code: &'static str) {
        self.told.push(Told::Error(code.to_owned()));
        match self.block {
            Block::None => {}
            Block::Implicit => self.roll_back(),
            Block::Explicit => self.has_failed = true,
        }
    }

    fn fail_pipeline(&mut self, code: &'static str) {
        self.fail(code);
        self.mode = Mode::Skip;
    }

    fn ready(&mut self) {
        if self.block == Block::Implicit {
            self.commit();
        }
        let state = match (self.block, self.has_failed) {
            (Block::Explicit, true) => 'E',
            (Block::Explicit, false) => 'T',
            _ => {
                self.portals.clear();
                'I'
            }
        };
        self.told.push(Told::Ready(state));
    }

    fn commit(&mut self) {
        self.before = self.data.clone();
        self.end();
    }

    fn roll_back(&mut self) {
        self.data = self.before.clone();
        self.end();
    }

    fn end(&mut self) {
        (self.block, self.has_failed) = (Block::None, false);
        self.savepoints.clear();
    }

    fn check_not_failed(&self) -> Outcome {
        if self.has_failed { Err("25P02") } else { Ok(()) }
    }

    fn query(&mut self, kinds: &[Kind]) {
        self.statements.remove("");
        self.portals.remove("");
        if let [Kind::Empty] = kinds {
            self.tell('I');
            return self.ready();
        }
        // With a syntax error anywhere, nothing is run.
        let outcome = match kinds.contains(&Kind::Broken) {
            true => Err("42601"),
            false => kinds.iter().try_for_each(|kind| self.run_simple(*kind)),
        };
        if let Err(code) = outcome {
            self.fail(code);
        }
        if !matches!(self.mode, Mode::Copy(..)) {
            self.ready();
        }
    }

    fn run_simple(&mut self, kind: Kind) -> Outcome {
        if !kind.ends_failure() {
            self.check_not_failed()?;
        }
        let columns = kind.columns(&self.data)?;
        if kind == Kind::Copy {
            self.open();
            self.mode = Mode::Copy(true, Vec::new());
            self.tell('G');
            return Ok(());
        }
        if !columns.is_empty() {
            self.told.push(Told::Columns(columns.into_iter().map(|column| (column, 0)).collect()));
        }
        let (rows, tag) = self.run(kind, None)?;
        rows.iter().for_each(|row| self.tell_row(row, false));
        self.told.push(Told::Complete(tag));
        Ok(())
    }

    fn open(&mut self) {
        if self.block == Block::None {
            self.block = Block::Implicit;
        }
    }

    /// Runs a statement: its rows and its completion.
    fn run(&mut self, kind: Kind, argument: Option<i32>) -> Result<(Vec<Vec<Cell>>, String), &'static str> {
        if !kind.ends_failure() {
            self.check_not_failed()?;
        }
        self.open();
        let word = match kind {
            Kind::Begin => {
                if self.block == Block::Explicit {
                    self.tell('N');
                }
                self.block = Block::Explicit;
                "BEGIN"
            }
            Kind::Commit | Kind::Rollback => {
                let commits = kind == Kind::Commit && !self.has_failed;
                if self.block != Block::Explicit {
                    self.tell('N');
                }
                self.portals.clear();
                if commits {
                    self.commit()
                } else {
                    self.roll_back()
                }
                if commits { "COMMIT" } else { "ROLLBACK" }
            }
            Kind::Savepoint(name) => {
                self.check_block()?;
                self.made += 1;
                self.savepoints.push(Savepoint { name, data: self.data.clone(), number: self.made });
                "SAVEPOINT"
            }
            Kind::RollbackTo(name) => {
                let at = self.savepoint(name)?;
                self.savepoints.truncate(at + 1);
                let savepoint = &self.savepoints[at];
                self.data = savepoint.data.clone();
                let number = savepoint.number;
                self.portals.retain(|_, portal| portal.behind < number);
                self.has_failed = false;
                "ROLLBACK"
            }
            Kind::Release(name) => {
                let at = self.savepoint(name)?;
                self.savepoints.truncate(at);
                "RELEASE"
            }
            kind => return kind.apply(argument, &mut self.data),
        };
        Ok((Vec::new(), word.to_owned()))
    }

    fn check_block(&self) -> Outcome {
        if self.block == Block::Explicit { Ok(()) } else { Err("25P01") }
    }

    fn savepoint(&self, name: u64) -> Result<usize, &'static str> {
        self.check_block()?;
        self.savepoints.iter().rposition(|savepoint| savepoint.name == name).ok_or("3B001")
    }

    fn parse(&mut self, name: &'static str, kind: Kind) -> Outcome {
        if name.is_empty() {
            self.statements.remove("");
        }
        if kind == Kind::Broken {
            return Err("42601");
        }
        if kind != Kind::Empty && !kind.ends_failure() {
            self.check_not_failed()?;
        }
        let columns = kind.columns(&self.data)?;
        if self.statements.contains_key(name) {
            return Err("42P05");
        }
        self.statements.insert(name, Statement { kind, columns });
        self.tell('1');
        Ok(())
    }

    fn bind(
        &mut self,
        portal: &'static str,
        statement: &'static str,
        argument: Option<&'static str>,
        is_binary: bool,
    ) -> Outcome {
        let statement = self.statements.get(statement).ok_or("26000")?.clone();
        if statement.kind.arguments() != usize::from(argument.is_some()) {
            return Err("08P01");
        }
        if statement.kind != Kind::Empty && !statement.kind.ends_failure() {
            self.check_not_failed()?;
        }
        if !portal.is_empty() && self.portals.contains_key(portal) {
            return Err("42P03");
        }
        self.portals.remove(portal);
        let argument = argument.map(|text| text.parse().map_err(|_| "22P02")).transpose()?;
        let bound = Portal { statement, argument, is_binary, run: Run::New, behind: self.made };
        self.portals.insert(portal, bound);
        self.tell('2');
        Ok(())
    }

    fn describe_statement(&mut self, name: &'static str) -> Outcome {
        let Statement { kind, columns } = self.statements.get(name).ok_or("26000")?.clone();
        self.describe(&columns, false, Some(kind.parameters()))
    }

    fn describe_portal(&mut self, name: &'static str) -> Outcome {
        let portal = self.portals.get(name).ok_or("34000")?.clone();
        self.describe(&portal.statement.columns, portal.is_binary, None)
    }

    fn describe(&mut self, columns: &[u32], is_binary: bool, parameters: Option<Vec<u32>>) -> Outcome {
        if !columns.is_empty() {
            self.check_not_failed()?;
        }
        self.told.extend(parameters.map(Told::Parameters));
        if columns.is_empty() {
            self.tell('n');
        } else {
            let columns = columns.iter().map(|column| (*column, u16::from(is_binary)));
            self.told.push(Told::Columns(columns.collect()));
        }
        Ok(())
    }

    fn execute(&mut self, name: &'static str, limit: usize) -> Outcome {
        let portal = self.portals.get(name).ok_or("34000")?.clone();
        let Statement { kind, columns } = portal.statement;
        let is_new = matches!(portal.run, Run::New);
        let mut rows = match portal.run {
            _ if kind == Kind::Empty => {
                self.tell('I');
                return Ok(());
            }
            Run::New => {
                self.set(name, Run::Over);
                if kind == Kind::Copy {
                    self.check_not_failed()?;
                    self.open();
                    self.mode = Mode::Copy(false, Vec::new());
                    self.tell('G');
                    return Ok(());
                }
                if !kind.ends_failure() {
                    self.check_not_failed()?;
                    self.open();
                    // A statement that was planned for another table is planned again, for rows of the same columns.
                    if kind.columns(&self.data)? != columns {
                        return Err("0A000");
                    }
                }
                let (rows, tag) = self.run(kind, portal.argument)?;
                if columns.is_empty() {
                    self.told.push(Told::Complete(tag));
                    self.set(name, Run::Ended);
                    return Ok(());
                }
                rows
            }
            Run::Suspended(rows) => {
                self.check_not_failed()?;
                rows
            }
            Run::Ended if !columns.is_empty() => {
                self.check_not_failed()?;
                Vec::new()
            }
            Run::Ended | Run::Over => {
                self.check_not_failed()?;
                return Err("55000");
            }
        };
        let is_limited = limit > 0 && limit <= rows.len() && !matches!(self.portals[name].run, Run::Ended);
        let rest = if is_limited { rows.split_off(limit) } else { Vec::new() };
        rows.iter().for_each(|row| self.tell_row(row, portal.is_binary));
        if is_limited {
            if is_new {
                self.behind(name);
            }
            self.tell('s');
            self.set(name, Run::Suspended(rest));
        } else {
            self.told.push(Told::Complete(format!("SELECT {}", rows.len())));
            self.set(name, Run::Ended);
        }
        Ok(())
    }

    /// Sets the portal's run, if the statement has not ended the portal.
    fn set(&mut self, name: &str, run: Run) {
        if let Some(portal) = self.portals.get_mut(name) {
            portal.run = run;
        }
    }

    /// It keeps rows that it has read now.
    fn behind(&mut self, name: &str) {
        let made = self.made;
        if let Some(portal) = self.portals.get_mut(name) {
            portal.behind = made;
        }
    }

    fn tell_row(&mut self, row: &[Cell], is_binary: bool) {
        let bytes = |(of, text): &Cell| match (is_binary, of) {
            (true, 23) => text.parse::<i32>().expect("a number").to_be_bytes().to_vec(),
            (true, 20) => text.parse::<i64>().expect("a number").to_be_bytes().to_vec(),
            _ => text.as_bytes().to_vec(),
        };
        self.told.push(Told::Row(row.iter().map(bytes).collect()));
    }
}
