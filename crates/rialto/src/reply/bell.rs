//! [`Bell`]: a thread sleeps on it while it waits for a future.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use parking_lot::{Condvar, Mutex};

/// A thread sleeps on it during one wait for a future. It is not the thread's park token, which belongs to the thread's
/// owner.
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
    /// Kept for the thread's next wait; `None` while a wait uses it.
    static BELL: Cell<Option<(Arc<Bell>, Waker)>> = const { Cell::new(None) };
}

impl Bell {
    /// Polls until there is an answer; sleeps until woken in between.
    ///
    /// A ring of the bell belongs to one wait. `ask` may drop a user's waker, whose destructor may wait for another
    /// call: that inner wait finds no bell here, and makes one of its own.
    pub fn block_on<T>(mut ask: impl FnMut(&Waker) -> Poll<T>) -> T {
        // In a thread that ends, the bell may be gone.
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
