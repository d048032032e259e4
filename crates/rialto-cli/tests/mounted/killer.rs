//! A process that is killed in a chosen step of its disk.

use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};

/// Kills a process when its disk comes to a step.
#[derive(Debug, Default)]
pub struct Killer(Mutex<Option<Victim>>);

#[derive(Debug, Clone, Copy)]
struct Victim {
    process: u32,
    step: u64,
    /// Whether the step in which it is killed takes place.
    takes_place: bool,
}

impl Killer {
    /// Kills this process in this step, or in the next one if that has passed.
    pub fn arm(&self, process: u32, step: u64, takes_place: bool) {
        *self.0.lock().unwrap() = Some(Victim { process, step, takes_place });
    }

    /// Forgets the process. True if it was killed already, or there was none.
    pub fn disarm(&self) -> bool {
        self.0.lock().unwrap().take().is_none()
    }

    /// Called before each step with its number; false if the step does not take place.
    pub fn passes(&self, step: u64) -> bool {
        let mut victim = self.0.lock().unwrap();
        let Some(it) = victim.filter(|victim| victim.step <= step) else { return true };
        *victim = None;
        kill(it.process);
        it.takes_place
    }
}

/// Sends SIGKILL to a child that has not been waited for.
pub fn kill(process: u32) {
    let pid = Pid::from_raw(process as i32).expect("a child's number is positive");
    kill_process(pid, Signal::KILL).expect("a child that is not waited for can be sent a signal");
}
