//! Local locks, leases and readers.

use super::*;

/// The keys `b` and `e`, and all keys, which lie at two executors or at one.
const SPANS: [fn() -> Span; 3] =
    [|| SpanRef::point(b"b").to_owned(), || SpanRef::point(b"e").to_owned(), || SpanRef::all().to_owned()];

/// The keys from `d` on are at the other executor, or all are at one.
fn rules() -> [Option<RoutingRule>; 3] {
    let split = |executors: [u16; 2]| Some(RoutingRule::new(vec![Key::from(&b"d"[..])], executors.to_vec()));
    [split([0, 1]), split([1, 0]), None]
}

/// L11: while datasets move, no two conflicting owners are inside a span, and every waiter is woken.
#[test]
fn locks_go_along_with_their_keys() {
    check(|| {
        let manager = manager_of(LockForm::Local, Detect::AtOnce);
        let inside: Arc<[Inside; 2]> = Arc::default();
        let plans = [
            [(0, RecordMode::Exclusive), (1, RecordMode::Exclusive)],
            [(2, RecordMode::Shared), (0, RecordMode::Exclusive)],
            [(2, RecordMode::Exclusive), (2, RecordMode::Exclusive)],
        ];
        let mut tasks: Vec<Task> = Vec::new();
        for plan in plans {
            let inside = inside.clone();
            tasks.push(Box::new(move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                for (span, mode) in plan {
                    match manager.local(&mut owner, INDEX, SPANS[span]().borrow(), mode, &forever()) {
                        Ok(_) if span == 2 => inside.iter().for_each(|key| key.visit(mode)),
                        Ok(_) => inside[span].visit(mode),
                        Err(error) => {
                            assert_eq!(error, LockError::Deadlock);
                            break;
                        }
                    }
                }
                manager.end(owner);
            }));
        }
        tasks.push(Box::new(|manager: &LockManager| {
            rules().into_iter().for_each(|rule| manager.route(INDEX, rule))
        }));
        run(&manager, tasks);
    });
}

/// L12: leases of both executors, one of each and then the other, beside locks and a move of the keys. No two
/// conflicting owners are inside a span, and every thread that waits for a table that is out is woken.
#[test]
fn leases_and_locks_exclude_each_other() {
    check(|| {
        let manager = manager_of(LockForm::Local, Detect::AtOnce);
        manager.route(INDEX, rules()[0].clone());
        let inside: Arc<[Inside; 2]> = Arc::default();
        let mut tasks: Vec<Task> = Vec::new();
        // The span with which the lease begins, and the one by which it is widened.
        for (first, then) in [(2, None), (0, Some(1)), (1, Some(0))] {
            let inside = inside.clone();
            tasks.push(Box::new(move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                let mode = RecordMode::Exclusive;
                let span = SPANS[first]();
                let wanted = Wanted { index: INDEX, span: span.borrow(), mode };
                let mut has = manager.lease(&mut owner, std::iter::once(wanted))
                    || manager.local(&mut owner, INDEX, span.borrow(), mode, &forever()).is_ok();
                if has && first == 2 {
                    inside.iter().for_each(|key| key.visit(mode));
                } else if has {
                    inside[first].visit(mode);
                }
                if let Some(then) = then
                    && has
                {
                    has = manager.local(&mut owner, INDEX, SPANS[then]().borrow(), mode, &forever()).is_ok();
                    if has {
                        inside[then].visit(mode);
                    }
                }
                manager.end(owner);
            }));
        }
        tasks.push(Box::new(|manager: &LockManager| manager.route(INDEX, rules()[1].clone())));
        run(&manager, tasks);
    });
}

/// At the read-only executor: leases that read, of which one is widened and one returned, beside a lease that writes,
/// a lock to write and a move of the keys. No two conflicting owners are inside a key, and every waiter is woken.
#[test]
fn readers_and_writers_exclude_each_other() {
    check(|| {
        let manager = manager_of(LockForm::Local, Detect::AtOnce);
        manager.place_read_only(INDEX);
        let inside: Arc<[Inside; 2]> = Arc::default();
        let mut tasks: Vec<Task> = Vec::new();
        let (read, written) = (RecordMode::Shared, RecordMode::Exclusive);
        for plan in [[(0, read), (1, read)], [(1, read), (0, written)], [(0, written), (1, read)]] {
            let inside = inside.clone();
            tasks.push(Box::new(move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                for (at, mode) in plan {
                    let span = SPANS[at]();
                    let wanted = Wanted { index: INDEX, span: span.borrow(), mode };
                    if !manager.lease(&mut owner, std::iter::once(wanted)) {
                        match manager.local(&mut owner, INDEX, span.borrow(), mode, &forever()) {
                            Ok(_) => {}
                            Err(LockError::Deadlock) => break,
                            Err(other) => panic!("{other}"),
                        }
                    }
                    inside[at].visit(mode);
                    if at == 1 {
                        manager.return_lease(&mut owner);
                        inside[at].visit(mode);
                    }
                }
                manager.end(owner);
            }));
        }
        tasks.push(Box::new(|manager: &LockManager| manager.route(INDEX, rules()[1].clone())));
        run(&manager, tasks);
    });
}

/// L13: no owner has a table as a whole while others use it under a lease, whose executors hold the intentions, or go
/// on after the lease with intentions of their own.
#[test]
fn a_table_used_under_a_lease_is_not_held_as_a_whole() {
    const TABLE: TableId = TableId(1);
    check(|| {
        let manager = manager_of(LockForm::Local, Detect::AtOnce);
        manager.route(INDEX, rules()[0].clone());
        let inside = Arc::new(Inside::default());
        let mut tasks: Vec<Task> = Vec::new();
        for first in [0, 1] {
            let inside = inside.clone();
            tasks.push(Box::new(move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                let (span, mode) = (SPANS[first](), RecordMode::Exclusive);
                let intention = LockMode::IntentExclusive;
                let wanted = Wanted { index: INDEX, span: span.borrow(), mode };
                if manager.lease(&mut owner, std::iter::once(wanted))
                    && manager.use_under_lease(&mut owner, TABLE, intention)
                {
                    inside.visit(RecordMode::Shared);
                    manager.return_lease(&mut owner);
                } else {
                    manager.return_lease(&mut owner);
                    manager.table(&mut owner, TABLE, intention, &forever()).unwrap();
                }
                inside.visit(RecordMode::Shared);
                manager.end(owner);
            }));
        }
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            let inside = inside.clone();
            tasks.push(Box::new(move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                manager.table(&mut owner, TABLE, mode, &forever()).unwrap();
                inside.visit(RecordMode::Exclusive);
                manager.end(owner);
            }));
        }
        run(&manager, tasks);
    });
}

/// L4: an owner that asks for a table under a lease has returned the lease before it asks the table's head. A thread
/// that breaks a cycle has that head's latch while it waits for the lock tables on the cycle.
#[test]
fn a_request_for_a_table_under_a_lease_does_not_block_the_breaker_of_a_cycle() {
    const TABLE: TableId = TableId(1);
    check(|| {
        let manager = manager_of(LockForm::Local, Detect::AtOnce);
        let key = || SPANS[0]();
        let lock_key = move |manager: &LockManager, owner: &mut Owner| {
            manager.local(owner, INDEX, key().borrow(), RecordMode::Exclusive, &forever())
        };
        let lock_table =
            |manager: &LockManager, owner: &mut Owner, mode| manager.table(owner, TABLE, mode, &forever());
        let one = move |manager: &LockManager| {
            let mut owner = manager.begin().unwrap();
            let outcome = lock_key(manager, &mut owner)
                .and_then(|_| lock_table(manager, &mut owner, LockMode::Exclusive));
            assert!(matches!(outcome, Ok(_) | Err(LockError::Deadlock)));
            manager.end(owner);
        };
        let other = move |manager: &LockManager| {
            let mut owner = manager.begin().unwrap();
            let outcome = lock_table(manager, &mut owner, LockMode::IntentExclusive)
                .and_then(|_| lock_key(manager, &mut owner));
            assert!(matches!(outcome, Ok(_) | Err(LockError::Deadlock)));
            manager.end(owner);
        };
        let under_lease = move |manager: &LockManager| {
            let mut owner = manager.begin().unwrap();
            let span = SPANS[1]();
            manager.lease(
                &mut owner,
                std::iter::once(Wanted { index: INDEX, span: span.borrow(), mode: RecordMode::Shared }),
            );
            let outcome = lock_table(manager, &mut owner, LockMode::IntentShared);
            assert!(matches!(outcome, Ok(_) | Err(LockError::Deadlock)));
            manager.end(owner);
        };
        run(&manager, vec![Box::new(one), Box::new(other), Box::new(under_lease)]);
    });
}

#[test]
fn a_cycle_over_two_executors_is_found() {
    check(|| {
        let manager = manager_of(LockForm::Local, Detect::AtOnce);
        manager.route(INDEX, rules()[0].clone());
        let tasks = [[0, 1], [1, 0]].map(|order| {
            let task = move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                for span in order {
                    let span = SPANS[span]();
                    let locked =
                        manager.local(&mut owner, INDEX, span.borrow(), RecordMode::Exclusive, &forever());
                    if let Err(error) = locked {
                        assert_eq!(error, LockError::Deadlock);
                        break;
                    }
                }
                manager.end(owner);
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
        assert!(manager.counters().deadlocks <= 1);
    });
}
