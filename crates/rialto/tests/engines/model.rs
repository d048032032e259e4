//! The results of flows, one action after the other, on ordered maps.

use std::collections::BTreeMap;

use rialto::row::Value;
use rialto::{Durability, ScanMode};

use super::generate::{ARGUMENTS, Definition, Does, Plan, Step};
use super::many::{Many, Numbers};
use super::operation::{CAUGHT, Choice, NO_MEMORY, Operation, TOO_LARGE, What};

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub u: Option<i32>,
    pub n: i32,
    pub length: usize,
}

pub type Rows = BTreeMap<(i32, i32), Row>;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Model {
    pub tables: [Rows; 2],
    pub many: Numbers,
}

/// The bounds that a call may reach.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    /// The most bytes that a transaction may write.
    pub write_set: usize,
    /// The outputs of the call, where memory is bounded: no model knows which of its operations had no memory.
    pub given: &'a [Value],
}

impl Bounds<'_> {
    pub fn of_write_sets(write_set: usize) -> Bounds<'static> {
        Bounds { write_set, given: &[] }
    }
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Its outputs, and the durability of its commit.
    Given(Vec<Value>, Durability),
    Duplicate,
    Aborted,
    ReadOnly,
    TooLarge,
    /// An action has accessed another dataset than its own.
    OutOfScope,
    Cancelled,
}

/// Why an operation fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Duplicate,
    Aborted,
    ReadOnly,
    TooLarge,
    OutOfScope,
    Cancelled,
    /// Whether it fails depends on the exact number of bytes of its write set.
    Unsure,
}

/// The bytes of a write set, between those of its texts and those with everything around them.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    least: usize,
    most: usize,
}

/// The most bytes of a record of the write set beside its text.
const AROUND: usize = 250;

/// The most bytes of a change of a number.
const AROUND_NUMBER: usize = 60;

/// A call under way.
struct Run<'a> {
    bounds: Bounds<'a>,
    outputs: Vec<Value>,
    read_only: bool,
    durability: Durability,
    written: Written,
    /// The rows that it has inserted, by table.
    inserted: Vec<(usize, (i32, i32))>,
    /// The first column of the rows that the running action may write, and the second one, if not all.
    dataset: (Option<i32>, Option<i32>),
    /// The contents of its table at each of the action's savepoints.
    savepoints: Vec<(Rows, Written)>,
}

impl Model {
    /// The outcome of the call. None, and no change, if that depends on the exact number of bytes of its write set.
    pub fn call(&mut self, plan: &Plan, arguments: &[i32; ARGUMENTS], bounds: Bounds<'_>) -> Option<Outcome> {
        let before = self.clone();
        let mut run = Run {
            bounds,
            outputs: Vec::new(),
            read_only: false,
            durability: Durability::Memory,
            written: Written::default(),
            inserted: Vec::new(),
            dataset: (None, None),
            savepoints: Vec::new(),
        };
        for step in plan.phases.iter().flatten() {
            if let Err(failure) = self.step(step, arguments, &mut run) {
                *self = before;
                return match failure {
                    Failure::Duplicate => Some(Outcome::Duplicate),
                    Failure::Aborted => Some(Outcome::Aborted),
                    Failure::ReadOnly => Some(Outcome::ReadOnly),
                    Failure::TooLarge => Some(Outcome::TooLarge),
                    Failure::OutOfScope => Some(Outcome::OutOfScope),
                    Failure::Cancelled => Some(Outcome::Cancelled),
                    Failure::Unsure => None,
                };
            }
        }
        Some(Outcome::Given(run.outputs, run.durability))
    }

    fn step(&mut self, step: &Step, arguments: &[i32; ARGUMENTS], run: &mut Run<'_>) -> Result<(), Failure> {
        let (first, second) = (arguments[2 * step.nth], arguments[2 * step.nth + 1]);
        run.dataset = match step.does {
            Does::Rows { one, .. } => (Some(first), one.then_some(second)),
            _ => (None, None),
        };
        run.savepoints.clear();
        let rows = &mut self.tables[step.table];
        match &step.does {
            Does::Rows { one, operations } => operations.iter().try_for_each(|it| {
                run.operate(it, (step.table, &mut *rows), (first, if *one { second } else { it.b }))
            }),
            Does::Closure(operations) => operations.iter().try_for_each(|it| {
                run.operate(it, (step.table, &mut *rows), (first, if it.undone { second } else { it.b }))
            }),
            Does::Define(_) if run.read_only => Err(Failure::ReadOnly),
            Does::Probe => {
                let found = rows.iter().find(|(_, row)| row.u == Some(first));
                run.outputs.push(found.map(|((a, _), _)| *a).into());
                Ok(())
            }
            Does::Entries => {
                run.outputs.push((rows.values().filter(|row| row.n == first).count() as i32).into());
                Ok(())
            }
            Does::Count => {
                run.outputs.push((rows.len() as i32).into());
                Ok(())
            }
            Does::Many(many) => match many {
                Many::Sum { mode: ScanMode::Update, .. } | Many::Add | Many::AddToSome if run.read_only => {
                    Err(Failure::ReadOnly)
                }
                many => {
                    let outputs = run.outputs.len();
                    many.follow(&mut self.many, first, &mut run.outputs);
                    run.written.most += (run.outputs.len() - outputs) * AROUND_NUMBER;
                    Ok(())
                }
            },
            Does::Define(definition) => {
                if !matches!(definition, Definition::Index) {
                    rows.clear();
                }
                // Rows of the catalog are written, and writes to a table that is dropped may go with it.
                run.written.least = 0;
                run.written.most += 20 * AROUND;
                Ok(())
            }
        }
    }
}

impl Run<'_> {
    fn operate(
        &mut self,
        it: &Operation,
        (table, rows): (usize, &mut Rows),
        key: (i32, i32),
    ) -> Result<(), Failure> {
        if it.what.is_step() {
            self.take_step(it.what, rows);
            return Ok(());
        }
        let went_without = self.bounds.given.get(self.outputs.len()) == Some(&Value::Int4(NO_MEMORY));
        if it.caught && it.what.writes() && went_without {
            self.outputs.push(Value::Int4(NO_MEMORY));
            return Ok(());
        }
        let (before, written, outputs) = (rows.clone(), self.written, self.outputs.len());
        let (had, is_its) =
            (rows.get(&key).map_or(0, |row| row.length), self.inserted.contains(&(table, key)));
        let outcome = do_it(it, rows, key, self);
        let has = rows.get(&key).map_or(0, |row| row.length);
        if it.what == What::Insert && outcome.is_ok() {
            self.inserted.push((table, key));
        }
        let bound = self.note_written(it, had, has, is_its);
        if it.undone || outcome.is_err() || bound.is_err() {
            *rows = before;
            self.written = written;
        }
        match (outcome, bound) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(failed @ (Failure::OutOfScope | Failure::Cancelled)), Ok(())) => Err(failed),
            (Err(_), Err(_)) | (_, Err(Failure::Unsure)) => Err(Failure::Unsure),
            (Err(_), Ok(())) | (Ok(()), Err(_)) if it.caught => {
                self.outputs.truncate(outputs);
                self.outputs.push(Value::Int4(if bound.is_err() { TOO_LARGE } else { CAUGHT }));
                Ok(())
            }
            (failed, Ok(())) | (Ok(()), failed) => failed,
        }
    }

    fn take_step(&mut self, what: What, rows: &mut Rows) {
        match what {
            What::Save => self.savepoints.push((rows.clone(), self.written)),
            What::TakeBack(before) if before < self.savepoints.len() => {
                self.savepoints.truncate(self.savepoints.len() - before);
                (*rows, self.written) = self.savepoints.last().expect("it is there").clone();
            }
            What::Release => drop(self.savepoints.pop()),
            _ => {}
        }
    }

    /// Notes what the operation has written, and checks whether that is too much.
    fn note_written(&mut self, it: &Operation, had: usize, has: usize, is_its: bool) -> Result<(), Failure> {
        match it.what {
            What::Insert if had == 0 => self.written.least += has,
            // A change may be written as a difference, and replace an earlier write.
            _ if is_its => self.written.least = self.written.least.saturating_sub(had),
            _ => {}
        }
        self.written.most += AROUND
            + match it.what {
                What::Insert => it.length,
                What::Update | What::SetN | What::Move(_) => had.max(has).max(it.length),
                _ => 0,
            };
        match self.written {
            Written { most, .. } if most <= self.bounds.write_set => Ok(()),
            Written { least, .. } if least > self.bounds.write_set && !it.undone => Err(Failure::TooLarge),
            _ => Err(Failure::Unsure),
        }
    }
}

fn do_it(it: &Operation, rows: &mut Rows, (a, b): (i32, i32), run: &mut Run<'_>) -> Result<(), Failure> {
    if it.what.writes() && run.read_only {
        return Err(Failure::ReadOnly);
    }
    let is_taken = |rows: &Rows, but: Option<(i32, i32)>| {
        it.u.is_some() && rows.iter().any(|(key, row)| row.u == it.u && but != Some(*key))
    };
    let there = rows.contains_key(&(a, b));
    let found = match it.what {
        What::Insert => {
            if there || is_taken(rows, None) {
                return Err(Failure::Duplicate);
            }
            rows.insert((a, b), Row { u: it.u, n: it.n, length: it.length });
            true
        }
        What::Update if there => {
            if is_taken(rows, Some((a, b))) {
                return Err(Failure::Duplicate);
            }
            rows.insert((a, b), Row { u: it.u, n: it.n, length: it.length });
            true
        }
        What::SetN if there => {
            rows.get_mut(&(a, b)).expect("it is there").n = it.n;
            true
        }
        What::Delete => rows.remove(&(a, b)).is_some(),
        What::Move(to) if there => {
            let to = (to.unwrap_or(a), it.b);
            let (first, second) = run.dataset;
            if first.is_some_and(|first| first != to.0) || second.is_some_and(|second| second != to.1) {
                return Err(Failure::OutOfScope);
            }
            if is_taken(rows, Some((a, b))) || to != (a, b) && rows.contains_key(&to) {
                return Err(Failure::Duplicate);
            }
            let row = rows.remove(&(a, b)).expect("it is there");
            rows.insert(to, Row { u: it.u, ..row });
            true
        }
        What::AbortBelow(bound) if a >= bound => true,
        What::Abort | What::AbortBelow(_) => return Err(Failure::Aborted),
        What::Cancel => return Err(Failure::Cancelled),
        What::Choose(Choice::Durability(durability)) => {
            run.durability = durability;
            true
        }
        What::Choose(Choice::ReadOnly(read_only)) => {
            // It also chooses everything else: the database's defaults.
            (run.read_only, run.durability) = (read_only, Durability::Memory);
            true
        }
        What::Read => {
            run.outputs.push(rows.get(&(a, b)).map(|row| row.n).into());
            there
        }
        What::Update | What::SetN | What::Move(_) => false,
        What::Save | What::TakeBack(_) | What::Release => unreachable!("they are about no row"),
    };
    run.outputs.push(i32::from(found).into());
    Ok(())
}
