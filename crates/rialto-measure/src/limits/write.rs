//! A bare write: one thread, one write and sync for each transaction.

use std::time::Instant;

use rialto::io::DiskResult;

use super::{Beside, ProbeFile, Reached, reached};
use crate::histogram::Latencies;

pub(super) fn run(mut file: ProbeFile, beside: &Beside) -> DiskResult<Reached> {
    let mut latencies = Latencies::default();
    let began = Instant::now();
    let mut now = began;
    while now - began < beside.time {
        file.write(beside.log_bytes as usize)?;
        let done = Instant::now();
        latencies.record(done - now);
        now = done;
    }
    Ok(reached(&latencies, now - began))
}
