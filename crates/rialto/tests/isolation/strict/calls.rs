//! Procedures that do the same as scripts, key by key, and notes of what each of their runs saw and wrote.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use rialto::io::Random;
use rialto::row::{ColumnType, Value};
use rialto::{Action, Arguments, Error, Flow, KeyBound, Outputs, Procedure, Result, Scan};

use super::kernel::{grave_of, put, row_of, values_of};
use super::observed::{
    Event, GRAVES, KEYS, Key, PARTS, ROWS, Row, TABLES, VERSIONS_EACH, Values, Version, text_of,
};
use super::scans::Predicate;
use super::script::Put;
use super::space::Space;

/// The number of keys of a call.
const STEPS: usize = 3;
const READ: i32 = 1;
const WRITE: i32 = 2;
const REMOVE: i32 = 3;
const SCAN: i32 = 4;
const FAIL: i32 = 5;

/// The name of the procedure on a table.
pub const NAMES: [&str; TABLES] = ["steps_things", "steps_others"];

#[derive(Default)]
struct Noted {
    events: Vec<(usize, Event)>,
    versions: u64,
}

/// The last version of a call's step, by the call and the step.
type Given = RwLock<HashMap<(u64, usize), Version>>;

/// What the actions of all calls saw and wrote in one life. A call's outputs are the numbers of the notes of the run
/// that counts; notes of other runs belong to no attempt. Each run has versions of its own, so that no checker knows
/// the versions of other runs.
///
/// When recovery runs a call again, it has to have the result of the committed run. That was the last run: a call runs
/// again only when the run before has been given up. So recovery's run has the versions of the last run.
#[derive(Default)]
pub struct Notes {
    all: Mutex<HashMap<u64, Noted>>,
    given: Arc<Given>,
    is_open: AtomicBool,
}

impl Notes {
    /// The notes of the next life, whose recovery runs calls of earlier ones.
    pub fn of_next_life(&self) -> Notes {
        Notes { given: self.given.clone(), ..Notes::default() }
    }

    /// Calls of this life begin. Recovery ran all earlier ones.
    pub fn begin(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    fn note(&self, call: u64, step: usize, event: Event, outputs: &mut Outputs) {
        let mut all = self.all.lock();
        let noted = all.entry(call).or_default();
        outputs.push(noted.events.len() as i64);
        noted.events.push((step, event));
    }

    fn version(&self, call: u64, step: usize) -> Version {
        if !self.is_open.load(Ordering::SeqCst) {
            let given = self.given.read().get(&(call, step)).copied();
            return given.expect("what is run again has run before");
        }
        let mut all = self.all.lock();
        let noted = all.entry(call).or_default();
        assert!(noted.versions < VERSIONS_EACH, "a call has numbers for its writes");
        noted.versions += 1;
        let version = call * VERSIONS_EACH + noted.versions - 1;
        drop(all);
        self.given.write().insert((call, step), version);
        version
    }

    /// What this run has noted for a step so far.
    fn earlier(&self, call: u64, step: usize, outputs: &Outputs) -> Vec<Event> {
        let all = self.all.lock();
        let noted = &all[&call].events;
        let events = numbers(outputs.earlier()).map(|at| &noted[at]);
        events.filter(|(of, _)| *of == step).map(|(_, event)| event.clone()).collect()
    }

    /// What a call with these outputs has done.
    pub fn of(&self, call: u64, outputs: &[Value]) -> Vec<Event> {
        let noted = self.all.lock().remove(&call).unwrap_or_default();
        numbers(outputs).map(|at| noted.events[at].1.clone()).collect()
    }

    /// What the last run of a call may have done, whose outcome was not told.
    pub fn of_last_run(&self, call: u64) -> Vec<Event> {
        let noted = self.all.lock().remove(&call).unwrap_or_default();
        let begins = |step| {
            let is_first = |(of, event): &(usize, Event)| {
                *of == step && matches!(event, Event::Grave { .. } | Event::Scan { .. })
            };
            noted.events.iter().rposition(is_first).unwrap_or(0)
        };
        let begins: Vec<usize> = (0..STEPS).map(begins).collect();
        let events = noted.events.into_iter().enumerate();
        events.filter(|(at, (step, _))| *at >= begins[*step]).map(|(_, (_, event))| event).collect()
    }
}

fn numbers(values: &[Value]) -> impl Iterator<Item = usize> {
    values.iter().map(|value| match value {
        Value::Int8(number) => *number as usize,
        other => panic!("{other:?} is the number of no note"),
    })
}

/// The position of a step's argument: the operation, the identifier, the part that the row gets.
fn argument(step: usize, nth: usize) -> usize {
    1 + 3 * step + nth
}

fn does<const STEP: usize>(arguments: &[Value], what: &[i32]) -> bool {
    matches!(arguments[argument(STEP, 0)], Value::Int4(does) if what.contains(&does))
}

/// A step's arguments, and its key.
struct Asked {
    call: u64,
    what: i32,
    key: Key,
    last: i32,
}

impl Asked {
    fn of(arguments: &Arguments<'_>, table: usize, step: usize) -> Result<Asked> {
        let call = arguments.get::<i64>(0)? as u64;
        let [what, id, last] = [0, 1, 2].map(|nth| arguments.get::<i32>(argument(step, nth)));
        Ok(Asked { call, what: what?, key: Key { table, id: id? }, last: last? })
    }
}

fn actions<const STEP: usize>(notes: &Arc<Notes>, table: usize) -> [Action; 4] {
    let one: fn(&[Value]) -> bool = |arguments| does::<STEP>(arguments, &[READ, WRITE, REMOVE, FAIL]);
    let in_grave = {
        let notes = notes.clone();
        Action::shared(GRAVES[table], move |tx, arguments, outputs| {
            let Asked { call, key, .. } = Asked::of(arguments, table, STEP)?;
            let row = tx.get(arguments.table()?, key.id)?.expect("each key has a grave");
            let (_, versions) = grave_of(row.view())?;
            notes.note(call, STEP, Event::Grave { key, versions }, outputs);
            Ok(())
        })
    };
    let scans = {
        let notes = notes.clone();
        Action::shared(ROWS[table], move |tx, arguments, outputs| {
            let Asked { call, key, last, .. } = Asked::of(arguments, table, STEP)?;
            let bound = |id| KeyBound::Included(vec![Value::Int4(id)]);
            let scan = Scan { lower: bound(key.id), upper: bound(last), ..Scan::all() };
            let mut seen = Vec::new();
            tx.scan(arguments.table()?, &scan, |_, row| {
                seen.push(row_of(row)?);
                Ok(ControlFlow::Continue(()))
            })?;
            let predicate = Predicate::keys(key.id, last);
            notes.note(call, STEP, Event::Scan { table, predicate, seen }, outputs);
            Ok(())
        })
    };
    let row = {
        let notes = notes.clone();
        Action::exclusive(ROWS[table], move |tx, arguments, outputs| {
            let Asked { call, what, key, last } = Asked::of(arguments, table, STEP)?;
            let rows = arguments.table()?;
            let seen = tx.get(rows, key.id)?.map(|row| row_of(row.view())).transpose()?.map(|(_, row)| row);
            notes.note(call, STEP, Event::Read { key, seen: seen.clone() }, outputs);
            let with_version = |versions: &[Version]| [versions, &[notes.version(call, STEP)]].concat();
            match (what, seen) {
                (WRITE, seen) => {
                    let tag = seen.as_ref().and_then(|row| row.values.tag);
                    let values = Values { part: last, tag };
                    let earlier = notes.earlier(call, STEP, outputs);
                    let buried = earlier.into_iter().find_map(|event| match event {
                        Event::Grave { versions, .. } => Some(versions),
                        _ => None,
                    });
                    let (done, row) = match seen {
                        Some(row) => {
                            let row = Row { values, versions: with_version(&row.versions) };
                            let changes: Vec<_> =
                                values_of(key, &row).into_iter().enumerate().skip(1).collect();
                            (tx.update(rows, key.id, &changes), row)
                        }
                        None => {
                            let buried = buried.expect("the first phase has looked at the grave");
                            let row = Row { values, versions: with_version(&buried) };
                            (tx.insert(rows, &values_of(key, &row)).map(|()| true), row)
                        }
                    };
                    match put(done, table)? {
                        Put::Done => notes.note(call, STEP, Event::Put { key, row }, outputs),
                        other => {
                            let what = format!("{key:?}, which the call has locked: {other:?}");
                            notes.note(call, STEP, Event::Wrong(what), outputs);
                        }
                    }
                }
                (REMOVE, Some(row)) => {
                    assert!(tx.delete(rows, key.id)?, "the locked row of {key:?} is there");
                    let versions = with_version(&row.versions);
                    notes.note(call, STEP, Event::Removed { key, versions }, outputs);
                }
                (FAIL, _) => return Err(Error::aborted(ASKED_TO)),
                _ => {}
            }
            Ok(())
        })
    };
    let bury = {
        let notes = notes.clone();
        Action::exclusive(GRAVES[table], move |tx, arguments, outputs| {
            let Asked { call, key, .. } = Asked::of(arguments, table, STEP)?;
            for event in notes.earlier(call, STEP, outputs) {
                if let Event::Removed { versions, .. } = event {
                    let change = [(1, Value::Text(text_of(&versions)))];
                    assert!(tx.update(arguments.table()?, key.id, &change)?, "{key:?} has a grave");
                }
            }
            Ok(())
        })
    };
    let by = argument(STEP, 1);
    [
        in_grave.by_argument(by).when(one),
        scans.when(|arguments| does::<STEP>(arguments, &[SCAN])),
        row.by_argument(by).when(one),
        bury.by_argument(by).when(|arguments| does::<STEP>(arguments, &[REMOVE])),
    ]
}

/// The reason of a call that fails because its arguments say so.
pub const ASKED_TO: &str = "as it was asked to";

/// The procedures.
pub fn procedures(notes: &Arc<Notes>) -> Vec<Procedure> {
    let procedure = |(table, name): (usize, &&str)| {
        let mut phases: [Vec<Action>; 3] = Default::default();
        for [grave, scan, row, bury] in
            [actions::<0>(notes, table), actions::<1>(notes, table), actions::<2>(notes, table)]
        {
            phases[0].extend([grave, scan]);
            phases[1].push(row);
            phases[2].push(bury);
        }
        let flow = phases.into_iter().fold(Flow::new(), Flow::phase);
        let mut types = vec![ColumnType::Int8];
        types.extend([ColumnType::Int4; 3 * STEPS]);
        Procedure::new(*name, types, flow).deterministic(1)
    };
    NAMES.iter().enumerate().map(procedure).collect()
}

/// The arguments of a random call, whose keys differ.
pub fn any_call(random: &mut Random, space: Space, call: u64) -> Vec<Value> {
    let mut arguments = vec![Value::Int8(call as i64)];
    let mut ids: Vec<i32> = (0..KEYS).map(|nth| space.hot(nth, KEYS)).collect();
    random.shuffle(&mut ids);
    for id in ids.into_iter().take(STEPS) {
        let (what, last) = match random.below(16) {
            0..3 => (0, 0),
            3..6 => (READ, 0),
            6..11 => (WRITE, space.any_hot(PARTS, random)),
            11..13 => (REMOVE, 0),
            13 => (FAIL, 0),
            _ => (SCAN, (id + space.hot(random.below(5) as i32, KEYS)).min(space.end() - 1)),
        };
        arguments.extend([what, id, last].map(Value::Int4));
    }
    arguments
}
