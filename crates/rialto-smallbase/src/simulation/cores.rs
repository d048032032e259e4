//! [`Cores`]: which thread runs on which core.
//!
//! Threads are scheduled as the kernel schedules real-time threads of one priority. Each core has a queue of threads that are ready.
//! A thread that is woken goes to the core on which it ran last if that has nothing to do, else to another idle core of its machine,
//! else behind the queue of the first. A core that has nothing to do takes from its own queue, or the first thread of the longest
//! queue of its machine. No thread is preempted, but one that has run for its slice goes behind its queue at its next step.
//!
//! Invariant: no core of a machine is idle while a thread of this machine is ready.

use std::collections::VecDeque;

/// The number of a thread, of a core, of a node.
pub type ThreadId = u32;
pub type CoreId = usize;
pub type NodeId = u32;

/// How a thread came to its core: each way has its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// From the core's own queue.
    Queued,
    /// The core was idle when the thread was woken.
    Idle,
    /// From the queue of another core.
    Pulled,
}

/// A thread that begins to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    pub core: CoreId,
    pub thread: ThreadId,
    pub arrival: Arrival,
    /// Whether the core has run none of the thread's node among the last two nodes: what the thread needs has left its caches.
    pub is_cold: bool,
}

#[derive(Clone)]
struct Core {
    running: Option<ThreadId>,
    queue: VecDeque<ThreadId>,
    /// The last two different nodes whose threads have run here, the last one first.
    nodes: [Option<NodeId>; 2],
}

/// Where a thread belongs.
#[derive(Clone, Copy)]
struct Home {
    node: NodeId,
    machine: usize,
    /// Where it ran last.
    core: CoreId,
}

/// The cores of all machines, and the threads.
pub struct Cores {
    per_machine: usize,
    cores: Vec<Core>,
    threads: Vec<Home>,
}

impl Cores {
    pub fn new(machines: usize, per_machine: usize) -> Cores {
        let core = Core { running: None, queue: VecDeque::new(), nodes: [None; 2] };
        Cores { per_machine, cores: vec![core; machines * per_machine], threads: Vec::new() }
    }

    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// A new thread of a node, asleep. New threads of a machine are spread over its cores.
    pub fn add_thread(&mut self, node: NodeId, machine: usize) -> ThreadId {
        let number = self.threads.len();
        self.threads.push(Home {
            node,
            machine,
            core: machine * self.per_machine + number % self.per_machine,
        });
        number as ThreadId
    }

    /// The thread that a core runs.
    pub fn running(&self, core: CoreId) -> Option<ThreadId> {
        self.cores[core].running
    }

    /// A thread that slept is ready. Gives its start if a core is idle.
    pub fn wake(&mut self, thread: ThreadId) -> Option<Start> {
        let Home { machine, core: last, .. } = self.threads[thread as usize];
        let first = machine * self.per_machine;
        let mut others = first..first + self.per_machine;
        let is_idle = |core: &CoreId| self.cores[*core].running.is_none();
        match Some(last).filter(is_idle).or_else(|| others.find(is_idle)) {
            Some(core) => Some(self.start(core, thread, Arrival::Idle)),
            None => {
                self.cores[last].queue.push_back(thread);
                None
            }
        }
    }

    /// The thread of a core sleeps. Gives the next one, if any is ready.
    pub fn sleep(&mut self, core: CoreId) -> Option<Start> {
        self.cores[core].running = None;
        if let Some(thread) = self.cores[core].queue.pop_front() {
            return Some(self.start(core, thread, Arrival::Queued));
        }
        let first = core / self.per_machine * self.per_machine;
        // Of queues of one length, that of the first core.
        let others = (first..first + self.per_machine).rev();
        let longest =
            others.max_by_key(|other| self.cores[*other].queue.len()).expect("a machine has a core");
        let thread = self.cores[longest].queue.pop_front()?;
        Some(self.start(core, thread, Arrival::Pulled))
    }

    /// The thread of a core has used its slice up. Gives the next one, if any waits for this core.
    pub fn give_way(&mut self, core: CoreId) -> Option<Start> {
        let next = self.cores[core].queue.pop_front()?;
        let thread = self.cores[core].running.expect("a thread gives way");
        self.cores[core].queue.push_back(thread);
        Some(self.start(core, next, Arrival::Queued))
    }

    fn start(&mut self, at: CoreId, thread: ThreadId, arrival: Arrival) -> Start {
        let node = self.threads[thread as usize].node;
        self.threads[thread as usize].core = at;
        let core = &mut self.cores[at];
        debug_assert!(arrival == Arrival::Queued || core.running.is_none());
        core.running = Some(thread);
        let is_cold = !core.nodes.contains(&Some(node));
        if core.nodes[0] != Some(node) {
            core.nodes = [Some(node), core.nodes[0]];
        }
        Start { core: at, thread, arrival, is_cold }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_thread_takes_an_idle_core_and_a_core_takes_from_the_others() {
        let mut cores = Cores::new(2, 2);
        let of_first: Vec<ThreadId> = (0..5).map(|_| cores.add_thread(0, 0)).collect();
        let elsewhere = cores.add_thread(1, 1);
        let start = |core, thread, arrival, is_cold| Some(Start { core, thread, arrival, is_cold });
        assert_eq!(cores.wake(of_first[0]), start(0, 0, Arrival::Idle, true));
        // Its own core is busy, so it takes the other one.
        assert_eq!(cores.wake(of_first[2]), start(1, 2, Arrival::Idle, true));
        for thread in [of_first[1], of_first[3], of_first[4]] {
            assert_eq!(cores.wake(thread), None, "no core of the machine is idle");
        }
        assert_eq!(cores.wake(elsewhere), start(3, 5, Arrival::Idle, true), "the other machine is idle");
        assert_eq!(cores.sleep(3), None, "threads stay on their machine");
        // The queues: core 0 has 4, core 1 has 1 and 3.
        assert_eq!(cores.sleep(0), start(0, 4, Arrival::Queued, false));
        assert_eq!(cores.sleep(0), start(0, 1, Arrival::Pulled, false));
        assert_eq!(cores.give_way(1), start(1, 3, Arrival::Queued, false));
        assert_eq!(cores.sleep(1), start(1, 2, Arrival::Queued, false));
        assert_eq!((cores.give_way(1), cores.sleep(1), cores.sleep(0)), (None, None, None));
    }

    #[test]
    fn a_node_is_cold_on_a_core_that_has_run_two_others_since() {
        let mut cores = Cores::new(1, 1);
        let threads: Vec<ThreadId> = (0..3).map(|node| cores.add_thread(node, 0)).collect();
        let mut run = |node: usize| {
            let is_cold = cores.wake(threads[node]).expect("the core is idle").is_cold;
            cores.sleep(0);
            is_cold
        };
        assert_eq!([0, 1, 0, 1, 2, 1, 0].map(&mut run), [true, true, false, false, true, false, true]);
    }
}
