//! Clients on one processor of a virtual clock: a window of virtual seconds, which is the same in each run of a seed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rialto::io::{Clock, Processor, VirtualClock};
use rialto::{Database, Error};

use super::client::Done;
use super::{EndOnDrop, Ended, Load, Observer, Outcome, Phase, Shared, Workload, gather};
use crate::interrupt;

/// A processor on a virtual clock, with the database that is on it.
#[derive(Debug)]
pub struct VirtualMachine {
    /// The processor.
    pub processor: Arc<Processor>,
    /// Its clock.
    pub clock: Arc<VirtualClock>,
    /// The database, whose background work has to be driven.
    pub database: Database,
}

/// How often background work is done.
const BACKGROUND: Duration = Duration::from_millis(10);

/// Runs the workload by blocking clients. Returns when every transaction that was begun has its outcome.
///
/// # Errors
/// As [`drive`](super::drive).
pub fn drive_on<W: Workload>(
    workload: &W,
    machine: &VirtualMachine,
    load: &Load,
    observer: &mut dyn Observer,
) -> Result<Outcome, Ended> {
    let VirtualMachine { processor, clock, database } = machine;
    let shared = Shared::new(load.clients);
    let types = workload.procedures().len();
    let dones: Vec<Mutex<Done>> = (0..load.clients).map(|_| Mutex::new(Done::new(types))).collect();
    let real_began = Instant::now();
    let client = |number: u32| {
        let (shared, done) = (&shared, &dones[number as usize]);
        let run = move || {
            let mut state = workload.client(number, load.seed);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.switches = None;
            while shared.phase() != Phase::End {
                done.attempted += 1;
                let begun = clock.now();
                let outcome = workload.run_one(&mut state, real_began + begun);
                // What it held others may have now.
                processor.step();
                match outcome {
                    Ok(procedure) => {
                        done.acknowledged += 1;
                        shared.cells[number as usize].committed.fetch_add(1, Ordering::Relaxed);
                        if shared.phase() == Phase::Window {
                            done.latencies[procedure].record(clock.now() - begun);
                        }
                    }
                    Err(Error::Aborted { .. }) => {
                        done.aborted_user += u64::from(shared.phase() == Phase::Window);
                    }
                    Err(Error::Deadlock { .. }) => {}
                    Err(error) => {
                        done.failed = Some(error);
                        shared.end();
                    }
                }
            }
            workload.retire(state);
        };
        Box::new(run) as Box<dyn FnOnce() + Send>
    };
    let (began, mut refused, mut failed, mut window) = (clock.now(), None, None, Duration::ZERO);
    let by = Clock::from(clock.clone());
    let watch = || {
        // Whatever happens here.
        let _ends = EndOnDrop(&shared);
        let mut until = |moment: Duration| {
            while clock.now() < moment && shared.phase() != Phase::End && !interrupt::is_asked() {
                by.sleep(BACKGROUND.min(moment.saturating_sub(clock.now())));
                if let Err(error) = database.drive() {
                    failed = Some(error);
                    shared.end();
                }
            }
        };
        until(began + load.warmup);
        match observer.window_begins(shared.committed(), clock.now() - began) {
            Err(reason) => refused = Some(reason),
            Ok(()) => {
                let opened = clock.now();
                if shared.enter(Phase::Warmup, Phase::Window) {
                    until(opened + load.window);
                    window = clock.now() - opened;
                    observer.window_ends();
                }
            }
        }
    };
    processor.run(clock, (0..load.clients).map(client).collect(), watch);
    if let Some(error) = failed {
        return Err(Ended::Failed(error));
    }
    gather(
        types,
        window,
        dones.into_iter().map(|done| Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))),
        refused,
    )
}
