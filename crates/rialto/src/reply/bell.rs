//! [`Bell`]: what a thread sleeps by in one wait for a future.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use parking_lot::{Condvar, Mutex};

/// What a thread sleeps by in one wait for a future. Not its park token, which is its owner's.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    sleeper: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rung.lock() = true;
        self.sleeper.notify_one();
    }
}

thread_local! {
    /// For the thread's next wait. None while a wait has it.
    static BELL: Cell<Option<(Arc<Bell>, Waker)>> = const { Cell::new(None) };
}

impl Bell {
    /// Asks until there is an answer, and sleeps until woken in between.
    ///
    /// A ring is for one wait. `ask` may drop a waker of the user's, whose destructor may wait for another call: that inner wait finds no
    /// bell here, and has one of its own.
    pub fn block_on<T>(mut ask: impl FnMut(&Waker) -> Poll<T>) -> T {
        // In a thread that ends the bell may be gone.
        let kept = BELL.try_with(Cell::take).ok().flatten();
        let (bell, waker) = kept.unwrap_or_else(Bell::with_waker);
        let answer = bell.sleep(&waker, &mut ask);
        let _ = BELL.try_with(|kept| kept.set(Some((bell, waker))));
        answer
    }

    fn with_waker() -> (Arc<Bell>, Waker) {
        let bell = Arc::new(Bell::default());
        (bell.clone(), Waker::from(bell))
    }

    fn sleep<T>(&self, waker: &Waker, ask: &mut impl FnMut(&Waker) -> Poll<T>) -> T {
        loop {
            if let Poll::Ready(answer) = ask(waker) {
                return answer;
            }
            let mut rung = self.rung.lock();
            while !std::mem::take(&mut *rung) {
                self.sleeper.wait(&mut rung);
            }
        }
    }
}
