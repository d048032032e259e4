//! [`Suite`]: the targets of a crate, as its tests try them.

use std::panic::resume_unwind;
use std::thread;

use super::target::Target;

/// The targets of a crate. They run on stacks as deep as those of the threads that run the crate's code elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// All targets.
    pub targets: &'static [Target],
    /// The bytes of the stack on which each target runs.
    pub stack_bytes: usize,
}

impl Suite {
    /// Tries the target of this name on bytes from a seed ([`Target::try_seeds`]).
    ///
    /// # Panics
    /// As [`Target::try_seeds`], and if there is no such target.
    pub fn try_seeds(self, name: &str) {
        let target = self.targets.iter().find(|target| target.name == name).expect("it is a target");
        self.on_its_stack(|| target.try_seeds());
    }

    /// Tries each target on its kept inputs ([`Target::try_kept`]).
    ///
    /// # Panics
    /// As [`Target::try_kept`].
    pub fn try_kept(self) {
        self.on_its_stack(|| self.targets.iter().for_each(Target::try_kept));
    }

    fn on_its_stack(self, work: impl FnOnce() + Send + 'static) {
        let thread = thread::Builder::new().stack_size(self.stack_bytes).spawn(work);
        thread.expect("a thread starts").join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}
