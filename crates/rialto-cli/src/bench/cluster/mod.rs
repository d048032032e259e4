//! `rialto bench cluster`: transfers of money, by clients of a cluster that nodes may leave and come back to, and whether
//! each answered commit is there at the end. A server of one database is measured in the same way.
//!
//! - [`args`]: the command line;
//! - [`bank`]: the tables, and the transfers that clients draw; [`load`]: how the tables are found or filled;
//! - [`connection`]: a client's session, at one node or the next one; [`addresses`]: the nodes that are known;
//! - [`clients`]: the load; [`attempts`]: what each client knows of its transactions; [`pauses`]: the times without a
//!   commit; [`traffic`]: what nodes have counted;
//! - [`verify`]: what the tables hold at the end; [`report`]: the result.
//!
//! Invariants:
//!
//! - A number of a client belongs to one transaction: after an error the next one has another number, whether or not it
//!   is the same transfer. So a row of the ledger says which transaction has committed.
//! - A commit counts as answered only after the server has said so. Where COMMIT was sent and the answer is missing, or
//!   is no refusal that is certain, the outcome is unknown, and neither its row nor its absence is an error.

mod addresses;
pub mod args;
mod attempts;
mod bank;
mod clients;
mod connection;
mod load;
mod pauses;
mod report;
mod traffic;
mod verify;

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rialto_measure::report::{write_json, write_part};
use rialto_measure::text::say;
use rialto_measure::{RunError, interrupt};

use self::addresses::Addresses;
pub use self::args::ClusterBenchArgs;
use self::bank::Bank;
use self::connection::Connection;
use self::report::Report;
use self::traffic::Traffic;

/// For how long loading and verifying wait for a cluster that does not serve.
const SERVES_WITHIN: Duration = Duration::from_secs(120);

/// Runs the load and writes the result to `out`; progress goes to stderr. Returns whether all was as it must be: no
/// answered commit is lost, and the data are consistent.
///
/// # Errors
/// [`RunError`], each with its exit code.
pub fn run(args: &ClusterBenchArgs, out: &mut dyn Write) -> Result<bool, RunError> {
    args.check()?;
    let addresses = Addresses::new(args.connect.clone());
    let mut connection = Connection::new(&addresses, args.durability, 0);
    let found = load::open(&mut connection, args.accounts)?;
    say(&format!("nodes: {}", addresses.all().join(", ")));
    // Another run has another number, also one that runs at the same time.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let bank = Bank { accounts: found, run: since.map_or(0, |time| time.as_micros() as u64) };
    say(&format!("running {} s", args.seconds.as_secs_f64()));
    let before = Traffic::read(&addresses);
    let load = clients::run(args, &addresses, bank);
    interrupt::check()?;
    let traffic = Traffic::read(&addresses).since(&before);
    say("verifying");
    let verdict = verify::verify(&mut connection, bank, &load.attempts)?;
    let report = Report { args, nodes: addresses.all(), bank, load, traffic, verdict };
    write_part(out, report.text())?;
    write_json(out, args.json.then(|| report.json()))?;
    Ok(report.verdict.is_right())
}
