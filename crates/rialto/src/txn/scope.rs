//! [`Scope`]: what the running action may touch. Every operation checks this, so that a flow means the same on each
//! engine: an access outside of the scope is refused with an error that names the action and the access. If the
//! action's identifier is locked, the rows and keys under it need no locks of their own.

use std::ops::Bound;

use super::context::Context;
use crate::error::{Error, Result};
use crate::ids::TableId;
use crate::isolate::{RecordMode, SpanRef};
use crate::opening::TableKey;
use crate::row::{Key, WhichIndex};
use crate::store::Table;

/// What an operation does with what it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
}

/// What an action works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    pub table: TableKey,
    /// The table's position in the transaction's list of tables.
    pub slot: u32,
    /// Whether the action writes; the table is locked by the intention for this.
    pub mode: RecordMode,
    pub which: WhichIndex,
    /// The number of values in its identifier.
    pub parts: usize,
    /// Whether these are values of the first columns of a table without a primary key.
    pub by_columns: bool,
    /// The mode in which its identifier is locked; `None` if it is not.
    pub locked: Option<RecordMode>,
    /// How many savepoints there were when it began; these are not its own.
    pub savepoints: usize,
    /// Whether the transaction is read-only after the action.
    pub read_only: bool,
}

/// See the [module's documentation](self). While it is off, anything may be touched.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    on: Option<Reach>,
    /// The prefix of the keys that the action may touch.
    prefix: Key,
    /// The action's first access outside of its scope, in words.
    out_of_scope: Option<Box<str>>,
}

impl Scope {
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// Whether the running action, if any, has an identifier.
    pub fn has_identifier(&self) -> bool {
        self.on.is_some_and(|reach| reach.parts > 0)
    }

    /// Whether the row of this key of the table's identity may be touched; it does not say why not.
    #[inline(always)]
    pub fn has_key(&self, table: TableId, key: &Key) -> bool {
        match &self.on {
            None => true,
            Some(reach) => {
                reach.table.id() == table
                    && reach.which == WhichIndex::Primary
                    && !reach.by_columns
                    && key.starts_with(&self.prefix)
            }
        }
    }

    /// The prefix of the next action's keys, to be set before it begins.
    #[inline]
    pub fn prefix_mut(&mut self) -> &mut Key {
        &mut self.prefix
    }

    /// Begins an action.
    #[inline]
    pub fn begin(&mut self, reach: Reach) {
        self.on = Some(reach);
    }

    /// The place of the table, if the action is on it and has an intention lock of this mode or a stronger one.
    #[inline(always)]
    pub fn slot_of(&self, table: TableKey, mode: RecordMode) -> Option<u32> {
        let reach = self.on.as_ref()?;
        (reach.table == table && suffices(reach.mode, mode)).then_some(reach.slot)
    }

    /// Whether the action is on the table at this position, with an intention lock of this mode or a stronger one.
    #[inline(always)]
    pub fn is_at(&self, slot: u32, mode: RecordMode) -> bool {
        self.on.as_ref().is_some_and(|reach| reach.slot == slot && suffices(reach.mode, mode))
    }

    /// Whether the row of a primary key needs no lock in this mode.
    #[inline]
    pub fn has_locked(&self, slot: u32, key: &[u8], mode: RecordMode) -> bool {
        self.on.as_ref().is_some_and(|reach| {
            reach.slot == slot
                && reach.which == WhichIndex::Primary
                && reach.locked.is_some_and(|locked| suffices(locked, mode))
                && key.starts_with(&self.prefix)
        })
    }

    /// Whether some keys need no lock.
    pub fn is_locked(&self) -> bool {
        self.on.as_ref().is_some_and(|reach| reach.locked.is_some())
    }

    /// Whether a span of an index's keys needs no lock in this mode.
    pub fn has_locked_span(&self, slot: u32, which: WhichIndex, span: SpanRef<'_>, mode: RecordMode) -> bool {
        self.on.as_ref().is_some_and(|reach| {
            reach.slot == slot
                && reach.which == which
                && reach.locked.is_some_and(|locked| suffices(locked, mode))
                && SpanRef::prefix(&self.prefix).covers(span)
        })
    }

    /// Notes a choice of whether the transaction may write. Returns whether it is read-only now: a shared action is
    /// read-only, whatever it chooses.
    pub fn set_read_only(&mut self, read_only: bool) -> bool {
        let Some(reach) = &mut self.on else { return read_only };
        reach.read_only = read_only;
        read_only || reach.mode == RecordMode::Shared
    }

    /// Whether the transaction is read-only after the running action.
    pub fn is_read_only_after(&self) -> bool {
        self.on.is_some_and(|reach| reach.read_only)
    }

    /// How many savepoints were made before the running action.
    pub fn savepoints_before(&self) -> usize {
        self.on.map_or(0, |reach| reach.savepoints)
    }

    /// Ends the action. Returns its first access outside of its scope, even if its body ignored the error.
    #[inline]
    pub fn end(&mut self) -> Option<Box<str>> {
        self.on = None;
        self.out_of_scope.take()
    }

    /// Whether all keys between these bounds begin as the identifier's keys do.
    fn has(&self, lower: &Bound<Key>, upper: &Bound<Key>) -> bool {
        if self.prefix.is_empty() {
            return true;
        }
        let begins = match lower {
            Bound::Included(key) | Bound::Excluded(key) => key.starts_with(&self.prefix),
            Bound::Unbounded => false,
        };
        let ends = match upper {
            Bound::Included(key) | Bound::Excluded(key) if key.starts_with(&self.prefix) => true,
            // The end of the keys that begin with the prefix.
            Bound::Excluded(key) => {
                let mut end = self.prefix.clone();
                end.turn_into_prefix_end() && *key == end
            }
            Bound::Included(_) => false,
            Bound::Unbounded => self.prefix.iter().all(|byte| *byte == u8::MAX),
        };
        begins && ends
    }
}

impl Context {
    /// An error unless the row of the key in `self.key` of the table's identity may be touched.
    #[inline(always)]
    pub fn stay_at_key(&mut self, slot: u32, touch: Touch) -> Result<()> {
        if self.scope.is_on() { self.check_key(slot, touch) } else { Ok(()) }
    }

    /// The same for the row in `self.body`, which is about to be inserted.
    #[inline(always)]
    pub fn stay_at_row(&mut self, slot: u32) -> Result<()> {
        if self.scope.is_on() { self.check_row(slot) } else { Ok(()) }
    }

    #[inline(never)]
    fn check_key(&mut self, slot: u32, touch: Touch) -> Result<()> {
        let Scope { on: Some(reach), prefix, .. } = &self.scope else { return Ok(()) };
        if self.tables.id(slot) != reach.table.id() {
            return self.refuse_table(slot, touch);
        }
        if reach.which != WhichIndex::Primary {
            return self.refuse_access(format!("{} {}, {ENTRIES_ONLY}", verb(touch), self.print_row(slot)));
        }
        if reach.by_columns {
            return self.refuse_access(format!(
                "{} {} by the hidden number, which says nothing of where a row belongs: leave the identifier out",
                verb(touch),
                self.print_row(slot)
            ));
        }
        if self.key.starts_with(prefix) {
            return Ok(());
        }
        self.refuse_access(format!(
            "{} {}, which its identifier does not begin",
            verb(touch),
            self.print_row(slot)
        ))
    }

    #[inline(never)]
    fn check_row(&mut self, slot: u32) -> Result<()> {
        let Scope { on: Some(reach), prefix, .. } = &self.scope else { return Ok(()) };
        if !reach.by_columns || self.tables.id(slot) != reach.table.id() {
            return self.check_key(slot, Touch::Write);
        }
        let (table, mut first) = (self.tables.at(slot), Key::new());
        table.schema.first_columns_of_row(&self.body[table.row_at()..], reach.parts, &mut first);
        if first == *prefix {
            return Ok(());
        }
        let row = table.schema.print_first_columns(&first);
        self.refuse_access(format!("wrote a row {row}, which its identifier does not begin"))
    }

    /// An error unless the table may be touched at all. It is checked before anything of the table is locked.
    pub fn stay_in_table(&mut self, table: &Table, touch: Touch) -> Result<()> {
        match self.scope.on {
            Some(reach) if reach.table != table.key() => {
                let slot = self.find_table(table)?;
                self.refuse_table(slot, touch)
            }
            _ => Ok(()),
        }
    }

    /// An error unless the rows, or only the `entries`, with these keys in an index may be touched.
    pub fn stay_in_range(
        &mut self,
        slot: u32,
        which: WhichIndex,
        bounds: (&Bound<Key>, &Bound<Key>),
        entries: bool,
    ) -> Result<()> {
        let Some(reach) = self.scope.on else { return Ok(()) };
        let index = self.tables.at(slot).schema.key_shape(which).name();
        if reach.which != WhichIndex::Primary && !(entries && which == reach.which) {
            return self.refuse_access(format!("read rows by \"{index}\", {ENTRIES_ONLY}"));
        }
        let leads = which == reach.which && !reach.by_columns;
        if !leads && !self.tables.at(slot).schema.begins_with_routing_fields(which, reach.parts) {
            return self.refuse_access(format!(
                "read by \"{index}\", whose keys do not begin with the columns of its identifier: make that an action on \
                 the index (Action::on_index)"
            ));
        }
        if self.scope.has(bounds.0, bounds.1) {
            return Ok(());
        }
        let schema = &self.tables.at(slot).schema;
        let print = |bound: &Bound<Key>, none: &str| match bound {
            Bound::Included(key) | Bound::Excluded(key) => schema.print_key(which, key),
            Bound::Unbounded => none.to_owned(),
        };
        let (from, to) = (print(bounds.0, "the beginning"), print(bounds.1, "the end"));
        self.refuse_access(format!(
            "read keys of \"{index}\" from {from} to {to}, which its identifier does not all begin"
        ))
    }

    /// An error if an action runs: only a plain closure changes definitions.
    pub fn stay_off_definitions(&mut self) -> Result<()> {
        match self.scope.is_on() {
            false => Ok(()),
            true => self
                .refuse_access("changed definitions, which only a plain closure may (Flow::of)".to_owned()),
        }
    }

    fn refuse_table<T>(&mut self, slot: u32, touch: Touch) -> Result<T> {
        let to = if touch == Touch::Write { " to" } else { "" };
        let (other, verb) = (self.tables.at(slot).name().to_owned(), verb(touch));
        self.refuse_access(format!("{verb}{to} table \"{other}\": make that an action of its own"))
    }

    #[cold]
    #[inline(never)]
    fn refuse_access<T>(&mut self, what: String) -> Result<T> {
        let reach = self.scope.on.expect("only an action has a scope");
        let table = self.tables.find_key(reach.table).map(|slot| &self.tables.at(slot).schema);
        let action = match table {
            Some(schema) => {
                let on = match reach.which {
                    WhichIndex::Primary => format!("action on table \"{}\"", schema.table()),
                    which => {
                        let index = schema.key_shape(which).name();
                        format!("action on index \"{index}\" of table \"{}\"", schema.table())
                    }
                };
                let identifier = match reach {
                    Reach { parts: 0, .. } => "all of it".to_owned(),
                    Reach { by_columns: true, .. } => schema.print_first_columns(&self.scope.prefix),
                    Reach { which, .. } => schema.print_key(which, &self.scope.prefix),
                };
                format!("{on}, identified by {identifier},")
            }
            None => "action".to_owned(),
        };
        let reason = format!("its {action} {what}");
        self.scope.out_of_scope.get_or_insert_with(|| reason.as_str().into());
        Err(Error::Unsupported { what: reason })
    }

    fn print_row(&self, slot: u32) -> String {
        let key = self.tables.at(slot).schema.print_key(WhichIndex::Primary, &self.key);
        format!("the row {key}")
    }
}

fn suffices(held: RecordMode, asked: RecordMode) -> bool {
    held == RecordMode::Exclusive || asked == RecordMode::Shared
}

/// Why an action on an index may not read rows.
const ENTRIES_ONLY: &str = "but an action on an index reads its entries (Transaction::probe, Transaction::entries): read \
                            rows in an action of a later phase, identified by what this one gives (Action::by_output)";

fn verb(touch: Touch) -> &'static str {
    match touch {
        Touch::Read => "read",
        Touch::Write => "wrote",
    }
}
