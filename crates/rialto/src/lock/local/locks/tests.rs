//! A table's locks against a list of them: what overlaps, what is in the way, and what is covered.

use std::ops::Bound;
use std::time::Instant;

use super::*;
use crate::io::Random;

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
            let (span, hash) = (span.borrow(), hash_of(index, span.borrow()));
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
            match random.below(16) {
                0 => table.order.locks = None,
                1 => {
                    let order = OrderedLocks::of(&table.locks, table.points.iter().copied());
                    table.order.locks = Some(order);
                }
                _ => {}
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
                2 => drop(table.fall_back(request)),
                _ => held.extend(table.hold(request).map(|lock| (owner, lock))),
            }
        }
        held.into_iter().for_each(|(owner, lock)| table.release(owner, lock, drop));
        assert!(table.is_idle() && table.wide.iter().next().is_none());
        assert!(table.order.locks.is_none_or(|order| order.iter().next().is_none()));
    }
    assert!(found.iter().all(|&found| found > 0), "{found:?}");
}
