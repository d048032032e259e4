//! The request queue and a response queue, each alone, step by step.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queue::RESTARTS_MAX;
use super::{Dispatch, Dispatches, Refused, RoomWaiter, Standing};
use crate::engine::servers::{ResponseQueue, ServerWait};

struct NoRoomWaiter;

impl RoomWaiter for NoRoomWaiter {
    fn tell_of_room(&self) {}
}

fn dispatch(length: usize, executors: usize) -> (Dispatch<u32>, Arc<NoRoomWaiter>) {
    let dispatch = Dispatch::new(length, 1, executors);
    assert!(dispatch.reopen());
    (1..executors).for_each(|slot| assert_eq!(dispatch.add_standby(), Some(slot)));
    (dispatch, Arc::new(NoRoomWaiter))
}

fn next(dispatch: &Dispatch<u32>, me: usize) -> Option<u32> {
    dispatch.next(me, || {})
}

#[test]
fn a_full_queue_and_a_closed_one_refuse() {
    let (dispatch, waiter) = dispatch(2, 1);
    assert_eq!((dispatch.put(1, &waiter), dispatch.put(2, &waiter)), (Ok(()), Ok(())));
    assert_eq!(dispatch.put(3, &waiter), Err(Refused::Full(3)));
    assert_eq!(next(&dispatch, 0), Some(1));
    assert_eq!(dispatch.put(3, &waiter), Ok(()));
    dispatch.close();
    assert_eq!(dispatch.put(4, &waiter), Err(Refused::Closed(4)));
    // Requests that are there are run all the same.
    assert_eq!([next(&dispatch, 0), next(&dispatch, 0), next(&dispatch, 0)], [Some(2), Some(3), None]);
    let stats = dispatch.stats();
    assert_eq!((stats.queued, stats.requests, stats.found_full, stats.queued_max), (0, 3, 1, 2));
}

#[test]
fn a_standby_runs_while_the_priority_executor_is_blocked_and_it_resumes_first() {
    let (dispatch, waiter) = dispatch(8, 2);
    (1..=3).for_each(|job| dispatch.put(job, &waiter).unwrap());
    assert_eq!(next(&dispatch, 0), Some(1));
    dispatch.leave(0);
    assert_eq!(next(&dispatch, 1), Some(2));
    std::thread::scope(|scope| {
        // Its turn comes after the standby has run its request, not before.
        let back = scope.spawn(|| {
            dispatch.come_back(0);
            next(&dispatch, 0)
        });
        while dispatch.ready() == 0 {
            std::thread::yield_now();
        }
        let standby = scope.spawn(|| next(&dispatch, 1));
        assert_eq!(back.join().unwrap(), Some(3), "the blocked one goes on, and takes the next request");
        dispatch.close();
        assert_eq!(next(&dispatch, 0), None);
        assert_eq!(standby.join().unwrap(), None);
    });
    let stats = dispatch.stats();
    assert_eq!((stats.blocked, stats.stood_in), (1, 1));
}

#[test]
fn a_restart_backs_off_and_goes_before_new_requests() {
    let (dispatch, waiter) = dispatch(8, 1);
    (1..=3).for_each(|job| dispatch.put(job, &waiter).unwrap());
    assert_eq!(next(&dispatch, 0), Some(1));
    // Longer than a machine pauses between two of these steps.
    let backoff = Duration::from_secs(2);
    let backs_off_since = Instant::now();
    dispatch.restart(1, backoff);
    assert_eq!(next(&dispatch, 0), Some(2));
    dispatch.restart(2, Duration::ZERO);
    assert_eq!(next(&dispatch, 0), Some(2), "due, so before the third");
    assert_eq!(next(&dispatch, 0), Some(3));
    assert_eq!(next(&dispatch, 0), Some(1), "slept until it was due");
    assert!(backs_off_since.elapsed() >= backoff);
}

#[test]
fn what_is_begun_goes_before_what_is_new() {
    let dispatch = Dispatch::<u32>::new(usize::MAX, 2, 3);
    assert!(dispatch.reopen());
    let put = |jobs: &[u32], standing| assert!(dispatch.lock_to_put().put(jobs.iter().copied(), standing));
    put(&[1, 2, 3], Standing::New);
    put(&[4, 5], Standing::Begun);
    put(&[6], Standing::Begun);
    assert_eq!(next(&dispatch, 0), Some(4));
    // The batch of 4 and 5 is off the queue. The part of it that is not run when its thread blocks goes back, before
    // all others.
    put(&[7], Standing::New);
    put(&[8], Standing::Begun);
    let slot = dispatch.add_standby().unwrap();
    assert!(dispatch.leave(0));
    put(&[9], Standing::Begun);
    let rest: Vec<_> = (0..8).map(|_| next(&dispatch, slot).unwrap()).collect();
    assert_eq!(rest, [5, 6, 8, 9, 1, 2, 3, 7]);
}

#[test]
fn what_is_begun_goes_before_what_is_new_where_it_is_put_when_its_queue_is_retired() {
    let queues = Dispatches::<u32>::new(2, usize::MAX, 8, 2);
    let no_standby = |queue| panic!("a standby is added at {queue}");
    for _ in 0..2 {
        queues.grow(|_| Ok::<_, ()>(()), no_standby).unwrap();
    }
    let puts =
        [(0, 1, Standing::New), (0, 2, Standing::Begun), (1, 3, Standing::New), (1, 4, Standing::Begun)];
    for (queue, job, standing) in puts {
        queues.put(queue, job, standing, no_standby);
    }
    queues.shrink(no_standby);
    let all: Vec<_> = (0..4).map(|_| next(queues.at(0), 0).unwrap()).collect();
    assert_eq!(all, [2, 4, 1, 3]);
}

#[test]
fn what_came_to_a_queue_that_gets_no_thread_goes_to_the_others() {
    let queues = Dispatches::<u32>::new(2, usize::MAX, 8, 2);
    let no_standby = |queue| panic!("a standby is added at {queue}");
    queues.grow(|_| Ok::<_, &str>(()), no_standby).unwrap();
    // A caller that was routed to the second queue when it was in use before finds it open while its thread is
    // requested.
    let start = |queue| {
        assert!(queues.at(queue).lock_to_put().put([7], Standing::Begun));
        Err("there is no thread left")
    };
    assert_eq!(queues.grow(start, no_standby), Err("there is no thread left"));
    assert_eq!((queues.len(), queues.at(0).load().0), (1, 1), "it was lost");
    assert_eq!(next(queues.at(0), 0), Some(7));
}

/// The back-off of as many requests as may back off: the first is not due before the last
/// backs off, however slow the machine is.
const LONG_BACKOFF: Duration = Duration::from_secs(3);

#[test]
fn what_is_new_waits_while_too_many_back_off_and_what_is_begun_does_not() {
    let dispatch = Dispatch::<u32>::new(usize::MAX, 4, 1);
    assert!(dispatch.reopen());
    let restarts = RESTARTS_MAX as u32;
    for job in 0..restarts {
        assert!(dispatch.lock_to_put().put([job], Standing::New));
        assert_eq!(next(&dispatch, 0), Some(job));
        dispatch.restart(job, LONG_BACKOFF);
    }
    assert!(dispatch.lock_to_put().put([restarts], Standing::New));
    assert!(dispatch.lock_to_put().put([restarts + 1, restarts + 2], Standing::Begun));
    assert_eq!([next(&dispatch, 0), next(&dispatch, 0)], [Some(restarts + 1), Some(restarts + 2)]);
    assert_eq!(next(&dispatch, 0), Some(0), "the first that backed off, not the new one");
    dispatch.close();
}

#[test]
fn no_more_requests_are_begun_while_too_many_back_off() {
    let (dispatch, waiter) = dispatch(4, 1);
    for job in 0..RESTARTS_MAX as u32 {
        dispatch.put(job, &waiter).unwrap();
        assert_eq!(next(&dispatch, 0), Some(job));
        dispatch.restart(job, LONG_BACKOFF);
    }
    dispatch.put(u32::MAX, &waiter).unwrap();
    assert_eq!(next(&dispatch, 0), Some(0), "the first that backed off, not the new one");
    assert_eq!(next(&dispatch, 0), Some(1));
    dispatch.close();
}

#[test]
fn responses_come_in_order_and_nothing_that_is_there_is_waited_for() {
    let responses = ResponseQueue::new();
    assert_eq!(responses.take(), None);
    (1..=3).for_each(|response| responses.put(response).unwrap());
    let sleeps = Cell::new(0);
    let wait = |awaited| responses.wait(awaited, || sleeps.set(sleeps.get() + 1));
    wait(ServerWait::Response);
    wait(ServerWait::Either);
    assert_eq!(
        [responses.take(), responses.take(), responses.take(), responses.take()],
        [Some(1), Some(2), Some(3), None]
    );
    responses.tell_of_room();
    wait(ServerWait::Either);
    wait(ServerWait::Room);
    assert_eq!(sleeps.get(), 0);
    responses.forget_room();
    std::thread::scope(|scope| {
        scope.spawn(|| responses.put(4).unwrap());
        wait_for(&responses, ServerWait::Response);
        scope.spawn(|| responses.tell_of_room());
        wait_for(&responses, ServerWait::Room);
    });
}

fn wait_for(responses: &ResponseQueue<i32>, awaited: ServerWait) {
    responses.wait(awaited, || {});
}
