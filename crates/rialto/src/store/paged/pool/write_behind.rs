//! Write-behind: a thread writes pages that have changed, and lets pages leave, before their frames are needed. So an operation that
//! needs a frame seldom waits for a write.
//!
//! Invariant: no operation relies on the thread. One that finds no free frame after a wait of at most [`PATIENCE`] makes room
//! itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::leaving::{Buffers, Round};
use super::{FRAMES_AT_ONCE, KEPT, PIN, PagePool, WRITTEN_TOGETHER};
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::error::Result;
use crate::store::tree::Node;

/// The thread is asked when fewer than one in so many frames are free, and at most so many; it frees twice as many.
const FREE: usize = 64;
const FREE_MAX: usize = 256;
/// A fetch stage leaves at most so many free.
const FREE_AHEAD: usize = 16;
/// How long an operation waits for a frame that the thread is to free.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long the thread rests when no page can leave.
const REST: Duration = Duration::from_millis(20);

/// What the thread and those that need frames tell each other.
#[derive(Debug, Default)]
pub(super) struct WriteBehind {
    state: Mutex<WriteBehindState>,
    /// There is something to do for the thread.
    asked: Condvar,
    /// It is to end.
    ended: Condvar,
    /// So that a thread that is asked already costs no lock.
    is_asked: AtomicBool,
    /// A frame has become free; beside the mutex of the pool's lists.
    pub freed: Condvar,
}

#[derive(Debug, Default)]
struct WriteBehindState {
    /// Whether the thread runs.
    runs: bool,
    is_asked: bool,
    ends: bool,
}

impl WriteBehind {
    /// Has the thread free some frames.
    pub fn ask(&self) {
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            self.state.lock().is_asked = true;
            self.asked.notify_one();
        }
    }

    fn runs(&self) -> bool {
        self.state.lock().runs
    }

    /// Returns when the thread is asked to free frames; false: it is to end.
    fn await_work(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_asked && !state.ends {
            self.asked.wait(&mut state);
        }
        state.is_asked = false;
        self.is_asked.store(false, Ordering::Relaxed);
        !state.ends
    }

    fn ends(&self) -> bool {
        self.state.lock().ends
    }

    /// The thread runs until this is dropped.
    fn run(&self) -> ThreadRuns<'_> {
        self.state.lock().runs = true;
        ThreadRuns(self)
    }

    /// No page could leave: for a while operations do not wait for the thread.
    fn rest(&self) {
        let mut state = self.state.lock();
        state.runs = false;
        if !state.ends {
            self.ended.wait_for(&mut state, REST);
        }
        state.runs = true;
    }
}

/// See [`WriteBehind::run`].
struct ThreadRuns<'a>(&'a WriteBehind);

impl Drop for ThreadRuns<'_> {
    fn drop(&mut self) {
        self.0.state.lock().runs = false;
    }
}

impl<const W: usize> PagePool<W> {
    /// With fewer free frames the thread is asked.
    pub(super) fn free_wanted(&self) -> usize {
        (self.frames.count() as usize / FREE).min(FREE_MAX)
    }

    /// How many frames a fetch stage leaves free for the pages that the operate stage makes.
    pub fn frames_ahead(&self) -> usize {
        self.free_wanted().clamp(FRAMES_AT_ONCE, FREE_AHEAD)
    }

    /// Frees frames if they have become few.
    pub fn write_behind_once(&self) {
        if self.lists.lock().free.len() >= self.free_wanted() {
            return;
        }
        let mut buffers = Buffers::of(WRITTEN_TOGETHER, Node::<W>::BYTES);
        // What goes wrong here shows again where an operation makes room itself.
        while self.has_few_free() && self.free_some(&mut buffers).is_ok_and(|freed| freed) {}
    }

    /// Frees frames when they become few. Returns after [`PagePool::end_write_behind`].
    pub fn write_behind(&self) {
        let mut buffers = Buffers::of(WRITTEN_TOGETHER, Node::<W>::BYTES);
        let _runs = self.write_behind.run();
        while self.write_behind.await_work() {
            while self.has_few_free() && !self.write_behind.ends() {
                // What goes wrong here shows again where an operation makes room itself.
                if !self.free_some(&mut buffers).is_ok_and(|freed| freed) {
                    self.write_behind.rest();
                    break;
                }
            }
        }
    }

    /// Ends the thread.
    pub fn end_write_behind(&self) {
        self.write_behind.state.lock().ends = true;
        self.write_behind.asked.notify_one();
        self.write_behind.ended.notify_one();
    }

    fn has_few_free(&self) -> bool {
        self.lists.lock().free.len() < 2 * self.free_wanted()
    }

    /// One round. False: no page could leave.
    fn free_some(&self, buffers: &mut Buffers) -> Result<bool> {
        let round = self.let_some_leave(buffers, PIN | KEPT)?;
        Ok(matches!(round, Round::SomeLeft))
    }

    /// Returns once so many frames were free; another operation may take them first. Whether it had to wait until pages were written
    /// for that.
    ///
    /// # Errors
    /// As [`PagePool::make_room`].
    pub fn get_room(&self, frames: usize) -> Result<bool> {
        let is_room = |free: usize| free >= frames;
        if is_room(self.lists.lock().free.len()) {
            return Ok(false);
        }
        let _waiting = WaitGuard::enter(&self.clock, Awaited::Page);
        let writes_before = self.rounds.writes();
        if self.write_behind.runs() {
            self.write_behind.ask();
            let mut lists = self.lists.lock();
            if is_room(lists.free.len()) {
                return Ok(false);
            }
            let waited = self.write_behind.freed.wait_for(&mut lists, PATIENCE);
            if !waited.timed_out() && is_room(lists.free.len()) {
                return Ok(self.rounds.writes() > writes_before);
            }
        }
        let has_waited = self.rounds.writes() > writes_before;
        Ok(self.make_room(frames)? || has_waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Clock, MemoryDisk, Open};
    use crate::store::paged::page_file::PageFile;
    use crate::store::tree::body_words;

    const WORDS: usize = body_words(4_096);

    #[test]
    fn frames_are_freed_when_the_database_is_driven() {
        let file = PageFile::open(&*MemoryDisk::new(), Open::Create, 4_096, 1).unwrap();
        let pool = PagePool::<WORDS>::new(file, 512, 1 << 20, &Clock::System).unwrap();
        while pool.lists.lock().free.len() > pool.free_wanted() {
            pool.make_root(true).unwrap();
        }
        pool.write_behind_once();
        assert_eq!(pool.lists.lock().free.len(), pool.free_wanted(), "that is enough");
        pool.make_root(true).unwrap();
        pool.write_behind_once();
        assert!(!pool.has_few_free());
    }

    #[test]
    fn frames_are_freed_before_they_are_needed_until_it_ends() {
        let file = PageFile::open(&*MemoryDisk::new(), Open::Create, 4_096, 1).unwrap();
        let pool = PagePool::<WORDS>::new(file, 512, 1 << 20, &Clock::System).unwrap();
        assert_eq!(pool.free_wanted(), 8);
        std::thread::scope(|scope| {
            scope.spawn(|| pool.write_behind());
            for _ in 0..5_000 {
                pool.make_root(true).unwrap();
            }
            // The last pages have asked for the next ones to leave.
            pool.write_behind.ask();
            while pool.has_few_free() {
                std::thread::sleep(Duration::from_millis(1));
            }
            pool.end_write_behind();
        });
        assert!(!pool.write_behind.runs());
        let (pages, images) = pool.pages_and_images();
        assert!(pages == 5_000 && images > 4_000, "{pages} pages, {images} images");
        // Without it they make room themselves.
        (0..1_000).for_each(|_| _ = pool.make_root(true).unwrap());
    }
}
