//! What a call of `tests/common/calls.rs` reports that it did.

use super::history::{Event, Predicate};
use crate::interleavings::common::calls::{DELETE, SCAN, STEPS, WRITE, argument};
use crate::row::Value;

fn int(values: &mut impl Iterator<Item = Value>) -> i32 {
    match values.next() {
        Some(Value::Int4(value)) => value,
        other => panic!("expected an int4, found {other:?}"),
    }
}

/// What a call reports that it did, for the checkers: the reads of rows that it had not written, and one write a row.
pub fn events(arguments: &[Value], outputs: Vec<Value>) -> Vec<Event> {
    let Value::Int8(version) = arguments[0] else { panic!("{arguments:?}") };
    let version = version as u64;
    let parts: Vec<(i32, i32)> = (0..STEPS)
        .map(|step| match [argument(step, 1), argument(step, 2)].map(|at| &arguments[at]) {
            [Value::Int4(key), Value::Int4(part)] => (*key, *part),
            other => panic!("{other:?}"),
        })
        .collect();
    let (mut events, mut values) = (Vec::new(), outputs.into_iter().peekable());
    let done = arguments[1..].chunks(3).enumerate().filter(|(_, step)| step[0] != Value::Int4(0));
    for (nth, _) in done {
        let (what, key) = (int(&mut values), int(&mut values));
        assert_eq!(key, parts[nth].0, "outputs stand in the flow's order");
        if what == SCAN {
            let (high, count) = (int(&mut values), int(&mut values));
            let seen = (0..count)
                .map(|_| {
                    let key = int(&mut values);
                    let Some(Value::Int8(version)) = values.next() else { panic!("a version") };
                    (key, version as u64)
                })
                .collect();
            events.push(Event::Scan { predicate: Predicate::Keys(key, high), seen });
            continue;
        }
        let over = match values.next() {
            Some(Value::Int8(version)) => Some(version as u64),
            Some(Value::Null) => None,
            other => panic!("{other:?}"),
        };
        let group = match (what, over) {
            (WRITE, _) => Some(Some(parts[nth].1)),
            (DELETE, Some(_)) => Some(None),
            _ => None,
        };
        events.push(match group {
            Some(group) => Event::Write { key, over, version, group },
            None => Event::Read { key, seen: over },
        });
    }
    assert_eq!(values.next(), None);
    events
}

/// Whether a call writes no row twice and reads no row that it has written: the checkers accept only these calls.
pub fn is_plain(arguments: &[Value]) -> bool {
    let steps: Vec<(i32, i32, i32)> = arguments[1..]
        .chunks(3)
        .map(|step| match step {
            [Value::Int4(what), Value::Int4(key), Value::Int4(last)] => (*what, *key, *last),
            other => panic!("{other:?}"),
        })
        .collect();
    steps.iter().enumerate().all(|(nth, &(what, key, _))| {
        let is_written = |&(before, at, _): &(i32, i32, i32)| matches!(before, WRITE | DELETE) && at == key;
        let scans_written = what == SCAN && steps[..nth].iter().any(|step| matches!(step.0, WRITE | DELETE));
        what == 0 || !(steps[..nth].iter().any(is_written) || scans_written)
    })
}
