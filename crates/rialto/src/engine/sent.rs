//! [`Sent`]: a call that was sent and may still be on its way.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::{Condvar, Mutex};

use super::data_oriented::Call;
use crate::error::Result;
use crate::foreign::Panic;
use crate::ids::Lsn;
use crate::inside::InBody;
use crate::log::{Durability, Listener};
use crate::opening::Opening;
use crate::row::Value;
use crate::{Error, Ticket};

/// A call of a procedure on its way ([`Database::send_call`](crate::Database::send_call)): first to its place in the log, then
/// to being durable.
///
/// Dropping it cancels nothing: the call runs to its end, and what it wrote is kept; only its outcome is told to nobody. A panic
/// of a body is resumed in whoever asks for the outcome, when what the call read is durable; if it never will be, the error of
/// the log is the outcome. It is also a `Future` of the outcome, as [`Sent::wait`] gives it,
/// which wakes whoever polled it once, when all of it is there.
#[must_use = "a call's outcome is known only to who asks for it"]
pub struct Sent {
    database: Opening,
    way: Way,
}

/// How far the call has come, as its caller knows.
enum Way {
    /// It may still be with the executors.
    Flying(Arc<Call>),
    Landed(Landed),
    /// The future has given its outcome.
    Told,
}

/// What became of a call.
pub(crate) enum Landed {
    /// It has its place; what it gave.
    Placed(Vec<Value>, Ticket),
    /// It has failed; to be told when what it read is durable (I3).
    Failed(Ticket, Error),
    NotBegun(Error),
    /// A body panicked. What the panic carries is told as an error is.
    Panicked(Ticket, Panic),
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The call has its place, or has failed.
    Placed,
    /// Its outcome can be told.
    Durable,
}

impl Sent {
    pub(crate) fn flying(database: Opening, call: Arc<Call>) -> Sent {
        Sent { database, way: Way::Flying(call) }
    }

    pub(crate) fn landed(database: Opening, landed: Landed) -> Sent {
        Sent { database, way: Way::Landed(landed) }
    }

    /// Whether [`Sent::wait`] would return at once.
    pub fn is_done(&mut self) -> bool {
        if let Way::Flying(call) = &self.way {
            match call.take_landed() {
                Some(landed) => self.way = Way::Landed(landed),
                None => return false,
            }
        }
        match &self.way {
            Way::Landed(landed) => landed.ticket().is_none_or(|ticket| ticket.poll_done().is_some()),
            Way::Flying(_) | Way::Told => true,
        }
    }

    /// Waits until the outcome is durable, and gives what the call gave. The thread is woken at most once.
    ///
    /// # Errors
    /// As [`Database::call`](crate::Database::call): what its bodies give, what keeps it from its place,
    /// [`Error::OutcomeUnknown`]; [`Error::Nested`] inside of a body, which may hold what the call waits for.
    pub fn wait(mut self) -> Result<Vec<Value>> {
        drop(InBody::enter(self.database)?);
        if let Way::Flying(call) = &self.way {
            match call.take_landed() {
                Some(landed) => self.way = Way::Landed(landed),
                None => {
                    return Bell::block_on(|waker| self.poll_by(|| Listener::own(waker)));
                }
            }
        }
        match self.take() {
            Landed::Placed(values, ticket) => ticket.wait().map(|()| values),
            Landed::Failed(settled, error) => Err(settled.wait().err().unwrap_or(error)),
            Landed::NotBegun(error) => Err(error),
            Landed::Panicked(settled, panic) => settled.wait().and_then(|()| panic.resume()),
        }
    }

    /// Waits until the call has its place, and gives what it gave; the ticket tells when that is durable.
    ///
    /// # Errors
    /// As [`Sent::wait`], but for what may become of the log later. A failure is told when what the call read is durable.
    pub fn wait_for_place(mut self) -> Result<(Vec<Value>, Ticket)> {
        drop(InBody::enter(self.database)?);
        if let Way::Flying(call) = &self.way {
            let landed = Bell::block_on(|waker| {
                match call.take_landed_or_wake(|| Listener::own(waker), Until::Placed) {
                    Some(landed) => Poll::Ready(landed),
                    None => Poll::Pending,
                }
            });
            self.way = Way::Landed(landed);
        }
        match self.take() {
            Landed::Placed(values, ticket) => Ok((values, ticket)),
            Landed::Failed(settled, error) => Err(settled.wait().err().unwrap_or(error)),
            Landed::NotBegun(error) => Err(error),
            Landed::Panicked(settled, panic) => settled.wait().and_then(|()| panic.resume()),
        }
    }

    /// What became of it, which is told once.
    fn take(&mut self) -> Landed {
        match std::mem::replace(&mut self.way, Way::Told) {
            Way::Landed(landed) => landed,
            _ => panic!("a call that was sent was asked for its outcome again after it had given it"),
        }
    }
}

impl Future for Sent {
    type Output = Result<Vec<Value>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<Value>>> {
        self.get_mut().poll_by(|| Listener::foreign(context.waker()))
    }
}

impl Sent {
    /// The outcome, if it is there; if it is not, the listener is woken when it is.
    fn poll_by(&mut self, listener: impl Fn() -> Listener) -> Poll<Result<Vec<Value>>> {
        if let Way::Flying(call) = &self.way {
            match call.take_landed_or_wake(&listener, Until::Durable) {
                Some(landed) => self.way = Way::Landed(landed),
                None => return Poll::Pending,
            }
        }
        let mut durable = Ok(());
        if let Way::Landed(landed) = &mut self.way
            && let Some(ticket) = landed.ticket_mut()
        {
            match ticket.poll_by(listener) {
                Poll::Ready(outcome) => durable = outcome,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(match self.take() {
            Landed::Placed(values, _) => durable.map(|()| values),
            Landed::Failed(_, error) => Err(durable.err().unwrap_or(error)),
            Landed::NotBegun(error) => Err(error),
            Landed::Panicked(_, panic) => durable.and_then(|()| panic.resume()),
        })
    }
}

impl Landed {
    /// Somebody waits until it can be told: the place that the log has to be durable up to for that, if any.
    pub fn await_log(&mut self) -> Option<(Lsn, Durability)> {
        let ticket = self.ticket_mut()?;
        ticket.note_waiter();
        Some((ticket.lsn(), ticket.durability()))
    }

    /// What tells when it can be told, unless it can be at once.
    fn ticket(&self) -> Option<&Ticket> {
        match self {
            Landed::Placed(_, ticket) | Landed::Failed(ticket, _) | Landed::Panicked(ticket, _) => {
                Some(ticket)
            }
            Landed::NotBegun(_) => None,
        }
    }

    fn ticket_mut(&mut self) -> Option<&mut Ticket> {
        match self {
            Landed::Placed(_, ticket) | Landed::Failed(ticket, _) | Landed::Panicked(ticket, _) => {
                Some(ticket)
            }
            Landed::NotBegun(_) => None,
        }
    }
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.way {
            Way::Flying(_) => "Sent(on its way)",
            Way::Landed(Landed::Placed(..)) => "Sent(placed)",
            Way::Landed(_) => "Sent(failed)",
            Way::Told => "Sent(told)",
        })
    }
}

/// What a thread sleeps by in one wait for a future. Not its park token, which is its owner's.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    sleeper: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rung.lock() = true;
        self.sleeper.notify_one();
    }
}

thread_local! {
    /// For the thread's next wait. None while a wait has it.
    static BELL: Cell<Option<(Arc<Bell>, Waker)>> = const { Cell::new(None) };
}

impl Bell {
    /// Asks until there is an answer, and sleeps until woken in between.
    ///
    /// A ring is for one wait. `ask` may drop a waker of the user's, whose destructor may wait for another call: that inner wait finds no
    /// bell here, and has one of its own.
    fn block_on<T>(mut ask: impl FnMut(&Waker) -> Poll<T>) -> T {
        // In a thread that ends the bell may be gone.
        let kept = BELL.try_with(Cell::take).ok().flatten();
        let (bell, waker) = kept.unwrap_or_else(Bell::with_waker);
        let answer = bell.sleep(&waker, &mut ask);
        let _ = BELL.try_with(|kept| kept.set(Some((bell, waker))));
        answer
    }

    fn with_waker() -> (Arc<Bell>, Waker) {
        let bell = Arc::new(Bell::default());
        (bell.clone(), Waker::from(bell))
    }

    fn sleep<T>(&self, waker: &Waker, ask: &mut impl FnMut(&Waker) -> Poll<T>) -> T {
        loop {
            if let Poll::Ready(answer) = ask(waker) {
                return answer;
            }
            let mut rung = self.rung.lock();
            while !std::mem::take(&mut *rung) {
                self.sleeper.wait(&mut rung);
            }
        }
    }
}
