//! [`Dispatches`]: queues of threads of their own, of which the first so many are in use.
//!
//! There is room for more queues than are in use. To retire one it is taken out of use first, so that nobody new is led to it,
//! then given up under its latch, and what nobody has begun goes on the others' queues. Who had been led to it before finds it
//! closed, under the same latch, and looks again. What its threads have begun they end, those that wait for something among
//! them, and only then go. A queue that is used again is opened first, given a thread if it has none, and then put in use.
//!
//! - **D5** Whoever puts something on a queue, puts it on one that is open: its threads are there, and those of one that is
//!   given up come to their end.

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

use super::queue::{Dispatch, Putting, Standing};
use super::sync::AtomicUsize;

/// See the [module](self).
pub(in crate::engine) struct Dispatches<J> {
    /// How many of them are in use; changed by one at a time.
    in_use: CachePadded<AtomicUsize>,
    queues: Box<[CachePadded<Dispatch<J>>]>,
}

impl<J> Dispatches<J> {
    /// With room for so many, none of which is in use; each as [`Dispatch::new`].
    pub fn new(room: usize, length: usize, group: usize, executors: usize) -> Dispatches<J> {
        let queues = (0..room).map(|_| CachePadded::new(Dispatch::new(length, group, executors))).collect();
        Dispatches { in_use: CachePadded::new(AtomicUsize::new(0)), queues }
    }

    /// How many are in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }

    /// How many there is room for.
    pub fn room(&self) -> usize {
        self.queues.len()
    }

    /// One of them, whether it is in use or not.
    pub fn at(&self, queue: usize) -> &Dispatch<J> {
        &self.queues[queue]
    }

    /// Those in use.
    pub fn used(&self) -> impl Iterator<Item = &Dispatch<J>> {
        self.queues.iter().take(self.len()).map(|queue| &**queue)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Dispatch<J>> {
        self.queues.iter().map(|queue| &**queue)
    }

    /// The queue that is in use where this one was meant.
    fn meant(&self, queue: usize) -> usize {
        let in_use = self.len();
        if queue < in_use { queue } else { queue % in_use }
    }

    /// Puts a job on a queue, or where that has been retired on another. `hire` gets somebody for a queue at which nobody is
    /// there to run it.
    pub fn put(&self, queue: usize, job: J, standing: Standing, hire: impl Fn(usize)) {
        loop {
            let queue = self.meant(queue);
            let latch = self.queues[queue].lock_to_put();
            if latch.is_closed() {
                // It has just been retired.
                continue;
            }
            if !latch.put([job], standing) {
                hire(queue);
            }
            return;
        }
    }

    /// Puts jobs that are begun on their queues, all at one time: so those of two calls stand in the same order wherever they
    /// meet.
    pub fn put_all(&self, mut jobs: SmallVec<[(usize, J); 8]>, hire: impl Fn(usize)) {
        let (queues, latches) = loop {
            jobs.iter_mut().for_each(|(queue, _)| *queue = self.meant(*queue));
            jobs.sort_by_key(|(queue, _)| *queue);
            let mut queues: SmallVec<[usize; 8]> = jobs.iter().map(|(queue, _)| *queue).collect();
            queues.dedup();
            // In one order, as everybody takes them.
            let latches: SmallVec<[Putting<'_, J>; 8]> =
                queues.iter().map(|&queue| self.queues[queue].lock_to_put()).collect();
            if !latches.iter().any(Putting::is_closed) {
                break (queues, latches);
            }
        };
        let mut short_of: SmallVec<[usize; 8]> = SmallVec::new();
        let mut jobs = jobs.into_iter().peekable();
        for (queue, latch) in queues.into_iter().zip(latches) {
            let its = std::iter::from_fn(|| jobs.next_if(|(of, _)| *of == queue).map(|(_, job)| job));
            if !latch.put(its, Standing::Begun) {
                short_of.push(queue);
            }
        }
        short_of.into_iter().for_each(hire);
    }

    /// Puts one more in use, with a thread that `start` gives it if it has none. `hire` as for [`Dispatches::put`].
    pub fn grow<E>(&self, start: impl FnOnce(usize) -> Result<(), E>, hire: impl Fn(usize)) -> Result<(), E> {
        let queue = self.len();
        if self.queues[queue].reopen()
            && let Err(error) = start(queue)
        {
            self.queues[queue].dismiss(0);
            // Who was led here when it was in use before may have found it open.
            self.clear(queue, hire);
            return Err(error);
        }
        self.in_use.store(queue + 1, Ordering::Release);
        Ok(())
    }

    /// Takes one out of use.
    pub fn shrink(&self, hire: impl Fn(usize)) {
        let queue = self.len() - 1;
        self.in_use.store(queue, Ordering::Release);
        self.clear(queue, hire);
    }

    /// Gives up a queue that is out of use; what stood on it stands on others.
    fn clear(&self, queue: usize, hire: impl Fn(usize)) {
        for (job, standing) in self.queues[queue].give_up() {
            self.put(queue, job, standing, &hire);
        }
    }
}
