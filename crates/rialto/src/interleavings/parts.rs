//! Calls that executor threads run on both sides of a held black/white sweep: each part of a phase notes what it has
//! read in a context of its own, and what it writes has the side of everything that the parts have touched.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::black_white::{ALSO_WHITE, BLACK, Held, WHITE, straddles, tcbw};
use super::consistent::Found;
use super::*;
use crate::isolate::RoutingRule;
use crate::row::{ColumnType, IntoKey, Key};
use crate::{Action, Arguments, Executors, Flow, Outputs, Procedure, Sent};

/// Beside [`BLACK`] and [`WHITE`], for each a row on the same side whose key belongs to the other thread.
const BLACK_TOO: i32 = 12;
const WHITE_TOO: i32 = 28;
/// There is no row of this key; the key belongs to the thread of [`WHITE`].
const ABSENT: i32 = 1_000;

/// What a call does to a row: it sets the row's number, or reads the row.
type Visit = (i32, Option<i64>);

fn visit<const AT: usize>(
    tx: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
) -> Result<()> {
    let (table, id): (_, i32) = (arguments.table()?, arguments.get(2 * AT)?);
    match arguments.get::<Option<i64>>(2 * AT + 1)? {
        Some(n) => set_n(tx, table, id, n)?,
        None => tx.look(table, id, |_| ()).map(drop)?,
    }
    let thread = std::thread::current();
    let queue = thread.name().and_then(|name| name.split('-').nth(1)).unwrap_or_default();
    outputs.push(Value::Text(queue.to_owned()));
    Ok(())
}

/// A call that visits two rows at the same time, each on the thread that owns its key; the second visit is a part's.
fn send(db: &Database, visits: [Visit; 2]) -> Sent {
    let arguments = visits.map(|(id, n)| [Value::Int4(id), n.map_or(Value::Null, Value::Int8)]);
    db.send_call_with(&level_1(), "visits", arguments.as_flattened()).unwrap()
}

fn end(sent: Sent) {
    let queues = sent.wait().unwrap();
    assert_eq!(
        queues.iter().map(|queue| format!("{queue:?}")).collect::<BTreeSet<_>>().len(),
        2,
        "{queues:?}"
    );
}

/// Runs `test` while a sweep is held, and returns what the copy alone has. With `bug`, what parts have read has no
/// side.
fn sweep(bug: bool, test: impl FnOnce(&Held)) -> Found {
    let options = Options { engine: Executors::of(4, 2).handing_over().into(), ..options() };
    let (_, found) = Held::sweep(tcbw(), options, |held| {
        let db = &held.db;
        // The first two executors belong to one thread, the others to the other one. Neighbouring datasets belong to
        // different threads, and so do the first and the last.
        let version = db.table("t").unwrap().version();
        let bounds = [10, 20, 30].map(|bound: i32| {
            let mut key = Key::new();
            bound.encode_prefix_into(version.schema.key_shape(WhichIndex::Primary), &mut key).unwrap();
            key
        });
        let rule = RoutingRule::new(bounds.to_vec(), vec![0, 2, 1, 3]);
        db.core().locks.route(version.primary_id, Some(rule));
        let flow = Flow::new().phase([
            Action::exclusive("t", visit::<0>).by_argument(0),
            Action::exclusive("t", visit::<1>).by_argument(2),
        ]);
        let arguments = [ColumnType::Int4, ColumnType::Int8, ColumnType::Int4, ColumnType::Int8];
        db.register(Procedure::new("visits", arguments, flow)).unwrap();
        db.core().contexts.forgets_parts.store(bug, Ordering::Relaxed);
        test(held);
    });
    found
}

/// A transaction changes a black row, and then a call comes that is on both sides. Returns whether the call was found
/// to straddle, and what the copy has.
fn of_both(visits: [Visit; 2], bug: bool) -> (bool, Found) {
    let mut straddles = false;
    let found = sweep(bug, |held| {
        assert_eq!(held.write(&[BLACK], 3), 1);
        let mut sent = send(&held.db, visits);
        until("it is placed or straddling", || held.restarts() > 0 || sent.is_done());
        straddles = held.restarts() > 0;
        held.go_on();
        end(sent);
    });
    (straddles, found)
}

#[test]
fn a_call_on_one_side_in_all_its_parts_commits_beside_the_sweep() {
    let found = sweep(false, |held| {
        end(send(&held.db, [(WHITE, Some(2)), (WHITE_TOO, Some(2))]));
        end(send(&held.db, [(BLACK, Some(3)), (BLACK_TOO, Some(3))]));
        end(send(&held.db, [(BLACK, None), (WHITE, None)]));
        assert_eq!(held.restarts(), 0);
    });
    assert_eq!([WHITE, WHITE_TOO, BLACK, BLACK_TOO].map(|id| found[&id].0), [2, 2, 1, 1]);
}

/// It straddles whichever part was on the other side, and whether that part read or wrote there.
#[test]
fn a_call_straddles_whichever_part_was_on_the_other_side() {
    for visits in [
        [(WHITE, Some(2)), (BLACK, None)],
        [(BLACK, None), (WHITE, Some(2))],
        [(WHITE, Some(2)), (BLACK, Some(2))],
        [(WHITE, None), (BLACK, Some(2))],
        [(BLACK, Some(2)), (WHITE, None)],
    ] {
        let (straddles, found) = of_both(visits, false);
        assert!(straddles, "{visits:?}");
        assert_eq!((found[&BLACK].0, found[&WHITE].0), (1, 1), "{visits:?}: it is black in the end");
    }
    // The copy has what was made from the black row, but not the black row.
    let (straddles, found) = of_both([(WHITE, Some(2)), (BLACK, None)], true);
    assert!(!straddles, "the test's own premise: a part's reads have no side");
    assert_eq!(
        (found[&BLACK].0, found[&WHITE].0),
        (1, 2),
        "the test's own premise: it is of no state that ever was"
    );
}

/// A part has read that there is no row, where a black transaction removed it; or a black part has read so, and then
/// another transaction inserts the row.
#[test]
fn what_a_part_has_not_found_has_a_side_too() {
    for bug in [false, true] {
        sweep(bug, |held| {
            let (db, table) = (&held.db, &held.table);
            end(send(db, [(BLACK, Some(3)), (ABSENT, None)]));
            let straddles = straddles(db, |tx| {
                set_n(tx, table, ALSO_WHITE, 2)?;
                tx.insert(table, &[Value::Int4(ABSENT), Value::Int8(0), text(7_000)])
            });
            assert_eq!(straddles, !bug, "an insert where a black part has found nothing");
        });
        sweep(bug, |held| {
            commit(&held.db, |tx| tx.delete(&held.table, BLACK).map(|there| assert!(there)));
            let mut sent = send(&held.db, [(WHITE, Some(2)), (BLACK, None)]);
            until("it is placed or straddling", || held.restarts() > 0 || sent.is_done());
            assert_eq!(held.restarts() > 0, !bug, "what a black one has removed");
            held.go_on();
            end(sent);
        });
    }
}
