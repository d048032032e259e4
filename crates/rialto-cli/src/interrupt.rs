//! Ctrl-C (SIGINT) in `bench`, `backup` and `restore`. `serve` hears it itself.
//!
//! The first interrupt either ends the program at once, where nothing half done is left by that, or asks the command to end:
//! it then removes what is half done, and ends by itself. A second interrupt ends the program in any case. Each says so on stderr, and
//! the status is [`INTERRUPTED`], unless the command has come to its end before it heard of the interrupt.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::signal::unix::{SignalKind, signal};

use crate::output::tell;

/// The status of a program that an interrupt has ended: 128 and the signal's number, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// What the next interrupt does.
enum Next {
    /// It ends the program; what it says.
    End(Box<dyn FnOnce() -> String + Send>),
    /// It asks the command to end; what it says, and how the command is asked.
    Ask(&'static str, Box<dyn FnOnce() + Send>),
}

struct State {
    next: Next,
    has_asked: bool,
}

/// Interrupts of this process, from now on.
pub struct Interrupts(Arc<Mutex<State>>);

impl Interrupts {
    /// Hears interrupts from now on: the first one ends the program, and says this. Every program has this once.
    pub fn end(say: impl FnOnce() -> String + Send + 'static) -> io::Result<Interrupts> {
        let state = Arc::new(Mutex::new(State { next: Next::End(Box::new(say)), has_asked: false }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        // Here, so that no interrupt that comes from now on is missed.
        let entered = runtime.enter();
        let mut interrupts = signal(SignalKind::interrupt())?;
        drop(entered);
        let heard = Interrupts(state.clone());
        std::thread::Builder::new().name("interrupts".to_owned()).spawn(move || {
            runtime.block_on(async {
                while interrupts.recv().await.is_some() {
                    heard.hear();
                }
            });
        })?;
        Ok(Interrupts(state))
    }

    /// From now on the first interrupt asks the command to end, and says this.
    pub fn ask(&self, say: &'static str, ask: impl FnOnce() + Send + 'static) {
        self.state().next = Next::Ask(say, Box::new(ask));
    }

    /// Whether an interrupt has asked the command to end.
    pub fn has_asked(&self) -> bool {
        self.state().has_asked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }

    fn hear(&self) {
        let mut state = self.state();
        let again = Next::End(Box::new(|| "interrupted again: what is half done stays as it is".to_owned()));
        match std::mem::replace(&mut state.next, again) {
            // The command cannot go on to what must not be ended while the state is locked.
            Next::End(say) => {
                tell(say());
                std::process::exit(INTERRUPTED.into());
            }
            Next::Ask(say, ask) => {
                tell(say);
                state.has_asked = true;
                ask();
            }
        }
    }
}
