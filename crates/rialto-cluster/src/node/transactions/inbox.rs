//! [`Inbox`]: the tasks of a branch, and whether a thread carries them out.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::branch::Task;

/// The tasks of a branch. Invariant: from when a task is given to a branch that rests, until it rests again, one thread is there
/// for it, or is to be.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    /// Told when a task comes while a statement waits with its next portion, and at the end.
    came: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    turn: Turn,
}

/// Whether tasks are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Turn {
    /// There are none.
    #[default]
    Rests,
    /// A thread carries them out, or is to.
    Runs,
    /// The last one was carried out, or the partition is not served any more.
    Over,
}

/// What becomes of a task that was given to a branch.
pub enum Given {
    /// A thread is there for it.
    Taken,
    /// A thread is needed for it.
    Waits,
    /// The branch is over.
    NotTaken(Task),
}

/// What a branch did when its inbox was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It rested, or was over.
    Rested,
    /// A thread carries out its tasks, or is to, and finds that there are none any more.
    Ran,
}

impl Inbox {
    /// A task comes.
    pub fn give(&self, task: Task) -> Given {
        let mut state = self.state.lock();
        match state.turn {
            Turn::Over => Given::NotTaken(task),
            Turn::Runs => {
                state.tasks.push_back(task);
                self.came.notify_one();
                Given::Taken
            }
            Turn::Rests => {
                state.tasks.push_back(task);
                state.turn = Turn::Runs;
                Given::Waits
            }
        }
    }

    /// The next task, for the thread that is there. None: then none is there any more.
    pub fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        if state.turn == Turn::Over {
            return None;
        }
        let task = state.tasks.pop_front();
        if task.is_none() {
            state.turn = Turn::Rests;
        }
        task
    }

    /// Waits for the next task. None once the inbox is closed.
    pub fn wait(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.turn == Turn::Over {
                return None;
            }
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            self.came.wait(&mut state);
        }
    }

    /// Whether one of the tasks is so.
    pub fn any(&self, is_so: impl Fn(&Task) -> bool) -> bool {
        self.state.lock().tasks.iter().any(is_so)
    }

    /// No task is taken any more.
    pub fn close(&self) -> Before {
        let mut state = self.state.lock();
        state.tasks.clear();
        let before = std::mem::replace(&mut state.turn, Turn::Over);
        self.came.notify_one();
        if before == Turn::Runs { Before::Ran } else { Before::Rested }
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().turn == Turn::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_called_for_a_branch_until_it_rests() {
        let inbox = Inbox::default();
        assert!(matches!(inbox.give(Task::Release), Given::Waits), "it rested");
        assert!(matches!(inbox.give(Task::Release), Given::Taken), "a thread is to come");
        assert!(inbox.next().is_some() && inbox.wait().is_some());
        assert!(matches!(inbox.give(Task::Release), Given::Taken), "the thread is there");
        assert!(inbox.next().is_some() && inbox.next().is_none());
        assert!(matches!(inbox.give(Task::Release), Given::Waits), "it rested again");
        assert_eq!(inbox.close(), Before::Ran);
        assert!(inbox.next().is_none() && inbox.wait().is_none() && inbox.is_closed());
        assert!(matches!(inbox.give(Task::Release), Given::NotTaken(Task::Release)));
        assert_eq!(inbox.close(), Before::Rested);
    }
}
