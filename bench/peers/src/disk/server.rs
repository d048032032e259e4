//! [`serve`]: an engine in a process of its own, which does what the run asks.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use serde::Serialize;

use super::args::DiskArgs;
use super::change::{Change, Changes};
use super::device::DeviceBytes;
use super::protocol::{Audited, Closed, Loaded, Request, Sliced};
use super::table::{DiskTable, Limit, Mix, Updates};
use crate::engine::Client;
use crate::error::{PeerError, Result};
use crate::slice::{Offer, Slice, run};

/// Serves one engine, with its table in this directory, until it is asked to close or its standard input ends.
///
/// # Errors
/// If the engine fails, or is asked for what it cannot do.
pub fn serve(args: &DiskArgs, directory: &Path) -> Result<()> {
    let [engine] = args.engines()[..] else {
        return Err(PeerError::Usage("a process serves one engine (--engines NAME)".to_owned()));
    };
    let mut table: Option<Box<dyn DiskTable>> = None;
    for line in std::io::stdin().lock().lines() {
        let line =
            line.map_err(|cause| PeerError::Files { during: "reading a request".to_owned(), cause })?;
        let request: Request = line.parse().map_err(PeerError::Usage)?;
        match (request, &table) {
            (Request::Load, None) => {
                let began = Instant::now();
                let loaded = engine.load(directory, args.rows, Limit(args.memory_bytes))?;
                loaded.settle()?;
                table = Some(loaded);
                tell(&Loaded { load_s: began.elapsed().as_secs_f64() })?;
            }
            (Request::Slice(offer, mix), Some(table)) => tell(&slice(&**table, args.rows, offer, mix)?)?,
            (Request::Audit, Some(table)) => tell(&Audited { sums: table.audit()? })?,
            (Request::Close, Some(_)) => {
                if let Some(table) = table.take() {
                    table.close()?;
                }
                return tell(&Closed {});
            }
            _ => return Err(PeerError::Usage(format!("\"{line}\" out of turn: load comes first, and once"))),
        }
    }
    Ok(())
}

/// By one write.
fn tell(answer: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(answer).expect("its names are texts");
    let told = writeln!(std::io::stdout(), "{line}").and_then(|()| std::io::stdout().flush());
    told.map_err(|cause| PeerError::Files { during: "telling the result".to_owned(), cause })
}

/// A client that draws its changes, and adds up those that are acknowledged.
struct Drawing<'a> {
    client: Box<dyn Updates + 'a>,
    changes: Changes,
    added: i64,
    /// Gets what was added in the end: clients share no cache line while they run.
    added_by_all: &'a AtomicI64,
}

impl Client for Drawing<'_> {
    fn transact(&mut self, _now: Instant) -> Result<()> {
        let Change { key, amount } = self.changes.next();
        self.client.add(key, amount)?;
        self.added += amount;
        Ok(())
    }
}

impl Drop for Drawing<'_> {
    fn drop(&mut self) {
        self.added_by_all.fetch_add(self.added, Ordering::Relaxed);
    }
}

/// Runs clients, and counts what they do.
fn slice(table: &dyn DiskTable, rows: u32, offer: Offer, mix: Mix) -> Result<Sliced> {
    let device =
        || DeviceBytes::here().map_err(|cause| PeerError::Files { during: "measuring".to_owned(), cause });
    table.set_mix(mix);
    let added_by_all = AtomicI64::new(0);
    let client = |number| {
        let seed = offer.seed_of(number);
        let client = table.client(seed)?;
        let changes = Changes::new(rows, seed);
        Ok(Box::new(Drawing { client, changes, added: 0, added_by_all: &added_by_all }) as Box<dyn Client>)
    };
    let clients = (0..offer.clients).map(client).collect::<Result<Vec<_>>>()?;
    let (before, pages_before) = (device()?, table.pages());
    let Slice { per_s, kept_up, percentiles, committed } = run(clients, offer)?;
    let pages = table.pages().zip(pages_before).map(|(now, before)| now.since(&before));
    Ok(Sliced {
        per_s,
        kept_up,
        latency: percentiles,
        committed,
        added: added_by_all.load(Ordering::Relaxed),
        device: device()?.since(before),
        pages,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::super::change::Sums;
    use super::*;

    /// A table of two rows; it loses each change of 7 in 8, if it is to.
    struct Rows {
        balances: Mutex<[i64; 2]>,
        loses: bool,
    }

    impl DiskTable for Rows {
        fn client<'a>(&'a self, _seed: u64) -> Result<Box<dyn Updates + 'a>> {
            Ok(Box::new(self))
        }

        fn settle(&self) -> Result<()> {
            Ok(())
        }

        fn audit(&self) -> Result<Option<Sums>> {
            let mut sums = Sums::default();
            self.balances.lock().unwrap().iter().for_each(|balance| sums.row(*balance));
            Ok(Some(sums))
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    impl Updates for &Rows {
        fn add(&mut self, key: u32, amount: i64) -> Result<()> {
            std::thread::sleep(Duration::from_micros(200));
            if !self.loses || amount % 8 == 0 {
                self.balances.lock().unwrap()[key as usize] += amount;
            }
            Ok(())
        }
    }

    #[test]
    fn what_is_acknowledged_is_what_the_table_adds_up_to_unless_changes_are_lost() {
        let offer = Offer { clients: 3, rate: None, time: Duration::from_millis(100), seed: 1 };
        for loses in [false, true] {
            let table = Rows { balances: Mutex::default(), loses };
            let slice = slice(&table, 2, offer, Mix::POOL_OF_A_TENTH).unwrap();
            assert!(slice.committed > 0 && slice.added > 0 && slice.pages.is_none(), "{slice:?}");
            let problem = table.audit().unwrap().unwrap().problem(2, slice.added);
            assert_eq!(problem.is_some(), loses, "{problem:?}");
        }
    }
}
