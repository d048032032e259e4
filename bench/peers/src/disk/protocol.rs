//! [`Request`]: what the run asks an engine's process, a line each; [`Loaded`], [`Sliced`], [`Audited`], [`Closed`]:
//! the answers, a line of JSON each.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rialto_measure::histogram::Percentiles;
use serde::{Deserialize, Serialize};

use super::change::Sums;
use super::device::DeviceBytes;
use super::table::{Mix, PageCounts};
use crate::slice::Offer;

/// What an engine's process is to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request {
    /// Make the table: the first request, after the process has been moved to its group.
    Load,
    /// Run clients.
    Slice(Offer, Mix),
    /// Read all rows.
    Audit,
    /// Close the table, and end.
    Close,
}

/// Written for a rate when there is none.
const CLOSED_LOOP: &str = "closed";

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Load => f.write_str("load"),
            Request::Audit => f.write_str("audit"),
            Request::Close => f.write_str("close"),
            Request::Slice(Offer { clients, rate, time, seed }, Mix { reads, writes }) => {
                let rate = rate.map_or(CLOSED_LOOP.to_owned(), |rate| rate.to_string());
                write!(f, "slice {clients} {} {rate} {seed} {reads} {writes}", time.as_secs_f64())
            }
        }
    }
}

impl FromStr for Request {
    type Err = String;

    fn from_str(line: &str) -> Result<Request, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let refused = || {
            format!(
                "\"{line}\" is no request: expected load, audit, close, or slice CLIENTS SECONDS RATE SEED READS WRITES"
            )
        };
        match words[..] {
            ["load"] => Ok(Request::Load),
            ["audit"] => Ok(Request::Audit),
            ["close"] => Ok(Request::Close),
            ["slice", clients, seconds, rate, seed, reads, writes] => {
                let slice = || {
                    let rate = match rate {
                        CLOSED_LOOP => None,
                        rate => Some(rate.parse().ok()?),
                    };
                    let time = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
                    let offer =
                        Offer { clients: clients.parse().ok()?, rate, time, seed: seed.parse().ok()? };
                    let mix = Mix { reads: reads.parse().ok()?, writes: writes.parse().ok()? };
                    Some(Request::Slice(offer, mix))
                };
                slice().ok_or_else(refused)
            }
            _ => Err(refused()),
        }
    }
}

/// The table is there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// How long it took.
    pub load_s: f64,
}

/// What a slice measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sliced {
    /// Transactions a second that committed in the window.
    pub per_s: f64,
    /// The share that these are of all that was due; 1 in a closed loop.
    pub kept_up: f64,
    /// Their latencies.
    #[serde(flatten)]
    pub latency: Percentiles,
    /// All that committed, those of the warm-up included.
    pub committed: u64,
    /// What these added in all.
    pub added: i64,
    /// What these, and the engine behind them, read from devices and wrote to them.
    #[serde(flatten)]
    pub device: DeviceBytes,
    /// What the engine counted of pages meanwhile, if it tells.
    pub pages: Option<PageCounts>,
}

impl Sliced {
    fn each(&self, count: u64) -> f64 {
        count as f64 / self.committed.max(1) as f64
    }

    /// Bytes read from devices for a transaction.
    pub fn read_bytes(&self) -> f64 {
        self.each(self.device.read)
    }

    /// Bytes written to devices for a transaction.
    pub fn written_bytes(&self) -> f64 {
        self.each(self.device.written)
    }

    /// Pages read and written for a transaction, if the engine tells.
    pub fn mix(&self) -> Option<Mix> {
        self.pages.map(|pages| Mix { reads: self.each(pages.reads), writes: self.each(pages.writes) })
    }
}

/// What a pass over the table found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Audited {
    /// `None` if there are no rows.
    pub sums: Option<Sums>,
}

/// The table is closed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Closed {}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A slice of so many transactions.
    pub fn sliced(per_s: f64) -> Sliced {
        Sliced {
            per_s,
            kept_up: 1.0,
            latency: Percentiles { p50_us: 100.0, p99_us: 300.0, p999_us: 700.0, max_us: 900.0 },
            committed: 1_000,
            added: 77,
            device: DeviceBytes { read: 4_096_000, written: 2_048_000 },
            pages: Some(PageCounts {
                accesses: 1_000,
                misses: 900,
                reads_by_accesses: 909,
                reads: 950,
                writes: 800,
            }),
        }
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        let offer = Offer { clients: 64, rate: None, time: Duration::from_millis(1_500), seed: u64::MAX };
        let mix = Mix { reads: 0.9, writes: 1.0 / 3.0 };
        let open = Offer { rate: Some(1234.5), ..offer };
        let slices = [Request::Slice(offer, mix), Request::Slice(open, mix)];
        assert_eq!(slices[1].to_string(), "slice 64 1.5 1234.5 18446744073709551615 0.9 0.3333333333333333");
        for request in [Request::Load, Request::Audit, Request::Close].into_iter().chain(slices) {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        for line in ["", "loads", "slice", "slice 1 2 3 4 5 x", "slice 1 -2 closed 4 5 6"] {
            let refusal = line.parse::<Request>().unwrap_err();
            assert!(refusal.contains("is no request"), "{refusal}");
        }
    }

    #[test]
    fn answers_are_read_back_and_figures_are_of_one_transaction() {
        let slice = sliced(5_000.0);
        let line = serde_json::to_string(&slice).unwrap();
        assert_eq!(serde_json::from_str::<Sliced>(&line).unwrap(), slice);
        assert_eq!((slice.read_bytes(), slice.written_bytes()), (4_096.0, 2_048.0));
        assert_eq!(slice.mix(), Some(Mix { reads: 0.95, writes: 0.8 }));
        let audited = Audited { sums: Some(Sums { rows: 2, balances: -3 }) };
        let line = serde_json::to_string(&audited).unwrap();
        assert_eq!(serde_json::from_str::<Audited>(&line).unwrap(), audited);
    }
}
