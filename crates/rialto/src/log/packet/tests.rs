//! Tests of `packet`.

use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn a_slot_is_free_after_gather_and_apply_in_either_order() {
    let pool = PoolOwner::new(1, Lsn(7));
    for applied_first in [true, false] {
        let mut slot = pool.borrow().unwrap();
        assert!(pool.borrow().is_none(), "the only slot is lent out");
        slot.bytes_mut().extend_from_slice(b"packet");
        let lsn = slot.push(PacketKind::Commit);
        assert_eq!(slot.lsn(), Some(lsn));
        let mut drained = Vec::new();
        assert_eq!(pool.drain_all(&mut drained), 1);
        let packet = drained.pop().unwrap();
        assert_eq!((packet.lsn(), packet.kind(), packet.bytes()), (lsn, 1, &b"packet"[..]));
        if applied_first {
            drop(slot);
            assert!(pool.borrow().is_none(), "applied, not gathered");
            packet.gathered();
        } else {
            packet.gathered();
            assert!(pool.borrow().is_none(), "gathered, not applied");
            assert_eq!(slot.bytes(), b"packet");
            drop(slot);
        }
        assert!(pool.borrow().unwrap().bytes().is_empty());
    }
    assert_eq!(pool.place(), Lsn(9));
}

#[test]
#[should_panic(expected = "has its place already")]
fn a_packet_with_a_place_cannot_be_written() {
    let pool = PoolOwner::new(2, Lsn::ZERO);
    let mut slot = pool.borrow().unwrap();
    slot.push(PacketKind::Commit);
    slot.bytes_mut();
}

#[test]
fn a_home_is_borrowed_repeatedly_and_then_by_any_thread() {
    let pool = PoolOwner::new(2, Lsn::ZERO);
    let mut home = pool.home().unwrap();
    let gather = || {
        let mut drained = Vec::new();
        assert_eq!(pool.drain_all(&mut drained), 1);
        drained.pop().unwrap().gathered();
    };
    for applied_first in [true, false, true] {
        let mut slot = home.borrow().expect("the home is free");
        slot.bytes_mut().push(7);
        assert!(home.borrow().is_none(), "it is lent");
        slot.push(PacketKind::Commit);
        let mut slot = Some(slot);
        if applied_first {
            slot = None;
        }
        assert!(home.borrow().is_none(), "it is on its way");
        gather();
        drop(slot);
        let back = home.borrow().expect("gathered and applied");
        assert!(back.bytes().is_empty());
        drop(back);
    }
    // Given up while its packet is queued: the later of gather and apply puts the slot into the list.
    let mut slot = home.borrow().unwrap();
    slot.push(PacketKind::Commit);
    drop(home);
    let other = pool.borrow().unwrap();
    assert!(pool.borrow().is_none(), "one is on its way");
    gather();
    drop(slot);
    drop((pool.borrow().expect("it is in the list"), other));
    assert!(pool.all_free());
    // Given up while it is free.
    drop(pool.home().unwrap());
    assert!(pool.all_free());
}

#[test]
fn a_slot_may_outlive_its_log() {
    let pool = PoolOwner::new(2, Lsn::ZERO);
    let mut slot = pool.borrow().unwrap();
    slot.bytes_mut().push(1);
    drop(pool);
    assert_eq!(slot.bytes(), [1]);
}

#[test]
fn threads_push_while_one_drains_and_nothing_is_lost_or_mixed_up() {
    const THREADS: u64 = 3;
    const EACH: u64 = 20_000;
    let pool = PoolOwner::new(16, Lsn::ZERO);
    let done = AtomicBool::new(false);
    let mut sums = vec![0; THREADS as usize];
    std::thread::scope(|scope| {
        let pushers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let pool = &pool;
                scope.spawn(move || {
                    let mut pushed = 0;
                    // One thread has a home, which it gives up every now and then.
                    let mut home = None;
                    while pushed < EACH {
                        if thread == 0 && pushed % 1_000 == 0 {
                            home = pool.home();
                        }
                        let at_home = home.as_mut().and_then(PacketHome::borrow);
                        let Some(mut slot) = at_home.or_else(|| pool.borrow()) else {
                            std::thread::yield_now();
                            continue;
                        };
                        slot.bytes_mut().extend_from_slice(&thread.to_le_bytes());
                        slot.bytes_mut().extend_from_slice(&pushed.to_le_bytes());
                        slot.push(PacketKind::Commit);
                        assert_eq!(slot.bytes()[8..], pushed.to_le_bytes());
                        pushed += 1;
                    }
                })
            })
            .collect();
        let gatherer = scope.spawn(|| {
            let mut next = 1;
            let mut drained = Vec::new();
            loop {
                let last = done.load(Ordering::SeqCst);
                if pool.drain_all(&mut drained) == 0 && last {
                    break;
                }
                for packet in drained.drain(..) {
                    assert_eq!(packet.lsn(), Lsn(next));
                    next += 1;
                    let number =
                        |at: usize| u64::from_le_bytes(packet.bytes()[at..at + 8].try_into().unwrap());
                    let sum = &mut sums[number(0) as usize];
                    assert_eq!(*sum, number(8), "a thread's packets keep their order");
                    *sum += 1;
                    packet.gathered();
                }
            }
            assert_eq!(next, THREADS * EACH + 1);
        });
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        done.store(true, Ordering::SeqCst);
        gatherer.join().unwrap();
    });
    assert_eq!(sums, vec![EACH; THREADS as usize]);
    assert!(pool.all_free());
}
