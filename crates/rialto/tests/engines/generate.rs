//! Random flows: as plans, which a model can follow, and as flows of the same meaning.

use std::ops::ControlFlow;
use std::time::Duration;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Durability, Error, Flow, LockPolicy, Outputs, Result, Scan, ScanMode, Table, TableDef,
    Transaction, TxOptions,
};

use super::shapes::{
    with_a_closure, with_a_definition, with_few_keys, with_keys_of_one_action, with_long_texts,
};
use super::{SUMS, TABLES};

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
    /// Which of the arguments are its key.
    pub nth: usize,
    pub table: usize,
    pub does: Does,
}

#[derive(Debug, Clone)]
pub enum Does {
    /// Operations on rows; of the one with its key, or of those whose key begins with the first argument.
    Rows { one: bool, operations: Vec<Operation> },
    /// Finds the row that has the first argument in the unique index.
    Probe,
    /// Counts the entries that have it in the other one.
    Entries,
    /// Counts the rows of the table.
    Count,
    /// A closure with operations on rows of the table.
    Closure(Vec<Operation>),
    /// A closure that changes a definition.
    Define(Definition),
}

/// An operation on the row with an action's first argument and, if that is all that identifies the action, `b`.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub what: What,
    pub b: i32,
    pub u: Option<i32>,
    pub n: i32,
    pub length: usize,
    /// Goes on after an error.
    pub caught: bool,
    /// Is rolled back to a savepoint.
    pub undone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    Insert,
    /// Sets all that is no key.
    Update,
    /// Sets what only the other index has.
    SetN,
    Delete,
    Read,
    /// Moves the row to another key of the same identifier.
    Move,
    /// Fails.
    Abort,
    /// Fails if the first argument is lower.
    AbortBelow(i32),
    /// Chooses something for the transaction.
    Choose(Choice),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// How the commit is to be, and how locks are waited for.
    Durability(Durability),
    /// Whether the transaction may write from here on.
    ReadOnly(bool),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Definition {
    Truncate,
    /// Drops the table and makes one of its name.
    Anew,
    /// Makes a third index, or drops it.
    Index,
}

pub fn any_arguments(random: &mut Random) -> [i32; ARGUMENTS] {
    std::array::from_fn(|_| random.below(8) as i32)
}

pub fn any_plan(random: &mut Random) -> Plan {
    let plan = any_short_plan(random);
    match random.below(8) {
        0 | 1 => with_long_texts(plan, random),
        2 | 3 => with_few_keys(plan, random),
        4 => with_a_definition(plan, random),
        5 | 6 => with_a_closure(plan, random),
        _ => plan,
    }
}

/// A plan without definitions, whose phases have parts. Rows of the first table have no key of the unique index: where two parts meet
/// at one, the next calls run the phase whole, and so most plans have no such parts.
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

/// A plan whose first phase has an action, its last one, that fails half of the time: threads that own executors come to run that
/// action first.
pub fn any_aborting_plan(random: &mut Random) -> Plan {
    let fails =
        Operation { what: What::AbortBelow(4), b: 0, u: None, n: 0, length: 0, caught: false, undone: false };
    loop {
        let mut plan = any_short_plan(random);
        let is_plain = |step: &Step| !matches!(step.does, Does::Closure(_) | Does::Define(_));
        if !plan.phases.iter().flatten().all(is_plain) || plan.phases[0].len() < 2 {
            continue;
        }
        // Whatever else fails goes on: where most calls fail at the first action anyway, no order is better.
        let rows = plan.phases[0].iter_mut().filter_map(|step| match &mut step.does {
            Does::Rows { operations, .. } => Some(operations),
            _ => None,
        });
        rows.flatten().for_each(|it| it.caught = true);
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
            // A key that is all of the identifier stays.
            let moves = operations.iter_mut().filter(|it| one && it.what == What::Move);
            moves.for_each(|it| it.what = What::Update);
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

fn any_operations(random: &mut Random) -> Vec<Operation> {
    let any = |random: &mut Random| Operation {
        what: match random.below(20) {
            0..7 => What::Insert,
            7..11 => What::Update,
            11..12 => What::SetN,
            12..15 => What::Delete,
            15..16 => What::Read,
            16..18 => What::Move,
            18 => What::Choose(match random.below(8) {
                0..3 => Choice::Durability(Durability::Memory),
                3..6 => Choice::Durability(Durability::Disk),
                6 => Choice::ReadOnly(true),
                _ => Choice::ReadOnly(false),
            }),
            _ => {
                if random.chance(1, 4) {
                    What::Abort
                } else {
                    What::Read
                }
            }
        },
        b: random.below(3) as i32,
        u: random.chance(7, 8).then(|| random.below(16) as i32),
        n: random.below(16) as i32,
        length: random.below(80) as usize,
        caught: random.chance(9, 10),
        undone: random.chance(1, 8),
    };
    (0..1 + random.below(3)).map(|_| any(random)).collect()
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

    pub fn flow(&self) -> Flow {
        let phases = self.phases.iter();
        phases.fold(Flow::new(), |flow, phase| flow.phase(phase.iter().map(Step::action)))
    }
}

impl Plan {
    /// The same flow, which moves an amount besides: from one row of [`SUMS`] in a phase before all others to one in a phase
    /// behind them. The first of them counts the call.
    pub fn flow_with_sums(&self) -> Flow {
        let moves = |at: usize, by: i64, calls: i64| {
            let action = Action::exclusive(SUMS, move |tx, arguments, _| {
                let id: i32 = arguments.get(at)?;
                let found = tx.modify(arguments.table()?, id, |row| {
                    row.add_i64(1, by)?;
                    row.add_i64(2, calls).map(drop)
                })?;
                assert!(found, "row {id} is there");
                Ok(())
            });
            action.by_argument(at)
        };
        let phases = self.phases.iter();
        let flow = Flow::new().phase([moves(0, -1, 1)]);
        let flow = phases.fold(flow, |flow, phase| flow.phase(phase.iter().map(Step::action)));
        flow.phase([moves(2, 1, 0)])
    }
}

impl Step {
    /// Its operations on rows, none if it does something else.
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
                    operations
                        .iter()
                        .try_for_each(|it| it.run(tx, table, (a, if one { b } else { it.b }), outputs))
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
                // Whatever may run beside it gets ahead of it.
                std::thread::sleep(Duration::from_micros(50));
                let table = tx.table(name)?;
                operations
                    .iter()
                    .try_for_each(|it| it.run(tx, &table, (a, if it.undone { b } else { it.b }), outputs))
            }),
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

/// The action of a plain closure, as part of a larger flow.
fn closure(
    body: impl Fn(&mut Transaction, &rialto::Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
) -> Action {
    Flow::of(body).phases()[0][0].clone()
}

impl Operation {
    fn run(&self, tx: &mut Transaction, table: &Table, key: (i32, i32), outputs: &mut Outputs) -> Result<()> {
        let savepoint = self.undone.then(|| tx.savepoint());
        let outcome = self.do_it(tx, table, key, outputs);
        if let Some(savepoint) = savepoint {
            tx.rollback_to(&savepoint)?;
        }
        match outcome {
            Err(Error::DuplicateKey { .. } | Error::Aborted { .. } | Error::ReadOnly) if self.caught => {
                outputs.push(-1);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn do_it(
        &self,
        tx: &mut Transaction,
        table: &Table,
        (a, b): (i32, i32),
        outputs: &mut Outputs,
    ) -> Result<()> {
        let text = || Value::Text("x".repeat(self.length));
        let u = self.u.map_or(Value::Null, Value::Int4);
        let found = match self.what {
            What::Insert => {
                tx.insert(table, &[a.into(), b.into(), u, self.n.into(), text()])?;
                true
            }
            What::Update => tx.update(table, (a, b), &[(2, u), (3, self.n.into()), (4, text())])?,
            What::SetN => tx.update(table, (a, b), &[(3, self.n.into())])?,
            What::Delete => tx.delete(table, (a, b))?,
            What::Move => tx.update(table, (a, b), &[(1, self.b.into()), (2, u)])?,
            What::AbortBelow(bound) if a >= bound => true,
            What::Abort | What::AbortBelow(_) => return Err(Error::aborted("as the plan says")),
            What::Choose(Choice::Durability(durability)) => {
                tx.set_durability(durability);
                tx.set_lock_policy(LockPolicy::Wait);
                true
            }
            What::Choose(Choice::ReadOnly(read_only)) => {
                tx.choose(&TxOptions { read_only, ..TxOptions::default() })?;
                true
            }
            What::Read => {
                let n = tx.look(table, (a, b), |row| row.get_i32(3))?.transpose()?;
                outputs.push(n);
                n.is_some()
            }
        };
        outputs.push(i32::from(found));
        Ok(())
    }
}
