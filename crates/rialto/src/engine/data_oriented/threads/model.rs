//! The rendezvous point under a model checker: the same source, compiled against shuttle's latch.

use std::sync::Arc;

use shuttle::sync::Mutex as Watched;
use shuttle::thread;

mod sync {
    use shuttle::sync::MutexGuard;

    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no task panics with it")
        }
    }
}

#[path = "rendezvous.rs"]
#[allow(clippy::duplicate_mod, reason = "the model has other primitives")]
mod rendezvous;

use rendezvous::Rendezvous;

/// Three parts in each of two phases: each phase goes on once, with all that its parts have brought.
#[test]
fn the_part_that_arrives_last_goes_on_with_everything() {
    shuttle::check_random(
        || {
            let went_on: Arc<Watched<Vec<Vec<u32>>>> = Arc::default();
            for phase in 0..2 {
                let meeting = Arc::new(Rendezvous::new(3));
                let parts: Vec<_> = (0..3)
                    .map(|part| {
                        let (meeting, went_on) = (meeting.clone(), went_on.clone());
                        thread::spawn(move || {
                            if let Some(mut all) = meeting.arrive(phase * 10 + part) {
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
