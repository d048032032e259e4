//! [`Dispatches`]: several queues, each with threads of its own. Those with the lowest numbers are in use.
//!
//! There is room for more queues than are in use. To retire a queue, it is taken out of use first, so that no new
//! request is routed to it. Then it is given up under its latch, and the requests on it that are not begun are moved
//! to other queues. A caller that was routed to it before finds it closed, under the same latch, and looks again. Its
//! threads finish what they have begun, including requests that wait for something, and only then end. To use a queue
//! again, it is opened first, gets a thread if it has none, and is then put in use.
//!
//! - **D5** A request is only put on a queue that is open: its threads are there, and the threads of a queue that is
//!   given up finish their work.

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

use super::queue::{Dispatch, Putting, Standing};
use super::sync::AtomicUsize;

/// See the [module](self).
pub(in crate::engine) struct Dispatches<J> {
    /// How many queues are in use; changed by one thread at a time.
    in_use: CachePadded<AtomicUsize>,
    queues: Box<[CachePadded<Dispatch<J>>]>,
}

impl<J> Dispatches<J> {
    /// With room for so many queues, each as by [`Dispatch::new`]. None of them is in use.
    pub fn new(room: usize, length: usize, batch_max: usize, executors: usize) -> Dispatches<J> {
        let queues =
            (0..room).map(|_| CachePadded::new(Dispatch::new(length, batch_max, executors))).collect();
        Dispatches { in_use: CachePadded::new(AtomicUsize::new(0)), queues }
    }

    /// How many queues are in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }

    /// How many queues there is room for.
    pub fn room(&self) -> usize {
        self.queues.len()
    }

    /// One of the queues, whether it is in use or not.
    pub fn at(&self, queue: usize) -> &Dispatch<J> {
        &self.queues[queue]
    }

    /// The queues in use.
    pub fn used(&self) -> impl Iterator<Item = &Dispatch<J>> {
        self.queues.iter().take(self.len()).map(|queue| &**queue)
    }

    /// All queues.
    pub fn all(&self) -> impl Iterator<Item = &Dispatch<J>> {
        self.queues.iter().map(|queue| &**queue)
    }

    /// The queue in use that stands for this one.
    fn meant(&self, queue: usize) -> usize {
        let in_use = self.len();
        if queue < in_use { queue } else { queue % in_use }
    }

    /// Puts a job on a queue, or on another one if that has been retired. `start_standby` starts an executor for
    /// a queue at which there is none to run the job.
    pub fn put(&self, queue: usize, job: J, standing: Standing, start_standby: impl Fn(usize)) {
        loop {
            let queue = self.meant(queue);
            let latch = self.queues[queue].lock_to_put();
            if latch.is_closed() {
                // The queue has just been retired.
                continue;
            }
            if !latch.put([job], standing) {
                start_standby(queue);
            }
            return;
        }
    }

    /// Puts jobs that are begun on their queues, all at one time: so the jobs of two calls stand in the same order on
    /// all queues that they share.
    pub fn put_all(&self, mut jobs: SmallVec<[(usize, J); 8]>, start_standby: impl Fn(usize)) {
        let (queues, latches) = loop {
            jobs.iter_mut().for_each(|(queue, _)| *queue = self.meant(*queue));
            jobs.sort_by_key(|(queue, _)| *queue);
            let mut queues: SmallVec<[usize; 8]> = jobs.iter().map(|(queue, _)| *queue).collect();
            queues.dedup();
            // All callers take the latches in one order.
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
        short_of.into_iter().for_each(start_standby);
    }

    /// Puts one more queue in use. If it has no thread, `start` gives it one. `start_standby` as for
    /// [`Dispatches::put`].
    pub fn grow<E>(
        &self,
        start: impl FnOnce(usize) -> Result<(), E>,
        start_standby: impl Fn(usize),
    ) -> Result<(), E> {
        let queue = self.len();
        if self.queues[queue].reopen()
            && let Err(error) = start(queue)
        {
            self.queues[queue].remove_executor(0);
            // A caller that was routed here when the queue was in use before may have found it open.
            self.clear(queue, start_standby);
            return Err(error);
        }
        self.in_use.store(queue + 1, Ordering::Release);
        Ok(())
    }

    /// Takes one queue out of use.
    pub fn shrink(&self, start_standby: impl Fn(usize)) {
        let queue = self.len() - 1;
        self.in_use.store(queue, Ordering::Release);
        self.clear(queue, start_standby);
    }

    /// Gives up a queue that is out of use, and moves what stands on it to others.
    fn clear(&self, queue: usize, start_standby: impl Fn(usize)) {
        for (job, standing) in self.queues[queue].give_up() {
            self.put(queue, job, standing, &start_standby);
        }
    }
}
