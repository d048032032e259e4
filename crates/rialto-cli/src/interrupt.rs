//! Ctrl-C (SIGINT), SIGTERM and SIGHUP in `bench`, `figures`, `backup` and `restore`; each is an interrupt. `serve` handles
//! signals itself.
//!
//! The first interrupt ends the program at once if that leaves nothing half done. Otherwise it asks the command to end:
//! the command removes what is half done, and ends by itself. A second Ctrl-C ends the program in any case; SIGTERM and
//! SIGHUP, whose senders may send both, count once. Each prints a line on stderr. The status is [`INTERRUPTED`], unless the command has ended before the interrupt reached
//! it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::tell;

/// The status of a program that an interrupt has ended, by whichever signal: 128 plus the number of SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;

/// The effect of the next interrupt.
enum Next {
    /// It ends the program, and prints this.
    End(Box<dyn FnOnce() -> String + Send>),
    /// It prints this, and asks the command to end by this closure.
    Ask(&'static str, Box<dyn FnOnce() + Send>),
}

struct State {
    next: Next,
    has_asked: bool,
}

/// The handling of this process's interrupts.
pub struct Interrupts(Arc<Mutex<State>>);

impl Interrupts {
    /// Handles interrupts from now on: the first one ends the program, and prints this. A program calls this once.
    pub fn end(say: impl FnOnce() -> String + Send + 'static) -> io::Result<Interrupts> {
        let state = Arc::new(Mutex::new(State { next: Next::End(Box::new(say)), has_asked: false }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        // Registered on this thread, so that no later interrupt is missed.
        let entered = runtime.enter();
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        // Under nohup a terminal that is closed ends nothing.
        let is_kept = is_ignored(SignalKind::hangup());
        let mut hangups = if is_kept { None } else { Some(signal(SignalKind::hangup())?) };
        drop(entered);
        let heard = Interrupts(state.clone());
        std::thread::Builder::new().name("interrupts".to_owned()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        Some(()) = interrupts.recv() => heard.hear(),
                        Some(()) = terminations.recv() => heard.hear_once(),
                        Some(()) = next(&mut hangups) => heard.hear_once(),
                        else => break,
                    }
                }
            });
        })?;
        Ok(Interrupts(state))
    }

    /// From now on the first interrupt asks the command to end, and prints this.
    pub fn ask(&self, say: &'static str, ask: impl FnOnce() + Send + 'static) {
        self.state().next = Next::Ask(say, Box::new(ask));
    }

    /// Whether an interrupt has asked the command to end.
    pub fn has_asked(&self) -> bool {
        self.state().has_asked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while it has the lock")
    }

    /// Hears a signal that its sender may send twice, or together with another one: as one interrupt.
    fn hear_once(&self) {
        if !self.state().has_asked {
            self.hear();
        }
    }

    fn hear(&self) {
        let mut state = self.state();
        let again = Next::End(Box::new(|| "interrupted again: what is half done stays as it is".to_owned()));
        match std::mem::replace(&mut state.next, again) {
            // While the state is locked the command cannot go on to a step that must not be cut off.
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

/// The next signal of a kind, if this program hears that kind.
async fn next(signals: &mut Option<Signal>) -> Option<()> {
    match signals {
        Some(signals) => signals.recv().await,
        None => None,
    }
}

/// Whether the program was started with a signal ignored, as the kernel tells in a mask of hexadecimal digits.
fn is_ignored(signal: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw_value() - 1) & 1 == 1)
}
