//! Requests, waits and releases at lock tables that a lease has taken out.

use super::*;

/// L12: an owner that would have to wait under a lease has returned the lease before.
#[test]
fn a_lease_is_returned_before_a_wait_and_its_spans_stay_locked() {
    let manager = manager();
    let mut holder = manager.begin().unwrap();
    lock(&manager, &mut holder, SpanRef::point(b"x"), RecordMode::Exclusive).unwrap();
    let mut runner = manager.begin().unwrap();
    let spans = [(SpanRef::point(b"a").to_owned(), RecordMode::Exclusive)];
    assert!(lease(&manager, &mut runner, &spans));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let span = SpanRef::point(b"x");
            manager.local(&mut runner, INDEX, span, RecordMode::Exclusive, &patient()).unwrap();
            manager.end(runner);
        });
        until_waiting(&manager, 1);
        // A table that is out would be waited for without end.
        let refused = lock(&manager, &mut holder, SpanRef::point(b"a"), RecordMode::Shared);
        assert_eq!(refused, Err(LockError::WouldWait));
        lock(&manager, &mut holder, SpanRef::point(b"b"), RecordMode::Shared).unwrap();
        manager.end(holder);
        waiter.join().unwrap();
    });
    assert_eq!(manager.locks_now(), 0);
}

/// A thread that asks for what a lease has waits until the lease ends; if the lease is long, the thread sleeps.
#[test]
fn a_table_that_is_out_is_waited_for() {
    let manager = manager();
    let mut runner = manager.begin().unwrap();
    assert!(lease(&manager, &mut runner, &[(SpanRef::all().to_owned(), RecordMode::Exclusive)]));
    let (ended, asked) = (std::sync::atomic::AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut owner = manager.begin().unwrap();
                let span = SpanRef::point(b"k");
                let at_once = lock(&manager, &mut owner, span, RecordMode::Shared);
                assert_eq!(at_once, Err(LockError::WouldWait));
                let soon = Wait { timeout: Some(std::time::Duration::from_millis(3)), ..patient() };
                let soon = manager.local(&mut owner, INDEX, span, RecordMode::Shared, &soon);
                assert!(matches!(soon, Err(LockError::Timeout { .. })), "{soon:?}");
                asked.fetch_add(1, Ordering::SeqCst);
                manager.local(&mut owner, INDEX, span, RecordMode::Shared, &patient()).unwrap();
                assert!(ended.load(Ordering::SeqCst));
                manager.end(owner);
            });
        }
        // Meanwhile a change of the rules delays no other thread, because it holds no latch while it waits.
        scope.spawn(|| manager.route(IndexId(INDEX.0 + 1), None));
        while asked.load(Ordering::SeqCst) < 3 {
            thread::yield_now();
        }
        ended.store(true, Ordering::SeqCst);
        manager.end(runner);
    });
}

/// A request is granted, and the table goes out before the owner has taken note of it. The owner's wait has its limit
/// all the same, and the lock is released with the owner's other locks.
#[test]
fn a_granted_lock_at_a_table_that_is_out_is_waited_for_as_long_as_for_a_lock() {
    let (span, mode) = (SpanRef::point(b"k"), RecordMode::Exclusive);
    // Without a lock of its own that is strengthened, and with one.
    let mut ended_late = [false; 2];
    for round in 0..5_000 {
        if ended_late == [true; 2] {
            return;
        }
        let manager = manager();
        manager.route(INDEX, Some(RoutingRule::new(vec![], vec![0])));
        let [mut holder, mut owner, mut runner] = [(); 3].map(|()| manager.begin().unwrap());
        let strengthens = round % 2 == 1;
        let (cancelled, id) = (AtomicBool::new(false), owner.id());
        let others = if strengthens { RecordMode::Shared } else { mode };
        lock(&manager, &mut holder, span, others).unwrap();
        if strengthens {
            lock(&manager, &mut owner, span, RecordMode::Shared).unwrap();
        }
        let outcome = thread::scope(|scope| {
            let (told, tells) = std::sync::mpsc::channel();
            let (manager, owner, cancelled) = (&manager, &mut owner, &cancelled);
            scope.spawn(move || {
                let wait = Wait { cancelled, ..patient() };
                let outcome = manager.local(owner, INDEX, span, mode, &wait).map(drop);
                told.send(outcome).unwrap();
            });
            until_waiting(manager, 1);
            manager.release_all(&mut holder);
            let goes_out = lease(manager, &mut runner, &[(SpanRef::point(b"a").to_owned(), mode)]);
            if goes_out {
                cancelled.store(true, Ordering::SeqCst);
                manager.interrupt(id);
            }
            let outcome = tells.recv_timeout(Duration::from_secs(20));
            if goes_out {
                manager.end_lease(&mut runner);
            }
            outcome.expect("its wait ends beside the lease")
        });
        ended_late[usize::from(strengthens)] |= outcome.is_err();
        assert!(matches!(outcome, Ok(()) | Err(LockError::Cancelled)), "{outcome:?}");
        // The owner goes on, and waits for another lock there.
        lock(&manager, &mut runner, SpanRef::point(b"m"), mode).unwrap();
        thread::scope(|scope| {
            let manager = &manager;
            let waits =
                scope.spawn(|| manager.local(&mut owner, INDEX, SpanRef::point(b"m"), mode, &patient()));
            until_waiting(manager, 1);
            manager.release_all(&mut runner);
            assert_eq!(waits.join().unwrap(), Ok(Acquired::New));
        });
        assert_eq!(lock(&manager, &mut holder, span, mode), Err(LockError::WouldWait), "it is held still");
        [holder, owner, runner].into_iter().for_each(|owner| manager.end(owner));
        assert_eq!(manager.locks_now(), 0);
    }
    panic!("the table never went out before its owner had taken note: {ended_late:?}");
}

/// A request has to wait for a lock. Before it can be listed, its table goes out and is waited for. The time that is
/// accounted as waited is no longer than the time that passed.
#[test]
fn a_wait_for_a_table_before_a_wait_for_a_lock_is_counted_once() {
    let manager = manager();
    manager.route(INDEX, Some(RoutingRule::new(vec![], vec![0])));
    let [mut holder, mut owner, mut runner] = [(); 3].map(|()| manager.begin().unwrap());
    let (span, mode) = (SpanRef::point(b"k"), RecordMode::Exclusive);
    lock(&manager, &mut holder, span, mode).unwrap();
    assert!(lease(&manager, &mut runner, &[(SpanRef::point(b"a").to_owned(), mode)]));
    let (before, began) = (manager.waited_ns(&owner), Instant::now());
    thread::scope(|scope| {
        let ends = scope.spawn(|| {
            // More than once: by then it is a wait, not only a first try.
            while manager.found_out() < 3 {
                thread::yield_now();
            }
            manager.end_lease(&mut runner);
            until_waiting(&manager, 1);
            manager.release_all(&mut holder);
        });
        manager.wait_for_span(&mut owner, Wanted { index: INDEX, span, mode }, &patient());
        ends.join().unwrap();
    });
    let (waited_ns, took) = (manager.waited_ns(&owner) - before, began.elapsed());
    assert!(waited_ns <= took.as_nanos() as u64, "{waited_ns} ns of waits in {took:?}");
    [holder, owner, runner].into_iter().for_each(|owner| manager.end(owner));
    assert_eq!(manager.locks_now(), 0);
}

/// A span of two executors is granted although one or the other table is out at each moment. Its owner then has it at
/// both: the lock goes along with its keys wherever they move.
#[test]
fn a_span_of_two_executors_is_leased_beside_leases_that_always_have_one_of_them() {
    let other = IndexId(INDEX.0 + 1);
    let halves = || Some(RoutingRule::new(vec![Key::from(&b"m"[..])], vec![0, 1]));
    let all_at = |executor| Some(RoutingRule::new(vec![], vec![executor]));
    for _ in 0..10 {
        let manager = manager();
        manager.route(INDEX, halves());
        manager.route(other, halves());
        let (is_out, is_had, began) = (AtomicBool::new(false), AtomicBool::new(false), Instant::now());
        let mut owner = manager.begin().unwrap();
        thread::scope(|scope| {
            let (is_out, is_had, manager) = (&is_out, &is_had, &manager);
            let leases = scope.spawn(move || {
                let mut runners = [b"a", b"z"].map(|key| (key, manager.begin().unwrap()));
                let begin = |(key, runner): &mut (&[u8; 1], Owner)| {
                    let span = SpanRef::point(*key);
                    let wanted = Wanted { index: other, span, mode: RecordMode::Exclusive };
                    while !manager.lease(runner, std::iter::once(wanted)) {}
                };
                begin(&mut runners[0]);
                is_out.store(true, Ordering::SeqCst);
                while !is_had.load(Ordering::SeqCst) && began.elapsed() < Duration::from_secs(60) {
                    begin(&mut runners[1]);
                    manager.end_lease(&mut runners[0].1);
                    // The requester has time to find this table in, and the other one out.
                    thread::sleep(Duration::from_micros(200));
                    runners.reverse();
                }
                manager.end_lease(&mut runners[0].1);
                runners.into_iter().for_each(|(_, runner)| manager.end(runner));
            });
            while !is_out.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            manager.local(&mut owner, INDEX, SpanRef::all(), RecordMode::Exclusive, &patient()).unwrap();
            is_had.store(true, Ordering::SeqCst);
            leases.join().unwrap();
        });
        assert!(began.elapsed() < Duration::from_secs(60), "it is not had before the leases end");
        let mut stranger = manager.begin().unwrap();
        for rule in [halves(), all_at(1), all_at(2), halves()] {
            manager.route(INDEX, rule);
            for key in [b"a", b"z"] {
                let asked = lock(&manager, &mut stranger, SpanRef::point(key), RecordMode::Shared);
                assert_eq!(asked, Err(LockError::WouldWait));
            }
        }
        [owner, stranger].into_iter().for_each(|owner| manager.end(owner));
        assert_eq!(manager.locks_now(), 0);
    }
}
