//! How many locks are probed to find what a request waits for, if other transactions hold many locks. Also locks that
//! were granted, but of which their owners could not take note.

use std::ops::Bound;

use super::super::Seed;
use super::*;
use crate::probes::PROBES;

/// The number of waiting requests, each for all keys.
const WAITING: u16 = 40;

/// The first of their owners.
const FIRST_WAITING: u16 = 1_000;

/// The owner that holds one lock.
const SMALL: u16 = 0;

/// What the transactions lock.
#[derive(Debug, Clone, Copy)]
enum Locked {
    Keys,
    /// Ranges of two keys each.
    Ranges,
    /// Ranges from a key to the end, each of which begins before those that were locked before it.
    RangesToTheEnd,
}

impl Locked {
    fn nth(self, nth: u32) -> Span {
        let (from, to) = ((2 * nth).to_be_bytes(), (2 * nth + 2).to_be_bytes());
        let from = Bound::Included(&from[..]);
        let span = match self {
            Locked::Keys => Span::between(from, from),
            Locked::Ranges => Span::between(from, Bound::Excluded(&to)),
            Locked::RangesToTheEnd => Span::between(from, Bound::Unbounded),
        };
        span.expect("it has keys")
    }
}

fn request(owner: u16, span: SpanRef<'_>, mode: RecordMode) -> LocalRequest<'_> {
    let (index, transaction) = (IndexId(1), owner);
    let hash = Seed(1).hash_of(index, span);
    LocalRequest { owner, transaction, index, span, mode, version: 0, part: false, hash }
}

/// Two numbers of probes, for each waiting request: for a request of the owner of one lock, for which all waiting
/// requests wait; and to find what the waiting requests wait for. Each of the large transactions holds so many locks,
/// mixed with those of the others. The one lock is before all of them, in their middle, or behind.
fn probes_beside(large: &[u16], locks: u32, locked: Locked) -> [[u64; 2]; 3] {
    let mut table = LocalLocks::default();
    let hold = |table: &mut LocalLocks, owner, nth| {
        let span = locked.nth(nth);
        table.held.hold(request(owner, span.borrow(), RecordMode::Shared)).expect("it had no such lock")
    };
    for nth in (0..locks).rev() {
        for (at, &owner) in (1..).zip(large) {
            hold(&mut table, owner, nth * 4 + at);
        }
    }
    for nth in 0..WAITING {
        table.enqueue(request(FIRST_WAITING + nth, SpanRef::all(), RecordMode::Exclusive), 0);
    }
    let more = locked.nth(locks * 4 + 4);
    let probes = |run: &mut dyn FnMut()| {
        // The order of keys is made only when it pays.
        (0..20).for_each(|_| run());
        let before = PROBES.get();
        run();
        PROBES.get() - before
    };
    [0, locks / 2, locks].map(|place| {
        let lock = hold(&mut table, SMALL, place * 4);
        let asks = probes(&mut || {
            assert!(table.is_free_for(request(SMALL, more.borrow(), RecordMode::Shared)));
        });
        let sees = probes(&mut || {
            for nth in 0..WAITING {
                let (_, blockers) = table.blockers(FIRST_WAITING + nth).expect("it waits");
                assert_eq!(blockers.holders, [&[SMALL], large].concat());
            }
            table.grant_waiting(|_, _| panic!("it goes on waiting"));
        });
        table.held.release(SMALL, lock, drop);
        [asks, sees].map(|probes| probes / u64::from(WAITING))
    })
}

#[test]
fn what_requests_wait_for_is_seen_in_few_probes_beside_large_transactions() {
    // The first of these transactions have bits of their own in the summaries of locks, the last do not.
    let larges: [&[u16]; 4] = [&[1], &[1, 2], &[1, 2, 3], &[100, 200]];
    for large in larges {
        for locked in [Locked::Keys, Locked::Ranges, Locked::RangesToTheEnd] {
            let few = probes_beside(large, 8_000, locked);
            // Checked first: with a fault, the larger number would take very long.
            assert!(
                few.as_flattened().iter().all(|&few| few < 400),
                "{few:?} probes a request that waits beside 8,000 {locked:?} of each of {large:?}"
            );
            let many = probes_beside(large, 32_000, locked);
            for (&few, &many) in few.as_flattened().iter().zip(many.as_flattened()) {
                // A tree may be twice as high as another one of its size.
                assert!(
                    many < 2 * few.max(200),
                    "{few} probes a request that waits beside 8,000 {locked:?} of each of {large:?}, {many} beside 32,000"
                );
            }
        }
    }
}

/// An owner could take note of neither of two locks. Each is known by the wait in which it was granted.
#[test]
fn granted_locks_are_told_apart_by_their_waits() {
    for first_is_released_first in [true, false] {
        let mut table = LocalLocks::default();
        let (owner, holder) = (1, 2);
        let spans = [SpanRef::point(b"k"), SpanRef::point(b"l")];
        let held = spans.map(|span| table.ask(request(holder, span, RecordMode::Exclusive)));
        let waits = [7, u64::from(u32::MAX) + 7];
        for (span, wait) in spans.into_iter().zip(waits) {
            let request = request(owner, span, RecordMode::Exclusive);
            assert_eq!(table.ask(request), LocalAnswer::Wait);
            table.enqueue(request, wait);
        }
        for answer in held {
            let LocalAnswer::New(lock) = answer else { panic!("{answer:?}") };
            table.held.release(holder, lock, |_| ());
        }
        table.grant_waiting(|_, _| true);
        let mut order = [0, 1];
        if !first_is_released_first {
            order.reverse();
        }
        for (nth, at) in order.into_iter().enumerate() {
            let held = table.noted(owner, HeldLocal::of_wait(0, waits[at])).expect("it was granted");
            assert_eq!(table.noted(owner, held), Some(held), "its number is known now");
            table.held.release(owner, held.lock, |_| ());
            for (other, span) in spans.into_iter().enumerate() {
                let is_free = table.is_free_for(request(holder, span, RecordMode::Exclusive));
                assert_eq!(is_free, nth == 1 || other == at, "the span {other}");
            }
        }
        assert_eq!(table.noted(owner, HeldLocal::of_wait(0, waits[0])), None);
        assert!(table.is_idle());
    }
}
