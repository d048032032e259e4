//! A table's locks against a list of them: what overlaps, what is in the way, and what is covered.

use std::ops::Bound;
use std::time::Instant;

use super::super::Seed;
use super::*;
use crate::io::Random;
use crate::looks::LOOKS;

/// Keys of up to two bytes: few, so that spans overlap, and some behind whose prefixes nothing comes.
fn key(random: &mut Random) -> Vec<u8> {
    (0..random.below(3)).map(|_| [0, 1, 2, 254, 255][random.below(5) as usize]).collect()
}

fn span(random: &mut Random) -> Span {
    loop {
        let (lower, upper) = (key(random), key(random));
        let (lower, upper) = (&lower[..], &upper[..]);
        let span = match random.below(5) {
            0 => Some(SpanRef::point(lower).to_owned()),
            1 => Some(Span::prefix(lower)),
            2 => Span::between(Bound::Included(lower), Bound::Unbounded),
            3 => Span::between(Bound::Excluded(lower), Bound::Included(upper)),
            _ => Span::between(Bound::Included(lower), Bound::Excluded(upper)),
        };
        if let Some(span) = span {
            return span;
        }
    }
}

/// Two owners each run a transaction.
fn leader_of(owner: u16) -> u16 {
    owner & !1
}

#[test]
fn a_table_finds_what_a_list_of_its_locks_has() {
    let (began, limit) = (Instant::now(), Random::test_time_from_environment());
    let mut found = [0; 3];
    let mut random = Random::new(Random::seed_from_environment());
    while began.elapsed() < limit {
        let mut table = LocalLocks::default();
        let mut held: Vec<(u16, u32)> = Vec::new();
        for _ in 0..200 {
            let (owner, span) = (random.below(4) as u16, span(&mut random));
            let index = IndexId(1 + random.below(3) as u32);
            let mode = if random.chance(1, 3) { RecordMode::Exclusive } else { RecordMode::Shared };
            let part = random.chance(1, 8);
            let (span, hash) = (span.borrow(), Seed(1).hash_of(index, span.borrow()));
            let request =
                Request { owner, transaction: leader_of(owner), index, span, mode, version: 0, part, hash };
            let listed = || table.locks.iter().filter(|lock| !lock.holders.is_empty() && lock.index == index);
            let overlapping = || listed().filter(|lock| lock.span.borrow().overlaps(span));
            let is_in_the_way =
                |holder: &&Holder| holder.transaction != request.transaction && conflict(holder.mode, mode);
            let enemies = overlapping().flat_map(|lock| &lock.holders).filter(is_in_the_way).count();
            let is_covered = listed().filter(|lock| !lock.span.borrow().is_point()).any(|lock| {
                lock.span.borrow().covers(span)
                    && lock
                        .holder(owner)
                        .and_then(|holder| holder.whole)
                        .is_some_and(|held| suffices(held, mode))
            });
            let is_kins = overlapping().flat_map(|lock| &lock.holders).any(|holder| {
                holder.transaction == request.transaction
                    && holder.owner != owner
                    && holder.mode == RecordMode::Exclusive
            });
            assert_eq!(table.overlapping(request, |_| true).count(), overlapping().count(), "{request:?}");
            assert_eq!(table.conflicts(request).count(), enemies, "{request:?}");
            assert_eq!(table.is_covered(request), is_covered, "{request:?}");
            assert_eq!(table.is_kins(request), is_kins, "{request:?}");
            found[0] += usize::from(enemies > 0);
            found[1] += usize::from(is_covered);
            found[2] += usize::from(is_kins);
            if random.chance(1, 8) {
                table.order.keep(random.chance(1, 2), &table.locks, &table.points);
            }
            match random.below(4) {
                0 if !held.is_empty() => {
                    let (owner, lock) = held.swap_remove(random.below(held.len() as u64) as usize);
                    table.release(owner, lock, drop);
                }
                1 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let (from, lock) = held[at];
                    let to = leader_of(from);
                    match from != to && table.hand_over(lock, from, to, drop) {
                        true => drop(held.swap_remove(at)),
                        false => held[at].0 = to,
                    }
                }
                2 => drop(table.fall_back(request, RecordMode::Shared)),
                _ => held.extend(table.hold(request).map(|lock| (owner, lock))),
            }
        }
        held.into_iter().for_each(|(owner, lock)| table.release(owner, lock, drop));
        assert!(table.is_idle() && table.wide.iter().next().is_none());
        assert!(table.order.locks().is_none_or(|order| order.iter().next().is_none()));
    }
    assert!(found.iter().all(|&found| found > 0), "{found:?}");
}

/// An exclusive request of one owner.
fn request(span: SpanRef<'_>) -> Request<'_> {
    let (index, mode) = (IndexId(1), RecordMode::Exclusive);
    let hash = Seed(1).hash_of(index, span);
    Request { owner: 0, transaction: 0, index, span, mode, version: 0, part: false, hash }
}

/// Numbers as good as drawn, which are always the same.
fn mixed(nth: u32) -> u32 {
    let mixed = (nth ^ nth >> 16).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b);
    mixed ^ mixed >> 16
}

/// No order of spans that a client chooses is the order of the ranks, which would make a list of the tree.
#[test]
fn spans_in_any_order_take_few_looks_each() {
    const SPANS: u32 = 4_000;
    let mut drawn = Random::new(0);
    let orders: [&mut dyn FnMut(u32) -> u32; 4] =
        [&mut |nth| nth, &mut |nth| !nth, &mut |nth| mixed(nth + 1), &mut |_| (drawn.next() >> 32) as u32];
    for (at, order) in orders.into_iter().enumerate() {
        let mut table = LocalLocks::default();
        let looks = LOOKS.get();
        for nth in 0..SPANS {
            let span = Span::prefix(&order(nth).to_be_bytes());
            table.hold(request(span.borrow()));
        }
        let looks = LOOKS.get() - looks;
        assert!(looks < u64::from(SPANS) * 200, "order {at}: {looks} looks for {SPANS} spans");
    }
}

#[test]
fn the_memory_of_many_locks_goes_with_the_last_of_them() {
    let mut table = LocalLocks::default();
    for round in 0..2 {
        let mut held = Vec::new();
        for nth in 0..3 * LOCKS_KEPT as u32 {
            let key = nth.to_be_bytes();
            let wide = Span::prefix(&key);
            let span = if nth % 2 == 0 { SpanRef::point(&key) } else { wide.borrow() };
            held.extend(table.hold(request(span)));
        }
        assert_eq!(table.len(), 3 * LOCKS_KEPT, "round {round}");
        let last = held.pop().unwrap();
        held.into_iter().for_each(|lock| table.release(0, lock, drop));
        assert_eq!(table.len(), 1);
        table.release(0, last, drop);
        let room =
            [table.locks.capacity(), table.free.capacity(), table.points.capacity(), table.wide.capacity()];
        assert!(room.iter().all(|&room| room <= LOCKS_KEPT), "room for {room:?}");
    }
}
