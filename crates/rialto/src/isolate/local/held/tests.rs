//! A table's locks are compared with a list of them: overlaps, conflicts, and coverage.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Instant;

use super::super::super::central::head::Blockers;
use super::super::Seed;
use super::super::locks::LocalLocks;
use super::*;
use crate::io::Random;
use crate::probes::PROBES;

/// Keys of up to two bytes: few, so that spans overlap. Some of them are prefixes behind whose keys no other key
/// comes.
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

/// Some of these owners have bits of their own in the summaries of locks, others share bits.
const OWNERS: [u16; 11] = [0, 1, 2, 3, 62, 63, 64, 65, 126, 190, 191];

/// Two owners run each transaction.
fn leader_of(owner: u16) -> u16 {
    owner & !1
}

/// A waiting request, as the list has it.
struct Listed {
    owner: u16,
    index: IndexId,
    span: Span,
    mode: RecordMode,
}

impl Listed {
    fn request(&self) -> LocalRequest<'_> {
        let Listed { owner, index, ref span, mode } = *self;
        let (span, transaction) = (span.borrow(), leader_of(owner));
        let hash = Seed(1).hash_of(index, span);
        LocalRequest { owner, transaction, index, span, mode, version: 0, part: false, hash }
    }
}

/// What the list of the locks says about a request.
struct Plain<'a> {
    held: &'a HeldLocks,
    request: LocalRequest<'a>,
}

impl<'a> Plain<'a> {
    fn locks(&self) -> impl Iterator<Item = &'a Lock> {
        let index = self.request.index;
        self.held.locks.iter().filter(move |lock| !lock.holders.is_empty() && lock.index == index)
    }

    fn overlapping(&self) -> impl Iterator<Item = &'a Lock> {
        let span = self.request.span;
        self.locks().filter(move |lock| lock.span.borrow().overlaps(span))
    }

    /// The other transactions that hold locks that conflict with it.
    fn holders_against(&self) -> BTreeSet<u16> {
        let LocalRequest { transaction, mode, .. } = self.request;
        let holders = self.overlapping().flat_map(|lock| &lock.holders);
        let against =
            holders.filter(|holder| holder.transaction != transaction && conflict(holder.mode, mode));
        against.map(|holder| holder.transaction).collect()
    }

    fn is_covered(&self) -> bool {
        let LocalRequest { owner, span, mode, .. } = self.request;
        self.locks().filter(|lock| !lock.span.borrow().is_point()).any(|lock| {
            let held = lock.holder(owner).and_then(|holder| holder.whole);
            lock.span.borrow().covers(span) && held.is_some_and(|held| suffices(held, mode))
        })
    }

    fn is_kins(&self) -> bool {
        let LocalRequest { owner, transaction, .. } = self.request;
        self.overlapping().flat_map(|lock| &lock.holders).any(|holder| {
            holder.transaction == transaction && holder.owner != owner && holder.mode == RecordMode::Exclusive
        })
    }

    /// The waiting requests that conflict with it, and whether each of them waits for its transaction.
    fn ahead(&self, waiting: &'a [Listed]) -> impl Iterator<Item = (&'a Listed, bool)> {
        let Plain { held, request } = *self;
        let in_the_way = waiting.iter().filter(move |other| {
            leader_of(other.owner) != request.transaction
                && other.index == request.index
                && conflict(other.mode, request.mode)
                && other.span.borrow().overlaps(request.span)
        });
        in_the_way.map(move |other| {
            let waits_for = Plain { held, request: other.request() }.holders_against();
            (other, waits_for.contains(&request.transaction))
        })
    }

    /// What keeps it waiting: holders, requests ahead, and equal requests ahead.
    fn blockers(&self, waiting: &'a [Listed]) -> [Vec<u16>; 3] {
        let LocalRequest { mode, span, .. } = self.request;
        let some_wait_for_it = self.ahead(waiting).any(|(_, waits_for_it)| waits_for_it);
        let stay = self.ahead(waiting).filter(|(_, waits_for_it)| !waits_for_it).map(|(other, _)| other);
        let (alike, ahead): (Vec<&Listed>, Vec<&Listed>) =
            stay.partition(|other| !some_wait_for_it && other.mode == mode && other.span.borrow().is(span));
        let owners = |requests: Vec<&Listed>| {
            let owners: BTreeSet<u16> = requests.iter().map(|request| request.owner).collect();
            owners.into_iter().collect()
        };
        [self.holders_against().into_iter().collect(), owners(ahead), owners(alike)]
    }
}

#[test]
fn a_table_finds_what_a_list_of_its_locks_has() {
    let (began, limit) = (Instant::now(), Random::test_time_from_environment());
    let mut found = [0; 6];
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let mut random = Random::new(seed);
    while began.elapsed() < limit {
        let mut table = LocalLocks::default();
        let (mut held, mut waiting): (Vec<(u16, u32)>, Vec<Listed>) = Default::default();
        // Many locks of a few owners, or a few locks of many.
        let owners = 1 + random.below(OWNERS.len() as u64);
        for _ in 0..200 {
            let owner = OWNERS[random.below(owners) as usize];
            let mode = if random.chance(1, 3) { RecordMode::Exclusive } else { RecordMode::Shared };
            let index = IndexId(1 + random.below(3) as u32);
            let mut asked = Listed { owner, index, span: span(&mut random), mode };
            // Equal requests are rare by chance.
            if let Some(other) = waiting.last().filter(|_| random.chance(1, 8)) {
                (asked.index, asked.span, asked.mode) = (other.index, other.span.clone(), other.mode);
            }
            let request = LocalRequest { part: random.chance(1, 8), ..asked.request() };
            let plain = Plain { held: &table.held, request };
            let (all, against) = (plain.overlapping().count(), plain.holders_against());
            let (is_covered, is_kins) = (plain.is_covered(), plain.is_kins());
            let is_free = against.is_empty() && plain.ahead(&waiting).all(|(_, waits_for_it)| waits_for_it);
            let any = |locks: &Summary| locks.of_mode(RecordMode::Shared).of_others(u16::MAX);
            assert_eq!(table.held.overlapping(request, any).count(), all, "{request:?}");
            assert_eq!(table.held.is_covered(request), is_covered, "{request:?}");
            assert_eq!(table.held.is_kins(request), is_kins, "{request:?}");
            assert_eq!(table.held.conflicts_with(request), !against.is_empty(), "{request:?}");
            for other in OWNERS.map(leader_of).into_iter().filter(|&other| other != leader_of(owner)) {
                let holds = table.held.holds_against(other, request);
                assert_eq!(holds, against.contains(&other), "{other} against {request:?}");
            }
            assert_eq!(table.is_free_for(request), is_free, "{request:?}");
            for (at, asked) in waiting.iter().enumerate() {
                let plain = Plain { held: &table.held, request: asked.request() };
                let expected = plain.blockers(&waiting[..at]);
                found[3..]
                    .iter_mut()
                    .zip(&expected)
                    .for_each(|(found, of)| *found += usize::from(!of.is_empty()));
                let (mode, Blockers { holders, mut ahead, mut alike, .. }) =
                    table.blockers(asked.owner).unwrap();
                [&mut ahead, &mut alike].into_iter().for_each(|owners| owners.sort_unstable());
                assert_eq!((mode, [holders, ahead, alike]), (asked.mode, expected), "{:?}", asked.request());
            }
            let now = [!against.is_empty(), is_covered, is_kins];
            found.iter_mut().zip(now).for_each(|(found, now)| *found += usize::from(now));
            if random.chance(1, 8) {
                let HeldLocks { locks, points, order, .. } = &mut table.held;
                order.keep(random.chance(1, 2), locks, points);
            }
            let at = random.below(held.len().max(1) as u64) as usize;
            let is_waiting = waiting.iter().position(|other| other.owner == owner);
            match random.below(6) {
                0 if !held.is_empty() => {
                    let (owner, lock) = held.swap_remove(at);
                    table.held.release(owner, lock, drop);
                }
                1 if !held.is_empty() => {
                    let (from, lock) = held[at];
                    let to = leader_of(from);
                    match from != to && table.held.hand_over(lock, from, to, drop) {
                        true => drop(held.swap_remove(at)),
                        false => held[at].0 = to,
                    }
                }
                2 => drop(table.held.fall_back(request, RecordMode::Shared)),
                3 => match is_waiting {
                    Some(at) => {
                        waiting.remove(at);
                        assert!(table.withdraw(owner));
                    }
                    None => {
                        table.enqueue(request, 0);
                        waiting.push(asked);
                    }
                },
                _ => held.extend(table.held.hold(request).map(|lock| (owner, lock))),
            }
        }
        held.into_iter().for_each(|(owner, lock)| table.held.release(owner, lock, drop));
        waiting.iter().for_each(|asked| assert!(table.withdraw(asked.owner)));
        let HeldLocks { wide, order, .. } = &table.held;
        assert!(table.is_idle() && wide.iter().next().is_none());
        assert!(order.locks().is_none_or(|order| order.iter().next().is_none()));
    }
    assert!(found.iter().all(|&found| found > 0), "{found:?}");
}

/// An exclusive request of one owner.
fn request(span: SpanRef<'_>) -> LocalRequest<'_> {
    let (index, mode) = (IndexId(1), RecordMode::Exclusive);
    let hash = Seed(1).hash_of(index, span);
    LocalRequest { owner: 0, transaction: 0, index, span, mode, version: 0, part: false, hash }
}

/// Numbers that look random and are always the same.
fn mixed(nth: u32) -> u32 {
    let mixed = (nth ^ nth >> 16).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b);
    mixed ^ mixed >> 16
}

/// No order of spans that a client chooses is the order of the ranks, which would turn the tree into a list.
#[test]
fn spans_in_any_order_take_few_looks_each() {
    const SPANS: u32 = 4_000;
    let mut drawn = Random::new(0);
    let orders: [&mut dyn FnMut(u32) -> u32; 4] =
        [&mut |nth| nth, &mut |nth| !nth, &mut |nth| mixed(nth + 1), &mut |_| (drawn.next() >> 32) as u32];
    for (at, order) in orders.into_iter().enumerate() {
        let mut table = HeldLocks::default();
        let probes = PROBES.get();
        for nth in 0..SPANS {
            let span = Span::prefix(&order(nth).to_be_bytes());
            table.hold(request(span.borrow()));
        }
        let probes = PROBES.get() - probes;
        assert!(probes < u64::from(SPANS) * 200, "order {at}: {probes} probes for {SPANS} spans");
    }
}

#[test]
fn the_memory_of_many_locks_goes_with_the_last_of_them() {
    let mut table = HeldLocks::default();
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

#[test]
fn a_lock_that_is_free_keeps_no_long_key() {
    let mut held = HeldLocks::default();
    let (lower, upper) = ([7; 100], [8; 100]);
    let spans = [
        SpanRef::point(&lower).to_owned(),
        Span::between(Bound::Included(&lower), Bound::Excluded(&upper)).expect("there are keys between"),
    ];
    for span in spans {
        let listed = Listed { owner: 1, index: IndexId(1), span, mode: RecordMode::Shared };
        let at = held.add(listed.request());
        held.release(1, at, |_| unreachable!("no keys have moved"));
        assert!(!held.locks[at as usize].span.is_allocated());
    }
}
