//! Transactions in parts, each with an owner of its own.

use super::*;

/// A transaction waits for what one part of another transaction holds, and a second part of that other one waits for
/// the first transaction.
#[test]
fn a_cycle_through_two_parts_of_a_transaction_is_found() {
    let manager = manager();
    let [mut leader, mut holder, mut waiter, mut other] = [(); 4].map(|()| manager.begin().unwrap());
    [&mut holder, &mut waiter].into_iter().for_each(|part| manager.follow(part, &mut leader));
    let (held, others) = (SpanRef::point(b"a"), SpanRef::point(b"b"));
    lock(&manager, &mut holder, held, RecordMode::Exclusive).unwrap();
    lock(&manager, &mut other, others, RecordMode::Exclusive).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let outcome = manager.local(&mut other, INDEX, held, RecordMode::Exclusive, &patient());
            manager.end(other);
            outcome
        });
        until_waiting(&manager, 1);
        assert_eq!(manager.waits()[0].holders, [leader.id()], "the owner that stands for the transaction");
        let granted = manager.local(&mut waiter, INDEX, others, RecordMode::Exclusive, &patient());
        // The waiter began last.
        assert_eq!(waits.join().unwrap(), Err(LockError::Deadlock));
        assert_eq!(granted, Ok(Acquired::New));
    });
    manager.end_parts(&mut leader);
    [holder, waiter, leader].into_iter().for_each(|owner| manager.end(owner));
    assert_eq!(manager.locks_now(), 0);
}
