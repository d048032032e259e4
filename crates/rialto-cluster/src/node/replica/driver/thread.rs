//! The driver's thread: it takes what no other thread takes at once, and tells the time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::{Driver, Input, Stops};
use crate::node::replica::inputs::{Drives, Inputs};

/// How often blocks that the links had no room for are tried again.
const SHIP_AGAIN: Duration = Duration::from_millis(2);

/// Why a driver ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It was closed, or cannot go on and has said why.
    Told,
    /// A step has failed in a panic.
    ByPanic,
}

/// Drives until the replica ends. Then what waits for it is told, and its database is closed.
pub(super) fn serve(inputs: &Inputs, driver: Driver) {
    let shared = driver.shared.clone();
    let tick = (driver.replication.heartbeat / 5).max(Duration::from_millis(5));
    inputs.begin(driver);
    if run(inputs, tick) == Ends::ByPanic {
        shared.state.lock().trouble = Some(
            "the replica has stopped: its driver has failed in a panic, which the node's output shows"
                .to_owned(),
        );
    }
    if let Some(driver) = inputs.take_driver() {
        // After a panic it may be half changed, and fail in another one, which tells of itself.
        let _ = catch_unwind(AssertUnwindSafe(|| driver.end()));
    }
    inputs.end();
}

fn run(inputs: &Inputs, tick: Duration) -> Ends {
    let mut next_tick = Instant::now();
    let mut wait = Duration::ZERO;
    if inputs.drive_after(wait, Driver::first_open).is_none() {
        return Ends::ByPanic;
    }
    loop {
        let turn = |driver: &mut Driver| {
            let is_due = Instant::now() >= next_tick;
            if is_due {
                next_tick = Instant::now() + tick;
            }
            driver.turn(is_due)
        };
        match inputs.drive_after(wait, turn) {
            None => return Ends::ByPanic,
            Some(AfterTurn::Ends) => return Ends::Told,
            Some(AfterTurn::GoesOn { ships_again }) => {
                let left = next_tick.saturating_duration_since(Instant::now());
                wait = if ships_again { left.min(SHIP_AGAIN) } else { left };
            }
        }
    }
}

/// How a turn of the driver's thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterTurn {
    GoesOn {
        /// Whether blocks wait for room in a link.
        ships_again: bool,
    },
    Ends,
}

impl Driver {
    /// A turn of the driver's thread.
    fn turn(&mut self, is_tick: bool) -> AfterTurn {
        let mut stops = self.stops.take().map_or(Ok(()), Err).and_then(|()| self.carry_out_left());
        while stops.is_ok()
            && let Some(input) = self.inputs.next()
        {
            if matches!(input, Input::Close) {
                return AfterTurn::Ends;
            }
            stops = self.take(input);
        }
        stops = stops.and_then(|()| self.ship_again());
        if stops.is_ok() && is_tick {
            stops = self.tick();
        }
        self.tell();
        match stops {
            Ok(()) => AfterTurn::GoesOn { ships_again: self.waits() },
            Err(Stops(why)) => {
                self.trouble(format!("the replica has stopped: {why}"));
                AfterTurn::Ends
            }
        }
    }
}
