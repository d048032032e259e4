//! Random plans that compete: for room, for keys of a unique index, with definitions and with closures.

use rialto::ScanMode;
use rialto::io::Random;

use super::generate::{ARGUMENTS, Definition, Does, Plan, Step};
use super::many::Many;
use super::operation::{Operation, What};

/// The same plan with texts so long that its calls reach the bound of a transaction's write set, in one part of them or
/// all together. Most of its actions replace an existing row.
pub fn with_long_texts(mut plan: Plan, random: &mut Random) -> Plan {
    if random.chance(2, 3) {
        plan = in_one_phase(plan);
    }
    for step in plan.phases.iter_mut().flatten() {
        let (Does::Rows { operations, .. } | Does::Closure(operations)) = &mut step.does else { continue };
        if random.chance(3, 4) {
            let first = Operation { u: None, undone: false, ..operations[0] };
            *operations =
                vec![Operation { what: What::Delete, ..first }, Operation { what: What::Insert, ..first }];
        }
        operations.iter_mut().for_each(|it| it.length = 1_000 + random.below(5_000) as usize);
    }
    plan
}

/// The same plan, whose rows compete for few keys of the unique index.
pub fn with_few_keys(mut plan: Plan, random: &mut Random) -> Plan {
    if random.chance(1, 2) {
        plan = in_one_phase(plan);
    }
    for it in plan.operations() {
        it.u = Some(random.below(5) as i32);
    }
    plan
}

/// The same plan, in which only one action is on the second table, and competes for few keys of the unique index.
pub fn with_keys_of_one_action(mut plan: Plan, random: &mut Random) -> Plan {
    let steps = plan.phases.iter().map(Vec::len).sum::<usize>();
    let one = random.below(steps as u64) as usize;
    for (nth, step) in plan.phases.iter_mut().flatten().enumerate() {
        step.table = usize::from(nth == one);
        step.operations().iter_mut().for_each(|it| it.u = Some(random.below(3) as i32));
    }
    plan
}

/// The same plan with a definition before one of its phases, of a table of that phase.
pub fn with_a_definition(mut plan: Plan, random: &mut Random) -> Plan {
    let at = random.below(plan.phases.len() as u64) as usize;
    let table = plan.phases[at][0].table;
    let definition = match random.below(4) {
        0 => Definition::Truncate,
        1 => Definition::Index,
        _ => Definition::Anew,
    };
    plan.phases.insert(at, vec![Step { nth: 0, table, does: Does::Define(definition) }]);
    plan
}

/// The same plan with a closure in the longest of its phases, on the row that an action there writes, most often before
/// it. The phase locks no key of the unique index: where its parts would meet at one, it would run whole from then on.
pub fn with_a_closure(mut plan: Plan, random: &mut Random) -> Plan {
    let phase = plan.phases.iter_mut().max_by_key(|phase| phase.len()).expect("a plan has phases");
    // Parts would run it on the thread of the phase's first action; the last action most often belongs to another
    // thread.
    let writes = phase.iter().rposition(|step| matches!(step.does, Does::Rows { .. }));
    if let Some(at) = writes
        && let Step { nth, table, does: Does::Rows { one, operations } } = &mut phase[at]
    {
        *one = false;
        let others = operations.iter().map(|it| Operation { n: (it.n + 1) % 16, undone: false, ..*it });
        let closure = Step { nth: *nth, table: *table, does: Does::Closure(others.collect()) };
        let at = if random.chance(3, 4) { at } else { random.below(phase.len() as u64 + 1) as usize };
        phase.insert(at, closure);
    }
    phase.iter_mut().flat_map(Step::operations).for_each(|it| it.u = None);
    plan
}

/// The same plan with an action on the entries of an index in the longest of its phases, beside an action that writes
/// rows of the same table, which have few values there.
pub fn with_entries(mut plan: Plan, random: &mut Random) -> Plan {
    let phase = plan.phases.iter_mut().max_by_key(|phase| phase.len()).expect("a plan has phases");
    for it in phase.iter_mut().flat_map(Step::operations) {
        (it.u, it.n) = (Some(random.below(8) as i32), random.below(2) as i32);
    }
    if let Some(at) = phase.iter().position(|step| matches!(step.does, Does::Rows { .. })) {
        let does = if random.chance(3, 4) { Does::Entries } else { Does::Probe };
        let table = phase[at].table;
        // It has the arguments of another action, which are no key of the row.
        let nth = random.below(ARGUMENTS as u64 / 2) as usize;
        phase.insert(at + usize::from(random.chance(3, 4)), Step { nth, table, does });
    }
    plan
}

/// The actions on rows of the phase that has most of them: each of these is a part, if there are any.
fn in_one_phase(mut plan: Plan) -> Plan {
    let is_of_rows = |step: &Step| matches!(step.does, Does::Rows { .. });
    if plan.phases.iter().flatten().any(is_of_rows) {
        plan.phases.iter_mut().for_each(|phase| phase.retain(is_of_rows));
        plan.phases.sort_by_key(|phase| std::cmp::Reverse(phase.len()));
        plan.phases.truncate(1);
    }
    plan
}

/// The same plan, in which one action cancels its transaction in the end: it fails, unless it has failed before.
pub fn with_a_cancel(mut plan: Plan, random: &mut Random) -> Plan {
    let steps = plan.phases.iter_mut().flatten().filter_map(|step| match &mut step.does {
        Does::Rows { operations, .. } | Does::Closure(operations) => Some(operations),
        _ => None,
    });
    let mut all: Vec<_> = steps.collect();
    if !all.is_empty() {
        let at = random.below(all.len() as u64) as usize;
        let last = *all[at].last().expect("an action has operations");
        all[at].push(Operation { what: What::Cancel, caught: false, undone: false, ..last });
    }
    plan
}

/// The same plan with texts of up to this many bytes.
pub fn with_texts_of(mut plan: Plan, most: u64, random: &mut Random) -> Plan {
    plan.operations().for_each(|it| it.length = random.below(most) as usize);
    plan
}

/// The same plan, most often with an action on the table of many rows in place of another; sometimes with a further
/// such action in its phase.
pub fn with_many(mut plan: Plan, random: &mut Random) -> Plan {
    if random.chance(1, 4) {
        return plan;
    }
    let at = random.below(plan.phases.len() as u64) as usize;
    let phase = &mut plan.phases[at];
    let at = random.below(phase.len() as u64) as usize;
    phase[at].does = Does::Many(match random.below(4) {
        0 => Many::Add,
        1 => Many::AddToSome,
        _ => Many::Sum {
            in_a_closure: random.chance(1, 2),
            mode: if random.chance(2, 3) { ScanMode::Share } else { ScanMode::Update },
        },
    });
    if random.chance(1, 2) {
        phase.push(Step { does: Does::Many(Many::Add), ..phase[at] });
    }
    plan
}
