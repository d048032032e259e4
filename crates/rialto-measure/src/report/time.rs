//! Where transactions' time went: the kernel's accounts and what the clients saw, put together.

use rialto::{ProcedureAccount, TimeHistogram};
use serde_json::{Value as Json, json};

use super::Measured;

/// Where a transaction's time went, in microseconds: means over a window that add up to the response time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TimeAccount {
    /// From the intended start to the start, in an open loop.
    pub queue: f64,
    /// For pages of tables on disk; 0 without such tables.
    pub fetch_io: f64,
    pub lock_wait: f64,
    pub latch_wait: f64,
    pub run: f64,
    pub log_wait: f64,
}

/// What waited for transactions: it decides what part of a response time is a remainder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A blocking client: its run is what is left of the response time that it saw.
    ByClients,
    /// A ticket's client, which alone knows when it looked: the wait for the log is what is left.
    AsTickets,
    /// A message server: what is left are the request queue and the response queue.
    InQueues,
}

impl TimeAccount {
    /// The account as a JSON object. What does not apply is null: there is no queue in a closed loop, no page without tables
    /// on disk, and no standby.
    pub fn json(account: Option<&TimeAccount>, is_open: bool, has_pages: bool) -> Json {
        let part = |part: fn(&TimeAccount) -> f64| Json::from(account.map(part));
        json!({
            "queue": if is_open { part(|account| account.queue) } else { Json::Null },
            "fetch_io": if has_pages { part(|account| account.fetch_io) } else { Json::Null },
            "lock_wait": part(|account| account.lock_wait),
            "latch_wait": part(|account| account.latch_wait),
            "run": part(|account| account.run),
            "log_wait": part(|account| account.log_wait),
            "standby_wait": null,
        })
    }

    fn add_share(&mut self, other: &TimeAccount, share: f64) {
        self.queue += other.queue * share;
        self.fetch_io += other.fetch_io * share;
        self.lock_wait += other.lock_wait * share;
        self.latch_wait += other.latch_wait * share;
        self.run += other.run * share;
        self.log_wait += other.log_wait * share;
    }
}

/// What the kernel counted for one procedure in the window.
#[derive(Debug, Default)]
struct Grown {
    committed: u64,
    /// Those that asked for it themselves, or had an error.
    aborted_user: u64,
    fetch_io_ns: u64,
    lock_wait_ns: u64,
    lock_wait_for_disk_ns: u64,
    latch_wait_ns: u64,
    run_ns: u64,
    log_wait_ns: u64,
    lock_waits: TimeHistogram,
    latch_waits: TimeHistogram,
    log_waits: TimeHistogram,
}

impl Measured {
    fn grown_of(&self, procedure: &str) -> Grown {
        let find = |accounts: &[ProcedureAccount]| {
            accounts.iter().find(|account| account.name == procedure).cloned().unwrap_or_default()
        };
        let (begin, end) = (find(&self.metrics.0.procedures), find(&self.metrics.1.procedures));
        let by_themselves = |account: &ProcedureAccount| {
            account.aborted.saturating_sub(account.deadlocks + account.straddling)
        };
        Grown {
            committed: end.committed - begin.committed,
            aborted_user: by_themselves(&end).saturating_sub(by_themselves(&begin)),
            fetch_io_ns: end.time.fetch_io_ns.unwrap_or(0) - begin.time.fetch_io_ns.unwrap_or(0),
            lock_wait_ns: end.time.lock_wait_ns - begin.time.lock_wait_ns,
            lock_wait_for_disk_ns: end.time.lock_wait_for_disk_ns - begin.time.lock_wait_for_disk_ns,
            latch_wait_ns: end.time.latch_wait_ns - begin.time.latch_wait_ns,
            run_ns: end.time.run_ns - begin.time.run_ns,
            log_wait_ns: end.time.log_wait_ns - begin.time.log_wait_ns,
            lock_waits: end.lock_wait.since(&begin.lock_wait),
            latch_waits: end.latch_wait.since(&begin.latch_wait),
            log_waits: end.log_wait.since(&begin.log_wait),
        }
    }

    /// The time account of a procedure, by its position and name; `None` if none committed.
    pub(super) fn time_of(&self, position: usize, name: &str, awaited: Awaited) -> Option<TimeAccount> {
        let latencies = self.outcome.latencies.get(position)?;
        let grown = self.grown_of(name);
        if latencies.count() == 0 || grown.committed == 0 {
            return None;
        }
        let mean = |ns: u64| ns as f64 / 1e3 / grown.committed as f64;
        let response = latencies.mean_us();
        let queue = self.outcome.queue_ns[position] as f64 / 1e3 / latencies.count() as f64;
        let fetch_io = mean(grown.fetch_io_ns);
        let (lock_wait, latch_wait) = (mean(grown.lock_wait_ns), mean(grown.latch_wait_ns));
        let waits = queue + fetch_io + lock_wait + latch_wait;
        let rest = |parts: f64| (response - waits - parts).max(0.0);
        let (run, log_wait) = (mean(grown.run_ns), mean(grown.log_wait_ns));
        let (queue, run, log_wait) = match awaited {
            Awaited::ByClients => (queue, rest(log_wait), log_wait),
            Awaited::AsTickets => (queue, run, rest(run)),
            Awaited::InQueues => (queue + rest(run + log_wait), run, log_wait),
        };
        Some(TimeAccount { queue, fetch_io, lock_wait, latch_wait, run, log_wait })
    }

    /// The time account of all procedures together.
    pub(super) fn time_account(&self, procedures: &[&str], awaited: Awaited) -> Option<TimeAccount> {
        let committed = self.outcome.committed();
        if committed == 0 {
            return None;
        }
        let mut all = TimeAccount::default();
        for (position, name) in procedures.iter().enumerate() {
            if let Some(account) = self.time_of(position, name, awaited) {
                let share = self.outcome.latencies[position].count() as f64 / committed as f64;
                all.add_share(&account, share);
            }
        }
        Some(all)
    }

    /// How many of a procedure's transactions aborted by themselves, and how many of a hundred did not; `None` if none ran.
    pub(super) fn aborted_of(&self, name: &str) -> (u64, Option<f64>) {
        let Grown { committed, aborted_user, .. } = self.grown_of(name);
        let ran = committed + aborted_user;
        (aborted_user, (ran > 0).then(|| committed as f64 * 100.0 / ran as f64))
    }

    /// How many of a procedure's transactions waited, and how long those did.
    pub(super) fn waits_json(&self, name: &str) -> Json {
        let grown = self.grown_of(name);
        let one = |waits: &TimeHistogram| {
            let us = |share| Json::from(waits.quantile(share).map(|time| time.as_nanos() as f64 / 1e3));
            let committed = grown.committed.max(1) as f64;
            json!({
                "share": (waits.count() as f64 / committed),
                "p50": us(0.5),
                "p99": us(0.99),
            })
        };
        let mut lock = one(&grown.lock_waits);
        lock["for_disk_share"] = (grown.lock_wait_ns > 0)
            .then(|| grown.lock_wait_for_disk_ns as f64 / grown.lock_wait_ns as f64)
            .into();
        json!({
            "lock": lock,
            "latch": one(&grown.latch_waits),
            "log": one(&grown.log_waits),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::measured;

    #[test]
    fn the_time_account_adds_up_to_the_response_time() {
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.2;
        let blocking = measured(100).time_account(&["p"], Awaited::ByClients).unwrap();
        assert!(near(blocking.run, 35.0) && near(blocking.log_wait, 30.0), "{blocking:?}");
        let tickets = measured(100).time_account(&["p"], Awaited::AsTickets).unwrap();
        let served = measured(100).time_account(&["p"], Awaited::InQueues).unwrap();
        assert!(
            near(served.queue, 20.0) && near(served.run, 25.0) && near(served.log_wait, 30.0),
            "{served:?}"
        );
        assert!(near(tickets.run, 25.0) && near(tickets.log_wait, 40.0), "{tickets:?}");
        for TimeAccount { queue, lock_wait, latch_wait, run, log_wait, .. } in [blocking, tickets] {
            assert!(near(queue + lock_wait + latch_wait + run + log_wait, 100.0));
            assert!(near(queue, 10.0) && near(lock_wait, 20.0) && near(latch_wait, 5.0));
        }
        assert_eq!(measured(0).time_account(&["p"], Awaited::ByClients), None);
        assert_eq!(measured(10).time_of(0, "another", Awaited::ByClients), None);
    }

    #[test]
    fn those_that_abort_by_themselves_are_told_from_those_that_run_again() {
        let mut measured = measured(60);
        assert_eq!(measured.aborted_of("p"), (0, Some(100.0)));
        assert_eq!(measured.aborted_of("another"), (0, None));
        let account = &mut measured.metrics.1.procedures[0];
        (account.aborted, account.deadlocks, account.straddling) = (27, 4, 3);
        assert_eq!(measured.aborted_of("p"), (20, Some(75.0)));
    }

    #[test]
    fn what_does_not_apply_is_null_and_a_closed_loop_has_no_queue() {
        let account = measured(10).time_account(&["p"], Awaited::ByClients);
        let json = TimeAccount::json(account.as_ref(), false, false);
        for absent in ["queue", "fetch_io", "standby_wait"] {
            assert_eq!(json.get(absent), Some(&Json::Null), "{absent}");
        }
        assert!(
            TimeAccount::json(account.as_ref(), true, false).get("queue").and_then(Json::as_f64).is_some()
        );
    }
}
