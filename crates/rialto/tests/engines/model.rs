//! What flows come to, one action after the other, on ordered maps.

use std::collections::BTreeMap;

use rialto::row::Value;

use super::generate::{ARGUMENTS, Choice, Definition, Does, Operation, Plan, Step, What};

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub u: Option<i32>,
    pub n: i32,
    pub length: usize,
}

type Rows = BTreeMap<(i32, i32), Row>;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Model {
    pub tables: [Rows; 2],
}

/// What a call comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Given(Vec<Value>),
    Duplicate,
    Aborted,
    ReadOnly,
}

/// Why an operation fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Duplicate,
    Aborted,
    ReadOnly,
}

impl Model {
    pub fn call(&mut self, plan: &Plan, arguments: &[i32; ARGUMENTS]) -> Outcome {
        let (before, mut outputs, mut read_only) = (self.clone(), Vec::new(), false);
        for step in plan.phases.iter().flatten() {
            if let Err(failure) = self.step(step, arguments, &mut outputs, &mut read_only) {
                *self = before;
                return match failure {
                    Failure::Duplicate => Outcome::Duplicate,
                    Failure::Aborted => Outcome::Aborted,
                    Failure::ReadOnly => Outcome::ReadOnly,
                };
            }
        }
        Outcome::Given(outputs)
    }

    fn step(
        &mut self,
        step: &Step,
        arguments: &[i32; ARGUMENTS],
        outputs: &mut Vec<Value>,
        read_only: &mut bool,
    ) -> Result<(), Failure> {
        let (first, second) = (arguments[2 * step.nth], arguments[2 * step.nth + 1]);
        let rows = &mut self.tables[step.table];
        match &step.does {
            Does::Rows { one, operations } => operations.iter().try_for_each(|it| {
                run(it, rows, (first, if *one { second } else { it.b }), outputs, read_only)
            }),
            Does::Closure(operations) => operations.iter().try_for_each(|it| {
                run(it, rows, (first, if it.undone { second } else { it.b }), outputs, read_only)
            }),
            Does::Define(_) if *read_only => Err(Failure::ReadOnly),
            Does::Probe => {
                let found = rows.iter().find(|(_, row)| row.u == Some(first));
                outputs.push(found.map(|((a, _), _)| *a).into());
                Ok(())
            }
            Does::Entries => {
                outputs.push((rows.values().filter(|row| row.n == first).count() as i32).into());
                Ok(())
            }
            Does::Count => {
                outputs.push((rows.len() as i32).into());
                Ok(())
            }
            Does::Define(Definition::Truncate | Definition::Anew) => {
                rows.clear();
                Ok(())
            }
            Does::Define(Definition::Index) => Ok(()),
        }
    }
}

fn run(
    it: &Operation,
    rows: &mut Rows,
    key: (i32, i32),
    outputs: &mut Vec<Value>,
    read_only: &mut bool,
) -> Result<(), Failure> {
    let before = rows.clone();
    let outcome = do_it(it, rows, key, outputs, read_only);
    if it.undone || outcome.is_err() {
        *rows = before;
    }
    match outcome {
        Err(_) if it.caught => {
            outputs.push(Value::Int4(-1));
            Ok(())
        }
        outcome => outcome,
    }
}

fn do_it(
    it: &Operation,
    rows: &mut Rows,
    (a, b): (i32, i32),
    outputs: &mut Vec<Value>,
    read_only: &mut bool,
) -> Result<(), Failure> {
    let writes = [What::Insert, What::Update, What::SetN, What::Delete, What::Move].contains(&it.what);
    if writes && *read_only {
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
        What::Move if there => {
            if is_taken(rows, Some((a, b))) || it.b != b && rows.contains_key(&(a, it.b)) {
                return Err(Failure::Duplicate);
            }
            let row = rows.remove(&(a, b)).expect("it is there");
            rows.insert((a, it.b), Row { u: it.u, ..row });
            true
        }
        What::AbortBelow(bound) if a >= bound => true,
        What::Abort | What::AbortBelow(_) => return Err(Failure::Aborted),
        What::Choose(choice) => {
            if let Choice::ReadOnly(chosen) = choice {
                *read_only = chosen;
            }
            true
        }
        What::Read => {
            outputs.push(rows.get(&(a, b)).map(|row| row.n).into());
            there
        }
        What::Update | What::SetN | What::Move => false,
    };
    outputs.push(i32::from(found).into());
    Ok(())
}
