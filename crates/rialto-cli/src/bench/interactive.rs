//! `rialto bench card --interactive`: answers requests from the input, and at its end verifies the data.

use std::io::Write;

use rialto::Database;
use rialto_measure::RunError;
use rialto_measure::text::say;
use rialto_workloads::card::CardServers;
use rialto_workloads::card::interactive::{Ended, serve};
use rialto_workloads::data::ShapeError;
use rialto_workloads::workload::Audited;

use super::args::BenchArgs;
use super::session::{self, Opened};

/// Reads requests until the input ends, and verifies the data then. Returns whether it is consistent.
///
/// # Errors
/// [`RunError`], each with its exit code.
pub fn run(
    args: &BenchArgs,
    out: &mut dyn Write,
    open: impl Fn(&Database, &mut dyn FnMut(&str)) -> Result<(CardServers, bool), ShapeError>,
) -> Result<bool, RunError> {
    let Opened { database, workload: servers, audit, .. } = session::open(args, open)?;
    say("one request a line; \"help\" lists them");
    let served = serve(&servers, &mut std::io::stdin().lock(), out, &mut std::io::stderr());
    let done = served.map_err(|served| match served {
        Ended::Io(cause) => RunError::Io { during: "reading requests and writing responses", cause },
        Ended::Failed(cause) => RunError::Transaction { during: "running a request", cause },
    })?;
    let after = servers.audit().map_err(RunError::during("verifying the data"))?;
    let verdict = after.judge(servers.shape(), &audit.totals, &done);
    say(&format!("consistent: {}: {}", if verdict.consistent { "yes" } else { "NO" }, verdict.text));
    drop(servers);
    database.close().map_err(RunError::during("closing the database"))?;
    Ok(verdict.consistent)
}
