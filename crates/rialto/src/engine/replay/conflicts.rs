//! [`Conflicts`]: which calls of the log have to wait for which others, by the identifiers of their actions.
//!
//! A procedure is a flow, and the identifiers of its actions follow from its arguments. So what a call may touch is
//! known before it runs, and it touches nothing else (`txn/scope.rs`). Two things are not known. Parts of an identifier
//! may follow from outputs; so only the parts before these count. Nor is it known which keys of an index a call changes
//! when it changes rows; so an action on an index counts as one that reads its whole table. Two calls conflict if they
//! have actions on one table whose identifiers overlap and of which one is exclusive. Conflicting calls run in the
//! order of the log. A call of a plain closure may touch anything, and conflicts with all calls.
//!
//! Calls are numbered, and each gets the earlier calls that have to be done before it may run ([`Predecessors`]). For
//! an identifier, that is the last call that has it exclusively, which itself comes after all others before it. For an
//! identifier that calls share, or for a whole table, it is *all* calls up to the last such call. Identifiers are kept
//! by their hash in a table of fixed size. If two of them fall into the same slot, calls wait without need.
//!
//! A key of a unique index can pass from one row to another whatever the rows' identifiers are. So if a table has
//! such an index whose keys do not begin as the identifiers do, calls that may change its rows run in the order of
//! the log among themselves.
//!
//! For each table, the number of parts that are compared is that of the shortest identifier on it among the registered
//! procedures. So two identifiers overlap if these parts are equal. An identifier without parts stands for the whole
//! table, and does not count for that number.

use hashbrown::HashMap;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::{Action, ActionMode, Flow, IdentifierPart, Procedure, Registered};
use crate::foreign::catch;
use crate::inside::InBody;
use crate::row::{Column, Key, Value, WhichIndex};
use crate::store::Catalog;

/// The number of slots for hashes of identifiers; a power of two.
const SLOTS: usize = 1 << 16;

/// The calls that have to be done before one may run.
#[derive(Debug, Default)]
pub(super) struct Predecessors {
    /// All calls up to this one; 0 for none.
    pub all: u64,
    /// These calls.
    pub each: SmallVec<[u64; 8]>,
}

impl Predecessors {
    /// The last of these calls; 0 for none.
    pub fn last(&self) -> u64 {
        self.each.iter().copied().fold(self.all, u64::max)
    }
}

/// The last calls that used an identifier or a table.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    shared: u64,
    exclusive: u64,
}

impl Use {
    /// The last call that a call of this mode has to wait for.
    fn before(&self, mode: ActionMode) -> u64 {
        self.exclusive.max(self.last_shared(mode))
    }

    /// The last sharing call, if a call of this mode has to wait for it.
    fn last_shared(&self, mode: ActionMode) -> u64 {
        match mode {
            ActionMode::Shared => 0,
            ActionMode::Exclusive => self.shared,
        }
    }

    fn note(&mut self, mode: ActionMode, call: u64) {
        match mode {
            ActionMode::Shared => self.shared = call,
            ActionMode::Exclusive => self.exclusive = call,
        }
    }
}

#[derive(Debug, Default)]
struct TableUse {
    /// Uses by identifiers without parts.
    whole: Use,
    /// Uses by all other identifiers.
    parts: Use,
    /// Rows with other identifiers may come to have the same unique key.
    shares_keys: bool,
}

/// What the calls of a procedure touch.
struct AccessSet {
    /// None: anything.
    touches: Option<Vec<Access>>,
}

struct Access {
    table: usize,
    mode: ActionMode,
    /// The condition on the arguments of calls that touch it; all calls, if none.
    condition: Option<fn(&[Value]) -> bool>,
    /// The parts of the identifier that are compared, each with its column; none for the whole table.
    parts: Vec<(IdentifierPart, Column)>,
}

/// The first parts of an action's identifier that are known before the flow begins; none for an action on an index.
fn known(action: &Action) -> &[IdentifierPart] {
    let parts = if action.index().is_some() { &[] } else { action.identifier() };
    let known = parts.iter().take_while(|part| part.is_known()).count();
    &parts[..known]
}

/// What a call touches, each with its slot in the table of hashes. There is room for a New-Order of TPC-C, which has
/// many actions and leaves most of them out.
type Touched<'p> = SmallVec<[(&'p Access, Option<usize>); 24]>;

/// See the [module's documentation](self).
pub(super) struct Conflicts {
    /// The number of parts that are compared of identifiers on the table of this name.
    parts: HashMap<String, usize>,
    tables: Vec<TableUse>,
    table_numbers: HashMap<String, usize>,
    slots: Box<[Use]>,
    /// By name and version.
    plans: HashMap<String, HashMap<u32, AccessSet>>,
    /// The last call that conflicts with all calls.
    anything: u64,
    last: u64,
    scratch: Key,
}

impl Conflicts {
    /// For calls of procedures with these flows.
    pub fn new<'f>(flows: impl Iterator<Item = &'f Flow>) -> Conflicts {
        let mut parts: HashMap<String, usize> = HashMap::new();
        for action in flows.flat_map(Flow::phases).flatten() {
            if let (Some(table), length @ 1..) = (action.table(), known(action).len()) {
                let least = parts.entry(table.to_owned()).or_insert(length);
                *least = (*least).min(length);
            }
        }
        Conflicts {
            parts,
            tables: Vec::new(),
            table_numbers: HashMap::new(),
            slots: vec![Use::default(); SLOTS].into(),
            plans: HashMap::new(),
            anything: 0,
            last: 0,
            scratch: Key::new(),
        }
    }

    /// Gives the next call its number, counted from 1, and the calls that have to be done before it may run.
    pub fn next(
        &mut self,
        procedure: &Registered,
        arguments: &[Value],
        catalog: &Catalog,
    ) -> (u64, Predecessors) {
        self.last += 1;
        let call = self.last;
        let Procedure { name, version, .. } = procedure.procedure();
        if !self.plans.get(name).is_some_and(|versions| versions.contains_key(version)) {
            let plan = self.plan(procedure, catalog);
            self.plans.entry(name.clone()).or_default().insert(*version, plan);
        }
        let Conflicts { plans, tables, slots, scratch, anything, .. } = self;
        let Some(touches) = &plans[name][version].touches else {
            *anything = call;
            return (call, Predecessors { all: call - 1, ..Predecessors::default() });
        };
        let mut before = Predecessors { all: *anything, ..Predecessors::default() };
        let mut find_touched = || -> Touched<'_> {
            touches
                .iter()
                .filter(|touch| touch.condition.is_none_or(|condition| condition(arguments)))
                .map(|touch| (touch, touch.slot_of(arguments, scratch)))
                .collect()
        };
        // Conditions and identifiers are code of the user. If one panics here, its action may be left out of the
        // call; if it is not, it panics again when the call runs.
        let touched = {
            let _in_body = InBody::of_replay();
            catch(&mut find_touched)
        };
        let Ok(touched) = touched else {
            *anything = call;
            return (call, Predecessors { all: call - 1, ..Predecessors::default() });
        };
        for (touch, slot) in &touched {
            let table = &tables[touch.table];
            let beside = match slot {
                Some(slot) => {
                    let of_slot = &slots[*slot];
                    before.each.push(of_slot.exclusive);
                    // Calls before the last exclusive one are done when that one is done.
                    Some(of_slot.last_shared(touch.mode)).filter(|&shared| shared > of_slot.exclusive)
                }
                None => Some(table.parts.before(touch.mode)),
            };
            before.all = before.all.max(table.whole.before(touch.mode)).max(beside.unwrap_or(0));
            if table.shares_keys && touch.mode == ActionMode::Exclusive {
                before.all = before.all.max(table.parts.exclusive);
            }
        }
        before.each.retain(|call| *call > before.all);
        for (touch, slot) in &touched {
            let table = &mut tables[touch.table];
            match slot {
                Some(slot) => {
                    slots[*slot].note(touch.mode, call);
                    table.parts.note(touch.mode, call);
                }
                None => table.whole.note(touch.mode, call),
            }
        }
        (call, before)
    }

    /// Called when the catalog has changed and all calls so far are done: what procedures touch is computed again.
    pub fn forget_tables(&mut self) {
        self.plans.clear();
        self.tables.clear();
        self.table_numbers.clear();
    }

    /// The number of the last call.
    pub fn last(&self) -> u64 {
        self.last
    }

    fn plan(&mut self, procedure: &Registered, catalog: &Catalog) -> AccessSet {
        let mut touches = Vec::new();
        for action in procedure.flow().phases().iter().flatten() {
            let Some(table) = action.table().and_then(|name| catalog.table(name).ok()) else {
                return AccessSet { touches: None };
            };
            let name = table.name();
            let schema = table.schema();
            let length = self.parts.get(&name).copied().unwrap_or(0);
            let looked_at = known(action).get(..length).unwrap_or_default();
            let column = |nth: usize| {
                let position = schema.primary_key().map_or(Some(nth), |key| key.get(nth).copied());
                position.and_then(|position| schema.columns().get(position)).cloned()
            };
            let parts: Option<Vec<_>> =
                looked_at.iter().enumerate().map(|(nth, part)| Some((*part, column(nth)?))).collect();
            let next = self.tables.len();
            let table = *self.table_numbers.entry(name).or_insert(next);
            if table == next {
                let unique = schema.indexes().iter().enumerate().filter(|(_, index)| index.unique);
                let mut unique = unique.map(|(position, _)| WhichIndex::Secondary(position));
                let shares_keys = unique.any(|index| !schema.begins_with_routing_fields(index, length));
                self.tables.push(TableUse { shares_keys, ..TableUse::default() });
            }
            // If the table does not have such an identifier, the call fails; until then it counts as the whole table.
            let mode = if action.index().is_some() { ActionMode::Shared } else { action.mode() };
            let condition = action.condition();
            touches.push(Access { table, mode, condition, parts: parts.unwrap_or_default() });
        }
        AccessSet { touches: Some(touches) }
    }
}

impl Access {
    /// The slot of the identifier in the table of hashes; none for the whole table.
    fn slot_of(&self, arguments: &[Value], scratch: &mut Key) -> Option<usize> {
        if self.parts.is_empty() {
            return None;
        }
        scratch.clear();
        for (part, column) in &self.parts {
            let value = part.value(arguments)?;
            // Encoded as in keys, so that equal numbers of different types are equal, and 0 and -0 are.
            column.append_to_key("", value.borrow(), scratch).ok()?;
        }
        Some(xxh3_64_with_seed(scratch, self.table as u64) as usize % SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Accounts;
    use crate::io::MemoryDisk;
    use crate::row::ColumnType;
    use crate::{Database, Options, TableDef};

    /// What each of these calls waits for. A call changes a row: its key, of type `ty`, and a name. The table has an
    /// index on these columns.
    fn waits(ty: ColumnType, calls: &[[Value; 2]], columns: &[&str], unique: bool) -> Vec<u64> {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        db.transact(|tx| {
            let columns_of = vec![Column::new("id", ty), Column::new("name", ColumnType::Int4)];
            tx.create_table(&TableDef::new("people", columns_of).with_primary_key(&["id"]))?;
            tx.create_index("people", "by", columns, unique)
        })
        .unwrap();
        let rename = Action::exclusive("people", |_, _, _| Ok(())).by_argument(0);
        let rename = Procedure::new("rename", [ty, ColumnType::Int4], rename);
        let rename = Registered::new(rename, &Accounts::new(1)).unwrap();
        let mut conflicts = Conflicts::new(std::iter::once(rename.flow()));
        let mut before = |arguments| conflicts.next(&rename, arguments, &db.core().storage.catalog).1.last();
        calls.iter().map(|arguments| before(arguments)).collect()
    }

    /// A name passes from one row to the other: the second call can take it only after the first has run.
    #[test]
    fn rows_that_may_come_to_have_one_unique_key_are_changed_in_the_order_of_the_log() {
        let calls = [[1, 7], [2, 7], [1, 8]].map(|arguments| arguments.map(Value::Int4));
        let waits = |columns: &[&str], unique| waits(ColumnType::Int4, &calls, columns, unique);
        assert_eq!(waits(&["name"], true), [0, 1, 2]);
        // Otherwise each key belongs to one row.
        assert_eq!(waits(&["name"], false), [0, 0, 1]);
        assert_eq!(waits(&["id", "name"], true), [0, 0, 1]);
    }

    /// Versions of a procedure may have different identifiers.
    #[test]
    fn what_a_call_touches_is_told_by_the_version_that_made_it() {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let people =
            TableDef::new("people", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
        db.transact(|tx| tx.create_table(&people).map(drop)).unwrap();
        let action = || Action::exclusive("people", |_, _, _| Ok(()));
        let [one, all] = [action().by_argument(0), action()];
        let version = |version, action: Action| {
            let procedure = Procedure::new("p", [ColumnType::Int4], action).with_version(version);
            Registered::new(procedure, &Accounts::new(1)).unwrap()
        };
        let (one, all) = (version(1, one), version(2, all));
        let mut conflicts = Conflicts::new([one.flow()].into_iter());
        let mut before = |procedure: &Registered, id| {
            conflicts.next(procedure, &[Value::Int4(id)], &db.core().storage.catalog).1.last()
        };
        assert_eq!([before(&one, 1), before(&one, 2), before(&all, 3), before(&one, 4)], [0, 0, 2, 3]);
    }

    #[test]
    fn identifiers_of_other_bits_are_one_where_keys_are() {
        let calls = [0.0, f64::NAN, -0.0, 1.0, -f64::NAN].map(|x| [Value::Float8(x), Value::Int4(7)]);
        assert_eq!(waits(ColumnType::Float8, &calls, &["name"], false), [0, 0, 1, 0, 2]);
    }
}
