//! The sampler: a signal for each tick of processor time that the process uses, whose handler keeps the stack that it
//! interrupted.
//!
//! The system checks timers of processor time at its own ticks, on each core: 250 samples a second and core where it ticks
//! so often, whatever is asked for. Code that does not run (blocked in the kernel) is not sampled.

#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The most frames of a stack that are kept, the innermost ones.
pub const FRAMES_MAX: usize = 40;
/// The most samples: two cores for a minute.
const SAMPLES_MAX: usize = 30_000;
/// How often a signal is asked for, in microseconds of processor time.
const INTERVAL_US: libc::suseconds_t = 1_000;

/// Instruction pointers from the innermost frame outwards, zeros behind them: plain memory that the handler may write.
static STACKS: [[AtomicUsize; FRAMES_MAX]; SAMPLES_MAX] =
    [const { [const { AtomicUsize::new(0) }; FRAMES_MAX] }; SAMPLES_MAX];
/// Samples begun, those included that there was no room for.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Handlers on their way.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);
/// One at a time: timer and memory are the process's.
static ONE: Mutex<()> = Mutex::new(());

/// Samples are taken as long as it lives.
#[derive(Debug)]
pub struct Sampler(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Sampler {
    /// Begins, when no other is at it.
    ///
    /// # Errors
    /// The system refuses the signal or its timer.
    pub fn start() -> io::Result<Sampler> {
        let one = ONE.lock().unwrap_or_else(|panicked| panicked.into_inner());
        // Once before any signal, so that nothing is set up in a handler.
        backtrace::trace(|_| true);
        TAKEN.store(0, Ordering::Relaxed);
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros are a valid `sigaction`: no handler, no flags, an empty mask.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: `action` is a whole `sigaction`, and its handler does only what a handler may (see there). It stays when the
        // sampler is gone, so a late signal meets it.
        if unsafe { libc::sigaction(libc::SIGPROF, action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let sampler = Sampler(one);
        IS_ON.store(true, Ordering::SeqCst);
        set_timer(INTERVAL_US)?;
        Ok(sampler)
    }

    /// Ends. The stacks, and how many more there was no room for.
    pub fn stop(self) -> (Vec<Vec<usize>>, usize) {
        end();
        let taken = TAKEN.load(Ordering::Relaxed);
        let stacks = STACKS.iter().take(taken).map(|stack| {
            let frames = stack.iter().map(|frame| frame.load(Ordering::Relaxed));
            frames.take_while(|&frame| frame != 0).collect()
        });
        (stacks.collect(), taken.saturating_sub(SAMPLES_MAX))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        end();
    }
}

/// No handler writes any more when it returns.
fn end() {
    // Only a value that the system refuses fails, and 0 is none.
    let _ = set_timer(0);
    IS_ON.store(false, Ordering::SeqCst);
    while RUNNING.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
}

fn set_timer(us: libc::suseconds_t) -> io::Result<()> {
    let interval = libc::timeval { tv_sec: 0, tv_usec: us };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the kernel reads the structure, and there is none to write to.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allocates nothing and takes no lock: atomics, and the unwinder.
extern "C" fn on_signal(_: libc::c_int) {
    // Counted first, then asked whether it is on: a thread that switches it off and then sees no handler has seen the last one.
    RUNNING.fetch_add(1, Ordering::SeqCst);
    if IS_ON.load(Ordering::SeqCst)
        && let Some(stack) = STACKS.get(TAKEN.fetch_add(1, Ordering::Relaxed))
    {
        keep(stack);
    }
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

/// What the handler's own frames are counted as at most.
const OWN_FRAMES_MAX: usize = 12;

/// Keeps the frames behind the handler's and the one that the system put between.
fn keep(stack: &[AtomicUsize; FRAMES_MAX]) {
    let handler = on_signal as *const () as usize;
    let (mut own, mut skip, mut at) = (0, true, 0);
    let mut see = |frame: &backtrace::Frame| {
        match () {
            () if skip => {
                own += 1;
                // The next one is the system's.
                skip = frame.symbol_address() as usize != handler;
                return own < OWN_FRAMES_MAX;
            }
            () if own != usize::MAX => own = usize::MAX,
            () => {
                stack[at].store(frame.ip() as usize, Ordering::Relaxed);
                at += 1;
            }
        }
        at < FRAMES_MAX
    };
    // SAFETY: what is not synchronized is the crate's own state, which a trace does not touch where the system's unwinder does
    // the work: that finds its tables by `_dl_find_object`, which takes no lock (glibc 2.35), and reads the interrupted
    // frames, which stand still below the handler's.
    unsafe { backtrace::trace_unsynchronized(&mut see) };
    for rest in &stack[at..] {
        rest.store(0, Ordering::Relaxed);
    }
}
