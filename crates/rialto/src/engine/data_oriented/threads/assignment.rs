//! Which thread runs which actions of a phase.

use smallvec::{SmallVec, smallvec};

use super::execution::Here;
use crate::commit::write_set::key_of;
use crate::engine::phase::BoundAction;
use crate::engine::table_action::TableAction;
use crate::fault_injection;
use crate::ids::TableId;
use crate::row::WhichIndex;
use crate::txn::context::Context;

/// The actions of a phase that one thread runs. There is at most one part for each thread.
pub(super) struct AssignedPart {
    pub queue: usize,
    /// Their positions in the phase, ascending.
    pub actions: SmallVec<[u16; 8]>,
}

/// Which thread an action prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Affinity {
    /// The transaction's own, wherever it runs: the action overlaps what earlier phases wrote, or may touch a whole
    /// table.
    Home,
    /// The thread of this queue.
    Thread(usize),
    /// Any thread: the action works on what is only read.
    Any,
}

/// Divides the actions of a phase among the threads that own the executors of their identifiers. The first part is
/// the transaction's own. Actions that overlap are in one part. None of the actions is a plain closure, which would
/// overlap all.
pub(super) fn assign(
    context: &mut Context,
    actions: &[BoundAction<'_>],
    positions: impl Iterator<Item = u16>,
    here: &Here<'_>,
) -> SmallVec<[AssignedPart; 4]> {
    let mut affinities: SmallVec<[Affinity; 16]> = SmallVec::new();
    let mut first = None;
    for action in actions {
        let Some(action) = action.on_table().filter(|action| action.is_span()) else {
            affinities.push(Affinity::Home);
            continue;
        };
        let wanted = action.wanted();
        let executor = here.core.locks.first_executor(&mut context.owner, wanted.index, wanted.span);
        affinities.push(match here.queues.owner_of(executor) {
            Some(queue) => {
                first.get_or_insert(queue);
                Affinity::Thread(queue)
            }
            None => Affinity::Any,
        });
    }
    let home = first.unwrap_or(here.queue);
    let is_one = affinities.iter().all(|affinity| {
        matches!(affinity, Affinity::Home | Affinity::Any) || *affinity == Affinity::Thread(home)
    });
    if is_one {
        return SmallVec::from_iter([AssignedPart { queue: home, actions: positions.collect() }]);
    }
    keep_together(context, actions, &mut affinities);
    let mut parts: SmallVec<[AssignedPart; 4]> = SmallVec::new();
    // Its own actions come first, if there are any.
    let own = affinities.iter().position(|affinity| *affinity == Affinity::Home);
    parts.extend(own.map(|_| AssignedPart { queue: home, actions: SmallVec::new() }));
    for (position, affinities) in positions.zip(affinities) {
        let queue = match affinities {
            Affinity::Home | Affinity::Any => home,
            Affinity::Thread(queue) => queue,
        };
        match parts.iter_mut().find(|part| part.queue == queue) {
            Some(part) => part.actions.push(position),
            None => parts.push(AssignedPart { queue, actions: SmallVec::from_iter([position]) }),
        }
    }
    parts
}

/// The actions of a phase in the order of a serial plan, by their positions in `actions`. Those at the positions
/// `first` come before the others, but none comes before an action that overlaps it and stands before it in the flow.
pub(super) fn in_turn(actions: &[BoundAction<'_>], positions: &[u16], first: &[u8]) -> SmallVec<[u16; 16]> {
    /// Puts an action behind those that overlap it and stand before it in the flow, after these have been put in the
    /// same way. Actions that are in order already stay.
    fn put(actions: &[BoundAction<'_>], nth: usize, ordered: &mut [bool], order: &mut SmallVec<[u16; 16]>) {
        if std::mem::replace(&mut ordered[nth], true) {
            return;
        }
        for before in 0..nth {
            if !ordered[before] && overlap(&actions[before], &actions[nth]) {
                put(actions, before, ordered, order);
            }
        }
        order.push(nth as u16);
    }
    let mut order = SmallVec::new();
    let mut ordered: SmallVec<[bool; 16]> = smallvec![false; actions.len()];
    // There are few of these: an action's number has 8 bits there.
    let first = first.iter().filter_map(|&at| positions.binary_search(&u16::from(at)).ok());
    first.for_each(|nth| put(actions, nth, &mut ordered, &mut order));
    // All actions that have to come before one of these are in order, or precede it in `actions`.
    order.extend((0..actions.len()).filter(|&nth| !ordered[nth]).map(|nth| nth as u16));
    order
}

/// Whether one action may see what the other does, or whether that is hard to decide. Then they keep the flow's
/// order.
fn overlap(one: &BoundAction<'_>, other: &BoundAction<'_>) -> bool {
    let (BoundAction::OnTable(one), BoundAction::OnTable(other)) = (one, other) else { return true };
    let is_apart = one.is_span() && other.is_span() && one.index() == other.index() && {
        !one.key.starts_with(&other.key) && !other.key.starts_with(&one.key)
    };
    // Different rows may have the same unique key one after the other.
    let may_meet = || one.writes() && other.writes() && one.has_unique_keys();
    one.table_id() == other.table_id() && (!is_apart || may_meet())
}

/// The thread that runs a phase one action after the other: that of the first action whose identifier has an owner.
pub(super) fn assign_in_turn<'a>(
    context: &mut Context,
    in_order: impl Iterator<Item = &'a BoundAction<'a>>,
    here: &Here<'_>,
) -> usize {
    let spans = in_order.filter_map(BoundAction::on_table).filter(|action| action.is_span());
    let mut owners = spans.map(TableAction::wanted).filter_map(|wanted| {
        let executor = here.core.locks.first_executor(&mut context.owner, wanted.index, wanted.span);
        here.queues.owner_of(executor)
    });
    owners.next().unwrap_or(here.queue)
}

/// Assigns actions that overlap the transaction's writes to the transaction itself, and actions that overlap each
/// other to one of them.
fn keep_together(context: &Context, actions: &[BoundAction<'_>], affinities: &mut [Affinity]) {
    let on_tables = actions.iter().enumerate().filter_map(|(at, action)| Some((at, action.on_table()?)));
    let on_tables: SmallVec<[(usize, &TableAction<'_>); 16]> = on_tables.collect();
    let mut tables: SmallVec<[OfTable; 4]> = SmallVec::new();
    for &(_, action) in &on_tables {
        let id = action.table_id();
        let at = tables.iter().position(|table| table.id == id).unwrap_or_else(|| {
            tables.push(OfTable { id, is_whole: false, is_written: false, reads_entries: false });
            tables.len() - 1
        });
        tables[at].is_whole |= !action.is_span();
        tables[at].is_written |= action.writes();
        tables[at].reads_entries |= action.which() != WhichIndex::Primary;
    }
    for &(at, action) in &on_tables {
        let is_its = |table: &OfTable| {
            table.is_whole
                || !fault_injection::is_on("entries-beside-rows")
                    && (table.is_written && action.which() != WhichIndex::Primary
                        || table.reads_entries && action.writes())
        };
        let is_its = tables.iter().any(|table| table.id == action.table_id() && is_its(table));
        if is_its || has_written(context, action) {
            affinities[at] = Affinity::Home;
        }
    }
    let mut sorted = on_tables;
    sorted.retain(|(_, action)| action.is_span());
    // In this order the keys that begin with a key follow right behind it.
    sorted.sort_by(|(_, one), (_, other)| (one.index(), &one.key).cmp(&(other.index(), &other.key)));
    let mut changed = true;
    while std::mem::take(&mut changed) {
        let mut begin = 0;
        for next in 1..sorted.len() {
            let (one, other) = (sorted[begin].1, sorted[next].1);
            if one.index() != other.index() || !other.key.starts_with(&one.key) {
                begin = next;
                continue;
            }
            let (one, other) = (sorted[begin].0, sorted[next].0);
            let both = match (affinities[one], affinities[other]) {
                (Affinity::Home, _) | (_, Affinity::Home) => Affinity::Home,
                (Affinity::Any, other) => other,
                (one, _) => one,
            };
            changed |= affinities[one] != both || affinities[other] != both;
            (affinities[one], affinities[other]) = (both, both);
        }
    }
}

/// How the actions of a phase use one table.
struct OfTable {
    id: TableId,
    /// One of them may touch all of it.
    is_whole: bool,
    /// One of them changes rows.
    is_written: bool,
    /// One of them reads entries of a secondary index, which rows that change may have or may get.
    reads_entries: bool,
}

/// Whether the transaction has written rows that the action may read.
fn has_written(context: &Context, action: &TableAction<'_>) -> bool {
    context.writes.writes().iter().any(|write| {
        context.tables.id(write.slot) == action.table_id()
            && (action.which() != WhichIndex::Primary
                || key_of(write, context.packet_bytes()).starts_with(&action.key))
    })
}
