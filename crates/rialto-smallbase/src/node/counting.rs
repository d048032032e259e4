//! What a node's process has done so far.

use std::time::Duration;

use rialto::{Database, TimeHistogram};
use rialto_cluster::node::Node;
use rialto_measure::usage::{Usage, process_cpu};

use super::clients::LONG;
use crate::wire::Counts;

/// What was counted since the node's start.
pub struct Counted(Counts);

/// Looks at all counters.
pub fn count(node: &Node) -> Counted {
    let links = node.links().counts();
    let transactions = node.transactions().transaction_counts();
    let mut counts = Counts {
        messages: transactions.messages,
        messages_sent: links.messages_sent,
        writes: links.writes,
        bytes_sent: links.bytes_sent,
        writers_woken: links.wake_ups,
        workers_woken: transactions.wake_ups,
        waits: transactions.waits,
        calls_again: transactions.calls_again,
        ..of_process()
    };
    for replica in node.replicas() {
        let Ok(admitted) = replica.admit() else { continue };
        add_long(&mut counts, admitted.database());
    }
    Counted(counts)
}

/// The same where there is no node.
pub fn count_alone(db: &Database) -> Counted {
    let mut counts = of_process();
    add_long(&mut counts, db);
    Counted(counts)
}

fn of_process() -> Counts {
    let usage = Usage::of_process().unwrap_or_default();
    Counts {
        cpu_us: process_cpu().map_or(0, |time| time.as_micros() as u64),
        voluntary_switches: usage.voluntary,
        involuntary_switches: usage.involuntary,
        ..Counts::default()
    }
}

/// Adds what a database's time account has of long waits and runs.
fn add_long(counts: &mut Counts, db: &Database) {
    let long = |times: &TimeHistogram| times.count_from(LONG);
    for account in db.metrics().procedures {
        counts.long_lock_waits += long(&account.lock_wait);
        counts.long_latch_waits += long(&account.latch_wait);
        counts.long_runs += long(&account.run);
        counts.long_log_waits += long(&account.log_wait);
    }
}

impl Counted {
    /// Nothing.
    #[cfg(test)]
    pub fn none() -> Counted {
        Counted(Counts::default())
    }

    /// What came since an earlier look, in a window of this length.
    pub fn since(&self, earlier: &Counted, window: Duration) -> Counts {
        let (now, before) = (&self.0, &earlier.0);
        let since = |of: fn(&Counts) -> u64| of(now).saturating_sub(of(before));
        Counts {
            window_us: window.as_micros() as u64,
            cpu_us: since(|counts| counts.cpu_us),
            voluntary_switches: since(|counts| counts.voluntary_switches),
            involuntary_switches: since(|counts| counts.involuntary_switches),
            messages: since(|counts| counts.messages),
            messages_sent: since(|counts| counts.messages_sent),
            writes: since(|counts| counts.writes),
            bytes_sent: since(|counts| counts.bytes_sent),
            writers_woken: since(|counts| counts.writers_woken),
            workers_woken: since(|counts| counts.workers_woken),
            waits: since(|counts| counts.waits),
            calls_again: since(|counts| counts.calls_again),
            long_lock_waits: since(|counts| counts.long_lock_waits),
            long_latch_waits: since(|counts| counts.long_latch_waits),
            long_runs: since(|counts| counts.long_runs),
            long_log_waits: since(|counts| counts.long_log_waits),
        }
    }
}
