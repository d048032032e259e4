//! Random flows: as plans, which a model can follow, and as flows with the same meaning.

use std::ops::ControlFlow;
use std::time::Duration;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, WhichIndex};
use rialto::{Action, Error, Flow, Outputs, Result, Scan, ScanMode, TableDef, Transaction};

use super::TABLES;
use super::many::Many;
use super::operation::{Operation, What, any_operations, run_all};
use super::shapes::{
    with_a_closure, with_a_definition, with_entries, with_few_keys, with_keys_of_one_action, with_long_texts,
};

/// Two for each action: its key.
pub const ARGUMENTS: usize = 16;

const BY_U: WhichIndex = WhichIndex::Secondary(0);
const BY_N: WhichIndex = WhichIndex::Secondary(1);

/// The phases of a flow.
#[derive(Debug, Clone)]
pub struct Plan {
    pub phases: Vec<Vec<Step>>,
}

/// An action of a flow.
#[derive(Debug, Clone)]
pub struct Step {
    /// The arguments of its key.
    pub nth: usize,
    pub table: usize,
    pub does: Does,
}

#[derive(Debug, Clone)]
pub enum Does {
    /// Operations on rows; of the row with its key, or of the rows whose key begins with the first argument.
    Rows { one: bool, operations: Vec<Operation> },
    /// Finds the row with the first argument in the unique index.
    Probe,
    /// Counts the entries with it in the other index.
    Entries,
    /// Counts the rows of the table.
    Count,
    /// A closure with operations on rows of the table.
    Closure(Vec<Operation>),
    /// A closure that changes a definition.
    Define(Definition),
    /// An operation on the table of many rows.
    Many(Many),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Definition {
    Truncate,
    /// Drops the table and makes another of its name.
    Anew,
    /// Makes a third index, or drops it.
    Index,
}

pub fn any_arguments(random: &mut Random) -> [i32; ARGUMENTS] {
    std::array::from_fn(|_| random.below(8) as i32)
}

pub fn any_plan(random: &mut Random) -> Plan {
    let plan = any_short_plan(random);
    match random.below(10) {
        0 | 1 => with_long_texts(plan, random),
        2 => with_entries(plan, random),
        3 | 4 => with_few_keys(plan, random),
        5 | 6 => with_a_definition(plan, random),
        7 | 8 => with_a_closure(plan, random),
        _ => plan,
    }
}

/// A plan without definitions, whose phases have parts. Rows of the first table have no key in the unique index: where
/// two parts meet at one, the next calls run the phase whole, so most plans do not have such parts.
pub fn any_plan_of_parts(random: &mut Random) -> Plan {
    let is_definition = |step: &Step| matches!(step.does, Does::Define(_));
    let mut plan = loop {
        let plan = any_short_plan(random);
        if !plan.phases.iter().flatten().any(is_definition) {
            break plan;
        }
    };
    plan = match random.below(8) {
        0..4 => with_a_closure(plan, random),
        4..6 => with_keys_of_one_action(plan, random),
        _ => {
            plan.phases.iter_mut().flatten().for_each(|step| step.table = 1);
            with_few_keys(plan, random)
        }
    };
    let goes_on = random.chance(3, 4);
    plan.operations().for_each(|it| it.caught |= goes_on);
    let of_the_first = plan.phases.iter_mut().flatten().filter(|step| step.table == 0);
    of_the_first.flat_map(Step::operations).for_each(|it| it.u = None);
    plan
}

fn any_short_plan(random: &mut Random) -> Plan {
    let mut nth = 0;
    let with_closures = random.chance(1, 3);
    let phase = |_| {
        let actions = (1 + random.below(4)).min((ARGUMENTS / 2 - nth) as u64);
        let actions = (0..actions).map(|_| {
            nth += 1;
            Step {
                nth: nth - 1,
                table: usize::from(random.chance(1, 4)),
                does: any_does(random, with_closures),
            }
        });
        actions.collect::<Vec<_>>()
    };
    Plan { phases: [0, 1, 2].map(phase).into_iter().filter(|phase| !phase.is_empty()).collect() }
}

/// A plan whose first phase has an action, its last one, that fails half of the time: threads that own executors learn
/// to run that action first.
pub fn any_aborting_plan(random: &mut Random) -> Plan {
    let fails =
        Operation { what: What::AbortBelow(4), b: 0, u: None, n: 0, length: 0, caught: false, undone: false };
    loop {
        let mut plan = any_short_plan(random);
        let is_plain = |step: &Step| !matches!(step.does, Does::Closure(_) | Does::Define(_) | Does::Many(_));
        if !plan.phases.iter().flatten().all(is_plain) || plan.phases[0].len() < 2 {
            continue;
        }
        // After all other errors it goes on: if most calls fail at the first action anyway, no order is better.
        let rows = plan.phases[0].iter_mut().filter_map(|step| match &mut step.does {
            Does::Rows { operations, .. } => Some(operations),
            _ => None,
        });
        rows.flatten().for_each(|it| {
            it.caught = true;
            if let What::Move(_) = it.what {
                it.what = What::Move(None);
            }
        });
        let last = plan.phases[0].last_mut().expect("there are two");
        if let Does::Rows { operations, .. } = &mut last.does {
            operations.push(fails);
            return plan;
        }
    }
}

fn any_does(random: &mut Random, with_closures: bool) -> Does {
    match random.below(if with_closures { 20 } else { 17 }) {
        0..14 => {
            let (one, mut operations) = (random.chance(1, 2), any_operations(random));
            stay(&mut operations, one, random);
            Does::Rows { one, operations }
        }
        14 => Does::Probe,
        15 => Does::Entries,
        16 => Does::Count,
        17..19 => Does::Closure(any_operations(random)),
        _ => Does::Define(match random.below(3) {
            0 => Definition::Truncate,
            1 => Definition::Anew,
            _ => Definition::Index,
        }),
    }
}

/// Keeps an action's moves within its identifier, which may be all of a key, with few exceptions: a call of such an
/// action is refused.
fn stay(operations: &mut [Operation], one: bool, random: &mut Random) {
    for it in operations.iter_mut().filter(|it| matches!(it.what, What::Move(_))) {
        if random.chance(7, 8) {
            it.what = if one { What::Update } else { What::Move(None) };
        }
    }
}

/// Makes the table of this name with its indexes.
pub fn define(tx: &mut Transaction, name: &str) -> Result<()> {
    let columns = vec![
        Column::new("a", ColumnType::Int4),
        Column::new("b", ColumnType::Int4),
        Column::nullable("u", ColumnType::Int4),
        Column::new("n", ColumnType::Int4),
        Column::new("text", ColumnType::Text),
    ];
    tx.create_table(&TableDef::new(name, columns).with_primary_key(&["a", "b"]))?;
    tx.create_index(name, &format!("{name}_by_u"), &["u"], true)?;
    tx.create_index(name, &format!("{name}_by_n"), &["n"], false)
}

impl Plan {
    /// The operations of all its actions.
    pub fn operations(&mut self) -> impl Iterator<Item = &mut Operation> {
        self.phases.iter_mut().flatten().flat_map(Step::operations)
    }

    /// Whether one of its actions cancels its transaction.
    pub fn cancels(&self) -> bool {
        self.phases.iter().flatten().any(|step| match &step.does {
            Does::Rows { operations, .. } | Does::Closure(operations) => {
                operations.iter().any(|it| it.what == What::Cancel)
            }
            _ => false,
        })
    }

    pub fn flow(&self) -> Flow {
        let phases = self.phases.iter();
        phases.fold(Flow::new(), |flow, phase| flow.phase(phase.iter().map(Step::action)))
    }
}

impl Step {
    /// Its operations on rows, none if it has others.
    pub fn operations(&mut self) -> &mut [Operation] {
        match &mut self.does {
            Does::Rows { operations, .. } | Does::Closure(operations) => operations,
            _ => &mut [],
        }
    }

    fn action(&self) -> Action {
        let Step { nth, table, ref does } = *self;
        let (first, second, name) = (2 * nth, 2 * nth + 1, TABLES[table]);
        match does.clone() {
            Does::Rows { one, operations } => {
                let action = Action::exclusive(name, move |tx, arguments, outputs| {
                    let (a, b) = (arguments.get(first)?, arguments.get(second)?);
                    let table = arguments.table()?;
                    let keys = |it: &Operation| (a, if one { b } else { it.b });
                    run_all(operations.iter().map(|it| (it, keys(it))), tx, table, outputs)
                });
                let action = action.by_argument(first);
                if one { action.by_argument(second) } else { action }
            }
            Does::Probe => {
                let action = Action::shared(name, move |tx, arguments, outputs| {
                    let u: i32 = arguments.get(first)?;
                    let found = tx.probe(arguments.table()?, BY_U, u, ScanMode::Share, |entry| {
                        assert_eq!(entry.read::<i32>("u"), Ok(u));
                        entry.get("a")
                    });
                    outputs.push(found?.transpose()?);
                    Ok(())
                });
                action.on_index(format!("{name}_by_u")).by_argument(first)
            }
            Does::Entries => {
                let action = Action::shared(name, move |tx, arguments, outputs| {
                    let (n, mut entries): (i32, i32) = (arguments.get(first)?, 0);
                    tx.entries(arguments.table()?, &Scan::prefix(BY_N, vec![n.into()]), |_, entry| {
                        assert_eq!(entry.read::<i32>("n"), Ok(n));
                        entries += 1;
                        Ok(ControlFlow::Continue(()))
                    })?;
                    outputs.push(entries);
                    Ok(())
                });
                action.on_index(format!("{name}_by_n")).by_argument(first)
            }
            Does::Count => Action::shared(name, |tx, arguments, outputs| {
                outputs.push(tx.count(arguments.table()?)? as i32);
                Ok(())
            }),
            Does::Closure(operations) => closure(move |tx, arguments, outputs| {
                let (a, b) = (arguments.get(first)?, arguments.get(second)?);
                // Lets actions beside it run first.
                std::thread::sleep(Duration::from_micros(50));
                let table = tx.table(name)?;
                let keys = |it: &Operation| (a, if it.undone { b } else { it.b });
                run_all(operations.iter().map(|it| (it, keys(it))), tx, &table, outputs)
            }),
            Does::Many(many) => many.action(first),
            Does::Define(definition) => closure(move |tx, _, _| match definition {
                Definition::Truncate => {
                    let table = tx.table(name)?;
                    tx.truncate(&table)
                }
                Definition::Anew => {
                    tx.drop_table(name)?;
                    define(tx, name)
                }
                Definition::Index => match tx.drop_index(&format!("{name}_more")) {
                    Err(Error::NoSuchIndex { .. }) => {
                        tx.create_index(name, &format!("{name}_more"), &["n", "u"], false)
                    }
                    dropped => dropped,
                },
            }),
        }
    }
}

/// An action of a plain closure, as a part of a larger flow.
pub fn closure(
    body: impl Fn(&mut Transaction, &rialto::Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
) -> Action {
    Flow::of(body).phases()[0][0].clone()
}
