//! [`Ending`]: SIGTERM and SIGINT.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failed::Failed;

/// Whether SIGTERM or SIGINT has asked this process to end. From the making of this on they do not end it by themselves.
pub struct Ending {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    has_come: bool,
}

impl Ending {
    pub fn new() -> Result<Ending, Failed> {
        let made = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let entered = runtime.enter();
            let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            drop(entered);
            Ok(Ending { runtime, terminate, interrupt, has_come: false })
        };
        made().map_err(|error: std::io::Error| {
            Failed::failing(format_args!("waiting for SIGTERM and SIGINT: {error}"))
        })
    }

    /// Waits for at most this time, and gives whether the process is to end.
    pub fn comes_within(&mut self, patience: Duration) -> bool {
        let Ending { runtime, terminate, interrupt, has_come } = self;
        *has_come = *has_come
            || runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => true,
                    _ = interrupt.recv() => true,
                    () = tokio::time::sleep(patience) => false,
                }
            });
        *has_come
    }
}
