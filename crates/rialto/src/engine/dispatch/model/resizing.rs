//! Queues that are retired and used again, beside threads that put tasks on them and threads that visit them.

use super::queues::Dispatches;
use super::*;

/// Two queues. One is retired and put in use again while tasks are put on both and wait for each other.
struct Resizing {
    queues: Dispatches<u32>,
    running: [AtomicU32; 2],
    done: sync::Mutex<Vec<u32>>,
    /// Task 0 waits for it, and task 3 sets it.
    given: sync::Mutex<bool>,
    told: sync::Condvar,
    threads: sync::Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Resizing {
    /// Two queues in use.
    fn of_two() -> Arc<Resizing> {
        let all = Arc::new(Resizing {
            queues: Dispatches::new(2, usize::MAX, 2, 4),
            running: [AtomicU32::new(0), AtomicU32::new(0)],
            done: sync::Mutex::new(Vec::new()),
            given: sync::Mutex::new(false),
            told: sync::Condvar::default(),
            threads: sync::Mutex::new(Vec::new()),
        });
        all.grow();
        all.grow();
        all
    }

    /// Closes the queues. Returns the tasks that were done, in order.
    fn end(&self) -> Vec<u32> {
        self.queues.all().for_each(Dispatch::close);
        loop {
            let Some(executor) = self.threads.lock().pop() else { break };
            executor.join().unwrap();
        }
        let mut done = self.done.lock().clone();
        done.sort_unstable();
        done
    }

    fn work(self: &Arc<Resizing>, queue: usize, me: usize) {
        let all = self.clone();
        let executor = thread::spawn(move || {
            while let Some(task) = all.queues.at(queue).next(me, || {}) {
                assert_eq!(all.running[queue].fetch_add(1, Ordering::SeqCst), 0, "D1: two run");
                thread::yield_now();
                all.running[queue].fetch_sub(1, Ordering::SeqCst);
                match task {
                    0 => all.wait(queue, me),
                    3 => {
                        *all.given.lock() = true;
                        all.told.notify_all();
                    }
                    _ => {}
                }
                all.done.lock().push(task);
            }
        });
        self.threads.lock().push(executor);
    }

    fn wait(self: &Arc<Resizing>, queue: usize, me: usize) {
        if !self.queues.at(queue).leave(me) {
            self.start_standby(queue);
        }
        let mut given = self.given.lock();
        while !*given {
            given = self.told.wait(given, None);
        }
        drop(given);
        self.queues.at(queue).come_back(me);
    }

    fn start_standby(self: &Arc<Resizing>, queue: usize) {
        if let Some(slot) = self.queues.at(queue).add_standby() {
            self.work(queue, slot);
        }
    }

    /// Runs a task on this thread if the queue may be visited; otherwise puts it there. A visitor that waits gives
    /// its turn up for good.
    fn visit(self: &Arc<Resizing>, queue: usize, task: u32) {
        let Some(slot) = self.queues.at(queue).visit() else {
            return self.queues.put(queue, task, Standing::New, |queue| self.start_standby(queue));
        };
        assert_eq!(self.running[queue].fetch_add(1, Ordering::SeqCst), 0, "D1: two run");
        thread::yield_now();
        self.running[queue].fetch_sub(1, Ordering::SeqCst);
        if !self.queues.at(queue).end_visit(slot) {
            self.start_standby(queue);
        }
        if task == 0 {
            let mut given = self.given.lock();
            while !*given {
                given = self.told.wait(given, None);
            }
        } else {
            *self.given.lock() = true;
            self.told.notify_all();
        }
        self.done.lock().push(task);
    }

    fn grow(self: &Arc<Resizing>) {
        let start = |queue| {
            self.work(queue, 0);
            Ok::<(), ()>(())
        };
        self.queues.grow(start, |queue| self.start_standby(queue)).unwrap();
    }
}

/// Each task is run once, whenever the queue that it is put on is retired or used again; so is the one that waits,
/// wherever the task that it waits for is run.
#[test]
fn queues_come_and_go_and_each_task_is_run_once() {
    let serve = || {
        let all = Resizing::of_two();
        let together = thread::spawn({
            let all = all.clone();
            move || {
                all.queues.put_all([(0, 1), (1, 0)].into_iter().collect(), |queue| all.start_standby(queue))
            }
        });
        let alone = thread::spawn({
            let all = all.clone();
            move || {
                for (task, standing) in [(2, Standing::New), (3, Standing::Begun)] {
                    all.queues.put(1, task, standing, |queue| all.start_standby(queue));
                }
            }
        });
        let resizer = thread::spawn({
            let all = all.clone();
            move || {
                all.queues.shrink(|queue| all.start_standby(queue));
                all.grow();
                all.queues.shrink(|queue| all.start_standby(queue));
            }
        });
        [together, alone, resizer].into_iter().for_each(|thread| thread.join().unwrap());
        let done = all.end();
        assert_eq!(done, [0, 1, 2, 3]);
    };
    shuttle::check_random(serve, SCHEDULES);
    shuttle::check_pct(serve, SCHEDULES, 3);
}

/// A queue is retired and used again while callers visit it: each task is run once, by its caller or on a queue, and
/// all threads end.
#[test]
fn queues_come_and_go_beside_visitors() {
    let serve = || {
        let all = Resizing::of_two();
        let visitors = [0, 3].map(|task| {
            let all = all.clone();
            thread::spawn(move || all.visit(1, task))
        });
        let putter = thread::spawn({
            let all = all.clone();
            move || all.queues.put(1, 1, Standing::New, |queue| all.start_standby(queue))
        });
        let resizer = thread::spawn({
            let all = all.clone();
            move || {
                all.queues.shrink(|queue| all.start_standby(queue));
                all.grow();
                all.queues.shrink(|queue| all.start_standby(queue));
            }
        });
        visitors.into_iter().chain([putter, resizer]).for_each(|thread| thread.join().unwrap());
        let done = all.end();
        assert_eq!(done, [0, 1, 3]);
    };
    shuttle::check_random(serve, SCHEDULES);
    shuttle::check_pct(serve, SCHEDULES, 3);
}
