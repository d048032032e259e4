//! The rendezvous point and the admission of calls under a model checker: the same sources, compiled against shuttle's
//! primitives. A lost wake-up is a deadlock here, which shuttle reports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::sync::Mutex as Watched;
use shuttle::thread;

mod sync {
    use std::time::Duration;

    use shuttle::sync::MutexGuard;
    pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicUsize};

    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no task panics with it")
        }
    }

    #[derive(Default)]
    pub(super) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Option<Duration>) -> MutexGuard<'a, T> {
            assert_eq!(limit, None, "nothing here sleeps for a time");
            self.0.wait(guard).expect("no task panics with it")
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[path = "admission.rs"]
#[allow(clippy::duplicate_mod, reason = "the model has other primitives")]
mod admission;

#[path = "rendezvous.rs"]
#[allow(clippy::duplicate_mod, reason = "the model has other primitives")]
mod rendezvous;

use admission::CallAdmission;
use rendezvous::Rendezvous;

/// Schedules tried for each number of calls at a time.
const SCHEDULES: usize = 3_000;

/// Callers that wait for room and callers that come back later if there is none, at most `most` inside at a time, and a
/// close among them: each caller is admitted or told of the close, and the close waits for those inside.
fn callers_beside_a_close(most: usize) {
    let admission = Arc::new(CallAdmission::new(most));
    let inside = Arc::new(sync::AtomicUsize::new(0));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (admission, inside) = (admission.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let is_in = if caller == 0 { admission.admit_at_once() } else { admission.admit() };
                    if is_in {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < most, "more calls than there may be");
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        admission.release();
                    }
                }
            })
        })
        .collect();
    admission.close();
    assert_eq!(inside.load(Ordering::SeqCst), 0, "the close has waited for the calls");
    assert!(!admission.admit() && !admission.admit_at_once(), "it is closed");
    callers.into_iter().for_each(|caller| caller.join().unwrap());
}

#[test]
fn calls_are_admitted_up_to_a_bound_and_the_close_waits_for_them() {
    for most in [1, 2] {
        shuttle::check_random(move || callers_beside_a_close(most), SCHEDULES);
        shuttle::check_pct(move || callers_beside_a_close(most), SCHEDULES, 3);
    }
}

/// Without a close, no caller sleeps for ever.
#[test]
fn a_caller_that_waits_for_room_gets_it() {
    let run = || {
        let admission = Arc::new(CallAdmission::new(1));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let admission = admission.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        assert!(admission.admit());
                        admission.release();
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        admission.close();
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

/// Three parts in each of two phases: each phase goes on once, with all that its parts have brought.
#[test]
fn the_part_that_arrives_last_goes_on_with_everything() {
    shuttle::check_random(
        || {
            let went_on: Arc<Watched<Vec<Vec<u32>>>> = Arc::default();
            for phase in 0..2 {
                let rendezvous = Arc::new(Rendezvous::new(3));
                let parts: Vec<_> = (0..3)
                    .map(|part| {
                        let (rendezvous, went_on) = (rendezvous.clone(), went_on.clone());
                        thread::spawn(move || {
                            if let Some(mut all) = rendezvous.arrive(phase * 10 + part) {
                                all.sort_unstable();
                                went_on.lock().unwrap().push(all);
                            }
                        })
                    })
                    .collect();
                parts.into_iter().for_each(|part| part.join().unwrap());
            }
            assert_eq!(*went_on.lock().unwrap(), [[0, 1, 2], [10, 11, 12]]);
        },
        1_000,
    );
}
