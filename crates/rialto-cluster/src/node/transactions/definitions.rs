//! [`await_definitions()`]: a session's catalog gets the definitions that were committed before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::{Database, fault_injection};
use rialto_sql::Result;
use rialto_sql::partitions::Cause;

use super::session::told;
use crate::node::replica::HostedReplica;

/// How long a session whose catalog lacks a definition waits for those that may be late.
const WITHIN: Duration = Duration::from_secs(3);
/// How often a session looks whether its statement is cancelled, while it waits.
const POLL: Duration = Duration::from_millis(2);

/// Waits until a session's catalog, which is the database of one of these replicas, has all definitions that were answered before
/// this call. False if it had them: what it lacks is not there.
///
/// # Errors
/// Those of `check`, which says whether the statement is cancelled; 40001 if they do not come in time.
pub fn await_definitions(
    replicas: &[Arc<HostedReplica>],
    catalog: &Database,
    check: &dyn Fn() -> Result<()>,
) -> Result<bool> {
    if fault_injection::is_on("late-definitions-missed") {
        return Ok(false);
    }
    let began = Instant::now();
    let of_catalog =
        |replica: &&Arc<HostedReplica>| replica.readable().is_some_and(|readable| readable.is_same(catalog));
    loop {
        check()?;
        // Its role may change meanwhile.
        let Some(replica) = replicas.iter().find(of_catalog) else {
            // It has been closed: the session takes another catalog.
            return Ok(true);
        };
        match replica.lead() {
            Some(lead) if lead.serves() => return await_prepared(catalog, began, check),
            Some(_) => std::thread::sleep(POLL),
            None if replica.is_as_of(began, POLL) => return Ok(true),
            None => {}
        }
        if began.elapsed() >= WITHIN {
            return Err(late());
        }
    }
}

/// A primary has what was answered, except what another partition has decided and this one has not heard of: it is prepared here.
/// What is in doubt for longer holds no statement up.
fn await_prepared(catalog: &Database, began: Instant, check: &dyn Fn() -> Result<()>) -> Result<bool> {
    let names = || catalog.prepared().into_iter().map(|prepared| prepared.name);
    let before: BTreeSet<String> = names().collect();
    while names().any(|name| before.contains(&name)) && began.elapsed() < WITHIN {
        check()?;
        std::thread::sleep(POLL);
    }
    Ok(!before.is_empty())
}

fn late() -> rialto_sql::SqlError {
    let message =
        "the definitions of this node's replica are older than the statement: what it names may be there";
    let hint = "Run it again. If this goes on, look for a partition without a primary.";
    told("40001", message.to_owned(), hint, Cause::None)
}
